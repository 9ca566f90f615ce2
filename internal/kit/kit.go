// Package kit is what examples and tests of the public API share.
package kit

import (
	"context"
	"log" //nolint:depguard // the default of slog writes by it
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/errandq/errand"
)

// TempQueue opens a queue in a folder of its own, without a log, and returns what closes it and
// removes the folder. Each panics on an error, as examples have no test to fail.
func TempQueue(o *errand.Options) (q *errand.Queue, remove func()) {
	var options errand.Options
	if o != nil {
		options = *o
	}
	options.Logger = slog.New(slog.DiscardHandler)
	dir, err := os.MkdirTemp("", "errand-example-")
	if err != nil {
		panic(err)
	}
	q, err = errand.Open(context.Background(), filepath.Join(dir, "jobs.db"), &options)
	if err != nil {
		panic(err)
	}
	return q, func() {
		if err := q.Close(); err != nil {
			panic(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			panic(err)
		}
	}
}

// HeedSignals has the programs that this process starts heed the signals that ask a program to
// stop, where this process ignores them: as those of nohup do, and of a script in the background.
// [errand.StopSignals] leaves these out.
func HeedSignals() {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// LogLines has the lines that this process logs by package log, or by the default of slog, come
// by a channel, until restore is called. Nobody waits for a reader: what has no room is dropped.
func LogLines() (lines <-chan string, restore func()) {
	was, l := log.Writer(), make(lineWriter, 1000)
	log.SetOutput(l)
	return l, func() { log.SetOutput(was) }
}

type lineWriter chan string

// Write sends a line: package log writes each at once.
func (l lineWriter) Write(b []byte) (int, error) {
	select {
	case l <- strings.TrimSuffix(string(b), "\n"):
	default:
	}
	return len(b), nil
}

// After waits for a line with a mark, and returns the rest of the line.
func After(lines <-chan string, mark string) string {
	for {
		if _, rest, ok := strings.Cut(<-lines, mark); ok {
			return rest
		}
	}
}

// TimeoutInBubbles returns a [context.WithTimeout] whose limits hold in the bubbles of package
// synctest alone, whose clocks begin in the year 2000: by the real clock the verdict of a test
// would hang on what else the machine does.
func TimeoutInBubbles() func(context.Context, time.Duration) (context.Context, context.CancelFunc) {
	began := time.Now()
	return func(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
		if since := time.Now().Round(0).Sub(began.Round(0)); since >= 0 && since < 24*time.Hour {
			return context.WithCancel(ctx)
		}
		return context.WithTimeout(ctx, limit)
	}
}

// Work runs a worker of q until n attempts have ended, and what became of their jobs is written.
func Work(q *errand.Queue, w *errand.Worker, n int) {
	WorkUntil(q, w, func() bool { n--; return n == 0 })
}

// WorkUntil runs a worker of q until over is true after the end of an attempt, and what became of
// its job is written.
func WorkUntil(q *errand.Queue, w *errand.Worker, over func() bool) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended, err := q.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{
		errand.EventDone, errand.EventRetried, errand.EventSnoozed, errand.EventUnavailable, errand.EventCancelled, errand.EventDead,
	}}, 1000)
	if err != nil {
		panic(err)
	}
	go func() {
		for range ended.Events() {
			if over() {
				stop() // which closes the channel
			}
		}
	}()
	if err := w.Run(ctx); err != nil {
		panic(err)
	}
}
