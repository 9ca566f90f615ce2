package storagetest

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// pause lets other calls come between two steps of one. In a bubble, where time stands still until
// all others wait, all come that can.
func (m *Memory) pause() { time.Sleep(time.Nanosecond) }

// exchangeInSteps is a store whose exchanges read, by look, and then write: act may correct
// what the exchange has done by what was read.
func exchangeInSteps(look func(m *Memory, x *storage.Exchange) (act func(in *instance, res *storage.ExchangeResult))) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (res storage.ExchangeResult, err error) {
			var act func(in *instance, res *storage.ExchangeResult)
			in.m.locked(func() { act = look(in.m, &x) })
			in.m.pause()
			if res, err = in.Exchange(ctx, now, x); err == nil {
				in.m.locked(func() { act(in, &res) })
			}
			return res, err
		}
		return h
	}
}

// enqueueInSteps is a store whose enqueues read, by look, and then write: before and after
// may correct what is written by what was read.
func enqueueInSteps(look func(m *Memory, jobs []storage.NewJob) (before, after func(m *Memory, out []storage.Enqueued))) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
			var before, after func(m *Memory, out []storage.Enqueued)
			in.m.locked(func() { before, after = look(in.m, jobs) })
			in.m.pause()
			if before != nil {
				in.m.locked(func() { before(in.m, nil) })
			}
			if out, err = in.Enqueue(ctx, now, jobs); err == nil && after != nil {
				in.m.locked(func() { after(in.m, out) })
			}
			return out, err
		}
		return h
	}
}

// keysWhere returns the keys of jobs that match.
func (m *Memory) keysWhere(match func(j *job) bool) map[int64]bool {
	out := map[int64]bool{}
	for key, j := range m.jobs {
		if match(j) {
			out[key] = true
		}
	}
	return out
}

// concurrentFaults show only while calls overlap: a call reads, others write, and it writes
// as if they had not.
var concurrentFaults = []fault{
	{"two that overlap lease one job", "concurrent_lease", exchangeInSteps(func(m *Memory, x *storage.Exchange) func(*instance, *storage.ExchangeResult) {
		ready, last := m.keysWhere(func(j *job) bool { return j.State == storage.Ready }), m.lastToken
		return func(in *instance, res *storage.ExchangeResult) {
			mine := map[int64]bool{}
			for _, l := range res.Leased {
				mine[l.Key] = true
			}
			for key := range ready {
				if j := m.jobs[key]; j != nil && j.State == storage.Running && j.lease.token > last && !mine[key] && len(res.Leased) < x.Wanted() {
					m.lastToken++
					j.lease.token, j.token = m.lastToken, m.lastToken
					j.lease.holder = in
					res.Leased = append(res.Leased, j.leased())
				}
			}
		}
	})},
	{"two that overlap end one lease", "concurrent_finish", exchangeInSteps(func(m *Memory, x *storage.Exchange) func(*instance, *storage.ExchangeResult) {
		held := make([]bool, len(x.Finish))
		for i, f := range x.Finish {
			held[i] = m.held(f.Lease) != nil
		}
		return func(_ *instance, res *storage.ExchangeResult) {
			for i, r := range res.Finished {
				if r == storage.Lost && held[i] {
					res.Finished[i] = storage.Applied
				}
			}
		}
	})},
	{"two that overlap take one token", "concurrent_tokens", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			full := map[storage.Lane]int64{}
			in.m.locked(func() {
				for lane, b := range in.m.throttles {
					full[lane] = b.full
				}
			})
			in.m.pause()
			in.m.locked(func() {
				for lane, was := range full {
					in.m.throttles[lane].full = was
				}
			})
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"two that overlap get one key", "concurrent_key", enqueueInSteps(func(m *Memory, jobs []storage.NewJob) (before, after func(*Memory, []storage.Enqueued)) {
		var free []string
		for _, n := range jobs {
			if _, held := m.unique[n.Unique]; n.Unique != "" && !held {
				free = append(free, n.Unique)
			}
		}
		return func(m *Memory, _ []storage.Enqueued) {
			for _, key := range free {
				delete(m.unique, key)
			}
		}, nil
	})},
	{"two that overlap enter an empty group", "concurrent_group", enqueueInSteps(intoEmptyGroup)},
	{"two that overlap enter a group with one place", "concurrent_group_limit", enqueueInSteps(intoEmptyGroup)},
	{"one of two that overlap is not counted", "concurrent_group", enqueueInSteps(func(m *Memory, jobs []storage.NewJob) (before, after func(*Memory, []storage.Enqueued)) {
		lane := storage.Lane{Queue: jobs[0].Queue, Kind: jobs[0].Kind}
		was := m.totals[lane].Enqueued
		return nil, func(m *Memory, _ []storage.Enqueued) {
			t := m.totals[lane]
			if t.Enqueued = was + 1; len(jobs) == 1 {
				m.totals[lane] = t
			}
		}
	})},
	{"a cap is raised by what others insert", "concurrent_cap", enqueueInSteps(func(m *Memory, jobs []storage.NewJob) (before, after func(*Memory, []storage.Enqueued)) {
		last, lane := m.lastKey, storage.Lane{Queue: jobs[0].Queue}
		return func(m *Memory, _ []storage.Enqueued) {
			if most := m.settings[lane][storage.SettingMaxJobs]; most > 0 {
				m.settings[lane] = storage.Settings{storage.SettingMaxJobs: most + m.lastKey - last}
			}
		}, nil
	})},
}

// intoEmptyGroup has one job of a call enter each group that had room before.
func intoEmptyGroup(m *Memory, jobs []storage.NewJob) (before, after func(*Memory, []storage.Enqueued)) {
	room := map[storage.Lane]bool{}
	for _, n := range jobs {
		of := &job{Record: storage.Record{Queue: n.Queue, Group: n.Group}}
		room[storage.Lane{Queue: n.Queue, Kind: n.Group}] = n.Group != "" && m.hasPlace(of)
	}
	return nil, func(m *Memory, out []storage.Enqueued) {
		for _, e := range out {
			j := m.find(e.ID)
			if j == nil {
				continue
			}
			of := storage.Lane{Queue: j.Queue, Kind: j.Group}
			if room[of] && j.State == storage.Blocked {
				m.letInto(j)
			}
			room[of] = false
		}
	}
}
