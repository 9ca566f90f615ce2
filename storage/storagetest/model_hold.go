package storagetest

import (
	"cmp"
	"context"
	"math"
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

// letThrough holds a lane that is ajar until the lease of j ends, which it was given now.
func (h *held) letThrough(j *job, now time.Time) {
	h.Until = j.lease.until
	h.began = h.Until.Add(-h.For)
	h.Through = storage.Through{Lease: storage.Lease{Key: j.Key, Token: j.lease.token}, Job: j.ID, Since: floor(now)}
}

// letNext has the holds that wait for j, whose lease is taken now, let the next job
// through. It returns their lanes.
func (m *Memory) letNext(j *job, now time.Time) (lanes []storage.Lane) {
	for _, h := range m.holds {
		if h.Probe && h.Through.Lease == (storage.Lease{Key: j.Key, Token: j.lease.token}) && !h.Until.IsZero() && !h.past(floor(now)) {
			h.Until = floor(now)
			h.began, lanes = h.Until.Add(-h.For), append(lanes, h.Lane)
		}
	}
	return lanes
}

// through returns the job that h has let through last, if it still has that lease.
func (m *Memory) through(h *held) storage.Through {
	if j := m.jobs[h.Through.Key]; j == nil || j.State != storage.Running || j.lease.token != h.Through.Token {
		return storage.Through{}
	}
	return h.Through
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
	if err := m.beginWrite(ctx, in); err != nil {
		return err
	}
	began := m.putHold(now, n)
	m.did(ctx, 0, false)
	m.mu.Unlock()
	if began {
		m.emit(in, now, &storage.Event{Holds: []storage.Lane{n.Lane}})
	}
	return nil
}

// putHold begins a hold, and reports whether it had an effect.
func (m *Memory) putHold(now time.Time, n storage.Hold) bool {
	at := m.wrote(now)
	waitsFor := func(h *held) bool {
		return h.Lane == n.Lane && h.Reason == n.Reason && !h.over(at) && h.Through.Lease == n.Through
	}
	if n.Through != (storage.Lease{}) && !slices.ContainsFunc(m.holds, waitsFor) {
		return false
	}
	h := &held{HoldState: storage.HoldState{Lane: n.Lane, Reason: n.Reason, By: n.By, Detail: n.Detail, Probe: n.Probe, Hanging: n.Hanging, Since: at}}
	if was := m.takeHold(n.Lane, n.Reason, at); was != nil {
		h.Since, h.Through = was.Since, was.Through
	}
	if n.For > 0 {
		h.Until, h.For = ceil(now.Add(n.For)), (min(n.For, math.MaxInt64-time.Microsecond) + time.Microsecond - 1).Truncate(time.Microsecond)
		h.doubtful = n.Doubtful && n.Until.IsZero()
	}
	if !n.Until.IsZero() {
		h.Until = ceil(n.Until)
	}
	if n.Probe && !h.Until.IsZero() || h.For > 0 {
		h.began = h.Until.Add(-h.For)
	}
	m.holds = append(m.holds, h)
	return true
}

// settle decides the holds that are doubtful, before an exchange leases. It returns their
// lanes.
func (m *Memory) settle(now time.Time, doubtful bool) (lanes []storage.Lane) {
	for _, h := range m.holds {
		switch {
		case !h.doubtful || doubtful && !h.past(floor(now)):
			continue
		case !doubtful:
			h.Since, h.Until = floor(now), ceil(now).Add(h.For)
			h.began = h.Until.Add(-h.For)
		}
		h.doubtful, lanes = false, append(lanes, h.Lane)
	}
	return lanes
}

// Release implements [storage.Store].
func (in *instance) Release(ctx context.Context, now time.Time, lane storage.Lane, reason string) (bool, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return false, err
	}
	was := m.takeHold(lane, reason, m.wrote(now))
	if was != nil {
		m.did(ctx, 0, false)
	}
	m.mu.Unlock()
	if was == nil {
		return false, nil
	}
	m.emit(in, now, &storage.Event{Holds: []storage.Lane{lane}})
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
		s.Through = m.through(h)
		for j := range m.live() {
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
	if h.Through.Since.After(now) {
		h.Through.Since = now
	}
	if !h.began.After(now) {
		return false
	}
	h.Until, h.began = now.Add(h.Until.Sub(h.began)), now
	return true
}
