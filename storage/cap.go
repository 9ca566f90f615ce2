package storage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrQueueFull is what a [QueueFullError] is.
var ErrQueueFull = errors.New("errand: queue is full")

// JobOverhead is how many bytes a job that waits counts for, beside its args and headers.
const JobOverhead = 128

// Evicted is a job that was deleted to make room.
type Evicted struct {
	ID ID
	Lane
	Dead bool // it was a dead letter
}

// QueueFullError says that there is no room for a job. It is an [ErrQueueFull].
type QueueFullError struct {
	// Queue is the queue that has the cap. If empty, the whole database has the cap.
	Queue string
	// MaxJobs and MaxBytes are the caps; zero: none.
	MaxJobs, MaxBytes int64
	// Jobs and Bytes are the use without the job, and Size is how many bytes it counts for.
	Jobs, Bytes, Size int64
	WhenFull          WhenFull
	// MinFree is above zero if too little space is free: Free bytes. The other numbers
	// are zero then.
	MinFree, Free int64
}

// Error returns the cap and the use in one line.
func (e *QueueFullError) Error() string {
	what := "the file is full"
	if e.Queue != "" {
		what = fmt.Sprintf("queue %q is full", e.Queue)
	}
	if e.MinFree > 0 {
		return fmt.Sprintf("errand: %s: %d bytes of the file system are free, of at least %d", what, e.Free, e.MinFree)
	}
	of := func(most int64) string {
		if most == 0 {
			return ""
		}
		return fmt.Sprintf(" of at most %d", most)
	}
	job := fmt.Sprintf("there is no room for a job of %d bytes", e.Size)
	if e.MaxBytes > 0 && e.Size > e.MaxBytes {
		job = fmt.Sprintf("a job of %d bytes is larger than the cap", e.Size)
	} else if e.WhenFull != Refuse {
		job += ", as too few of them may be evicted"
	}
	return fmt.Sprintf("errand: %s: %s: jobs that wait: %d%s, their bytes: %d%s (%v)", what, job, e.Jobs, of(e.MaxJobs), e.Bytes, of(e.MaxBytes), e.WhenFull)
}

// Is reports whether target is [ErrQueueFull].
func (e *QueueFullError) Is(target error) bool { return target == ErrQueueFull }

// WhenFull says what becomes of a job for which there is no room.
//
// The use of a queue is how many of its jobs wait, that is are scheduled, ready or
// blocked, and how many bytes these count for: their args and headers, and [JobOverhead]
// each. The use of the database is that of all its queues. A job that Enqueue, EnqueueTx
// or Fire is to insert has room if, with it, neither number is above a cap of its queue
// or of the database. A duplicate needs no room. Jobs that come back to a queue or are
// moved to it, and [Finish.Then], need none either.
//
// The WhenFull of the queue or the database that has the cap says what happens to a job
// without room. If it is refused, an Enqueue or EnqueueTx returns a [*QueueFullError],
// and inserts none of its jobs and evicts none. A tick of a Fire is skipped, as
// [TickFull].
//
// While less than [SettingMinFree] of the queue or the database is free, a job has room
// only if its priority is above [SettingMinFreePriority] of the same. Else it is refused,
// whatever WhenFull is. Free space is that of the file system, as it was at most a second
// ago; if it is not known, there is always enough.
//
// An evicted job is deleted for good, with all that belongs to it. If its handler was never
// called, its unique key is free, whatever its UniqueFor; else the key is held as after any
// other end. Ready jobs go first, in the order of their due times, then of their keys. Then go
// scheduled ones in the same order, of a bounded number of those in the database that are
// due first. These stay: jobs that hold a key with [UniqueForever], members of groups, and
// jobs that the answers of the same call name, inserted, replaced or kept. A call looks at
// a bounded number of jobs: those that it evicts, and those that stay. It refuses the job
// if that does not make room.
type WhenFull uint8

const (
	// Refuse refuses the job.
	Refuse WhenFull = iota
	// EvictOldest evicts jobs of the queue or the database until there is room for the job,
	// and refuses the job if there are too few to evict.
	EvictOldest
	// EvictLowest is EvictOldest with the lowest priority first, of the ready jobs and
	// then of the scheduled ones. A job of a higher priority than the new one stays.
	EvictLowest
)

var whenFull = [...]string{Refuse: "refuse", EvictOldest: "evict-oldest", EvictLowest: "evict-lowest"}

// String returns the name of w: "refuse", "evict-oldest" or "evict-lowest".
func (w WhenFull) String() string {
	if int(w) < len(whenFull) {
		return whenFull[w]
	}
	return fmt.Sprintf("WhenFull(%d)", uint8(w))
}

// MarshalText returns the name of w.
func (w WhenFull) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText sets w by its name.
func (w *WhenFull) UnmarshalText(text []byte) error {
	i := slices.Index(whenFull[:], string(text))
	if i < 0 {
		return fmt.Errorf("errand: when full %q: must be one of %s", text, strings.Join(whenFull[:], ", "))
	}
	*w = WhenFull(i)
	return nil
}

// WhenDeadFull says what becomes of dead letters beyond [SettingMaxDead].
//
// Dead letters are no part of the use that [WhenFull] is about. If a job dies in an
// Exchange, and more are dead then than [SettingMaxDead] of its kind in its queue, of its
// queue or of the database, [SettingWhenDeadFull] of the same says what happens. With
// KeepDead nothing does. With EvictDead the Exchange deletes dead letters of the same for
// good, as Delete does, until only that many are left. The earliest deaths go first, and of the same time the lower
// keys. If the handler of one was never called, its UniqueFor is over. These stay: those that died in the same Exchange, and those that block other jobs
// of their group. The caps of kinds in queues apply first, then those of queues, then
// that of the database. An Exchange looks at a bounded number for all of them, and
// deletes a bounded number; what is left over goes once the next job dies.
type WhenDeadFull uint8

const (
	// KeepDead keeps all dead jobs.
	KeepDead WhenDeadFull = iota
	// EvictDead evicts the jobs that died first.
	EvictDead
)

var whenDeadFull = [...]string{KeepDead: "keep", EvictDead: "evict-oldest"}

// String returns the name of w: "keep" or "evict-oldest".
func (w WhenDeadFull) String() string {
	if int(w) < len(whenDeadFull) {
		return whenDeadFull[w]
	}
	return fmt.Sprintf("WhenDeadFull(%d)", uint8(w))
}

// MarshalText returns the name of w.
func (w WhenDeadFull) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText sets w by its name.
func (w *WhenDeadFull) UnmarshalText(text []byte) error {
	i := slices.Index(whenDeadFull[:], string(text))
	if i < 0 {
		return fmt.Errorf("errand: when dead full %q: must be one of %s", text, strings.Join(whenDeadFull[:], ", "))
	}
	*w = WhenDeadFull(i)
	return nil
}
