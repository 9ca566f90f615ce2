package rules

import (
	"bytes"
	"math"
	"time"

	"github.com/errandq/errand/storage"
)

// Forever is the Until of a key with [storage.UniqueForever].
const Forever = math.MaxInt64

// Key is what is read of a unique key that a job holds.
type Key struct {
	Created int64 // when the holder was enqueued
	Until   int64 // until when the holder has the key at least; 0: no longer than it lives
	Live    bool  // whether the holder lives
	// Waiting is the job behind the holder, or if there is none the holder itself, if that job
	// is live; else nil. It is read only for a Conflict that may change it.
	Waiting *Waiting
}

// Waiting is what is read of a job that a [storage.Conflict] may change.
type Waiting struct {
	State   storage.State
	Created int64
	Due     int64
	Delay   int64 // how much of the time until Due was counted from the call that set it
	storage.Counters
	Args []byte // read only for a Merge
}

// windowed reports whether the holder has the key for a time, whatever becomes of it.
func (k *Key) windowed() bool { return k.Until > 0 && k.Until < Forever }

// Renew has the time of a key begin anew at now if it began later, as the clock was set back
// since, and reports whether that has changed Until. It does so only for a holder that has ended.
func (k *Key) Renew(now int64) bool {
	if k.Live || !k.windowed() || k.Created <= now || k.Until <= k.Created {
		return false
	}
	k.Until += now - k.Created
	return true
}

// Over reports whether nobody has the key any more.
func (k *Key) Over(now int64) bool { return !k.Live && k.windowed() && k.Until <= now }

// Verdict is what becomes of a job that finds its key held.
type Verdict uint8

// The verdicts.
const (
	Duplicate Verdict = iota // nothing is inserted
	Refuse                   // the call fails with a DuplicateError
	Change                   // the job that waits is changed, see Replaced
	Follow                   // the job is inserted behind the holder, and blocked
	Succeed                  // the job is inserted and takes the key over
)

// changes returns the job that c may change, or nil.
func (k *Key) changes(c *storage.Conflict) *Waiting {
	w := k.Waiting
	if !c.Replaces() || w == nil || w.State == storage.Running || c.Mode == storage.After && w.Attempt > 0 {
		return nil
	}
	return w
}

// Conflict decides about a job whose key is held. A job that follows or succeeds is due at the
// Until of the key at the earliest, if that has a time.
func (k *Key) Conflict(j *storage.NewJob) Verdict {
	c := j.Conflict
	switch {
	case c != nil && c.Mode == storage.Fail:
		return Refuse
	case !c.Replaces():
		return Duplicate
	case k.changes(c) != nil:
		return Change
	case !k.Live && k.windowed():
		return Succeed
	case k.Live && k.Until != Forever && j.Group == "":
		return Follow
	}
	return Duplicate
}

// Enter has k be as it is once a job has entered for which the verdict was v, or the job that
// waits was changed: that job is w then, and until is its [Until]. A job whose key is free
// succeeds.
func (k *Key) Enter(v Verdict, until int64, w Waiting) {
	switch v {
	case Change, Follow:
		k.Waiting = &w
	case Succeed:
		*k = Key{Created: w.Created, Until: until, Live: true, Waiting: &w}
	case Duplicate, Refuse:
	}
}

// Unmerged returns nil if the args of a job were made of those of the job that waits, see
// [storage.Merge], else what they are to be made of. k is nil if nobody holds the key.
func (k *Key) Unmerged(c *storage.Conflict) *storage.Unmerged {
	var w *Waiting
	if k != nil {
		w = k.changes(c)
	}
	if old := c.Merge.Old; (w != nil) == (old != nil) && (w == nil || bytes.Equal(old, w.Args)) {
		return nil
	}
	if w == nil {
		return &storage.Unmerged{}
	}
	return &storage.Unmerged{Found: append([]byte{}, w.Args...)}
}

// Replaced returns what a waiting job is once a job with a Conflict has changed it, and whether
// it is due at another time. One that was blocked is to be blocked again.
func (w Waiting) Replaced(now time.Time, c *storage.Conflict) (is Waiting, put bool) {
	at, due := now.UnixMicro(), w.Due
	is = w
	if c.Fresh {
		if w.State == storage.Scheduled && w.Attempt > 0 {
			due = min(due, at)
		}
		is.Retry, is.Crashes, is.Snoozes = 0, 0, 0
	}
	is.Due = Due(c.Due(now, time.UnixMicro(w.Created), time.UnixMicro(due)))
	if is.Due == w.Due {
		return is, false
	}
	is.Delay = max(is.Due-at, 0)
	if is.State = storage.Ready; is.Due > at {
		is.State = storage.Scheduled
	}
	return is, true
}

// Until returns until when a new job has its key at least, see Key, that was enqueued at created
// and is due at due.
func Until(j *storage.NewJob, created, due int64) int64 {
	switch {
	case j.UniqueScope == storage.UniqueForever:
		return Forever
	case j.UniqueFor > 0:
		return max(created, due) + Ceil(j.UniqueFor)
	}
	return 0
}

// Heir is who has a key once its holder has ended.
type Heir uint8

// The heirs.
const (
	Nobody Heir = iota
	Follower
	Holder // still
)

// Ended says who has a key whose holder ends at now; follows says that a job waits behind it.
func (k *Key) Ended(now int64, follows bool) Heir {
	switch {
	case follows:
		return Follower
	case k.Until > now:
		return Holder
	}
	return Nobody
}

// Leave has k be as it is once its holder has ended and h has it: with Follower that is a job
// which was enqueued at created and has the key until until at least.
func (k *Key) Leave(h Heir, created, until int64) {
	switch h {
	case Nobody:
		*k = Key{}
	case Follower:
		k.Created, k.Until = created, until
	case Holder:
		k.Live, k.Waiting = false, nil
	}
}
