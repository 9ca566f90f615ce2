package storagetest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// windowing has f change the windows of the jobs of each Enqueue, given what it was.
func windowing(f func(j *job, n storage.NewJob, now time.Time)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			in.m.locked(func() {
				for i, e := range out {
					if j := in.m.find(e.ID); j != nil && !e.Duplicate {
						f(j, jobs[i], now)
					}
				}
			})
			return out, err
		}
		return h
	}
}

// unset hides a setting from Enqueue.
func unset(name storage.Setting) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.configure = func(ctx context.Context, lane storage.Lane, s storage.Settings) error {
			s = maps.Clone(s)
			delete(s, name)
			return in.Configure(ctx, lane, s)
		}
		return h
	}
}

// sparing hides the windows of the jobs that f chooses from each exchange.
func sparing(f func(j *job, x *storage.Exchange) bool) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			was := map[*job]windows{}
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					if f(j, &x) {
						was[j] = j.windows
						j.windows.start, j.windows.finish = 0, 0
					}
				}
			})
			res, err := in.Exchange(ctx, now, x)
			in.m.locked(func() {
				for j, w := range was {
					if j.live() {
						j.windows = w
					}
				}
				for i, l := range res.Leased {
					res.Leased[i].StartBy, res.Leased[i].Deadline = in.m.jobs[l.Key].windows.ends()
				}
			})
			return res, err
		}
		return h
	}
}

// replacingWindows has f change each job that an Enqueue has changed, given what its windows
// were.
func replacingWindows(f func(j *job, was windows, now time.Time)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			was := map[*job]windows{}
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					was[j] = j.windows
				}
			})
			out, err := in.Enqueue(ctx, now, jobs)
			in.m.locked(func() {
				for _, e := range out {
					if j := in.m.find(e.ID); j != nil && e.Replaced {
						f(j, was[j], now)
					}
				}
			})
			return out, err
		}
		return h
	}
}

var expiryFaults = []fault{
	{"windows of what is put off count on", "expiry_replaced", replacingWindows(func(j *job, was windows, _ time.Time) { j.windows = was })},
	{"windows of what is replaced count anew", "expiry_replaced", replacingWindows(func(j *job, _ windows, now time.Time) {
		j.windows.begin(now, j.DueAt, true, false)
	})},
	{"windows begin with the enqueue", "expiry_set", windowing(func(j *job, _ storage.NewJob, now time.Time) { j.windows.from = now })},
	{"windows of dates are delays", "expiry_shift", windowing(func(j *job, _ storage.NewJob, _ time.Time) { j.windows.dated = false })},
	{"windows are dates", "expiry_shift", windowing(func(j *job, _ storage.NewJob, _ time.Time) { j.windows.dated = true })},
	{"doubt is left out", "expiry_in_doubt", windowing(func(j *job, _ storage.NewJob, _ time.Time) { j.windows.open = false })},
	{"OnExpire is left out", "expiry_dies", windowing(func(j *job, _ storage.NewJob, _ time.Time) { j.OnExpire = "" })},
	{"jobs of other lanes do not expire", "expiry_start", sparing(func(j *job, x *storage.Exchange) bool {
		return !slices.ContainsFunc(x.Wants, j.in)
	})},
	{"scheduled jobs do not expire", "expiry_running", sparing(func(j *job, _ *storage.Exchange) bool { return j.State == storage.Scheduled })},
	{"windows are over a moment later", "expiry_start", windowing(func(j *job, _ storage.NewJob, _ time.Time) {
		if j.windows.start > 0 {
			j.windows.start += time.Microsecond
		}
	})},
	{"windows are over a moment earlier", "expiry_start", windowing(func(j *job, _ storage.NewJob, _ time.Time) {
		if j.windows.start > 0 {
			j.windows.start -= time.Microsecond
		}
	})},
	{"a lease that was returned has begun", "expiry_begun", after(func(m *Memory, _ time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && f.Outcome == storage.OutcomeReturned {
				j.windows.start = 0
			}
		}
	})},
	{"an attempt that was interrupted has not begun", "expiry_begun", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			was := map[int64]time.Duration{}
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					was[key] = j.windows.start
				}
			})
			res, err := in.Exchange(ctx, now, x)
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					if j.live() {
						j.windows.start = was[key]
					}
				}
			})
			return res, err
		}
		return h
	}},
	{"running jobs expire", "expiry_running", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					if _, by := j.windows.ends(); j.State == storage.Running && !by.IsZero() && !now.Before(by) {
						in.m.finish(now, j, storage.Expired, x.Retention)
					}
				}
			})
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"fewer end than the bound", "expiry_step", bounding(func(b *Bounds) { b.Expired = 3 })},
	{"NextDue passes windows by", "expiry_next_due", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := in.Exchange(ctx, now, x)
			in.m.locked(func() {
				if res.NextDue.Equal(in.m.nextEnd(all)) {
					res.NextDue = time.Time{}
				}
			})
			return res, err
		}
		return h
	}},
	{"what is late is leased in doubt", "expiry_leased_late", sparing(func(j *job, x *storage.Exchange) bool { return x.Doubtful && j.windows.open })},
	{"what ends is not told", "expiry_start", after(func(_ *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		res.Expired = nil
	})},
	{"nothing follows", "expiry_follow", before(func(_ *Memory, x *storage.Exchange) { x.Follow = nil })},
	{"the unique key of what expires stays", "expiry_unique", after(func(m *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for _, e := range res.Expired {
			if j := m.find(e.ID); j != nil && j.Unique != "" {
				j.scope = storage.UniqueForever
				m.unique[j.Unique] = j.ID
			}
		}
	})},
	{"a redrive leaves windows as they were", "expiry_redriven", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			step, err := in.Redrive(ctx, now, sel, queue)
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					j.windows.finish = 0
				}
			})
			return step, err
		}
		return h
	}},
	{"windows stay when a job is put off", "expiry_put_off", func(in *instance) storage.Store {
		h := sound(in)
		h.change = func(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
			was := map[int64]windows{}
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					was[key] = j.windows
				}
			})
			step, err := in.Change(ctx, now, sel, e)
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					j.windows = was[key]
				}
			})
			return step, err
		}
		return h
	}},
	{"windows are not shifted", "expiry_shift", stepping(func(m *Memory, _ time.Time) func() {
		was := map[*job]windows{}
		for _, j := range m.jobs {
			was[j] = j.windows
		}
		return func() {
			for j, w := range was {
				j.windows = w
			}
		}
	})},
	{"what is late is handed over", "expiry_handed_over", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					j.windows.start = 0
				}
			})
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
}
