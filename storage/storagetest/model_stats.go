package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// last is when attempts of a lane have ended for the last time.
type last struct {
	succeeded, failed time.Time
	job               int64 // that failed
}

// noteEnd notes that an attempt has ended well, or has failed.
func (m *Memory) noteEnd(now time.Time, lane storage.Lane, j *job, well, failed bool) {
	failed = failed && m.jobs[j.Key] == j // else there is no history
	if !well && !failed {
		return
	}
	l := m.lasts[lane]
	if l == nil {
		l = &last{}
		m.lasts[lane] = l
	}
	if well {
		l.succeeded = now
	}
	if failed {
		l.failed, l.job = now, j.Key
	}
}

// total adds to the totals of the lane of j.
func (m *Memory) total(j *job, more storage.Totals) {
	lane := storage.Lane{Queue: j.Queue, Kind: j.Kind}
	m.meet(lane)
	m.totals[lane] = m.totals[lane].Plus(more)
}

// meet numbers a lane unless it has a number.
func (m *Memory) meet(lane storage.Lane) {
	if m.numbers[lane] == 0 {
		m.numbers[lane] = int64(len(m.numbers)) + 1
	}
}

// Stats implements [storage.Store].
func (in *instance) Stats(ctx context.Context) ([]storage.LaneStats, error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return m.stats(), nil
}

func (m *Memory) stats() []storage.LaneStats {
	lanes := map[storage.Lane]*storage.LaneStats{}
	of := func(lane storage.Lane) *storage.LaneStats {
		if lanes[lane] == nil {
			lanes[lane] = &storage.LaneStats{Lane: lane}
		}
		return lanes[lane]
	}
	for _, j := range m.jobs {
		s := of(storage.Lane{Queue: j.Queue, Kind: j.Kind})
		*map[storage.State]*int64{
			storage.Scheduled: &s.Scheduled, storage.Ready: &s.Ready, storage.Running: &s.Running,
			storage.Done: &s.Done, storage.Cancelled: &s.Cancelled, storage.Expired: &s.Expired, storage.Dead: &s.Dead,
			storage.Blocked: &s.Blocked,
		}[j.State]++
		if j.live() {
			s.Bytes += int64(len(j.Args) + len(j.Headers))
		}
		if j.State == storage.Running {
			s.RunningBytes += int64(len(j.Args) + len(j.Headers))
		}
		if j.State == storage.Ready && (s.OldestDue.IsZero() || j.DueAt.Before(s.OldestDue)) {
			s.OldestDue = j.DueAt
		}
	}
	for lane, n := range m.graves.evicted {
		of(lane).Evicted = n
	}
	for lane, n := range m.graves.dropped {
		of(lane).EvictedDead = n
	}
	for lane, n := range m.numbers {
		s := of(lane)
		s.Number, s.Total = n, m.totals[lane]
	}
	for lane, l := range m.lasts {
		s := of(lane)
		s.Succeeded, s.Failed = l.succeeded, l.failed
		if j := m.jobs[l.job]; j != nil {
			s.FailedJob, s.Error = j.ID, j.record().Error
		}
	}
	var out []storage.LaneStats
	for _, s := range lanes {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b storage.LaneStats) int { return a.Compare(b.Lane) })
	return out
}
