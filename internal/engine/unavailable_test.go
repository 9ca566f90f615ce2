package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

var errUnreached = &engine.UnavailableError{Err: errors.New("no route to host")}

// A job whose other side is away for two weeks has spent nothing when it is back.
func TestUnavailable_CostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		back := time.Now().Add(14 * 24 * time.Hour)
		attempts := 0
		r.handle("k", func(context.Context, *storage.Leased) error {
			attempts++
			if time.Now().Before(back) {
				return errUnreached
			}
			return nil
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Until(back) - time.Second)
		rec := r.wantState(id, storage.Scheduled, storage.Counters{Attempt: attempts})
		if len(rec.History) > 0 || rec.Error != "no route to host" {
			t.Errorf("the job has the history %v and the error %q; want none, and the reason", rec.History, rec.Error)
		}
		if least, most := 14*24*12, 14*24*12+20; attempts < least || attempts > most { // one in 5 minutes
			t.Errorf("%d attempts, want %d to %d", attempts, least, most)
		}
		pass(5*time.Minute + time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: attempts})
	})
}

// The wait doubles from a second to five minutes, and jobs that were under way
// together wait together. A success begins anew.
func TestUnavailable_Waits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		begun := time.Now()
		var at []time.Duration
		reached := false
		r.handle("k", func(context.Context, *storage.Leased) error {
			if reached {
				return nil
			}
			at = append(at, time.Since(begun))
			return errUnreached
		})
		r.enqueue("k", 1)
		r.start()
		pass(time.Minute)
		want := []time.Duration{0, 1, 3, 7, 15, 31}
		if len(at) != len(want) {
			t.Fatalf("attempts after %v, want %v seconds", at, want)
		}
		for i, s := range want {
			if at[i] < s*time.Second || at[i] > s*time.Second+100*time.Millisecond {
				t.Errorf("attempts after %v, want %v seconds", at, want)
			}
		}
		reached = true
		pass(time.Minute)
		reached, at, begun = false, nil, time.Now()
		r.enqueue("k", 3)
		pass(1500 * time.Millisecond)
		if len(at) != 6 {
			t.Errorf("3 jobs had %d attempts in 1.5 s, want two each: %v", len(at), at)
		}
	})
}

// A host that is gone for good spends the retries of its own jobs, as long as others
// of the lane are reached.
func TestUnavailable_EvidenceOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		gone := map[storage.ID]bool{}
		r.handle("k", func(_ context.Context, job *storage.Leased) error {
			if gone[job.ID] {
				return errUnreached
			}
			return nil
		})
		r.enqueue("k", 1) // a success before the first attempt is none that counts
		id := r.enqueue("k", 1)[0]
		gone[id] = true
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
