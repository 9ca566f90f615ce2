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
	{"what is unavailable as a failure", "stats_unavailable", eachLane(func(m *Memory, s *storage.LaneStats) {
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

// there is how many jobs of a lane there are.
func there(s *storage.LaneStats) int64 {
	return s.Scheduled + s.Ready + s.Running + s.Blocked + s.Done + s.Cancelled + s.Expired + s.Dead
}

var totalsFaults = []fault{
	{"jobs done that are not there do not count", "totals_ended", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Total.Done = s.Done })},
	{"cancelled ones that are not there do not count", "totals_ended", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Total.Cancelled = s.Cancelled })},
	{"expired ones that are not there do not count", "totals_expired", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Total.Expired = s.Expired })},
	{"enqueued are those that there are", "totals_ended", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Total.Enqueued = there(s) })},
	{"a redrive takes a death back", "totals_redriven", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Total.Dead = s.Dead })},
	{"jobs that come from another lane count", "totals_changed", eachLane(func(_ *Memory, s *storage.LaneStats) {
		s.Total.Enqueued = max(s.Total.Enqueued, there(s))
	})},
	{"evicted jobs were never enqueued", "totals_evicted", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Total.Enqueued -= s.Evicted })},
	{"what was rolled back counts", "totals_tx", transacting(func(in *instance, b *faultyTx) {
		more := int64(0)
		b.enqueueTx = func(ctx context.Context, tx any, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			more += int64(len(jobs))
			return in.EnqueueTx(ctx, tx, now, jobs)
		}
		b.stats = func(ctx context.Context) ([]storage.LaneStats, error) {
			all, err := in.Stats(ctx)
			for i := range all {
				all[i].Total.Enqueued += more
			}
			return all, err
		}
	})},
	{"lanes without jobs are left out", "totals_number", counting(func(_ *Memory, all []storage.LaneStats) []storage.LaneStats {
		return slices.DeleteFunc(all, func(s storage.LaneStats) bool { return s.Idle() })
	})},
	{"lanes that came later have lower numbers", "totals_number", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Number = 100 - s.Number })},
}
