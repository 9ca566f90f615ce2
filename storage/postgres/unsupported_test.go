package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

type refusedArgs struct{ N int }

func (refusedArgs) Kind() string { return "refused" }

type fineArgs struct{}

func (fineArgs) Kind() string { return "fine" }

// A handler that returns "connection refused" costs its job nothing, and its worker goes on.
func TestStore_ConnectionRefused(t *testing.T) {
	ctx, d := t.Context(), newDB(t)
	q, err := errand.New(ctx, d.open(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w := errand.NewWorker(q, nil)
	var tries atomic.Int32
	refused, again, fine := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	errand.Handle(w, func(context.Context, *errand.Job[refusedArgs]) error {
		if tries.Add(1) == 1 {
			close(refused)
			return fmt.Errorf("dial tcp 192.0.2.1:80: %w", syscall.ECONNREFUSED)
		}
		close(again)
		return nil
	})
	errand.Handle(w, func(context.Context, *errand.Job[fineArgs]) error { fine <- struct{}{}; return nil })
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(run) }()
	one, err := q.Enqueue(ctx, refusedArgs{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-refused:
	case err := <-ended:
		t.Fatalf("the worker has stopped: %v", err)
	}
	if _, err := q.Enqueue(ctx, fineArgs{}, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []chan struct{}{fine, again} {
		select {
		case <-c:
		case err := <-ended:
			t.Fatalf("the worker has stopped: %v", err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	job, err := q.Job(ctx, one.ID)
	if err != nil || job.State != errand.Done || job.Attempt != 2 || job.Retry != 0 {
		t.Errorf("the job: %+v, %v; want it done in its second attempt, without a retry", job, err)
	}
}

// What the Store lacks is said by every call that asks for it, and by Run before it leases.
func TestStore_Lacking(t *testing.T) {
	ctx, d := t.Context(), newDB(t)
	q, err := errand.New(ctx, d.open(), &errand.Options{Queues: map[string]errand.QueueOptions{"small": {Settings: errand.Settings{MaxJobs: new(3)}}}})
	if err != nil {
		t.Fatal(err)
	}
	says := func(what, name string, err error) {
		t.Helper()
		if !errors.Is(err, storage.ErrLacking) || !strings.HasSuffix(err.Error(), "the store lacks: "+name) {
			t.Errorf("%s returned %v, want that the store lacks %s", what, err, name)
		}
	}
	says("Configure", "max_bytes, max_jobs", q.Configure(ctx, errand.Lane{}, errand.Settings{MaxJobs: new(3), MaxBytes: new(int64(1000)), GroupLimit: nil}))
	_, err = q.Enqueue(ctx, fineArgs{}, &errand.JobOptions{Tags: []string{"t"}})
	says("Enqueue", "tags", err)
	_, err = q.Enqueue(ctx, fineArgs{}, &errand.JobOptions{StartWithin: time.Hour})
	says("Enqueue", string(storage.FeatureWindows), err)
	says("Pause", "Hold", q.Pause(ctx, "small"))
	if err := q.Configure(ctx, errand.Lane{Queue: "small"}, errand.Settings{GroupLimit: new(2)}); err != nil {
		t.Error(err)
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"small"}})
	errand.HandleMany(w, func(context.Context, []*errand.Job[fineArgs]) error { return nil }, errand.BatchOptions{Max: 10, ByGroup: true})
	says("Run", string(storage.FeatureTogether)+", max_jobs", w.Run(ctx))
	all, err := q.Settings(ctx)
	if err != nil || len(all) != 1 || all[0].MaxJobs != nil {
		t.Errorf("settings: %+v, %v", all, err)
	}
}

// A method that is not there yet says so, also if nobody has listed it.
func TestStore_Missing(t *testing.T) {
	if err := postgres.Missing("Nobody"); !errors.Is(err, storage.ErrLacking) {
		t.Errorf("%v, want ErrLacking", err)
	}
}
