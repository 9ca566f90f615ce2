package apitest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// step is a job that another one has enqueued.
type step struct {
	N   int
	Pad string `json:",omitempty"`
}

// Kind names the type of job.
func (step) Kind() string { return "step" }

// What a handler has said comes after its job is enqueued if that is done, and only then.
func TestJob_Then(t *testing.T) {
	t.Parallel()
	then := func(job *errand.Job[charge], n int, o *errand.JobOptions) { check(job.Then(step{N: n}, o)) }
	twice := func(job *errand.Job[charge]) {
		then(job, 1, nil)
		then(job, 2, &errand.JobOptions{Queue: "later", Delay: time.Hour, Tags: []string{"a"}})
	}
	for name, c := range map[string]struct {
		run  func(s *shop, ctx context.Context, job *errand.Job[charge]) error // in the first attempt
		want string                                                            // the followers of the first job
	}{
		"done": {func(_ *shop, _ context.Context, job *errand.Job[charge]) error {
			twice(job)
			return nil
		}, "1 ready, 2 scheduled"},
		"failed, then done": {func(_ *shop, _ context.Context, job *errand.Job[charge]) error {
			twice(job)
			return errDeclined
		}, ""},
		"snoozed, then done": {func(_ *shop, _ context.Context, job *errand.Job[charge]) error {
			twice(job)
			return errand.Snooze(time.Millisecond, errDeclined)
		}, ""},
		"dead": {func(_ *shop, _ context.Context, job *errand.Job[charge]) error {
			twice(job)
			return errand.Permanent(errDeclined)
		}, ""},
		"cancelled": {func(_ *shop, _ context.Context, job *errand.Job[charge]) error {
			twice(job)
			return errand.Cancel(errDeclined)
		}, ""},
		"finished": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			then(job, 1, nil)
			return job.Finish(ctx, func(*sql.Tx) error {
				then(job, 2, &errand.JobOptions{Delay: time.Hour})
				return nil
			})
		}, "1 ready, 2 scheduled"},
		"rolled back": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			twice(job)
			return job.Finish(ctx, func(*sql.Tx) error { return errDeclined })
		}, ""},
		"completed in the application's": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			twice(job)
			tx := must(s.db.Begin())
			return errors.Join(job.CompleteTx(ctx, tx), tx.Commit())
		}, "1 ready, 2 scheduled"},
		"after it was completed": {func(_ *shop, ctx context.Context, job *errand.Job[charge]) error {
			check(job.Finish(ctx, func(*sql.Tx) error { return nil }))
			if err := job.Then(step{}, nil); !errors.Is(err, errand.ErrFinished) {
				panic(fmt.Sprint("Then after Finish: ", err))
			}
			return nil
		}, ""},
		"key of the job itself": {func(_ *shop, _ context.Context, job *errand.Job[charge]) error {
			check(job.Then(charge{N: 8}, &errand.JobOptions{Unique: &errand.Unique{Key: "mine"}, Delay: time.Hour}))
			return nil
		}, "charge scheduled"},
		"key that is held": {func(s *shop, _ context.Context, job *errand.Job[charge]) error {
			u := &errand.Unique{Key: "held", OnConflict: errand.OnConflict{Mode: errand.Fail}}
			must(s.q.Enqueue(context.Background(), step{N: 9}, &errand.JobOptions{Queue: "later", Unique: u}))
			then(job, 1, &errand.JobOptions{Unique: u})
			then(job, 2, &errand.JobOptions{Unique: &errand.Unique{Key: "held"}})
			then(job, 3, nil)
			return nil
		}, "3 ready; 2 duplicates"},
		"a full queue": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			check(s.q.Configure(ctx, errand.Lane{Queue: "later"}, errand.Settings{MaxJobs: new(1)}))
			must(s.q.Enqueue(ctx, step{N: 9}, &errand.JobOptions{Queue: "later"}))
			then(job, 1, &errand.JobOptions{Queue: "later"})
			return nil
		}, "1 ready"},
		"too many": {func(_ *shop, _ context.Context, job *errand.Job[charge]) error {
			for n := range 100 {
				then(job, n, nil)
			}
			wantThen(job.Then(step{}, nil), `errand: then 101: must be at most 100 jobs`)
			return errDeclined
		}, ""},
		"too large": {func(_ *shop, _ context.Context, job *errand.Job[charge]) error {
			pad := strings.Repeat("x", 200_000)
			for range 5 {
				check(job.Then(step{Pad: pad}, nil))
			}
			wantThen(job.Then(step{Pad: pad}, nil), `must be at most 1048576`)
			wantThen(job.Then(nil, nil), `args nil: must not be nil`)
			wantThen(job.Then(step{}, &errand.JobOptions{Priority: 1000}), `priority 1000`)
			wantThen(job.Then(step{}, &errand.JobOptions{Unique: &errand.Unique{Key: "k", OnConflict: errand.OnConflict{
				Mode: errand.Replace, Merge: func(a, _ errand.Args) (errand.Args, error) { return a, nil },
			}}}), `unique.on_conflict.merge`)
			return errDeclined
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen, ended, exist := 0, 0, 0 // jobs that went through the middleware, what it was told of followers
			s := newShop(t, errand.Options{
				Policy: &policy.Policy{Retries: 3, NoDelayRetries: 3},
				Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
					return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
						seen++
						errand.AfterEnqueue(ctx, func(e errand.Enqueued, err error) {
							if ended++; err == nil && e.ID.IsZero() {
								exist++
							}
						})
						return next(ctx, job)
					}
				}},
			})
			sub := subscribe(t, s.q, errand.EventFilter{}, 1000)
			w := errand.NewWorker(s.q, &errand.WorkerOptions{Concurrency: 1})
			errand.Handle(w, func(ctx context.Context, job *errand.Job[charge]) error {
				if job.Attempt == 1 {
					return c.run(s, ctx, job)
				}
				return nil
			})
			id := enqueue(t, s.q, charge{7}, &errand.JobOptions{Unique: &errand.Unique{Key: "mine"}})
			stop := run(t, w)
			var told []errand.ID
			var duplicates int
			for e := range sub.Events() {
				if e.Type == errand.EventEnqueued && e.ID != id {
					told = append(told, e.ID)
				}
				if e.ID == id && (e.Type == errand.EventDone || e.Type == errand.EventDead || e.Type == errand.EventCancelled) {
					duplicates = len(e.Duplicates)
					break
				}
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			page := must(s.q.Jobs(t.Context(), errand.JobFilter{Parent: id}, nil))

			var got []string
			for _, j := range page.Jobs {
				j := lookUp(t, s.q, j.ID)
				n := strings.Trim(string(j.Args), `{}N:"`)
				if j.Kind == "charge" {
					n = "charge"
				}
				got = append(got, n+" "+string(j.State))
				if j.Parent != id || len(j.Tags) > 1 || !slices.Contains(told, j.ID) {
					t.Errorf("parent %v, tags %q, told of %v", j.Parent, j.Tags, told)
				}
			}
			slices.Sort(got)
			text := strings.Join(got, ", ")
			if duplicates > 0 {
				text += fmt.Sprintf("; %d duplicates", duplicates)
			}
			if text != c.want {
				t.Errorf("followed by %q, want %q", text, c.want)
			}
			if seen < 1+len(got) {
				t.Errorf("%d jobs went through the middleware, %d followed", seen, len(got))
			}
			if ended != seen || exist != len(got)+duplicates {
				t.Errorf("told of %d of %d jobs, %d of them without an error; %d followed, and %d duplicates", ended, seen, exist, len(got), duplicates)
			}
			if j := lookUp(t, s.q, id); !j.Parent.IsZero() {
				t.Errorf("the first job has the parent %v", j.Parent)
			}
		})
	}
}

func wantThen(err error, text string) {
	if err == nil || !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), text) {
		panic(fmt.Sprintf("%v, want %q", err, text))
	}
}

// A job that no worker runs has no attempt to end.
func TestJob_NoAttempt(t *testing.T) {
	job := &errand.Job[charge]{}
	for what, err := range map[string]error{
		"Finish":     job.Finish(t.Context(), func(*sql.Tx) error { return nil }),
		"CompleteTx": job.CompleteTx(t.Context(), new(sql.Tx)),
		"Then":       job.Then(step{}, nil),
	} {
		if !errors.Is(err, errand.ErrNoAttempt) {
			t.Errorf("%s of a job that no worker runs: %v", what, err)
		}
	}
	s := newShop(t, errand.Options{})
	_, err := s.q.Enqueue(t.Context(), step{}, &errand.JobOptions{Tags: []string{"errand.parent:x"}})
	wantField(t, err, "tags[0]")
	_, err = s.q.Jobs(t.Context(), errand.JobFilter{Parent: errand.ID{1}, Tag: "a"}, nil)
	wantField(t, err, "tag")
}
