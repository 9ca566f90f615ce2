package storagetest

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// samples are those of a [Memory]. They begin with the first call of History: each costs a look at
// all jobs.
type samples struct {
	on   bool
	next *storage.Sample // taken by the call under way, if it changes a number
	now  time.Time       // that this call was given
	all  []storage.Sample
}

// sample takes the numbers before a write that was given now changes any.
func (m *Memory) sample(now time.Time) {
	s := &m.samples
	at := now.Truncate(storage.SampleEach)
	if !s.on || s.next != nil || slices.ContainsFunc(s.all, func(s storage.Sample) bool { return s.At.Equal(at) }) {
		return
	}
	s.next, s.now = &storage.Sample{At: at.UTC(), Lanes: m.sampled(now)}, now
}

// keepSample keeps the sample of the call before, if that has changed a number.
func (m *Memory) keepSample() {
	s := &m.samples
	if s.next == nil || m.open != nil {
		return
	}
	if reflect.DeepEqual(s.next.Lanes, m.sampled(s.now)) {
		s.next = nil
	}
	s.keep()
}

func (s *samples) keep() {
	if s.next == nil {
		return
	}
	first := !slices.ContainsFunc(s.all, func(o storage.Sample) bool { return o.At.Truncate(time.Hour).Equal(s.next.At.Truncate(time.Hour)) })
	s.all = append(s.all, *s.next)
	slices.SortFunc(s.all, func(a, b storage.Sample) int { return a.At.Compare(b.At) })
	if first {
		s.thin(s.next.At)
	}
	s.next = nil
}

// thin deletes samples that are old when one of a time is taken.
func (s *samples) thin(at time.Time) {
	hours, past := map[time.Time]bool{}, time.Time{} // and the last one before the week
	for _, o := range s.all {
		if at.Sub(o.At) > storage.SamplesFor {
			past = o.At
		}
	}
	s.all = slices.DeleteFunc(s.all, func(o storage.Sample) bool {
		age, hour := at.Sub(o.At), o.At.Truncate(time.Hour)
		first := !hours[hour]
		hours[hour] = true
		return o.At.Before(past) || age > storage.SamplesEachFor && !first && !o.At.Equal(past)
	})
}

// sampled returns the numbers as they are.
func (m *Memory) sampled(now time.Time) []storage.SampledLane {
	var all []storage.SampledLane
	var rest storage.SampledLane
	more := false
	stats := m.stats()
	slices.SortFunc(stats, func(a, b storage.LaneStats) int { return cmp.Compare(a.Number, b.Number) })
	for i := range stats {
		l := &stats[i]
		if slices.ContainsFunc(m.holds, func(h *held) bool { return h.Includes(l.Queue, l.Kind) && (h.Probe || !h.past(now)) }) {
			l.OldestDue = time.Time{}
		}
		n := storage.SampledLane{Lane: l.Lane, Total: l.Total, Scheduled: l.Scheduled, Ready: l.Ready, Running: l.Running, Blocked: l.Blocked, Dead: l.Dead, OldestDue: l.OldestDue}
		if l.Number <= storage.SampledLanes {
			all = append(all, n)
			continue
		}
		more = true
		rest.Total = rest.Total.Plus(n.Total)
		rest.Scheduled, rest.Ready, rest.Running = rest.Scheduled+n.Scheduled, rest.Ready+n.Ready, rest.Running+n.Running
		rest.Blocked, rest.Dead = rest.Blocked+n.Blocked, rest.Dead+n.Dead
	}
	if more {
		all = append(all, rest)
	}
	return all
}

// History implements [storage.Historian].
func (in *instance) History(ctx context.Context, since time.Time) ([]storage.Sample, error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	s := &m.samples
	s.on = true
	from := 0
	for i := range s.all {
		if s.all[i].At.Before(since) {
			from = i
		}
	}
	return slices.Clone(s.all[from:]), nil
}
