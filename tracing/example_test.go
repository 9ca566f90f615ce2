package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/tracing"
)

// ship is the job of an order.
type ship struct{ Order string }

func (ship) Kind() string { return "ship" }

// One trace leads from an HTTP call to the third retry of its job.
func Example() {
	exporter := tracetest.NewInMemoryExporter() // a program has one for its collector
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter))
	ctx, stop := context.WithCancel(context.Background())
	dir := must(os.MkdirTemp("", "errand-example-"))
	defer func() { check(os.RemoveAll(dir)) }()

	t, err := tracing.New(&tracing.Options{TracerProvider: provider, Children: tracing.EveryAttempt})
	check(err)
	q, err := errand.Open(ctx, filepath.Join(dir, "jobs.db"), &errand.Options{
		Middleware: []errand.Middleware{t.Enqueue},
		Logger:     slog.New(slog.DiscardHandler),
	})
	check(err)
	w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: []errand.Middleware{t.Process}})

	errand.Handle(w, func(ctx context.Context, job *errand.Job[ship]) error {
		if job.Retry < 3 {
			return errors.New("the carrier does not answer")
		}
		stop()
		return nil
	}, errand.HandlerOptions{Policy: &policy.Policy{Retries: 3, NoDelayRetries: 3}})

	shop := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		// Package otelhttp would start this span.
		ctx, span := provider.Tracer("shop").Start(r.Context(), "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		if _, err := q.Enqueue(ctx, ship{Order: "17"}, nil); err != nil {
			http.Error(rw, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	answer, err := http.Post(shop.URL+"/orders", "application/json", nil)
	check(err)
	check(answer.Body.Close())
	shop.Close()
	check(errors.Join(w.Run(ctx), q.Close()))

	check(provider.ForceFlush(context.Background()))
	show(exporter.GetSpans(), trace.SpanID{}, "")
	check(provider.Shutdown(context.Background()))
	// Output:
	// POST /orders
	//   create default
	//     process default: attempt 1, failed: the carrier does not answer
	//     process default: attempt 2, failed: the carrier does not answer
	//     process default: attempt 3, failed: the carrier does not answer
	//     process default: attempt 4, done
}

// show prints the spans whose parent this is, with those below them.
func show(all tracetest.SpanStubs, parent trace.SpanID, indent string) {
	for _, s := range all {
		if s.Parent.SpanID() != parent {
			continue
		}
		line := indent + s.Name
		if attempt := value(s, "errand.attempt"); attempt != "" {
			line += ": attempt " + attempt + ", " + value(s, "errand.verdict")
		}
		if s.Status.Description != "" {
			line += ": " + s.Status.Description
		}
		fmt.Println(strings.TrimRight(line, " "))
		show(all, s.SpanContext.SpanID(), indent+"  ")
	}
}
