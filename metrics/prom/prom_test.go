package prom_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/errandq/errand"
	"github.com/errandq/errand/metrics"
	"github.com/errandq/errand/metrics/prom"
)

type task struct{}

func (task) Kind() string { return "task" }

// A registry serves the lines that Write writes.
func TestNewCollector(t *testing.T) {
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &errand.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	ctx, stop := context.WithCancel(t.Context())
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[task]) error { return nil })
	done, err := q.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{errand.EventDone}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- w.Run(ctx) }()
	if _, err := q.Enqueue(t.Context(), task{}, nil); err != nil {
		t.Fatal(err)
	}
	<-done.Events()
	stop()
	if err := <-result; err != nil {
		t.Fatal(err)
	}

	c, err := prom.NewCollector(q, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	served := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(served, httptest.NewRequest("GET", "/metrics", nil))
	var own strings.Builder
	if err := metrics.Write(t.Context(), &own, q, nil); err != nil {
		t.Fatal(err)
	}
	got, want := lines(served.Body.String()), lines(own.String())
	if !slices.Equal(got, want) || !strings.Contains(served.Body.String(), `errand_job_run_seconds_bucket{kind="task",queue="default",le="+Inf"} 1`) {
		t.Errorf("served\n%s\nwant\n%s", served.Body, &own)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	down, err := prom.NewCollector(q, nil)
	if err != nil {
		t.Fatal(err)
	}
	r = prometheus.NewPedanticRegistry()
	r.MustRegister(down)
	if all, err := r.Gather(); err != nil || len(all) != 1 || all[0].GetName() != "errand_up" || all[0].Metric[0].GetGauge().GetValue() != 0 {
		t.Errorf("of a closed queue: %v, %v", all, err)
	}
}

// lines returns the names of the lines, each with its labels in order, and the values of
// those that are not about time or size.
func lines(text string) (all []string) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(line, "#") {
			name, value = line, ""
		}
		if head, labels, ok := strings.Cut(strings.TrimSuffix(name, "}"), "{"); ok {
			each := strings.Split(labels, ",")
			slices.Sort(each)
			name = head + "{" + strings.Join(each, ",")
		}
		if strings.HasPrefix(name, "errand_clock") || strings.Contains(name, "_sum") {
			value = ""
		}
		all = append(all, name+" "+value)
	}
	slices.Sort(all)
	return all
}

func TestNewCollector_refuses(t *testing.T) {
	var fault *errand.FieldError
	if _, err := prom.NewCollector(nil, &metrics.Options{Lanes: -1}); !errors.As(err, &fault) || fault.Field != "lanes" {
		t.Errorf("returned %v", err)
	}
}
