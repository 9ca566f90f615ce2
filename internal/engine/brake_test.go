package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

//errand:shows mass death | | after 20 deaths in a row the lane is held, until an attempt does not end with a death; deaths between successes, and of redriven jobs, do not count
func TestBrake(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
	}{
		{"permanent", &engine.PermanentError{Err: errOops}},
		{"decode", &engine.DecodeError{Err: errOops}},
		{"exhausted", errOops},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withSide(t, tt.err, func(t *testing.T, r *rig, s *side) {
				r.cfg.Policy = noRetry.Delivery()
				r.enqueue("k", 1000)
				r.start()
				began := time.Now()
				pass(900 * time.Millisecond)
				n := r.count(storage.Dead)
				if n < 21 || n > 20+r.cfg.Concurrency {
					t.Errorf("%d jobs died", n)
				}
				if h := r.held()[storage.HoldBrake]; !h.Probe || h.Waiting != int64(1000-n) || !strings.Contains(h.Detail, "oops") {
					t.Errorf("the holds are %+v", r.held())
				}
				if len(r.logs.with("died one after the other")) != 1 {
					t.Error("not one line about it")
				}
				pass(24 * time.Hour)
				if more := r.count(storage.Dead) - n; more < 12+22 || more > 12+24 {
					t.Errorf("%d probes died in a day, want one an hour in the end", more)
				}
				s.fails(nil)
				pass(time.Hour + 10*time.Second)
				if n := r.count(storage.Ready); n != 0 || len(r.held()) > 0 {
					t.Errorf("%d jobs wait %v after the start, held %v", n, time.Since(began), r.held())
				}
			})
		})
	}
}

//errand:shows mass death
func TestBrake_NotThese(t *testing.T) {
	withSide(t, nil, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 1
		n := 0
		s.answers(func(*storage.Leased) error {
			if n++; n%15 == 0 {
				return nil
			}
			return &engine.PermanentError{Err: errOops}
		})
		r.enqueue("k", 300)
		r.start()
		pass(10 * time.Second)
		if dead := r.count(storage.Dead); dead != 280 || len(r.held()) > 0 {
			t.Fatalf("%d jobs died of 280, held %v", dead, r.held())
		}
		s.fails(&engine.PermanentError{Err: errOops})
		if _, err := r.app.Redrive(t.Context(), time.Now(), storage.Selection{}, ""); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if dead := r.count(storage.Dead); dead != 280 || len(r.held()) > 0 {
			t.Errorf("%d jobs died of 280 that were redriven, held %v", dead, r.held())
		}
	})
}

//errand:shows mass death
func TestBrake_Options(t *testing.T) {
	for most, want := range map[int]int{-1: 500, 3: 4} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			withSide(t, &engine.PermanentError{Err: errors.New("no")}, func(t *testing.T, r *rig, s *side) {
				r.cfg.Concurrency = 1
				r.cfg.Settings = map[string]engine.QueueSettings{"q": {MaxDeaths: most}}
				r.enqueue("k", 500)
				r.start()
				pass(900 * time.Millisecond)
				pass(9 * time.Second * time.Duration(-min(most, 0)))
				if n := r.count(storage.Dead); n != want {
					t.Errorf("%d jobs died, want %d", n, want)
				}
			})
		})
	}
}

//errand:shows mass death
func TestBrake_Ends(t *testing.T) {
	for name, err := range map[string]error{"cancelled": &engine.CancelError{}, "unavailable": errUnreached, "retry": errOops} {
		t.Run(name, func(t *testing.T) {
			withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
				r.enqueue("k", 100)
				r.start()
				pass(time.Hour)
				s.fails(&engine.PermanentError{Err: errOops})
				pass(10 * time.Minute)
				if n := r.count(storage.Dead); n < 21 || n > 40 || !r.held()[storage.HoldBrake].Probe {
					t.Fatalf("%d jobs died, and the holds are %v", n, r.held())
				}
				s.fails(err)
				pass(time.Hour + 10*time.Minute)
				if len(r.logs.with(`no longer held" queue=q kind=k reason=brake`)) == 0 {
					t.Errorf("the brake has not ended, the holds are %v", r.held())
				}
			})
		})
	}
}

// Retries of other jobs between the deaths are no successes.
func TestBrake_Exhausted(t *testing.T) {
	withSide(t, errOops, func(t *testing.T, r *rig, _ *side) {
		r.cfg.Policy = thrice.Delivery()
		r.start()
		for range 100 {
			r.enqueue("k", 1)
			pass(time.Second)
		}
		pass(time.Minute)
		if len(r.logs.with("died one after the other")) == 0 {
			t.Errorf("%d jobs died, and the lane was not held", r.count(storage.Dead))
		}
	})
}

// A probe that dies since it has snoozed too often renews the hold, as others do.
func TestStreak_ProbeDiesSnoozed(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.enqueue("k", 40)
		r.cfg.MaxSnoozes, r.cfg.Concurrency = 0, 1
		r.start()
		pass(time.Hour)
		s.fails(&engine.SnoozeError{For: time.Second})
		before := s.n()
		pass(10 * time.Minute)
		if n := s.n() - before; n > 3 {
			t.Errorf("%d probes in 10 minutes, want one in 5", n)
		}
	})
}
