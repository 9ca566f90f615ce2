//go:build unix

package apitest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// Two processes start no more attempts together than a shared throttle lets them, and
// half of that at least. A slow machine only has more time for each of them.
func TestProcesses_SharedThrottle(t *testing.T) {
	q, path := openShared(t)
	const rate, seconds = 10, 4
	if err := q.Configure(t.Context(), errand.Lane{Queue: "web"}, errand.Settings{Starts: new(rate)}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	note := func(by string) {
		mu.Lock()
		defer mu.Unlock()
		seen[by]++
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"w*"}})
	errand.Handle(w, func(context.Context, *errand.Job[memo]) error { note("own"); return nil })
	o := startOther(t, path, "work", longLease, 0, "web")
	go func() {
		for o.out.Scan() {
			if strings.HasPrefix(o.out.Text(), "note") {
				note("other")
			}
		}
	}()
	jobs := make([]errand.NewJob, 200)
	for i := range jobs {
		jobs[i] = errand.NewJob{Args: memo{"x"}, Options: &errand.JobOptions{Queue: "web"}}
	}
	stop := run(t, w)
	began := time.Now()
	if _, err := q.EnqueueMany(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	time.Sleep((seconds + 1) * time.Second)
	if err := stop(); err != nil {
		t.Error(err)
	}
	took := time.Since(began)
	mu.Lock()
	defer mu.Unlock()
	n, most := seen["own"]+seen["other"], rate+int(rate*took.Seconds())+3 // a second's worth may start at once
	least := rate * seconds / 2                                           // a machine that is busy loses tokens
	if n > most || n < least {
		t.Errorf("%d attempts in %v, %d own and %d of the other: want %d to %d", n, took, seen["own"], seen["other"], least, most)
	}
}
