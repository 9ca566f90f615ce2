package sqlite_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// Behind many large enqueues that wait, a heartbeat is in the next transaction,
// and the enqueues are spread over several.
//
//errand:shows large batches | | a transaction has about 2,000 jobs or 4 MiB, or one call; heartbeats, outcomes and cancellations go first, and leave a place for other calls
func TestWriter_BatchesAreBoundedAndHeartbeatsFirst(t *testing.T) {
	s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
	ctx := context.Background()
	enqueue(t, s, "a", 1)
	held := lease(t, s, 1, "a")[0].Lease
	large := newJob("default", "b")
	large.Args = make([]byte, 2048) // as much work as two
	commits, extended := 0, make(chan struct{})
	s.Fault(func(bool) error {
		if commits++; commits == 3 { // that of the stall, of the first batch, of the second
			select {
			case <-extended:
			case <-time.After(2 * time.Minute):
				t.Error("the heartbeat was not in the first transaction")
			}
		}
		return nil
	})
	release := s.Stall()
	var calls sync.WaitGroup
	wait := func(n int) {
		for s.Waiting() < n {
			runtime.Gosched()
		}
	}
	for range 20 {
		calls.Go(func() {
			if _, err := s.Enqueue(ctx, t0, slices.Repeat([]storage.NewJob{large}, 250)); err != nil {
				t.Error(err)
			}
		})
	}
	wait(20)
	calls.Go(func() {
		x := storage.Exchange{LeaseDuration: time.Minute, Extend: []storage.Lease{held}}
		if r, err := s.Exchange(ctx, t0, x); err != nil || r.Extended[0] != storage.Applied {
			t.Errorf("extended %v, %v", r.Extended, err)
		}
		close(extended)
	})
	wait(21)
	release()
	calls.Wait()
	if want := 1 + 1 + 5; commits != want { // the stall, 3 calls beside the heartbeat, then 4 at a time
		t.Errorf("%d transactions, want %d", commits, want)
	}
	if c := counts(t, s); c[storage.Ready] != 5000 {
		t.Errorf("counts %v: want 5,000 ready", c)
	}
}

// However many calls are urgent, each batch has a place for one that is not.
//
//errand:shows large batches
func TestWriter_UrgentCallsLeaveAPlace(t *testing.T) {
	s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
	ctx := context.Background()
	var adds []bool // of each commit
	s.Fault(func(a bool) error { adds = append(adds, a); return nil })
	release := s.Stall()
	var calls sync.WaitGroup
	call := func(f func() error) {
		calls.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	const urgent = 512 // as many as a batch holds
	for range urgent {
		call(func() error {
			return s.Hold(ctx, t0, storage.Hold{Lane: storage.Lane{Queue: "other"}, Reason: storage.HoldPaused})
		})
	}
	call(func() error {
		_, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")})
		return err
	})
	for s.Waiting() < urgent+1 {
		runtime.Gosched()
	}
	release()
	calls.Wait()
	if want := []bool{true, true, false}; !slices.Equal(adds, want) { // the stall, the first batch, the rest
		t.Errorf("commits that add jobs: %v, want %v", adds, want)
	}
}

// One call is one transaction, however much it is, and enqueues keep their order.
//
//errand:shows large batches
func TestWriter_OneCallIsOneTransaction(t *testing.T) {
	s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
	commits := 0
	s.Fault(func(bool) error { commits++; return nil })
	release := s.Stall()
	var calls sync.WaitGroup
	results := make([][]storage.Enqueued, 3)
	for i := range results {
		calls.Go(func() {
			jobs := slices.Repeat([]storage.NewJob{newJob("default", "a")}, 10_000)
			var err error
			if results[i], err = s.Enqueue(context.Background(), t0, jobs); err != nil {
				t.Error(err)
			}
		})
		for s.Waiting() <= i {
			runtime.Gosched()
		}
	}
	release()
	calls.Wait()
	if commits != 4 {
		t.Errorf("%d transactions, want 4", commits)
	}
	next := int64(1)
	for i, r := range results {
		for _, e := range r {
			if e.ID.Key() != next {
				t.Fatalf("call %d has key %d, want %d", i, e.ID.Key(), next)
			}
			next++
		}
	}
}

// A call about a job that there is not has the answer that others have, in one
// transaction with them.
//
//errand:shows large batches
func TestWriter_NotFoundIsAnAnswer(t *testing.T) {
	s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
	ctx := context.Background()
	jobs := enqueue(t, s, "a", 20)
	release := s.Stall()
	before := s.Begun()
	var calls sync.WaitGroup
	for _, j := range jobs {
		id := j.ID
		calls.Go(func() {
			if state, err := s.Cancel(ctx, t0, id, storage.Retention{}); state != storage.Cancelled || err != nil {
				t.Errorf("cancelled: %v, %v", state, err)
			}
		})
		for range 2 { // where it stands in the batch is chance
			calls.Go(func() {
				if _, err := s.Cancel(ctx, t0, storage.NewID(t0, 1, id.Key()+1000), storage.Retention{}); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("no job: %v, want ErrNotFound", err)
				}
			})
		}
		calls.Go(func() {
			if _, err := s.ReleaseUnique(ctx, "none"); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("no key: %v, want ErrNotFound", err)
			}
		})
	}
	for s.Waiting() < 4*len(jobs) {
		runtime.Gosched()
	}
	release()
	calls.Wait()
	if n := s.Begun() - before; n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
}

func TestStore_WithdrawnBeforeItsBatch(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	rivalDB := d.raw()
	defer rivalDB.Close()
	rival, err := rivalDB.Begin() // the writer waits for it
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		_, err := s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("default", "first")})
		first <- err
	}()
	ctx, cancel := context.WithCancel(context.Background())
	second := make(chan error, 1)
	go func() {
		_, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "second")})
		second <- err
	}()
	cancel()
	secondErr := <-second
	if err := rival.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if n := d.number("SELECT COUNT(*) FROM errand_job"); !errors.Is(secondErr, context.Canceled) || n != 1 {
		t.Errorf("error %v with %d jobs: want it withdrawn, as no transaction had begun", secondErr, n)
	}
}

// While the writer finds out whether a call has anything to do, it writes the results of
// the call, which waits that long.
func TestStore_WithdrawnWhileProbed(t *testing.T) {
	s := newDB(t, nil).open()
	if found, made, err := s.Probe(); !found || made || !errors.Is(err, context.Canceled) {
		t.Errorf("waited for: %t, made: %t, error %v: want it withdrawn once its results are written", found, made, err)
	}
}

func TestStore_OneFailingRequestSparesTheBatch(t *testing.T) {
	bad := newJob("default", "a")
	bad.Args = []byte(`{"bad":true}`)
	t.Run("written with others", func(t *testing.T) { failingRequests(t, bad) })
	bad.Priority = 13
	t.Run("written alone", func(t *testing.T) { failingRequests(t, bad) })
}

func failingRequests(t *testing.T, bad storage.NewJob) {
	d := newDB(t, nil)
	s := d.open()
	d.exec(`CREATE TRIGGER no BEFORE INSERT ON errand_job WHEN CAST(NEW.args AS TEXT) = '{"bad":true}' BEGIN SELECT RAISE(ABORT, 'no'); END`)
	rivalDB := d.raw()
	defer rivalDB.Close()
	rival, err := rivalDB.Begin() // so that all of them queue up
	if err != nil {
		t.Fatal(err)
	}
	const n = 20
	errs := make(chan error, n)
	for i := range n {
		go func() {
			j := newJob("default", "a")
			if i%10 == 3 {
				j = bad
			}
			_, err := s.Enqueue(context.Background(), t0, []storage.NewJob{j})
			errs <- err
		}()
	}
	if err := rival.Rollback(); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for range n {
		if err := <-errs; err != nil {
			failed++
		}
	}
	if c := counts(t, s); failed != 2 || c[storage.Ready] != n-2 {
		t.Errorf("%d failed, counts %v: want 2 and %d ready", failed, c, n-2)
	}
	d.Invariants(t)
}

// After a slow sync the next batch waits for the callers of the last one, at most a tenth of
// the sync, but not with an urgent request in it.
func TestWriter_WaitsAfterSlowSync(t *testing.T) {
	for _, c := range []struct {
		name   string
		urgent bool
		back   time.Duration // after which those who were answered call again
		want   int           // commits: the stall, the first batch, and those of the rest
	}{
		{"back in time", false, 400 * time.Microsecond, 3},
		{"back too late", false, 600 * time.Microsecond, 4},
		{"urgent", true, 400 * time.Microsecond, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newDB(t, &sqlite.Options{SingleProcess: true}).open()
				defer s.Close()
				commits := 0
				s.Fault(func(bool) error {
					commits++
					time.Sleep(5 * time.Millisecond) // the sync of a slow disk
					return nil
				})
				release := s.Stall()
				var calls sync.WaitGroup
				call := func(f func() error) {
					calls.Go(func() {
						if err := f(); err != nil {
							t.Error(err)
						}
					})
				}
				add := adding(s, "a")
				for range 2 {
					call(func() error {
						if err := add(); err != nil {
							return err
						}
						time.Sleep(c.back)
						return add()
					})
				}
				synctest.Wait()
				release()
				time.Sleep(7 * time.Millisecond) // while the first batch is synced
				other := add
				if c.urgent {
					other = func() error {
						return s.Hold(t.Context(), t0, storage.Hold{Lane: storage.Lane{Queue: "other"}, Reason: storage.HoldPaused})
					}
				}
				call(other)
				calls.Wait()
				if commits != c.want {
					t.Errorf("%d commits, want %d", commits, c.want)
				}
			})
		})
	}
}

// Close does not wait for callers that a slow sync has answered.
func TestWriter_ClosesAfterSlowSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDB(t, &sqlite.Options{SingleProcess: true}).open()
		slow := true
		s.Fault(func(bool) error {
			if slow {
				time.Sleep(50 * time.Millisecond) // the sync of a slow disk
			}
			return nil
		})
		release := s.Stall()
		var calls sync.WaitGroup
		add := adding(s, "a")
		for range 2 {
			calls.Go(func() {
				if err := add(); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		release()
		calls.Wait()
		slow = false
		answered := time.Now()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if waited := time.Since(answered); waited != 0 {
			t.Errorf("Close has waited %v", waited)
		}
	})
}

// What leases runs after what is enqueued in the same transaction, whichever came
// first.
func TestWriter_LeasesWhatItsBatchEnqueues(t *testing.T) {
	s := newDB(t, nil).open()
	var leased []storage.Leased
	together(t, s, func() error {
		leased = lease(t, s, 2, "a")
		return nil
	}, adding(s, "a"), adding(s, "a"))
	if len(leased) != 2 {
		t.Errorf("leased %d jobs, want 2", len(leased))
	}
}

// A lone call writes on the goroutine of its caller. Calls that come together share a
// transaction of the writer's.
//
//errand:shows calls that are alone | | a call that is alone writes on its own goroutine, can be withdrawn all the same, leaves gaps whole, and keeps nobody from the database after a panic
func TestWriter_LoneCall(t *testing.T) {
	s := newDB(t, nil).open()
	var lone []bool // of each commit
	s.Fault(func(bool) error {
		stack := make([]byte, 1<<14)
		stack = stack[:runtime.Stack(stack, false)]
		lone = append(lone, strings.Contains(string(stack), "(*Store).Enqueue("))
		return nil
	})
	enqueue(t, s, "a", 1)
	together(t, s, adding(s, "a"), adding(s, "a"))
	for range 2 { // the first, after two together, may have company
		s.Rested()
		enqueue(t, s, "a", 1)
	}
	if want := []bool{true, false, false, false, true}; !slices.Equal(lone, want) { // the second is that of together
		t.Errorf("on the caller's goroutine: %v, want %v", lone, want)
	}
}

// A lone call too can be withdrawn while another program has locked the database.
//
//errand:shows calls that are alone
func TestWriter_LoneCallWithdrawn(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 1)
	rivalDB := d.raw()
	defer rivalDB.Close()
	rival, err := rivalDB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of its context", err)
	}
	if err := rival.Rollback(); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "a", 1)
	if n := d.number("SELECT COUNT(*) FROM errand_job"); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
}

// A lone call whose context ends while the Store leaves the lock to other programs
// leaves it to them for as long.
//
//errand:shows calls that are alone
func TestWriter_LoneCallInGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the calls follow at once: a pause between them would be a gap
		s := newDB(t, nil).open()
		enqueue(t, s, "a", 1)
		s.Rested()
		gap, began := s.WritesForLong(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that of its context", err)
		}
		enqueue(t, s, "a", 1)
		if free := time.Since(began); free != gap {
			t.Errorf("the lock was left for %v, want %v", free, gap)
		}
	})
}

// A lone call that panics ends the Store, as the caller may recover, and keeps nobody
// from the database.
//
//errand:shows calls that are alone
func TestWriter_LoneCallPanics(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 1)
	s.Rested()
	s.Fault(func(bool) error { panic("on purpose") })
	func() {
		defer func() {
			if r := recover(); r != "on purpose" {
				t.Errorf("recovered %v", r)
			}
		}()
		enqueue(t, s, "a", 1)
	}()
	_, err := s.Enqueue(t.Context(), t0, []storage.NewJob{newJob("default", "a")})
	if !errors.Is(err, storage.ErrClosed) || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("error %v, want that it is closed, and why", err)
	}
	db := d.raw()
	defer db.Close()
	if _, err := db.Exec("DELETE FROM errand_job"); err != nil {
		t.Error(err)
	}
}
