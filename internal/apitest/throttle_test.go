package apitest

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/storagetest"
)

// A shared throttle holds for all workers on a file, at its rate to the attempt, for new
// queues of a prefix too. One that is taken back is gone.
func TestSharedThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := storagetest.NewMemory()
		var started atomic.Int64
		var queues []*errand.Queue
		for range 2 {
			q, err := errand.New(t.Context(), db.Open(), &errand.Options{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			queues = append(queues, q)
			w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"web/*"}})
			errand.Handle(w, func(context.Context, *errand.Job[blob]) error { started.Add(1); return nil })
			stop := run(t, w)
			defer func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}()
		}
		web := errand.Lane{Queue: "web/a"}
		if err := queues[0].Configure(t.Context(), web, errand.Settings{Starts: new(10), StartsBurst: new(1)}); err != nil {
			t.Fatal(err)
		}
		jobs := make([]errand.NewJob, 1000)
		for i := range jobs {
			jobs[i] = errand.NewJob{Args: blob{}, Options: &errand.JobOptions{Queue: "web/a"}}
		}
		if _, err := queues[1].EnqueueMany(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		before := started.Load()
		time.Sleep(30 * time.Second)
		if n := started.Load() - before; n < 285 || n > 301 {
			t.Errorf("%d attempts in 30 s", n)
		}
		if err := queues[0].Configure(t.Context(), web, errand.Settings{Starts: new(0)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := started.Load(); n != 1000 {
			t.Errorf("%d attempts without the throttle", n)
		}
	})
}

func TestSharedThrottle_refuses(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	for field, s := range map[string]errand.Settings{
		"starts":       {Starts: new(-1)},
		"starts_burst": {Starts: new(1), StartsBurst: new(-1)},
		"starts_per":   {Starts: new(1), StartsPer: new(time.Microsecond)},
	} {
		if err := q.Configure(t.Context(), errand.Lane{Queue: "a"}, s); !hasField(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := q.Configure(t.Context(), errand.Lane{Queue: "a"}, errand.Settings{Starts: new(10_001)}); !hasField(err, "starts") {
		t.Errorf("too many: %v", err)
	}
	for _, lane := range []errand.Lane{{}, {Queue: "a", Kind: "b"}} {
		if err := q.Configure(t.Context(), lane, errand.Settings{Starts: new(1)}); !hasField(err, "starts") {
			t.Errorf("of %v: %v", lane, err)
		}
	}
}
