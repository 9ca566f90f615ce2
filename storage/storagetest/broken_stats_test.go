package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// counting has f change what Stats returns.
func counting(f func(m *Memory, all []storage.LaneStats) []storage.LaneStats) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.stats = func(ctx context.Context) (out []storage.LaneStats, err error) {
			all, err := in.Stats(ctx)
			in.m.locked(func() { out = f(in.m, all) })
			return out, err
		}
		return h
	}
}

// each is counting for each lane.
func eachLane(f func(m *Memory, s *storage.LaneStats)) func(in *instance) storage.Store {
	return counting(func(m *Memory, all []storage.LaneStats) []storage.LaneStats {
		for i := range all {
			f(m, &all[i])
		}
		return all
	})
}

var statsFaults = []fault{
	{"running jobs not counted", "stats_states", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Running = 0 })},
	{"lanes in any order", "stats_states", counting(func(_ *Memory, all []storage.LaneStats) []storage.LaneStats {
		slices.Reverse(all)
		return all
	})},
	{"lanes that never had an attempt", "stats_states", counting(func(_ *Memory, all []storage.LaneStats) []storage.LaneStats {
		return append([]storage.LaneStats{{Lane: storage.Lane{Queue: "a", Kind: "a"}}}, all...)
	})},
	{"bytes of jobs that have ended", "stats_bytes", eachLane(func(m *Memory, s *storage.LaneStats) {
		s.Bytes = 0
		for _, j := range m.jobs {
			s.Bytes += int64(len(j.Args) + len(j.Headers))
		}
	})},
	{"bytes without headers", "stats_bytes", eachLane(func(m *Memory, s *storage.LaneStats) {
		for _, j := range m.jobs {
			if j.live() {
				s.Bytes -= int64(len(j.Headers))
			}
		}
	})},
	{"running bytes of all that live", "stats_bytes", eachLane(func(_ *Memory, s *storage.LaneStats) { s.RunningBytes = s.Bytes })},
	{"no running bytes", "stats_states", eachLane(func(_ *Memory, s *storage.LaneStats) { s.RunningBytes = 0 })},
	{"the oldest of the highest priority", "stats_oldest", eachLane(func(m *Memory, s *storage.LaneStats) {
		ready := m.where(func(j *job) bool { return j.State == storage.Ready && j.Queue == s.Queue }, byPriority)
		if len(ready) > 0 {
			s.OldestDue = ready[0].DueAt
		}
	})},
	{"a success that is never moved", "stats_last", func() func(in *instance) storage.Store {
		var first time.Time
		return eachLane(func(_ *Memory, s *storage.LaneStats) {
			if first.IsZero() {
				first = s.Succeeded
			}
			s.Succeeded = first
		})
	}()},
	{"a success that only moves on", "stats_last", func() func(in *instance) storage.Store {
		var latest time.Time
		return eachLane(func(_ *Memory, s *storage.LaneStats) {
			if s.Succeeded.After(latest) {
				latest = s.Succeeded
			}
			s.Succeeded = latest
		})
	}()},
	{"what is unavailable as a failure", "stats_last", eachLane(func(m *Memory, s *storage.LaneStats) {
		for _, j := range m.jobs {
			if j.unspent != 0 {
				s.FailedJob, s.Failed = j.ID, s.Failed.Add(time.Second)
			}
		}
	})},
	{"the error of another time", "stats_last", eachLane(func(m *Memory, s *storage.LaneStats) {
		if j := m.find(s.FailedJob); j != nil && len(j.History) > 0 {
			s.Error = j.History[0].Error + " once"
		}
	})},
}
