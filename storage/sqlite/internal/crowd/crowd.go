// Package crowd decides whether a writer waits for the callers that it has just answered, so
// that they share its next commit. It reads no clock.
package crowd

import "time"

const (
	// slow is the longest sync after which nobody is waited for: callers that come back while
	// others run are found without a wait.
	slow = 2 * time.Millisecond
	// share is which part of the last sync a wait takes at most, and longest how long it is at most: a disk
	// that has stood still for seconds says nothing of the next sync.
	share   = 10
	longest = 10 * time.Millisecond
	// tries is how many waits running may bring nobody. After them as many batches as pause
	// says are taken without a wait, so that callers who think before they come back lose
	// less than a hundredth of their time.
	tries = 2
	pause = 30
)

// Crowd is what a writer knows of its callers. While it syncs the jobs of some, others come. If
// it took these as soon as it has answered the first ones, there would be two crowds for good,
// each of which waits for the syncs of both. The zero value waits for nobody. A Crowd is not
// safe for concurrent use.
type Crowd struct {
	size   int       // of the last batch
	whole  int       // size of a batch of those that it has answered and those that had come by then
	until  time.Time // when the wait for them ends; zero: there is none
	waited int       // size of the next batch when the wait began; 0: it has not begun
	vain   int       // waits running that brought nobody
	rest   int       // batches that are still to be taken without a wait
}

// Several reports whether the last batch had more than one request.
func (c *Crowd) Several() bool { return c.size > 1 }

// Synced says that the last batch is on the disk since ended, by a commit that began at began,
// and is about to be answered, while queued further requests have come.
func (c *Crowd) Synced(began, ended time.Time, queued int) {
	if sync := ended.Sub(began); sync > slow && c.Several() && c.rest == 0 {
		c.whole, c.until = c.size+queued, ended.Add(min(sync/share, longest))
	}
}

// Wait returns how long to wait for one more request while the next batch has size of them. If
// it is not above zero, there is nobody to wait for.
func (c *Crowd) Wait(size int, now time.Time) time.Duration {
	if c.until.IsZero() || size >= c.whole {
		return 0
	}
	left := c.until.Sub(now)
	if left > 0 && c.waited == 0 {
		c.waited = size
	}
	return left
}

// Took says that the next batch is taken, and has size requests.
func (c *Crowd) Took(size int) {
	c.rest = max(c.rest-1, 0)
	switch {
	case c.waited == 0:
	case size > c.waited:
		c.vain = 0
	default:
		c.vain++
	}
	if c.vain == tries {
		c.vain, c.rest = 0, pause
	}
	c.size, c.waited, c.until = size, 0, time.Time{}
}
