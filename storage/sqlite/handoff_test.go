package sqlite_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// receiver is a worker that takes what is offered.
type receiver struct {
	storage.Offer
	mu   sync.Mutex
	left int // of its capacity
	jobs []storage.Leased
}

func offer(t testing.TB, s *sqlite.Store, n int, kinds ...string) *receiver {
	w := &receiver{left: n}
	w.Offer = s.Offer(want(n, kinds...)[0], 30*time.Second, func(jobs []storage.Leased, _ time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.jobs = append(w.jobs, jobs...)
		w.left -= len(jobs)
		w.Offer.Capacity(w.left)
	})
	t.Cleanup(w.Close)
	return w
}

// Capacity says that there is capacity for n, until they are there.
func (w *receiver) Capacity(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = n
	w.Offer.Capacity(n)
}

// taken gives what was handed over since it was last asked.
func (w *receiver) taken() []storage.Leased {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.jobs
	w.jobs = nil
	return out
}

// took checks the kinds of what was handed over, which has them as letters.
func (w *receiver) took(t *testing.T, what, want string) []storage.Leased {
	t.Helper()
	jobs, got := w.taken(), ""
	for _, l := range jobs {
		got += l.Kind
	}
	if got != want {
		t.Errorf("%s: handed over %q, want %q", what, got, want)
	}
	return jobs
}

// adding gives a call that enqueues a ready job of each of these kinds.
func adding(s *sqlite.Store, kinds string) func() error {
	return func() error {
		var jobs []storage.NewJob
		for kind := range strings.SplitSeq(kinds, "") {
			jobs = append(jobs, newJob("default", kind))
		}
		_, err := s.Enqueue(context.Background(), t0, jobs)
		return err
	}
}

// together has calls run in one transaction, in this order.
func together(t *testing.T, s *sqlite.Store, calls ...func() error) {
	t.Helper()
	release := s.Stall()
	wait := begin(s, calls...)
	release()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
}

// begin begins calls while the writer is held.
func begin(s *sqlite.Store, calls ...func() error) (wait func() error) {
	done := make(chan error, len(calls))
	for i, call := range calls {
		go func() { done <- call() }()
		for s.Waiting() <= i {
			runtime.Gosched()
		}
	}
	return func() (err error) {
		for range calls {
			err = errors.Join(err, <-done)
		}
		return err
	}
}

func TestHandoff_CallsInOneTransaction(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "x", 1)
	l := lease(t, s, 1, "x")[0]
	returned := func() error {
		x := storage.Exchange{LeaseDuration: time.Second, Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeReturned}}}
		_, err := s.Exchange(context.Background(), t0, x)
		return err
	}
	w, v := offer(t, s, 3, "a", "b", "x"), offer(t, s, 2, "b", "c")
	together(t, s, adding(s, "a"), returned, adding(s, "b"), adding(s, "cab"), adding(s, "ac"))
	l = w.took(t, "the room for three", "xab")[0] // what is returned goes first
	v.took(t, "that for two", "cb")
	d.Invariants(t)
	if c := counts(t, s); c[storage.Running] != 5 || c[storage.Ready] != 3 {
		t.Errorf("counts %v, want 5 running and 3 ready", c)
	}
	w.Capacity(9)
	together(t, s, adding(s, "q"), returned)
	w.took(t, "for a job that is nobody's", "")
}

// What is handed over does not wake anybody, and the rest does.
func TestHandoff_Notifies(t *testing.T) {
	s := newDB(t, &sqlite.Options{SingleProcess: true}).open()
	w := offer(t, s, 2, "a")
	var events []storage.Event // each before the call that it is about returns
	t.Cleanup(s.Notify(func(e storage.Event) { events = append(events, e) }))
	for _, c := range []struct {
		kinds string
		want  []storage.Event
	}{
		{"a", nil}, {"ab", []storage.Event{{}}}, {"a", []storage.Event{{}}},
	} {
		w.taken()
		events = nil
		if err := adding(s, c.kinds)(); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(events, c.want) {
			t.Errorf("%s: told of %v, want %v", c.kinds, events, c.want)
		}
	}
}

// Jobs of another process, and its pauses, are heeded though nobody here has
// been told of them yet.
func TestHandoff_OtherProcess(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	w := offer(t, a, 1, "a", "b")
	enqueue(t, b, "b", 1)
	enqueue(t, a, "a", 1)
	w.took(t, "behind a job of the other", "b")
	if err := b.Hold(context.Background(), t0, storage.Hold{Lane: storage.Lane{Queue: "default"}, Reason: storage.HoldPaused}); err != nil {
		t.Fatal(err)
	}
	w.Capacity(9)
	enqueue(t, a, "a", 1)
	w.took(t, "in a queue that the other has paused", "")
	if _, err := b.Release(context.Background(), t0, storage.Lane{Queue: "default"}, storage.HoldPaused); err != nil {
		t.Fatal(err)
	}
	enqueue(t, b, "b", 1)
	w.took(t, "of a call of the other", "")
	if n := len(lease(t, b, 9, "a")); n != 2 {
		t.Errorf("the other leased %d, want 2", n)
	}
	enqueue(t, a, "a", 1)
	w.took(t, "beside leases of the other", "ba")
	d.Invariants(t)
}

// What a failed transaction has promised to a worker comes to nothing, and
// takes none of its room.
func TestHandoff_RolledBack(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	w := offer(t, s, 1, "a")
	d.exec("CREATE TRIGGER fail BEFORE UPDATE ON errand_number BEGIN SELECT RAISE(ABORT, 'no'); END")
	if err := adding(s, "a")(); err == nil {
		t.Fatal("the trigger did not fire")
	}
	w.took(t, "of a transaction that failed", "")
	d.exec("DROP TRIGGER fail")
	enqueue(t, s, "a", 1)
	enqueue(t, s, "a", 1)
	w.took(t, "afterwards", "a")
}

// A call that fails by itself has the others go again, without its jobs.
func TestHandoff_CulpritIsLeftOut(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	w := offer(t, s, 1, "a", "b")
	d.exec("CREATE TRIGGER fail BEFORE INSERT ON errand_job WHEN NEW.priority = 7 BEGIN SELECT RAISE(ABORT, 'no'); END")
	var failed error
	together(t, s, adding(s, "a"), func() error {
		jobs := []storage.NewJob{newJob("default", "b"), newJob("default", "b")}
		jobs[1].Priority = 7
		_, failed = s.Enqueue(context.Background(), t0, jobs)
		return nil
	}, adding(s, "b"))
	if failed == nil {
		t.Fatal("the trigger did not fire")
	}
	w.took(t, "of those that went again", "a")
	if c := counts(t, s); c[storage.Running] != 1 || c[storage.Ready] != 1 {
		t.Errorf("counts %v, want one running and one ready", c)
	}
	d.Invariants(t)
}

// That a worker cannot be registered is not the trouble of who enqueues.
func TestHandoff_Unregistered(t *testing.T) {
	d := newDB(t, &sqlite.Options{SingleProcess: true})
	s := d.open()
	w := offer(t, s, 2, "a")
	file := d.path + "-instance-1"
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "a", 1)
	w.took(t, "by a worker without registration", "")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "a", 1)
	w.took(t, "when it can be registered", "aa")
	d.Invariants(t)
}

// A Store that is closing leases nothing to workers that will not run it: its
// leases would stand until the process ends.
func TestHandoff_StoreCloses(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	w := offer(t, s, 2, "a")
	enqueue(t, s, "a", 1)
	finish(t, s, w.took(t, "before", "a")...)
	release := s.Stall()
	wait := begin(s, adding(s, "a"))
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for s.Waiting() < 2 { // the end of the registration comes last
		runtime.Gosched()
	}
	release()
	if err := errors.Join(wait(), <-closed); err != nil {
		t.Fatal(err)
	}
	w.took(t, "by a Store that is closing", "")
	w.Capacity(1)
	offer(t, s, 1, "a").Close()
	w.Close()
	if n := d.number("SELECT COUNT(*) FROM errand_instance"); n != 0 {
		t.Errorf("%d instances are registered", n)
	}
	if n := len(lease(t, d.open(), 9, "a")); n != 1 {
		t.Errorf("another process leased %d, want 1", n)
	}
}

// BenchmarkHandoff enqueues a job for an idle worker, and finishes it.
func BenchmarkHandoff(b *testing.B) {
	s := newDB(b, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
	w := offer(b, s, 0, "a", "b", "c", "d", "e", "f")
	jobs := []storage.NewJob{newJob("default", "a")}
	for b.Loop() {
		w.Capacity(1)
		if _, err := s.Enqueue(context.Background(), t0, jobs); err != nil {
			b.Fatal(err)
		}
		if r := finish(b, s, w.taken()...); len(r) != 1 || r[0] != storage.Applied {
			b.Fatalf("finishing gave %v", r)
		}
	}
}
