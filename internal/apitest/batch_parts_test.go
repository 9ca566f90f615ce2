package apitest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// parts has a worker with a handler of many notes, whose calls it records.
type parts struct {
	t  *testing.T
	q  *errand.Queue
	w  *errand.Worker
	mu sync.Mutex
	// calls are the numbers of the notes of each call, in the order in which they began.
	calls [][]int
	lasts time.Duration // each call
}

var errBad = errors.New("one of them is bad")

// newParts has fn judge each call.
func newParts(t *testing.T, o errand.WorkerOptions, b errand.BatchOptions, fn func(ctx context.Context, jobs []*errand.Job[note]) error, h ...errand.HandlerOptions) *parts {
	t.Helper()
	q, _ := memoryQueue(t, errand.Options{Policy: policy.Policy{Retries: 5, MinDelayRetries: 5, MinDelay: time.Minute, MaxDelay: time.Minute, Jitter: policy.NoJitter}})
	p := &parts{t: t, q: q, lasts: time.Millisecond}
	o.Logger = quiet
	p.w = errand.NewWorker(q, &o)
	errand.HandleMany(p.w, func(ctx context.Context, jobs []*errand.Job[note]) error {
		all := make([]int, len(jobs))
		for i, job := range jobs {
			all[i] = job.Args.N
		}
		p.mu.Lock()
		p.calls = append(p.calls, all)
		p.mu.Unlock()
		time.Sleep(p.lasts)
		return fn(ctx, jobs)
	}, b, h...)
	return p
}

// add enqueues notes with the numbers from 0 on.
func (p *parts) add(n int, o *errand.JobOptions) (ids []errand.ID) {
	p.t.Helper()
	items := make([]errand.NewJob, n)
	for i := range items {
		items[i] = errand.NewJob{Args: note{N: i}, Options: o}
	}
	for part := range slices.Chunk(items, 5000) {
		for _, e := range must(p.q.EnqueueMany(p.t.Context(), part)) {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// run runs the worker until nothing happens any more.
func (p *parts) run(d time.Duration) {
	run(p.t, p.w)
	time.Sleep(d)
	synctest.Wait()
}

// want checks how many jobs are in which state.
func (p *parts) want(want map[errand.State]int64) {
	p.t.Helper()
	got := map[errand.State]int64{}
	for _, c := range must(p.q.Counts(p.t.Context())) {
		got[c.State] += c.N
	}
	for _, state := range []errand.State{errand.Done, errand.Dead, errand.Ready, errand.Scheduled, errand.Running, errand.Blocked, errand.Cancelled} {
		if got[state] != want[state] {
			p.t.Errorf("%d jobs are %s, want %d", got[state], state, want[state])
		}
	}
}

// bad reports whether a call has a note with one of these numbers.
func bad(jobs []*errand.Job[note], numbers ...int) bool {
	return slices.ContainsFunc(jobs, func(job *errand.Job[note]) bool { return slices.Contains(numbers, job.Args.N) })
}

// One bad job among 10,000 dies, whatever makes the error of its call permanent. It costs the
// others a few calls.
func TestHandleMany_OneBad(t *testing.T) {
	status := &policy.StatusError{Status: http.StatusBadRequest}
	for name, c := range map[string]struct {
		jobs, max, more int
		err             error
		h               errand.HandlerOptions
	}{
		"verdict": {2000, 200, 16, errand.Permanent(errBad), errand.HandlerOptions{}},
		"status":  {1000, 100, 14, fmt.Errorf("upload: %w", status), errand.HandlerOptions{}},
		"rules":   {1000, 100, 14, errBad, errand.HandlerOptions{Rules: policy.Rules{policy.Otherwise(policy.Permanent)}}},
		"middleware": {1000, 100, 14, errBad, errand.HandlerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				if err := next(ctx, job); err != nil {
					return errand.Permanent(err)
				}
				return nil
			}
		}}}},
		"joined": {1000, 100, 14, errors.Join(errand.Permanent(errBad), errand.BatchError{}), errand.HandlerOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				number := c.jobs * 37 / 100
				p := newParts(t, errand.WorkerOptions{}, errand.BatchOptions{Max: c.max}, func(_ context.Context, jobs []*errand.Job[note]) error {
					if bad(jobs, number) {
						return c.err
					}
					return nil
				}, c.h)
				ids := p.add(c.jobs, nil)
				p.run(time.Minute)
				p.want(map[errand.State]int64{errand.Done: int64(c.jobs - 1), errand.Dead: 1})
				if n := len(p.calls) - c.jobs/c.max; n > c.more {
					t.Errorf("%d calls more than without it, want at most %d", n, c.more)
				}
				for i, id := range ids {
					if i != number && i%c.max > 5 {
						continue
					}
					j := lookUp(t, p.q, id)
					if j.Attempt != 1 || j.Retry != 0 || j.Crashes != 0 || len(j.History) > 0 != (i == number) || i == number && (j.Reason != errand.ReasonPermanent || len(j.History) != 1) {
						t.Fatalf("job %d is %+v", i, j)
					}
				}
			})
		})
	}
}

// Where the other side takes up to 20 jobs in a call, that is found out, by few more calls than
// are needed, and remembered for an hour.
func TestHandleMany_TooMany(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const jobs, most = 1200, 20
				p := newParts(t, errand.WorkerOptions{Concurrency: concurrency}, errand.BatchOptions{Max: 100}, func(_ context.Context, jobs []*errand.Job[note]) error {
					if len(jobs) > most {
						return &policy.StatusError{Status: http.StatusRequestEntityTooLarge}
					}
					return nil
				})
				p.add(jobs, nil)
				p.run(10 * time.Second)
				p.want(map[errand.State]int64{errand.Done: jobs})
				if n := len(p.calls) - jobs/most; n > 3+7*concurrency {
					t.Errorf("%d calls more than are needed", n)
				}
				for _, again := range []bool{false, true} {
					if again && concurrency > 1 {
						return
					}
					before := len(p.calls)
					p.add(60, nil)
					time.Sleep(time.Second)
					synctest.Wait()
					refused := slices.ContainsFunc(p.calls[before:], func(call []int) bool { return len(call) > most })
					if refused != again {
						t.Errorf("some of those that follow were refused: %v, want %v", refused, again)
					}
					if !again {
						time.Sleep(time.Hour)
					}
				}
			})
		})
	}
}

// If all are bad, the brake stops that after the usual number of deaths, and the others have
// lost nothing.
func TestHandleMany_AllBad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 4
		p := newParts(t, errand.WorkerOptions{Concurrency: concurrency}, errand.BatchOptions{Max: 100}, func(context.Context, []*errand.Job[note]) error {
			return errand.Permanent(errBad)
		})
		ids := p.add(600, nil)
		p.run(900 * time.Millisecond)
		dead := 0
		for _, id := range ids {
			switch j := lookUp(t, p.q, id); {
			case j.State == errand.Dead:
				dead++
			case j.State != errand.Ready || j.Retry != 0 || len(j.History) > 0:
				t.Fatalf("%+v", j)
			}
		}
		if dead < 21 || dead > 20+concurrency {
			t.Errorf("%d are dead", dead)
		}
	})
}

// Without parts a call is judged as a whole.
func TestHandleMany_Whole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParts(t, errand.WorkerOptions{}, errand.BatchOptions{Max: 10, Whole: true}, func(context.Context, []*errand.Job[note]) error {
			return errand.Permanent(errBad)
		})
		p.add(10, nil)
		p.run(100 * time.Millisecond)
		p.want(map[errand.State]int64{errand.Dead: 10})
		if len(p.calls) != 1 {
			t.Errorf("calls of %v", p.calls)
		}
	})
}

// In order, the first half runs before the second, and a death keeps back what is behind it.
func TestHandleMany_PartsInOrder(t *testing.T) {
	for _, middle := range []bool{false, true} {
		t.Run(fmt.Sprint("middleware ", middle), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h errand.HandlerOptions
				if middle {
					h.Middleware = []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc { return next }}
				}
				p := newParts(t, errand.WorkerOptions{}, errand.BatchOptions{Max: 8, ByGroup: true}, func(_ context.Context, jobs []*errand.Job[note]) error {
					if bad(jobs, 5) {
						return errand.Permanent(errBad)
					}
					return nil
				}, h)
				ids := p.add(8, &errand.JobOptions{Group: "g"})
				p.run(time.Minute)
				p.want(map[errand.State]int64{errand.Done: 5, errand.Dead: 1, errand.Blocked: 2})
				want := [][]int{{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5}, {4}, {5}}
				if !slices.EqualFunc(p.calls, want, slices.Equal) {
					t.Errorf("calls of %v, want %v", p.calls, want)
				}
				for _, id := range ids[6:] {
					if j := lookUp(t, p.q, id); j.Attempt != 0 || j.Retry != 0 || len(j.History) > 0 {
						t.Errorf("%+v", j)
					}
				}
			})
		})
	}
}

// Each call has the whole timeout, and middleware of its own. All of them are one attempt.
func TestHandleMany_PartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ways := 0
		p := newParts(t, errand.WorkerOptions{Timeout: time.Minute}, errand.BatchOptions{Max: 8}, func(ctx context.Context, jobs []*errand.Job[note]) error {
			if ctx.Err() != nil {
				t.Errorf("a call of %d has no time left", len(jobs))
			}
			for _, job := range jobs {
				if job.Attempt != 1 {
					t.Errorf("job %d is in attempt %d", job.Args.N, job.Attempt)
				}
			}
			if bad(jobs, 6) {
				return errand.Permanent(errBad)
			}
			return nil
		}, errand.HandlerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				mu.Lock()
				ways++
				mu.Unlock()
				return next(ctx, job)
			}
		}}})
		p.lasts = 40 * time.Second
		events := must(p.q.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{errand.EventStarted, errand.EventDone, errand.EventDead}}, 100))
		p.add(8, nil)
		p.run(10 * time.Minute)
		p.want(map[errand.State]int64{errand.Done: 7, errand.Dead: 1})
		jobs := 0
		for _, c := range p.calls {
			jobs += len(c)
		}
		if ways != jobs || len(p.calls) != 7 {
			t.Errorf("middleware saw %d jobs, calls of %v", ways, p.calls)
		}
		seen := map[errand.EventType]int{}
		for range len(events.Events()) {
			seen[(<-events.Events()).Type]++
		}
		if seen[errand.EventStarted] != 8 || seen[errand.EventDone] != 7 || seen[errand.EventDead] != 1 {
			t.Errorf("events %v", seen)
		}
	})
}

// What a BatchError says of single jobs is not asked about again, and neither is what middleware
// says; a job whose args do not decode fails alone.
func TestHandleMany_PartsNotOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParts(t, errand.WorkerOptions{}, errand.BatchOptions{Max: 20}, func(_ context.Context, jobs []*errand.Job[note]) error {
			all := errand.BatchError{}
			for _, job := range jobs {
				all[job.ID] = errand.Permanent(errBad)
			}
			return all
		}, errand.HandlerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				err := next(ctx, job)
				if strings.Contains(string(job.Args.JSON), ":3") {
					err = next(ctx, job)
				}
				return err
			}
		}}})
		p.add(10, nil)
		enqueue(t, p.q, errand.RawArgs{OfKind: "note", JSON: []byte(`"x"`)}, nil)
		p.run(100 * time.Millisecond)
		p.want(map[errand.State]int64{errand.Dead: 10, errand.Scheduled: 1})
		if len(p.calls) != 2 {
			t.Errorf("calls of %v", p.calls)
		}
	})
}

// A stop, or a hold, in the middle of the parts: those that have not run go back, and have lost
// nothing.
func TestHandleMany_PartsStop(t *testing.T) {
	for name, stop := range map[string]func(p *parts, stop func() error){
		"stop": func(_ *parts, stop func() error) { check(stop()) },
		"hold": func(p *parts, _ func() error) { check(p.q.Hold(p.t.Context(), errand.Lane{Kind: "note"}, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newParts(t, errand.WorkerOptions{}, errand.BatchOptions{Max: 8}, func(_ context.Context, jobs []*errand.Job[note]) error {
					if bad(jobs, 0) {
						return errand.Permanent(errBad)
					}
					return nil
				})
				p.lasts = time.Second
				ids := p.add(8, nil)
				end := run(t, p.w)
				time.Sleep(2500 * time.Millisecond) // the third call runs, of two
				stop(p, end)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(p.calls) != 3 {
					t.Errorf("calls of %v", p.calls)
				}
				p.want(map[errand.State]int64{errand.Ready: 8})
				for i, id := range ids {
					if j := lookUp(t, p.q, id); j.Retry != 0 || j.Crashes != 0 || len(j.History) > 0 {
						t.Errorf("job %d is %+v", i, j)
					}
				}
			})
		})
	}
}

// A job that is cancelled while others of its call run is in no call any more.
func TestHandleMany_PartsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParts(t, errand.WorkerOptions{}, errand.BatchOptions{Max: 8}, func(_ context.Context, jobs []*errand.Job[note]) error {
			if bad(jobs, 0) {
				return errand.Permanent(errBad)
			}
			return nil
		})
		p.lasts = time.Second
		ids := p.add(8, nil)
		run(t, p.w)
		time.Sleep(500 * time.Millisecond) // the call of all runs
		must(p.q.Cancel(t.Context(), ids[1]))
		time.Sleep(time.Second) // the first half runs
		must(p.q.Cancel(t.Context(), ids[6]))
		time.Sleep(time.Minute)
		synctest.Wait()
		p.want(map[errand.State]int64{errand.Done: 5, errand.Dead: 1, errand.Cancelled: 2})
		for _, c := range p.calls[1:] {
			if slices.Contains(c, 1) || slices.Contains(c, 6) {
				t.Errorf("calls of %v", p.calls)
			}
		}
		for _, i := range []int{1, 6} {
			if j := lookUp(t, p.q, ids[i]); j.Attempt != 1 || len(j.History) > 0 {
				t.Errorf("job %d is %+v", i, j)
			}
		}
	})
}

// What a call has completed before it failed is in no further call. What else it has said of the
// ends of its jobs is dropped, and what it has kept of their middle is not.
func TestHandleMany_PartsCompleted(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
	var mu sync.Mutex
	var calls [][]int
	came := map[int]string{}
	errand.HandleMany(w, func(ctx context.Context, jobs []*errand.Job[charge]) error {
		mu.Lock()
		defer mu.Unlock()
		var all []int
		for _, job := range jobs {
			all = append(all, job.Args.N)
			came[job.Args.N] = resumed(job)
		}
		calls = append(calls, all)
		if len(calls) > 1 {
			if len(all) == 1 && all[0] == 4 {
				return errand.Permanent(errDeclined)
			}
			if slices.Contains(all, 4) {
				return errand.Permanent(errDeclined)
			}
			return nil
		}
		check(jobs[0].Finish(ctx, func(*sql.Tx) error { return nil }))
		check(s.q.Tx(ctx, func(tx *sql.Tx) error { return jobs[1].CompleteTx(ctx, tx) }))
		check(jobs[2].Then(note{Text: "dropped"}, nil))
		check(jobs[2].SetResult("dropped"))
		check(jobs[2].Checkpoint(ctx, place{7}))
		if err := s.q.Tx(ctx, func(tx *sql.Tx) error { return errors.Join(jobs[3].CompleteTx(ctx, tx), errDeclined) }); !errors.Is(err, errDeclined) {
			t.Errorf("a transaction that was rolled back gave %v", err)
		}
		return errand.Permanent(errDeclined)
	}, errand.BatchOptions{Max: 10})
	items := make([]errand.NewJob, 6)
	for n := range items {
		items[n] = errand.NewJob{Args: charge{n}}
	}
	added := must(s.q.EnqueueMany(t.Context(), items))
	run(t, w)
	for n, e := range added {
		_, err := errand.Await[any](t.Context(), s.q, e.ID)
		if died := errors.Is(err, errand.ErrDead); !died && !errors.Is(err, errand.ErrNoResult) || died != (n == 4) {
			t.Errorf("job %d ended with %v", n, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, c := range calls[1:] {
		if slices.Contains(c, 0) || slices.Contains(c, 1) {
			t.Errorf("calls of %v", calls)
		}
	}
	if came[2] != "7" {
		t.Errorf("it goes on at %q", came[2])
	}
	if page := must(s.q.Jobs(t.Context(), errand.JobFilter{Kind: "note"}, nil)); len(page.Jobs) > 0 {
		t.Errorf("a job was enqueued with the end of one that did not end so: %+v", page.Jobs)
	}
}

// The transaction of a call may complete a job after that call has failed. The jobs that follow are
// told of all the same.
func TestHandleMany_PartsCompletedLater(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	w := errand.NewWorker(s.q, &errand.WorkerOptions{Logger: quiet})
	var tx *sql.Tx
	errand.HandleMany(w, func(ctx context.Context, jobs []*errand.Job[charge]) error {
		switch {
		case tx == nil:
			tx = must(s.db.BeginTx(context.Background(), nil))
			check(jobs[0].Then(note{Text: "follows"}, nil))
			check(jobs[0].CompleteTx(ctx, tx))
			return errand.Permanent(errDeclined)
		case jobs[0].Args.N == 0:
			check(tx.Commit())
		}
		return nil
	}, errand.BatchOptions{Max: 2}, errand.HandlerOptions{Concurrency: 1})
	events := must(s.q.Subscribe(t.Context(), errand.EventFilter{Kind: "note", Types: []errand.EventType{errand.EventEnqueued}}, 10))
	added := must(s.q.EnqueueMany(t.Context(), []errand.NewJob{{Args: charge{0}}, {Args: charge{1}}}))
	run(t, w)
	for _, e := range added {
		if _, err := errand.Await[any](t.Context(), s.q, e.ID); !errors.Is(err, errand.ErrNoResult) {
			t.Errorf("a job ended with %v", err)
		}
	}
	if e := <-events.Events(); e.Kind != "note" {
		t.Errorf("told of %+v", e)
	}
	if page := must(s.q.Jobs(t.Context(), errand.JobFilter{Kind: "note"}, nil)); len(page.Jobs) != 1 {
		t.Errorf("%d jobs follow", len(page.Jobs))
	}
}

// A panic of middleware is known as what it is of, as one of a handler is: here of a stop whose news
// comes later.
func TestHandleMany_PanicOfMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParts(t, errand.WorkerOptions{}, errand.BatchOptions{Max: 2}, func(context.Context, []*errand.Job[note]) error { return nil },
			errand.HandlerOptions{Middleware: []errand.Middleware{func(errand.HandlerFunc) errand.HandlerFunc {
				return func(context.Context, *errand.Job[errand.RawArgs]) error {
					panic(fmt.Errorf("middleware: %w", context.Canceled))
				}
			}}})
		ids := p.add(1, nil)
		end := run(t, p.w)
		time.Sleep(100 * time.Millisecond)
		check(end())
		if j := lookUp(t, p.q, ids[0]); j.State != errand.Ready || j.Attempt != 1 || j.Retry != 0 {
			t.Errorf("the job is %s with %d attempts and %d retries", j.State, j.Attempt, j.Retry)
		}
	})
}
