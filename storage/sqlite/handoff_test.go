package sqlite_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// taker is a worker that takes what is offered.
type taker struct {
	mu   sync.Mutex
	jobs []storage.Leased
}

func (w *taker) take(jobs []storage.Leased, _ time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, jobs...)
}

func (w *taker) taken() []storage.Leased {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs
}

func offer(t *testing.T, s *sqlite.Store, room int, kinds ...string) (*taker, storage.Offer) {
	w := &taker{}
	o := s.Offer(source(kinds...), 30*time.Second, w.take)
	t.Cleanup(o.Close)
	o.Room(room)
	return w, o
}

func TestHandoff_LeasesWhatIsEnqueued(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	w, _ := offer(t, s, 2, "a")
	jobs := []storage.NewJob{newJob("default", "b"), newJob("default", "a"), newJob("other", "a"), newJob("default", "a"), newJob("default", "a")}
	jobs[1].Headers, jobs[1].Priority, jobs[1].Timeout, jobs[1].Unique = []byte(`{"h":"1"}`), 7, time.Second, "key"
	jobs[1].Policy = []byte(`{"p":1}`)
	jobs[3].Args = make([]byte, 5000)
	ids, err := s.Enqueue(context.Background(), t0, jobs)
	if err != nil {
		t.Fatal(err)
	}
	got := w.taken()
	if len(got) != 2 || got[0].ID != ids[1].ID || got[1].ID != ids[3].ID {
		t.Fatalf("handed over %v, want the first two of kind a in queue default, of %v", got, ids)
	}
	l := got[0]
	if l.Attempt != 1 || l.Priority != 7 || l.Timeout != time.Second || string(l.Headers) != `{"h":"1"}` || string(l.Policy) != `{"p":1}` ||
		string(l.Args) != "{}" || !l.DueAt.Equal(t0) || !l.CreatedAt.Equal(t0) || l.Queue != "default" || l.Kind != "a" {
		t.Errorf("the lease says %+v", l)
	}
	for i, want := range []storage.State{storage.Ready, storage.Running, storage.Ready, storage.Running, storage.Ready} {
		if r, err := s.Job(context.Background(), ids[i].ID); err != nil || r.State != want {
			t.Errorf("job %d is %v (%v), want %v", i, r.State, err, want)
		}
	}
	d.Invariants(t)
	for i, r := range finish(t, s, got...) {
		if r != storage.Applied {
			t.Errorf("finishing job %d gave %v", i, r)
		}
	}
	d.Invariants(t)
	if n := d.number("SELECT COUNT(*) FROM errand_payload"); n != 0 {
		t.Errorf("%d payloads are left", n)
	}
	again := newJob("default", "b")
	again.Unique = "key"
	if e, err := s.Enqueue(context.Background(), t0, []storage.NewJob{again}); err != nil || e[0].Duplicate {
		t.Errorf("the unique key is held after the end of its job: %v, %v", e, err)
	}
}

func TestHandoff_OnlyIfNothingGoesBefore(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, s *sqlite.Store){
		"a ready job":     func(t *testing.T, s *sqlite.Store) { enqueue(t, s, "b", 1) },
		"a due scheduled": func(t *testing.T, s *sqlite.Store) { later(t, s, "b", t0.Add(-time.Second)) },
		"a paused queue": func(t *testing.T, s *sqlite.Store) {
			if err := s.Pause(context.Background(), t0, "default", true); err != nil {
				t.Fatal(err)
			}
			enqueue(t, s, "c", 1) // the next transaction knows
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDB(t, nil).open()
			prepare(t, s)
			w, _ := offer(t, s, 1, "a", "b")
			enqueue(t, s, "a", 1)
			if got := w.taken(); len(got) != 0 {
				t.Errorf("handed over %v", got)
			}
		})
	}
	t.Run("a ready job of another kind", func(t *testing.T) {
		s := newDB(t, nil).open()
		enqueue(t, s, "c", 1)
		w, _ := offer(t, s, 1, "a", "b")
		later(t, s, "a", t0.Add(time.Hour))
		if got := w.taken(); len(got) != 0 {
			t.Fatalf("handed over %v before it is due", got)
		}
		enqueue(t, s, "a", 1)
		if got := w.taken(); len(got) != 1 {
			t.Errorf("handed over %v, want the job", got)
		}
	})
}

// later schedules a job for a time, asked for an hour before it.
func later(t *testing.T, s *sqlite.Store, kind string, at time.Time) {
	t.Helper()
	j := newJob("default", kind)
	j.DueAt = at
	if _, err := s.Enqueue(context.Background(), at.Add(-time.Hour), []storage.NewJob{j}); err != nil {
		t.Fatal(err)
	}
}

// No job is handed over after Close, and none is lost by it.
func TestHandoff_CloseUnderLoad(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	s := d.open()
	stop, done := make(chan struct{}), make(chan error)
	for range 4 {
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if _, err := s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("default", "a")}); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	total := 0
	for range 200 {
		w := &taker{}
		o := s.Offer(source("a"), 30*time.Second, w.take)
		o.Room(3)
		finish(t, s, lease(t, s, 1000, "a")...)
		o.Close()
		got := w.taken()
		total += len(got)
		for i, r := range finish(t, s, got...) {
			if r != storage.Applied {
				t.Fatalf("lease %v that was handed over: %v", got[i], r)
			}
		}
		if now := w.taken(); len(now) != len(got) {
			t.Fatalf("a job was handed over after Close")
		}
	}
	close(stop)
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if total == 0 {
		t.Error("nothing was ever handed over")
	}
	if n := d.number("SELECT COUNT(*) FROM errand_job WHERE state = 3"); n != 0 {
		t.Errorf("%d jobs are leased and nobody knows", n)
	}
	d.Invariants(t)
}

// What a failed transaction has promised to a worker comes to nothing.
func TestHandoff_RolledBack(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	w, _ := offer(t, s, 1, "a")
	d.exec("CREATE TRIGGER fail BEFORE UPDATE ON errand_number BEGIN SELECT RAISE(ABORT, 'no'); END")
	if _, err := s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("default", "a")}); err == nil {
		t.Fatal("the trigger did not fire")
	}
	if got := w.taken(); len(got) != 0 {
		t.Fatalf("handed over %v of a transaction that failed", got)
	}
	d.exec("DROP TRIGGER fail")
	enqueue(t, s, "a", 1)
	if got := w.taken(); len(got) != 1 {
		t.Errorf("handed over %v afterwards, want the job", got)
	}
}
