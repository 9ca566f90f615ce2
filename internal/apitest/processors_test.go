package apitest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// onProcessors runs a test with as many processors as Go has on small machines, and in a
// container with one: goroutines run in another order there.
func onProcessors(t *testing.T, test func(t *testing.T)) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint("GOMAXPROCS=", n), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			test(t)
		})
	}
}

// An outage of a moment costs a moment.
//
//errand:shows an outage of a moment | | its jobs are done within seconds, on one processor too
func TestWorker_OutageOfAMoment(t *testing.T) {
	onProcessors(t, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := openQueue(t, &errand.Options{Logger: quiet})
			w := errand.NewWorker(q, nil)
			var met atomic.Bool
			errand.Handle(w, func(context.Context, *errand.Job[note]) error {
				if met.CompareAndSwap(false, true) {
					return dialled(syscall.ENETUNREACH)
				}
				return nil
			})
			run(t, w)
			var ids []errand.ID
			for range 7 {
				ids = append(ids, enqueue(t, q, note{}, nil))
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			for _, id := range ids {
				if j := lookUp(t, q, id); j.State != errand.Done {
					t.Fatalf("a job is %s after %d attempts", j.State, j.Attempt)
				}
			}
		})
	})
}

// exchanges counts the exchanges, each of which is a commit.
type exchanges struct {
	*sqlite.Store
	n atomic.Int64
}

func (c *exchanges) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	c.n.Add(1)
	return c.Store.Exchange(ctx, now, x)
}

// Jobs whose handlers end sooner than a commit share commits.
//
//errand:shows one processor | | short jobs share commits, ten at least to one, as they do on two
func TestWorker_SharesCommits(t *testing.T) {
	onProcessors(t, func(t *testing.T) {
		file, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), &sqlite.Options{Durability: sqlite.Relaxed})
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		store := &exchanges{Store: file}
		q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		const jobs = 3000
		many := make([]errand.NewJob, jobs)
		for i := range many {
			many[i].Args = note{N: i}
		}
		if _, err := q.EnqueueMany(t.Context(), many); err != nil {
			t.Fatal(err)
		}
		var done atomic.Int64
		all := make(chan struct{})
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			if done.Add(1) == jobs {
				close(all)
			}
			return nil
		})
		stop := run(t, w)
		<-all
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := store.n.Load(); n > jobs/10 {
			t.Errorf("%d exchanges for %d jobs", n, jobs)
		}
	})
}
