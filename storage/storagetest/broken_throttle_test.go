package storagetest

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// setting has the model see other settings than are set.
func setting(f func(s storage.Settings)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.configure = func(ctx context.Context, lane storage.Lane, s storage.Settings) error {
			copied := storage.Settings{}
			for name, value := range s {
				copied[name] = value
			}
			f(copied)
			return in.Configure(ctx, lane, copied)
		}
		return h
	}
}

// filling has f change the buckets before each exchange.
func filling(f func(b *bucket)) func(in *instance) storage.Store {
	return before(func(m *Memory, _ *storage.Exchange) {
		for _, b := range m.throttles {
			f(b)
		}
	})
}

var throttleFaults = []fault{
	{"throttles are not looked at", "throttle_queue", setting(func(s storage.Settings) { delete(s, storage.SettingStarts) })},
	{"a burst is one more", "throttle_queue", setting(func(s storage.Settings) {
		if s[storage.SettingStartsBurst] > 0 {
			s[storage.SettingStartsBurst]++
		}
	})},
	{"tokens come too late", "throttle_queue", filling(func(b *bucket) { b.full++ })},
	{"each exchange has a full bucket", "throttle_queue", filling(func(b *bucket) { b.full = 0 })},
	{"kinds have no bucket", "throttle_kind", func(in *instance) storage.Store {
		h := sound(in)
		h.configure = func(ctx context.Context, lane storage.Lane, s storage.Settings) error {
			if lane.Kind != "" && s[storage.SettingStarts] > 0 {
				return nil
			}
			return in.Configure(ctx, lane, s)
		}
		return h
	}},
	{"a time is a minute", "throttle_defaults", setting(func(s storage.Settings) {
		if s[storage.SettingStartsPer] == 0 {
			s[storage.SettingStartsPer] = 60_000_000
		}
	})},
	{"a burst is one job", "throttle_defaults", setting(func(s storage.Settings) {
		if s[storage.SettingStartsBurst] == 0 {
			s[storage.SettingStartsBurst] = 1
		}
	})},
	{"NextDue is when the next token would come", "throttle_nothing", after(func(m *Memory, now time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for _, b := range m.throttles {
			if res.NextDue.IsZero() {
				res.NextDue = b.next(now)
			}
		}
	})},
	{"urgent jobs take tokens", "throttle_urgent", before(func(m *Memory, x *storage.Exchange) {
		for lane, set := range m.settings {
			if x.Urgent > 0 && set[storage.SettingStarts] > 0 {
				m.throttles[lane] = &bucket{full: m.mark.Add(time.Minute).UnixMicro()}
			}
		}
	})},
	{"what comes back brings no token", "throttle_returned", before(func(m *Memory, x *storage.Exchange) {
		for _, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && f.Outcome == storage.OutcomeReturned {
				for _, b := range m.buckets(j) {
					b.full += b.interval
				}
			}
		}
	})},
	{"what has failed brings a token", "throttle_returned", before(func(m *Memory, x *storage.Exchange) {
		for _, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && f.Outcome == storage.OutcomeRetry {
				m.giveBack(j)
			}
		}
	})},
	{"a clock that is set back stops it", "throttle_clock", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			var back bool
			in.m.locked(func() { back = now.Before(in.m.mark) && len(in.m.throttles) > 0 })
			if back {
				x.Wants = nil
			}
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"a clock that is set back has a burst", "throttle_clock", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			in.m.locked(func() {
				for _, b := range in.m.throttles {
					if now.Before(in.m.mark) {
						b.full = 0
					}
				}
			})
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"the bucket of a kind is not shown", "throttle_ahead", looking(func(_ *instance, l *looks) {
		l.ahead = func(_ storage.ID, _ int, a storage.Ahead) storage.Ahead {
			a.OfKind = storage.Bucket{}
			return a
		}
	})},
	{"buckets are shown as if they were full", "throttle_ahead", looking(func(_ *instance, l *looks) {
		l.ahead = func(_ storage.ID, _ int, a storage.Ahead) storage.Ahead {
			a.OfQueue.Full = time.Time{}
			return a
		}
	})},
	{"jobs are handed over without tokens", "throttle_handoff", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			in.m.locked(func() {
				for _, b := range in.m.throttles {
					b.full = 0
				}
			})
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
}
