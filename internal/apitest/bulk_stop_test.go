package apitest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// slowStore is a store that takes its time for what bulk jobs and engines ask of it.
type slowStore struct {
	storage.Store
	storage.Notifier
	change, purge atomic.Int64 // nanoseconds
}

func slowQueue(t *testing.T) (*errand.Queue, *slowStore) {
	t.Helper()
	store := storagetest.NewMemory().Open()
	s := &slowStore{Store: store, Notifier: store.(storage.Notifier)}
	return must(errand.New(t.Context(), s, &errand.Options{Logger: quiet})), s
}

func (s *slowStore) Change(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
	time.Sleep(time.Duration(s.change.Load()))
	return s.Store.Change(ctx, now, sel, e)
}

func (s *slowStore) PurgeFinished(ctx context.Context, now time.Time) (int, time.Time, error) {
	time.Sleep(time.Duration(s.purge.Load()))
	return s.Store.PurgeFinished(ctx, now)
}

// Shutdown returns when the bulk job has been given back too: the queue may be closed then.
func TestWorker_Shutdown_bulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, s := slowQueue(t)
		enqueue(t, q, note{}, &errand.JobOptions{Delay: time.Hour})
		s.change.Store(int64(2 * time.Second))
		id := startBulk(t, q, errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{All: true}})
		w := errand.NewWorker(q, nil)
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		time.Sleep(500 * time.Millisecond)
		if err := w.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if b := theBulk(t, q, id); b.State == errand.Running {
			t.Errorf("after Shutdown the bulk job is %+v", b)
		}
		check(<-ended)
	})
}

// A bulk job that does not end although it has to is told of as a handler is.
func TestWorker_Run_bulkStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, s := slowQueue(t)
		enqueue(t, q, note{}, &errand.JobOptions{Delay: time.Hour})
		s.change.Store(int64(20 * time.Minute))
		startBulk(t, q, errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{All: true}})
		w := errand.NewWorker(q, nil)
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		time.Sleep(500 * time.Millisecond)
		if err := w.Shutdown(t.Context()); !errors.Is(err, errand.ErrStuck) {
			t.Errorf("Shutdown returned %v", err)
		}
		if err := <-ended; !errors.Is(err, errand.ErrStuck) {
			t.Errorf("Run returned %v", err)
		}
		time.Sleep(time.Hour)
	})
}

// After a store that stood still for longer than a lease, bulk jobs go on.
func TestBulk_storeHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, s := slowQueue(t)
		ctx := t.Context()
		idle(t, q)
		check(q.Pause(ctx, "errand.bulk"))
		s.purge.Store(int64(45 * time.Second))
		all := errand.Bulk{Do: errand.BulkDelete, Filter: errand.JobFilter{All: true}}
		id := startBulk(t, q, all)
		time.Sleep(time.Second)
		must(q.Cancel(ctx, id))
		time.Sleep(2 * time.Minute)
		s.purge.Store(0)
		check(q.Resume(ctx, "errand.bulk"))
		id = startBulk(t, q, all)
		time.Sleep(time.Minute)
		if b := theBulk(t, q, id); b.State != errand.Done {
			t.Errorf("the next bulk job is %+v", b)
		}
	})
}

// The args of a bulk job that another version has started are done in full or not at all.
func TestBulk_otherVersion(t *testing.T) {
	for args, want := range map[string]string{
		`{}`:              "do",
		`{"do":"delete"}`: "no jobs are selected",
		`{"do":"explode","filter":{"states":["dead"]}}`:            "do",
		`{"do":"delete","filter":{"states":["dead"],"size":7}}`:    "size",
		`{"do":"delete","filter":{"states":["dead"]},"most":1}`:    "most",
		`{"do":"change","filter":{"states":["scheduled"]}}`:        "edit",
		`{"do":"delete","filter":{"states":["dead"]},"ids":["x"]}`: "",
	} {
		synctest.Test(t, func(t *testing.T) {
			q, store := memoryQueue(t, errand.Options{Policy: once, Queues: unbraked})
			killNotes(t, q, 5)
			added := must(store.Enqueue(t.Context(), time.Now(), []storage.NewJob{{
				Queue: storage.BulkQueue, Kind: storage.BulkQueue, Group: storage.BulkQueue, Args: []byte(args),
			}}))
			idle(t, q)
			time.Sleep(time.Minute)
			j := lookUp(t, q, added[0].ID)
			if j.State != errand.Dead || !strings.Contains(j.Error, want) || notesIn(t, q, errand.Dead) != 5 {
				t.Errorf("%s: %s, %q, %d jobs are left", args, j.State, j.Error, notesIn(t, q, errand.Dead))
			}
		})
	}
}

// The end of a bulk job is not logged as that of the worker that has done it.
func TestBulk_log(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: once, Queues: unbraked})
		killNotes(t, q, 5)
		var log bytes.Buffer
		stop := run(t, errand.NewWorker(q, &errand.WorkerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
		id := startBulk(t, q, errand.Bulk{Do: errand.BulkDelete, Filter: errand.JobFilter{States: []errand.State{errand.Dead}}})
		bulkEnded(t, q, id)
		time.Sleep(time.Minute)
		if strings.Contains(log.String(), "worker is stopping") {
			t.Errorf("before the end: %s", log.String())
		}
		if err := stop(); err != nil || strings.Count(log.String(), "worker is stopping") != 1 {
			t.Errorf("at the end: %v, %s", err, log.String())
		}
	})
}
