package apitest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// slip is what note was called once.
type slip struct{ Text string }

func (slip) Kind() string { return "slip" }

// A handler runs jobs of the names that its kind had before, by its settings.
func TestHandler_Aliases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		var got []string
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			got = append(got, job.Kind+" "+job.Args.Text)
			return errors.New("always")
		}, errand.HandlerOptions{Aliases: []string{"slip"}, Concurrency: 1, Policy: &policy.Policy{}})
		run(t, w)
		old := enqueue(t, q, slip{Text: "a"}, nil)
		enqueue(t, q, note{Text: "b"}, nil)
		synctest.Wait()
		if slices.Sort(got); !slices.Equal(got, []string{"note b", "slip a"}) {
			t.Errorf("the handler got %q", got)
		}
		if j := lookUp(t, q, old); j.State != errand.Dead || j.Kind != "slip" {
			t.Errorf("the job is %v of kind %s, want dead by the policy of the handler", j.State, j.Kind)
		}
	})
}

type ownKey struct{}

// trail collects what middleware has seen.
type trail struct {
	mu    sync.Mutex
	lines []string
}

func (tr *trail) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, fmt.Sprintf(format, args...))
}

// around returns middleware that notes what passes.
func (tr *trail) around(name string) errand.Middleware {
	return func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			tr.add("%s in", name)
			err := next(ctx, job)
			tr.add("%s out: %v", name, err)
			return err
		}
	}
}

func (tr *trail) want(t *testing.T, want ...string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !slices.Equal(tr.lines, want) {
		t.Errorf("got  %q\nwant %q", tr.lines, want)
	}
	tr.lines = nil
}

// The worker's middleware is around that of the handler, the first one outermost.
func TestMiddleware_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		var tr trail
		w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: []errand.Middleware{tr.around("a"), tr.around("b")}})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			tr.add("handler")
			return errors.New("no")
		}, errand.HandlerOptions{Middleware: []errand.Middleware{tr.around("c"), tr.around("d")}, Policy: &policy.Policy{}})
		errand.HandleRaw(w, "raw", func(context.Context, *errand.Job[errand.RawArgs]) error { return nil })
		run(t, w)
		enqueue(t, q, note{}, nil)
		synctest.Wait()
		tr.want(t, "a in", "b in", "c in", "d in", "handler", "d out: no", "c out: no", "b out: no", "a out: no")
		enqueue(t, q, errand.RawArgs{OfKind: "raw"}, nil)
		synctest.Wait()
		tr.want(t, "a in", "b in", "b out: <nil>", "a out: <nil>")
	})
}

// Middleware sees all that a handler sees, and can change what comes of it.
func TestMiddleware_OfHandler(t *testing.T) {
	type key struct{}
	for _, c := range []struct {
		name    string
		wrap    func(next errand.HandlerFunc, ctx context.Context, job *errand.Job[errand.RawArgs]) error
		handler error
		state   errand.State
		reason  errand.Reason
		error   string
		text    string // that the handler got; "-": it was not called
	}{
		{name: "passes on", state: errand.Done, text: "hi ctx h", wrap: func(next errand.HandlerFunc, ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			return next(context.WithValue(ctx, key{}, "ctx"), job)
		}},
		{name: "replaces the error", state: errand.Dead, reason: storage.ReasonPermanent, error: "late: no", text: "hi  h", handler: errors.New("no"),
			wrap: func(next errand.HandlerFunc, ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				return errand.Permanent(fmt.Errorf("late: %w", next(ctx, job)))
			}},
		{name: "forgives", state: errand.Done, text: "hi  h", handler: errors.New("no"),
			wrap: func(next errand.HandlerFunc, ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				_ = next(ctx, job)
				return nil
			}},
		{name: "does not call", state: errand.Cancelled, error: "not today", text: "-",
			wrap: func(errand.HandlerFunc, context.Context, *errand.Job[errand.RawArgs]) error {
				return errand.Cancel(errors.New("not today"))
			}},
		{name: "panics", state: errand.Dead, reason: storage.ReasonExhausted, error: "panic: oh", text: "-",
			wrap: func(errand.HandlerFunc, context.Context, *errand.Job[errand.RawArgs]) error { panic("oh") }},
		{name: "changes the job", state: errand.Done, text: "HI  x", wrap: func(next errand.HandlerFunc, ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			changed := *job
			changed.Args.JSON = json.RawMessage(strings.Replace(string(job.Args.JSON), "hi", "HI", 1))
			changed.Headers = map[string]string{"h": "x"}
			return next(ctx, &changed)
		}},
		{name: "breaks the args", state: errand.Dead, reason: storage.ReasonDecode, error: "decode: args: unexpected end of JSON input", text: "-",
			wrap: func(next errand.HandlerFunc, ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				job.Args.JSON = nil
				return next(ctx, job)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := memoryQueue(t, errand.Options{})
				var seen errand.Job[errand.RawArgs]
				w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
					return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
						seen = *job
						return c.wrap(next, ctx, job)
					}
				}}})
				text := "-"
				var own errand.Job[note]
				errand.Handle(w, func(ctx context.Context, job *errand.Job[note]) error {
					v, _ := ctx.Value(key{}).(string)
					text, own = job.Args.Text+" "+v+" "+job.Headers["h"], *job
					return c.handler
				}, errand.HandlerOptions{Policy: &policy.Policy{}})
				run(t, w)
				id := enqueue(t, q, note{Text: "hi"}, &errand.JobOptions{Headers: map[string]string{"h": "h"}, Priority: 7})
				synctest.Wait()
				j := lookUp(t, q, id)
				if j.State != c.state || j.Reason != c.reason || j.Error != c.error || text != c.text {
					t.Errorf("the job is %v (%s), error %q, and the handler got %q", j.State, j.Reason, j.Error, text)
				}
				if string(j.Args) != `{"Text":"hi","N":0}` || j.Headers["h"] != "h" {
					t.Errorf("stored are %s and %v", j.Args, j.Headers)
				}
				if seen.ID != id || seen.Kind != "note" || seen.Queue != "default" || seen.Attempt != 1 || seen.Priority != 7 ||
					seen.Args.OfKind != "note" || seen.Phase != policy.PhaseFirst || seen.CreatedAt.IsZero() || seen.DueAt.IsZero() {
					t.Errorf("middleware got %+v", seen)
				}
				if text != "-" && (own.ID != id || own.Kind != seen.Kind || own.Queue != seen.Queue || own.Attempt != 1 || own.Priority != 7 ||
					own.Phase != seen.Phase || own.CreatedAt != seen.CreatedAt || own.DueAt != seen.DueAt) {
					t.Errorf("the handler got %+v, middleware %+v", own, seen)
				}
			})
		})
	}
}

// Jobs go through the middleware of the queue one by one, however they are enqueued.
func TestMiddleware_OfQueue(t *testing.T) {
	var tr trail
	refuse := errors.New("refused")
	ctx := context.WithValue(t.Context(), ownKey{}, "v")
	q, _ := memoryQueue(t, errand.Options{MaxHeaders: 40, Middleware: []errand.Middleware{tr.around("a"), func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			var n note
			if err := json.Unmarshal(job.Args.JSON, &n); err != nil {
				return err
			}
			if !job.ID.IsZero() || job.Attempt != 0 || job.Args.OfKind != "note" || job.Kind != "note" {
				t.Errorf("middleware got %+v", job)
			}
			job.Queue = "elsewhere" // has no effect
			switch n.Text {
			case "refuse":
				return refuse
			case "forget":
				return nil
			case "lose":
				return next(context.Background(), job)
			case "break":
				job.Args.JSON = json.RawMessage("{")
			case "long":
				job.Headers = map[string]string{"x": strings.Repeat("x", 40)}
			case "hide":
				job.Headers = map[string]string{"x": strings.Repeat("x", 40)}
				_ = next(ctx, job)
				return nil
			case "mend":
				job.Headers = map[string]string{"x": strings.Repeat("x", 40)}
				if next(ctx, job) == nil {
					t.Error("next took headers that are too large")
				}
				job.Headers = nil
			default:
				if job.Headers == nil {
					job.Headers = map[string]string{}
				}
				job.Headers["v"] = fmt.Sprint(ctx.Value(ownKey{}))
				job.Args.JSON = json.RawMessage(`{"Text": "` + n.Text + `!"}`)
			}
			return next(ctx, job)
		}
	}}})
	given := map[string]string{"h": "h"}
	e, err := q.Enqueue(ctx, note{Text: "one"}, &errand.JobOptions{Headers: given})
	if err != nil {
		t.Fatal(err)
	}
	j := lookUp(t, q, e.ID)
	if string(j.Args) != `{"Text":"one!"}` || j.Headers["v"] != "v" || j.Headers["h"] != "h" || len(given) != 1 || j.Queue != "default" {
		t.Errorf("stored are %s, %v in %s", j.Args, j.Headers, j.Queue)
	}
	tr.want(t, "a in", "a out: <nil>")
	many, err := q.EnqueueMany(ctx, []errand.NewJob{{Args: note{Text: "two"}}, {Args: note{Text: "three"}}})
	if err != nil || len(many) != 2 || string(lookUp(t, q, many[1].ID).Args) != `{"Text":"three!"}` {
		t.Errorf("EnqueueMany gave %v, %v", many, err)
	}
	tr.want(t, "a in", "a out: <nil>", "a in", "a out: <nil>")

	_, err = q.EnqueueMany(ctx, []errand.NewJob{{Args: note{Text: "four"}}, {Args: note{Text: "refuse"}}, {Args: note{Text: "five"}}})
	if !errors.Is(err, refuse) || err.Error() != "jobs[1]: refused" {
		t.Errorf("a job is refused with %v", err)
	}
	tr.want(t, "a in", "a out: <nil>", "a in", "a out: refused")
	for text, want := range map[string]string{
		"forget": "middleware returned nil without a call of next",
		"lose":   "middleware must pass on its context",
		"break":  "jobs[1].args \"errand.RawArgs\": must marshal to JSON",
		"long":   "jobs[1].headers 48: must be at most 40 bytes of JSON",
		"hide":   "jobs[1].headers 48: must be at most 40 bytes of JSON",
	} {
		if _, err := q.EnqueueMany(ctx, []errand.NewJob{{Args: note{}}, {Args: note{Text: text}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := q.Enqueue(ctx, note{Text: "long"}, nil); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("an error of next is %v", err)
	}
	if _, err := q.Enqueue(ctx, note{Text: "mend"}, nil); err != nil {
		t.Errorf("headers that were mended: %v", err)
	}
	counts, err := q.Counts(ctx)
	if err != nil || len(counts) != 1 || counts[0].N != 4 {
		t.Errorf("%+v jobs were enqueued, %v: want 4", counts, err)
	}
}

// The job of a schedule goes through the middleware when it is declared.
func TestMiddleware_OfSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		q, _ := memoryQueue(t, errand.Options{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				n++
				if n == 3 {
					return errors.New("refused")
				}
				job.Headers = map[string]string{"by": "middleware"}
				return next(ctx, job)
			}
		}}})
		s := errand.Schedule{Name: "s", Spec: "@every 1m", Args: note{Text: "tick"}}
		if err := errors.Join(q.Schedule(t.Context(), s), q.Schedule(t.Context(), s)); err != nil {
			t.Fatal(err)
		}
		if err := q.Schedule(t.Context(), s); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("a refused schedule gave %v", err)
		}
		var got []string
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			got = append(got, job.Args.Text+job.Headers["by"])
			return nil
		})
		run(t, w)
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if len(got) != 2 || got[0] != "tickmiddleware" || n != 3 {
			t.Errorf("ticks gave %q, and the middleware was called %d times", got, n)
		}
	})
}

func TestMiddleware_IsChecked(t *testing.T) {
	_, err := errand.New(t.Context(), nil, &errand.Options{Middleware: []errand.Middleware{nil}})
	wantFaults(t, err, fault{"store", "nil", "must not be nil"}, fault{"middleware[0]", "nil", "must not be nil"})
	q, _ := memoryQueue(t, errand.Options{})
	w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc { return next }, nil}})
	errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil })
	wantFaults(t, w.Run(t.Context()), fault{"middleware[1]", "nil", "must not be nil"})
}

// afterwards is middleware that notes what has become of each job, and adds a number that is
// another one each time but where a schedule is declared.
func (tr *trail) afterwards(next errand.HandlerFunc) errand.HandlerFunc {
	n := 0
	return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
		name := string(job.Args.JSON)
		errand.AfterEnqueue(ctx, func(e errand.Enqueued, err error) {
			tr.add("%s id:%t dup:%t %v", name, !e.ID.IsZero(), e.Duplicate, err)
		})
		if strings.Contains(name, "panic") {
			panic("as asked")
		}
		if !errand.Declaring(ctx) {
			n++
			job.Headers = map[string]string{"n": fmt.Sprint(n), "traceparent": "00-" + fmt.Sprint(n)}
		}
		if err := next(ctx, job); err != nil {
			return err
		}
		if strings.Contains(name, "refuse") {
			return errors.New("refused")
		}
		tr.add("%s out", name)
		return nil
	}
}

// What AfterEnqueue is given is called once when the call has ended, with its result. With a Merge
// it is told at once that what the job was before is dropped.
func TestAfterEnqueue(t *testing.T) {
	var tr trail
	q, _ := memoryQueue(t, errand.Options{Middleware: []errand.Middleware{tr.afterwards}})
	ctx := t.Context()
	jobs := func(texts ...string) (all []errand.NewJob) {
		for _, text := range texts {
			all = append(all, errand.NewJob{Args: step{Pad: text}, Options: &errand.JobOptions{Unique: &errand.Unique{Key: text}}})
		}
		return all
	}
	_, err := q.EnqueueMany(ctx, jobs("a", "b", "a"))
	check(err)
	tr.want(t, `{"N":0,"Pad":"a"} out`, `{"N":0,"Pad":"b"} out`, `{"N":0,"Pad":"a"} out`,
		`{"N":0,"Pad":"a"} id:true dup:false <nil>`, `{"N":0,"Pad":"b"} id:true dup:false <nil>`, `{"N":0,"Pad":"a"} id:true dup:true <nil>`)
	if _, err := q.EnqueueMany(ctx, jobs("c", "refuse", "d")); err == nil {
		t.Error("nothing was refused")
	}
	tr.want(t, `{"N":0,"Pad":"c"} out`, `{"N":0,"Pad":"c"} id:false dup:false jobs[1]: refused`, `{"N":0,"Pad":"refuse"} id:false dup:false jobs[1]: refused`)
	func() {
		defer func() { _ = recover() }()
		_, _ = q.EnqueueMany(ctx, jobs("c", "panic"))
	}()
	tr.want(t, `{"N":0,"Pad":"c"} out`, `{"N":0,"Pad":"c"} id:false dup:false errand: the call has panicked`,
		`{"N":0,"Pad":"panic"} id:false dup:false errand: the call has panicked`)
	errand.AfterEnqueue(ctx, func(errand.Enqueued, error) { t.Error("called without a job") })
	if errand.Declaring(ctx) {
		t.Error("a context of no middleware says that a schedule is declared")
	}
	merge := func(_, n errand.Args) (errand.Args, error) {
		m := n.(step)
		m.N++
		return m, nil
	}
	o := &errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Replace, Merge: merge}}}
	must(q.Enqueue(ctx, step{Pad: "a"}, o))
	tr.want(t, `{"N":0,"Pad":"a"} out`, `{"N":0,"Pad":"a"} id:false dup:false errand: job dropped`, `{"N":1,"Pad":"a"} out`, `{"N":1,"Pad":"a"} id:true dup:true <nil>`)
	o.Unique.OnConflict.Merge = func(_, _ errand.Args) (errand.Args, error) { return nil, errDeclined }
	_, err = q.Enqueue(ctx, step{Pad: "a"}, o)
	tr.want(t, `{"N":0,"Pad":"a"} out`, `{"N":0,"Pad":"a"} id:false dup:false `+err.Error())
}

// A panic in what AfterEnqueue is given, or an end of the goroutine, fails the attempt that called
// Then, if it is not done yet.
func TestAfterEnqueue_panicsAfterThen(t *testing.T) {
	for name, finish := range map[string]bool{"returned": false, "finished": true, "returned, Goexit": false, "finished, Goexit": true} {
		t.Run(name, func(t *testing.T) {
			want := "panic: as asked"
			if strings.HasSuffix(name, "Goexit") {
				want = "a function of AfterEnqueue called runtime.Goexit"
			}
			var told atomic.Int32
			s := newShop(t, errand.Options{Policy: &policy.Policy{}, Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
				return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
					errand.AfterEnqueue(ctx, func(e errand.Enqueued, _ error) {
						if told.Add(1); e.ID.IsZero() {
							if strings.HasSuffix(name, "Goexit") {
								runtime.Goexit()
							}
							panic("as asked")
						}
					})
					return next(ctx, job)
				}
			}}})
			sub := subscribe(t, s.q, errand.EventFilter{Types: []errand.EventType{errand.EventDone, errand.EventDead}}, 10)
			w := errand.NewWorker(s.q, nil)
			errand.Handle(w, func(ctx context.Context, job *errand.Job[charge]) error {
				check(errors.Join(job.Then(step{N: 1}, nil), job.Then(step{N: 2}, nil)))
				if finish {
					return job.Finish(ctx, func(*sql.Tx) error { return nil })
				}
				return nil
			})
			id := enqueue(t, s.q, charge{7}, nil)
			stop := run(t, w)
			<-sub.Events()
			check(stop())
			j := lookUp(t, s.q, id)
			if panicked := j.State == errand.Dead && j.Error == want; panicked == finish || told.Load() != 3 {
				t.Errorf("the job is %v with %q, and %d calls were made", j.State, j.Error, told.Load())
			}
		})
	}
}

// Those who called Then are told also for jobs of a group that are not done, as one before them
// was not: middleware has run for all of them.
func TestAfterEnqueue_behind(t *testing.T) {
	var called, told, dropped atomic.Int32
	s := newShop(t, errand.Options{Policy: &policy.Policy{}, Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			if job.Kind == (step{}).Kind() {
				errand.AfterEnqueue(ctx, func(_ errand.Enqueued, err error) {
					if told.Add(1); errors.Is(err, errand.ErrDropped) {
						dropped.Add(1)
					}
				})
			}
			return next(ctx, job)
		}
	}}})
	w := errand.NewWorker(s.q, &errand.WorkerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			called.Add(1)
			check(job.Then(step{N: 1}, nil))
			if job.Attempt == 1 && job.Headers["fails"] != "" {
				return errDeclined
			}
			return next(ctx, job)
		}
	}}})
	sub := subscribe(t, s.q, errand.EventFilter{Types: []errand.EventType{errand.EventDead}}, 10)
	errand.HandleMany(w, func(context.Context, []*errand.Job[charge]) error { return nil }, errand.BatchOptions{Max: 10, ByGroup: true})
	var jobs []errand.NewJob
	for i := range 4 {
		headers := map[string]string{"fails": "yes"}
		if i != 1 {
			headers = nil
		}
		jobs = append(jobs, errand.NewJob{Args: charge{i}, Options: &errand.JobOptions{Group: "g", Headers: headers}})
	}
	must(s.q.EnqueueMany(t.Context(), jobs))
	stop := run(t, w)
	<-sub.Events()
	check(stop())
	if called.Load() == 0 || told.Load() != called.Load() || dropped.Load() == 0 {
		t.Errorf("Then was called %d times, %d were told, of which %d were dropped", called.Load(), told.Load(), dropped.Load())
	}
}

// A schedule that is declared again with Declaring in mind has written nothing.
func TestDeclaring(t *testing.T) {
	var tr trail
	q, _ := memoryQueue(t, errand.Options{Middleware: []errand.Middleware{tr.afterwards}})
	s := errand.Schedule{Name: "s", Spec: "@every 1h", Args: step{}}
	check(q.Schedule(t.Context(), s))
	before := must(q.Schedules().Get(t.Context(), "s"))
	check(q.Schedule(t.Context(), s))
	if after := must(q.Schedules().Get(t.Context(), "s")); !reflect.DeepEqual(before, after) || len(after.Options.Headers) > 0 {
		t.Errorf("declaring it again made %+v of %+v", after, before)
	}
	tr.want(t, `{"N":0} out`, `{"N":0} out`)
}

// Jobs of Then go the way into the queue with the context that middleware has passed to the
// handler, and a notice of a death has the trace of the dead job.
func TestMiddleware_OfFollowers(t *testing.T) {
	for name, many := range map[string]bool{"one": false, "many": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tr trail
				q, _ := memoryQueue(t, errand.Options{Middleware: []errand.Middleware{tr.afterwards, func(next errand.HandlerFunc) errand.HandlerFunc {
					return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
						tr.add("%s by %v", job.Args.JSON, ctx.Value(ownKey{}))
						return next(ctx, job)
					}
				}}})
				w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
					return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
						return next(context.WithValue(ctx, ownKey{}, job.Kind), job)
					}
				}}})
				run1 := func(job *errand.Job[note]) error {
					return errors.Join(job.Then(step{N: 7}, nil), map[bool]error{true: errand.Permanent(errors.New("no"))}[job.Args.Text == "die"])
				}
				o := errand.HandlerOptions{OnDead: &errand.OnDead{}}
				if many {
					errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error { return run1(jobs[0]) }, errand.BatchOptions{Max: 5}, o)
				} else {
					errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error { return run1(job) }, o)
				}
				enqueue(t, q, note{Text: "die"}, nil) // told of before its handler runs
				run(t, w)
				synctest.Wait()
				tr.want(t, `{"Text":"die","N":0} by <nil>`, `{"Text":"die","N":0} out`, `{"Text":"die","N":0} id:true dup:false <nil>`,
					`{"N":7} by note`, `{"N":7} out`, `{"N":7} id:false dup:false errand: job dropped`)
				page := must(q.Jobs(t.Context(), errand.JobFilter{Kind: "errand.dead"}, nil))
				if len(page.Jobs) != 1 {
					t.Fatalf("%d notices", len(page.Jobs))
				}
				if h := lookUp(t, q, page.Jobs[0].ID).Headers; !maps.Equal(h, map[string]string{"traceparent": "00-1"}) {
					t.Errorf("the notice has headers %v", h)
				}
			})
		})
	}
}
