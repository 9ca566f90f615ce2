package apitest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// place is where a copy has got to.
type place struct{ Offset int }

// attempts runs a job of charge with the handlers one after the other, until it has ended, and
// returns it. The retries are 10 ms apart.
func (s *shop) attempts(o *errand.JobOptions, all ...func(ctx context.Context, job *errand.Job[charge]) error) errand.JobInfo {
	s.t.Helper()
	w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[charge]) error {
		return all[min(job.Attempt, len(all))-1](ctx, job)
	}, errand.HandlerOptions{Policy: &policy.Policy{Retries: 50, NoDelayRetries: 50}})
	added := must(s.q.Enqueue(s.t.Context(), charge{1}, o))
	run(s.t, w)
	_, err := errand.Await[any](s.t.Context(), s.q, added.ID)
	if err != nil && !errors.Is(err, errand.ErrNoResult) && !errors.Is(err, errand.ErrDead) && !errors.Is(err, errand.ErrCancelled) {
		s.t.Fatal(err)
	}
	return must(s.q.Job(s.t.Context(), added.ID))
}

// resumed returns where a job has got to before its attempt.
func resumed(job *errand.Job[charge]) string {
	var at place
	if !must(job.Resume(&at)) {
		return "nowhere"
	}
	return fmt.Sprint(at.Offset)
}

// A job goes on where its last checkpoint was, whatever has ended the attempt.
func TestJob_Checkpoint(t *testing.T) {
	t.Parallel()
	type handler = func(s *shop, ctx context.Context, job *errand.Job[charge]) error
	at := func(n int, err error) handler {
		return func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			return errors.Join(job.Checkpoint(ctx, place{n}), err)
		}
	}
	for name, c := range map[string]struct {
		run  handler // the first attempt
		want string  // where the second begins
	}{
		"none":    {func(*shop, context.Context, *errand.Job[charge]) error { return errDeclined }, "nowhere"},
		"failed":  {at(7, errDeclined), "7"},
		"snoozed": {at(7, errand.Snooze(time.Millisecond, errDeclined)), "7"},
		"panicked": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			check(job.Checkpoint(ctx, place{7}))
			panic("no")
		}, "7"},
		"two": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			check(job.Checkpoint(ctx, place{7}))
			check(job.Checkpoint(ctx, place{8}))
			if got := resumed(job); got != "nowhere" {
				panic("resumed in the same attempt: " + got)
			}
			return errDeclined
		}, "8"},
		"in Tx": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			check(s.q.Tx(ctx, func(tx *sql.Tx) error { return job.CheckpointTx(ctx, tx, place{7}) }))
			return errDeclined
		}, "7"},
		"in Tx that is rolled back": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return s.q.Tx(ctx, func(tx *sql.Tx) error { return errors.Join(job.CheckpointTx(ctx, tx, place{7}), errDeclined) })
		}, "nowhere"},
		"in the application's": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			tx := must(s.db.Begin())
			check(job.CheckpointTx(ctx, tx, place{7}))
			return errors.Join(tx.Commit(), errDeclined)
		}, "7"},
		"in the application's that is rolled back": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			tx := must(s.db.Begin())
			check(job.CheckpointTx(ctx, tx, place{7}))
			return errors.Join(tx.Rollback(), errDeclined)
		}, "nowhere"},
		"in Finish": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return job.Finish(ctx, func(*sql.Tx) error {
				if err := job.Checkpoint(ctx, place{7}); !errors.Is(err, errand.ErrBusy) {
					panic(fmt.Sprint("Checkpoint in Finish: ", err))
				}
				return errDeclined
			})
		}, "nowhere"},
		"after Finish that was rolled back": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			err := job.Finish(ctx, func(tx *sql.Tx) error { return errDeclined })
			return errors.Join(err, job.Checkpoint(ctx, place{7}), job.SetResult(7))
		}, "7"},
		"after CompleteTx that was rolled back": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			err := s.q.Tx(ctx, func(tx *sql.Tx) error { return errors.Join(job.CompleteTx(ctx, tx), errDeclined) })
			if job.SetResult(7) == nil {
				panic("SetResult after CompleteTx")
			}
			return errors.Join(err, job.Checkpoint(ctx, place{7}))
		}, "7"},
		"that is none": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			tx := must(s.db.Begin())
			for what, v := range map[string]any{"large": strings.Repeat("x", 64<<10), "no JSON": math.Inf(1)} {
				var f *errand.FieldError
				if err := job.Checkpoint(ctx, v); !errors.As(err, &f) || f.Field != "checkpoint" {
					panic(fmt.Sprint(what, ": ", err))
				}
			}
			if err := job.CheckpointTx(ctx, tx, math.NaN()); !errors.Is(err, errand.ErrInvalid) || tx.Commit() == nil {
				panic(fmt.Sprint("in a transaction: ", err))
			}
			return errDeclined
		}, "nowhere"},
		"of another database": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			other := must(sql.Open("sqlite", ":memory:"))
			defer other.Close()
			tx := must(other.Begin())
			defer tx.Rollback()
			if err := job.CheckpointTx(ctx, tx, place{7}); !errors.Is(err, errand.ErrWrongDatabase) {
				panic(err)
			}
			return errDeclined
		}, "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, errand.Options{})
			got := ""
			j := s.attempts(nil, func(ctx context.Context, job *errand.Job[charge]) error { return c.run(s, ctx, job) },
				func(ctx context.Context, job *errand.Job[charge]) error {
					got = resumed(job)
					return nil
				})
			if got != c.want {
				t.Errorf("the second attempt begins at %s, want %s", got, c.want)
			}
			if j.State != errand.Done || j.Checkpoint != nil {
				t.Errorf("the job is %s, at %s", j.State, j.Checkpoint)
			}
		})
	}
}

// Who is too late, or has no lease any more, keeps nothing.
func TestJob_Checkpoint_refused(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	var job *errand.Job[charge]
	j := s.attempts(nil, func(ctx context.Context, own *errand.Job[charge]) error {
		job = own
		_ = must(s.q.Cancel(ctx, job.ID))
		ctx = context.WithoutCancel(ctx)
		plain := job.Checkpoint(ctx, place{7})
		tx := must(s.db.Begin())
		for what, err := range map[string]error{"Checkpoint": plain, "CheckpointTx": job.CheckpointTx(ctx, tx, place{7})} {
			if !errors.Is(err, errand.ErrCancelled) {
				t.Errorf("%s of a cancelled job: %v", what, err)
			}
		}
		if err := tx.Commit(); err == nil {
			t.Error("the transaction was committed")
		}
		return errDeclined
	})
	if j.State != errand.Cancelled || j.Checkpoint != nil {
		t.Errorf("the job is %s, at %s", j.State, j.Checkpoint)
	}
	if err := job.Checkpoint(t.Context(), place{7}); !errors.Is(err, errand.ErrFinished) {
		t.Errorf("after the handler: %v", err)
	}
	if err := job.SetResult(7); !errors.Is(err, errand.ErrFinished) {
		t.Errorf("SetResult after the handler: %v", err)
	}
	job.Progress(1, 2, "") // harmless
	var none errand.Job[charge]
	tx := must(s.db.Begin())
	defer tx.Rollback()
	for what, err := range map[string]error{
		"Checkpoint": none.Checkpoint(t.Context(), 1), "CheckpointTx": none.CheckpointTx(t.Context(), tx, 1), "SetResult": none.SetResult(1),
	} {
		if !errors.Is(err, errand.ErrNoAttempt) {
			t.Errorf("%s without an attempt: %v", what, err)
		}
	}
	none.Progress(1, 2, "")
	for _, v := range []any{nil, place{}, (*place)(nil)} {
		if _, err := none.Resume(v); !errors.Is(err, errand.ErrInvalid) {
			t.Errorf("Resume(%#v): %v", v, err)
		}
	}
	if err := none.CheckpointTx(t.Context(), nil, 1); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("without a transaction: %v", err)
	}
}

// A handler that its worker stops can still say where it is.
func TestJob_Checkpoint_stopped(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	id := must(s.q.Enqueue(t.Context(), charge{1}, nil)).ID
	w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet, Grace: -1})
	begun := make(chan struct{})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[charge]) error {
		close(begun)
		<-ctx.Done()
		return errors.Join(ctx.Err(), job.Checkpoint(ctx, place{7}))
	})
	stop := run(t, w)
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if j := must(s.q.Job(t.Context(), id)); j.State != errand.Ready || string(j.Checkpoint) != `{"Offset":7}` {
		t.Errorf("the job is %s, at %s", j.State, j.Checkpoint)
	}
}

// Goroutines that a handler has left behind are refused, and harm nothing.
func TestJob_Checkpoint_leftBehind(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	var late sync.WaitGroup
	s.attempts(nil, func(ctx context.Context, job *errand.Job[charge]) error {
		err := job.Finish(ctx, func(tx *sql.Tx) error { return errDeclined })
		must(s.q.Cancel(ctx, job.ID))
		for range 4 {
			late.Go(func() {
				for job.Checkpoint(context.WithoutCancel(ctx), place{7}) == nil {
					job.Progress(1, 2, "")
				}
			})
		}
		return err
	})
	late.Wait()
}

// A checkpoint that does not decode fails the attempt as args do.
func TestJob_Resume_decode(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	j := s.attempts(&errand.JobOptions{Policy: policy.Policy{Retries: 1, NoDelayRetries: 1}},
		func(ctx context.Context, job *errand.Job[charge]) error {
			check(job.Checkpoint(ctx, "a word"))
			return errDeclined
		},
		func(ctx context.Context, job *errand.Job[charge]) error {
			var at place
			_, err := job.Resume(&at)
			return err
		})
	if j.State != errand.Dead || j.Reason != errand.ReasonDecode || string(j.Checkpoint) != `"a word"` {
		t.Errorf("the job is %s for %q, at %s", j.State, j.Reason, j.Checkpoint)
	}
}

// A redrive goes on where the job had got to, unless it is to begin from the start.
func TestDeadLetters_Redrive_checkpoint(t *testing.T) {
	t.Parallel()
	for fromStart, want := range map[bool]string{false: "7", true: "nowhere"} {
		s := newShop(t, errand.Options{})
		var got string
		j := s.attempts(nil, func(ctx context.Context, job *errand.Job[charge]) error {
			job.Progress(7, 7, "")
			check(job.Checkpoint(ctx, place{7}))
			return errand.Permanent(errDeclined)
		}, func(ctx context.Context, job *errand.Job[charge]) error {
			got = resumed(job)
			if shown := must(s.q.Job(ctx, job.ID)).Progress; (shown == nil) != fromStart {
				t.Errorf("from the start %v: the progress is %v", fromStart, shown)
			}
			return nil
		})
		if j.State != errand.Dead {
			t.Fatalf("the job is %s", j.State)
		}
		r := must(s.q.DeadLetters().Redrive(t.Context(), errand.JobFilter{IDs: []errand.ID{j.ID}}, &errand.RedriveOptions{FromStart: fromStart}))
		if r.Redriven != 1 {
			t.Fatalf("redriven: %+v", r)
		}
		if _, err := errand.Await[any](t.Context(), s.q, j.ID); !errors.Is(err, errand.ErrNoResult) {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("from the start %v: it goes on at %s, want %s", fromStart, got, want)
		}
	}
}

// In a batch each job has a checkpoint of its own.
func TestHandleMany_Checkpoint(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
	var mu sync.Mutex
	got := map[int]string{}
	errand.HandleMany(w, func(ctx context.Context, jobs []*errand.Job[charge]) error {
		failed := errand.BatchError{}
		for _, job := range jobs {
			if job.Attempt == 1 {
				check(job.Checkpoint(ctx, place{job.Args.N}))
				failed[job.ID] = errDeclined
				continue
			}
			mu.Lock()
			got[job.Args.N] = resumed(job)
			mu.Unlock()
			check(job.SetResult(job.Args.N))
		}
		return failed
	}, errand.BatchOptions{Max: 10}, errand.HandlerOptions{Policy: policy.Policy{Retries: 3, NoDelayRetries: 3}})
	var ids []errand.ID
	for n := range 20 {
		ids = append(ids, must(s.q.Enqueue(t.Context(), charge{n}, nil)).ID)
	}
	run(t, w)
	for n, id := range ids {
		if r, err := errand.Await[int](t.Context(), s.q, id); err != nil || r != n {
			t.Errorf("job %d has the result %d, %v", n, r, err)
		}
	}
	for n := range 20 {
		if got[n] != fmt.Sprint(n) {
			t.Errorf("job %d goes on at %q", n, got[n])
		}
	}
}

// The result of a job that is done can be read, whoever has enqueued it.
func TestAwait(t *testing.T) {
	t.Parallel()
	type receipt struct{ Number string }
	for name, c := range map[string]struct {
		run  func(s *shop, ctx context.Context, job *errand.Job[charge]) error
		want string
		err  error
	}{
		"result": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			check(job.SetResult(receipt{"a"}))
			return job.SetResult(receipt{"b"})
		}, "b", nil},
		"result with Finish": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			return job.Finish(ctx, func(*sql.Tx) error { return job.SetResult(receipt{"b"}) })
		}, "b", nil},
		"none": {func(*shop, context.Context, *errand.Job[charge]) error { return nil }, "", errand.ErrNoResult},
		"dead": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			check(job.SetResult(receipt{"a"}))
			return errand.Permanent(errDeclined)
		}, "", errand.ErrDead},
		"cancelled": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			check(job.SetResult(receipt{"a"}))
			return errand.Cancel(errDeclined)
		}, "", errand.ErrCancelled},
		"of an attempt that failed": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			if job.Attempt == 1 {
				return errors.Join(job.SetResult(receipt{"a"}), errDeclined)
			}
			return nil
		}, "", errand.ErrNoResult},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, errand.Options{})
			w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
			errand.Handle(w, func(ctx context.Context, job *errand.Job[charge]) error { return c.run(s, ctx, job) })
			id := must(s.q.Enqueue(t.Context(), charge{1}, nil)).ID
			other := must(errand.Open(t.Context(), s.path, &errand.Options{Logger: quiet}))
			defer other.Close()
			var all sync.WaitGroup
			for _, q := range []*errand.Queue{s.q, s.q, other} {
				all.Go(func() {
					got, err := errand.Await[receipt](t.Context(), q, id)
					if got.Number != c.want || !errors.Is(err, c.err) {
						t.Errorf("got %q, %v", got.Number, err)
					}
				})
			}
			run(t, w)
			all.Wait()
			if got, err := errand.Result[receipt](must(s.q.Job(t.Context(), id))); got.Number != c.want || !errors.Is(err, c.err) {
				t.Errorf("later: %q, %v", got.Number, err)
			}
		})
	}
}

// Who waits for a job that ends without a handler is told too.
func TestAwait_ended(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(ctx context.Context, s *shop, id errand.ID) error
		want error
	}{
		"cancelled": {func(ctx context.Context, s *shop, id errand.ID) error { _, err := s.q.Cancel(ctx, id); return err }, errand.ErrCancelled},
		"with all": {func(ctx context.Context, s *shop, id errand.ID) error {
			_, err := s.q.CancelAll(ctx, errand.JobFilter{All: true})
			return err
		}, errand.ErrCancelled},
		"and gone": {func(ctx context.Context, s *shop, id errand.ID) error {
			_, err := s.q.CancelAll(ctx, errand.JobFilter{All: true})
			must(s.q.Delete(ctx, errand.JobFilter{All: true}))
			return err
		}, nil},
		"in Tx": {func(ctx context.Context, s *shop, id errand.ID) error {
			return s.q.Tx(ctx, func(tx *sql.Tx) error { _, err := s.q.CancelTx(ctx, tx, id); return err })
		}, errand.ErrCancelled},
		"in a plain": {func(ctx context.Context, s *shop, id errand.ID) error {
			tx := must(s.db.Begin())
			must(s.q.CancelTx(ctx, tx, id))
			return tx.Commit()
		}, errand.ErrCancelled},
		"closed": {func(_ context.Context, s *shop, _ errand.ID) error { return s.q.Close() }, errand.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, errand.Options{})
			id := must(s.q.Enqueue(t.Context(), charge{1}, nil)).ID
			waits := make(chan error, 1)
			go func() {
				_, err := errand.Await[any](t.Context(), s.q, id)
				waits <- err
			}()
			check(c.end(t.Context(), s, id))
			err := <-waits
			if c.want == nil && !errors.Is(err, errand.ErrNotFound) && !errors.Is(err, errand.ErrCancelled) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("Await returned %v", err)
			}
		})
	}
	s := newShop(t, errand.Options{})
	if _, err := errand.Await[any](t.Context(), s.q, errand.ID{1}); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	id := must(s.q.Enqueue(ctx, charge{1}, nil)).ID
	cancel()
	if _, err := errand.Await[any](ctx, s.q, id); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// Who waits learns of the end also where the store tells of nothing that others commit.
func TestAwait_untold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		awaits errand.SQLiteOptions
		end    func(s *shop, id errand.ID) // by a queue for all processes, or the application
		single bool
	}{
		"only reads": {awaits: errand.SQLiteOptions{ReadOnly: true}, end: func(s *shop, id errand.ID) { must(s.q.Cancel(s.t.Context(), id)) }},
		"alone": {single: true, end: func(s *shop, id errand.ID) {
			tx := must(s.db.Begin())
			must(s.q.CancelTx(s.t.Context(), tx, id))
			check(tx.Commit())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, errand.Options{SQLite: errand.SQLiteOptions{SingleProcess: c.single}})
			id := must(s.q.Enqueue(t.Context(), charge{1}, nil)).ID
			q := s.q
			if !c.single {
				q = must(errand.Open(t.Context(), s.path, &errand.Options{Logger: quiet, SQLite: c.awaits}))
				defer q.Close()
			}
			waits := make(chan error, 1)
			go func() {
				_, err := errand.Await[any](t.Context(), q, id)
				waits <- err
			}()
			c.end(s, id)
			if err := <-waits; !errors.Is(err, errand.ErrCancelled) {
				t.Errorf("Await returned %v", err)
			}
		})
	}
}

// A result that nobody could read is refused.
func TestJob_SetResult_notKept(t *testing.T) {
	t.Parallel()
	none := -time.Second
	for name, c := range map[string]struct {
		options errand.Options
		lane    errand.Settings // of the queue
		refused bool
	}{
		"kept":                        {},
		"not kept":                    {options: errand.Options{Retention: -1}, refused: true},
		"not kept in the queue":       {lane: errand.Settings{Retention: &none}, refused: true},
		"not kept, but in this queue": {options: errand.Options{Retention: -1}, lane: errand.Settings{Retention: new(time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, c.options)
			if c.lane != (errand.Settings{}) {
				check(s.q.Configure(t.Context(), errand.Lane{Queue: "default"}, c.lane))
			}
			var got, large error
			w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
			over := make(chan struct{})
			errand.Handle(w, func(_ context.Context, job *errand.Job[charge]) error {
				defer close(over)
				got, large = job.SetResult(1), job.SetResult(strings.Repeat("x", 64<<10))
				return nil
			})
			must(s.q.Enqueue(t.Context(), charge{1}, nil))
			run(t, w)
			<-over
			var f *errand.FieldError
			if errors.As(got, &f) != c.refused || c.refused && f.Field != "result" {
				t.Errorf("SetResult returned %v", got)
			}
			if !errors.Is(large, errand.ErrInvalid) {
				t.Errorf("a large one: %v", large)
			}
		})
	}
}

// How far a job has got is shown while it runs, to other processes too, and kept at the end,
// and writes nothing meanwhile.
func TestJob_Progress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, errand.Options{})
		other := must(errand.Open(t.Context(), s.path, &errand.Options{Logger: quiet}))
		defer other.Close()
		w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
		goOn := make(chan struct{})
		errand.Handle(w, func(_ context.Context, job *errand.Job[charge]) error {
			for n := range int64(1000) {
				job.Progress(n+1, 4000, strings.Repeat("ä", 200))
			}
			<-goOn
			job.Progress(4000, 4000, "all")
			return nil
		})
		id := must(s.q.Enqueue(t.Context(), charge{1}, nil)).ID
		stop := run(t, w)
		time.Sleep(2 * time.Second) // it is shown about a second later
		for _, q := range []*errand.Queue{s.q, other} {
			p := must(q.Job(t.Context(), id)).Progress
			if p == nil || p.Done != 1000 || p.Total != 4000 || len(p.Note) > 256 || len(p.Note) < 250 || p.At.IsZero() {
				t.Errorf("shown: %+v", p)
			}
		}
		all := must(other.Workers(t.Context()))
		if len(all) != 1 || len(all[0].Progress) != 1 || all[0].Progress[0].Job != id || all[0].Progress[0].Done != 1000 {
			t.Errorf("the workers show %+v", all)
		}
		close(goOn)
		if _, err := errand.Await[any](t.Context(), other, id); !errors.Is(err, errand.ErrNoResult) {
			t.Error(err)
		}
		if p := must(other.Job(t.Context(), id)).Progress; p == nil || p.Done != 4000 || p.Note != "all" {
			t.Errorf("kept: %+v", p)
		}
		time.Sleep(2 * time.Second)
		if all := must(other.Workers(t.Context())); len(all) != 1 || len(all[0].Progress) != 0 {
			t.Errorf("after its end the workers show %+v", all)
		}
		check(stop())
	})
}

// The progress at a checkpoint is there after a crash, and JSON has it.
func TestJob_Progress_kept(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	var first errand.JobInfo
	s.attempts(nil, func(ctx context.Context, job *errand.Job[charge]) error {
		job.Progress(3, 0, "lines")
		check(job.Checkpoint(ctx, place{3}))
		job.Progress(4, 0, "")
		return errDeclined
	}, func(ctx context.Context, job *errand.Job[charge]) error {
		first = must(s.q.Job(ctx, job.ID))
		return nil
	})
	b := must(json.Marshal(first))
	var fields map[string]json.RawMessage
	check(json.Unmarshal(b, &fields))
	if string(fields["checkpoint"]) != `{"Offset":3}` || !strings.HasPrefix(string(fields["progress"]), `{"done":3,"note":"lines","at":"`) {
		t.Errorf("%v: checkpoint %s, progress %s", slices.Sorted(maps.Keys(fields)), fields["checkpoint"], fields["progress"])
	}
}
