package tracing

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/errandq/errand"
)

// Many returns fn with one span around each call, for errand.HandleMany. The span begins a trace
// of its own, has a link to the enqueue of each job that has one, and the number of jobs as
// messaging.batch.message_count. An errand.BatchError in which all errors are nil counts as done,
// and any other as failed, unless the jobs had to end as the call had.
//
// [Tracing.Process] makes no span for the kind of A then. The same holds for aliases: name here
// those that errand.HandlerOptions names. Call Many before the worker runs. With Process around
// the handler, jobs of errand.Job.Then are enqueued in the span of the call, with the baggage of
// the job that they follow. The call itself has no baggage.
func Many[A errand.Args](t *Tracing, fn func(ctx context.Context, jobs []*errand.Job[A]) error, aliases ...string) func(context.Context, []*errand.Job[A]) error {
	for _, name := range append(aliases, kindOf[A]()) {
		t.batched.Store(name, nil)
	}
	return func(ctx context.Context, jobs []*errand.Job[A]) error {
		first := jobs[0] // the jobs of a call are of one queue and kind
		options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithNewRoot(), trace.WithAttributes(append(
			attributesOf("process", first.Queue, first.Kind), attribute.Int("messaging.batch.message_count", len(jobs)))...)}
		for _, job := range jobs {
			if from := trace.SpanContextFromContext(t.carried(ctx, job.Headers)); from.IsValid() {
				options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
			}
		}
		ctx, span := t.tracer.Start(ctx, "process "+first.Queue, options...)
		for _, job := range jobs {
			if m, ok := t.members.Load(attemptKey{job.ID, job.Attempt}); ok {
				m.(*member).enter(span.SpanContext())
			}
		}
		var err error
		_ = during(ctx, span, func() error {
			err = fn(ctx, jobs)
			return verdictOf(ctx, err)
		})
		return err
	}
}

// verdictOf returns err, or nil if it says that all jobs are done, or the error of a job if all
// others are done or had to end.
func verdictOf(ctx context.Context, err error) (ended error) {
	all, ok := errors.AsType[errand.BatchError](err)
	if !ok {
		return err
	}
	for _, one := range all {
		switch {
		case one == nil:
		case excuse(ctx, one) != "":
			ended = one
		default:
			return errors.New(err.Error()) // without the verdict of a single job
		}
	}
	return ended
}

// kindOf returns the kind of a type of args.
func kindOf[A errand.Args]() string {
	var args A
	if of := reflect.TypeFor[A](); of.Kind() == reflect.Pointer { // Kind may look at what it points to
		args = reflect.New(of.Elem()).Interface().(A)
	}
	return args.Kind()
}

// member is an attempt in a call of Many. Its context does not come from that of the call, so
// it has to be told the span.
type member struct {
	mu   sync.Mutex
	span trace.SpanContext // of the call; not valid before
}

type memberKey struct{}

// attemptKey names an attempt.
type attemptKey struct {
	id      errand.ID
	attempt int
}

func (m *member) enter(span trace.SpanContext) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.span = span
}

func (m *member) context() trace.SpanContext {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.span
}
