package errand_test

import (
	"errors"
	"testing"

	"github.com/errandq/errand"
)

// What the caps of a queue do is seen by the callers of this process: the error says how
// full it is, subscribers learn which jobs were evicted, and the numbers say how many.
func TestQueue_Caps(t *testing.T) {
	ctx := t.Context()
	q := openQueue(t, nil)
	lane := errand.Lane{Queue: "telemetry"}
	if err := q.Configure(ctx, lane, errand.Settings{MaxJobs: new(2)}); err != nil {
		t.Fatal(err)
	}
	o := &errand.JobOptions{Queue: "telemetry"}
	first := enqueue(t, q, note{}, o)
	enqueue(t, q, note{}, o)
	_, err := q.Enqueue(ctx, note{}, o)
	var full *errand.QueueFullError
	if !errors.As(err, &full) || !errors.Is(err, errand.ErrQueueFull) || full.Queue != "telemetry" || full.Jobs != 2 || full.MaxJobs != 2 {
		t.Errorf("Enqueue returned %v", err)
	}
	events, err := q.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{errand.EventEvicted}, Queue: "telemetry"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Configure(ctx, lane, errand.Settings{WhenFull: new(errand.EvictOldest)}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, note{}, o)
	e := <-events.Events()
	if e.ID != first || e.Queue != "telemetry" || e.Kind != "note" || e.At.IsZero() {
		t.Errorf("event %+v, want that the first job was evicted", e)
	}
	stats, err := q.Stats(ctx)
	if err != nil || len(stats) != 1 || stats[0].Evicted != 1 || stats[0].Ready != 2 {
		t.Errorf("stats %+v, %v", stats, err)
	}
}
