package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

var quiet = slog.New(slog.DiscardHandler)

// memoryQueue is a queue on the store in memory, for tests in a bubble.
func memoryQueue(t *testing.T, o errand.Options) (*errand.Queue, storage.Store) {
	t.Helper()
	store := storagetest.NewMemory().Open()
	o.Logger = quiet
	q, err := errand.New(t.Context(), store, &o)
	if err != nil {
		t.Fatal(err)
	}
	return q, store
}

// run has w work until the test ends, or stop is called, which returns what Run
// gave.
func run(t *testing.T, w *errand.Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	var ended atomic.Bool
	go func() { result <- w.Run(ctx) }()
	stop = func() error {
		if ended.Swap(true) {
			return nil
		}
		cancel()
		return <-result
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return stop
}

//errand:shows types of args | type_of_which_JSON_sees_nothing second_type_of_a_kind
func TestHandle_panicsOnMisuse(t *testing.T) {
	fn := func(context.Context, *errand.Job[note]) error { return nil }
	for _, c := range []struct {
		name string
		do   func(w *errand.Worker)
		want string
	}{
		{"nil handler", func(w *errand.Worker) { errand.Handle[note](w, nil) }, `"note": nil handler`},
		{"twice", func(w *errand.Worker) { errand.Handle(w, fn); errand.Handle(w, fn) }, `"note": the kind has a handler already`},
		{"no kind", func(w *errand.Worker) {
			errand.Handle(w, func(context.Context, *errand.Job[ofKind]) error { return nil })
		}, `kind ""`},
		{"pointer without a kind", func(w *errand.Worker) {
			errand.Handle(w, func(context.Context, *errand.Job[*byPointer]) error { return nil })
		}, `kind ""`},
		{"type of which JSON sees nothing", func(w *errand.Worker) {
			errand.Handle(w, func(context.Context, *errand.Job[private]) error { return nil })
		}, `"private": apitest.private must have exported fields`},
		{"second type of a kind", func(w *errand.Worker) {
			errand.Handle(w, fn)
			errand.Handle(w, func(context.Context, *errand.Job[copied]) error { return nil })
		}, `"note": the kind must be of one type: apitest.note has it, and apitest.copied`},
		{"interface", func(w *errand.Worker) {
			errand.Handle(w, func(context.Context, *errand.Job[errand.Args]) error { return nil })
		}, `errand.Args is an interface`},
		{"many kinds", func(w *errand.Worker) {
			errand.Handle(w, func(context.Context, *errand.Job[*errand.RawArgs]) error { return nil })
		}, `RawArgs are of many kinds: HandleRaw names one`},
		{"nil raw handler", func(w *errand.Worker) { errand.HandleRaw(w, "note", nil) }, `HandleRaw "note": nil handler`},
		{"raw and typed", func(w *errand.Worker) {
			errand.Handle(w, fn)
			errand.HandleRaw(w, "note", func(context.Context, *errand.Job[errand.RawArgs]) error { return nil })
		}, `"note": the kind has a handler already`},
		{"raw, malformed kind", func(w *errand.Worker) {
			errand.HandleRaw(w, "a b", func(context.Context, *errand.Job[errand.RawArgs]) error { return nil })
		}, `kind "a b"`},
		{"negative timeout", func(w *errand.Worker) {
			errand.Handle(w, fn, errand.HandlerOptions{Timeout: -time.Second})
		}, `timeout -1s must not be negative`},
		{"bad policy", func(w *errand.Worker) {
			errand.Handle(w, fn, errand.HandlerOptions{Policy: &policy.Policy{Retries: -7}})
		}, `-7`},
		{"alias that is no kind", func(w *errand.Worker) {
			errand.Handle(w, fn, errand.HandlerOptions{Aliases: []string{"a b"}})
		}, `"note": errand: aliases[0] "a b"`},
		{"alias that is the kind", func(w *errand.Worker) {
			errand.Handle(w, fn, errand.HandlerOptions{Aliases: []string{"note"}})
		}, `aliases[0] "note": must be another kind`},
		{"alias twice", func(w *errand.Worker) {
			errand.Handle(w, fn, errand.HandlerOptions{Aliases: []string{"memo", "slip", "memo"}})
		}, `aliases[2] "memo": must be another kind`},
		{"alias that has a handler", func(w *errand.Worker) {
			errand.Handle(w, func(context.Context, *errand.Job[value]) error { return nil })
			errand.Handle(w, fn, errand.HandlerOptions{Aliases: []string{"value"}})
		}, `"note, alias value": the kind has a handler already`},
		{"kind that is an alias", func(w *errand.Worker) {
			errand.Handle(w, fn, errand.HandlerOptions{Aliases: []string{"value"}})
			errand.Handle(w, func(context.Context, *errand.Job[value]) error { return nil })
		}, `"value": the kind has a handler already`},
		{"nil middleware", func(w *errand.Worker) {
			errand.Handle(w, fn, errand.HandlerOptions{Middleware: []errand.Middleware{nil}})
		}, `middleware[0] nil: must not be nil`},
		{"middleware that returns nil", func(w *errand.Worker) {
			errand.Handle(w, fn, errand.HandlerOptions{Middleware: []errand.Middleware{func(errand.HandlerFunc) errand.HandlerFunc { return nil }}})
		}, `middleware[0] returns nil`},
		{"two options", func(w *errand.Worker) {
			errand.Handle(w, fn, errand.HandlerOptions{}, errand.HandlerOptions{})
		}, `at most one HandlerOptions`},
		{"after Run", func(w *errand.Worker) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := w.Run(ctx); err != nil {
				panic(err)
			}
			errand.Handle(w, fn)
		}, `the worker has been run`},
		{"nil queue", func(*errand.Worker) { errand.NewWorker(nil, nil) }, "nil queue"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, _ := memoryQueue(t, errand.Options{})
			defer func() {
				got, _ := recover().(string)
				if !strings.HasPrefix(got, "errand: ") || !strings.Contains(got, c.want) {
					t.Errorf("panic with %q, want one with %q", got, c.want)
				}
			}()
			c.do(errand.NewWorker(q, nil))
		})
	}
}

func TestWorker_refusesBadOptions(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	w := errand.NewWorker(q, &errand.WorkerOptions{
		Queues:        []string{"fine", "not fine", "fine"},
		Concurrency:   -1,
		LeaseDuration: time.Millisecond,
		Timeout:       -1,
		StuckAfter:    -1,
		MaxCrashes:    -1,
		MaxSnoozes:    -1,
		MaxRetryAfter: -1,
	})
	err := w.Run(t.Context())
	want := []string{
		"queues[1]", "queues[2]", "concurrency", "max_crashes", "max_snoozes", "lease_duration", "timeout", "stuck_after", "max_retry_after",
	}
	if got := fields(err); !reflect.DeepEqual(got, want) {
		t.Errorf("fields %q, want %q (%v)", got, want, err)
	}
	if !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("%v is not ErrInvalid", err)
	}
}

func TestWorker_handsOverTheWholeJob(t *testing.T) {
	q := openQueue(t, &errand.Options{Logger: quiet})
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail"}})
	jobs := make(chan *errand.Job[note], 2)
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		jobs <- job
		if job.Attempt == 1 {
			return errors.New("once more") // at once, by the default policy
		}
		return nil
	})
	stop := run(t, w)
	id := enqueue(t, q, note{Text: "hello", N: 7}, &errand.JobOptions{
		Queue: "mail", Priority: -3, Headers: map[string]string{"trace": "abc"},
	})
	info := lookUp(t, q, id)
	for i, phase := range []policy.Phase{policy.PhaseFirst, policy.PhaseImmediate} {
		got := *<-jobs
		if got.DueAt.Before(info.CreatedAt) || time.Since(got.DueAt) > time.Minute {
			t.Errorf("attempt %d was due at %v", got.Attempt, got.DueAt)
		}
		want := errand.Job[note]{
			ID: id, Queue: "mail", Kind: "note", Args: note{"hello", 7}, Headers: map[string]string{"trace": "abc"},
			Priority: -3, Attempt: i + 1, Retry: i, Phase: phase, CreatedAt: info.CreatedAt, DueAt: got.DueAt,
		}
		if got, want := must(json.Marshal(got)), must(json.Marshal(want)); string(got) != string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := lookUp(t, q, id); got.State != errand.Done || got.Attempt != 2 || len(got.History) != 1 {
		t.Errorf("job is %s after %d attempts with history %v", got.State, got.Attempt, got.History)
	}
}

func TestWorker_manyJobsOnAFile(t *testing.T) {
	q := openQueue(t, &errand.Options{Logger: quiet})
	w := errand.NewWorker(q, nil)
	const n = 500
	var left atomic.Int64
	left.Store(n)
	all := make(chan struct{})
	var sum atomic.Int64
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		sum.Add(int64(job.Args.N))
		if left.Add(-1) == 0 {
			close(all)
		}
		return nil
	})
	stop := run(t, w)
	jobs := make([]errand.NewJob, n)
	for i := range jobs {
		jobs[i].Args = note{N: i}
	}
	if _, err := q.EnqueueMany(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	<-all
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := sum.Load(); got != n*(n-1)/2 {
		t.Errorf("sum of the jobs that ran is %d", got)
	}
	counts, err := q.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := []errand.Count{{Queue: "default", Kind: "note", State: errand.Done, N: n}}; !reflect.DeepEqual(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
}

func TestWorker_argsThatDoNotDecodeDieByThePolicy(t *testing.T) {
	for name, bad := range map[string]storage.NewJob{
		"args":    {Queue: "default", Kind: "note", Args: []byte(`{"N":"not a number"}`)},
		"headers": {Queue: "default", Kind: "note", Args: []byte(`{}`), Headers: []byte(`[]`)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy.Policy{MinDelay: time.Second, MaxDelay: time.Second, Retries: 2}
				q, store := memoryQueue(t, errand.Options{Policy: &p})
				w := errand.NewWorker(q, nil)
				errand.Handle(w, func(context.Context, *errand.Job[note]) error {
					t.Error("the handler was called")
					return nil
				})
				run(t, w)
				res, err := store.Enqueue(t.Context(), time.Now(), []storage.NewJob{bad})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				got := lookUpRaw(t, store, res[0].ID)
				if got.State != errand.Dead || got.Reason != storage.ReasonDecode || got.Attempt != 3 {
					t.Errorf("job is %s %q after %d attempts", got.State, got.Reason, got.Attempt)
				}
				if !strings.HasPrefix(got.Error, "decode: "+name+": ") {
					t.Errorf("error %q", got.Error)
				}
			})
		})
	}
}

func lookUpRaw(t *testing.T, store storage.Store, id errand.ID) storage.Record {
	t.Helper()
	r, err := store.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counted has its kind from its type, and is used by pointer.
type counted struct{ N int }

func (*counted) Kind() string { return "counted" }

func TestWorker_argsByPointer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		var got []int
		errand.Handle(w, func(_ context.Context, job *errand.Job[*counted]) error {
			got = append(got, job.Args.N)
			return nil
		})
		run(t, w)
		enqueue(t, q, &counted{N: 5}, nil)
		synctest.Wait()
		if !reflect.DeepEqual(got, []int{5}) {
			t.Errorf("got %v", got)
		}
	})
}

func TestWorker_usesTheOptionsOfAllLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := func(n int) *policy.Policy { return &policy.Policy{Retries: n, NoDelayRetries: n} }
		q, _ := memoryQueue(t, errand.Options{
			Policy: retries(4), Queues: map[string]errand.QueueOptions{"slow": {Policy: retries(3)}, "other": {}},
		})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "slow", "other"}, Timeout: 4 * time.Second})
		fail := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error { return fail(ctx) })
		errand.Handle(w, func(ctx context.Context, _ *errand.Job[value]) error { return fail(ctx) },
			errand.HandlerOptions{Policy: retries(2), Timeout: 2 * time.Second})
		run(t, w)
		for _, c := range []struct {
			args     errand.Args
			o        errand.JobOptions
			attempts int
			timeout  string
		}{
			{value{}, errand.JobOptions{Queue: "slow", Policy: retries(1), Timeout: time.Second}, 2, "1s"},
			{value{}, errand.JobOptions{Queue: "slow"}, 3, "2s"},
			{note{}, errand.JobOptions{Queue: "slow"}, 4, "4s"},
			{note{}, errand.JobOptions{Queue: "other"}, 5, "4s"},
			{note{}, errand.JobOptions{}, 5, "4s"},
		} {
			id := enqueue(t, q, c.args, &c.o)
			time.Sleep(time.Minute)
			synctest.Wait()
			got := lookUp(t, q, id)
			if got.State != errand.Dead || got.Attempt != c.attempts || !strings.HasPrefix(got.Error, "timeout of "+c.timeout+" ") {
				t.Errorf("%T with %+v: %s after %d attempts, %q; want %d attempts of %s",
					c.args, c.o, got.State, got.Attempt, got.Error, c.attempts, c.timeout)
			}
		}
	})
}

func TestWorker_graceIsConfigured(t *testing.T) {
	for _, c := range []struct{ set, want time.Duration }{{0, 8 * time.Second}, {-1, 0}, {time.Minute, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			q, _ := memoryQueue(t, errand.Options{})
			w := errand.NewWorker(q, &errand.WorkerOptions{Grace: c.set})
			errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
			stop := run(t, w)
			id := enqueue(t, q, note{}, nil)
			synctest.Wait()
			began := time.Now()
			if err := stop(); err != nil {
				t.Error(err)
			}
			if got := time.Since(began); got != c.want {
				t.Errorf("grace %v: stop took %v, want %v", c.set, got, c.want)
			}
			if got := lookUp(t, q, id); got.State != errand.Ready || got.Retry != 0 {
				t.Errorf("grace %v: job is %s after %d failures", c.set, got.State, got.Retry)
			}
		})
	}
}

func TestWorker_Shutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		release := make(chan struct{})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { <-release; return nil })
		result := make(chan error, 1)
		go func() { result <- w.Run(t.Context()) }()
		id := enqueue(t, q, note{}, nil)
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := w.Shutdown(ctx)
		if !errors.Is(err, errand.ErrStuck) || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("Shutdown gave %v, want ErrStuck for %v", err, id)
		}
		if got := time.Since(began); got != 6*time.Second {
			t.Errorf("Shutdown took %v, want 1 s of grace and 5 s until stuck", got)
		}
		if got := <-result; !errors.Is(got, errand.ErrStuck) {
			t.Errorf("Run gave %v", got)
		}
		close(release)
		synctest.Wait()
		if got := lookUp(t, q, id).State; got != errand.Done {
			t.Errorf("job is %s", got)
		}
	})
}

func TestWorker_ShutdownBeforeRun(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	w := errand.NewWorker(q, nil)
	if err := w.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown gave %v", err)
	}
	if err := w.Run(t.Context()); err != nil {
		t.Errorf("Run after it gave %v", err)
	}
}

func TestWorker_runsOnce(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	w := errand.NewWorker(q, nil)
	stop := run(t, w)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("second Run gave no error")
	}
}

func TestWorker_endsWithAClosedQueue(t *testing.T) {
	q := openQueue(t, &errand.Options{Logger: quiet})
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil })
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, errand.ErrClosed) {
		t.Errorf("Run gave %v", err)
	}
}

// A program that closes its queue before its worker, as with a hot reload, and
// opens it again: what ran then is run again as soon as its handler has
// returned, which it does as its lease is lost.
//
//errand:shows a queue closed before its worker | | opened again in the process, its jobs are run again
func TestWorker_QueueClosedFirstAndOpenedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	runs := make(chan *errand.Job[note], 10)
	work := func(handler func(context.Context) error) (*errand.Queue, <-chan error) {
		q, err := errand.Open(t.Context(), path, &errand.Options{SQLite: errand.SQLiteOptions{Durability: errand.Relaxed}})
		if err != nil {
			t.Fatal(err)
		}
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(ctx context.Context, job *errand.Job[note]) error {
			runs <- job
			return handler(ctx)
		})
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		return q, ended
	}
	q, ended := work(func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	id := enqueue(t, q, note{}, nil)
	<-runs
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, errand.ErrClosed) {
		t.Errorf("Run: %v", err)
	}
	q, _ = work(func(context.Context) error { return nil })
	defer q.Close()
	select {
	case job := <-runs:
		if job.ID != id || job.Attempt != 2 || job.Crashes != 0 {
			t.Errorf("ran again: %+v", job)
		}
	case <-time.After(2 * time.Minute):
		t.Error("not run again")
	}
}

func TestWorker_IdleLearnsThatTheQueueWasClosed(t *testing.T) {
	for _, single := range []bool{true, false} {
		q := openQueue(t, &errand.Options{SQLite: errand.SQLiteOptions{SingleProcess: single}, Logger: quiet})
		w := errand.NewWorker(q, nil)
		ran := make(chan bool)
		errand.Handle(w, func(context.Context, *errand.Job[blob]) error {
			close(ran)
			return nil
		})
		ended := make(chan error)
		go func() { ended <- w.Run(context.Background()) }()
		if _, err := q.Enqueue(t.Context(), blob{}, nil); err != nil {
			t.Fatal(err)
		}
		<-ran
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, errand.ErrClosed) {
			t.Errorf("Run: %v, want ErrClosed", err)
		}
	}
}
