package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// holding has f change each hold, and which the Store has then.
func holding(f func(m *Memory, n *storage.Hold, now time.Time) (after func())) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.hold = func(ctx context.Context, now time.Time, n storage.Hold) error {
			var after func()
			in.m.locked(func() { after = f(in.m, &n, now) })
			err := in.Hold(ctx, now, n)
			if after != nil {
				in.m.locked(after)
			}
			return err
		}
		return h
	}
}

var holdFaults = []fault{
	{"a kind in all queues is held nowhere", "hold_lanes", before(func(m *Memory, _ *storage.Exchange) {
		m.holds = slices.DeleteFunc(m.holds, func(h *held) bool { return h.Queue == "" })
	})},
	{"one lane holds its queue", "hold_lanes", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		if n.Queue != "" {
			n.Kind = ""
		}
		return nil
	})},
	{"one hold of a lane at a time", "hold_stacks", holding(func(m *Memory, n *storage.Hold, _ time.Time) func() {
		m.holds = slices.DeleteFunc(m.holds, func(h *held) bool { return h.Lane == n.Lane })
		return nil
	})},
	{"any reason releases a lane", "hold_lanes", func(in *instance) storage.Store {
		h := sound(in)
		h.release = func(ctx context.Context, now time.Time, lane storage.Lane, reason string) (bool, error) {
			in.m.locked(func() {
				in.m.holds = slices.DeleteFunc(in.m.holds, func(h *held) bool { return h.Lane == lane && h.Reason != reason })
			})
			return in.Release(ctx, now, lane, reason)
		}
		return h
	}},
	{"Release of none reports one", "hold_released", func(in *instance) storage.Store {
		h := sound(in)
		h.release = func(ctx context.Context, now time.Time, lane storage.Lane, reason string) (bool, error) {
			_, err := in.Release(ctx, now, lane, reason)
			return err == nil, err
		}
		return h
	}},
	{"a hold is over after its end", "hold_until", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		if !n.Until.IsZero() {
			n.Until = n.Until.Add(time.Microsecond)
		}
		return nil
	})},
	{"a hold that is over is forgotten", "hold_set_back", after(func(m *Memory, now time.Time, _ storage.Exchange, _ *storage.ExchangeResult) {
		m.holds = slices.DeleteFunc(m.holds, func(h *held) bool { return h.over(now) })
	})},
	{"a doubtful hold is over at its end", "hold_doubtful", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		n.Doubtful = false
		return nil
	})},
	{"a doubtful hold never ends by itself", "hold_doubtful", before(func(_ *Memory, x *storage.Exchange) {
		x.Doubtful = false
	})},
	{"a doubtful hold does not begin anew", "hold_doubtful", before(func(_ *Memory, x *storage.Exchange) {
		x.Doubtful = true
	})},
	{"a hold has no end", "hold_for", holding(func(_ *Memory, n *storage.Hold, _ time.Time) func() {
		n.For = 0
		return nil
	})},
	{"a hold that is renewed begins anew", "hold_renewed", holding(func(m *Memory, n *storage.Hold, now time.Time) func() {
		m.takeHold(n.Lane, n.Reason, now)
		return nil
	})},
	{"a hold that is renewed stays as it is", "hold_renewed", holding(func(m *Memory, n *storage.Hold, _ time.Time) func() {
		for _, h := range m.holds {
			if was := h.HoldState; h.Lane == n.Lane && h.Reason == n.Reason {
				return func() { m.holds[len(m.holds)-1].HoldState = was }
			}
		}
		return nil
	})},
	{"holds that are over are listed", "hold_list", func(in *instance) storage.Store {
		h := sound(in)
		h.holds = func(ctx context.Context, now time.Time) ([]storage.HoldState, error) {
			return in.Holds(ctx, now.Add(-time.Hour))
		}
		return h
	}},
	{"NextDue knows no holds", "hold_next_due", after(func(m *Memory, now time.Time, x storage.Exchange, res *storage.ExchangeResult) {
		if end := m.holdEnds(x.Wants, now); !end.IsZero() && end.Equal(res.NextDue) {
			res.NextDue = time.Time{}
		}
	})},
	{"NextDue is the end of any hold", "hold_next_due", after(func(m *Memory, now time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for _, h := range m.holds {
			if !h.over(now) && !h.Until.IsZero() && (res.NextDue.IsZero() || h.Until.Before(res.NextDue)) {
				res.NextDue = h.Until
			}
		}
	})},
	{"the ends of holds are not shifted", "hold_shifted", stepping(func(m *Memory, _ time.Time) func() {
		for _, h := range m.holds {
			h.began = time.Time{}
		}
		return nil
	})},
	{"dates of holds are shifted", "hold_shifted", stepping(func(m *Memory, _ time.Time) func() {
		for _, h := range m.holds {
			h.began = h.Since
		}
		return nil
	})},
	{"a hold is told of after it returned", "hold_told_first", func(in *instance) storage.Store {
		h := sound(in)
		h.notify = func(f func(storage.Event)) func() {
			return in.Notify(func(e storage.Event) {
				e.Holds = nil
				f(e)
			})
		}
		return h
	}},
}
