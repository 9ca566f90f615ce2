package storagetest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// stepping has f surround each StepClock: the function it returns is called after it,
// unless nil.
func stepping(f func(m *Memory, now time.Time) func()) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.step = func(ctx context.Context, now time.Time, after int64) (int64, error) {
			var undo func()
			in.m.locked(func() { undo = f(in.m, now) })
			next, err := in.StepClock(ctx, now, after)
			if undo != nil {
				in.m.locked(undo)
			}
			return next, err
		}
		return h
	}
}

// eachJob is stepping for a fault in each job of a state, given as it was.
func eachJob(state storage.State, f func(j *job, was job, now time.Time)) func(in *instance) storage.Store {
	return stepping(func(m *Memory, now time.Time) func() {
		was := map[*job]job{}
		for _, j := range m.jobs {
			if j.State == state {
				was[j] = *j
			}
		}
		return func() {
			for j, was := range was {
				f(j, was, now)
			}
		}
	})
}

var clockFaults = []fault{
	{"the clock follows every exchange", "clock_kept", after(func(m *Memory, now time.Time, _ storage.Exchange, _ *storage.ExchangeResult) {
		m.mark = now
	})},
	{"the clock is not kept by exchanges", "clock_writes", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			var was time.Time
			in.m.locked(func() { was = in.m.mark })
			defer in.m.locked(func() { in.m.mark = was })
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"the clock is kept once a second", "clock_creeps", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			var was time.Time
			in.m.locked(func() { was = in.m.mark })
			out, err := in.Enqueue(ctx, now, jobs)
			if now.Sub(was) < time.Second {
				in.m.locked(func() { in.m.mark = was })
			}
			return out, err
		}
		return h
	}},
	{"extensions keep the clock once a second", "clock_writes", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			var was time.Time
			in.m.locked(func() { was = in.m.mark })
			if len(x.Extend) > 0 && now.Sub(was) < time.Second {
				defer in.m.locked(func() { in.m.mark = was })
			}
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"Close forgets the time of what changed nothing", "clock_nothing", func(in *instance) storage.Store {
		h := sound(in)
		var kept time.Time // in the file
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			if len(out) > 0 && !out[0].Duplicate || now.Sub(kept) >= time.Second {
				kept = now
			}
			return out, err
		}
		h.closing = func() error {
			if !kept.IsZero() {
				in.m.locked(func() { in.m.mark = kept })
			}
			return in.Close()
		}
		return h
	}},
	{"writes that change nothing never keep the clock", "clock_nothing", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			var was time.Time
			in.m.locked(func() { was = in.m.mark })
			out, err := in.Enqueue(ctx, now, jobs)
			if len(out) > 0 && out[0].Duplicate {
				in.m.locked(func() { in.m.mark = was })
			}
			return out, err
		}
		return h
	}},
	{"the clock is not stepped", "clock_step", stepping(func(m *Memory, _ time.Time) func() {
		was := m.mark
		return func() { m.mark = was }
	})},
	{"dates are taken for delays", "shift_dates", stepping(func(m *Memory, _ time.Time) func() {
		for _, j := range m.jobs {
			if j.since.IsZero() {
				j.since = j.CreatedAt
			}
		}
		return nil
	})},
	{"delays are taken for dates", "shift_delays", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			in.m.locked(func() {
				for _, e := range out {
					in.m.find(e.ID).since = time.Time{}
				}
			})
			return out, err
		}
		return h
	}},
	{"retries are taken for dates", "shift_outcomes", after(func(m *Memory, _ time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && f.Outcome == storage.OutcomeRetry {
				j.since = time.Time{}
			}
		}
	})},
	{"retries keep what their job was enqueued with", "shift_outcomes", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			was := map[int64]time.Time{}
			in.m.locked(func() {
				for _, f := range x.Finish {
					if j := in.m.jobs[f.Key]; j != nil {
						was[f.Key] = j.since
					}
				}
			})
			res, err := in.Exchange(ctx, now, x)
			in.m.locked(func() {
				for key, since := range was {
					if j := in.m.jobs[key]; j != nil {
						j.since = since
					}
				}
			})
			return res, err
		}
		return h
	}},
	{"delays that began before are counted anew", "shift_began_before", eachJob(storage.Scheduled, func(j *job, was job, now time.Time) {
		if !was.since.IsZero() {
			j.DueAt, j.since = now.Add(was.DueAt.Sub(was.since)), now
		}
	})},
	{"only what is due later than the wrong time is shifted", "shift_delays", stepping(func(m *Memory, _ time.Time) func() {
		for _, j := range m.jobs {
			if j.DueAt.Sub(j.since) < 90*time.Minute {
				j.since = time.Time{}
			}
		}
		return nil
	})},
	{"delays are over with the shift", "shift_delays", eachJob(storage.Scheduled, func(j *job, was job, now time.Time) {
		if was.since.After(now) {
			j.DueAt = now
		}
	})},
	{"a delay that was shifted counts from the wrong time", "shift_again", eachJob(storage.Scheduled, func(j *job, was job, _ time.Time) {
		j.since = was.since
	})},
	{"ready jobs keep their place", "shift_ready", eachJob(storage.Ready, func(j *job, was job, _ time.Time) { j.DueAt = was.DueAt })},
	{"ready jobs are all due now", "shift_ready", eachJob(storage.Ready, func(j *job, _ job, now time.Time) { j.DueAt = now })},
	{"dead jobs die later than now", "shift_dead", eachJob(storage.Dead, func(j *job, was job, _ time.Time) { j.EndedAt = was.EndedAt })},
	{"dead jobs all die now", "shift_dead", eachJob(storage.Dead, func(j *job, _ job, now time.Time) { j.EndedAt = now })},
	{"leases are prolonged by a step", "shift_running", eachJob(storage.Running, func(j *job, _ job, now time.Time) { j.lease.until = now.Add(hold) })},
	{"leases are lost by a step", "shift_running", eachJob(storage.Running, func(j *job, _ job, now time.Time) { j.putAt(now, now) })},
	{"causes are moved by the first step only", "shift_causes_steps", func(in *instance) storage.Store {
		h := sound(in)
		h.step = func(ctx context.Context, now time.Time, after int64) (int64, error) {
			was := map[*cause]time.Time{}
			in.m.locked(func() {
				for c := range in.m.dying() {
					was[c] = c.first
				}
			})
			next, err := in.StepClock(ctx, now, after)
			in.m.locked(func() {
				for c, first := range was {
					if after != 0 {
						c.first = first
					}
				}
			})
			return next, err
		}
		return h
	}},
	{"a step over all jobs at once", "shift_steps", func(in *instance) storage.Store {
		h := sound(in)
		h.step = func(ctx context.Context, now time.Time, after int64) (next int64, err error) {
			for next, err = in.StepClock(ctx, now, after); next != 0 && err == nil; {
				next, err = in.StepClock(ctx, now, next)
			}
			return next, err
		}
		return h
	}},
	{"a step from the first job on", "shift_after", func(in *instance) storage.Store {
		h := sound(in)
		h.step = func(ctx context.Context, now time.Time, _ int64) (int64, error) { return in.StepClock(ctx, now, 0) }
		return h
	}},
	{"a pass that stopped is forgotten", "shift_steps", stepping(func(m *Memory, _ time.Time) func() {
		return func() { m.shifting = false }
	})},
	{"a pass that ended goes on", "shift_steps", stepping(func(m *Memory, _ time.Time) func() {
		return func() { m.shifting = true }
	})},
	{"finished jobs end later than now", "shift_finished", eachJob(storage.Done, func(j *job, was job, _ time.Time) { j.EndedAt = was.EndedAt })},
	{"finished jobs are kept until a wrong year", "shift_finished", eachJob(storage.Done, func(j *job, was job, _ time.Time) { j.keepUntil = was.keepUntil })},
	{"all finished jobs end now", "shift_finished", eachJob(storage.Done, func(j *job, was job, now time.Time) {
		j.EndedAt, j.keepUntil = now, now.Add(was.keepUntil.Sub(was.EndedAt))
	})},
	{"messages are from later than now", "shift_messages", eachMessage(func(s *message, was message) { s.PublishedAt = was.PublishedAt })},
	{"messages are kept until a wrong year", "shift_messages", eachMessage(func(s *message, was message) { s.KeepUntil = was.KeepUntil })},
	{"a dedup ends in a wrong year", "shift_messages", eachMessage(func(s *message, was message) { s.dedupUntil = was.dedupUntil })},
	{"all messages are from now", "shift_messages", stepping(func(m *Memory, now time.Time) func() {
		return func() {
			for i := range m.topics.messages {
				m.topics.messages[i].PublishedAt = floor(now)
			}
		}
	})},
	{"entries are from later than now", "shift_entries", stepping(func(m *Memory, _ time.Time) func() {
		was := maps.Clone(m.topics.entries)
		return func() { m.topics.entries = was }
	})},
	{"an entry is created anew", "shift_entries", stepping(func(m *Memory, _ time.Time) func() {
		return func() {
			for key, e := range m.topics.entries {
				e.CreatedAt = e.UpdatedAt
				m.topics.entries[key] = e
			}
		}
	})},
	{"keys are held until a wrong year", "shift_keys", stepping(func(m *Memory, _ time.Time) func() {
		was := maps.Clone(m.windows)
		return func() { m.windows = was }
	})},
	{"the time of a key begins anew with each step", "shift_keys", stepping(func(m *Memory, now time.Time) func() {
		for key, w := range m.windows {
			if by := w.until.Sub(w.began); by > time.Hour {
				m.windows[key] = window{now.Add(time.Hour), now.Add(time.Hour + by)}
			}
		}
		return nil
	})},
	{"the time of a key begins anew though its job waits for a date", "shift_keys", stepping(func(m *Memory, now time.Time) func() {
		for key, w := range m.windows {
			m.windows[key] = w.from(now)
		}
		return nil
	})},
	{"lanes have ended jobs later than now", "shift_lasts", stepping(func(m *Memory, _ time.Time) func() {
		was := map[storage.Lane]last{}
		for lane, l := range m.lasts {
			was[lane] = *l
		}
		return func() {
			for lane, l := range m.lasts {
				*l = was[lane]
			}
		}
	})},
}

// eachMessage is stepping for a fault in each message, given as it was.
func eachMessage(f func(s *message, was message)) func(in *instance) storage.Store {
	return stepping(func(m *Memory, _ time.Time) func() {
		was := slices.Clone(m.topics.messages)
		return func() {
			for i := range m.topics.messages {
				f(&m.topics.messages[i], was[i])
			}
		}
	})
}
