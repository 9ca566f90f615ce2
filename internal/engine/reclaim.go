package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	reclaimEvery = 250 * time.Millisecond
	// reclaimMost is how many leases one call of Reclaim takes over.
	reclaimMost = 100
)

// origin is where the monotonic clock that Reclaim gets begins. All engines
// that share a store must mean the same.
var origin = time.Now()

// newReclaim makes the chore that takes over the jobs of holders that are gone.
func (l *loop) newReclaim(now time.Time) *chore {
	c := &chore{due: onMono(now)}
	first := true // there may be leases of a process that is gone
	c.idle = func() bool { return !first && l.cfg.alone() }
	c.prepare = func(asked time.Time) task {
		clock := l.clock()
		return func(ctx context.Context) (func(time.Time), error) {
			jobs, err := l.cfg.Store.Reclaim(ctx, clock, time.Since(origin), l.cfg.LeaseDuration, reclaimMost)
			return func(now time.Time) {
				first = false
				c.due = onMono(asked.Add(reclaimEvery))
				if len(jobs) == reclaimMost {
					c.due = onMono(now)
				}
				l.reclaimed(jobs)
			}, err
		}
	}
	return c
}

// reclaimed decides about jobs whose holders are gone.
func (l *loop) reclaimed(jobs []storage.Reclaimed) {
	clock := l.clock()
	for i := range jobs {
		r := &jobs[i]
		l.ready.suspects.distrust(r)
		f := l.cfg.reclaimed(r, clock)
		l.outcomes.add(&r.Leased, f)
		l.reports.recovery.add(r, &f)
		if f.Outcome == storage.OutcomeDead {
			l.reports.dead(&r.Leased, &f)
		}
	}
	if len(jobs) < reclaimMost {
		l.reports.recovered()
	}
}
