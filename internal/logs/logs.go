// Package logs hands records to the application's logger from a goroutine of its own.
//
// Who logs must not wait for the application: neither the writer of a store nor the loop
// of a worker, which sends heartbeats. A logger may stall, as standard error does on a
// pipe that nobody reads. It may also enqueue, for example to send records by jobs, and
// would wait for a goroutine that waits for the logger.
package logs

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

const (
	// Most is how many records wait for a logger at most. Further ones are dropped, and
	// counted.
	Most = 64
	// patience is for how long Wait waits, and for how long what a handler has said about
	// a level below Info is taken for true.
	patience = time.Second
	// quick is how long a call of the application takes at most if it does not wait.
	quick = 10 * time.Millisecond
)

// New returns a logger whose calls hand their records over to log in the order of the
// calls, and wait for nothing. It asks log whether it takes debug records, and may wait
// for that. A logger that New has returned is returned as it is.
func New(log *slog.Logger) *slog.Logger {
	if of(log) != nil {
		return log
	}
	q := &queue{from: log}
	q.debug.on, q.debug.at = log.Handler().Enabled(context.Background(), slog.LevelDebug), time.Now()
	return slog.New(&handler{q, log.Handler()})
}

// Share returns the one of loggers that New has returned for log, so that the records of
// both stay in order; nil if there is none. One that is log itself counts too.
func Share(log *slog.Logger, loggers ...*slog.Logger) *slog.Logger {
	for _, l := range loggers {
		if q := of(l); l == log || q != nil && q.from == log {
			return l
		}
	}
	return nil
}

// Direct returns the logger that New was given to make log, or log itself. Its calls wait.
func Direct(log *slog.Logger) *slog.Logger {
	if q := of(log); q != nil {
		return q.from
	}
	return log
}

// Wait waits until a logger that New has returned has handed over all records, but for a
// second at most, which begins with the call that the application has not returned from. So
// calls of Wait one after the other do not add up where a logger stalls.
func Wait(log *slog.Logger) {
	q := of(log)
	if q == nil {
		return
	}
	q.mu.Lock()
	idle, most := q.idle, patience
	if !q.since.IsZero() {
		most -= time.Since(q.since)
	}
	q.mu.Unlock()
	if idle == nil {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// State is how far a logger is.
type State struct {
	// For is for how long it has not returned from a call; zero if it is not called.
	For time.Duration
	// Waiting and Dropped are the records that wait, and those that were dropped since the
	// last time that this was logged.
	Waiting, Dropped int
}

// StateOf returns the state of a logger that New has returned.
func StateOf(log *slog.Logger) (s State) {
	q := of(log)
	if q == nil {
		return s
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.since.IsZero() {
		s.For = time.Since(q.since)
	}
	s.Waiting, s.Dropped = len(q.waiting), q.dropped
	return s
}

// of returns the queue of a logger, or nil if New has not returned it.
func of(log *slog.Logger) *queue {
	if h, ok := log.Handler().(*handler); ok {
		return h.queue
	}
	return nil
}

// queue is what a logger has still to take. Its goroutine runs only while records wait.
type queue struct {
	from *slog.Logger

	mu      sync.Mutex
	waiting []entry
	dropped int
	since   time.Time     // the application has been called since; zero: it is not
	idle    chan struct{} // closed when the goroutine has ended; nil: there is none
	debug   struct {
		on  bool      // the application took debug records when it was asked last
		at  time.Time // when it was
		ask bool      // it is to be asked
	}
}

// entry is a record and the handler that it is for.
type entry struct {
	to     slog.Handler
	ctx    context.Context
	record slog.Record
}

// put leaves a record with the queue. If that is full although the application answers
// quickly, it may only lack a processor, and gets the chance to run.
func (q *queue) put(e entry) {
	if q.full() {
		runtime.Gosched()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == Most {
		q.dropped++
		return
	}
	q.waiting = append(q.waiting, e)
	q.start()
}

func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) == Most && time.Since(q.since) < quick
}

// start starts the goroutine if there is none. The caller has the lock.
func (q *queue) start() {
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
}

func (q *queue) run() {
	ended := false
	defer func() {
		if !ended { // the application has called runtime.Goexit; a panic of its ends the process
			go q.run()
		}
	}()
	for {
		e, ask, ok := q.next()
		switch {
		case !ok:
			ended = true
			return
		case ask:
			q.answer(q.from.Handler().Enabled(context.Background(), slog.LevelDebug))
		case e.to.Enabled(e.ctx, e.record.Level):
			_ = e.to.Handle(e.ctx, e.record) // as package slog does with it
		}
	}
}

// next takes the first record, or reports that the application is to be asked about
// debug records. After the last record one follows that says how many were dropped.
func (q *queue) next() (e entry, ask, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 && !q.debug.ask {
		close(q.idle)
		q.idle, q.waiting, q.since = nil, nil, time.Time{}
		return e, false, false
	}
	q.since = time.Now()
	if q.debug.ask {
		q.debug.ask = false
		return e, true, true
	}
	e = q.waiting[0]
	q.waiting[0] = entry{}
	q.waiting = q.waiting[1:]
	if len(q.waiting) == 0 && q.dropped > 0 {
		lost := slog.NewRecord(time.Now(), slog.LevelWarn, "errand: the logger is slow, records were dropped", 0)
		lost.AddAttrs(slog.Int("records", q.dropped))
		q.waiting = append(q.waiting, entry{e.to, context.Background(), lost})
		q.dropped = 0
	}
	return e, false, true
}

func (q *queue) answer(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.debug.on, q.debug.at = on, time.Now()
}

// takesDebug reports whether the application took debug records when it was asked last,
// and has it asked again if that was a while ago.
func (q *queue) takesDebug() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); now.Sub(q.debug.at) >= patience {
		q.debug.ask, q.debug.at = true, now
		q.start()
	}
	return q.debug.on
}

// handler is a [slog.Handler] that leaves its records with a queue. The application's
// handler gets them as they are: to resolve a value, or to read the text of an error, is
// up to it. So who logs gives plain values and errors, which do not change any more.
type handler struct {
	queue *queue
	next  slog.Handler
}

// Enabled does not ask the application for levels from Info on: these records are few,
// and the goroutine asks. There may be a debug record for each attempt.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.queue.takesDebug()
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	h.queue.put(entry{h.next, context.WithoutCancel(ctx), r.Clone()})
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.queue, h.next.WithAttrs(attrs)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.queue, h.next.WithGroup(name)}
}
