package tracing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/tracing"
)

// A job is enqueued, fails twice and so dies, is redriven and done: its spans, those of the
// notice of its death and of the job that follows it have their links or parents.
func TestTracing(t *testing.T) {
	const created = "create default order"
	for name, c := range map[string]struct {
		children     tracing.Children
		first, other string // between an attempt and the enqueue
	}{
		"no attempt":    {tracing.NoAttempt, " ~ ", " ~ "},
		"first attempt": {tracing.FirstAttempt, " < " + created + " ~ ", " ~ "},
		"every attempt": {tracing.EveryAttempt, " < " + created + " ~ ", " < " + created + " ~ "},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tracing.Options{Children: c.children})
			ctx, request := r.provider.Tracer("test").Start(t.Context(), "request")
			id := must(r.Enqueue(ctx, order{Failures: 2}, nil)).ID
			request.End()
			r.drain()
			if n := must(r.DeadLetters().Redrive(t.Context(), errand.JobFilter{}, nil)).Redriven; n != 1 {
				t.Fatalf("%d jobs were redriven", n)
			}
			r.drain()
			lines, by := r.spans()
			var notice, follow string
			switch c.children {
			case tracing.NoAttempt:
				notice, follow = " ~ "+created, " ~ create default receipt"
			default:
				notice, follow = " < "+created+" ~ "+created, " < create default receipt ~ create default receipt"
			}
			want := []string{
				created + " < request ",
				"request ",
				"process default order 1 failed" + c.first + created,
				"process default order 2 failed" + c.other + created,
				"process default errand.dead 1 done" + notice,
				"create default receipt < process default order 3 done",
				"process default order 3 done" + c.other + created,
				"process default receipt 1 done" + follow,
			}
			if slices.Sort(lines); !slices.Equal(lines, sorted(want)) {
				t.Errorf("spans\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
			create, failed, done := by[created], by["process default order 2 failed"], by["process default order 3 done"]
			if create.SpanKind != trace.SpanKindProducer || failed.SpanKind != trace.SpanKindConsumer || value(create, "messaging.message.id") != id.String() {
				t.Errorf("the enqueue is %v with %v, an attempt %v", create.SpanKind, create.Attributes, failed.SpanKind)
			}
			if failed.Status != (sdk.Status{Code: codes.Error, Description: "declined"}) || len(failed.Events) != 1 || value(failed, "errand.retry") != "1" || value(failed, "error.type") != "failed" {
				t.Errorf("the failure is %+v", failed)
			}
			if done.Status.Code != codes.Unset || value(done, "errand.retry") != "0" || value(done, "messaging.message.id") != id.String() ||
				value(done, "messaging.system") != "errand" || value(done, "messaging.destination.name") != "default" ||
				value(done, "messaging.operation.name") != "process" || value(done, "messaging.operation.type") != "process" {
				t.Errorf("the success is %+v", done)
			}
			if apart := done.SpanContext.TraceID() != create.SpanContext.TraceID(); apart != (c.children != tracing.EveryAttempt) {
				t.Errorf("the success is in another trace: %t", apart)
			}
		})
	}
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return lines
}

// Declaring a schedule makes no span, and declaring it again has written nothing.
func TestTracing_schedule(t *testing.T) {
	r := newRig(t, tracing.Options{})
	s := errand.Schedule{Name: "s", Spec: "@every 1h", Args: order{}}
	ctx, span := r.provider.Tracer("test").Start(t.Context(), "start")
	defer span.End()
	check(r.Schedule(ctx, s))
	before := must(r.Schedules().Get(ctx, "s"))
	db := must(sql.Open("sqlite", r.path))
	defer db.Close()
	other := must(db.Conn(ctx)) // one connection sees whether others have written since
	version := func() (n int) {
		check(other.QueryRowContext(ctx, "PRAGMA data_version").Scan(&n))
		return n
	}
	was := version()
	check(r.Schedule(ctx, s))
	if version() != was {
		t.Error("declaring it again has written")
	}
	after := must(r.Schedules().Get(ctx, "s"))
	if !reflect.DeepEqual(before, after) || len(after.Options.Headers) > 0 {
		t.Errorf("declaring it again made %+v of %+v", after, before)
	}
	if lines, _ := r.spans(); len(lines) > 0 {
		t.Errorf("spans: %q", lines)
	}
	must(r.Enqueue(ctx, order{}, nil))
	if version() == was {
		t.Error("an enqueue has not written")
	}
}

// Each job of a call has a span of its own, which ends with the call, and is not lost with it.
func TestTracing_calls(t *testing.T) {
	r := newRig(t, tracing.Options{})
	held := &errand.JobOptions{Unique: &errand.Unique{Key: "k"}}
	many := must(r.EnqueueMany(t.Context(), []errand.NewJob{{Args: order{N: 1}, Options: held}, {Args: receipt{}}, {Args: order{N: 2}, Options: held}}))
	spans := r.exporter.GetSpans()
	if len(spans) != 3 {
		t.Fatalf("%d spans", len(spans))
	}
	for i, s := range spans {
		if value(s, "messaging.message.id") != many[i].ID.String() || value(s, "errand.duplicate") != map[bool]string{true: "true"}[i == 2] {
			t.Errorf("span %d has %v", i, s.Attributes)
		}
	}
	for i, e := range many[:2] {
		if got := r.parent(e.ID); got != spans[i].SpanContext.SpanID().String() {
			t.Errorf("job %d has trace %q", i, got)
		}
	}
	r.exporter.Reset()
	var e errand.Enqueued
	check(r.Tx(t.Context(), func(tx *sql.Tx) (err error) {
		e, err = r.EnqueueTx(t.Context(), tx, order{}, nil)
		return err
	}))
	if spans = r.exporter.GetSpans(); len(spans) != 1 || r.parent(e.ID) != spans[0].SpanContext.SpanID().String() {
		t.Errorf("EnqueueTx gave %+v", spans)
	}
	r.exporter.Reset()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := r.Enqueue(ctx, order{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("without a context: %v", err)
	}
	if spans = r.exporter.GetSpans(); len(spans) != 1 || spans[0].Status.Code != codes.Error {
		t.Errorf("a failure gave %+v", spans)
	}
}

// parent returns the ID of the span that the headers of a job name.
func (r *rig) parent(id errand.ID) string {
	parts := strings.Split(must(r.Job(context.Background(), id)).Headers["traceparent"], "-")
	if len(parts) != 4 {
		return strings.Join(parts, "-")
	}
	return parts[2]
}

// Headers that leave no room are enqueued as they are, and a trace that they name goes on.
func TestTracing_headers(t *testing.T) {
	r := newRig(t, tracing.Options{})
	full := map[string]string{"x": strings.Repeat("x", 16<<10-10)}
	if j := must(r.Job(t.Context(), must(r.Enqueue(t.Context(), order{}, &errand.JobOptions{Headers: full})).ID)); len(j.Headers) != 1 {
		t.Errorf("headers %v", len(j.Headers))
	}
	given := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x": "y"}
	j := must(r.Job(t.Context(), must(r.Enqueue(t.Context(), order{}, &errand.JobOptions{Headers: given})).ID))
	if got := j.Headers["traceparent"]; j.Headers["x"] != "y" || !strings.HasPrefix(got, given["traceparent"][:36]) || got == given["traceparent"] {
		t.Errorf("headers %v of %v", j.Headers, given)
	}
}

// The handler has the baggage of its job, and a job that follows has it too, whatever the parent.
func TestTracing_baggage(t *testing.T) {
	for name, c := range map[string]struct {
		children tracing.Children
		many     bool
	}{"root": {}, "child": {children: tracing.EveryAttempt}, "many": {many: true}} {
		t.Run(name, func(t *testing.T) {
			both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
			r := newRig(t, tracing.Options{Children: c.children, Propagator: both})
			w := errand.NewWorker(r.Queue, &errand.WorkerOptions{Middleware: []errand.Middleware{r.tracing.Process}})
			var got []string
			handle := func(ctx context.Context, job *errand.Job[order]) error {
				got = append(got, baggage.FromContext(ctx).Member("tenant").Value())
				return job.Then(receipt{}, nil)
			}
			if c.many {
				errand.HandleMany(w, tracing.Many(r.tracing, func(ctx context.Context, jobs []*errand.Job[order]) error { return handle(ctx, jobs[0]) }), errand.BatchOptions{Max: 3})
			} else {
				errand.Handle(w, handle)
			}
			errand.Handle(w, func(ctx context.Context, _ *errand.Job[receipt]) error {
				got = append(got, baggage.FromContext(ctx).Member("tenant").Value())
				return nil
			})
			carried := baggage.ContextWithBaggage(t.Context(), must(baggage.New(must(baggage.NewMember("tenant", "7")))))
			must(r.Enqueue(carried, order{}, nil))
			errandtest.Drain(t, r.Queue, w, nil)
			want := []string{"7", "7"}
			if c.many {
				want[0] = ""
			}
			if !slices.Equal(got, want) {
				t.Errorf("tenants %q, want %q", got, want)
			}
		})
	}
}

// Without a provider nothing is written into headers.
func TestTracing_unused(t *testing.T) {
	unused := must(tracing.New(nil))
	r := newRig(t, tracing.Options{})
	q := must(errand.Open(t.Context(), t.TempDir()+"/other.db", &errand.Options{Middleware: []errand.Middleware{unused.Enqueue}}))
	defer func() { check(q.Close()) }()
	if j := must(q.Job(t.Context(), must(q.Enqueue(t.Context(), receipt{}, nil)).ID)); j.Headers != nil {
		t.Errorf("headers %v", j.Headers)
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: []errand.Middleware{unused.Process}})
	n := 0
	errand.Handle(w, func(context.Context, *errand.Job[receipt]) error { n++; return nil })
	errandtest.Drain(t, q, w, nil)
	if lines, _ := r.spans(); n != 1 || len(lines) > 0 {
		t.Errorf("%d attempts, spans %q", n, lines)
	}
}

// The verdict decides about the status, and a panic leaves its own stack.
func TestTracing_verdicts(t *testing.T) {
	for name, c := range map[string]struct {
		run     func() error
		verdict string
		code    codes.Code
	}{
		"permanent": {func() error { return errand.Permanent(errDeclined) }, "permanent", codes.Error},
		"cancel":    {func() error { return errand.Cancel(errDeclined) }, "cancel", codes.Unset},
		"panic":     {func() error { panic("as asked") }, "failed", codes.Error},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tracing.Options{})
			w := errand.NewWorker(r.Queue, &errand.WorkerOptions{Middleware: []errand.Middleware{r.tracing.Process}})
			errand.Handle(w, func(context.Context, *errand.Job[receipt]) error { return c.run() })
			id := must(r.Enqueue(t.Context(), receipt{}, &errand.JobOptions{Policy: &policy.Policy{}})).ID
			errandtest.Drain(t, r.Queue, w, nil)
			spans := r.exporter.GetSpans()
			if s := spans[len(spans)-1]; value(s, "errand.verdict") != c.verdict || s.Status.Code != c.code {
				t.Errorf("the span is %+v", s)
			}
			if j := must(r.Job(t.Context(), id)); name == "panic" && !strings.Contains(j.History[0].Stack, "TestTracing_verdicts") {
				t.Errorf("the stack is %s", j.History[0].Stack)
			}
		})
	}
}

// An attempt that had to end has not failed, unless it says so itself.
func TestTracing_causes(t *testing.T) {
	for name, c := range map[string]struct {
		cause, err error
		verdict    string
		exception  string // its type; "" for none, and no error
	}{
		"cancelled":               {errand.ErrCancelled, context.Canceled, "cancelled", ""},
		"cancelled, own error":    {errand.ErrCancelled, errand.Permanent(errDeclined), "cancelled", ""},
		"cancelled, done":         {errand.ErrCancelled, nil, "done", ""},
		"lost":                    {errand.ErrLeaseLost, context.Canceled, "lease_lost", ""},
		"interrupted":             {errand.ErrShutdown, fmt.Errorf("call: %w", context.Canceled), "interrupted", ""},
		"interrupted, own error":  {errand.ErrShutdown, errDeclined, "interrupted", ""},
		"interrupted, verdict":    {errand.ErrShutdown, errand.Permanent(errDeclined), "permanent", "*errors.errorString"},
		"interrupted, in verdict": {errand.ErrShutdown, errand.Permanent(context.Canceled), "interrupted", ""},
		"interrupted, retry":      {errand.ErrShutdown, errand.RetryAfter(time.Hour, errDeclined), "interrupted", ""},
		"timeout":                 {context.DeadlineExceeded, context.Canceled, "failed", "*errors.errorString"},
		"snooze":                  {nil, errand.Snooze(time.Hour, errDeclined), "snooze", ""},
		"cancel":                  {nil, errand.Cancel(errDeclined), "cancel", ""},
		"permanent, own type":     {nil, errand.Permanent(&errand.FieldError{}), "permanent", "*errand.FieldError"},
		"permanent, alone":        {nil, errand.Permanent(nil), "permanent", "*engine.PermanentError"},
		"nested":                  {nil, errand.RetryAfter(time.Hour, errand.Unavailable(&errand.FieldError{})), "retry after", "*errand.FieldError"},
		"around a verdict":        {nil, fmt.Errorf("call: %w", errand.Permanent(errDeclined)), "permanent", "*fmt.wrapError"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tracing.Options{})
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			handle := func() error {
				if c.cause != nil {
					end(c.cause)
				}
				return c.err
			}
			raw := &errand.Job[errand.RawArgs]{Queue: "default", Kind: "order"}
			one := r.tracing.Process(func(context.Context, *errand.Job[errand.RawArgs]) error { return handle() })
			many := tracing.Many(r.tracing, func(context.Context, []*errand.Job[receipt]) error { return handle() })
			all := tracing.Many(r.tracing, func(context.Context, []*errand.Job[receipt]) error {
				return errand.BatchError{{1}: handle(), {2}: nil}
			})
			jobs := []*errand.Job[receipt]{{Queue: "default", Kind: "receipt"}}
			_, _, _ = one(ctx, raw), many(ctx, jobs), all(ctx, jobs)
			spans := r.exporter.GetSpans()
			for i, s := range spans[:2] {
				r.wantVerdict(s, i, c.verdict, c.exception)
			}
			if c.cause != nil && c.exception == "" {
				r.wantVerdict(spans[2], 2, c.verdict, "")
			}
		})
	}
}

func (r *rig) wantVerdict(s tracetest.SpanStub, i int, verdict, exception string) {
	r.Helper()
	got := ""
	for _, e := range s.Events {
		for _, a := range e.Attributes {
			if a.Key == "exception.type" {
				got = a.Value.String()
			}
		}
	}
	if value(s, "errand.verdict") != verdict || got != exception || (s.Status.Code == codes.Error) != (exception != "") {
		r.Errorf("span %d has verdict %q, status %v and exception %q, want %q and %q", i, value(s, "errand.verdict"), s.Status, got, verdict, exception)
	}
}

// A job that is cancelled while it runs and one whose worker stops are no errors, nor are calls of many.
func TestTracing_ended(t *testing.T) {
	for verdict, end := range map[string]func(*rig, errand.ID, func()) error{
		"cancelled": func(r *rig, id errand.ID, _ func()) error {
			_, err := r.Cancel(r.Context(), id)
			return err
		},
		"interrupted": func(_ *rig, _ errand.ID, stop func()) error { stop(); return nil },
	} {
		ended := func(t *testing.T, many bool) {
			r := newRig(t, tracing.Options{})
			w := errand.NewWorker(r.Queue, &errand.WorkerOptions{Grace: -1, Middleware: []errand.Middleware{r.tracing.Process}})
			started, ended := make(chan struct{}), make(chan struct{})
			handle := func(ctx context.Context) error {
				close(started)
				defer close(ended)
				<-ctx.Done()
				return ctx.Err()
			}
			if many {
				errand.HandleMany(w, tracing.Many(r.tracing, func(ctx context.Context, _ []*errand.Job[order]) error { return handle(ctx) }), errand.BatchOptions{Max: 3})
			} else {
				errand.Handle(w, func(ctx context.Context, _ *errand.Job[order]) error { return handle(ctx) })
			}
			id := must(r.Enqueue(t.Context(), order{}, nil)).ID
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			run := make(chan error, 1)
			go func() { run <- w.Run(ctx) }()
			<-started
			check(end(r, id, stop))
			<-ended
			stop()
			if err := <-run; err != nil && !errors.Is(err, errand.ErrShutdown) {
				t.Error(err)
			}
			spans := r.exporter.GetSpans()
			r.wantVerdict(spans[len(spans)-1], len(spans)-1, verdict, "")
		}
		t.Run(verdict, func(t *testing.T) { ended(t, false) })
		t.Run(verdict+", many", func(t *testing.T) { ended(t, true) })
	}
}

// The span of a job of Then says whether the job was dropped, and lasts no longer than Then.
func TestTracing_then(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		dropped string
	}{"done": {nil, ""}, "failed": {errDeclined, "true"}, "snoozed": {errand.Snooze(time.Hour, nil), "true"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tracing.Options{})
			w := errand.NewWorker(r.Queue, &errand.WorkerOptions{Middleware: []errand.Middleware{r.tracing.Process}})
			var returned time.Time
			errand.Handle(w, func(_ context.Context, job *errand.Job[order]) error {
				check(job.Then(receipt{}, nil))
				returned = time.Now()
				return c.err
			}, errand.HandlerOptions{Policy: &policy.Policy{}})
			errand.Handle(w, func(context.Context, *errand.Job[receipt]) error { return nil })
			must(r.Enqueue(t.Context(), order{}, nil))
			errandtest.Drain(t, r.Queue, w, nil)
			_, by := r.spans()
			s := by["create default receipt"]
			if value(s, "errand.dropped") != c.dropped || s.Status.Code != codes.Unset || len(s.Events) > 0 || s.EndTime.IsZero() || s.EndTime.After(returned) {
				t.Errorf("the span is %+v, and Then returned at %v", s, returned)
			}
		})
	}
}

// Of the spans of an Enqueue that goes its way again, all but the last one say that they are dropped.
func TestTracing_merge(t *testing.T) {
	r := newRig(t, tracing.Options{})
	o := &errand.JobOptions{Unique: &errand.Unique{Key: "k", OnConflict: errand.OnConflict{
		Mode: errand.Replace, Merge: func(_, n errand.Args) (errand.Args, error) { return n, nil },
	}}}
	id := must(r.Enqueue(t.Context(), order{N: 1}, o)).ID
	must(r.Enqueue(t.Context(), order{N: 2}, o))
	var got []string
	for _, s := range r.exporter.GetSpans() {
		got = append(got, fmt.Sprint(value(s, "errand.dropped"), " ", value(s, "messaging.message.id") == id.String(), " ", s.Status.Code))
	}
	if want := []string{" true Unset", "true false Unset", " true Unset"}; !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
}

// An exporter that hangs keeps no handler and no enqueue back, behind a batch span processor.
func TestTracing_exporterHangs(t *testing.T) {
	hang := &hanging{begun: make(chan struct{}), end: make(chan struct{})}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(hang, sdk.WithMaxExportBatchSize(1), sdk.WithMaxQueueSize(1)))
	r := newRig(t, tracing.Options{TracerProvider: provider})
	must(r.Enqueue(t.Context(), order{N: 1}, nil))
	<-hang.begun
	for range 20 {
		must(r.Enqueue(t.Context(), order{}, nil))
	}
	if n := r.drain(); n.Done != 42 { // each order is followed by a receipt
		t.Errorf("%+v attempts, want 42 done", n)
	}
	close(hang.end)
	check(provider.Shutdown(t.Context()))
}

// hanging is an exporter that does not return until end is closed.
type hanging struct{ begun, end chan struct{} }

func (h *hanging) ExportSpans(context.Context, []sdk.ReadOnlySpan) error {
	select {
	case h.begun <- struct{}{}:
	case <-h.end:
	}
	<-h.end
	return nil
}

func (h *hanging) Shutdown(context.Context) error { return nil }

// A call is a failure if any of its jobs is.
func TestMany_verdicts(t *testing.T) {
	for name, c := range map[string]struct {
		err     func(errand.ID) error
		verdict string
	}{
		"nil":      {func(errand.ID) error { return nil }, "done"},
		"all done": {func(id errand.ID) error { return errand.BatchError{id: nil} }, "done"},
		"one not":  {func(id errand.ID) error { return errand.BatchError{id: errDeclined} }, "failed"},
		"snooze":   {func(errand.ID) error { return errand.Snooze(time.Hour, errDeclined) }, "snooze"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tracing.Options{})
			w := errand.NewWorker(r.Queue, nil)
			errand.HandleMany(w, tracing.Many(r.tracing, func(_ context.Context, jobs []*errand.Job[*receipt]) error {
				return c.err(jobs[0].ID)
			}), errand.BatchOptions{Max: 3})
			must(r.Enqueue(t.Context(), receipt{}, nil))
			errandtest.Drain(t, r.Queue, w, nil)
			spans := r.exporter.GetSpans()
			if s := spans[len(spans)-1]; value(s, "errand.verdict") != c.verdict || (s.Status.Code == codes.Error) != (c.verdict == "failed") {
				t.Errorf("the span is %+v", s)
			}
		})
	}
}

// A call of many jobs is one span with a link to each enqueue, and what follows is in it.
func TestMany(t *testing.T) {
	r := newRig(t, tracing.Options{})
	w := errand.NewWorker(r.Queue, &errand.WorkerOptions{Concurrency: 1, Middleware: []errand.Middleware{r.tracing.Process}})
	errand.HandleMany(w, tracing.Many(r.tracing, func(_ context.Context, jobs []*errand.Job[order]) error {
		check(jobs[0].Then(receipt{}, nil))
		return errand.BatchError{jobs[1].ID: errand.Cancel(errDeclined), jobs[0].ID: nil}
	}), errand.BatchOptions{Max: 3})
	errand.Handle(w, func(context.Context, *errand.Job[receipt]) error { return nil })
	must(r.EnqueueMany(t.Context(), []errand.NewJob{{Args: order{N: 1}}, {Args: order{N: 2}}, {Args: order{N: 3}}}))
	errandtest.Drain(t, r.Queue, w, nil)
	lines, by := r.spans()
	const created = "create default order"
	want := []string{created, created, created, "process default order ~ " + created + " ~ " + created + " ~ " + created,
		"create default receipt < process default order", "process default receipt 1 done ~ create default receipt"}
	if slices.Sort(lines); !slices.Equal(lines, sorted(want)) {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if s := by["process default order"]; value(s, "messaging.batch.message_count") != "3" || value(s, "errand.verdict") != "failed" || s.Status.Code != codes.Error {
		t.Errorf("the call is %+v", s)
	}
}

func TestNew_IsChecked(t *testing.T) {
	_, err := tracing.New(&tracing.Options{Children: 3})
	if fault, ok := errors.AsType[*errand.FieldError](err); !ok || fault.Field != "children" || fault.Value != 3 {
		t.Errorf("got %v", err)
	}
}
