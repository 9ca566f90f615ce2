package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

func TestStreak_OnUnauthorized(t *testing.T) {
	refused := &policy.StatusError{Status: 401}
	withSide(t, refused, func(t *testing.T, r *rig, s *side) {
		r.cfg.Handlers["k"] = engine.Handler{
			Run: s.run, Rules: policy.DefaultRules(),
		}
		var calls starts
		var mu sync.Mutex
		hook := func() error { return errOops }
		renew := func(by func() error) {
			mu.Lock()
			defer mu.Unlock()
			hook = by
		}
		h := r.cfg.Handlers["k"]
		h.OnUnauthorized = func(ctx context.Context) error {
			_ = calls.run(ctx, nil)
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			return hook()
		}
		r.cfg.Handlers["k"] = h
		r.enqueue("k", 1000)
		r.start()
		began := time.Now()
		pass(8 * time.Second)
		if calls.n() != 8 || s.n() > 60 {
			t.Errorf("%d calls of the hook and %d attempts in 8 s, want one each for the hold and for 7 probes", calls.n(), s.n())
		}
		pass(time.Hour)
		if len(r.logs.with("OnUnauthorized failed")) == 0 {
			t.Error("no line about a hook that failed")
		}
		renew(func() error { return nil }) // and helps nothing
		before := s.n()
		pass(time.Hour)
		if n := s.n() - before; n > 26 {
			t.Errorf("%d attempts in an hour, want two in 5 minutes at most", n)
		}
		renew(func() error { s.fails(nil); return nil })
		pass(6 * time.Minute)
		if n := r.count(storage.Done); n != 1000 {
			t.Errorf("%d of 1000 jobs are done %v after the start", n, time.Since(began))
		}
	})
}

func TestStreak_OnUnauthorizedPanics(t *testing.T) {
	withSide(t, &policy.StatusError{Status: 403}, func(t *testing.T, r *rig, s *side) {
		h := r.cfg.Handlers["k"]
		h.Rules = policy.DefaultRules()
		h.OnUnauthorized = func(context.Context) error { panic("no token") }
		r.cfg.Handlers["k"] = h
		r.enqueue("k", 100)
		r.start()
		pass(time.Minute)
		if n := len(r.logs.with("panic: no token")); n < 3 {
			t.Errorf("%d lines about the panic", n)
		}
	})
}

func TestStreak_TooOldBehindAHold(t *testing.T) {
	withSide(t, &policy.StatusError{Status: 401}, func(t *testing.T, r *rig, s *side) {
		calls := 0
		r.cfg.Handlers["k"] = engine.Handler{
			Run: s.run, Rules: policy.DefaultRules(), MaxUnavailable: time.Hour,
			OnUnauthorized: func(context.Context) error {
				calls++
				s.fails(nil)
				return nil
			},
		}
		r.enqueue("k", 1000)
		pass(2 * time.Hour)
		r.start()
		pass(5 * time.Second)
		if n := r.count(storage.Dead); n > 12 || calls != 1 || r.count(storage.Done) != 1000-n {
			t.Errorf("%d jobs died, %d are done, and the hook was called %d times", n, r.count(storage.Done), calls)
		}
	})
}

func TestStreak_HookAtAStop(t *testing.T) {
	withSide(t, &policy.StatusError{Status: 401}, func(t *testing.T, r *rig, s *side) {
		ended := false
		r.cfg.Handlers["k"] = engine.Handler{Run: s.run, Rules: policy.DefaultRules(), OnUnauthorized: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return ctx.Err()
		}}
		r.enqueue("k", 100)
		r.start()
		pass(time.Minute)
		if err := r.stop(); err != nil || !ended {
			t.Errorf("Run returned %v, the hook has ended: %v", err, ended)
		}
	})
}
