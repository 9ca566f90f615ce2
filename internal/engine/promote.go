package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// promoteEvery is how long the chore waits after a call, and after news of a job that may
	// have to end soon: less than the second in which its work is to be done. It is called as
	// often if the store tells no news.
	promoteEvery = 800 * time.Millisecond
	promotePause = 10 * time.Millisecond // at least, between steps
)

// promote is the chore that makes due, and ends late, the jobs of lanes that no exchange of
// this worker leases from.
type promote struct{ *chore }

// newPromote returns the chore, or nothing if exchanges do its work for all lanes.
func (l *loop) newPromote(now time.Time) []*chore {
	s, ok := l.cfg.Store.(storage.Promoter)
	if !ok || l.cfg.Bulk {
		return nil
	}
	_, hears := l.cfg.Store.(storage.Notifier)
	c := &chore{due: onMono(now)}
	c.prepare = func(asked time.Time) task {
		clock := l.clock()
		p := storage.Promotion{Retention: l.cfg.Retention, Doubtful: l.watch.doubtful, Follow: l.cfg.followsExpired(clock)}
		return func(ctx context.Context) (func(time.Time), error) {
			res, err := s.Promote(ctx, clock, p)
			return func(now time.Time) {
				c.pause = asked.Add(promoteEvery)
				if !hears {
					c.due = onMono(c.pause)
				}
				if !res.Next.IsZero() {
					if !res.Next.After(clock) { // there is more: others write as long as that took
						c.pause = now.Add(max(now.Sub(asked), promotePause))
					}
					c.due.sooner(res.Next, now, l.clock())
				}
				l.expired(res.Expired, now)
			}, err
		}
	}
	l.chores.promote = promote{c}
	return []*chore{c}
}

// sooner has the chore be done at a time at the latest: a job is due then.
func (p promote) sooner(at, now, clock time.Time) {
	if p.chore != nil {
		p.due.sooner(at, now, clock)
	}
}

// news has the chore be done soon: a job may have come that is to end before anything else.
func (p promote) news(now, clock time.Time) { p.sooner(clock.Add(promoteEvery), now, clock) }
