package main

import (
	"testing"
	"time"

	queue "github.com/errandq/errand"
)

// No retry is in the past, however long an attempt runs or waits for a worker.
func TestRetries_notInThePast(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, state := range []queue.State{queue.Running, queue.Ready} {
		r := retries{Known: true, now: now}
		r.list(&queue.JobInfo{State: state, DueAt: now.Add(-time.Hour)})
		if len(r.Coming) == 0 || r.Coming[0].At.Before(now) {
			t.Errorf("%s: %+v", state, r.Coming)
		}
	}
}
