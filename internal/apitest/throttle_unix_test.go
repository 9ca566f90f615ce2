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
// about as many. The times are those at which the attempts are seen.
func TestProcesses_SharedThrottle(t *testing.T) {
	q, path := openShared(t)
	const rate, seconds = 10, 4
	if err := q.Configure(t.Context(), errand.Lane{Queue: "web"}, errand.Settings{Starts: new(rate)}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string][]time.Time{}
	note := func(by string) {
		mu.Lock()
		defer mu.Unlock()
		seen[by] = append(seen[by], time.Now())
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
	mu.Lock()
	defer mu.Unlock()
	n := 0
	for _, all := range seen {
		for _, at := range all {
			if after := at.Sub(began); after >= time.Second && after < (seconds+1)*time.Second {
				n++
			}
		}
	}
	t.Logf("%d attempts in %d s after the first: %d own and %d of the other in all", n, seconds, len(seen["own"]), len(seen["other"]))
	if n > rate*seconds+3 || n < rate*seconds*8/10 {
		t.Errorf("%d attempts in %d s, want %d", n, seconds, rate*seconds)
	}
}
