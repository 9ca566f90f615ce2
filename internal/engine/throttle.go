package engine

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Throttle bounds the rate at which attempts start, as an average over about a
// tenth of a second, for all engines that share it. Attempts take their tokens
// when they are leased, so that no job is leased that could not start.
type Throttle struct {
	rate  int // a second
	burst int

	mu      sync.Mutex
	limiter *rate.Limiter
	spare   float64 // tokens that were claimed and refunded
	last    time.Time
}

// NewThrottle returns a Throttle of so many attempts a second.
func NewThrottle(perSecond int) *Throttle {
	burst := max(1, perSecond/10)
	return &Throttle{rate: perSecond, burst: burst, limiter: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// Rate returns the attempts a second.
func (t *Throttle) Rate() int { return t.rate }

// claim grants up to want attempts. Those that do not start have to be refunded.
// It grants none rather than a few of many, so that attempts come in batches.
func (t *Throttle) claim(now time.Time, want int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	now = t.forward(now)
	tokens := t.available(now)
	if tokens+rounding < float64(t.batch(want)) {
		return 0
	}
	n := min(want, int(tokens+rounding))
	used := min(n, int(t.spare))
	t.spare -= float64(used)
	t.limiter.ReserveN(now, n-used) // may borrow the fraction that spare has
	return n
}

// next returns when claim will grant some of want, if no other engine claims
// before.
func (t *Throttle) next(now time.Time, want int) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	missing := float64(t.batch(want)) - t.available(t.forward(now))
	if missing <= rounding {
		return now
	}
	return now.Add(time.Duration(missing/float64(t.rate)*float64(time.Second)) + 1)
}

func (t *Throttle) refund(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spare += float64(n)
}

// rounding is less than any part of a token that matters.
const rounding = 1e-6

// batch returns how many of want are worth an exchange: half a burst, so that
// no token is wasted in the time until they are leased.
func (t *Throttle) batch(want int) int { return min(want, (t.burst+1)/2) }

// available returns how many tokens there are; at most a burst is kept.
func (t *Throttle) available(now time.Time) float64 {
	tokens := t.limiter.TokensAt(now)
	t.spare = min(t.spare, float64(t.burst)-tokens)
	return tokens + t.spare
}

// forward returns now, or the last time if that is later: engines may come with
// times in another order. The limiter would count the time between twice.
func (t *Throttle) forward(now time.Time) time.Time {
	t.last = latest(now, t.last)
	return t.last
}
