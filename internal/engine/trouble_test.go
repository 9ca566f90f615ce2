package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// What follows has gone wrong once.

//errand:shows a job that one worker recovers and another one buries | | a dead letter says how many processes died, and none is counted twice
func TestReclaim_CrashOfAKindThatOthersHandle(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.enqueue("k", 1)[0]
		victim := r.db.Open()
		res, err := victim.Exchange(t.Context(), time.Now(), storage.Exchange{
			LeaseDuration: lease, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := victim.(storage.Marker).Started(res.Leased[0].Lease, time.Now()); err != nil {
			t.Fatal(err)
		}
		r.db.Kill(victim)
		r.handle("other", nil) // recovers the job, and does not know its kind's policy
		r.start()
		pass(time.Minute)
		r.wantState(id, storage.Ready, storage.Counters{Attempt: 1, Crashes: 1})
		other := r.another()
		other.cfg.Handlers["k"] = engine.Handler{
			Run:    func(context.Context, *storage.Leased) error { t.Error("ran again"); return nil },
			Policy: noRetry.Delivery().Document,
		}
		other.start()
		if rec := r.job(id); rec.State != storage.Dead || rec.Reason != storage.ReasonCrashed || rec.Counters != (storage.Counters{Attempt: 1, Crashes: 1}) {
			t.Errorf("job is %s %s with %+v, want dead, crashed after 1 attempt", rec.State, rec.Reason, rec.Counters)
		}
	})
}

func TestStop_FailingStoreDuringTheGrace(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", work(grace/2))
		id := r.enqueue("k", 1)[0]
		r.start()
		r.store.failing(func(op string) error { return storage.ErrBusy })
		r.enqueue("k", 1) // an exchange that fails
		r.cancel()
		pass(grace / 4) // for ever, if the loop spins
		r.store.failing(nil)
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

func TestSuspect_GateOpensWhenItsEngineHasDied(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.suspects("bad", 1)
		release := make(chan struct{})
		r.handle("bad", untilClosed(release))
		r.start()
		r.store.failing(func(string) error { return storage.ErrCorrupt })
		r.enqueue("bad", 1)
		<-r.ended
		close(release)
		pass(time.Second)
		other := newRig(t)
		other.cfg.Suspects = r.cfg.Suspects
		ids := other.suspects("bad", 1)
		other.handle("bad", func(context.Context, *storage.Leased) error { return nil })
		other.start()
		pass(time.Minute)
		other.wantState(ids[0], storage.Done, storage.Counters{Attempt: 3})
	})
}

func TestPurge_AfterAVisitToTheFuture(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var off time.Duration
		r.cfg.Clock = engine.Wall(func() time.Time { return time.Now().Add(off) })
		r.cfg.Retention.Default = time.Minute
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		off = 50 * 365 * 24 * time.Hour
		r.enqueue("k", 1)
		off = 0
		id := r.enqueue("k", 1)[0]
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		pass(10 * time.Minute)
		if _, err := r.app.Job(t.Context(), id); err == nil {
			t.Error("the job is still kept")
		}
	})
}
