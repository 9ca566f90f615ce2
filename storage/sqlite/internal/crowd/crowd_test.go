package crowd_test

import (
	"testing"
	"time"

	"github.com/errandq/errand/storage/sqlite/internal/crowd"
)

var began = time.Unix(1_000_000, 0)

// synced is a Crowd whose last batch, of size, took sync, as queued others had come.
func synced(size, queued int, sync time.Duration) *crowd.Crowd {
	c := new(crowd.Crowd)
	c.Took(size)
	c.Synced(began, began.Add(sync), queued)
	return c
}

func TestCrowd_Wait(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name         string
		last, queued int
		sync         time.Duration
		size         int           // of the next batch
		since        time.Duration // the last one was answered
		want         time.Duration
	}{
		{"those who were answered have not come", 32, 32, 5 * ms, 32, 0, 500 * time.Microsecond},
		{"a tenth of a long sync", 2, 0, 80 * ms, 1, 0, 8 * ms},
		{"a sync that took a minute", 2, 0, 60_000 * ms, 1, 0, 10 * ms},
		{"part of the time is over", 32, 32, 5 * ms, 32, 100 * time.Microsecond, 400 * time.Microsecond},
		{"all of it", 32, 32, 5 * ms, 32, 501 * time.Microsecond, -time.Microsecond},
		{"one is missing", 32, 32, 5 * ms, 63, 0, 500 * time.Microsecond},
		{"all have come", 32, 32, 5 * ms, 64, 0, 0},
		{"a fast disk", 32, 32, 2 * ms, 32, 0, 0},
		{"a batch of one", 1, 32, 5 * ms, 32, 0, 0},
		{"no batch before", 0, 32, 5 * ms, 32, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := synced(c.last, c.queued, c.sync).Wait(c.size, began.Add(c.sync+c.since)); got != c.want {
				t.Errorf("waits %v, want %v", got, c.want)
			}
		})
	}
}

// A batch whose commit failed is followed by no wait.
func TestCrowd_FailedCommit(t *testing.T) {
	c := synced(32, 0, 5*time.Millisecond)
	c.Took(32)
	if got := c.Wait(1, began.Add(5*time.Millisecond)); got != 0 {
		t.Errorf("waits %v, want no wait", got)
	}
}

// After two waits running that brought nobody, thirty batches are taken without one.
func TestCrowd_InVain(t *testing.T) {
	c, ended := new(crowd.Crowd), began.Add(5*time.Millisecond)
	c.Took(10)
	for i, brought := range []int{0, 1, 0, 0} {
		c.Synced(began, ended, 5)
		if c.Wait(5, ended) <= 0 {
			t.Fatalf("batch %d: no wait", i)
		}
		c.Took(5 + brought)
	}
	for i := range 31 {
		c.Synced(began, ended, 5)
		if waits := c.Wait(5, ended) > 0; waits != (i == 30) {
			t.Errorf("batch %d after those: waits %t", i, waits)
		}
		c.Took(5)
	}
}
