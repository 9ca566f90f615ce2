package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// unmarked has f break a Store that is no [storage.Marker].
func unmarked(f func(h *hooks)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		in.unmarked = true
		h := sound(in)
		f(h)
		return bare{h}
	}
}

// startsAfter has f change the database and the answer after each exchange of a Store that is
// no [storage.Marker], given which jobs were unproven before.
func startsAfter(f func(m *Memory, x storage.Exchange, was map[int64]bool, res *storage.ExchangeResult)) func(in *instance) storage.Store {
	return unmarked(func(h *hooks) {
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			was := map[int64]bool{}
			h.m.locked(func() {
				for key, j := range h.m.jobs {
					was[key] = j.unproven
				}
			})
			res, err := h.instance.Exchange(ctx, now, x)
			h.m.locked(func() { f(h.m, x, was, &res) })
			return res, err
		}
	})
}

// settledBy has an outcome settle whether the job may have crashed, or leave that open.
func settledBy(outcome storage.Outcome, settled bool) func(in *instance) storage.Store {
	return startsAfter(func(m *Memory, x storage.Exchange, was map[int64]bool, _ *storage.ExchangeResult) {
		for _, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && f.Outcome == outcome {
				j.unproven = !settled && was[f.Key]
			}
		}
	})
}

// startsReclaimed has f change a job before it is reclaimed from a Store that is no
// [storage.Marker], and the answer.
func startsReclaimed(before func(j *job), answer func(r *storage.Reclaimed)) func(in *instance) storage.Store {
	return unmarked(func(h *hooks) {
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			h.m.locked(func() {
				for _, j := range h.m.where(func(j *job) bool { return j.State == storage.Running && j.lease.holder != h.instance }, byKey) {
					before(j)
				}
			})
			out, err := h.instance.Reclaim(ctx, now, mono, lease, limit)
			for i := range out {
				answer(&out[i])
			}
			return out, err
		}
	})
}

func asBefore(*job)             {}
func asTold(*storage.Reclaimed) {}

var startFaults = []fault{
	{"a start is never to be written", "start_to_write", startsAfter(func(_ *Memory, _ storage.Exchange, _ map[int64]bool, res *storage.ExchangeResult) {
		for i := range res.Leased {
			res.Leased[i].WriteStart = false
		}
	})},
	{"each start is to be written", "start_to_write", startsAfter(func(_ *Memory, _ storage.Exchange, _ map[int64]bool, res *storage.ExchangeResult) {
		for i := range res.Leased {
			res.Leased[i].WriteStart = true
		}
	})},
	{"starts are to be written for ever", "start_to_write", settledBy(storage.OutcomeRetry, false)},
	{"a snooze settles nothing", "start_to_write", settledBy(storage.OutcomeSnooze, false)},
	{"a lease that was returned settles it", "start_to_write", settledBy(storage.OutcomeReturned, true)},
	{"an interruption settles it", "start_to_write", settledBy(storage.OutcomeInterrupted, true)},
	{"a crash settles it", "start_to_write", settledBy(storage.OutcomeCrashed, true)},
	{"starts of other jobs are to be written", "start_to_write", startsAfter(func(m *Memory, _ storage.Exchange, was map[int64]bool, res *storage.ExchangeResult) {
		for i := range res.Leased {
			for _, unproven := range was {
				res.Leased[i].WriteStart = res.Leased[i].WriteStart || unproven
			}
		}
	})},
	{"a reclaimed lease has WriteStart", "start_to_write", startsReclaimed(asBefore, func(r *storage.Reclaimed) { r.WriteStart = true })},
	{"no takeover of a living holder counts", "start_to_write", unmarked(func(h *hooks) {
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			lives := map[int64]bool{}
			h.m.locked(func() {
				for key, j := range h.m.jobs {
					lives[key] = j.State == storage.Running && !j.lease.holder.gone
				}
			})
			out, err := h.instance.Reclaim(ctx, now, mono, lease, limit)
			h.m.locked(func() {
				for _, r := range out {
					h.m.jobs[r.Key].unproven = !lives[r.Key]
				}
			})
			return out, err
		}
	})},
	{"a written start is forgotten", "start_crashed", startsAfter(func(m *Memory, x storage.Exchange, _ map[int64]bool, _ *storage.ExchangeResult) {
		for _, l := range x.Start {
			m.jobs[l.Key].lease.written = false
		}
	})},
	{"a start is not taken back", "start_stopped", unmarked(func(h *hooks) {
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			x.Stop = nil
			return h.instance.Exchange(ctx, now, x)
		}
	})},
	{"all starts of an instance are taken back", "start_stopped", startsAfter(func(m *Memory, x storage.Exchange, _ map[int64]bool, _ *storage.ExchangeResult) {
		for _, j := range m.jobs {
			j.lease.written = j.lease.written && len(x.Stop) == 0
		}
	})},
	{"a start is taken back of a lease that is not held", "start_stopped", startsAfter(func(m *Memory, x storage.Exchange, _ map[int64]bool, _ *storage.ExchangeResult) {
		for _, l := range x.Stop {
			if j := m.jobs[l.Key]; j != nil {
				j.lease.written = false
			}
		}
	})},
	{"starts are written after they are taken back", "start_stopped", startsAfter(func(m *Memory, x storage.Exchange, _ map[int64]bool, _ *storage.ExchangeResult) {
		for _, l := range x.Start {
			if j := m.held(l); j != nil {
				j.lease.written = true
			}
		}
	})},
	{"a Marker takes notes back", "start_stopped_marked", after(func(m *Memory, _ time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, l := range x.Stop {
			if j := m.held(l); j != nil {
				j.lease.stopping = true
			}
		}
	})},
	{"crashed without a written start", "start_crashed", startsReclaimed(func(j *job) { j.lease.written = true }, asTold)},
	{"a start is written for the next lease too", "start_crashed", unmarked(func(h *hooks) {
		written := map[int64]bool{}
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := h.instance.Exchange(ctx, now, x)
			h.m.locked(func() {
				for _, l := range x.Start {
					written[l.Key] = true
				}
				for _, l := range res.Leased {
					h.m.jobs[l.Key].lease.written = written[l.Key]
				}
			})
			return res, err
		}
	})},
	{"the time of a start is forgotten", "start_crashed", startsReclaimed(func(j *job) { j.lease.startedAt = time.Time{} }, asTold)},
	{"a start in a living process is a crash", "start_lapsed", startsReclaimed(asBefore, func(r *storage.Reclaimed) {
		if r.Fate == storage.Cut {
			r.Fate = storage.Crashed
		}
	})},
	{"that a start was written dies with a reclaimer", "start_fate_survives", startsReclaimed(func(j *job) { j.lease.fate = 0 }, asTold)},
	{"a redriven job may have crashed", "start_ended", unmarked(func(h *hooks) {
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			step, err := h.instance.Redrive(ctx, now, sel, queue)
			h.m.locked(func() {
				for _, j := range h.m.jobs {
					j.unproven = true
				}
			})
			return step, err
		}
	})},
	{"crashes count from the first on", "start_poison", startsReclaimed(func(j *job) { j.lease.written = true }, asTold)},
	{"a job that may have crashed brings others", "start_together", unmarked(func(h *hooks) {
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			var hidden []*job
			h.m.locked(func() {
				hidden = h.m.where(func(j *job) bool { return j.unproven && x.Wanted() > 0 }, byKey)
				for _, j := range hidden {
					j.unproven = false
				}
			})
			res, err := h.instance.Exchange(ctx, now, x)
			h.m.locked(func() {
				for _, j := range hidden {
					j.unproven = true
					for i := range res.Leased {
						res.Leased[i].WriteStart = res.Leased[i].WriteStart || res.Leased[i].Key == j.Key
					}
				}
			})
			return res, err
		}
	})},
	{"the start of a late holder is applied", "start_items", before(func(m *Memory, x *storage.Exchange) {
		x.Start = slices.Clone(x.Start)
		for i := range x.Start {
			current(m, &x.Start[i])
		}
	})},
	{"starts come after outcomes", "start_items", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			starts := x.Start
			x.Start = nil
			res, err := in.Exchange(ctx, now, x)
			then, _ := in.Exchange(ctx, now, storage.Exchange{LeaseDuration: x.LeaseDuration, Start: starts})
			res.Started = then.Started
			return res, err
		}
		return h
	}},
	{"a Marker takes a written start for a note", "start_marked", after(func(m *Memory, now time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, l := range x.Start {
			if j := m.held(l); j != nil {
				j.lease.started, j.lease.startedAt = true, now
			}
		}
	})},
	{"a Marker wants starts written", "start_marked", after(func(_ *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for i, l := range res.Leased {
			res.Leased[i].WriteStart = l.Previous != 0
		}
	})},
}
