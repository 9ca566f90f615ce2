package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	_ "modernc.org/sqlite"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/tracing"
)

// order is a job that fails as often as Failures says, in all its life.
type order struct {
	N        int
	Failures int
}

func (order) Kind() string { return "order" }

// receipt is the job that follows an order.
type receipt struct{ N int }

func (receipt) Kind() string { return "receipt" }

var errDeclined = errors.New("declined")

// rig is a queue whose spans are kept in memory.
type rig struct {
	*testing.T
	*errand.Queue
	tracing  *tracing.Tracing
	exporter *tracetest.InMemoryExporter
	provider *sdk.TracerProvider
	path     string
}

// newRig returns a rig. What o does not say is set.
func newRig(t *testing.T, o tracing.Options) *rig {
	r := &rig{T: t, exporter: tracetest.NewInMemoryExporter(), path: filepath.Join(t.TempDir(), "jobs.db")}
	r.provider = sdk.NewTracerProvider(sdk.WithSyncer(r.exporter))
	if o.TracerProvider == nil {
		o.TracerProvider = r.provider
	}
	var err error
	if r.tracing, err = tracing.New(&o); err != nil {
		t.Fatal(err)
	}
	r.Queue, err = errand.Open(t.Context(), r.path, &errand.Options{
		Middleware: []errand.Middleware{r.tracing.Enqueue}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// drain has a worker with handlers run what is there, retries included.
func (r *rig) drain() errandtest.Counts {
	r.Helper()
	w := errand.NewWorker(r.Queue, &errand.WorkerOptions{Concurrency: 1, Middleware: []errand.Middleware{r.tracing.Process}})
	errand.Handle(w, func(_ context.Context, job *errand.Job[order]) error {
		if job.Attempt <= job.Args.Failures {
			return errDeclined
		}
		return job.Then(receipt{job.Args.N}, nil)
	}, errand.HandlerOptions{Policy: &policy.Policy{Retries: 1, NoDelayRetries: 1}, OnDead: &errand.OnDead{}})
	errand.Handle(w, func(context.Context, *errand.Job[receipt]) error { return nil })
	errand.Handle(w, func(context.Context, *errand.Job[errand.DeadNotice]) error { return nil })
	return errandtest.Drain(r, r.Queue, w, nil)
}

// spans returns a line for each span that has ended, and the spans by the names that begin the
// lines. After < follows the parent, after ~ each link.
func (r *rig) spans() (lines []string, by map[string]tracetest.SpanStub) {
	names, by := map[trace.SpanID]string{}, map[string]tracetest.SpanStub{}
	all := r.exporter.GetSpans()
	for _, s := range all {
		name := fmt.Sprintf("%s %s", s.Name, value(s, "errand.kind"))
		if a := value(s, "errand.attempt"); a != "" {
			name += " " + a + " " + value(s, "errand.verdict")
		}
		names[s.SpanContext.SpanID()] = name
	}
	for _, s := range all {
		line := names[s.SpanContext.SpanID()]
		by[line] = s
		if s.Parent.IsValid() {
			line += " < " + names[s.Parent.SpanID()]
		}
		for _, l := range s.Links {
			line += " ~ " + names[l.SpanContext.SpanID()]
		}
		lines = append(lines, line)
	}
	return lines, by
}

// value returns an attribute of a span as text, "" if it has none.
func value(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
