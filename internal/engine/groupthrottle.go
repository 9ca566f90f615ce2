package engine

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// GroupRate is how many attempts of a group start in a time.
type GroupRate struct {
	Starts int // above 0
	Per    time.Duration
	Burst  int // at once, above 0
}

// interval returns the time in which one attempt may start.
func (r GroupRate) interval() time.Duration { return r.Per / time.Duration(r.Starts) }

// GroupThrottle bounds the rate at which attempts of each group of a queue start, for all
// engines that share it. Other than a [Throttle] it is asked when an attempt is about to
// start, as a lease does not choose between groups.
type GroupThrottle struct {
	rate     GroupRate
	interval time.Duration // in which a bucket gets a token
	depth    time.Duration // in which an empty one gets all of its tokens but one

	mu    sync.Mutex
	seed  maphash.Seed
	began time.Time // the times below are since then
	// groups are those whose buckets are not full, by their hash. Two of the same hash would
	// share a bucket.
	groups   map[uint64]bucket
	forgetAt int           // how many there may be until full ones are forgotten
	lastBack time.Duration // the latest promise of all
}

// bucket is that of a group.
type bucket struct {
	full     time.Duration // when it is full
	promised time.Duration // the latest time that an attempt was told to come back at
}

const (
	// tooEarly is how much too early an attempt may come: due times have microseconds,
	// and the clock that they are about is another one.
	tooEarly = time.Millisecond
	// mostBuckets is how many buckets are kept. If more are not full, the fullest half is
	// forgotten: a few MiB are enough for a group that starts too soon.
	mostBuckets  = 100_000
	fewerBuckets = 1000 // too few to look for full ones
)

// NewGroupThrottle returns a GroupThrottle of full buckets.
func NewGroupThrottle(r GroupRate) *GroupThrottle {
	d := r.interval()
	return &GroupThrottle{
		rate: r, interval: d, depth: time.Duration(r.Burst-1) * d,
		seed: maphash.MakeSeed(), began: time.Now(), groups: map[uint64]bucket{}, forgetAt: fewerBuckets,
	}
}

// Rate returns the rate.
func (t *GroupThrottle) Rate() GroupRate { return t.rate }

// take takes a token of a group for an attempt that is about to start, or returns when it
// should come back: one attempt for each token, in turn, as far as can be seen. What was
// promised to may be gone meanwhile, so none waits for longer than a minute in vain.
func (t *GroupThrottle) take(group string, now time.Time) (back time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, at := maphash.String(t.seed, group), now.Sub(t.began)
	b := t.groups[key]
	if next := b.full - t.depth; next > at+tooEarly {
		b.promised = min(max(next, b.promised+t.interval), max(next, at+herd))
		t.groups[key] = b
		t.lastBack = max(t.lastBack, b.promised)
		return t.began.Add(b.promised), false
	}
	b.full = max(b.full, at) + t.interval
	if len(t.groups) >= t.forgetAt {
		t.forget(at)
	}
	t.groups[key] = b
	return time.Time{}, true
}

// refund returns the token of an attempt that has not started after all.
func (t *GroupThrottle) refund(group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := maphash.String(t.seed, group)
	if b, ok := t.groups[key]; ok {
		b.full -= t.interval
		t.groups[key] = b
	}
}

// forget forgets the buckets that are full, and the fullest if they are too many.
func (t *GroupThrottle) forget(at time.Duration) {
	drop := func(at time.Duration) {
		for key, b := range t.groups {
			if b.full <= at {
				delete(t.groups, key)
			}
		}
	}
	if drop(at); len(t.groups) > mostBuckets/2 {
		all := make([]time.Duration, 0, len(t.groups))
		for _, b := range t.groups {
			all = append(all, b.full)
		}
		slices.Sort(all)
		drop(all[len(all)-mostBuckets/2])
	}
	t.forgetAt = min(max(2*len(t.groups), fewerBuckets), mostBuckets)
}

// denies reports whether an attempt that had to go back is to come yet.
func (t *GroupThrottle) denies(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastBack > now.Sub(t.began)
}

// Promised returns in how long at most those of a group come back that were told to. It is
// negative if none was, or all have.
func (t *GroupThrottle) Promised(group string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.groups[maphash.String(t.seed, group)].promised - now.Sub(t.began)
}

// payGroup takes a token of the group of a, or returns a to the store. It reports
// whether a may start.
// a keeps its place in the group: whoever came in its stead would go back too.
func (l *loop) payGroup(a *attempt, now time.Time) bool {
	t := l.cfg.settings(a.job.Queue).Groups
	if t == nil || a.job.Urgent {
		return true
	}
	back, ok := t.take(a.job.Group, now)
	if ok {
		a.group = t
		return true
	}
	due := l.clock().Add(back.Sub(now))
	l.cfg.Logger.Debug("errand: attempt put off, its group has started as many as it may", l.attrs(a, "due", due)...)
	l.leases.release(a)
	l.giveBack(a, due)
	l.outcomes.waiting[len(l.outcomes.waiting)-1].Stays = true
	return false
}

// refundGroup returns the token of a's group for an attempt whose handler is not called.
func (a *attempt) refundGroup() {
	if a.group != nil {
		a.group.refund(a.job.Group)
		a.group = nil
	}
}
