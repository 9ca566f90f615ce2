package storagetest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// held is a hold, in force until it is over.
type held struct {
	storage.HoldState           // Waiting and Ready are not kept
	began             time.Time // what Until counts from; zero if it is a date
	doubtful          bool
}

// past reports whether Until has come.
func (h *held) past(now time.Time) bool { return !h.Until.IsZero() && !h.Until.After(now) }

// ended reports whether the end of h has come.
func (h *held) ended(now time.Time) bool { return h.past(now) && !h.doubtful }

// over reports whether h is not in force any more.
func (h *held) over(now time.Time) bool { return h.ended(now) && !h.Probe }

// isHeld reports whether nothing of the lane of j is leased.
func (m *Memory) isHeld(j *job, now time.Time) bool {
	return slices.ContainsFunc(m.holds, func(h *held) bool { return h.Includes(j.Queue, j.Kind) && !h.ended(now) })
}

// probes returns the holds because of which the lane of j is ajar, if it is not held.
func (m *Memory) probes(j *job) (out []*held) {
	for _, h := range m.holds {
		if h.Probe && h.Includes(j.Queue, j.Kind) {
			out = append(out, h)
		}
	}
	return out
}

// letThrough holds a lane that is ajar until a lease of it ends.
func (h *held) letThrough(end time.Time) {
	h.Until = end
	h.began = end.Add(-h.For)
}

// holdEnds returns when all holds of the first lane of wants are over, or zero.
func (m *Memory) holdEnds(wants []storage.Want, now time.Time) (first time.Time) {
	for _, h := range m.holds {
		touches := slices.ContainsFunc(wants, func(w storage.Want) bool { return h.Touches(&w) })
		longer := slices.ContainsFunc(m.holds, func(o *held) bool { return o.Lane == h.Lane && !o.past(h.Until) })
		if touches && !longer && !h.past(now) && !h.Until.IsZero() && (first.IsZero() || h.Until.Before(first)) {
			first = h.Until
		}
	}
	return first
}

// takeHold takes the hold of a lane for a reason out, or returns nil.
func (m *Memory) takeHold(lane storage.Lane, reason string, now time.Time) *held {
	for i, h := range m.holds {
		if h.Lane == lane && h.Reason == reason {
			m.holds = slices.Delete(m.holds, i, i+1)
			if h.over(now) {
				return nil
			}
			return h
		}
	}
	return nil
}

// Hold implements [storage.Store].
func (in *instance) Hold(ctx context.Context, now time.Time, n storage.Hold) error {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return err
	}
	m.putHold(now, n)
	m.mu.Unlock()
	m.emit(in, now, &storage.Event{Holds: true})
	return nil
}

// putHold begins a hold.
func (m *Memory) putHold(now time.Time, n storage.Hold) {
	at := m.wrote(now)
	h := &held{HoldState: storage.HoldState{Lane: n.Lane, Reason: n.Reason, By: n.By, Detail: n.Detail, Probe: n.Probe, Since: at}}
	if was := m.takeHold(n.Lane, n.Reason, at); was != nil {
		h.Since = was.Since
	}
	if n.For > 0 {
		h.Until, h.For = ceil(now.Add(n.For)), (n.For + time.Microsecond - 1).Truncate(time.Microsecond)
		h.doubtful = n.Doubtful && n.Until.IsZero()
	}
	if !n.Until.IsZero() {
		h.Until = ceil(n.Until)
	}
	if n.Probe && !h.Until.IsZero() || h.For > 0 {
		h.began = h.Until.Add(-h.For)
	}
	m.holds = append(m.holds, h)
}

// settle decides the holds that are doubtful, before an exchange leases. It reports
// whether there was one.
func (m *Memory) settle(now time.Time, doubtful bool) (any bool) {
	for _, h := range m.holds {
		switch {
		case !h.doubtful || doubtful && !h.past(floor(now)):
			continue
		case !doubtful:
			h.Since, h.Until = floor(now), ceil(now).Add(h.For)
			h.began = h.Until.Add(-h.For)
		}
		h.doubtful, any = false, true
	}
	return any
}

// Release implements [storage.Store].
func (in *instance) Release(ctx context.Context, now time.Time, lane storage.Lane, reason string) (bool, error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return false, err
	}
	was := m.takeHold(lane, reason, m.wrote(now))
	m.mu.Unlock()
	if was == nil {
		return false, nil
	}
	m.emit(in, now, &storage.Event{Holds: true})
	return true, nil
}

// Holds implements [storage.Store].
func (in *instance) Holds(ctx context.Context, now time.Time) ([]storage.HoldState, error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var out []storage.HoldState
	for _, h := range m.holds {
		if h.over(floor(now)) {
			continue
		}
		s := h.HoldState
		for _, j := range m.jobs {
			if (j.State == storage.Ready || j.State == storage.Scheduled) && h.Includes(j.Queue, j.Kind) {
				s.Waiting++
				if j.State == storage.Ready {
					s.Ready++
				}
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b storage.HoldState) int {
		return cmp.Or(a.Compare(b.Lane), strings.Compare(a.Reason, b.Reason))
	})
	return out, nil
}

// shift counts anew what was counted from a time after now. It reports whether h has
// another end than before.
func (h *held) shift(now time.Time) bool {
	if h.Since.After(now) {
		h.Since = now
	}
	if !h.began.After(now) {
		return false
	}
	h.Until, h.began = now.Add(h.Until.Sub(h.began)), now
	return true
}
