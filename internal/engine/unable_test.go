package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// partly lacks something: an item that needs it is unable, and no other.
type partly struct {
	storage.Store
	lacks []storage.Feature
	asked atomic.Int32 // exchanges that were to lease
	odd   atomic.Int32 // items that were unable
}

func (p *partly) Lacks() []storage.Feature { return p.lacks }

func (p *partly) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if x.Wanted() > 0 {
		p.asked.Add(1)
	}
	if len(x.Hold)+len(x.Release) > 0 {
		return storage.ExchangeResult{}, storage.Lacking(p.lacks, []storage.Feature{"Hold"})
	}
	x.Finish = slices.Clone(x.Finish)
	var unable []int
	for i := range x.Finish {
		if f := &x.Finish[i]; storage.Lacking(p.lacks, f.Needs()) != nil {
			unable, *f = append(unable, i), storage.Finish{Lease: f.Lease} // which is refused
		}
	}
	res, err := p.Store.Exchange(ctx, now, x)
	for _, i := range unable {
		p.odd.Add(1)
		if err == nil {
			res.Finished[i] = storage.Unable
		}
	}
	return res, err
}

func (r *rig) lacking(all ...storage.Feature) *partly {
	p := &partly{Store: r.store, lacks: all}
	r.cfg.Store = p
	return p
}

// On a store without OutcomeUnavailable and holds, jobs that reach nobody lose nothing and wait
// ever longer, and the worker goes on with the others.
func TestUnable_Unavailable(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.lacking("Hold", "RunNow", storage.FeatureUnavailable)
		var tries, others atomic.Int32
		var back atomic.Bool
		r.handle("k", func(context.Context, *storage.Leased) error {
			if tries.Add(1); back.Load() {
				return nil
			}
			return errUnreached
		})
		r.handle("fine", func(context.Context, *storage.Leased) error { others.Add(1); return nil })
		ids := append(r.enqueue("k", 10), r.enqueue("fine", 10)...)
		r.start()
		pass(time.Hour)
		if n := others.Load(); n != 10 {
			t.Errorf("%d of 10 other jobs were done", n)
		}
		if n := tries.Load(); n < 100 || n > 250 { // 10 jobs, each 5 minutes in the end
			t.Errorf("%d attempts in an hour", n)
		}
		for _, id := range ids[:10] {
			rec := r.job(id)
			if rec.State != storage.Scheduled || rec.Retry != 0 || rec.Snoozes != 0 || rec.Crashes != 0 || len(rec.History) > 0 {
				t.Errorf("job that reached nobody: %s %+v %v", rec.State, rec.Counters, rec.History)
			}
		}
		if all := r.logs.with("the store lacks what an outcome needs"); len(all) == 0 || len(all) > 100 || !strings.Contains(all[0], "the store lacks: OutcomeUnavailable") {
			t.Errorf("%d lines of the log say what the store lacks: %.1000s", len(all), all)
		}
		if all := r.logs.with("jobs are held"); len(all) > 0 {
			t.Errorf("the log says that jobs are held: %s", all)
		}
		if tries.Load() != p.odd.Load() {
			t.Errorf("%d attempts, and %d outcomes that the store is unable to write", tries.Load(), p.odd.Load())
		}
		back.Store(true)
		pass(6 * time.Minute)
		for _, id := range ids {
			if rec := r.job(id); rec.State != storage.Done {
				t.Errorf("a job is %s at the end", rec.State)
			}
		}
	})
}

// A handler that has its lane held puts off its own job, on a store without holds.
func TestUnable_HoldLane(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lacking("Hold", storage.FeatureUnavailable)
		var tries atomic.Int32
		r.handle("k", func(context.Context, *storage.Leased) error {
			if tries.Add(1) == 1 {
				return &engine.HoldLaneError{For: 10 * time.Minute, Err: errors.New("limit reached")}
			}
			return nil
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(9 * time.Minute)
		if n := tries.Load(); n != 1 {
			t.Errorf("%d attempts in 9 minutes", n)
		}
		pass(2 * time.Minute)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
	})
}

// A result that the store does not keep is refused when the handler says it, and what a handler
// says of its progress is left out.
func TestUnable_Kept(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.lacking(storage.FeatureKept, storage.FeatureTags)
		var result, then error
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
			a := engine.AttemptOf(ctx)
			a.Progress(1, 2, "half")
			result = a.SetResult([]byte("1"))
			then = a.Then(storage.NewJob{Queue: "q", Kind: "k", Tags: []string{"t"}}, func(bool) {}, func(int, int) error { return nil })
			return nil
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		pass(time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		if !errors.Is(result, storage.ErrLacking) || !errors.Is(then, storage.ErrLacking) || p.odd.Load() > 0 {
			t.Errorf("SetResult returned %v, Then %v; %d outcomes were unable", result, then, p.odd.Load())
		}
	})
}

// Run says what the store lacks before it leases anything.
func TestUnable_Run(t *testing.T) {
	batch := &engine.Batch{Max: 10, ByGroup: true, Run: func(context.Context, []engine.Item) {}}
	open := &latch{}
	for name, c := range map[string]struct {
		lacks []storage.Feature
		set   func(c *engine.Config)
	}{
		"together": {[]storage.Feature{storage.FeatureTogether}, func(c *engine.Config) { c.Handlers["k"] = engine.Handler{Batch: batch} }},
		"a hook": {[]storage.Feature{"Hold"}, func(c *engine.Config) {
			c.Handlers["k"] = engine.Handler{OnUnauthorized: func(context.Context) error { return nil }}
		}},
		"a brake": {[]storage.Feature{"Hold"}, func(c *engine.Config) { c.Settings = map[string]engine.QueueSettings{"q": {MaxDeaths: 3}} }},
		"a gate of a kind": {[]storage.Feature{"RunNow"}, func(c *engine.Config) {
			c.Handlers["k"] = engine.Handler{Gate: open}
		}},
		"a gate of a queue": {[]storage.Feature{"RunNow"}, func(c *engine.Config) { c.Settings = map[string]engine.QueueSettings{"q": {Gate: open}} }},
		"a setting": {[]storage.Feature{"max_jobs"}, func(c *engine.Config) {
			c.Lasting = []storage.LaneSettings{{Lane: storage.Lane{Queue: "q"}, Settings: storage.Settings{storage.SettingMaxJobs: 3, storage.SettingGroupLimit: 2}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handle("k", func(context.Context, *storage.Leased) error { return nil })
				r.enqueue("k", 1)
				p := r.lacking(c.lacks...)
				c.set(&r.cfg)
				e := engine.New(r.cfg)
				err := e.Run(t.Context())
				if !errors.Is(err, storage.ErrLacking) || !strings.Contains(err.Error(), string(c.lacks[0])) || p.asked.Load() > 0 {
					t.Errorf("Run returned %v after %d exchanges", err, p.asked.Load())
				}
				if again := e.Shutdown(t.Context()); again == nil || again.Error() != err.Error() {
					t.Errorf("Shutdown returned %v, want %v", again, err)
				}
			})
		})
	}
}
