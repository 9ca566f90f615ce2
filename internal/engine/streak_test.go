package engine_test

import (
	"context"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

var laneK = storage.Lane{Queue: "q", Kind: "k"}

// side is the other side of jobs.
type side struct {
	starts
	mu   sync.Mutex
	says func(job *storage.Leased) error
	ids  []storage.ID // in the order of their first attempts
}

// answers has all attempts from now on end like this.
func (s *side) answers(says func(*storage.Leased) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says = says
}

func (s *side) fails(err error) { s.answers(func(*storage.Leased) error { return err }) }

func (s *side) run(ctx context.Context, job *storage.Leased) error {
	s.mu.Lock()
	if job.Attempt == 1 {
		s.ids = append(s.ids, job.ID)
	}
	s.mu.Unlock()
	_ = s.starts.run(ctx, job)
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.says(job)
}

func (s *side) first() []storage.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

// withSide runs a test whose jobs of kind k have another side that fails with err.
func withSide(t *testing.T, err error, test func(t *testing.T, r *rig, s *side)) {
	t.Helper()
	bubble(t, func(t *testing.T, r *rig) {
		s := &side{}
		s.fails(err)
		r.handle("k", s.run)
		r.cfg.Rand = func() float64 { return 0 }
		r.store.alone = true
		test(t, r, s)
	})
}

// held returns the holds of lane k by their reasons.
func (r *rig) held() map[string]storage.HoldState {
	r.t.Helper()
	all, err := r.app.Holds(r.t.Context(), r.now())
	if err != nil {
		r.t.Fatal(err)
	}
	by := map[string]storage.HoldState{}
	for _, h := range all {
		if h.Lane == laneK {
			by[h.Reason] = h
		}
	}
	return by
}

// count returns how many jobs are in a state.
func (r *rig) count(state storage.State) int { return int(r.counts()[state]) }

// A backlog whose other side is away costs a few attempts, each of another job, and
// loses nothing. It is drained at once when a probe succeeds.
//
//errand:shows a backlog whose other side is away | | it is held after five attempts that failed so, or at once if the machine has no network. One job is let through at a time, in all processes, and the first that is done ends the hold
func TestStreak_HoldsTheLane(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.handle("other", work(time.Millisecond))
		ids := r.enqueue("k", 1000)
		r.start()
		began := time.Now()
		pass(8 * time.Second)
		if n := s.n(); n < 5+7 || n > 2*r.cfg.Concurrency+5+7 {
			t.Errorf("%d attempts in 8 s", n)
		}
		for _, at := range []time.Duration{1, 2, 7} {
			if n := s.within(began.Add(at*time.Second), 200*time.Millisecond); n != 1 {
				t.Errorf("%d probes after %d s, want 1", n, at)
			}
		}
		h := r.held()[storage.HoldUnavailable]
		if !h.Probe || h.Waiting != 1000 || h.Detail != "no route to host" || h.Since.Sub(began) > time.Second || h.For != time.Second {
			t.Errorf("the hold is %+v", h)
		}
		r.enqueue("other", 10)
		pass(time.Second)
		if n := r.count(storage.Done); n != 10 {
			t.Errorf("%d of 10 jobs of another lane are done", n)
		}
		pass(time.Hour)
		if n := s.n(); n > 80 {
			t.Errorf("%d attempts in an hour", n)
		}
		s.fails(nil)
		pass(5*time.Minute + 10*time.Second)
		if n := r.count(storage.Done); n != 1010 {
			t.Errorf("%d of 1010 jobs are done", n)
		}
		if len(r.held()) > 0 {
			t.Errorf("still held: %v", r.held())
		}
		for _, id := range ids {
			if rec := r.job(id); rec.Retry != 0 || len(rec.History) > 0 {
				t.Fatalf("a job has spent %+v, and has the history %v", rec.Counters, rec.History)
			}
		}
		for i, id := range s.first() { // attempts of four runners start together
			if at := slices.Index(ids, id); at < i-3 || at > i+3 {
				t.Fatalf("the first attempt of job %d was the %d-th", at, i)
			}
		}
		if len(r.logs.with("jobs are held")) != 1 || len(r.logs.with("no longer held")) != 1 {
			t.Errorf("the log has not one line each about the hold and its end:\n%s%s", r.logs.with("jobs are held"), r.logs.with("no longer"))
		}
	})
}

// An error about this machine has the lane held at once.
//
//errand:shows a backlog whose other side is away
func TestStreak_Local(t *testing.T) {
	err := &net.DNSError{Err: "timeout", IsTimeout: true, Name: "example.com"}
	withSide(t, err, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 1
		r.enqueue("k", 100)
		r.start()
		pass(900 * time.Millisecond)
		if s.n() != 1 || !r.held()[storage.HoldUnavailable].Probe {
			t.Errorf("%d attempts, and the holds %v", s.n(), r.held())
		}
	})
}

// One probe is out at a time, whichever process it is in, and all see its outcome.
//
//errand:shows a backlog whose other side is away
func TestStreak_TwoProcesses(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		o := r.another()
		o.handle("k", s.run)
		o.cfg.Rand = r.cfg.Rand
		r.store.alone = false
		r.enqueue("k", 1000)
		r.start()
		o.start()
		pass(time.Hour)
		before := s.n()
		pass(time.Hour)
		if n := s.n() - before; n < 11 || n > 13 {
			t.Errorf("%d probes in an hour, want one in 5 minutes", n)
		}
		s.fails(nil)
		pass(5*time.Minute + 10*time.Second)
		if n := r.count(storage.Done); n != 1000 {
			t.Errorf("%d of 1000 jobs are done", n)
		}
	})
}

// While other jobs of the lane reach their hosts it is not held for those that do not.
// These spend their retries.
//
//errand:shows a backlog whose other side is away | | jobs of hosts that are gone keep others from theirs for some minutes at most, and end by their policy; a hold of a week is an error in the log
func TestStreak_Mixed(t *testing.T) {
	bad := map[storage.ID]bool{}
	withSide(t, nil, func(t *testing.T, r *rig, s *side) {
		r.cfg.MaxDeaths = -1
		s.answers(func(job *storage.Leased) error {
			if bad[job.ID] {
				return errUnreached
			}
			return nil
		})
		r.start()
		for range 120 {
			ids := r.enqueue("k", 100)
			s.mu.Lock() // before a handler asks, as that takes time
			for i, id := range ids {
				bad[id] = i%50 == 7
			}
			s.mu.Unlock()
			pass(time.Second)
			if len(r.held()) > 0 {
				t.Fatalf("held: %v", r.held())
			}
		}
		if n := r.count(storage.Done); n < 120*98 {
			t.Errorf("%d of %d jobs of hosts that answer are done", n, 120*98)
		}
		if n := r.count(storage.Dead); n < 2*80 {
			t.Errorf("%d jobs of hosts that are gone are dead", n)
		}
	})
}

// Nor do many jobs of a host that is gone keep the others of their lane from theirs,
// which come seldom, for long.
//
//errand:shows a backlog whose other side is away
func TestStreak_FewDeadHostsFirst(t *testing.T) {
	bad := map[storage.ID]bool{}
	withSide(t, nil, func(t *testing.T, r *rig, s *side) {
		r.cfg.MaxDeaths = -1
		s.answers(func(job *storage.Leased) error {
			if bad[job.ID] {
				return errUnreached
			}
			return nil
		})
		for _, id := range r.enqueue("k", 40) {
			bad[id] = true
		}
		r.start()
		for range 60 {
			r.enqueue("k", 1)
			pass(time.Minute)
		}
		if n := r.count(storage.Done); n < 59 {
			t.Errorf("%d of 60 jobs of hosts that answer are done after an hour", n)
		}
		if n := r.count(storage.Dead); n != 40 {
			t.Errorf("%d of 40 jobs of a host that is gone are dead", n)
		}
	})
}

// A probe that is put off by the other side has reached it: the next one is let through
// when it has asked for.
//
//errand:shows a backlog whose other side is away
func TestStreak_RetryAfterOfAProbe(t *testing.T) {
	withSide(t, &net.DNSError{Err: "timeout", IsTimeout: true, Name: "example.com"}, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 1
		r.enqueue("k", 100)
		r.start()
		pass(time.Hour)
		s.fails(&engine.RetryAfterError{After: 10 * time.Second, Err: errOops})
		pass(5*time.Minute + time.Second)
		s.fails(nil)
		pass(12 * time.Second)
		if n := r.count(storage.Done); n < 99 {
			t.Errorf("%d of 100 jobs are done", n)
		}
	})
}

// Two outages in a row of one host are outages both: each holds the lane, and has the
// hook for a token called.
func TestStreak_TwoInARow(t *testing.T) {
	refused := &policy.StatusError{Status: 401}
	withSide(t, refused, func(t *testing.T, r *rig, s *side) {
		var calls starts
		r.cfg.Handlers["k"] = engine.Handler{Run: s.run, Rules: policy.DefaultRules(), OnUnauthorized: func(ctx context.Context) error {
			_ = calls.run(ctx, nil)
			s.fails(nil)
			return nil
		}}
		r.start()
		for i := range 5 {
			s.fails(refused)
			before := s.n()
			r.enqueue("k", 40)
			pass(10 * time.Second)
			if n := r.count(storage.Done); n != 40*(i+1) || calls.n() != i+1 || s.n()-before > 40+12 {
				t.Errorf("outage %d: %d jobs are done, the hook was called %d times, and there were %d attempts", i, n, calls.n(), s.n()-before)
			}
		}
	})
}

// A handler that says for how long has the lane held at once.
//
//errand:shows a backlog whose other side is away
func TestStreak_HoldLane(t *testing.T) {
	withSide(t, &engine.HoldLaneError{For: time.Minute, Err: errOops}, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 1
		r.enqueue("k", 10)
		began := time.Now()
		r.start()
		pass(59 * time.Second)
		if h := r.held()[storage.HoldUnavailable]; s.n() != 1 || h.Detail != "oops" || h.For != time.Minute {
			t.Errorf("%d attempts, and the holds %v", s.n(), r.held())
		}
		s.fails(nil)
		pass(2 * time.Second)
		if n := r.count(storage.Done); n != 10 || s.within(began, time.Minute) != 1 {
			t.Errorf("%d of 10 jobs are done", n)
		}
	})
}

// A lane can be held for as long as a Duration can say.
func TestStreak_HoldLaneForEver(t *testing.T) {
	withSide(t, &engine.HoldLaneError{For: math.MaxInt64, Err: errOops}, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency, r.cfg.MaxRetryAfter = 1, math.MaxInt64
		r.cfg.Rand = func() float64 { return 0.9 }
		r.enqueue("k", 10)
		began := time.Now()
		r.start()
		pass(time.Hour)
		h := r.held()[storage.HoldUnavailable]
		if years := int(h.Until.Sub(began).Hours() / 24 / 365); s.n() != 1 || h.For.Hours() < 292*365*24 || years < 290 {
			t.Errorf("%d attempts, held for %v until %v", s.n(), h.For, h.Until)
		}
	})
}

// A job that has waited for too long for the other side is dead.
//
//errand:shows a backlog whose other side is away
func TestStreak_MaxUnavailable(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		h := r.cfg.Handlers["k"]
		h.MaxUnavailable = time.Hour
		r.cfg.Handlers["k"] = h
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(59 * time.Minute)
		r.wantState(id, storage.Ready, storage.Counters{Attempt: s.n()})
		pass(7 * time.Minute)
		rec := r.job(id)
		if rec.State != storage.Dead || rec.Reason != storage.ReasonUnavailable || rec.Error != "no route to host" || len(rec.History) != 1 {
			t.Errorf("the job is %+v", rec)
		}
	})
}

// The hook for a token is called once for each hold and each probe that is refused. One
// that succeeds has a probe let through at once, but not in a circle.
// A hook that panics is logged, and called again.
// A store that fails loses no hold.
//
//errand:shows a backlog whose other side is away
func TestStreak_StoreFails(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 5
		r.enqueue("k", 100)
		r.start()
		pass(time.Millisecond)
		r.store.failing(func(op string) error {
			if op == "exchange" {
				return storage.ErrBusy
			}
			return nil
		})
		pass(20 * time.Second)
		n := s.n()
		r.store.failing(nil)
		pass(8 * time.Second)
		if !r.held()[storage.HoldUnavailable].Probe || n != 5 || s.n() > n+7 {
			t.Errorf("%d attempts, then %d; the holds are %v", n, s.n(), r.held())
		}
	})
}

// A lane that is held for a week is an error in the log, once a day.
//
//errand:shows a backlog whose other side is away
func TestStreak_Week(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.enqueue("k", 100)
		r.start()
		pass(6 * 24 * time.Hour)
		if n := len(r.logs.with("more than a week")); n > 0 {
			t.Errorf("%d lines after 6 days", n)
		}
		pass(4 * 24 * time.Hour)
		if n := len(r.logs.with("more than a week")); n < 3 || n > 4 {
			t.Errorf("%d lines after 10 days, want one a day", n)
		}
	})
}

// A lane whose jobs die one after the other is held, until one does not.
// Deaths count only if they follow each other, and none of them was redriven.
// The number is the queue's, and it can be turned off.
// What failed while the network was dying does not wait for its retry once it is back.
func TestStreak_KicksWhatFailedBefore(t *testing.T) {
	withSide(t, errOops, func(t *testing.T, r *rig, s *side) {
		slow := thrice
		slow.MinDelay, slow.MaxDelay, slow.NoDelayRetries = time.Hour, time.Hour, 0
		r.cfg.Policy = slow.Delivery()
		failed := r.enqueue("k", 20)
		r.start()
		pass(time.Second)
		s.fails(errUnreached)
		r.enqueue("k", 100)
		pass(time.Minute)
		s.fails(nil)
		pass(2 * time.Minute)
		for _, id := range failed {
			if rec := r.job(id); rec.State != storage.Done || rec.Retry != 1 {
				t.Fatalf("a job that failed before is %s, with %+v", rec.State, rec.Counters)
			}
		}
	})
}

// onProbe is a Store that calls a function once when it has leased a probe.
type onProbe struct {
	*spy
	do *func()
}

func (s onProbe) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	r, err := s.spy.Exchange(ctx, now, x)
	if *s.do != nil && slices.ContainsFunc(r.Leased, func(l storage.Leased) bool { return l.Probe }) {
		(*s.do)()
		*s.do = nil
	}
	return r, err
}

// A probe that goes back without having started, here behind a gate that closes for a
// second, does not keep the lane closed until the end of its lease.
//
//errand:shows a backlog whose other side is away
func TestStreak_ProbeGoesBack(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		gate := &latch{}
		shut := func() {
			s.fails(nil)
			gate.close("no carrier")
			time.AfterFunc(time.Second, func() { gate.close("") })
		}
		r.cfg.Store = onProbe{r.store, &shut}
		r.cfg.Handlers["k"] = engine.Handler{Run: s.run, Gate: gate}
		ids := r.enqueue("k", 20)
		r.start()
		pass(500 * time.Millisecond)
		before := s.n()
		if r.held()[storage.HoldUnavailable].Until.IsZero() {
			t.Fatal("the lane is not held")
		}
		pass(time.Second) // the probe
		if n := s.n(); n != before {
			t.Fatalf("%d attempts behind the closed gate", n-before)
		}
		pass(3 * time.Second)
		for _, id := range ids {
			if j := r.job(id); j.State != storage.Done {
				t.Errorf("a job is %s 2.5 s after the gate has opened", j.State)
			}
		}
	})
}

// lacks has all attempts from now on end well but those of some jobs, which cannot reach
// their host.
func (s *side) lacks(bad map[storage.ID]bool) {
	s.answers(func(job *storage.Leased) error {
		if bad[job.ID] {
			return errUnreached
		}
		return nil
	})
}

// Nor does a job of a higher priority whose host is gone keep the others from theirs.
//
//errand:shows a backlog whose other side is away
func TestStreak_Priority(t *testing.T) {
	withSide(t, nil, func(t *testing.T, r *rig, s *side) {
		r.cfg.MaxDeaths = -1
		bad := map[storage.ID]bool{}
		for range 6 {
			bad[r.add(storage.NewJob{Queue: "q", Kind: "k", Priority: 5})[0]] = true
		}
		s.lacks(bad)
		r.enqueue("k", 100)
		r.start()
		pass(5 * time.Minute)
		if n := r.count(storage.Done); n != 100 {
			t.Errorf("%d of 100 jobs whose host answers are done", n)
		}
	})
}

// A job of a higher priority that is alone makes way for none.
//
//errand:shows a backlog whose other side is away
func TestStreak_PriorityAlone(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.cfg.Handlers["k"] = engine.Handler{Run: s.run, Rules: policy.DefaultRules()}
		r.add(storage.NewJob{Queue: "q", Kind: "k", Priority: 5})
		r.start()
		pass(24 * time.Hour)
		before := s.n()
		pass(time.Hour)
		if n := s.n() - before; n < 10 {
			t.Errorf("%d probes in an hour, want one in 5 minutes", n)
		}
		s.fails(nil)
		pass(6 * time.Minute)
		if n := r.count(storage.Done); n != 1 {
			t.Errorf("the job is not done 6 minutes after the other side is back")
		}
	})
}

// Jobs that are too old when the other side is away die one by one, behind a hold.
// What a handler asked for is neither shortened by another one, nor ended by an attempt
// that was running before.
//
//errand:shows a backlog whose other side is away
func TestStreak_HoldLaneStays(t *testing.T) {
	withSide(t, nil, func(t *testing.T, r *rig, s *side) {
		n := 0
		s.answers(func(*storage.Leased) error {
			switch n++; n {
			case 1:
				return &engine.HoldLaneError{For: time.Hour}
			case 2:
				return &engine.HoldLaneError{For: time.Minute}
			}
			return nil
		})
		r.enqueue("k", 100)
		r.start()
		pass(59 * time.Minute)
		if s.n() != 4 || r.held()[storage.HoldUnavailable].For != time.Hour {
			t.Errorf("%d attempts, and the holds %v", s.n(), r.held())
		}
		pass(2 * time.Minute)
		if n := r.count(storage.Done); n != 100 {
			t.Errorf("%d of 100 jobs are done", n)
		}
	})
}

// When somebody else ends a hold, it takes five more attempts to begin it anew.
//
//errand:shows a backlog whose other side is away
func TestStreak_ReleasedElsewhere(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 1
		r.enqueue("k", 100)
		r.start()
		pass(time.Hour + time.Minute) // no probe is out
		before := s.n()
		if was, err := r.app.Release(t.Context(), r.now(), laneK, storage.HoldUnavailable); !was || err != nil {
			t.Fatal(was, err)
		}
		pass(900 * time.Millisecond)
		if n := s.n() - before; n < 5 || r.held()[storage.HoldUnavailable].For > time.Second {
			t.Errorf("%d attempts after Release, and the holds are %v", n, r.held())
		}
	})
}

// A probe that shows nothing is followed by another one soon.
//
//errand:shows a backlog whose other side is away
func TestStreak_ProbeOfAWorkerThatStops(t *testing.T) {
	for name, end := range map[string]func(r *rig, s *side){
		"stopped": func(r *rig, s *side) {
			r.cfg.Grace = 0
			_ = r.stop()
			o := r.another()
			o.handle("k", s.run)
			o.cfg.Rand = r.cfg.Rand
			s.fails(nil)
			o.start()
		},
		"cancelled": func(_ *rig, s *side) {
			s.fails(&engine.CancelError{})
			time.AfterFunc(500*time.Millisecond, func() { s.fails(nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
				r.cfg.LeaseDuration = time.Hour
				r.enqueue("k", 100)
				r.start()
				pass(10*time.Second + 5*time.Millisecond)
				for r.running() == 0 { // until a probe runs
					pass(5 * time.Millisecond)
				}
				end(r, s)
				pass(3 * time.Minute)
				if n := r.count(storage.Done); n < 95 {
					t.Errorf("%d of 100 jobs are done", n)
				}
			})
		})
	}
}

// Run returns when a hook has ended, whose context ends as the worker stops.
// An attempt that ends otherwise than with a death ends the brake, and jobs that could
// not reach the other side before count as others.

// A link that flaps is no lane of many hosts: each time that the machine has no network
// the lane is held at once, and nothing is spent.
func TestStreak_Flapping(t *testing.T) {
	local := &net.DNSError{Err: "timeout", IsTimeout: true, Name: "example.com"}
	withSide(t, local, func(t *testing.T, r *rig, s *side) {
		r.handle("k", func(ctx context.Context, job *storage.Leased) error {
			time.Sleep(90 * time.Millisecond)
			return s.run(ctx, job)
		})
		ids := r.enqueue("k", 400)
		r.start()
		for i := range 5 {
			s.fails(local)
			before := s.n()
			pass(30 * time.Second)
			if n := s.n() - before; n > 2*r.cfg.Concurrency+5 {
				t.Errorf("%d attempts in the 30 s of outage %d", n, i)
			}
			s.fails(nil)
			pass(2 * time.Second)
		}
		for _, id := range ids {
			if n := r.job(id).Retry; n > 0 {
				t.Fatalf("a job has spent %d retries", n)
			}
		}
	})
}

// What a handler of another process has asked for is neither ended nor shortened by an
// attempt that was running before.
func TestStreak_HoldLaneOfAnother(t *testing.T) {
	for name, err := range map[string]error{"done": nil, "shorter": &engine.HoldLaneError{For: 10 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			withSide(t, nil, func(t *testing.T, r *rig, s *side) {
				r.store.alone = false
				o := r.another()
				o.cfg.Rand = r.cfg.Rand
				o.cfg.Concurrency, r.cfg.Concurrency = 1, 1
				o.handle("k", func(context.Context, *storage.Leased) error { time.Sleep(5 * time.Second); return err })
				r.handle("k", func(context.Context, *storage.Leased) error {
					time.Sleep(time.Second)
					return &engine.HoldLaneError{For: time.Hour}
				})
				r.enqueue("k", 1)
				o.start()
				pass(time.Millisecond)
				r.start()
				r.enqueue("k", 10)
				pass(time.Minute)
				if h := r.held()[storage.HoldUnavailable]; h.For != time.Hour || r.count(storage.Done) > 1 {
					t.Errorf("the holds are %v, and %d jobs are done", r.held(), r.count(storage.Done))
				}
			})
		})
	}
}

// A job of a higher priority does not make way for jobs that are not due.
func TestStreak_PriorityAndLaterJobs(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.add(storage.NewJob{Queue: "q", Kind: "k", Priority: 5})
		for range 10 {
			r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: r.now().Add(240 * time.Hour)})
		}
		r.start()
		pass(24 * time.Hour)
		s.fails(nil)
		pass(6 * time.Minute)
		if r.count(storage.Done) != 1 {
			t.Error("the job is not done 6 minutes after the other side is back")
		}
	})
}
