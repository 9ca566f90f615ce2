package storage

import "time"

// Starts is how many jobs of a queue, or of a kind in all queues, are leased in a time by
// all instances together. A queue or kind with [SettingStarts] has a bucket of tokens,
// which holds Burst of them and is full at first. One token comes in each Interval, by the
// times that calls are given.
//
// An [Exchange], and an [Offer], leases a job only while there is a token in each of the
// buckets of its queue and its kind, and takes these. Others are passed over, and cost no
// more than that. An urgent job needs no token and takes none. A job that comes back with
// [OutcomeReturned] brings a token back into each, as far as there is room.
//
// If the clock is set back so far that a bucket would need more than Burst intervals to
// be full, it has one token then. As soon as that is taken the bucket is empty, and fills
// from there.
type Starts struct {
	Interval time.Duration
	Burst    int64
}

// The settings of [Starts], of a queue or of a kind in all queues. SettingStarts is how
// many jobs are leased in SettingStartsPer, which is in microseconds, and a second if it
// is not set. SettingStartsBurst is the Burst; if it is not set, as many as come in a
// tenth of a second, and at least 2, so that no token is lost while a worker is on its
// way. If a ready job lacks a token, and a Want that it matches has room in the end,
// NextDue is no later than when the bucket has one.
const (
	SettingStarts      Setting = "starts"
	SettingStartsPer   Setting = "starts_per"
	SettingStartsBurst Setting = "starts_burst"
)

// StartsOf returns what settings of a queue or kind say. It reports false if they set none.
func StartsOf(s Settings) (Starts, bool) {
	n := s[SettingStarts]
	if n <= 0 {
		return Starts{}, false
	}
	per := s[SettingStartsPer]
	if per <= 0 {
		per = time.Second.Microseconds()
	}
	r := Starts{Interval: time.Duration(max(per/n, 1)) * time.Microsecond, Burst: s[SettingStartsBurst]}
	if r.Burst <= 0 {
		r.Burst = max(2, int64(100*time.Millisecond/r.Interval))
	}
	return r, true
}

// Bucket is the tokens of a queue or a kind.
type Bucket struct {
	Starts
	// Full is when the bucket is full if no token is taken; zero: it is full.
	Full time.Time
}

// at returns Full as it counts at now.
func (b *Bucket) at(now time.Time) time.Time {
	full := b.Full
	if full.After(now.Add(time.Duration(b.Burst) * b.Interval)) { // the clock was set back
		full = now.Add(time.Duration(b.Burst-1) * b.Interval)
	}
	if full.Before(now) {
		full = now
	}
	return full
}

// Tokens returns how many tokens there are.
func (b *Bucket) Tokens(now time.Time) int64 {
	missing := b.at(now).Sub(now)
	return b.Burst - int64((missing+b.Interval-1)/b.Interval)
}

// Next returns when there is a token, if none is taken before.
func (b *Bucket) Next(now time.Time) time.Time {
	return b.at(now).Add(-time.Duration(b.Burst-1) * b.Interval)
}

// Take takes n tokens.
func (b *Bucket) Take(now time.Time, n int64) {
	b.Full = b.at(now).Add(time.Duration(n) * b.Interval)
}
