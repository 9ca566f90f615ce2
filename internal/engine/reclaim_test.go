package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// crash has the process of r die, and waits until its engine has noticed.
func (r *rig) crash() {
	r.db.Kill(r.store.Store)
	<-r.ended
}

func TestReclaim_CrashesCountToTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		id := r.enqueue("k", 1)[0]
		for i := range 3 {
			p := r.another()
			p.handle("k", untilDone(&cause))
			p.start()
			pass(5 * time.Second) // of which at least 1 s since the crash
			r.wantState(id, storage.Running, storage.Counters{Attempt: i + 1, Crashes: i})
			p.crash()
		}
		last := r.another()
		last.handle("k", untilDone(&cause))
		last.start()
		rec := r.wantState(id, storage.Dead, storage.Counters{Attempt: 3, Crashes: 3})
		if rec.Reason != storage.ReasonCrashed || rec.Policy == nil || len(rec.History) != 3 {
			t.Errorf("reason %q, policy %s, %d failures", rec.Reason, rec.Policy, len(rec.History))
		}
		for i, f := range rec.History {
			if f.Phase != "first" || f.Attempt != i+1 || f.Instance == "" || f.Error == "" {
				t.Errorf("history[%d] is %+v", i, f)
			}
		}
		if a, b := rec.History[0].Instance, rec.History[1].Instance; a == b {
			t.Errorf("both crashes are of instance %q", a)
		}
	})
}

// What is killed while it stops, by a supervisor whose patience is shorter than
// the grace, has not crashed: however often that happens, no job suffers.
//
//errand:shows killed while it stops | | five releases in a row kill jobs that are longer than the grace: no crash is counted, and all go on running in parallel
func TestReclaim_KilledWhileStoppingIsNobodysCrash(t *testing.T) {
	for name, after := range map[string]time.Duration{"in the grace": grace / 2, "after it": grace + stuck/2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				free := make(chan struct{})
				ids := r.enqueue("k", 4)
				for release := range 5 {
					p := r.another()
					p.handle("k", untilClosed(free))
					p.start()
					pass(5 * time.Second)
					for _, id := range ids { // all at a time, in each release
						r.wantState(id, storage.Running, storage.Counters{Attempt: release + 1})
					}
					p.cancel()
					pass(after)
					p.crash()
				}
				close(free)
			})
		})
	}
}

func TestReclaim_CrashedJobComesBackAfterASecond(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.handle("k", untilDone(&cause))
		id := r.enqueue("k", 1)[0]
		r.start()
		other := r.another()
		var at time.Time
		other.handle("k", func(context.Context, *storage.Leased) error { at = time.Now(); return nil })
		other.start()
		killed := time.Now()
		r.db.Kill(r.store.Store)
		pass(2 * time.Second)
		if d := at.Sub(killed); d < time.Second || d > 1500*time.Millisecond {
			t.Errorf("ran again %v after the crash, want 1 s to 1.5 s", d)
		}
		r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
	})
}

func TestReclaim_CrashWithoutRetriesIsDead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.handle("k", untilDone(&cause))
		none, err := policy.Policy{}.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		id := r.add(storage.NewJob{Queue: "q", Kind: "k", Policy: none})[0]
		r.start()
		r.crash()
		stranger, other := r.another(), r.another()
		stranger.start()
		pass(time.Minute)
		r.wantState(id, storage.Scheduled, storage.Counters{Attempt: 1, Crashes: 1}) // what follows its death is not known there
		other.handle("k", func(context.Context, *storage.Leased) error { t.Error("it runs again"); return nil })
		other.start()
		pass(time.Second)
		if rec := r.wantState(id, storage.Dead, storage.Counters{Attempt: 1, Crashes: 1}); rec.Reason != storage.ReasonCrashed {
			t.Errorf("reason %q", rec.Reason)
		}
	})
}

func TestReclaim_OtherOutcomesResetTheCrashes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.suspects("k", 1)[0]
		r.handle("k", func(context.Context, *storage.Leased) error { return errOops })
		r.start()
		if c := r.job(id).Crashes; c != 0 {
			t.Errorf("%d crashes after a failure", c)
		}
	})
}

//errand:shows [rebooted] | | the machine goes down while a handler runs
func TestReclaim_RebootIsNobodysCrash(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.handle("k", untilDone(&cause))
		id := r.enqueue("k", 1)[0]
		r.start()
		r.db.Reboot(r.store.Store)
		<-r.ended
		other := r.another()
		other.handle("k", func(context.Context, *storage.Leased) error { return nil })
		other.start()
		rec := r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
		if len(rec.History) > 0 {
			t.Errorf("history %+v", rec.History)
		}
	})
}

//errand:shows [neighbours] | | of two leased jobs one had begun when the process died
func TestReclaim_NeighboursAreInnocent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.enqueue("k", 2)
		victim := r.db.Open() // leased both, started one
		res, err := victim.Exchange(t.Context(), time.Now(), storage.Exchange{
			LeaseDuration: lease, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 2}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := victim.(storage.Marker).Started(res.Leased[0].Lease, time.Now()); err != nil {
			t.Fatal(err)
		}
		r.db.Kill(victim)
		r.handle("other", nil)
		r.start()
		r.wantState(ids[0], storage.Scheduled, storage.Counters{Attempt: 1, Crashes: 1})
		r.wantState(ids[1], storage.Ready, storage.Counters{})
	})
}

func TestReclaim_EndedButUnwrittenRunsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id := r.enqueue("k", 1)[0]
		r.handle("k", func(context.Context, *storage.Leased) error {
			r.store.failing(func(op string) error { // from now on no outcome gets through
				if op == "exchange" {
					return storage.ErrFull
				}
				return nil
			})
			return nil
		})
		r.start()
		r.crash()
		other := r.another()
		other.handle("k", func(context.Context, *storage.Leased) error { return nil })
		other.start()
		r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
	})
}

func TestReclaim_CancelledMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.handle("k", untilDone(&cause))
		id := r.enqueue("k", 1)[0]
		r.start()
		r.db.Kill(r.store.Store)
		if _, err := r.app.Cancel(t.Context(), time.Now(), id, storage.Retention{Default: time.Hour}); err != nil {
			t.Fatal(err)
		}
		other := r.another()
		other.handle("k", func(context.Context, *storage.Leased) error { return nil })
		other.start()
		r.wantState(id, storage.Cancelled, storage.Counters{Attempt: 1})
	})
}

func TestReclaim_ManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const n = 250 // more than one call takes over
		r.cfg.Concurrency = n
		var cause causes
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error { <-ctx.Done(); return ctx.Err() })
		ids := r.enqueue("k", n)
		r.start()
		r.db.Kill(r.store.Store)
		other := r.another()
		other.handle("other", untilDone(&cause))
		other.start()
		for _, id := range ids {
			r.wantState(id, storage.Scheduled, storage.Counters{Attempt: 1, Crashes: 1})
		}
	})
}

func TestReclaim_AtStartEvenIfAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.handle("k", untilDone(&cause))
		id := r.enqueue("k", 1)[0]
		r.start()
		r.crash()
		other := r.another()
		other.store.alone = true
		other.start()
		synctest.Wait()
		r.wantState(id, storage.Scheduled, storage.Counters{Attempt: 1, Crashes: 1})
	})
}

// Without notes nobody is known to have crashed.
func TestReclaim_StoreWithoutMarker(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.cfg.Store = r.db.OpenBare()
		r.handle("k", untilDone(&cause))
		id := r.enqueue("k", 1)[0]
		r.start()
		r.wantState(id, storage.Running, storage.Counters{Attempt: 1})
		r.db.Kill(r.cfg.Store)
		other := r.another()
		other.cfg.Store = r.db.OpenBare()
		other.handle("k", func(context.Context, *storage.Leased) error { return nil })
		other.start()
		pass(2 * time.Second) // as it is told of nothing
		r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
	})
}
