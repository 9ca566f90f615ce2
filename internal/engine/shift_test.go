package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// delayed adds n jobs with an hour's delay, more than one step deals with.
func (r *rig) delayed(n int) []storage.ID {
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = storage.NewJob{Queue: "q", Kind: "k", Delay: time.Hour}
	}
	return r.add(jobs...)
}

// wantDone checks that jobs were done by a time from now, and not before.
func (r *rig) wantDone(ids []storage.ID, after time.Duration) {
	r.t.Helper()
	pass(after - time.Second)
	r.wantState(ids[0], storage.Scheduled, storage.Counters{})
	pass(2 * time.Second)
	for _, id := range ids {
		if rec, err := r.app.Job(r.t.Context(), id); err == nil && rec.State != storage.Done {
			r.t.Fatalf("job is %s, due %v, at %v", rec.State, rec.DueAt, r.now())
		}
	}
}

func TestShift_ShiftsInSteps(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = engine.Wall(w.now)
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		w.set(30 * day)
		pass(notice)
		ids := r.delayed(450)
		n := r.store.count()
		w.set(0)
		var failed int
		r.store.failing(func(op string) error { // under the spy's lock
			if op == "step" && failed < 3 {
				failed++
				return storage.ErrBusy
			}
			return nil
		})
		pass(notice + time.Second)
		var steps, others int
		for _, c := range r.store.since(n) {
			switch c.op {
			case "step":
				steps++
			case "exchange":
				others++
			}
		}
		if steps != 5+3 || others < 5 {
			t.Errorf("%d steps for 450 jobs, and %d exchanges", steps, others)
		}
		r.store.failing(nil)
		r.wantDone(ids, time.Hour-time.Second)
	})
}

// After a step jobs are looked for, though nobody says that they are due.
func TestShift_LooksForWhatWasShifted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = engine.Wall(w.now)
		r.cfg.Store = mum{r.store}
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		w.set(30 * day)
		ids := r.delayed(450)
		r.start()
		w.set(0)
		pass(notice)
		r.wantDone(ids, time.Hour)
	})
}

// mum tells nobody anything.
type mum struct{ *spy }

func (mum) Notify(func(storage.Event)) func() { return func() {} }

// A step back during the pass begins it anew.
func TestShift_StepsBackTwice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = engine.Wall(w.now)
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		w.set(60 * day)
		pass(notice)
		ids := r.delayed(450)
		w.set(30 * day)
		steps := 0
		r.store.failing(func(op string) error {
			if op != "step" {
				return nil
			}
			if steps++; steps == 3 {
				w.set(0)
			}
			return nil
		})
		pass(2 * notice)
		if steps != 3+5 {
			t.Errorf("%d steps, want 3 and 5", steps)
		}
		r.wantDone(ids, time.Hour-notice)
	})
}

func TestShift_FinishesThePassOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock = engine.Wall(w.now)
		w.set(30 * day)
		ids := r.delayed(450)
		w.set(0)
		keeper := r.app.(storage.Timekeeper)
		if next, err := keeper.StepClock(t.Context(), r.now(), 0); err != nil || next == 0 {
			t.Fatal(next, err)
		}
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		if _, shifting, err := keeper.Clock(t.Context()); err != nil || shifting {
			t.Errorf("shifting: %v, %v", shifting, err)
		}
		r.wantDone(ids, time.Hour)
	})
}

// Who writes at a time to come may be gone before it notices.
func TestShift_OthersWriteAhead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var other wall
		r.cfg.Retention.Default = 0
		var plausible atomic.Bool
		plausible.Store(true)
		r.cfg.Clock = unsure{time.Now, &plausible}
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		pass(time.Hour)
		write := func(s storage.Store) storage.ID {
			defer func(app storage.Store, c engine.Clock) { r.app, r.cfg.Clock = app, c }(r.app, r.cfg.Clock)
			r.cfg.Clock = engine.Wall(other.now)
			r.app = s
			return r.delayed(1)[0]
		}

		other.set(clock.Slack)
		write(r.app)
		if n := len(r.store.of("step", 0)); n > 0 {
			t.Errorf("%d passes for what is within the slack", n)
		}

		other.set(30 * day)
		id := write(r.app)
		if n := len(r.store.of("step", 0)); n != 1 {
			t.Errorf("%d passes", n)
		}
		r.wantDone([]storage.ID{id}, time.Hour)

		// Nobody tells of what this process writes; it is found afterwards.
		n := r.store.count()
		write(r.app)
		pass(time.Second)
		id = write(r.store.Store)
		pass(shiftEvery)
		if n := len(r.store.of("step", n)); n != 2 {
			t.Errorf("%d passes", n)
		}
		r.wantDone([]storage.ID{id}, time.Hour-time.Second) // a second was left of the minute

		n = r.store.count()
		for range 50 {
			write(r.app)
			pass(12 * time.Second)
		}
		if n := len(r.store.of("step", n)); n < 9 || n > 11 {
			t.Errorf("%d passes in ten minutes", n)
		}
		pass(2 * time.Hour)

		// Whose own clock cannot be right does not judge.
		plausible.Store(false)
		n = r.store.count()
		id = write(r.app)
		pass(time.Hour)
		if n := len(r.store.of("step", n)); n > 0 {
			t.Errorf("%d passes by an implausible clock", n)
		}
		plausible.Store(true)
		pass(notice)
		if n := len(r.store.of("step", n)); n != 1 {
			t.Errorf("%d passes since the clock is plausible", n)
		}
		pass(time.Hour)
		if _, err := r.app.Job(t.Context(), id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the job is not over: %v", err)
		}
	})
}

const shiftEvery = time.Minute

// What has ended while the clock was ahead is deleted in time, though nothing ends after that.
func TestShift_PurgesInTime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var w wall
		r.cfg.Clock, r.cfg.Retention.Default = engine.Wall(w.now), time.Hour
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		w.set(70 * 365 * day)
		pass(notice)
		id := r.add(storage.NewJob{Queue: "q", Kind: "k"})[0]
		pass(time.Minute)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		w.set(0)
		pass(notice + time.Second)
		pass(time.Hour - time.Minute)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		pass(2 * time.Minute)
		if _, err := r.app.Job(t.Context(), id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("an hour after the clock was set right: %v, want the job gone", err)
		}
	})
}
