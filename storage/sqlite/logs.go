package sqlite

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxLogs is how many records wait for the application's logger at most.
const maxLogs = 64

// logs hands records to the application's logger from a goroutine of its own. Most
// records come from the writer, or from a goroutine that has the turn. A logger that
// enqueues, for example to send records by jobs, would wait for a goroutine that
// waits for the logger. The goroutine of logs runs only while records wait.
type logs struct {
	mu      sync.Mutex
	waiting []logged
	dropped int
	idle    chan struct{} // closed when the goroutine has ended; nil if there is none
}

type logged struct {
	to     slog.Handler
	ctx    context.Context
	record slog.Record
}

// logger returns a logger that logs to log by way of l.
func (l *logs) logger(log *slog.Logger) *slog.Logger {
	return slog.New(&logsHandler{l, log.Handler()})
}

func (l *logs) put(r logged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == maxLogs {
		l.dropped++
		return
	}
	l.waiting = append(l.waiting, r)
	if l.idle == nil {
		l.idle = make(chan struct{})
		go l.run()
	}
}

func (l *logs) run() {
	for {
		r, ok := l.next()
		if !ok {
			return
		}
		_ = r.to.Handle(r.ctx, r.record) // as package slog does with it
	}
}

// next takes the first record. If it is the last, a record follows that says how many
// were dropped.
func (l *logs) next() (r logged, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		close(l.idle)
		l.idle, l.waiting = nil, nil
		return r, false
	}
	r = l.waiting[0]
	l.waiting = l.waiting[1:]
	if len(l.waiting) == 0 && l.dropped > 0 {
		lost := slog.NewRecord(time.Now(), slog.LevelWarn, "errand: the logger is slow, records were dropped", 0)
		lost.AddAttrs(slog.Int("records", l.dropped))
		l.waiting = append(l.waiting, logged{r.to, context.Background(), lost})
		l.dropped = 0
	}
	return r, true
}

// wait waits until all records were handed over.
func (l *logs) wait() {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// logsHandler is a [slog.Handler] that leaves its records with logs.
type logsHandler struct {
	logs *logs
	next slog.Handler
}

func (h *logsHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *logsHandler) Handle(ctx context.Context, r slog.Record) error {
	h.logs.put(logged{h.next, context.WithoutCancel(ctx), r.Clone()})
	return nil
}

func (h *logsHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logsHandler{h.logs, h.next.WithAttrs(attrs)}
}

func (h *logsHandler) WithGroup(name string) slog.Handler {
	return &logsHandler{h.logs, h.next.WithGroup(name)}
}
