package errand

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// Lane is the jobs of one kind in one queue. For [Queue.Hold] one of the names may be
// empty: Lane{Queue: "mail"} stands for all kinds of a queue, Lane{Kind: "upload"}
// for a kind in all queues.
type Lane = storage.Lane

// HoldState is a hold in force:
//
//   - Queue and Kind are the lane, of which one may be empty.
//   - Reason, By, Detail and For are those of [HoldOptions]. Detail is the last error, if
//     errand holds the lane.
//   - Since is when the hold began. Until is when it ends; if zero, when it is released.
//   - Probe is true if errand lets jobs through, one at a time, the next one at Until.
//     Until moves on while the last one runs, up to the time after which a job hangs. An
//     Until that is over means that no worker has had a runner for the next one.
//   - Through is the last job that was let through, while it runs.
//   - Hanging is how many jobs in a row will have been passed over at Until, as they
//     hang. Through counts from a lease before Until.
//   - Waiting is how many jobs of the lane are ready or scheduled, and Ready how many of
//     them are ready.
type HoldState = storage.HoldState

// HoldOptions configure a hold. Nil and the zero value mean defaults.
type HoldOptions struct {
	// Reason tells holds of a lane apart. It is a name of the form of names of queues.
	// "paused" is the reason of [Queue.Pause]. "unavailable" and "brake" are refused: errand
	// begins and ends such holds itself, see [Unavailable] and [QueueOptions].MaxDeaths, and
	// [Queue.Release] ends them early. If zero, "held".
	Reason string
	// Until is when the hold ends by itself. It must be in the future, and For zero.
	// If the clock turns out to have been ahead, and is set back less than a day after
	// Until, the hold is in force again. If zero, For says it.
	Until time.Time
	// For is how long the hold lasts from now. A clock that turns out to have been
	// wrong does not make it longer. While the clock cannot be believed, see
	// [ClockState], now is not known: a hold that is not over when the clock is
	// corrected lasts For from then. If For and Until are zero, the hold lasts until
	// it is released.
	For time.Duration
	// By is who holds the lane, for people: up to 255 bytes of text. By is "errand" for the
	// holds of errand itself, and "handler" for those that a handler asked for by HoldLane.
	// It leaves no entry in [Queue.Audit], as programs hold lanes too: see [WithAudit].
	// If zero, nobody is named.
	By string
	// Detail is a note of why the lane is held, for people: up to 1,000 bytes of text. The text
	// of [Queue.Why] has its beginning. If zero, there is none.
	Detail string
	// DryRun has Hold only check the lane and the options, and hold nothing.
	DryRun bool
}

const (
	defaultHold = "held"
	mostBy      = 255
	mostDetail  = 1000
)

// Hold stops all workers of all processes from starting jobs of a lane, which need not
// have any yet. Running jobs go on, and new ones can be enqueued. The hold survives a
// restart. It ends when its time is over, or with [Queue.Release].
//
// In this process no job of the lane starts once Hold has returned; one whose handler
// is being called at that moment is running. Other processes follow when they see the
// commit: mostly within milliseconds, at the latest after a second. Jobs that a worker
// has leased and not started go back, and lose nothing.
//
// A lane can be held for several reasons at a time, by itself, by its queue and by
// its kind. Its jobs are taken again when the last of these holds has ended, in the
// order in which they would have been taken. A second hold of a lane for the same
// reason takes the place of the first.
//
// Hold returns a [FieldError] if lane names neither a queue nor a kind, or if an
// option is not as described there.
func (q *Queue) Hold(ctx context.Context, lane Lane, o *HoldOptions) error {
	o = cmp.Or(o, &HoldOptions{})
	h := storage.Hold{Lane: lane, Reason: cmp.Or(o.Reason, defaultHold), Until: o.Until, For: o.For, By: o.By, Detail: o.Detail}
	now, believed := q.clock.read(ctx)
	h.Doubtful = !believed
	f := checkHold(lane, h.Reason)
	if h.Reason == storage.HoldUnavailable || h.Reason == storage.HoldBrake {
		f.field("reason", h.Reason, "must not be unavailable or brake: errand begins such holds itself, and Release ends them")
	}
	switch {
	case o.For < 0:
		f.field("for", o.For, "must not be negative")
	case o.For > 0 && !o.Until.IsZero():
		f.field("for", o.For, "must be zero if until is set")
	case !o.Until.IsZero() && !o.Until.After(now):
		f.field("until", o.Until, fmt.Sprintf("must be after now, %v", now))
	case o.Until.Year() > 9999:
		f.field("until", o.Until, "must be in the year 9999 at the latest")
	}
	f.by(o.By)
	if len(o.Detail) > mostDetail || !isText(o.Detail) {
		f.field("detail", o.Detail, fmt.Sprintf("must be at most %d bytes of UTF-8 without NUL", mostDetail))
	}
	if err := f.err(); err != nil || o.DryRun {
		return err
	}
	if err := q.store.Hold(ctx, now, h); err != nil {
		return err
	}
	until := h.Until
	if o.For > 0 {
		until = now.Add(o.For)
	}
	q.events.tellLane(EventHeld, now, lane, h.Reason, until)
	return nil
}

// Release ends the hold of a lane for a reason; an empty reason stands for "held", as
// with [Queue.Hold]. Other holds stay, also those of the queue or the kind of a lane.
// Release reports whether there was such a hold, and returns a [FieldError] as Hold
// does.
func (q *Queue) Release(ctx context.Context, lane Lane, reason string) (bool, error) {
	reason = cmp.Or(reason, defaultHold)
	f := checkHold(lane, reason)
	if err := f.err(); err != nil {
		return false, err
	}
	now := q.clock.current(ctx)
	held, err := q.store.Release(ctx, now, lane, reason)
	if err == nil && held {
		q.events.tellLane(EventReleased, now, lane, reason, time.Time{})
	}
	return held, err
}

// checkHold checks what names a hold.
func checkHold(lane Lane, reason string) faults {
	f := checkLane(lane)
	if lane == (Lane{}) {
		f.field("lane", "", "must name a queue, a kind, or both")
	}
	f.add(checkName("reason", reason))
	return f
}

// Holds returns the holds in force, pauses included, sorted by queue, kind and reason.
// The numbers of jobs are kept, not counted: the call is cheap however many jobs there
// are.
func (q *Queue) Holds(ctx context.Context) ([]HoldState, error) {
	return q.store.Holds(ctx, q.clock.current(ctx))
}

// Pause stops all workers from starting jobs of a queue, which need not have any yet.
// Running jobs go on, new ones can be enqueued, and the pause survives a restart.
// Pausing twice is the same as once. A pause is a hold of the queue for the reason
// "paused", without an end; see [Queue.Hold].
func (q *Queue) Pause(ctx context.Context, queue string) error {
	if err := checkName("queue", queue); err != nil {
		return err
	}
	return q.Hold(ctx, Lane{Queue: queue}, &HoldOptions{Reason: storage.HoldPaused})
}

// Resume ends a pause. Other holds of the queue stay.
func (q *Queue) Resume(ctx context.Context, queue string) error {
	if err := checkName("queue", queue); err != nil {
		return err
	}
	_, err := q.Release(ctx, Lane{Queue: queue}, storage.HoldPaused)
	return err
}

// Paused returns the paused queues, sorted.
func (q *Queue) Paused(ctx context.Context) (queues []string, err error) {
	holds, err := q.Holds(ctx)
	holds = slices.DeleteFunc(holds, func(h HoldState) bool { return h.Kind != "" || h.Reason != storage.HoldPaused })
	for _, h := range holds {
		queues = append(queues, h.Queue)
	}
	return queues, err
}

// AuditEntry says what somebody has done by hand:
//
//   - At is when the action was begun, By who did it, Do the verb, and What the things that
//     it was done to, in words. Note is why. All but At and Do may be empty.
//   - Jobs is how many jobs were changed, enqueued or deleted.
type AuditEntry = storage.AuditEntry

const mostDo = 128

// WithAudit returns a context for what somebody does by hand. The calls that get it and have an effect,
// such as Hold, Release, Cancel, Change, StartBulk, Configure and those of schedules, dead letters and topics,
// leave one entry together, in the same transaction as the first of them; [Queue.Audit] returns it.
// Calls with other contexts leave none. Do not pass it to [Worker.Run], whose handlers would get it.
//
// Do must be set, and have at most 128 bytes; By has up to 255. What and Note are cut after 1,000 bytes. If At is
// zero, it is now, on the wall clock. Jobs is counted by the calls. WithAudit returns a [FieldError] for each fault.
func WithAudit(ctx context.Context, e AuditEntry) (context.Context, error) {
	var f faults
	if e.Do == "" || len(e.Do) > mostDo || !isText(e.Do) {
		f.field("do", e.Do, fmt.Sprintf("must have 1 to %d bytes of UTF-8 without NUL", mostDo))
	}
	f.by(e.By)
	for _, text := range []*string{&e.What, &e.Note} {
		*text = strings.ReplaceAll(strings.ToValidUTF8(*text, "\uFFFD"), "\x00", "\uFFFD")
		if len(*text) > mostDetail {
			*text = cutAt(*text, mostDetail)
		}
	}
	if e.Jobs = 0; e.At.IsZero() {
		e.At = time.Now()
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return storage.WithAudit(ctx, e), nil
}

// Audit returns what was done by hand, see [WithAudit]: the last 100 entries in the file, the newest first.
// It returns [ErrUnsupportedDB] if the store keeps none.
func (q *Queue) Audit(ctx context.Context) ([]AuditEntry, error) {
	a, ok := q.store.(storage.Auditor)
	if !ok {
		return nil, fmt.Errorf("%w: store %T keeps no audit", ErrUnsupportedDB, q.store)
	}
	return a.Audit(ctx)
}
