package apitest

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// slowCounts is a store with slow exchanges. Counts come quickly twice after an exchange,
// when other chores ask for them, and then after the answer of the next one.
type slowCounts struct {
	*sqlite.Store
	mu        sync.Mutex
	counted   int           // since the last exchange
	exchanged chan struct{} // closed by the end of the next exchange
}

func (s *slowCounts) Counts(ctx context.Context) ([]storage.Count, error) {
	counts, err := s.Store.Counts(ctx)
	s.mu.Lock()
	s.counted++
	wait, next := s.counted > 2, s.exchanged
	s.mu.Unlock()
	if wait {
		select {
		case <-next:
			time.Sleep(time.Millisecond) // for the loop to take the answer
		case <-time.After(time.Second):
		}
	}
	return counts, err
}

func (s *slowCounts) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	time.Sleep(5 * time.Millisecond) // counts that were asked for meanwhile are read before
	res, err := s.Store.Exchange(ctx, now, x)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.exchanged)
	s.counted, s.exchanged = 0, make(chan struct{})
	return res, err
}

// briefly is a gate that is open, and has to be asked again every 15 s.
type briefly struct{}

func (briefly) State() (bool, string, <-chan struct{}) {
	again := make(chan struct{})
	time.AfterFunc(15*time.Second, func() { close(again) })
	return true, "", again
}

// A job behind a gate that has to be asked again becomes due. The counts which say that
// there is need to ask were read before an exchange for another kind made the job ready,
// and come after it.
func TestGate_countsFromBeforeAnExchange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		quiet := slog.New(slog.DiscardHandler)
		store, err := sqlite.Open(path, &sqlite.Options{Durability: sqlite.Relaxed, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		q, err := errand.New(t.Context(), &slowCounts{Store: store, exchanged: make(chan struct{})}, &errand.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		w := errand.NewWorker(q, nil)
		const retries = 5
		n, done := 0, make(chan struct{})
		fails := func(context.Context, *errand.Job[errand.RawArgs]) error {
			if n++; n == 1+retries {
				close(done)
			}
			return errors.New("fails")
		}
		minute := policy.Policy{Retries: retries, MinDelay: time.Minute, MaxDelay: time.Minute, Jitter: policy.NoJitter}
		errand.HandleRaw(w, "gated", fails, errand.HandlerOptions{Gate: briefly{}, Policy: minute})
		errand.HandleRaw(w, "other", fails)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		if _, err := q.Enqueue(ctx, errand.RawArgs{OfKind: "gated"}, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-time.After(time.Hour):
			t.Errorf("%d attempts in an hour", n)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
