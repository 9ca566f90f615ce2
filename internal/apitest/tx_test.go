package apitest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// anyTxQueue returns a queue on a store whose transactions are no [database/sql.Tx].
func anyTxQueue(t *testing.T) (*errand.Queue, storage.TxEnqueuer) {
	t.Helper()
	s := storagetest.NewMemory().Open()
	q := must(errand.New(t.Context(), s, &errand.Options{Logger: quiet}))
	t.Cleanup(func() { check(q.Close()) })
	return q, s.(storage.TxEnqueuer)
}

func within(of, tx any) door.Tx[errand.NewJob] { return must(door.Within[errand.NewJob](of, tx)) }

// What the door does in a transaction of the store's own type is there if that commits.
func TestDoor_Within(t *testing.T) {
	q, s := anyTxQueue(t)
	ctx, oops := t.Context(), errors.New("oops")
	waits := enqueue(t, q, note{"waits", 1}, nil)
	first := enqueue(t, q, note{"first", 1}, &errand.JobOptions{Group: "g", Queue: "mail"})
	for _, fails := range []error{oops, nil} {
		var added errand.Enqueued
		err := s.Tx(ctx, func(tx any) error {
			in := within(q, tx)
			added = must(in.Enqueue(ctx, errand.NewJob{Args: note{"added", 1}}))
			if state, err := in.Cancel(ctx, waits); err != nil || state != errand.Cancelled {
				t.Errorf("Cancel returned %q, %v", state, err)
			}
			topics := must(in.Topics())
			must(topics.Publish(ctx, []door.Publication[errand.NewJob]{delivery("a", 1)}))
			e := storage.Entry{Class: "topic", Name: "orders", Family: "orders", Doc: []byte("{}")}
			revision := must(topics.PutEntries(ctx, []storage.Entry{e}))
			if e := must(topics.Entry(ctx, e.Class, e.Name)); e.Revision != revision {
				t.Errorf("the entry has revision %d, want %d", e.Revision, revision)
			}
			if all, of, err := topics.Entries(ctx, e.Class, e.Family, "", 9); err != nil || len(all) != 1 || of != revision {
				t.Errorf("Entries returned %+v, %d, %v", all, of, err)
			}
			check(topics.Configure(ctx, "mail", storage.Settings{storage.SettingMaxJobs: 1}))
			return fails
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
		committed := fails == nil
		if _, err := q.Job(ctx, added.ID); (err == nil) != committed {
			t.Errorf("committed: %t; the job that was added: %v", committed, err)
		}
		if got := lookUp(t, q, waits).State; (got == errand.Cancelled) != committed {
			t.Errorf("committed: %t; the job that was cancelled is %s", committed, got)
		}
		topics := topicsOf(t, q)
		if _, err := topics.Message(ctx, "a"); (err == nil) != committed {
			t.Errorf("committed: %t; the message: %v", committed, err)
		}
		if _, err := topics.Entry(ctx, "topic", "orders"); (err == nil) != committed {
			t.Errorf("committed: %t; the entry: %v", committed, err)
		}
		_, err = q.Enqueue(ctx, note{"second", 1}, &errand.JobOptions{Queue: "mail", Group: "g"})
		if errors.Is(err, errand.ErrQueueFull) != committed {
			t.Errorf("committed: %t; Enqueue beside %v returned %v", committed, first, err)
		}
	}
}

// A job is completed in a transaction of the store's own type, and where it has got to is kept.
func TestDoor_Within_job(t *testing.T) {
	q, s := anyTxQueue(t)
	oops := errors.New("oops")
	id := enqueue(t, q, note{}, nil)
	var all []int // where the attempts began
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[note]) error {
		var at int
		must(job.Resume(&at))
		all = append(all, at)
		var declined error // by the first attempt, after it has done the same
		if job.Attempt == 1 {
			declined = oops
			check(s.Tx(ctx, func(tx any) error { return within(job, tx).Checkpoint(ctx, 7) }))
		}
		err := s.Tx(ctx, func(tx any) error {
			in := within(job, tx)
			check(in.Checkpoint(ctx, 8))
			check(in.Complete(ctx))
			return declined
		})
		if !errors.Is(err, declined) {
			t.Errorf("Tx returned %v, want %v", err, declined)
		}
		if declined != nil {
			return errand.Snooze(0, declined)
		}
		return nil
	}, errand.HandlerOptions{})
	stop := run(t, w)
	_, err := errand.Await[any](t.Context(), q, id)
	if err := errors.Join(stop(), err); !errors.Is(err, errand.ErrNoResult) {
		t.Fatal(err)
	}
	if j := lookUp(t, q, id); j.State != errand.Done || !slices.Equal(all, []int{0, 7}) {
		t.Errorf("the job is %s, its attempts began at %v", j.State, all)
	}
}

func TestDoor_Within_faults(t *testing.T) {
	q, s := anyTxQueue(t)
	ctx := t.Context()
	for _, of := range []any{7, (*errand.Queue)(nil), *new(errand.Job[note])} {
		if _, err := door.Within[errand.NewJob](of, 1); err == nil {
			t.Errorf("the door of %T was opened", of)
		}
	}
	if _, err := door.Within[int](q, 1); err == nil {
		t.Error("a door for other jobs was opened")
	}
	_, err := door.Within[errand.NewJob](q, nil)
	wantFaults(t, err, fault{"tx", "nil", "must not be nil"})
	if _, err := door.Within[errand.NewJob](new(errand.Job[note]), 1); !errors.Is(err, errand.ErrNoAttempt) {
		t.Errorf("a job that no worker runs: %v", err)
	}
	bare := must(errand.New(ctx, storagetest.NewMemory().OpenBare(), nil))
	defer bare.Close()
	if _, err := door.Within[errand.NewJob](bare, 1); !errors.Is(err, errand.ErrUnsupportedDB) {
		t.Errorf("a store without transactions: %v", err)
	}
	in := within(q, 1) // which is a transaction on no database
	if _, err := in.Enqueue(ctx, errand.NewJob{Args: note{}}); !errors.Is(err, errand.ErrWrongDatabase) {
		t.Errorf("Enqueue: %v", err)
	}
	if _, err := in.Enqueue(ctx, errand.NewJob{Args: note{}, Options: &errand.JobOptions{Priority: 101}}); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("Enqueue with a bad priority: %v", err)
	}
	if err := errors.Join(s.Tx(ctx, func(tx any) error { return within(q, tx).Complete(ctx) })); !errors.Is(err, errand.ErrNoAttempt) {
		t.Errorf("Complete of a queue: %v", err)
	}
	if err := in.Checkpoint(ctx, 1); !errors.Is(err, errand.ErrNoAttempt) {
		t.Errorf("Checkpoint of a queue: %v", err)
	}
	wantNothing(t, q)
}
