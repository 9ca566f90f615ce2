package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// recalls is an instance of which History has a fault.
type recalls struct {
	*hooks
	change func(all []storage.Sample, since time.Time) []storage.Sample
}

func (r *recalls) History(ctx context.Context, since time.Time) ([]storage.Sample, error) {
	all, err := r.hooks.History(ctx, since)
	return r.change(all, since), err
}

// historian has f change what History returns.
func historian(f func(all []storage.Sample, since time.Time) []storage.Sample) func(in *instance) storage.Store {
	return func(in *instance) storage.Store { return &recalls{sound(in), f} }
}

// eachSample is historian for each sample.
func eachSample(f func(s *storage.Sample)) func(in *instance) storage.Store {
	return historian(func(all []storage.Sample, _ time.Time) []storage.Sample {
		for i := range all {
			all[i].Lanes = slices.Clone(all[i].Lanes)
			f(&all[i])
		}
		return all
	})
}

var historyFaults = []fault{
	{"no sample before the time", "history_since", historian(func(all []storage.Sample, since time.Time) []storage.Sample {
		return slices.DeleteFunc(all, func(s storage.Sample) bool { return s.At.Before(since) })
	})},
	{"the newest sample first", "history_since", historian(func(all []storage.Sample, _ time.Time) []storage.Sample {
		slices.Reverse(all)
		return all
	})},
	{"samples with the numbers of the next one", "history_before", historian(func(all []storage.Sample, _ time.Time) []storage.Sample {
		for i := range all[:max(len(all)-1, 0)] {
			all[i].Lanes = all[i+1].Lanes
		}
		return all
	})},
	{"samples of the time at which they were taken", "history_before", eachSample(func(s *storage.Sample) { s.At = s.At.Add(time.Second) })},
	{"no numbers of states", "history_before", eachSample(func(s *storage.Sample) {
		for i := range s.Lanes {
			s.Lanes[i].Scheduled, s.Lanes[i].Running, s.Lanes[i].Blocked = 0, 0, 0
		}
	})},
	{"nothing is forgotten", "history_kept", func(in *instance) storage.Store {
		seen := map[int64]storage.Sample{}
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			in.m.locked(func() {
				for _, s := range in.m.samples.all {
					seen[s.At.UnixNano()] = s
				}
			})
			return in.Enqueue(ctx, now, jobs)
		}
		return &recalls{h, func(all []storage.Sample, since time.Time) []storage.Sample {
			for _, s := range all {
				delete(seen, s.At.UnixNano())
			}
			for _, s := range seen {
				all = append(all, s)
			}
			slices.SortFunc(all, func(a, b storage.Sample) int { return a.At.Compare(b.At) })
			return all
		}}
	}},
	{"samples of a time to come stay", "history_clock", func(in *instance) storage.Store {
		h := sound(in)
		h.step = func(ctx context.Context, now time.Time, after int64) (int64, error) {
			var were []storage.Sample
			in.m.locked(func() { were = slices.Clone(in.m.samples.all) })
			next, err := in.StepClock(ctx, now, after)
			in.m.locked(func() { in.m.samples.all = were })
			return next, err
		}
		return h
	}},
	{"the lanes beyond the first are left out", "history_lanes", eachSample(func(s *storage.Sample) {
		s.Lanes = slices.DeleteFunc(s.Lanes, func(l storage.SampledLane) bool { return l.Queue == "" })
	})},
	{"no failed attempts", "totals_failed", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Total.Failed = 0 })},
}
