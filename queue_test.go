package errand_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// These are the tests to read first: one job's whole life, in each of its ways. Time is that of
// a bubble of testing/synctest, in which an hour is over at once.

// letter is the job whose life is told.
type letter struct{ To string }

func (letter) Kind() string { return "letter" }

var (
	errAway = errors.New("nobody is there")
	// errWait makes the handler wait for the end of its context.
	errWait = errors.New("wait")
)

// life is what happens to a job, and what has to become of it.
type life struct {
	name    string
	options errand.JobOptions
	paused  bool    // the queue is, when the job comes
	answers []error // of its handler, attempt by attempt; then nil
	// A second after the enqueue, this is done.
	then func(ctx context.Context, q *errand.Queue, id errand.ID) error
	want string // its events, with the time since its enqueue
	ends errand.State
}

func TestQueue_life(t *testing.T) {
	for _, l := range []life{
		{
			name: "a job is done",
			want: "0s enqueued, 0s started, 0s done",
			ends: errand.Done,
		}, {
			name:    "a delayed job waits until it is due",
			options: errand.JobOptions{Delay: time.Hour},
			want:    "0s enqueued, 1h0m0s started, 1h0m0s done",
			ends:    errand.Done,
		}, {
			name:    "a failed job is retried, by its policy after 10 s",
			answers: []error{errAway},
			want:    "0s enqueued, 0s started, 0s retried, 10s started, 10s done",
			ends:    errand.Done,
		}, {
			name:    "a job without retries left is a dead letter",
			answers: []error{errAway, errAway, errAway},
			want:    "0s enqueued, 0s started, 0s retried, 10s started, 10s retried, 20s started, 20s dead",
			ends:    errand.Dead,
		}, {
			name:    "a job that can't succeed is one at once",
			answers: []error{errand.Permanent(errAway)},
			want:    "0s enqueued, 0s started, 0s dead",
			ends:    errand.Dead,
		}, {
			name:    "a dead letter that is redriven begins anew",
			answers: []error{errand.Permanent(errAway)},
			then: func(ctx context.Context, q *errand.Queue, id errand.ID) error {
				_, err := q.DeadLetters().Redrive(ctx, errand.JobFilter{IDs: []errand.ID{id}}, nil)
				return err
			},
			want: "0s enqueued, 0s started, 0s dead, 1s started, 1s done",
			ends: errand.Done,
		}, {
			name:    "the other side says when to come again",
			answers: []error{errand.RetryAfter(time.Minute, errAway)},
			want:    "0s enqueued, 0s started, 0s retried, 1m0s started, 1m0s done",
			ends:    errand.Done,
		}, {
			name:    "a handler wants to run again later, which is no failure",
			answers: []error{errand.Snooze(time.Minute, nil), errand.Snooze(time.Minute, nil)},
			want:    "0s enqueued, 0s started, 0s snoozed, 1m0s started, 1m0s snoozed, 2m0s started, 2m0s done",
			ends:    errand.Done,
		}, {
			name:    "a handler cancels its job",
			answers: []error{errand.Cancel(errAway)},
			want:    "0s enqueued, 0s started, 0s cancelled",
			ends:    errand.Cancelled,
		}, {
			name:    "a job is cancelled while it waits",
			options: errand.JobOptions{Delay: time.Hour},
			then:    cancel,
			want:    "0s enqueued, 1s cancelled",
			ends:    errand.Cancelled,
		}, {
			name:    "a job is cancelled while it runs: the context of its handler ends",
			answers: []error{errWait},
			then:    cancel,
			want:    "0s enqueued, 0s started, 1s cancelled",
			ends:    errand.Cancelled,
		}, {
			name:    "a job takes longer than it may",
			options: errand.JobOptions{Timeout: 5 * time.Second},
			answers: []error{errWait},
			want:    "0s enqueued, 0s started, 5s retried, 15s started, 15s done",
			ends:    errand.Done,
		}, {
			name:    "a job that waits is run now",
			options: errand.JobOptions{Delay: time.Hour},
			then: func(ctx context.Context, q *errand.Queue, id errand.ID) error {
				_, err := q.RunNow(ctx, errand.JobFilter{IDs: []errand.ID{id}}, nil)
				return err
			},
			want: "0s enqueued, 1s started, 1s done",
			ends: errand.Done,
		}, {
			name:   "a paused queue keeps a job",
			paused: true,
			then: func(ctx context.Context, q *errand.Queue, _ errand.ID) error {
				return q.Resume(ctx, "default")
			},
			want: "0s enqueued, 1s released, 1s started, 1s done",
			ends: errand.Done,
		}, {
			name:    "a job that is not started in time expires",
			options: errand.JobOptions{StartWithin: time.Minute},
			paused:  true,
			then: func(ctx context.Context, q *errand.Queue, _ errand.ID) error {
				time.Sleep(time.Hour)
				return q.Resume(ctx, "default")
			},
			want: "0s enqueued, 1h0m0s released, 1h0m0s expired",
			ends: errand.Expired,
		},
	} {
		t.Run(l.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "jobs.db")
			synctest.Test(t, func(t *testing.T) { l.lead(t, path) })
		})
	}
}

// toldBy returns 0 for what a caller tells, and 1 for what a worker does.
func toldBy(e errand.Event) int {
	if e.Type == errand.EventEnqueued || e.Type == errand.EventReleased {
		return 0
	}
	return 1
}

func cancel(ctx context.Context, q *errand.Queue, id errand.ID) error {
	_, err := q.Cancel(ctx, id)
	return err
}

// lead leads a job through its life.
func (l *life) lead(t *testing.T, path string) {
	ctx := t.Context()
	q := openQuietly(t, path)
	defer closeQueue(t, q)
	if l.paused {
		if err := q.Pause(ctx, "default"); err != nil {
			t.Fatal(err)
		}
	}
	events, err := q.Subscribe(ctx, errand.EventFilter{Kind: "letter"}, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	defer work(t, q, l.handle)()

	began := time.Now()
	e, err := q.Enqueue(ctx, letter{To: "Ada"}, &l.options)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if l.then != nil {
		if err := l.then(ctx, q, e.ID); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(2 * time.Hour)
	synctest.Wait()

	var all []errand.Event
	for range len(events.Events()) {
		all = append(all, <-events.Events())
	}
	// A worker may tell that it has started or ended the job before the caller tells that it was
	// enqueued or released at that time.
	slices.SortStableFunc(all, func(a, b errand.Event) int {
		return cmp.Or(a.At.Round(time.Second).Compare(b.At.Round(time.Second)), cmp.Compare(toldBy(a), toldBy(b)))
	})
	var story []string
	for _, e := range all {
		after := e.At.Sub(began).Round(time.Second)
		if after > time.Minute { // RetryAfter is spread by up to a tenth
			after = after.Round(time.Minute)
		}
		story = append(story, fmt.Sprint(after, " ", e.Type))
	}
	if got := strings.Join(story, ", "); got != l.want {
		t.Errorf("the job's life:\n%s\nwant\n%s", got, l.want)
	}
	if job, err := q.Job(ctx, e.ID); job.State != l.ends || err != nil {
		t.Errorf("the job is %v (%v), want %v", job.State, err, l.ends)
	}
}

func (l *life) handle(ctx context.Context, job *errand.Job[letter]) error {
	switch {
	case job.Attempt > len(l.answers):
		return nil
	case errors.Is(l.answers[job.Attempt-1], errWait):
		<-ctx.Done()
		return ctx.Err()
	}
	return l.answers[job.Attempt-1]
}

// A worker that stops gives its handler some time, and then ends its context. The job is run
// again by the next worker, with nothing used up.
func TestQueue_life_stopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		q := openQuietly(t, path)
		e, err := q.Enqueue(t.Context(), letter{To: "Ada"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		first := life{answers: []error{errWait}}
		stop := work(t, q, first.handle)
		time.Sleep(time.Second)
		stop()
		closeQueue(t, q)

		q = openQuietly(t, path)
		defer closeQueue(t, q)
		if job, err := q.Job(t.Context(), e.ID); job.State != errand.Ready || job.Retry != 0 || err != nil {
			t.Errorf("after the stop the job is %v with retry %d, %v; want it ready, with no retry used up", job.State, job.Retry, err)
		}
		defer work(t, q, func(context.Context, *errand.Job[letter]) error { return nil })()
		time.Sleep(time.Second)
		if job, err := q.Job(t.Context(), e.ID); job.State != errand.Done || job.Attempt != 2 || err != nil {
			t.Errorf("the job is %v after %d attempts, %v; want it done after 2", job.State, job.Attempt, err)
		}
	})
}

// A job that is enqueued in a transaction is there if that commits, and else it never was.
func TestQueue_life_transaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		q := openQuietly(t, path)
		defer closeQueue(t, q)
		for _, end := range []error{nil, errAway} {
			var e errand.Enqueued
			err := q.Tx(t.Context(), func(tx *sql.Tx) (err error) {
				e, err = q.EnqueueTx(t.Context(), tx, letter{To: "Ada"}, nil)
				return errors.Join(err, end)
			})
			if !errors.Is(err, end) {
				t.Fatalf("Tx: %v, want %v", err, end)
			}
			if _, err := q.Job(t.Context(), e.ID); errors.Is(err, errand.ErrNotFound) != (end != nil) {
				t.Errorf("after a transaction that ended with %v, the job: %v", end, err)
			}
		}
	})
}

// While a job with a unique key waits or runs, another with that key is a duplicate of it.
func TestQueue_life_unique(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		q := openQuietly(t, path)
		defer closeQueue(t, q)
		options := &errand.JobOptions{Unique: &errand.Unique{Key: "ada"}}
		enqueue := func() errand.Enqueued {
			e, err := q.Enqueue(t.Context(), letter{To: "Ada"}, options)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		first, second := enqueue(), enqueue()
		if !second.Duplicate || second.ID != first.ID {
			t.Errorf("the second is %+v, want a duplicate of %v", second, first.ID)
		}
		stop := work(t, q, func(context.Context, *errand.Job[letter]) error { return nil })
		time.Sleep(time.Second)
		stop()
		if third := enqueue(); third.Duplicate || third.ID == first.ID {
			t.Errorf("after the first was done, the third is %+v, want another job", third)
		}
	})
}

// openQuietly opens a queue with a policy of two retries, each after 10 s.
func openQuietly(t *testing.T, path string) *errand.Queue {
	t.Helper()
	q, err := errand.Open(t.Context(), path, &errand.Options{
		Policy: &policy.Policy{Retries: 2, MinDelay: 10 * time.Second, MaxDelay: 10 * time.Second, Jitter: policy.NoJitter},
		SQLite: errand.SQLiteOptions{Durability: errand.Relaxed},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func closeQueue(t *testing.T, q *errand.Queue) {
	t.Helper()
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// work runs a worker with this handler, and returns what stops it.
func work(t *testing.T, q *errand.Queue, handle func(context.Context, *errand.Job[letter]) error) (stop func()) {
	t.Helper()
	w := errand.NewWorker(q, nil)
	errand.Handle(w, handle)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
