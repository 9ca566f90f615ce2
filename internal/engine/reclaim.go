package engine

import (
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
		l.outcomes.add(f)
		l.reports.recovery.add(r, &f)
		if f.Outcome == storage.OutcomeDead {
			l.reports.dead(&r.Leased, &f)
		}
	}
	if len(jobs) < reapMost {
		l.reports.recovered()
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
