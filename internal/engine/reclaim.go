package engine

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// reapMost is how many leases one call of Reclaim takes over.
const reapMost = 100

// recover decides about jobs whose holders are gone.
func (l *loop) recover(jobs []storage.Reclaimed, now time.Time) {
	l.reaped = true
	if len(jobs) == reapMost {
		l.reapAt = now
	}
	clock := l.clock()
	for i := range jobs {
		r := &jobs[i]
		l.distrust(r)
		f := l.cfg.recovered(r, clock)
		l.outcomes = append(l.outcomes, f)
		l.recovery.add(r, &f)
		if f.Outcome == storage.OutcomeDead {
			l.reportDead(&r.Leased, &f)
		}
	}
	if len(jobs) < reapMost {
		l.reportRecovery()
	}
}

// warnUnknown reports kinds that wait in our queues and that nobody here
// handles, each once.
func (l *loop) warnUnknown(counts []storage.Count) {
	for _, c := range counts {
		if c.State != storage.Ready || !slices.Contains(l.cfg.Queues, c.Queue) {
			continue
		}
		name := [2]string{c.Queue, c.Kind}
		if _, known := l.cfg.Handlers[c.Kind]; known || l.warned[name] {
			continue
		}
		l.warned[name] = true
		l.cfg.Logger.Warn("errand: jobs wait for a handler that this worker does not have",
			"queue", c.Queue, "kind", c.Kind, "jobs", c.N)
	}
}

const (
	purgePause = 10 * time.Millisecond // at least, between steps of one purge
	purgeEvery = time.Second           // at most, else
)

// purged sets when to purge next. Between the steps of a long purge the writer
// is left to the others for as long as the step took.
func (l *loop) purged(a answer, now time.Time) {
	if a.next.IsZero() {
		return
	}
	clock := l.clock()
	l.purge.at(a.next, now, clock)
	if a.next.After(clock) {
		l.purgeAt = now.Add(purgeEvery)
	} else {
		l.purgeAt = now.Add(max(now.Sub(a.sent), purgePause))
	}
}
