package errand

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// Event is something that has happened in this process to a job or a lane. Fields that
// do not apply to its type are zero.
type Event struct {
	Type EventType `json:"type"`
	// At is when it happened, on the queue's clock.
	At time.Time `json:"at"`
	// ID, Queue and Kind name the job. A held or released lane has no ID, and may lack
	// one of the other two, see [Lane].
	ID    ID     `json:"id,omitzero"`
	Queue string `json:"queue,omitempty"`
	Kind  string `json:"kind,omitempty"`
	// Attempt and Retry are the counters of the job after the event, see [Job].
	Attempt int `json:"attempt,omitempty"`
	Retry   int `json:"retry,omitempty"`
	// Reason is why the job is dead, or for which reason the lane is held.
	Reason string `json:"reason,omitempty"`
	// Error is the error that the attempt ended with.
	Error string `json:"error,omitempty"`
	// Due is when the job is due, or until when the lane is held.
	Due time.Time `json:"due,omitzero"`
	// Used is 50, 70 or 90, for EventRetriesUsed.
	Used int `json:"used,omitempty"`
	// Key is the unique key of a job that was enqueued or replaced. A hash of args with secret
	// fields in it is hidden.
	Key string `json:"key,omitempty"`
	// Duplicates are the jobs that held the unique keys of jobs of [Job.Then], which were not
	// enqueued therefore; for EventDone.
	Duplicates []ID `json:"duplicates,omitempty"`
	// DuplicateKeys are the unique keys that Duplicates hold, in the same order, each as Key.
	DuplicateKeys []string `json:"duplicate_keys,omitempty"`
}

// EventType says what has happened.
type EventType string

// The types of events. An outcome is told once it is written.
const (
	EventEnqueued    EventType = engine.EventEnqueued // by Enqueue, EnqueueMany or a schedule
	EventReplaced    EventType = "replaced"           // an enqueue has changed it, see OnConflict
	EventStarted     EventType = engine.EventStarted  // its handler is about to be called
	EventDone        EventType = "done"
	EventRetried     EventType = "retried"     // the attempt failed, and is tried again
	EventSnoozed     EventType = "snoozed"     // the handler returned Snooze
	EventUnavailable EventType = "unavailable" // the other side was not reached; no retry was used up
	EventInterrupted EventType = "interrupted" // the attempt was cut off, as by a stop of the worker
	EventCrashed     EventType = "crashed"     // its process died; told by the one that has recovered the job
	EventCancelled   EventType = "cancelled"
	EventExpired     EventType = engine.EventExpired // finished since it was not started in time; told by the process that has found it
	EventDead        EventType = "dead"
	// EventEvicted says that this process deleted a job to make room, see [Settings]. An
	// EnqueueTx or EnqueueManyTx tells of it only in a transaction of [Queue.Tx].
	EventEvicted EventType = "evicted"
	// EventDeadEvicted says that this process deleted a dead letter, as there were too many,
	// see [Settings].
	EventDeadEvicted EventType = "dead evicted"
	EventLeaseLost   EventType = engine.EventLeaseLost // another worker may run the job
	// EventRetriesUsed comes after EventRetried when a job has used 50, 70 or 90 % of the
	// retries of its policy. A policy of less than 4 retries has no such marks.
	EventRetriesUsed EventType = engine.EventRetriesUsed
	EventHeld        EventType = engine.EventHeld     // a lane is held
	EventReleased    EventType = engine.EventReleased // the hold of a lane was ended
)

var eventTypes = []EventType{
	EventEnqueued, EventReplaced, EventStarted, EventDone, EventRetried, EventSnoozed, EventUnavailable, EventInterrupted,
	EventCrashed, EventCancelled, EventExpired, EventDead, EventEvicted, EventDeadEvicted, EventLeaseLost, EventRetriesUsed, EventHeld, EventReleased,
}

// EventFilter selects events. The zero value selects all.
type EventFilter struct {
	// Types are the types to select. If empty, all.
	Types []EventType
	// Queue and Kind select the events of one queue and of one kind. A lane without a queue
	// matches any Queue, and a lane without a kind any Kind. If empty, all.
	Queue, Kind string
	// ID selects the events of one job. If zero, all.
	ID ID
}

func (f *EventFilter) selects(e *Event) bool {
	return (len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) &&
		(f.Queue == "" || e.Queue == "" || f.Queue == e.Queue) &&
		(f.Kind == "" || e.Kind == "" || f.Kind == e.Kind) &&
		(f.ID.IsZero() || f.ID == e.ID)
}

// Subscription receives events, until it is closed. It is safe for concurrent use.
type Subscription struct {
	events *events
	filter EventFilter
	missed atomic.Int64
	hook   func(*Event) // takes the events instead of the channel, at once; nil: none
	stop   func() bool  // undoes that the end of the context closes it

	mu     sync.Mutex // held while events are sent, and while to is closed
	to     chan Event
	closed bool
}

const mostEvents = 100_000

// Subscribe returns the events of this process that f selects, from now on: of jobs that
// it enqueues and that its workers run, and of lanes that it holds and releases. It does
// not return these:
//
//   - what other processes do
//   - what EnqueueTx, EnqueueManyTx and CancelTx do, as their transaction may be rolled back
//   - what Change, CancelAll, RunNow, Redrive and Delete do to jobs that do not run
//
// Events never hold up a worker. Up to buffer of them wait to be received, from 1 to
// 100,000; further ones are dropped and counted, see [Subscription.Missed]. Events of one
// job come in order, but that of its enqueue may come after that of its start.
//
// The subscription ends with ctx, with [Subscription.Close] or with [Queue.Close]. For a
// buffer or a filter that is not valid Subscribe returns a [FieldError] for each fault,
// joined; after Close of the queue, [ErrClosed].
func (q *Queue) Subscribe(ctx context.Context, f EventFilter, buffer int) (*Subscription, error) {
	var all faults
	for i, t := range f.Types {
		if !slices.Contains(eventTypes, t) {
			all.field(fmt.Sprintf("types[%d]", i), string(t), "must be one of the types of events")
		}
	}
	if f.Queue != "" {
		all.add(checkName("queue", f.Queue))
	}
	if f.Kind != "" {
		all.add(checkName("kind", f.Kind))
	}
	if buffer < 1 || buffer > mostEvents {
		all.field("buffer", buffer, fmt.Sprintf("must be between 1 and %d", mostEvents))
	}
	if err := all.err(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	s := &Subscription{events: &q.events, filter: f, to: make(chan Event, buffer)}
	if !q.events.add(s) {
		return nil, ErrClosed
	}
	stop := context.AfterFunc(ctx, s.Close)
	s.mu.Lock()
	s.stop = stop
	s.mu.Unlock()
	return s, nil
}

// Events returns the channel of the events. It is closed when the subscription ends;
// what waits in it can still be received.
func (s *Subscription) Events() <-chan Event { return s.to }

// Missed returns how many events were dropped so far because the buffer was full.
func (s *Subscription) Missed() int64 { return s.missed.Load() }

// Close ends the subscription. To close it twice is harmless.
func (s *Subscription) Close() {
	s.events.remove(s)
	s.mu.Lock()
	stop := s.stop
	s.stop = nil
	if !s.closed {
		s.closed = true
		if s.to != nil {
			close(s.to)
		}
	}
	s.mu.Unlock()
	if stop != nil {
		stop() // without the lock, which who tells waits for: the context is the application's
	}
}

func (s *Subscription) tell(e *Event) {
	if !s.filter.selects(e) {
		return
	}
	if s.hook != nil {
		s.hook(e)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	select {
	case s.to <- *e:
	default:
		s.missed.Add(1)
	}
}

// events are the subscriptions of a queue. It implements [engine.Events].
type events struct {
	types  *argsTypes
	mu     sync.Mutex
	closed bool
	all    atomic.Pointer[[]*Subscription] // replaced, never changed; nil: none
}

func (es *events) add(s *Subscription) bool {
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.closed {
		return false
	}
	es.set(append(slices.Clone(es.list()), s))
	return true
}

func (es *events) remove(s *Subscription) {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.set(slices.DeleteFunc(slices.Clone(es.list()), func(o *Subscription) bool { return o == s }))
}

func (es *events) set(all []*Subscription) {
	if len(all) == 0 {
		es.all.Store(nil)
		return
	}
	es.all.Store(&all)
}

// close ends all subscriptions, and lets none begin.
func (es *events) close() {
	es.mu.Lock()
	all := es.list()
	es.closed = true
	es.mu.Unlock()
	for _, s := range all {
		s.Close()
	}
}

func (es *events) list() []*Subscription {
	if all := es.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Wanted implements [engine.Events].
func (es *events) Wanted() bool { return es.all.Load() != nil }

// Tell implements [engine.Events].
func (es *events) Tell(e engine.Event) {
	told := Event{
		Type: EventType(e.Type), At: e.At, ID: e.ID, Queue: e.Queue, Kind: e.Kind, Attempt: e.Attempt, Retry: e.Retry,
		Reason: e.Reason, Error: e.Error, Due: e.Due, Used: e.Used, Key: es.types.shownKey(e.Kind, e.Unique),
	}
	for _, d := range e.Duplicates {
		told.Duplicates = append(told.Duplicates, d.ID)
		told.DuplicateKeys = append(told.DuplicateKeys, es.types.shownKey(d.Kind, d.Unique))
	}
	es.tell(told)
}

func (es *events) tell(e Event) {
	for _, s := range es.list() {
		s.tell(&e)
	}
}

// tellEnqueued tells of jobs that were enqueued at now.
func (es *events) tellEnqueued(now time.Time, jobs []storage.NewJob, added []Enqueued) {
	if !es.Wanted() {
		return
	}
	for i := range added {
		j := &jobs[i]
		key := es.types.shownKey(j.Kind, j.Unique)
		if added[i].Replaced {
			es.tell(Event{Type: EventReplaced, At: now, ID: added[i].ID, Queue: j.Queue, Kind: j.Kind, Key: key})
		}
		if !added[i].Duplicate {
			due := j.DueAt
			if due.Before(now) {
				due = now.Add(j.Delay)
			}
			es.tell(Event{Type: EventEnqueued, At: now, ID: added[i].ID, Queue: j.Queue, Kind: j.Kind, Due: due, Key: key})
		}
	}
}

// tellCancelled tells of a job that was cancelled at now, unless it was before. It was
// as was says; the zero Record is of none that anybody wanted to hear of.
func (q *Queue) tellCancelled(ctx context.Context, now time.Time, was *storage.Record) {
	if was.State != Scheduled && was.State != Ready && was.State != Blocked {
		return
	}
	r, err := q.store.Job(ctx, was.ID)
	if errors.Is(err, ErrNotFound) || err == nil && r.EndedAt.Equal(now.Truncate(time.Microsecond)) { // it may not be kept
		q.events.tell(Event{Type: EventCancelled, At: now, ID: was.ID, Queue: was.Queue, Kind: was.Kind, Attempt: was.Attempt, Retry: was.Retry})
	}
}

// tellLane tells that a lane is held or released.
func (es *events) tellLane(t EventType, at time.Time, lane Lane, reason string, until time.Time) {
	if es.Wanted() {
		es.tell(Event{Type: t, At: at, Queue: lane.Queue, Kind: lane.Kind, Reason: reason, Due: until})
	}
}
