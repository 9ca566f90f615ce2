package apitest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/storagetest"
)

// A queue goes by the clock of a store that has one, whatever its machine's shows: its jobs, its
// schedules and its own time. Only that clock can set the time back.
func TestQueue_ClockOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var off time.Duration // of the machine's clock
		db, ahead := storagetest.NewServer(), 90*time.Minute
		db.SetAhead(ahead)
		store := db.Open()
		if _, err := store.Counts(t.Context()); err != nil { // an answer, as opening brings one
			t.Fatal(err)
		}
		q, err := errand.New(t.Context(), store, &errand.Options{
			Clock: func() time.Time { return time.Now().Add(off) }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		is := func(want time.Duration, jumps int64) {
			t.Helper()
			if c := q.Clock(); !c.Now.Equal(time.Now().Add(want)) || !c.Plausible || c.Jumps != jumps {
				t.Errorf("%+v, %v ahead: want %v, %d jumps", c, time.Until(c.Now), want, jumps)
			}
		}
		is(ahead, 0)
		began := time.Now()
		added, err := q.Enqueue(t.Context(), note{}, &errand.JobOptions{Delay: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		info, err := q.Job(t.Context(), added.ID)
		if err != nil || !info.DueAt.Equal(began.Add(ahead+10*time.Minute)) || !info.CreatedAt.Equal(began.Add(ahead)) {
			t.Errorf("the job is %+v, %v", info, err)
		}
		w := errand.NewWorker(q, nil)
		var after time.Duration
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			after = time.Since(began)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		for _, off = range []time.Duration{-day, 365 * day, time.Minute} {
			time.Sleep(time.Minute)
			is(ahead, 0)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if after != 10*time.Minute {
			t.Errorf("the job has started after %v, want 10m", after)
		}
		db.SetAhead(0)
		is(ahead, 0) // nobody has heard of it
		if _, err := q.Counts(t.Context()); err != nil {
			t.Fatal(err)
		}
		is(0, 1)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, text := range []string{`msg="errand: the store's clock has jumped"`, `msg="errand: the queue's time goes back to the store's clock"`} {
			if strings.Count(log.String(), text) != 1 {
				t.Errorf("the log does not say %s once:\n%s", text, log.String())
			}
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
