package relay

import (
	"sync"
	"time"
)

// crowd bounds how many requests are in work. Each one beyond that is told when to come: it has the next
// place in a line in which places are as far apart as requests have ended lately. So ten thousand devices
// that come in one second come back as they can be served, and not together.
//
// A device that does not come wastes its place, and one that comes early takes another one.
type crowd struct {
	mu   sync.Mutex
	most int
	busy int
	// apart is the mean time between the ends of requests while as many were in work as may be.
	apart time.Duration
	next  time.Time // of the next place in the line
}

const (
	firstApart = 10 * time.Millisecond
	leastApart = 100 * time.Microsecond
	// smooth is the weight of what was before in the mean.
	smooth = 15
	// mostWait is how long a device is told to wait at most. After that the line is not known anyway.
	mostWait = 15 * time.Minute
)

// enter takes a place in work, until leave is called. If there is none, leave is nil, and the request has to come
// again in so many seconds.
func (c *crowd) enter(now time.Time) (leave func(now time.Time), retry int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.apart == 0 {
		c.apart = firstApart
	}
	if c.busy < c.most {
		c.busy++
		return func(end time.Time) { c.leave(end.Sub(now)) }, 0
	}
	if c.next.Before(now) {
		c.next = now
	}
	if most := now.Add(mostWait); c.next.After(most) {
		c.next = now.Add(c.apart) // round again, so that these come evenly too
	} else {
		c.next = c.next.Add(c.apart)
	}
	return nil, max(1, int((c.next.Sub(now)+time.Second-1)/time.Second))
}

// leave ends a request that took so long. By Little's law requests end at the rate of those in work
// divided by how long each takes. One that was not in a crowd, such as a slow one alone, says nothing of that. Once
// nothing is in work, the line is over.
func (c *crowd) leave(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == c.most {
		c.apart = max(leastApart, (smooth*c.apart+max(took, 0)/time.Duration(c.most))/(smooth+1))
	}
	if c.busy--; c.busy == 0 {
		c.next = time.Time{}
	}
}
