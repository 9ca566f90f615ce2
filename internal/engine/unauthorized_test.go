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

//errand:shows a token that has expired | | many jobs cost at most 60 attempts in 8 s, and none of them dies; the hook is called for the hold and for each probe
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

//errand:shows a token that has expired
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

//errand:shows a backlog whose other side is away
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

//errand:shows a token that has expired
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

// A token that was renewed lets no job through beside the probe of another process.
func TestStreak_HookBesideAProbe(t *testing.T) {
	refused := &policy.StatusError{Status: 401}
	withSide(t, refused, func(t *testing.T, r *rig, _ *side) {
		r.store.alone = false
		var mu sync.Mutex
		running, most := 0, 0
		counted := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			running += by
			most = max(most, running)
		}
		h := engine.Handler{Rules: policy.DefaultRules(), Run: func(context.Context, *storage.Leased) error {
			counted(1)
			defer counted(-1)
			time.Sleep(4 * time.Second)
			return refused
		}, OnUnauthorized: func(context.Context) error { time.Sleep(3 * time.Second); return nil }}
		r.cfg.Handlers["k"] = h
		o := r.another()
		o.cfg.Rand = r.cfg.Rand
		o.cfg.Handlers["k"] = h
		r.enqueue("k", 100)
		r.start()
		o.start()
		pass(30 * time.Second)
		mu.Lock()
		most = 0
		mu.Unlock()
		pass(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if most != 1 {
			t.Errorf("%d probes at a time", most)
		}
	})
}

// Nor does it end a hold that a handler has asked for.
func TestStreak_HookAndHoldLane(t *testing.T) {
	refused := &policy.StatusError{Status: 401}
	withSide(t, refused, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 7
		r.cfg.Handlers["k"] = engine.Handler{Rules: policy.DefaultRules(), Run: func(ctx context.Context, job *storage.Leased) error {
			_ = s.run(ctx, job)
			switch job.ID.Key() {
			case 6:
				time.Sleep(100 * time.Millisecond)
				return &engine.HoldLaneError{For: time.Hour}
			case 7:
				time.Sleep(200 * time.Millisecond)
			}
			return refused
		}, OnUnauthorized: func(context.Context) error { time.Sleep(500 * time.Millisecond); return nil }}
		r.enqueue("k", 100)
		r.start()
		pass(10 * time.Minute)
		if s.n() > 7+5 || r.held()[storage.HoldUnavailable].For != time.Hour {
			t.Errorf("%d attempts, want those that were under way together; the holds are %v", s.n(), r.held())
		}
	})
}
