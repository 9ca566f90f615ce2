package sqlite_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// outbox is a slog.Handler that enqueues a job for each record.
type outbox struct {
	slog.Handler
	store *sqlite.Store
	sent  chan error
}

func (o *outbox) Enabled(context.Context, slog.Level) bool { return true }

func (o *outbox) Handle(context.Context, slog.Record) error {
	_, err := o.store.Enqueue(context.Background(), t0, []storage.NewJob{newJob("default", "log")})
	o.sent <- err
	return nil
}

func TestLogs_LoggerThatEnqueues(t *testing.T) {
	box := &outbox{sent: make(chan error, 10)}
	d := newDB(t, &sqlite.Options{Logger: slog.New(box)})
	s := d.open()
	box.store = s
	enqueue(t, s, "a", 1)
	held := lease(t, s, 1, "a")[0].Lease
	full := true
	s.Fault(func(bool) error { // once, so that the writer logs that the ballast is given up
		if full {
			full = false
			return storage.ErrFull
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Extend: []storage.Lease{held}})
		done <- err
	}()
	for range 2 {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case err := <-box.sent:
			if !errors.Is(err, storage.ErrFull) {
				t.Errorf("enqueued by the logger: %v, want what others get", err)
			}
		case <-ctx.Done():
			t.Fatal("the writer waits for a logger that waits for the writer")
		}
	}
}

// slowLog takes a record each time it is let.
type slowLog struct {
	slog.Handler
	begun, goOn chan struct{}
	said        []string
}

func (l *slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *slowLog) Handle(_ context.Context, r slog.Record) error {
	l.begun <- struct{}{}
	<-l.goOn
	r.Attrs(func(a slog.Attr) bool {
		l.said = append(l.said, r.Message+" "+a.Value.String())
		return true
	})
	return nil
}

func TestLogs_SlowLogger(t *testing.T) {
	slow := &slowLog{Handler: slog.DiscardHandler, begun: make(chan struct{}, 200), goOn: make(chan struct{})}
	log, wait := sqlite.Logs(slog.New(slow))
	log.Warn("record", "n", 0)
	<-slow.begun
	for n := range 100 {
		log.Warn("record", "n", n+1)
	}
	close(slow.goOn)
	wait()
	last := len(slow.said) - 1
	if last != 65 || slow.said[last] != "errand: the logger is slow, records were dropped 36" || slow.said[last-1] != "record 64" {
		t.Errorf("%d records, the last: %q", len(slow.said), slow.said[max(last-1, 0):])
	}
}
