package engine

import (
	"context"
	"time"
)

const (
	purgePause = 10 * time.Millisecond // at least, between steps of one purge
	purgeEvery = time.Second           // at most, else
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
