package rules

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/errandq/errand/storage"
)

// Forever is the Until of a key with [storage.UniqueForever].
const Forever = math.MaxInt64

// Keeper is a job that has a unique key, or waits for it. The zero value is nobody.
type Keeper struct {
	Job     int64 // key
	Created int64 // when it was enqueued
	Until   int64 // until when it has the key at least; 0: no longer than it lives
	Salt    uint32
	// Since is when the time until Until began anew, as the clock was set back; 0: it counts from
	// Created, which is part of the ID and stays.
	Since int64
}

// ID returns the ID of the job, the zero one of nobody.
func (k Keeper) ID() storage.ID {
	if k.Job == 0 {
		return storage.ID{}
	}
	return storage.NewID(time.UnixMicro(k.Created), k.Salt, k.Job)
}

// windowed reports whether k has the key for a time, whatever becomes of it.
func (k Keeper) windowed() bool { return k.Until > 0 && k.Until < Forever }

// Key is a unique key, as it was read or as a decision has left it.
type Key struct {
	Name   string
	Holder Keeper
	Behind Keeper // who waits for the key
	Live   bool   // whether the holder lives
	Kept   bool   // whether a holder that has ended is in a table
	Dated  bool   // whether the job behind waits for a date too, which no step of the clock moves
	// Waiter is the job behind the holder, or if there is none the holder itself, if that job
	// is live; else nil. It is read only for a Conflict that may change it.
	Waiter *Waiter
	// Were are the holder and who waits as they were read, for the store that writes what has
	// changed since.
	Were [2]Keeper
}

// Waiter is what is read of a job that a [storage.Conflict] may change.
type Waiter struct {
	State   storage.State
	Created int64
	Due     int64
	Delay   int64 // how much of the time until Due was counted from the call that set it
	storage.Counters
	Args []byte // read only for a Merge
}

// renew has the time of a key begin anew at now if it began later, as the clock was set back
// since. It does so only for a holder that has ended.
func (k *Key) renew(now int64) {
	if !k.Live {
		k.Holder.renew(now)
	}
}

// renew is that of the key of a holder.
func (k *Keeper) renew(now int64) {
	began := cmp.Or(k.Since, k.Created)
	if k.windowed() && began > now && k.Until > began {
		k.Until, k.Since = k.Until+now-began, now
	}
}

// free reports whether nobody has the key, or not any more.
func (k *Key) free(now int64) bool {
	return k.Holder.Job == 0 || !k.Live && k.Holder.windowed() && k.Holder.Until <= now
}

// gone reports whether a job that has the key is in no table.
func (k *Key) gone(now int64) bool { return k.Holder.Until > now && !k.Live && !k.Kept }

// Last returns the job of Waiter.
func (k *Key) Last() Keeper {
	if k.Behind.Job != 0 {
		return k.Behind
	}
	return k.Holder
}

// Admission is what becomes of a job that wants a key.
type Admission uint8

// The admissions.
const (
	Duplicate Admission = iota // it is not inserted
	Refuse                     // the call fails with a DuplicateError
	Change                     // the job that waits is changed
	Follow                     // it is inserted behind the holder, and blocked
	Succeed                    // it is inserted, and has the key
)

// changes returns the job that c may change, or nil.
func (k *Key) changes(c *storage.Conflict) *Waiter {
	w := k.Waiter
	if !c.Replaces() || w == nil || w.State == storage.Running || c.Mode == storage.After && w.Attempt > 0 {
		return nil
	}
	return w
}

// conflict decides about a job whose key is held.
func (k *Key) conflict(j *storage.NewJob) Admission {
	c := j.Conflict
	switch {
	case c != nil && c.Mode == storage.Fail:
		return Refuse
	case !c.Replaces():
		return Duplicate
	case k.changes(c) != nil:
		return Change
	case !k.Live && k.Holder.windowed():
		return Succeed
	case k.Live && k.Holder.Until != Forever && j.Group == "":
		return Follow
	}
	return Duplicate
}

// unmerged returns nil if the args of a job were made of those of the job that waits, see
// [storage.Merge], else what they are to be made of.
func (k *Key) unmerged(c *storage.Conflict) *storage.Unmerged {
	if c == nil || c.Merge == nil {
		return nil
	}
	w := k.changes(c)
	if old := c.Merge.Old; (w != nil) == (old != nil) && (w == nil || bytes.Equal(old, w.Args)) {
		return nil
	}
	if w == nil {
		return &storage.Unmerged{}
	}
	return &storage.Unmerged{Found: append([]byte{}, w.Args...)}
}

// Claim is what becomes of a job that wants a key.
type Claim struct {
	Admission Admission
	ID        storage.ID // of the job that has the key or, for Change, waits for it; zero if the job is inserted
	Gone      bool       // see [storage.Enqueued]
	Unmerged  *storage.Unmerged
	// Of Change: the job that waits as it comes to be, and whether it is due at another time.
	// One that was blocked is to be blocked again.
	Is  Waiter
	Put bool
	// Due, if not zero, is when the job is due and scheduled for: not before another one has
	// had the key for its time.
	Due int64
}

// claim decides about a new job, and changes k accordingly.
func (k *Key) claim(now time.Time, j *storage.NewJob, is Keeper, due int64) (c Claim) {
	at := now.UnixMicro()
	if c.Unmerged = k.unmerged(j.Conflict); c.Unmerged == nil {
		k.renew(at)
		switch {
		case k.free(at):
			c.Admission = Succeed
		case k.Holder.Job == is.Job: // its own, which outlives it
			c.Admission, k.Live, k.Kept = Succeed, true, false
			return c
		default:
			c.Admission = k.conflict(j)
			if c.Admission >= Follow && k.Holder.Until > max(due, at) {
				c.Due, due = k.Holder.Until, k.Holder.Until
			}
		}
	}
	is.Until = Until(j, is.Created, due)
	switch c.Admission {
	case Duplicate, Refuse:
		c.ID, c.Gone = k.Holder.ID(), k.gone(at)
	case Change:
		c.ID = k.Last().ID()
		c.Is, c.Put = k.Waiter.replaced(now, j.Conflict)
	case Follow:
		k.Behind = is
	case Succeed:
		k.Holder, k.Live, k.Kept = is, true, false
	}
	return c
}

// Answer returns the answer for the job at an index of a call if it is not inserted; first is
// the key of the first new job of the call.
func (c *Claim) Answer(index int, first int64) (storage.Enqueued, error) {
	if c.Admission != Refuse {
		return storage.Enqueued{ID: c.ID, Duplicate: true, Replaced: c.Admission == Change, Gone: c.Gone, Unmerged: c.Unmerged}, nil
	}
	d := &storage.DuplicateError{Index: index, ID: c.ID, Gone: c.Gone}
	if d.ID.Key() >= first { // of the same call, and so never there
		d.ID, d.Gone = storage.ID{}, false
	}
	return storage.Enqueued{}, d
}

// Following returns the answer for a job of [storage.Finish.Then], of those of an Enqueue of this
// job alone: one that is refused is a duplicate.
func Following(answer storage.Enqueued, err error) (storage.Enqueued, error) {
	var held *storage.DuplicateError
	if errors.As(err, &held) {
		return storage.Enqueued{ID: held.ID, Duplicate: true, Gone: held.Gone}, nil
	}
	return answer, err
}

// replaced returns what a waiting job is once a job with a Conflict has changed it, and whether
// it is due at another time.
func (w Waiter) replaced(now time.Time, c *storage.Conflict) (is Waiter, put bool) {
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

// Until returns until when a new job has its key at least, see Keeper, that was enqueued at created
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

// release has a job that ends at now leave the key; kept says whether it stays in a table. It
// returns the job that was blocked behind it, and has the key now, or 0.
func (k *Key) release(job, now int64, kept bool) (heir int64) {
	switch {
	case k.Behind.Job == job:
		k.Behind = Keeper{}
	case k.Holder.Job != job:
	case k.Behind.Job != 0:
		k.Holder, k.Behind = k.Behind, Keeper{}
		if !k.Dated {
			k.Holder.renew(now) // as long as it was behind, it had no key that a step could move
		}
		k.Dated = false
		return k.Holder.Job
	case k.Holder.Until > now:
		k.Live, k.Kept = false, kept
	default:
		k.Holder = Keeper{}
	}
	return 0
}

// forgo ends the time for which a job has the key.
func (k *Key) forgo(job int64) {
	if k.Holder.Job == job && k.Holder.windowed() {
		k.EndTime()
	}
}

// EndTime has the key be held no longer than its holder lives.
func (k *Key) EndTime() {
	if k.Live {
		k.Holder.Until = 0
	} else {
		k.Holder = Keeper{}
	}
}
