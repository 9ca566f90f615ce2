package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// noHurry is a policy whose first retry comes after 10 s.
var noHurry = policy.Policy{MinDelay: 10 * time.Second, MaxDelay: 10 * time.Second, Retries: 3, MinDelayRetries: 3, Jitter: policy.NoJitter}

// callLog records the calls of a batch handler.
type callLog struct {
	mu      sync.Mutex
	sizes   []int
	at      []time.Time
	running int
	most    int
}

func (c *callLog) begin(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes, c.at = append(c.sizes, n), append(c.at, time.Now())
	c.running++
	c.most = max(c.most, c.running)
}

func (c *callLog) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
}

// want checks how many jobs each call had.
func (c *callLog) want(t *testing.T, sizes ...int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.sizes, sizes) {
		t.Errorf("calls of %v jobs, want %v", c.sizes, sizes)
	}
}

// many registers a batch handler of a kind. A job that runs alone is passed to run too.
func (r *rig) many(kind string, b engine.Batch, run func(ctx context.Context, items []engine.Item)) *callLog {
	calls := &callLog{}
	b.Run = func(ctx context.Context, items []engine.Item) {
		calls.begin(len(items))
		defer calls.end()
		run(ctx, items)
	}
	r.cfg.Handlers[kind] = engine.Handler{Batch: &b, Run: func(ctx context.Context, job *storage.Leased) error {
		items := []engine.Item{{Ctx: ctx, Job: job}}
		b.Run(ctx, items)
		return items[0].Err
	}}
	return calls
}

// lasting is a batch handler that takes d.
func lasting(d time.Duration) func(context.Context, []engine.Item) {
	return func(context.Context, []engine.Item) { time.Sleep(d) }
}

func TestBatch_Sizes(t *testing.T) {
	for _, c := range []struct {
		what  string
		batch engine.Batch
		jobs  []int // how many bytes of args each has
		limit int   // Concurrency of the kind
		want  []int
		most  int // calls at a time
	}{
		{"all in one", engine.Batch{Max: 9}, make([]int, 9), 0, []int{9}, 1},
		{"evenly", engine.Batch{Max: 4}, make([]int, 9), 0, []int{3, 3, 3}, 3},
		{"one by one", engine.Batch{Max: 1}, make([]int, 3), 0, []int{1, 1, 1}, 3},
		{"one call at a time", engine.Batch{Max: 4}, make([]int, 9), 1, []int{4, 4, 1}, 1},
		{"two calls at a time", engine.Batch{Max: 4}, make([]int, 16), 2, []int{4, 4, 4, 4}, 2},
		{"no more than there are runners", engine.Batch{Max: 2}, make([]int, 12), 0, []int{2, 2, 2, 2, 2, 2}, 4},
		{"bytes", engine.Batch{Max: 9, MaxBytes: 100}, []int{40, 60, 1, 200, 10, 10}, 0, []int{2, 2, 1, 1}, 4},
		{"bytes, one call at a time", engine.Batch{Max: 9, MaxBytes: 100}, []int{50, 50, 50, 50, 50}, 1, []int{2, 2, 1}, 1},
		{"a rest below Min", engine.Batch{Max: 4, Min: 2, Wait: time.Hour}, make([]int, 9), 0, []int{3, 3, 3}, 3},
		{"no rest below Min", engine.Batch{Max: 4, Min: 3, Wait: time.Hour}, make([]int, 10), 0, []int{4, 4}, 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				calls := r.many("k", c.batch, lasting(time.Second))
				h := r.cfg.Handlers["k"]
				h.Concurrency = c.limit
				r.cfg.Handlers["k"] = h
				jobs := make([]storage.NewJob, len(c.jobs))
				for i, n := range c.jobs {
					jobs[i] = storage.NewJob{Queue: "q", Kind: "k", Args: []byte(strings.Repeat("1", max(n, 1)))}
				}
				if _, err := r.app.Enqueue(t.Context(), r.now(), jobs); err != nil {
					t.Fatal(err)
				}
				r.start()
				pass(20 * time.Second)
				slices.SortFunc(calls.sizes, func(a, b int) int { return b - a }) // they run beside each other
				calls.want(t, c.want...)
				total := 0
				for _, n := range calls.sizes {
					total += n
				}
				if calls.most != c.most || r.count(storage.Done) != total {
					t.Errorf("%d calls at a time and %d jobs done, want %d and %d", calls.most, r.count(storage.Done), c.most, total)
				}
			})
		})
	}
}

// Jobs of one lane only come together, in their order.
func TestBatch_Lanes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Queues = []string{"q", "r"}
		var mu sync.Mutex
		var got []string
		for _, kind := range []string{"a", "b"} {
			r.many(kind, engine.Batch{Max: 9}, func(_ context.Context, items []engine.Item) {
				s := ""
				for _, i := range items {
					s += fmt.Sprint(i.Job.Queue, i.Job.Kind, i.Job.Priority, " ")
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, s)
			})
		}
		for i, lane := range []storage.Lane{{Queue: "q", Kind: "a"}, {Queue: "r", Kind: "a"}, {Queue: "q", Kind: "b"}, {Queue: "q", Kind: "a"}, {Queue: "r", Kind: "a"}} {
			r.add(storage.NewJob{Queue: lane.Queue, Kind: lane.Kind, Priority: i})
		}
		r.start()
		pass(time.Second)
		slices.Sort(got)
		if want := []string{"qa3 qa0 ", "qb2 ", "ra4 ra1 "}; !slices.Equal(got, want) {
			t.Errorf("calls of %q, want %q", got, want)
		}
	})
}

// Each job has the verdict that the handler has for it.
func TestBatch_Verdicts(t *testing.T) {
	errs := []error{
		nil, errors.New("failed"), &engine.PermanentError{}, &engine.SnoozeError{For: time.Minute},
		&engine.CancelError{}, &engine.RetryAfterError{After: time.Hour}, &engine.DecodeError{}, panics{},
	}
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = noHurry.Delivery()
		calls := r.many("k", engine.Batch{Max: 99}, func(_ context.Context, items []engine.Item) {
			for i := range items {
				items[i].Err = errs[i]
			}
		})
		ids := r.enqueue("k", len(errs))
		r.start()
		calls.want(t, len(errs))
		failed := storage.Counters{Attempt: 1, Retry: 1}
		r.wantState(ids[0], storage.Done, storage.Counters{Attempt: 1})
		r.wantState(ids[1], storage.Scheduled, failed)
		r.wantState(ids[2], storage.Dead, storage.Counters{Attempt: 1})
		r.wantState(ids[3], storage.Scheduled, storage.Counters{Attempt: 1, Snoozes: 1})
		r.wantState(ids[4], storage.Cancelled, storage.Counters{Attempt: 1})
		if due := r.wantState(ids[5], storage.Scheduled, failed).DueAt; due.Before(time.Now().Add(time.Hour)) {
			t.Errorf("due at %v, want in an hour", due)
		}
		r.wantState(ids[6], storage.Scheduled, failed)
		if got := r.wantState(ids[7], storage.Scheduled, failed).Error; got != "panic: of an error" {
			t.Errorf("error is %q", got)
		}
	})
}

// panics is an error whose methods panic.
type panics struct{}

func (panics) Error() string { panic("of an error") }

// A call that does not return, or that has no time left, has failed for all its jobs.
func TestBatch_AllFail(t *testing.T) {
	for name, run := range map[string]func(context.Context, []engine.Item){
		"panic: oops":                   func(context.Context, []engine.Item) { panic("oops") },
		"handler called runtime.Goexit": func(context.Context, []engine.Item) { runtime.Goexit() },
		"timeout of 2s exceeded": func(ctx context.Context, items []engine.Item) {
			<-ctx.Done()
			for i := range items {
				items[i].Err = ctx.Err()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Policy = noHurry.Delivery()
				calls := r.many("k", engine.Batch{Max: 3}, run)
				r.cfg.Timeout = time.Minute
				var jobs []storage.NewJob
				for _, timeout := range []time.Duration{0, 2 * time.Second, 3 * time.Second} {
					jobs = append(jobs, storage.NewJob{Queue: "q", Kind: "k", Timeout: timeout})
				}
				ids := r.add(jobs...)
				r.start()
				pass(3 * time.Second)
				stacks := 0
				for _, id := range ids {
					rec := r.wantState(id, storage.Scheduled, storage.Counters{Attempt: 1, Retry: 1})
					if !strings.HasPrefix(rec.Error, name) {
						t.Errorf("error is %q", rec.Error)
					}
					if rec.History[0].Stack != "" {
						stacks++
					}
				}
				if stacks > 1 {
					t.Errorf("%d stacks are kept, want one", stacks)
				}
				pass(10 * time.Second)
				calls.want(t, 3, 3) // and the runner is of use
			})
		})
	}
}

// A job that is cancelled, or whose lease is lost, leaves the others alone; the call ends
// with the last of them.
func TestBatch_EndsWithLast(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var ended [3]error
		calls := r.many("k", engine.Batch{Max: 3}, func(ctx context.Context, items []engine.Item) {
			for i := range items {
				defer context.AfterFunc(items[i].Ctx, func() { ended[i] = context.Cause(items[i].Ctx) })()
			}
			<-ctx.Done()
			for i := range items {
				items[i].Err = context.Cause(ctx)
			}
		})
		ids := r.enqueue("k", 3)
		r.start()
		for i, id := range ids {
			if calls.running != 1 || ended[i] != nil {
				t.Fatalf("before cancelling job %d: %d calls run, ended: %v", i, calls.running, ended)
			}
			r.cancelJob(id)
			pass(time.Second)
			if !errors.Is(ended[i], engine.ErrCancelled) {
				t.Errorf("job %d: its context ended with %v", i, ended[i])
			}
		}
		pass(time.Minute)
		for _, id := range ids {
			r.wantState(id, storage.Cancelled, storage.Counters{Attempt: 1})
		}
		calls.want(t, 3)
		if lines := r.logs.with("stuck"); len(lines) > 0 {
			t.Errorf("logged: %q", lines)
		}
	})
}

// Nothing is leased before enough jobs are ready, or the first has waited for long
// enough; nobody polls for that.
func TestBatch_Waits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		calls := r.many("k", engine.Batch{Max: 10, Min: 5, Wait: time.Minute}, lasting(0))
		r.handle("other", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		start := time.Now()
		ids := r.enqueue("k", 4)
		pass(50 * time.Second)
		r.enqueue("other", 1)
		calls.want(t)
		r.wantState(ids[0], storage.Ready, storage.Counters{})
		n := r.store.count()
		pass(9 * time.Second)
		if got := r.store.of("exchange", n); len(got) > 0 {
			t.Errorf("%d exchanges while nothing can be done", len(got))
		}
		pass(time.Second)
		calls.want(t, 4)
		if got := calls.at[0].Sub(start); got < time.Minute || got > time.Minute+time.Millisecond {
			t.Errorf("called after %v", got)
		}
		r.enqueue("k", 3)
		r.enqueue("k", 2)
		calls.want(t, 4, 5)
	})
}

// After a crash the jobs of a batch run one by one.
func TestBatch_Crash(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first := r.another()
		first.cfg.Queues = r.cfg.Queues
		began := first.many("k", engine.Batch{Max: 9}, func(ctx context.Context, _ []engine.Item) { <-ctx.Done() })
		first.start()
		ids := r.enqueue("k", 5)
		began.want(t, 5)
		first.crash()
		calls := r.many("k", engine.Batch{Max: 9}, lasting(0))
		r.start()
		pass(5 * time.Second)
		calls.want(t, 1, 1, 1, 1, 1)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
		}
	})
}
