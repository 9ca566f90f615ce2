package engine_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// hanging has probes hang until the test says how they end. Other attempts end as those
// of the side do.
type hanging struct {
	t    *testing.T
	from time.Time
	at   []time.Duration // when they began
	ids  []storage.ID
	ends []chan error
}

// hang has the first n probes of rigs hang.
func hang(t *testing.T, n int, s *side, all ...*rig) *hanging {
	h := &hanging{t: t, from: time.Now()}
	for _, r := range all {
		r.handle("k", func(ctx context.Context, job *storage.Leased) error {
			s.mu.Lock()
			hangs := job.Probe && len(h.ends) < n
			if !hangs {
				s.mu.Unlock()
				return s.run(ctx, job)
			}
			end := make(chan error, 1)
			h.at, h.ids, h.ends = append(h.at, time.Since(h.from).Round(time.Second)), append(h.ids, job.ID), append(h.ends, end)
			s.mu.Unlock()
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	return h
}

// began checks when probes have begun.
func (h *hanging) began(s *side, want ...time.Duration) {
	h.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(h.at, want) {
		h.t.Errorf("probes that hang have begun at %v, want %v", h.at, want)
	}
}

// end ends the probe that has begun as the i-th.
func (h *hanging) end(s *side, i int, err error) {
	h.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if i >= len(h.ends) {
		h.t.Fatalf("%d probes have begun, want more", len(h.ends))
	}
	h.ends[i] <- err
}

const probeHangs = `msg="errand: a probe hangs, and the next job is let through: set a Timeout, which ends such attempts"`

// A probe that hangs does not keep the others from a side that is back.
//
//errand:shows a probe that hangs | | after a lease, or twice the longest attempt that ended well here, the next job is let through, in all processes together; each further one that hangs is waited for twice as long, up to a limit. What it shows late moves no hold that waits for another job
func TestProbe_Hangs(t *testing.T) {
	for name, batch := range map[string]bool{"one by one": false, "batches": true} {
		t.Run(name, func(t *testing.T) {
			withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
				r.cfg.Concurrency = 16
				h := hang(t, 1, s, r)
				if run := r.cfg.Handlers["k"].Run; batch {
					b := &engine.Batch{Max: 10, Run: func(_ context.Context, items []engine.Item) {
						for i := range items {
							items[i].Err = run(items[i].Ctx, items[i].Job)
						}
					}}
					r.cfg.Handlers["k"] = engine.Handler{Run: run, Batch: b}
				}
				r.enqueue("k", 100)
				r.start()
				pass(500 * time.Millisecond)
				s.fails(nil)
				pass(time.Second)
				h.began(s, time.Second)
				if t.Failed() {
					t.FailNow()
				}
				held := r.held()[storage.HoldUnavailable]
				if held.Through.Job != h.ids[0] || time.Since(held.Through.Since) > 2*time.Second {
					t.Errorf("the hold has let through %+v, want %v", held.Through, h.ids[0])
				}
				pass(time.Minute)
				if n := r.count(storage.Done); n != 99 {
					t.Errorf("%d jobs are done, want 99", n)
				}
				if held := r.held(); len(held) > 0 {
					t.Errorf("held: %v", held)
				}
				pass(5 * time.Hour)
				if n := len(r.logs.with(probeHangs)); n != 1 {
					t.Errorf("%d lines say that a probe hangs, want 1", n)
				}
				h.end(s, 0, nil)
				pass(time.Second)
				if n := r.count(storage.Done); n != 100 {
					t.Errorf("%d jobs are done, want 100", n)
				}
			})
		})
	}
}

// Each further probe is waited for twice as long. That is bounded until half of the
// runners hang.
//
//errand:shows a probe that hangs
func TestProbe_Waits(t *testing.T) {
	const s0 = time.Second // when the first is let through
	for _, test := range []struct {
		name        string
		concurrency int
		want        []time.Duration // in leases, after the first
	}{
		{"bounded", 100, []time.Duration{0, 1, 3, 7, 15, 31, 47, 63, 79}},
		{"few runners", 8, []time.Duration{0, 1, 3, 7, 15, 31, 63, 127}},
	} {
		t.Run(test.name, func(t *testing.T) {
			withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
				r.cfg.Concurrency = test.concurrency
				h := hang(t, len(test.want), s, r)
				r.enqueue("k", 1000)
				r.start()
				pass(128 * lease)
				want := slices.Clone(test.want)
				for i := range want {
					want[i] = s0 + want[i]*lease
				}
				h.began(s, want...)
				if n := len(r.logs.with(probeHangs)); n < len(want)-1 || n > len(want) {
					t.Errorf("%d lines say that a probe hangs, want one for each of %d", n, len(want))
				}
			})
		})
	}
}

// A probe that fails in time ends the doubling.
//
//errand:shows a probe that hangs
func TestProbe_WaitsAnew(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 100
		h := hang(t, 5, s, r)
		r.enqueue("k", 1000)
		r.start()
		pass(time.Second + 3*lease + time.Second) // the third is out
		h.end(s, 2, errUnreached)
		pass(2 * time.Second) // the hold's length is doubled
		pass(2 * lease)
		at := time.Second + 3*lease
		h.began(s, time.Second, time.Second+lease, at, at+3*time.Second, at+3*time.Second+lease)
	})
}

// Attempts of the lane that took long and ended well show that a probe may.
//
//errand:shows a probe that hangs
func TestProbe_LongAttempts(t *testing.T) {
	withSide(t, nil, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 16
		s.answers(func(*storage.Leased) error {
			time.Sleep(2 * lease)
			return nil
		})
		h := hang(t, 3, s, r)
		r.enqueue("k", 1)
		r.start()
		pass(3 * lease)
		s.fails(errUnreached)
		h.from = time.Now()
		r.enqueue("k", 100)
		pass(13 * lease)
		h.began(s, time.Second, time.Second+4*lease, time.Second+12*lease)
	})
}

// The rule holds for all processes together, and what a late probe shows in one is
// nothing to a hold that another one has ended, or that waits for another probe.
//
//errand:shows a probe that hangs
func TestProbe_TwoProcesses(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		o := r.another()
		o.cfg.Rand = r.cfg.Rand
		r.store.alone = false
		r.cfg.Concurrency, o.cfg.Concurrency = 1, 2 // so that probes alternate
		h := hang(t, 3, s, r, o)
		r.enqueue("k", 100)
		r.start()
		o.start()
		pass(5*lease + 2*time.Second)
		s.mu.Lock()
		at := slices.Clone(h.at)
		s.mu.Unlock()
		if len(at) != 3 || at[1]-at[0] != lease || at[2]-at[1] != 2*lease {
			t.Fatalf("probes have begun at %v, want a lease and two leases between", at)
		}
		before := r.held()[storage.HoldUnavailable]
		h.end(s, 0, errUnreached)
		pass(time.Second)
		if after := r.held()[storage.HoldUnavailable]; !after.Until.Equal(before.Until) && after.Until.Sub(before.Until) > lease || after.For != before.For {
			t.Errorf("a late probe has moved the hold from %+v to %+v", before, after)
		}
		s.fails(nil)
		h.end(s, 2, nil)
		pass(time.Minute)
		if held := r.held(); len(held) > 0 {
			t.Errorf("held: %v", held)
		}
		h.end(s, 1, errUnreached)
		for range 100 {
			pass(10 * time.Millisecond)
			if held := r.held(); len(held) > 0 {
				t.Fatalf("held after a late failure: %v", held)
			}
		}
		pass(time.Minute)
		if n := r.count(storage.Done); n != 100 {
			t.Errorf("%d jobs are done, want 100", n)
		}
	})
}

// The late failure of a probe that hung neither renews the hold that waits for another
// job, nor begins one that has ended; a late success ends it.
//
//errand:shows a probe that hangs
func TestProbe_LateFailure(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 16
		h := hang(t, 3, s, r)
		r.enqueue("k", 100)
		r.start()
		pass(time.Second + 3*lease + time.Second)
		before := r.held()[storage.HoldUnavailable]
		h.end(s, 0, errUnreached)
		pass(time.Second)
		if after := r.held()[storage.HoldUnavailable]; after.Until != before.Until || after.For != before.For {
			t.Errorf("a late failure has moved the hold from %+v to %+v", before, after)
		}
		s.fails(nil)
		h.end(s, 1, nil)
		pass(10 * time.Millisecond)
		if held := r.held(); len(held) > 0 {
			t.Errorf("held after a late success: %v", held)
		}
		h.end(s, 2, errUnreached)
		pass(time.Minute)
		if held, n := r.held(), r.count(storage.Done); len(held) > 0 || n != 100 {
			t.Errorf("%d jobs are done, held: %v; want 100 and none", n, held)
		}
	})
}

// A number of another process that makes no sense has no wait overflow.
//
//errand:shows a probe that hangs
func TestProbe_ManyHang(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 100
		h := hang(t, 2, s, r)
		r.enqueue("k", 100)
		hold := storage.Hold{Lane: laneK, Reason: storage.HoldUnavailable, For: time.Second, Probe: true, Hanging: math.MaxInt}
		if err := r.app.Hold(t.Context(), r.now(), hold); err != nil {
			t.Fatal(err)
		}
		r.start()
		pass(20 * lease)
		h.began(s, time.Second, time.Second+16*lease)
	})
}

// A job that a brake lets through and that hangs is passed over too.
//
//errand:shows a probe that hangs
func TestProbe_Brake(t *testing.T) {
	withSide(t, &engine.PermanentError{Err: errOops}, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency, r.cfg.MaxDeaths = 16, 3
		h := hang(t, 1, s, r)
		r.enqueue("k", 100)
		r.start()
		pass(2 * time.Second)
		s.fails(nil)
		pass(time.Minute)
		h.began(s, time.Second)
		if n := r.count(storage.Done) + r.count(storage.Dead); n != 99 {
			t.Errorf("%d jobs have ended, want 99", n)
		}
	})
}

// Each probe that is passed over is told of, though heartbeats come at other times, and
// the one that does not hang ends the hold.
//
//errand:shows a probe that hangs | | the log names each probe that hangs; the last runner without one is left to other kinds and queues, and its lane is asked again when there is another runner
func TestProbe_HangsEach(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 16
		r.handle("other", work(24*time.Hour))
		h := hang(t, 3, s, r)
		r.enqueue("other", 1) // from now on there are heartbeats
		r.start()
		pass(300 * time.Millisecond)
		r.enqueue("k", 100)
		pass(500 * time.Millisecond)
		s.fails(nil)
		for i, at := range []time.Duration{1, 31, 91} {
			pass(time.Until(h.from.Add(at*time.Second + 500*time.Millisecond)))
			if n := len(r.logs.with(probeHangs)); n != i {
				t.Errorf("after %d s %d lines say that a probe hangs, want %d", at, n, i)
			}
		}
		h.began(s, time.Second, 31*time.Second, 91*time.Second)
		pass(4*lease + time.Second)
		for _, id := range h.ids {
			if n := len(r.logs.with("job=" + id.String())); n < 1 {
				t.Errorf("the log does not name %v", id)
			}
		}
		if lines, n := r.logs.with(probeHangs), r.count(storage.Done); len(lines) != 3 || n != 97 {
			t.Errorf("%d lines say that a probe hangs, and %d jobs are done; want 3 and 97", len(lines), n)
		}
	})
}

const probeTakes = `msg="errand: a probe hangs, and this worker has no runner to spare for the next job: set a Timeout, which ends such attempts"`

// The last runner without a probe that hangs is left to other kinds, if there are any.
//
//errand:shows a probe that hangs
func TestProbe_LastRunner(t *testing.T) {
	for _, test := range []struct {
		name        string
		concurrency int
		alone       bool // there is no other kind
		apart       bool // the attempts soon count no more
		want        []time.Duration
	}{
		{"1", 1, false, false, []time.Duration{0}},
		{"2", 2, false, false, []time.Duration{0}},
		{"3", 3, false, false, []time.Duration{0, 1}},
		{"1, one kind", 1, true, false, []time.Duration{0}},
		{"2, one kind", 2, true, false, []time.Duration{0, 1}},
		{"1, apart", 1, false, true, []time.Duration{0, 1, 3, 7, 15}},
	} {
		t.Run(test.name, func(t *testing.T) {
			withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
				r.cfg.Concurrency = test.concurrency
				if !test.alone {
					r.handle("other", work(time.Millisecond))
				}
				h := hang(t, 10, s, r)
				if test.apart {
					r.cfg.Handlers["k"] = engine.Handler{Run: r.cfg.Handlers["k"].Run, CountsFor: time.Second}
				}
				r.enqueue("k", 100)
				r.start()
				pass(10 * time.Second)
				for range 20 {
					if !test.alone {
						r.enqueue("other", 3)
					}
					pass(lease)
				}
				want := test.want
				for i := range want {
					want[i] = time.Second + want[i]*lease
				}
				h.began(s, want...)
				done, none := 60, 1
				if test.alone || test.concurrency == 1 && !test.apart {
					done = 0
				}
				if test.apart {
					none = 0
				}
				if n := r.count(storage.Done); n != done {
					t.Errorf("%d jobs of another kind are done, want %d", n, done)
				}
				let, takes := len(r.logs.with(probeHangs)), len(r.logs.with(probeTakes))
				if let != len(want)-1 || takes != none {
					t.Errorf("%d lines say that the next job is let through, and %d that none is; want %d and %d", let, takes, len(want)-1, none)
				}
				last := h.ids[len(h.ids)-1]
				if held := r.held()[storage.HoldUnavailable]; held.Through.Job != last {
					t.Errorf("the hold has let through %v, want %v, which runs", held.Through.Job, last)
				}
				s.fails(nil)
				h.end(s, len(want)-1, nil)
				pass(lease)
				if held, n := r.held(), r.count(storage.Ready); len(held) > 0 || n > 0 {
					t.Errorf("%d jobs are ready, held: %v; want none", n, held)
				}
			})
		})
	}
}

// A lane of which no probe is leased for want of runners is asked again when there is
// one. Its urgent jobs start meanwhile.
//
//errand:shows a probe that hangs
func TestProbe_RunnerIsBack(t *testing.T) {
	const at = 10*lease + 3*time.Second // between two heartbeats
	for name, back := range map[string]func(r *rig, s *side, h *hanging){
		"a probe ends": func(_ *rig, s *side, h *hanging) { h.end(s, 0, errUnreached) },
		"resized":      func(r *rig, _ *side, _ *hanging) { r.engine.SetConcurrency(4) },
	} {
		t.Run(name, func(t *testing.T) {
			withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
				r.cfg.Concurrency = 3
				r.handle("other", work(time.Millisecond))
				h := hang(t, 3, s, r)
				ids := r.enqueue("k", 100)
				r.start()
				pass(10 * lease)
				h.began(s, time.Second, time.Second+lease)
				before := s.n()
				i := slices.IndexFunc(ids, func(id storage.ID) bool { return r.job(id).State == storage.Ready })
				r.runNow(ids[i])
				pass(2 * time.Second)
				if n := s.n() - before; n != 1 {
					t.Errorf("%d jobs were tried, want the urgent one", n)
				}
				r.enqueue("other", 1)
				pass(time.Second)
				back(r, s, h)
				pass(time.Second)
				h.began(s, time.Second, time.Second+lease, at)
			})
		})
	}
}

// A hold that is released keeps nothing of its lane back, though a probe of it hangs.
//
//errand:shows a probe that hangs
func TestProbe_ReleasedWhileItHangs(t *testing.T) {
	withSide(t, errUnreached, func(t *testing.T, r *rig, s *side) {
		r.cfg.Concurrency = 2
		r.handle("other", work(time.Millisecond))
		hang(t, 1, s, r)
		r.enqueue("k", 100)
		r.start()
		pass(2 * lease)
		s.fails(nil)
		if _, err := r.app.Release(t.Context(), r.now(), laneK, storage.HoldUnavailable); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if n := r.count(storage.Done); n != 99 {
			t.Errorf("%d jobs are done, want 99", n)
		}
	})
}

// A process that is killed while it runs a probe leaves no lane closed: whoever recovers
// the job has the next one let through, also if it does not serve the lane.
//
//errand:shows a probe whose process is killed | | the next job of the lane is let through as soon as the job is recovered, by any process, at its start or later, however often that happens
func TestProbe_Killed(t *testing.T) {
	for name, test := range map[string]struct {
		jobs    int
		brake   bool
		after   time.Duration // from the begin of the probe until the kill
		started bool          // the next one works already
		by      string        // what recovers the job
	}{
		"at its start":              {jobs: 100, after: time.Second, by: "k"},
		"by one that runs":          {jobs: 100, after: time.Second, started: true, by: "k"},
		"by one of another lane":    {jobs: 100, after: time.Second, started: true, by: "other"},
		"after some heartbeats":     {jobs: 100, after: lease - 5*time.Second, by: "k"},
		"a brake":                   {jobs: 100, after: time.Second, brake: true, by: "k"},
		"the only job of the lane":  {jobs: 1, after: time.Second, by: "k"},
		"the only one, by one here": {jobs: 1, after: time.Second, started: true, by: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			withSide(t, nil, func(t *testing.T, r *rig, s *side) {
				h := storage.Hold{Lane: laneK, Reason: storage.HoldUnavailable, For: time.Second, Probe: true}
				if test.brake {
					h.Reason = storage.HoldBrake
				}
				r.enqueue("k", test.jobs)
				if err := r.app.Hold(t.Context(), r.now(), h); err != nil {
					t.Fatal(err)
				}
				next := r.another()
				next.cfg.MaxCrashes = 9
				next.handle(test.by, s.run)
				for i := range 3 { // one probe after the other
					p := r.another()
					p.cfg.MaxCrashes = 9
					hang(t, 1, s, p)
					p.start()
					pass(2500 * time.Millisecond)
					held := r.held()[h.Reason]
					if since := time.Since(held.Through.Since); since > 2500*time.Millisecond || held.Until.Sub(r.now()) < lease/2 {
						t.Fatalf("process %d is to run a probe: %+v", i, held)
					}
					pass(test.after)
					if test.started && i == 2 {
						next.start()
						pass(time.Second)
					}
					p.crash()
				}
				if !test.started {
					next.start()
				}
				pass(2 * time.Second)
				if test.by == "other" {
					if held := r.held()[h.Reason]; held.Until.After(r.now()) {
						t.Errorf("the next is let through at %v, want before %v", held.Until, r.now())
					}
					r.handle("k", s.run)
					r.start()
					pass(time.Second)
				}
				if n := r.count(storage.Done); n != test.jobs || len(r.held()) > 0 {
					t.Errorf("%d jobs are done, held: %v; want %d and none", n, r.held(), test.jobs)
				}
			})
		})
	}
}
