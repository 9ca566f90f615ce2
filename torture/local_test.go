//go:build unix

package torture_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

// local is a program with a worker in this process, so that a test can hear
// what each call of it comes to.
type local struct {
	path    string
	ledger  *ledger
	voice   *voice
	by      *child
	q       *errand.Queue
	n       int
	ids     map[int]errand.ID
	begun   chan int64    // handlers that were called
	release chan struct{} // close it to let them go on
	log     *logged
	stop    func() error
}

// openLocal opens a queue, with a worker if p has workers. What else is done to
// it is done before the test ends.
func openLocal(t *testing.T, path string, p part) *local {
	t.Helper()
	f := &local{
		path: path, ledger: newLedger(), by: &child{t: t}, ids: map[int]errand.ID{},
		begun: make(chan int64, 100_000), release: make(chan struct{}), log: &logged{},
	}
	f.voice = &voice{out: notes{f.ledger, f.by}}
	log := slog.New(slog.NewTextHandler(f.log, nil))
	opts := &sqlite.Options{Logger: log, BusyTimeout: p.Busy}
	if p.Relaxed {
		opts.Durability = sqlite.Relaxed
	}
	store, err := sqlite.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	f.q, err = errand.New(t.Context(), &witness{Store: store, voice: f.voice}, &errand.Options{Policy: quick, MaxArgs: 1 << 20, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	f.stop = sync.OnceValue(f.q.Close)
	if p.Workers > 0 {
		f.work(t, p)
	}
	t.Cleanup(func() { _ = f.stop() }) // a test that cares has done so
	return f
}

func (f *local) work(t *testing.T, p part) {
	t.Helper()
	w := errand.NewWorker(f.q, &errand.WorkerOptions{Concurrency: p.Workers, LeaseDuration: cmp.Or(p.Lease, time.Second)})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[order]) error {
		f.voice.say("run %d %d", job.ID.Key(), job.Attempt)
		f.begun <- job.ID.Key()
		select {
		case <-f.release:
			return job.Args.handle(job)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { ended <- w.Run(ctx) }()
	f.stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, f.q.Close())
	})
}

// close stops the worker and closes the queue.
func (f *local) close(t *testing.T) {
	t.Helper()
	if err := f.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// enqueue enqueues the next job, with some bytes of args.
func (f *local) enqueue(size int) error {
	f.n++
	f.voice.say("try %d default", f.n)
	o := order{N: f.n, Plan: plans[f.n%len(plans)], Pad: strings.Repeat("x", size)}
	e, err := f.q.Enqueue(context.Background(), o, nil)
	if err == nil {
		f.voice.say("enqueued %d %s", f.n, e.ID)
		f.ids[f.n] = e.ID
	}
	return err
}

// worked reports whether nothing is left that could run.
func (f *local) worked(t *testing.T) bool {
	t.Helper()
	counts, err := f.q.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		switch c.State {
		case errand.Ready, errand.Running, errand.Scheduled:
			return false
		}
	}
	return true
}

// notes writes into a ledger what this process itself says.
type notes struct {
	ledger *ledger
	by     *child
}

func (n notes) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if _, err := n.ledger.note(n.by, strings.TrimSpace(line)); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// logged keeps what was logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// end returns the last lines.
func (l *logged) end() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.SplitAfter(l.text.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "")
}

// count returns how many lines have a text.
func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}
