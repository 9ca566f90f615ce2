package engine

import (
	"context"
	"maps"
	"time"

	"github.com/errandq/errand/storage"
)

// digest is the last line about the numbers of jobs that an engine of the process has
// logged.
type digest struct {
	at   time.Time
	jobs map[storage.State]int64
	held int
}

// newDigest makes the chore that logs the numbers of jobs. Engines that share a store
// take turns: the one that comes first logs.
func (l *loop) newDigest(now time.Time) *chore {
	c := &chore{}
	if l.cfg.LogEvery <= 0 {
		return c
	}
	c.due = onMono(now.Add(l.cfg.LogEvery))
	c.prepare = func(now time.Time) task {
		c.due = onMono(now.Add(l.cfg.LogEvery))
		clock := l.clock()
		return func(ctx context.Context) (func(time.Time), error) {
			counts, err := l.cfg.Store.Counts(ctx)
			if err != nil {
				return nil, err
			}
			holds, err := l.cfg.Store.Holds(ctx, clock)
			return func(now time.Time) { l.logDigest(counts, holds, now) }, err
		}
	}
	return c
}

// logDigest logs a line, unless it would say what the last one has said.
func (l *loop) logDigest(counts []storage.Count, holds []storage.HoldState, now time.Time) {
	d := digest{at: now, jobs: map[storage.State]int64{}}
	for _, c := range counts {
		d.jobs[c.State] += c.N
	}
	lanes := map[storage.Lane]bool{}
	for _, h := range holds {
		lanes[h.Lane] = true
	}
	d.held = len(lanes)
	if !l.cfg.Lanes.digests(d, l.cfg.LogEvery) {
		return
	}
	l.cfg.Logger.Info("errand: jobs in the database",
		"scheduled", d.jobs[storage.Scheduled], "ready", d.jobs[storage.Ready], "running", d.jobs[storage.Running],
		"done", d.jobs[storage.Done], "cancelled", d.jobs[storage.Cancelled], "expired", d.jobs[storage.Expired], "dead", d.jobs[storage.Dead], "held", d.held)
}

// digests notes a line that is about to be logged. It returns false if it is not to be,
// since another one was logged just now, or has said the same.
func (s *Lanes) digests(d digest, every time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.digest
	if !was.at.IsZero() && (d.at.Sub(was.at) < every/2 || d.held == was.held && maps.Equal(d.jobs, was.jobs)) {
		return false
	}
	s.digest = d
	return true
}
