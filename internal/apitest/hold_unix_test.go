//go:build unix

package apitest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// brief is a job that is done at once, so that hundreds are leased ahead.
type brief struct{}

func (brief) Kind() string { return "brief" }

// briefs counts the starts of briefs in a process.
type briefs struct {
	n    atomic.Int64
	last atomic.Int64 // when, in Unix nanoseconds
	many chan struct{}
	wait chan struct{} // closed: from now on each waits for held
	held chan struct{} // closed once the hold has returned
}

func newBriefs() *briefs {
	return &briefs{many: make(chan struct{}), wait: make(chan struct{}), held: make(chan struct{})}
}

const (
	// manyBriefs is how many starts it takes until the pace of a worker has settled.
	manyBriefs = 1000
	// mostBriefs is how many a process starts before they wait in any case, so that some are left for what
	// follows, however long it takes until then.
	mostBriefs = 8000
)

func (b *briefs) run(ctx context.Context, _ *errand.Job[brief]) error {
	b.last.Store(time.Now().UnixNano())
	n := b.n.Add(1)
	if n == manyBriefs {
		close(b.many)
	}
	select {
	case <-b.wait:
	default:
		if n <= mostBriefs {
			time.Sleep(20 * time.Microsecond) // the work
			return nil
		}
	}
	select {
	case <-b.held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runBriefs works, and says when it has got going. With the first line of its input
// briefs wait, until the second one. For each line after that it says how many it has started, when it
// started the last one, and for how long the machine has kept it from running at most.
func runBriefs(ctx context.Context, q *errand.Queue) error {
	b := newBriefs()
	w := errand.NewWorker(q, nil)
	errand.Handle(w, b.run)
	var stall atomic.Int64
	go func() {
		const often = 5 * time.Millisecond
		for last := time.Now(); ; last = time.Now() {
			time.Sleep(often)
			stall.Store(max(stall.Load(), int64(time.Since(last)-often)))
		}
	}()
	go func() {
		<-b.many
		fmt.Println("busy")
		lines := bufio.NewScanner(os.Stdin)
		for _, c := range []chan struct{}{b.wait, b.held} {
			if lines.Scan() {
				close(c)
			}
		}
		for lines.Scan() {
			fmt.Println("started", b.n.Load(), b.last.Load(), stall.Load())
		}
		_ = w.Shutdown(ctx) // what Run returns
	}()
	fmt.Println("ready")
	if err := w.Run(ctx); err != nil {
		return err
	}
	return q.Close()
}

// started asks a process that drains.
func (o *other) started() (n int64, last time.Time, stall time.Duration) {
	o.t.Helper()
	o.says("how many?")
	var at int64
	if !o.out.Scan() {
		o.t.Fatal("the other process has nothing to say")
	}
	if _, err := fmt.Sscanf(o.out.Text(), "started %d %d %d", &n, &at, &stall); err != nil {
		o.t.Fatalf("the other process said %q: %v", o.out.Text(), err)
	}
	return n, time.Unix(0, at), stall
}

// Two processes work, with hundreds of jobs leased ahead. Once a pause or a hold has
// returned none starts in this process. None starts in the other one once it has seen
// the commit, which takes 1.1 s at most. What was leased ahead has lost nothing.
//
//errand:shows a hold while two processes work | | with up to 480 jobs leased ahead in each, none starts in the calling process after a pause or a hold has returned, and none in the other after 1.1 s; those that were leased have spent nothing
func TestProcesses_Hold(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	for name, h := range map[string]struct{ hold, release func(*errand.Queue) error }{
		"pause": {
			func(q *errand.Queue) error { return q.Pause(t.Context(), "default") },
			func(q *errand.Queue) error { return q.Resume(t.Context(), "default") },
		},
		"kind": {
			func(q *errand.Queue) error { return q.Hold(t.Context(), errand.Lane{Kind: "brief"}, nil) },
			func(q *errand.Queue) error {
				_, err := q.Release(t.Context(), errand.Lane{Kind: "brief"}, "")
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) { holdWhileDraining(t, h.hold, h.release) })
	}
}

func holdWhileDraining(t *testing.T, hold, release func(*errand.Queue) error) {
	const jobs, runners = 20_000, 16 // runners: the default; of the jobs 4,000 are left when they wait
	q, path := openShared(t)
	ids := enqueueBriefs(t, q, jobs)
	o := startOther(t, path, "brief", 0, 0, "")
	here := newBriefs()
	w := errand.NewWorker(q, nil)
	errand.Handle(w, here.run)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(t.Context()) }()
	o.wants("busy")
	<-here.many
	ahead := countOf(t, q, errand.Running) - 2*runners
	o.says("wait") // so that what is leased ahead is not done before the call returns
	close(here.wait)
	if err := hold(q); err != nil {
		t.Fatal(err)
	}
	at, before := time.Now(), here.n.Load()
	close(here.held)
	o.says("go on")
	for countOf(t, q, errand.Running) > 0 {
		<-time.After(10 * time.Millisecond)
	}

	there, last, stall := o.started()
	after := last.Sub(at)
	t.Logf("%d were leased ahead; the other process started its last job %v after the call, stalled %v at most", ahead, after, stall)
	if n := here.n.Load() - before; n > runners { // each runner may have been calling one
		t.Errorf("%d jobs were started here after the call", n)
	}
	if most := 1100*time.Millisecond + 5*stall; after > most {
		t.Errorf("the other process started a job %v after the call, want %v at most", after, most)
	}
	waiting := countOf(t, q, errand.Ready)
	if sum := here.n.Load() + there + waiting; sum != jobs || waiting == 0 {
		t.Fatalf("%d jobs were started here, %d there, %d are ready: want %d together, and some ready", here.n.Load(), there, waiting, jobs)
	}
	unspent := int64(0)
	for _, id := range ids {
		if unspent == min(waiting, 1000) {
			break
		}
		info, err := q.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if info.State != errand.Ready {
			continue
		}
		if unspent++; info.Attempt+info.Retry+info.Crashes+info.Snoozes > 0 || len(info.History) > 0 || info.Error != "" {
			t.Fatalf("a job that was not started is %+v", info)
		}
	}

	if err := release(q); err != nil {
		t.Fatal(err)
	}
	for countOf(t, q, errand.Done) == jobs-waiting {
		<-time.After(10 * time.Millisecond)
	}
	if err := w.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func enqueueBriefs(t *testing.T, q *errand.Queue, n int) (ids []errand.ID) {
	t.Helper()
	batch := slices.Repeat([]errand.NewJob{{Args: brief{}}}, 1000)
	for range n / len(batch) {
		added, err := q.EnqueueMany(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range added {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// countOf returns how many jobs are in a state.
func countOf(t *testing.T, q *errand.Queue, state errand.State) (n int64) {
	t.Helper()
	counts, err := q.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		if c.State == state {
			n += c.N
		}
	}
	return n
}

// A process is killed while it runs the job that a hold has let through. The next process
// goes on with the lane at once, and not after the lease of a job that nobody runs.
//
//errand:shows a probe whose process is killed | | after kill -9 of the process that ran it the lane goes on with the next start, long before the lease ends
func TestProcesses_KilledWithAProbe(t *testing.T) {
	const lease = 10 * time.Minute // the lane must not wait for its end
	q, path := openShared(t)
	ids := []errand.ID{mustEnqueue(t, q, hold{"a"})}
	o := startOther(t, path, "hold", lease, 0, "default")
	o.wants("hold a 1")
	o.says("away")
	o.wants("hold a 2")
	all, err := q.Holds(t.Context())
	if err != nil || len(all) != 1 || all[0].Through.Job != ids[0] || time.Until(all[0].Until) < lease/2 {
		t.Fatalf("held: %+v, %v; want a hold that waits for job %v", all, err, ids[0])
	}
	ids = append(ids, mustEnqueue(t, q, hold{"b"}))
	o.signal(syscall.SIGKILL)
	_ = o.cmd.Wait() // it was killed
	runs, began := holder(t, q, lease), time.Now()
	for range ids {
		select {
		case here := <-runs:
			close(here.finish)
		case <-time.After(time.Minute - time.Since(began)):
			all, err = q.Holds(t.Context())
			t.Fatalf("no job has started in %v, held: %+v, %v", time.Since(began), all, err)
		}
	}
	for _, id := range ids {
		waitFor(t, q, id, errand.Done)
	}
}
