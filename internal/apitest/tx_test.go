package apitest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
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

// Held says in a transaction why the job cannot be ended there, and the transaction goes on.
func TestDoor_Held(t *testing.T) {
	ctx := context.Background()
	for what, c := range map[string]struct {
		before func(s *shop, job *errand.Job[charge]) error
		want   error
	}{
		"held": {func(*shop, *errand.Job[charge]) error { return nil }, nil},
		"cancelled": {func(s *shop, job *errand.Job[charge]) error {
			_, err := s.q.Cancel(ctx, job.ID)
			return err
		}, errand.ErrCancelled},
		"finished": {func(_ *shop, job *errand.Job[charge]) error {
			return job.Finish(ctx, func(*sql.Tx) error { return nil })
		}, errand.ErrFinished},
		"lost": {func(s *shop, _ *errand.Job[charge]) error { return s.giveBack() }, errand.ErrLeaseLost},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, errand.Options{})
			w := errand.NewWorker(s.q, nil)
			held, ended := make(chan error, 1), make(chan error, 1)
			again := false
			errand.Handle(w, func(_ context.Context, job *errand.Job[charge]) error {
				if again {
					return nil
				}
				again = true
				err := c.before(s, job)
				if err != nil {
					ended <- err
					return err
				}
				ended <- s.q.Tx(ctx, func(tx *sql.Tx) error {
					held <- within(job, tx).Held(ctx)
					return writeReceipt(tx, 1)
				})
				return nil
			})
			enqueue(t, s.q, charge{1}, nil)
			stop := run(t, w)
			if err := errors.Join(<-ended, stop()); err != nil {
				t.Fatal(err)
			}
			if err := <-held; !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("Held returned %v, want %v", err, c.want)
			}
			if n := s.receipts(1); n != 1 {
				t.Errorf("%d rows are there, want that of the transaction", n)
			}
		})
	}
}

// giveBack ends all leases, as a process may that takes their holder for dead.
func (s *shop) giveBack() error {
	var l storage.Lease
	if err := s.db.QueryRow("SELECT id, token FROM errand_job WHERE state = 3").Scan(&l.Key, &l.Token); err != nil {
		return err
	}
	store, err := sqlite.Open(s.path, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{{Lease: l, Outcome: storage.OutcomeReturned}}}
	_, err = store.Exchange(context.Background(), time.Now(), x)
	return err
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

// What EnqueueMany refuses EnqueueManyTx refuses with the same words. The transaction has none of the
// jobs of such a call, and goes on: only an error of its function takes back all.
//
//errand:shows many jobs in a transaction | | a call that is refused leaves none of its jobs and the transaction open; answers are in order; a rollback takes all back
func TestEnqueueManyTx(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db := must(sqlite.OpenDB(path))
	defer db.Close()
	q := must(errand.New(t.Context(), must(sqlite.New(db, nil)), &errand.Options{Logger: quiet}))
	defer q.Close()
	two := errand.Settings{MaxJobs: new(2)}
	check(q.Configure(t.Context(), errand.Lane{Queue: "full"}, two))

	oops, full := errors.New("oops"), &errand.JobOptions{Queue: "full"}
	many := func(n int, o *errand.JobOptions) (jobs []errand.NewJob) {
		for i := range n {
			jobs = append(jobs, errand.NewJob{Args: note{N: i}, Options: o})
		}
		return jobs
	}
	once := &errand.JobOptions{Unique: &errand.Unique{Key: "once"}, Group: "g"}
	call := func(tx *sql.Tx) (added []errand.Enqueued) {
		ctx := t.Context()
		none, err := q.EnqueueManyTx(ctx, tx, nil)
		if none != nil || err != nil {
			t.Errorf("no jobs: %v, %v", none, err)
		}
		bad := many(3, nil)
		bad[1].Options = &errand.JobOptions{Priority: 101}
		_, err = q.EnqueueManyTx(ctx, tx, bad)
		wantFaults(t, err, fault{"jobs[1].priority", "101", "must be between -100 and 100"})
		_, same := q.EnqueueMany(ctx, many(10_001, nil))
		if _, err := q.EnqueueManyTx(ctx, tx, many(10_001, nil)); err == nil || err.Error() != same.Error() {
			t.Errorf("too many jobs: %v, want %v", err, same)
		}
		refused := (*errand.QueueFullError)(nil)
		if _, err := q.EnqueueManyTx(ctx, tx, many(3, full)); !errors.As(err, &refused) {
			t.Errorf("more than MaxJobs: %v", err)
		}
		jobs := append(many(2, full), many(2, once)...)
		added, err = q.EnqueueManyTx(ctx, tx, jobs)
		check(err)
		if len(added) != 4 || added[0].Duplicate || added[2].Duplicate || !added[3].Duplicate || added[3].ID != added[2].ID {
			t.Errorf("the answers are %+v", added)
		}
		return added
	}

	err := q.Tx(t.Context(), func(tx *sql.Tx) error { call(tx); return oops })
	if !errors.Is(err, oops) {
		t.Error(err)
	}
	wantNothing(t, q)
	tx := must(db.BeginTx(t.Context(), nil))
	call(tx)
	check(tx.Rollback())
	wantNothing(t, q)

	tx = must(db.BeginTx(t.Context(), nil))
	added := call(tx)
	check(tx.Commit())
	var n int64
	for _, c := range must(q.Counts(t.Context())) {
		n += c.N
	}
	if n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
	for i, n := range []int{0, 1, 0} {
		j := lookUp(t, q, added[i].ID)
		if want := fmt.Sprintf(`"N":%d`, n); !strings.Contains(string(j.Args), want) {
			t.Errorf("job %d has args %s, want %s", i, j.Args, want)
		}
	}
	if j := lookUp(t, q, added[2].ID); j.Group != "g" {
		t.Errorf("the group is %q", j.Group)
	}
	err = openQueue(t, nil).Tx(t.Context(), func(tx *sql.Tx) error {
		_, err := q.EnqueueManyTx(t.Context(), tx, many(2, nil))
		return err
	})
	if !errors.Is(err, errand.ErrWrongDatabase) {
		t.Errorf("a transaction of another queue: %v", err)
	}
	_, err = q.EnqueueManyTx(t.Context(), nil, many(2, nil))
	wantFaults(t, err, fault{"tx", "nil", "must not be nil"})
}
