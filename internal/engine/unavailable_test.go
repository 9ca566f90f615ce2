package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

var errUnreached = &engine.UnavailableError{Err: errors.New("no route to host")}

// A job whose other side is away for two weeks has spent nothing when it is back.
//
//errand:shows an outage of the other side | | it costs a job nothing for two weeks, with an attempt each five minutes; a host that is gone spends the retries of its own jobs while others are reached
func TestUnavailable_CostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Rand = func() float64 { return 0 }
		back := time.Now().Add(14 * 24 * time.Hour)
		var count atomic.Int32
		r.handle("k", func(context.Context, *storage.Leased) error {
			count.Add(1)
			if time.Now().Before(back) {
				return errUnreached
			}
			return nil
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Until(back) - time.Second)
		attempts := int(count.Load())
		rec := r.wantState(id, storage.Ready, storage.Counters{Attempt: attempts})
		if len(rec.History) > 0 || rec.Error != "no route to host" {
			t.Errorf("the job has the history %v and the error %q; want none, and the reason", rec.History, rec.Error)
		}
		if least, most := 14*24*12, 14*24*12+60; attempts < least || attempts > most { // one in 5 minutes
			t.Errorf("%d attempts, want %d to %d", attempts, least, most)
		}
		pass(5*time.Minute + time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: int(count.Load())})
	})
}

// The wait doubles from a second to five minutes, and jobs that were under way
// together wait together. A success begins anew.
//
//errand:shows an outage of the other side
func TestUnavailable_Waits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var s starts
		var reached atomic.Bool
		r.handle("k", func(ctx context.Context, job *storage.Leased) error {
			if reached.Load() {
				return nil
			}
			return errors.Join(s.run(ctx, job), errUnreached)
		})
		r.cfg.Rand = func() float64 { return 0 }
		begun := time.Now()
		r.enqueue("k", 1)
		r.start()
		pass(time.Minute)
		for i, after := range []time.Duration{0, 1, 3, 7, 15, 31, 47} {
			if s.n() != 7 || s.within(begun.Add(after*time.Second), 100*time.Millisecond) != 1 {
				t.Fatalf("attempt %d of %d is not after %d s: %v", i+1, s.n(), after, s.at)
			}
		}
		reached.Store(true)
		pass(time.Minute)
		reached.Store(false)
		begun = time.Now()
		r.enqueue("k", 2)
		pass(1500 * time.Millisecond)
		if n := s.within(begun, time.Minute); n != 4 {
			t.Errorf("2 jobs had %d attempts in 1.5 s, want two each", n)
		}
	})
}

// Nor does it cost anything of the budget for retries.
//
//errand:shows an outage of the other side | | it costs the budget for retries nothing either
func TestUnavailable_Budget(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := single(0.001)
		failed := false
		r.cfg.Handlers["k"] = engine.Handler{Budget: b, Run: func(context.Context, *storage.Leased) error {
			if failed {
				return errUnreached
			}
			failed = true
			return errOops
		}}
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Hour)
		if tokens, deferred := b.State(time.Now()); tokens < 5 || deferred > 0 {
			t.Errorf("%v tokens are left of 5, and %d retries were put off", tokens, deferred)
		}
		if rec := r.job(id); rec.Retry != 1 || rec.Attempt < 12 {
			t.Errorf("the job is %+v", rec.Counters)
		}
	})
}

// A host that is gone for good spends the retries of its own jobs, as long as others
// of the lane are reached.
//
//errand:shows an outage of the other side
func TestUnavailable_EvidenceOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var id storage.ID
		r.handle("k", func(_ context.Context, job *storage.Leased) error {
			if job.ID == id {
				return errUnreached
			}
			return nil
		})
		r.enqueue("k", 1) // a success before the first attempt is none that counts
		id = r.enqueue("k", 1)[0]
		r.start()
		pass(100 * time.Millisecond)
		r.wantState(id, storage.Scheduled, storage.Counters{Attempt: 1})
		for range 6 {
			r.enqueue("k", 1)
			pass(15 * time.Second)
		}
		rec := r.job(id)
		if rec.State != storage.Dead || rec.Retry != 3 || rec.Reason != storage.ReasonExhausted || len(rec.History) != 4 || rec.Error != "no route to host" {
			t.Errorf("the dead job is %+v", rec)
		}
		if n := len(r.logs.with("job is dead")); n != 1 {
			t.Errorf("%d lines about the death, want 1", n)
		}
		if n := len(r.logs.with("could not reach")); n == 0 {
			t.Errorf("no line about attempts that did not reach the other side")
		}
	})
}
