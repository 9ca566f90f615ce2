package apitest

import (
	"testing"
	"time"

	"github.com/errandq/errand"
)

// A job that was evicted before its first attempt has done nothing, so its key is free.
func TestUnique_evicted(t *testing.T) {
	q := openQueue(t, nil)
	if err := q.Configure(t.Context(), errand.Lane{Queue: "small"}, errand.Settings{MaxJobs: new(1), WhenFull: new(errand.EvictOldest)}); err != nil {
		t.Fatal(err)
	}
	o := &errand.JobOptions{Queue: "small", Unique: &errand.Unique{Key: "report", For: time.Hour}}
	enqueue(t, q, note{N: 1}, o)
	enqueue(t, q, note{N: 2}, &errand.JobOptions{Queue: "small"}) // evicts it
	if e, err := q.Enqueue(t.Context(), note{N: 3}, o); err != nil || e.Duplicate {
		t.Errorf("the job after one that was evicted: %+v, %v", e, err)
	}
}
