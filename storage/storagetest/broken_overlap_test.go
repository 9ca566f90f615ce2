package storagetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// overlapFaults are found by overlapping histories alone.
var overlapFaults = []fault{
	{name: "a call that is withdrawn leaves a part behind", wrap: func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			if in.m.pause(); ctx.Err() != nil {
				_, _ = in.Enqueue(context.Background(), now, jobs[:1])
			}
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
	{name: "a duplicate names a job of a transaction that may decline", wrap: func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			var e storage.Enqueued
			in.m.pause()
			in.m.locked(func() {
				if key := jobs[0].Unique; in.m.open != nil && len(jobs) == 1 && key != "" {
					e = storage.Enqueued{ID: in.m.open.copied.unique[key], Duplicate: true}
				}
			})
			if !e.ID.IsZero() {
				return []storage.Enqueued{e}, nil
			}
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
	{name: "a transaction takes back what others write meanwhile", wrap: func(in *instance) storage.Store { return overwriting{sound(in)} }},
	{name: "a member that meets the end of another stays blocked", wrap: enqueueInSteps(func(m *Memory, jobs []storage.NewJob) (before, after func(*Memory, []storage.Enqueued)) {
		full := map[int]bool{}
		for i, n := range jobs {
			full[i] = n.Group != "" && !m.hasPlace(&job{Record: storage.Record{Queue: n.Queue, Group: n.Group}})
		}
		return nil, func(m *Memory, out []storage.Enqueued) {
			for i, e := range out {
				if j := m.find(e.ID); j != nil && full[i] && j.State == storage.Ready {
					j.block()
				}
			}
		}
	})},
	{name: "the time of a key ends with its job", wrap: func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			jobs = slices.Clone(jobs)
			for i := range jobs {
				jobs[i].UniqueFor = 0
			}
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
	{name: "a key is released that another call has taken meanwhile", wrap: func(in *instance) storage.Store { return releasing{sound(in)} }},
	{name: "places are given by a limit that was changed meanwhile", wrap: func(in *instance) storage.Store { return hastyRegroup{sound(in)} }},
	{name: "two that overlap take one tick", wrap: func(in *instance) storage.Store {
		h := sound(in)
		h.fire = func(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
			revision := func() (n int64) {
				in.m.locked(func() { n = in.m.schedules[firings[0].Name].Revision })
				return n
			}
			if was := revision(); was == firings[0].Revision {
				in.m.pause()
				firings = slices.Clone(firings)
				firings[0].Revision = revision()
			}
			return in.Fire(ctx, now, firings)
		}
		return h
	}},
	{name: "two that overlap take the lease of one that is gone", wrap: func(in *instance) storage.Store {
		h := sound(in)
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			var gone map[int64]bool
			in.m.locked(func() {
				gone = in.m.keysWhere(func(j *job) bool { return j.State == storage.Running && j.lease.holder.gone })
			})
			in.m.pause()
			out, err := in.Reclaim(ctx, now, mono, lease, limit)
			in.m.locked(func() {
				for key := range gone {
					j := in.m.jobs[key]
					taken := j != nil && j.State == storage.Running && !j.lease.holder.gone && j.lease.holder != in
					if err == nil && taken && len(out) < limit {
						out = append(out, in.reclaim(now, j, lease))
					}
				}
			})
			return out, err
		}
		return h
	}},
	{name: "a job that is deleted meanwhile comes back", wrap: func(in *instance) storage.Store {
		h := sound(in)
		h.cancel = func(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
			var was *job
			in.m.locked(func() {
				if j := in.m.find(id); j != nil && j.State == storage.Ready {
					copied := *j
					was = &copied
				}
			})
			in.m.pause()
			state, err := in.Cancel(ctx, now, id, keep)
			in.m.locked(func() {
				if errors.Is(err, storage.ErrNotFound) && was != nil {
					in.m.put(was)
				}
			})
			return state, err
		}
		return h
	}},
	{name: "a lease is not extended for somebody who ends another", wrap: exchangeInSteps(func(m *Memory, _ *storage.Exchange) func(*instance, *storage.ExchangeResult) {
		last := m.lastToken
		return func(in *instance, res *storage.ExchangeResult) {
			for i := range res.Extended {
				if in.m.lastToken > last+int64(len(res.Leased)) {
					res.Extended[i] = storage.Lost
				}
			}
		}
	})},
	{name: "calls of two instances fail if they meet", wrap: func(in *instance) storage.Store {
		h := sound(in)
		h.runNow = func(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
			var before, after int64
			in.m.locked(func() { before = in.m.calls })
			in.m.pause()
			if in.m.locked(func() { after = in.m.calls }); after != before {
				return storage.Step{}, storage.ErrBusy
			}
			return in.RunNow(ctx, now, sel, which)
		}
		return h
	}},
}

// overwriting is a store whose transactions do not have others wait.
type overwriting struct{ *hooks }

func (o overwriting) Tx(ctx context.Context, fn func(tx any) error) error {
	return o.hooks.Tx(ctx, func(tx any) error {
		err := fn(tx)
		o.m.locked(func() { o.m.open = nil })
		o.m.pause()
		return err
	})
}

// releasing is a store in which the end of the time of a key may be that of its next holder.
type releasing struct{ *hooks }

func (r releasing) PurgeFinished(ctx context.Context, now time.Time) (int, time.Time, error) {
	over := map[string]bool{}
	r.m.locked(func() {
		for key := range r.m.windows {
			if _, held := r.m.holder(now, key); !held {
				over[key] = true
			}
		}
	})
	r.m.pause()
	n, next, err := r.hooks.PurgeFinished(ctx, now)
	r.m.locked(func() {
		for key := range over {
			delete(r.m.unique, key)
			delete(r.m.windows, key)
		}
	})
	return n, next, err
}

// hastyRegroup is a store in which Regroup lets in one member for each place that was free.
type hastyRegroup struct{ *hooks }

func (r hastyRegroup) Regroup(ctx context.Context, queue, after string) (string, error) {
	free := map[string]bool{}
	r.m.locked(func() {
		for _, j := range r.m.jobs {
			if j.State == storage.Blocked && j.Queue == queue && r.m.hasPlace(j) {
				free[j.Group] = true
			}
		}
	})
	r.m.pause()
	next, err := r.hooks.Regroup(ctx, queue, after)
	r.m.locked(func() {
		for _, j := range r.m.jobs {
			if err == nil && j.State == storage.Blocked && j.Queue == queue && free[j.Group] {
				j.State, j.placed, free[j.Group] = storage.Ready, true, false
			}
		}
	})
	return next, err
}

// among are the features of the histories that have to find a fault which shows too seldom among
// all of them.
var among = map[string][]string{
	"a duplicate names a job of a transaction that may decline": {"keys", "tx"},
	"a key is released that another call has taken meanwhile":   {"keys", "conflicts", "cancel", "purge"},
}

// TestBroken_overlapping runs overlapping histories on stores with faults that nothing else
// shows, until one of them finds the fault.
func TestBroken_overlapping(t *testing.T) {
	for _, fault := range slices.Concat(concurrentFaults, overlapFaults) {
		t.Run(fault.name, func(t *testing.T) {
			has := map[string]bool{}
			for _, name := range features {
				has[name] = among[fault.name] == nil || slices.Contains(among[fault.name], name)
			}
			for seed := range uint64(1000) {
				found := recordAlone(t, func(t testing.TB) { overlapOnce(t, newBroken(fault.wrap), 1+seed, has) })
				if found != "" {
					t.Logf("found by history %d: %.600s", 1+seed, found)
					return
				}
			}
			t.Error("1,000 histories did not find it")
		})
	}
}

// differing is a store that does all that calls which overlap may do: leases pass over jobs
// that others look at, caps are exceeded by what others insert, and members from a
// transaction of the application are blocked until the next exchange.
type differing struct{ *hooks }

func newDiffering(in *instance) storage.Store { return differing{sound(in)} }

// meets reports whether other calls come while it waits for some.
func (m *Memory) meets() bool {
	var before, after int64
	m.locked(func() { before = m.calls })
	m.pause()
	m.locked(func() { after = m.calls })
	return after != before
}

func (d differing) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	x.Wants = slices.Clone(x.Wants)
	if d.m.meets() {
		for i := range x.Wants {
			x.Wants[i].N /= 2
		}
	}
	d.m.locked(func() {
		for _, j := range d.m.jobs {
			if j.State == storage.Blocked && d.m.open == nil {
				d.m.regroup(j.Queue, j.Group, false)
			}
		}
	})
	return d.hooks.Exchange(ctx, now, x)
}

func (d differing) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	m, lane := d.m, storage.Lane{Queue: jobs[0].Queue}
	var before int64
	m.locked(func() { before = m.lastKey })
	m.pause()
	if err := m.beginWrite(ctx, d.instance); err != nil {
		return nil, err
	}
	was := m.settings[lane]
	if most := was[storage.SettingMaxJobs]; most > 0 && was[storage.SettingWhenFull] == 0 {
		m.settings[lane] = storage.Settings{storage.SettingMaxJobs: most + min(m.lastKey-before, 5)}
	}
	out, a, err := m.enqueueAll(now, jobs)
	if was != nil {
		m.settings[lane] = was
	}
	if err != nil {
		m.mu.Unlock()
		var full *storage.QueueFullError
		if errors.As(err, &full) && was != nil {
			full.MaxJobs = was[storage.SettingMaxJobs]
		}
		return nil, err
	}
	d.end(a)
	return out, nil
}

func (d differing) Tx(ctx context.Context, fn func(tx any) error) error {
	var before int64
	err := d.hooks.Tx(ctx, func(tx any) error {
		d.m.locked(func() { before = d.m.lastKey })
		return fn(tx)
	})
	d.m.locked(func() {
		for key, j := range d.m.jobs {
			if key > before && j.Group != "" && j.State == storage.Ready && d.m.open == nil {
				j.block()
			}
		}
	})
	return err
}

// TestConcurrent_mayDiffer shows that neither the cases nor overlapping histories ask for
// more than the contract.
func TestConcurrent_mayDiffer(t *testing.T) {
	for _, c := range concurrentCases {
		if got := record(t, func(t testing.TB) { c.check(t, newBroken(newDiffering)) }); got != "" {
			t.Errorf("%s %s", c.name, got)
		}
	}
	RunOverlapping(t, func(*testing.T) DB { return newBroken(newDiffering) }, 50)
}
