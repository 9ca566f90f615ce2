package apitest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// Of a batch of 500 in which 3 fail these 3 are tried again, in a batch of their own.
func TestHandleMany_RetriesWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		var calls [][]string
		errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error {
			var texts []string
			failed := errand.BatchError{errand.ID{}: errors.New("of no job")}
			for _, job := range jobs {
				texts = append(texts, job.Args.Text)
				if len(calls) == 0 && strings.HasSuffix(job.Args.Text, "77") && job.Args.Text < "300" {
					failed[job.ID] = errors.New("refused")
				}
			}
			calls = append(calls, texts)
			return fmt.Errorf("upload: %w", failed)
		}, errand.BatchOptions{Max: 500}, errand.HandlerOptions{Policy: &policy.Policy{Retries: 3, MinDelay: time.Second, MaxDelay: time.Second, MinDelayRetries: 3, Jitter: policy.NoJitter}})
		var items []errand.NewJob
		for i := range 500 {
			items = append(items, errand.NewJob{Args: note{Text: fmt.Sprintf("%03d", i)}})
		}
		if _, err := q.EnqueueMany(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		run(t, w)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(calls) != 2 || len(calls[0]) != 500 || !slices.Equal(calls[1], []string{"077", "177", "277"}) {
			t.Errorf("%d calls, the second of %q", len(calls), calls[len(calls)-1])
		}
		if counts, err := q.Counts(t.Context()); err != nil || len(counts) != 1 || counts[0].State != errand.Done || counts[0].N != 500 {
			t.Errorf("counts are %v, %v", counts, err)
		}
	})
}

// What a handler returns for several jobs, and for one that runs alone.
func TestHandleMany_Verdicts(t *testing.T) {
	fail := errors.New("fail")
	for name, c := range map[string]struct {
		verdict func(ids []errand.ID) error
		want    []errand.State
	}{
		"nil":         {func([]errand.ID) error { return nil }, []errand.State{errand.Done, errand.Done}},
		"error":       {func([]errand.ID) error { return fail }, []errand.State{errand.Dead, errand.Dead}},
		"empty":       {func([]errand.ID) error { return errand.BatchError{} }, []errand.State{errand.Done, errand.Done}},
		"nil entry":   {func(ids []errand.ID) error { return errand.BatchError{ids[0]: nil} }, []errand.State{errand.Done, errand.Done}},
		"first":       {func(ids []errand.ID) error { return errand.BatchError{ids[0]: fail} }, []errand.State{errand.Dead, errand.Done}},
		"cancel":      {func(ids []errand.ID) error { return errand.BatchError{ids[0]: errand.Cancel(fail)} }, []errand.State{errand.Cancelled, errand.Done}},
		"joined":      {func(ids []errand.ID) error { return errors.Join(errand.BatchError{ids[0]: nil}, fail) }, []errand.State{errand.Dead, errand.Dead}},
		"verdict":     {func([]errand.ID) error { return errand.Cancel(fail) }, []errand.State{errand.Cancelled, errand.Cancelled}},
		"undecodable": {func([]errand.ID) error { return nil }, []errand.State{errand.Done, errand.Done, errand.Dead}},
	} {
		for _, middle := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " with middleware ", middle), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, _ := memoryQueue(t, errand.Options{Policy: &policy.Policy{}})
					var o errand.WorkerOptions
					if middle {
						o.Middleware = []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc { return next }}
					}
					w := errand.NewWorker(q, &o)
					calls := 0
					errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error {
						calls++
						var ids []errand.ID
						for i, job := range jobs {
							if ids = append(ids, job.ID); i > 0 && job.Args.Text < jobs[i-1].Args.Text {
								t.Errorf("the jobs come in another order")
							}
						}
						return c.verdict(ids)
					}, errand.BatchOptions{Max: 10})
					ids := []errand.ID{enqueue(t, q, note{Text: "a"}, nil), enqueue(t, q, note{Text: "b"}, nil)}
					if len(c.want) == 3 {
						ids = append(ids, enqueue(t, q, errand.RawArgs{OfKind: "note", JSON: []byte(`"x"`)}, nil))
					}
					run(t, w)
					synctest.Wait()
					for i, id := range ids {
						if got := lookUp(t, q, id).State; got != c.want[i] {
							t.Errorf("job %d is %s, want %s", i, got, c.want[i])
						}
					}
					if calls != 1 {
						t.Errorf("%d calls", calls)
					}
				})
			})
		}
	}
}

// Middleware sees each job and its verdict; what it does to one is not done to the others.
func TestHandleMany_Middleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: &policy.Policy{}})
		var mu sync.Mutex
		saw := map[string]error{}
		w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				text := string(job.Args.JSON)
				switch {
				case strings.Contains(text, "refuse"):
					return errand.Cancel(errors.New("refused"))
				case strings.Contains(text, "panic"):
					panic("in middleware")
				case strings.Contains(text, "encoded"):
					job.Args.JSON = []byte(strings.Replace(text, "encoded", "decoded", 1))
				case strings.Contains(text, "detached"):
					ctx = context.Background()
				}
				err := next(ctx, job)
				if strings.Contains(text, "twice") {
					err = next(ctx, job)
				}
				mu.Lock()
				defer mu.Unlock()
				saw[text] = err
				return err
			}
		}}})
		var calls []string
		errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error {
			mu.Lock()
			defer mu.Unlock()
			var texts []string
			failed := errand.BatchError{}
			for _, job := range jobs {
				texts = append(texts, job.Args.Text)
				if job.Args.Text == "fail" {
					failed[job.ID] = errors.New("failed")
				}
			}
			calls = append(calls, strings.Join(texts, " "))
			return failed
		}, errand.BatchOptions{Max: 10})
		want := map[string]errand.State{
			"a": errand.Done, "refuse": errand.Cancelled, "panic": errand.Dead, "encoded": errand.Done, "detached": errand.Done, "twice": errand.Done, "fail": errand.Dead,
		}
		ids := map[string]errand.ID{}
		for _, text := range []string{"a", "refuse", "panic", "encoded", "detached", "twice", "fail"} {
			ids[text] = enqueue(t, q, note{Text: text}, nil)
		}
		run(t, w)
		synctest.Wait()
		for text, state := range want {
			if got := lookUp(t, q, ids[text]); got.State != state {
				t.Errorf("%s is %s, want %s: %s", text, got.State, state, got.Error)
			}
		}
		slices.Sort(calls)
		if want := []string{"a decoded twice fail", "detached", "twice"}; !slices.Equal(calls, want) {
			t.Errorf("calls of %q, want %q", calls, want)
		}
		for text, err := range saw {
			if (err != nil) != strings.Contains(text, "fail") {
				t.Errorf("middleware got %v for %s", err, text)
			}
		}
		if h := lookUp(t, q, ids["panic"]).History; len(h) != 1 || !strings.Contains(h[0].Stack, "TestHandleMany_Middleware") {
			t.Errorf("history of the panic: %+v", h)
		}
	})
}

// Middleware that waits for what others have does not keep a call for ever.
func TestHandleMany_MiddlewareInItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: &policy.Policy{}})
		one := make(chan bool, 1)
		w := errand.NewWorker(q, &errand.WorkerOptions{Timeout: time.Minute, Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				one <- true
				defer func() { <-one }()
				return next(ctx, job)
			}
		}}})
		errand.HandleMany(w, func(context.Context, []*errand.Job[note]) error { return nil }, errand.BatchOptions{Max: 10})
		ids := []errand.ID{enqueue(t, q, note{Text: "a"}, nil), enqueue(t, q, note{Text: "b"}, nil)}
		run(t, w)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		states := []string{string(lookUp(t, q, ids[0]).State), string(lookUp(t, q, ids[1]).State)}
		if !slices.Equal(states, []string{"dead", "dead"}) {
			t.Errorf("the jobs are %v, want both dead for want of time", states)
		}
	})
}

func TestHandleMany_Panics(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	fn := func(context.Context, []*errand.Job[note]) error { return nil }
	for _, c := range []struct {
		fn   func(context.Context, []*errand.Job[note]) error
		o    errand.BatchOptions
		want string
	}{
		{nil, errand.BatchOptions{Max: 1}, "nil handler"},
		{fn, errand.BatchOptions{}, "max 0: must be between 1 and 1000"},
		{fn, errand.BatchOptions{Max: 1001}, "max 1001: must be between 1 and 1000"},
		{fn, errand.BatchOptions{Max: 5, MaxBytes: -1}, "max_bytes -1: must not be negative"},
		{fn, errand.BatchOptions{Max: 5, Min: 6, Wait: 1}, "min 6: must be between 0 and max"},
		{fn, errand.BatchOptions{Max: 5, Min: -1}, "min -1: must be between 0 and max"},
		{fn, errand.BatchOptions{Max: 5, Min: 2}, "wait 0s: must be above zero with a min above 1"},
		{fn, errand.BatchOptions{Max: 5, Wait: time.Second}, "min 0: must be above 1 with a wait"},
		{fn, errand.BatchOptions{Max: 5, Min: 2, Wait: -1}, "wait -1ns: must not be negative"},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("%+v: panic %q, want %q", c.o, got, c.want)
				}
			}()
			errand.HandleMany(errand.NewWorker(q, nil), c.fn, c.o)
		}()
	}
}

func TestBatchError_Error(t *testing.T) {
	a, b := errand.ID{}, errand.ID{15: 1}
	for _, c := range []struct {
		err  errand.BatchError
		want string
	}{
		{nil, "no job of the batch failed"},
		{errand.BatchError{a: nil}, "no job of the batch failed"},
		{errand.BatchError{a: nil, b: errors.New("x")}, "job " + b.String() + ": x"},
		{errand.BatchError{b: errors.New("x"), a: errors.New("y")}, "job " + a.String() + ": y (and 1 more)"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
