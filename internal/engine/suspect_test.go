package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
)

// suspects enqueues jobs of a kind that have crashed twice in a row, each in a
// process of its own.
func (r *rig) suspects(kind string, n int) []storage.ID {
	r.t.Helper()
	ids := r.enqueue(kind, n)
	r.crashTwice(kind, ids)
	return ids
}

func (r *rig) crashTwice(kind string, ids []storage.ID) {
	r.t.Helper()
	n := len(ids)
	src := storage.Source{Queues: []string{"q"}, Kinds: []string{kind}}
	for range 2 {
		victim := r.db.Open()
		res, err := victim.Exchange(r.t.Context(), time.Now(), storage.Exchange{Length: lease, Want: n, Source: src})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, l := range res.Leased {
			if err := victim.Started(l.Lease, time.Now()); err != nil {
				r.t.Fatal(err)
			}
		}
		r.db.Kill(victim)
		gone, err := r.app.Reclaim(r.t.Context(), time.Now(), 0, lease, n)
		if err != nil {
			r.t.Fatal(err)
		}
		x := storage.Exchange{Length: lease}
		for _, g := range gone {
			x.Finish = append(x.Finish, storage.Finish{Lease: g.Lease, Outcome: storage.OutcomeCrashed})
		}
		if _, err := r.app.Exchange(r.t.Context(), time.Now(), x); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, id := range ids {
		if c := r.job(id).Crashes; c != 2 {
			r.t.Fatalf("job has crashed %d times", c)
		}
	}
}

func TestSuspect_RunOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = thrice.Delivery()
		ids := r.suspects("bad", 5)
		running, most := 0, 0
		r.handle("bad", func(context.Context, *storage.Leased) error {
			running++
			most = max(most, running)
			time.Sleep(3 * time.Second)
			running--
			return nil
		})
		r.handle("good", func(context.Context, *storage.Leased) error {
			time.Sleep(time.Second)
			return nil
		})
		r.start()
		good := r.enqueue("good", 9)
		pass(3500 * time.Millisecond) // 3 slots are left for 9 jobs of 1 s
		for _, id := range good {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
		pass(30 * time.Second)
		if most != 1 {
			t.Errorf("%d suspects at a time", most)
		}
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 3})
		}
	})
}

func TestSuspect_WaitingKeepsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true // else another process might run it
		ids := r.suspects("bad", 2)
		release := make(chan struct{})
		r.handle("bad", untilClosed(release))
		r.start()
		pass(10 * lease)
		for _, id := range ids {
			r.wantState(id, storage.Running, storage.Counters{Attempt: 3, Crashes: 2})
		}
		close(release)
		synctest.Wait()
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 3})
		}
	})
}

func TestSuspect_OfTwoEnginesShareTheGate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.suspects("bad", 2)
		other := r.another()
		other.cfg.Suspects = r.cfg.Suspects
		began := time.Now()
		var starts []time.Duration // in turn, or the race detector objects
		const takes = 3010 * time.Millisecond
		run := func(context.Context, *storage.Leased) error {
			starts = append(starts, time.Since(began))
			time.Sleep(takes)
			return nil
		}
		r.handle("bad", run)
		other.handle("bad", run)
		r.cfg.Concurrency, other.cfg.Concurrency = 1, 1
		r.start()
		other.start()
		pass(7 * time.Second)
		if len(starts) != 2 || starts[1] < takes || starts[1] > takes+100*time.Millisecond {
			t.Errorf("suspects of %v each started at %v", takes, starts)
		}
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 3})
		}
	})
}

func TestSuspect_CancelWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.suspects("bad", 2)
		release := make(chan struct{})
		r.handle("bad", untilClosed(release))
		r.start()
		if _, err := r.app.Cancel(t.Context(), time.Now(), ids[1], time.Hour); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := r.job(ids[1]).State; s != storage.Cancelled {
			t.Errorf("waiting suspect is %s", s)
		}
		close(release)
	})
}

func TestSuspect_WaitingTakesNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 2
		r.suspects("bad", 2)
		release := make(chan struct{})
		r.handle("bad", untilClosed(release))
		r.handle("good", func(context.Context, *storage.Leased) error { return nil })
		good := r.enqueue("good", 1)[0] // behind the suspects
		r.start()
		r.wantState(good, storage.Done, storage.Counters{Attempt: 1})
		close(release)
	})
}

func TestSuspect_WaitingThatIsLostDoesNotStart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.suspects("bad", 2)
		runs := 0
		release := make(chan struct{})
		r.handle("bad", func(context.Context, *storage.Leased) error {
			runs++
			<-release
			return nil
		})
		r.start()
		r.takeOver(2)
		pass(lease / 3)
		close(release)
		pass(lease / 3)
		if runs != 1 {
			t.Errorf("%d suspects ran", runs)
		}
	})
}
