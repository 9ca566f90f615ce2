package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// exchanging has f change each exchange, and do more after it.
func exchanging(f func(in *instance, now time.Time, x *storage.Exchange) (after func())) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			after := f(in, now, &x)
			res, err := in.Exchange(ctx, now, x)
			if after != nil {
				after()
			}
			return res, err
		}
		return h
	}
}

// moving has f change holds after each Reclaim. It is given the ends that they had before.
func moving(f func(m *Memory, now time.Time, got []storage.Reclaimed, until map[*held]time.Time)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			until := map[*held]time.Time{}
			in.m.locked(func() {
				for _, h := range in.m.holds {
					until[h] = h.Until
				}
			})
			out, err := in.Reclaim(ctx, now, mono, lease, limit)
			in.m.locked(func() { f(in.m, now, out, until) })
			return out, err
		}
		return h
	}
}

var probeFaults = []fault{
	{"a hold that lets jobs through is over at its end", "hold_probe_one", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		n.Probe = false
		return nil
	})},
	{"each exchange lets a job through", "hold_probe_one", after(func(m *Memory, now time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, h := range m.holds {
			if h.Probe && h.Until.Equal(now.Add(x.LeaseDuration)) {
				h.Until = now
			}
		}
	})},
	{"one job is let through, and never another", "hold_probe_one", after(func(m *Memory, now time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, h := range m.holds {
			if h.Probe && h.Until.Equal(now.Add(x.LeaseDuration)) {
				h.Until = time.Time{}
			}
		}
	})},
	{"calls at the same time let a job through each", "hold_probe_together", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			in.m.locked(func() {
				for _, h := range in.m.holds {
					if h.Probe && h.Until.Equal(now.Add(x.LeaseDuration)) {
						h.Until = now
					}
				}
			})
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"an offer gets what an exchange does", "hold_probe_offer", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			var ajar []*held
			in.m.locked(func() {
				in.m.holds = slices.DeleteFunc(in.m.holds, func(h *held) bool {
					if h.Probe && h.ended(now) {
						ajar = append(ajar, h)
						return true
					}
					return false
				})
			})
			out, err := in.Enqueue(ctx, now, jobs)
			in.m.locked(func() { in.m.holds = append(in.m.holds, ajar...) })
			return out, err
		}
		return h
	}},
	{"a lane is ajar whatever else holds it", "hold_probe_stacks", exchanging(func(in *instance, now time.Time, _ *storage.Exchange) func() {
		in.m.locked(func() {
			ajar := slices.ContainsFunc(in.m.holds, func(h *held) bool { return h.Probe && h.ended(now) })
			in.m.holds = slices.DeleteFunc(in.m.holds, func(h *held) bool { return ajar && !h.Probe })
		})
		return nil
	})},
	{"a hold that has let a job through stays when it is begun anew", "hold_probe_anew", func(in *instance) storage.Store {
		h := sound(in)
		h.hold = func(ctx context.Context, now time.Time, n storage.Hold) error {
			stays := false
			in.m.locked(func() {
				stays = slices.ContainsFunc(in.m.holds, func(h *held) bool { return h.Probe && h.Lane == n.Lane && h.Reason == n.Reason })
			})
			if stays {
				return nil
			}
			return in.Hold(ctx, now, n)
		}
		return h
	}},
	{"Release of a hold that lets jobs through reports none", "hold_probe_anew", func(in *instance) storage.Store {
		h := sound(in)
		h.release = func(ctx context.Context, now time.Time, lane storage.Lane, reason string) (was bool, err error) {
			ajar := false
			in.m.locked(func() {
				ajar = slices.ContainsFunc(in.m.holds, func(h *held) bool { return h.Probe && h.ended(now) })
			})
			was, err = in.Release(ctx, now, lane, reason)
			return was && !ajar, err
		}
		return h
	}},
	{"NextDue knows nothing of the job let through", "hold_probe_next_due", after(func(_ *Memory, now time.Time, x storage.Exchange, res *storage.ExchangeResult) {
		if len(res.Leased) > 0 && res.NextDue.Equal(now.Add(x.LeaseDuration)) {
			res.NextDue = time.Time{}
		}
	})},
	{"a hold begins anew when its end has come", "hold_probe_list", holding(func(m *Memory, n *storage.Hold, now time.Time) func() {
		for _, h := range m.holds {
			if h.Lane == n.Lane && h.Reason == n.Reason && h.ended(now) {
				h.Since = now
			}
		}
		return nil
	})},
	{"holds are listed without why", "hold_probe_list", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		n.Detail = ""
		return nil
	})},
	{"a hold with an Until forgets its length", "hold_probe_dated", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		if !n.Until.IsZero() {
			n.For = 0
		}
		return nil
	})},
	{"a hold is over after its For though it has an Until", "hold_probe_dated", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		if n.For > 0 {
			n.Until = time.Time{}
		}
		return nil
	})},
	{"a hold is put off for a job that it does not wait for", "hold_probe_through", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		n.Through = storage.Lease{}
		return nil
	})},
	{"an exchange puts a hold off for a job that it does not wait for", "hold_probe_through", exchanging(func(_ *instance, _ time.Time, x *storage.Exchange) func() {
		for i := range x.Hold {
			x.Hold[i].Through = storage.Lease{}
		}
		return nil
	})},
	{"a hold that is put off is none any more that has let a job through", "hold_probe_through", holding(func(m *Memory, n *storage.Hold, _ time.Time) func() {
		return func() {
			for _, h := range m.holds {
				if h.Lane == n.Lane && h.Reason == n.Reason {
					h.Through = storage.Through{}
				}
			}
		}
	})},
	{"Reclaim of a probe leaves the end of its hold", "hold_probe_reclaimed", moving(func(m *Memory, _ time.Time, _ []storage.Reclaimed, until map[*held]time.Time) {
		for h := range until {
			h.Until = until[h]
		}
	})},
	{"Reclaim of a probe ends the hold", "hold_probe_reclaimed", moving(func(m *Memory, _ time.Time, _ []storage.Reclaimed, until map[*held]time.Time) {
		m.holds = slices.DeleteFunc(m.holds, func(h *held) bool { return !h.Until.Equal(until[h]) })
	})},
	{"Reclaim of any job of the lane lets the next one through", "hold_probe_reclaimed", moving(func(m *Memory, now time.Time, got []storage.Reclaimed, _ map[*held]time.Time) {
		for _, h := range m.holds {
			if len(got) > 0 && h.Probe && h.Until.After(now) {
				h.Until = now
			}
		}
	})},
	{"Reclaim of a job that was a probe moves the end again", "hold_probe_reclaimed", moving(func(m *Memory, now time.Time, got []storage.Reclaimed, until map[*held]time.Time) {
		for _, h := range m.holds {
			if len(got) > 0 && h.Probe && h.past(now) {
				h.Until = now
			}
		}
	})},
	{"Reclaim of a probe moves the end of a hold that lets none through", "hold_probe_reclaimed", moving(func(m *Memory, now time.Time, got []storage.Reclaimed, until map[*held]time.Time) {
		for _, h := range m.holds {
			if len(got) > 0 && !h.Probe {
				h.Until = now
			}
		}
	})},
	{"Reclaim of a probe ends a hold without an end", "hold_probe_reclaimed", moving(func(m *Memory, now time.Time, got []storage.Reclaimed, until map[*held]time.Time) {
		for _, h := range m.holds {
			if len(got) > 0 && h.Until.IsZero() {
				h.Until = now
			}
		}
	})},
	{"none is let through while the one before runs", "hold_probe_through", exchanging(func(in *instance, now time.Time, _ *storage.Exchange) func() {
		in.m.locked(func() {
			for _, h := range in.m.holds {
				if h.ended(now) && in.m.through(h) != (storage.Through{}) {
					h.Until = now.Add(time.Second)
				}
			}
		})
		return nil
	})},
	{"a hold forgets how many jobs hang", "hold_probe_through", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		n.Hanging = 0
		return nil
	})},
	{"since when a job was let through is not shifted", "hold_probe_shifted", stepping(func(m *Memory, _ time.Time) func() {
		since := map[*held]time.Time{}
		for _, h := range m.holds {
			since[h] = h.Through.Since
		}
		return func() {
			for h := range since {
				h.Through.Since = since[h]
			}
		}
	})},
	{"what lets jobs through from an Until on is not shifted", "hold_probe_shifted", stepping(func(m *Memory, _ time.Time) func() {
		for _, h := range m.holds {
			if h.Probe && h.For == 0 {
				h.began = time.Time{}
			}
		}
		return nil
	})},
	{"what was let through is not shifted", "hold_probe_shifted", stepping(func(m *Memory, _ time.Time) func() {
		for _, h := range m.holds {
			if h.Probe {
				h.began = time.Time{}
			}
		}
		return nil
	})},
	{"an exchange leases before it holds", "exchange_hold", exchanging(func(in *instance, now time.Time, x *storage.Exchange) func() {
		holds := x.Hold
		x.Hold = nil
		return func() {
			in.m.locked(func() {
				for _, n := range holds {
					in.m.putHold(now, n)
				}
			})
		}
	})},
	{"an exchange releases before it holds", "exchange_hold", exchanging(func(in *instance, now time.Time, x *storage.Exchange) func() {
		in.m.locked(func() {
			for _, n := range x.Release {
				in.m.takeHold(n.Lane, n.Reason, now)
			}
		})
		x.Release = nil
		return nil
	})},
	{"an exchange with nothing but holds does nothing", "exchange_hold", exchanging(func(_ *instance, _ time.Time, x *storage.Exchange) func() {
		if len(x.Finish) == 0 && len(x.Extend) == 0 && x.Wanted() == 0 {
			x.Hold, x.Release = nil, nil
		}
		return nil
	})},
}
