// Package tracing makes spans of OpenTelemetry for jobs: one when a job is enqueued, and one for
// each attempt. It follows the semantic conventions for messaging, which are not stable yet: so
// it is a module of its own, whose names of attributes may change.
//
// The span of an enqueue is of kind PRODUCER, and its context goes into the headers of the job.
// The span of an attempt is of kind CONSUMER, and has a link to that of the enqueue. By default
// each attempt begins a trace of its own, since it may come hours later; see [Options].Children.
//
// A job of errand.Job.Then is enqueued in the span of the attempt. The job of an errand.OnDead
// has a link to the span in which the dead job was enqueued. The jobs of schedules have no link.
//
// Spans have the attributes messaging.system ("errand"), messaging.operation.name and
// messaging.operation.type, messaging.destination.name (the queue) and messaging.message.id (the
// ID of the job), and these:
//
//	errand.kind       kind of the job
//	errand.attempt    number of the attempt, from 1
//	errand.retry      failures since the job was enqueued or redriven
//	errand.verdict    what the handler said: "done", "failed", or an errand.VerdictKind; "cancelled",
//	                  "lease_lost" or "interrupted" if its context was ended
//	errand.dropped    true if nothing was enqueued, and the call has not failed; see [Tracing.Enqueue]
//	errand.duplicate  true if another job holds the unique key; the ID is that of this other job
package tracing

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/errandq/errand"
)

// scope is the name under which the spans are made.
const scope = "github.com/errandq/errand/tracing"

// Children says which attempts are in the trace in which their job was enqueued.
type Children int

const (
	// NoAttempt: each attempt begins a trace of its own.
	NoAttempt Children = iota
	// FirstAttempt: the first attempt is a child of the enqueue. Retries and attempts after a
	// redrive begin a trace of their own.
	FirstAttempt
	// EveryAttempt: all attempts are children of the enqueue, however late they come.
	EveryAttempt
)

// Options configure a [Tracing]. Nil and the zero value mean defaults.
type Options struct {
	// TracerProvider makes the spans. It must not wait for its exporter: use a batch span
	// processor. If nil, that of otel.GetTracerProvider when [New] is called.
	TracerProvider trace.TracerProvider
	// Propagator writes the context of a span into the headers of a job, and reads it. With
	// propagation.Baggage among its parts handlers have the baggage too. The job of an
	// errand.OnDead has only headers of W3C. If nil, propagation.TraceContext.
	Propagator propagation.TextMapPropagator
	// Children says which attempts are children of the span of the enqueue. They have the
	// link too. If zero, NoAttempt. A call of [Many] is never a child.
	Children Children
}

// Tracing has the middleware that makes spans. It is safe for concurrent use.
type Tracing struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	children   Children

	batched sync.Map // the kinds of Many
	members sync.Map // of *member by memberKey: the jobs that are in a call of Many
}

// New returns a Tracing. It returns an errand.FieldError if Children is none of the constants.
func New(o *Options) (*Tracing, error) {
	o = cmp.Or(o, &Options{})
	if o.Children < NoAttempt || o.Children > EveryAttempt {
		return nil, &errand.FieldError{Field: "children", Value: int(o.Children), Limit: "must be NoAttempt (0), FirstAttempt (1) or EveryAttempt (2)"}
	}
	t := &Tracing{propagator: o.Propagator, children: o.Children}
	if t.propagator == nil {
		t.propagator = propagation.TraceContext{}
	}
	provider := o.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	t.tracer = provider.Tracer(scope)
	return t, nil
}

// Enqueue is errand.Middleware for errand.Options. Its span ends when the call has ended that
// enqueues the job: after the commit, or before it with EnqueueTx. With errand.Job.Then its
// end is in the call of Then, but it is exported when the handler has returned. It has no ID, as
// the job exists only when that of the handler is done. If it is known that there will be no job,
// the span has errand.dropped. Its status is no error, as the attempt may have snoozed. With a
// Merge in errand.OnConflict, the span of each try is dropped but the last one.
//
// The parent is the span in the context of the call; if there is none, what the headers of the
// job name. If the headers leave no room for the trace, the job is enqueued without it.
func (t *Tracing) Enqueue(next errand.HandlerFunc) errand.HandlerFunc {
	return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
		if errand.Declaring(ctx) {
			return next(ctx, job)
		}
		ctx, span := t.tracer.Start(t.within(ctx, job.Headers), "create "+job.Queue, trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(attributesOf("create", job.Queue, job.Kind)...))
		var passed time.Time
		defer func() { passed = time.Now() }()
		errand.AfterEnqueue(ctx, func(e errand.Enqueued, err error) { created(span, passed, e, err) })
		own := job.Headers
		added := propagation.MapCarrier{}
		t.propagator.Inject(ctx, added)
		if len(added) == 0 {
			return next(ctx, job)
		}
		job.Headers = maps.Clone(own)
		if job.Headers == nil {
			job.Headers = map[string]string{}
		}
		maps.Copy(job.Headers, added)
		err := next(ctx, job)
		if fault, ok := errors.AsType[*errand.FieldError](err); ok && strings.HasSuffix(fault.Field, "headers") {
			job.Headers = own
			return next(ctx, job)
		}
		return err
	}
}

// created ends the span of an enqueue that passed the middleware before.
func created(span trace.Span, passed time.Time, e errand.Enqueued, err error) {
	dropped := errors.Is(err, errand.ErrDropped)
	var o []trace.SpanEndOption
	switch {
	case !e.ID.IsZero():
		span.SetAttributes(attribute.String("messaging.message.id", e.ID.String()))
	case err == nil || dropped: // Then may have returned long before
		o = append(o, trace.WithTimestamp(passed))
	}
	switch {
	case dropped:
		span.SetAttributes(attribute.Bool("errand.dropped", true))
	case err != nil:
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	case e.Duplicate:
		span.SetAttributes(attribute.Bool("errand.duplicate", true))
	}
	span.End(o...)
}

// within returns ctx with the span that is the parent of an enqueue.
func (t *Tracing) within(ctx context.Context, headers map[string]string) context.Context {
	if m, ok := ctx.Value(memberKey{}).(*member); ok {
		if span := m.context(); span.IsValid() {
			return trace.ContextWithSpanContext(ctx, span)
		}
	}
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return t.propagator.Extract(ctx, propagation.MapCarrier(headers))
}

// Process is errand.Middleware for errand.WorkerOptions or errand.HandlerOptions. Its span is in
// the context of the handler, with what else the Propagator reads from the headers, such as
// baggage. The status is an error if the attempt has failed. It is none if the handler has snoozed
// or cancelled the job, or had to end as errand.ErrCancelled, ErrLeaseLost or ErrShutdown ended its
// context. For a kind of [Many] it makes no span.
func (t *Tracing) Process(next errand.HandlerFunc) errand.HandlerFunc {
	return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
		ctx = t.carried(ctx, job.Headers)
		from := trace.SpanContextFromContext(ctx)
		if _, many := t.batched.Load(job.Kind); many {
			ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
			m := &member{}
			key := attemptKey{job.ID, job.Attempt}
			t.members.Store(key, m)
			defer t.members.CompareAndDelete(key, m)
			return next(context.WithValue(ctx, memberKey{}, m), job)
		}
		options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(append(
			attributesOf("process", job.Queue, job.Kind),
			attribute.String("messaging.message.id", job.ID.String()),
			attribute.Int("errand.attempt", job.Attempt),
			attribute.Int("errand.retry", job.Retry),
		)...)}
		child := t.children == EveryAttempt || t.children == FirstAttempt && job.Attempt == 1
		switch {
		case !from.IsValid():
			options = append(options, trace.WithNewRoot())
		case child:
			options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
		default:
			ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
			options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: from}))
		}
		ctx, span := t.tracer.Start(ctx, "process "+job.Queue, options...)
		return during(ctx, span, func() error { return next(ctx, job) })
	}
}

// during calls run and ends the span with what it returns, or with that it does not return. It
// does not recover from a panic, so that the stack that the job keeps is that of the panic.
func during(ctx context.Context, span trace.Span, run func() error) (err error) {
	returned := false
	defer func() {
		if returned {
			end(ctx, span, err)
			return
		}
		end(ctx, span, errNotReturned)
	}()
	err = run()
	returned = true
	return err
}

var errNotReturned = errors.New("the handler has panicked, or called runtime.Goexit")

// end ends the span of an attempt whose handler had ctx.
func end(ctx context.Context, span trace.Span, err error) {
	defer span.End()
	verdict := "done"
	failed := false
	if err != nil {
		verdict, failed = judge(ctx, err)
	}
	span.SetAttributes(attribute.String("errand.verdict", verdict))
	if failed {
		span.RecordError(reasonOf(err))
		span.SetAttributes(attribute.String("error.type", verdict))
		span.SetStatus(codes.Error, err.Error())
	}
}

// judge returns the verdict on an attempt, and whether it has failed.
func judge(ctx context.Context, err error) (verdict string, failed bool) {
	if verdict = excuse(ctx, err); verdict != "" {
		return verdict, false
	}
	v, said := errand.VerdictOf(err)
	if !said {
		return "failed", true
	}
	return string(v.Kind), v.Kind != errand.VerdictSnooze && v.Kind != errand.VerdictCancel
}

// excuse returns the verdict on an attempt that had to end, and "" if err is its own. It judges
// as the worker does: a panic and most verdicts are not excused by a stop of the worker.
func excuse(ctx context.Context, err error) string {
	cause := context.Cause(ctx)
	verdict := ""
	switch {
	case errors.Is(cause, errand.ErrCancelled):
		return "cancelled"
	case errors.Is(cause, errand.ErrLeaseLost):
		verdict = "lease_lost"
	case errors.Is(cause, errand.ErrShutdown):
		verdict = "interrupted"
	}
	v, said := errand.VerdictOf(err)
	own := said && v.Kind != errand.VerdictRetryAfter && !errors.Is(err, context.Canceled)
	if own || errors.Is(err, errNotReturned) {
		return ""
	}
	return verdict
}

// wrappers is the path of the package whose errors wrap those of handlers.
var wrappers = reflect.TypeOf(errand.Permanent(nil)).Elem().PkgPath()

// reasonOf returns the error in the wrappers of errand.
func reasonOf(err error) error {
	for {
		of, inner := reflect.TypeOf(err), errors.Unwrap(err)
		if inner == nil || of.Kind() != reflect.Pointer || of.Elem().PkgPath() != wrappers {
			return err
		}
		err = inner
	}
}

// carried returns ctx with what the headers of a job carry, such as baggage. Its span is that in
// which the job was enqueued, or one that is not valid.
func (t *Tracing) carried(ctx context.Context, headers map[string]string) context.Context {
	return t.propagator.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), propagation.MapCarrier(headers))
}

func attributesOf(operation, queue, kind string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "errand"),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", operation),
		attribute.String("messaging.destination.name", queue),
		attribute.String("errand.kind", kind),
	}
}
