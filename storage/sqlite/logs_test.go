package sqlite_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// outbox is a slog.Handler that enqueues a job for each record.
type outbox struct {
	slog.Handler
	store atomic.Pointer[sqlite.Store] // nil while that is being opened
	sent  chan error
}

func (o *outbox) Enabled(context.Context, slog.Level) bool { return true }

func (o *outbox) Handle(context.Context, slog.Record) error {
	s := o.store.Load()
	if s == nil {
		return nil
	}
	_, err := s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("default", "log")})
	o.sent <- err
	return nil
}

//errand:shows a logger that enqueues | | the Store calls its logger from a goroutine of its own; 64 records wait, further ones are counted
func TestLogs_LoggerThatEnqueues(t *testing.T) {
	box := &outbox{sent: make(chan error, 10)}
	d := newDB(t, &sqlite.Options{Logger: slog.New(box)})
	s := d.open()
	box.store.Store(s)
	enqueue(t, s, "a", 1)
	held := lease(t, s, 1, "a")[0].Lease
	full := 2                  // first the log is cut
	s.Fault(func(bool) error { // so that the writer logs that the ballast is given up
		if full > 0 {
			full--
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
