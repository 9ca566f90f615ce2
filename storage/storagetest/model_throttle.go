package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// buckets returns the buckets of the queue and the kind of j that have one.
func (m *Memory) buckets(j *job) (all []*bucket) {
	for _, lane := range []storage.Lane{{Queue: j.Queue}, {Kind: j.Kind}} {
		n := m.settings[lane][storage.SettingStarts]
		if n <= 0 {
			continue
		}
		b := m.throttles[lane]
		if b == nil {
			b = &bucket{}
			m.throttles[lane] = b
		}
		b.interval, b.burst = time.Second.Microseconds()/n, m.settings[lane][storage.SettingStartsBurst]
		if per := m.settings[lane][storage.SettingStartsPer]; per > 0 {
			b.interval = per / n
		}
		b.interval = max(b.interval, 1)
		if b.burst <= 0 {
			b.burst = max(2, 100_000/b.interval)
		}
		all = append(all, b)
	}
	return all
}

// bucket is the tokens of a queue or kind. Times are microseconds since 1970.
type bucket struct {
	interval, burst int64
	full            int64 // when it is, if nobody takes a token
	picked          int64 // by the exchange under way
}

// settled returns when it is full, given a time that may be earlier than others before.
func (b *bucket) settled(at int64) int64 {
	if b.full > at+b.burst*b.interval {
		return at + (b.burst-1)*b.interval
	}
	return max(b.full, at)
}

// tokens returns how many whole tokens are left.
func (b *bucket) tokens(now time.Time) (n int64) {
	at := now.UnixMicro()
	for full := b.settled(at) + b.interval; n < b.burst && full <= at+b.burst*b.interval; full += b.interval {
		n++
	}
	return n - b.picked
}

// next returns when the next token comes.
func (b *bucket) next(now time.Time) time.Time {
	at := now.UnixMicro()
	return time.UnixMicro(max(at, b.settled(at)-(b.burst-1)*b.interval))
}

// hasTokens reports whether j may be leased by its buckets.
func (m *Memory) hasTokens(j *job, now time.Time) bool {
	for _, b := range m.buckets(j) {
		if b.tokens(now) < 1 {
			return false
		}
	}
	return true
}

// forgetPicks ends an exchange.
func (m *Memory) forgetPicks() {
	for _, b := range m.throttles {
		b.picked = 0
	}
}

// pick counts the tokens of j in the exchange under way.
func (m *Memory) pick(j *job) {
	for _, b := range m.buckets(j) {
		b.picked++
	}
}

// pay takes the tokens of j, which is leased.
func (m *Memory) pay(j *job, now time.Time) {
	for _, b := range m.buckets(j) {
		b.full = b.settled(now.UnixMicro()) + b.interval
		b.picked--
	}
}

// giveBack puts the tokens of j back, which has not run.
func (m *Memory) giveBack(j *job) {
	for _, b := range m.buckets(j) {
		b.full -= b.interval
	}
}

// nextToken returns when the first job can be leased that was passed over, if it is for
// want of tokens.
func (m *Memory) nextToken(now time.Time, wanted func(*job) bool) (first time.Time) {
	for _, j := range m.liveWhere(func(j *job) bool { return j.State == storage.Ready && wanted(j) && !m.hasTokens(j, now) }, byKey) {
		last := now
		for _, b := range m.buckets(j) {
			if at := b.next(now); at.After(last) {
				last = at
			}
		}
		if first.IsZero() || last.Before(first) {
			first = last
		}
	}
	return first
}

// picks returns what is picked of each bucket.
func (m *Memory) picks() map[*bucket]int64 {
	picks := map[*bucket]int64{}
	for _, b := range m.throttles {
		picks[b] = b.picked
	}
	return picks
}

// pickAgain undoes forgetPicks.
func (m *Memory) pickAgain(picks map[*bucket]int64) {
	for b, n := range picks {
		b.picked = n
	}
}
