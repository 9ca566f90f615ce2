package topic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// BenchmarkPublish publishes a message to many subscriptions, all of which match, each to an
// endpoint of its own, and waits until all deliveries are there. Meanwhile another caller
// enqueues jobs, one after the other: max-wait-ms is the longest time that one of them took. heap-MB
// is by how much the heap has grown at most.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchPublish(b, n) })
	}
}

func benchPublish(b *testing.B, n int) {
	q, topics := manyEndpoints(b, n)
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{topic.Queues}})
	topics.Handle(w)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var o other
	for b.Loop() {
		b.StopTimer()
		time.Sleep(200 * time.Millisecond) // for the Store not to owe other programs a gap of 105 ms
		over, done := make(chan bool), make(chan error, 1)
		runtime.GC()
		go func() { done <- o.enqueue(ctx, q, over) }()
		b.StartTimer()
		got, err := topics.Publish(ctx, "orders", data)
		if err != nil {
			b.Fatal(err)
		}
		for fans := got.FanOut; fans; time.Sleep(5 * time.Millisecond) {
			j, err := q.Job(ctx, got.Jobs[0].ID)
			if err != nil || j.State == errand.Dead {
				b.Fatal(j.Error, err)
			}
			fans = j.State != errand.Done
		}
		close(over)
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(o.wait.Microseconds())/1000, "max-wait-ms")
	b.ReportMetric(float64(o.heap)/(1<<20), "heap-MB")
}

// manyEndpoints returns topics with a topic of n subscriptions to endpoints, which need not be there.
func manyEndpoints(b *testing.B, n int) (*errand.Queue, *topic.Topics) {
	b.Helper()
	quiet := slog.New(slog.DiscardHandler)
	q, err := errand.Open(b.Context(), filepath.Join(b.TempDir(), "jobs.db"), &errand.Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { q.Close() })
	hooks, err := webhook.New(q, nil)
	if err != nil {
		b.Fatal(err)
	}
	topics, err := topic.New(q, hooks, nil)
	if err == nil {
		_, err = topics.Create(b.Context(), topic.Topic{Name: "orders"})
	}
	if err != nil {
		b.Fatal(err)
	}
	opened, err := door.Open[errand.NewJob](q)
	if err != nil {
		b.Fatal(err)
	}
	var entries []storage.Entry
	for i := range n {
		doc, err := json.Marshal(map[string]string{"topic": "orders", "endpoint": fmt.Sprintf("e-%05d", i)})
		if err != nil {
			b.Fatal(err)
		}
		entries = append(entries, storage.Entry{Class: "subscription", Name: fmt.Sprintf("s-%05d", i), Family: "topic/orders", Doc: doc})
	}
	for part := range slices.Chunk(entries, 1000) {
		if _, err := opened.PutEntries(b.Context(), part); err != nil {
			b.Fatal(err)
		}
	}
	return q, topics
}

// other is what another caller has seen.
type other struct {
	wait time.Duration // the longest call
	heap uint64        // by how much the heap has grown at most
}

// enqueue enqueues jobs until over is closed.
func (o *other) enqueue(ctx context.Context, q *errand.Queue, over <-chan bool) error {
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	for {
		select {
		case <-over:
			return nil
		case <-time.After(time.Millisecond):
		}
		began := time.Now()
		if _, err := q.Enqueue(ctx, errand.RawArgs{OfKind: "other", JSON: []byte("{}")}, nil); err != nil {
			return err
		}
		o.wait = max(o.wait, time.Since(began))
		if runtime.ReadMemStats(&now); now.HeapAlloc > before.HeapAlloc {
			o.heap = max(o.heap, now.HeapAlloc-before.HeapAlloc)
		}
	}
}
