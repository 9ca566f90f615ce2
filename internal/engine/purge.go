package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	purgePause = 10 * time.Millisecond // at least, between steps of one purge
	purgeEvery = time.Second           // at most, else
	// purgeMessages is how long after a job that is not kept the store is asked.
	purgeMessages = time.Hour
)

// newPurge makes the chore that deletes finished jobs whose time is over.
func (l *loop) newPurge(now time.Time) *chore {
	c := &chore{due: onMono(now)}
	c.prepare = func(time.Time) task {
		clock := l.clock()
		return func(ctx context.Context) (func(time.Time), error) {
			sent := time.Now()
			_, next, err := l.cfg.Store.PurgeFinished(ctx, clock)
			return func(now time.Time) { l.purged(sent, next, now) }, err
		}
	}
	l.chores.purge = c
	return c
}

// purgeAfter has a purge be due when the time of a job is over that has just ended, by a reading
// of the clock. One that is not kept may have been the last of a message, whose time is over some
// time later; only the store knows when.
func (l *loop) purgeAfter(queue, kind string, now, clock time.Time) {
	keep := l.cfg.Retention.Of(queue, kind)
	if keep <= 0 {
		if _, ok := l.cfg.Store.(storage.Topics); !ok {
			return
		}
		keep = purgeMessages
	}
	l.chores.purge.due.sooner(clock.Add(keep), now, clock)
}

// purged sets when to purge next. Between the steps of a long purge the writer
// is left to the others for as long as the step took.
func (l *loop) purged(sent, next, now time.Time) {
	if next.IsZero() {
		return
	}
	c, clock := l.chores.purge, l.clock()
	c.due.at(next, now, clock)
	if next.After(clock) {
		c.pause = now.Add(purgeEvery)
	} else {
		c.pause = now.Add(max(now.Sub(sent), purgePause))
	}
}
