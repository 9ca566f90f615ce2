package errand_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// A call has at most one job of each group, and the jobs of a group are done in order, also
// if some of them are tried again.
func TestHandleMany_Groups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const groups, each = 5, 6
		q, _ := memoryQueue(t, errand.Options{Policy: policy.Policy{Retries: 3, MinDelay: time.Second, MaxDelay: time.Second, Jitter: policy.NoJitter}})
		var items []errand.NewJob
		for i := range groups * each {
			items = append(items, errand.NewJob{Args: note{Text: fmt.Sprint(i / groups)}, Options: &errand.JobOptions{Group: fmt.Sprint(i % groups)}})
		}
		if _, err := q.EnqueueMany(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		done, largest := map[string]int{}, 0
		w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
		errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error {
			failed, seen := errand.BatchError{}, map[string]bool{}
			for _, job := range jobs {
				if seen[job.Group] {
					t.Errorf("a call has two jobs of group %s", job.Group)
				}
				seen[job.Group] = true
				if want := fmt.Sprint(done[job.Group]); job.Args.Text != want {
					t.Errorf("group %s: job %s comes as job %s is next", job.Group, job.Args.Text, want)
				}
				if job.Attempt == 1 && (job.Group + job.Args.Text)[0]%2 == 0 {
					failed[job.ID] = errors.New("refused")
					continue
				}
				done[job.Group]++
			}
			largest = max(largest, len(jobs))
			return failed
		}, errand.BatchOptions{Max: 500})
		run(t, w)
		time.Sleep(time.Minute)
		synctest.Wait()
		if counts, err := q.Counts(t.Context()); err != nil || len(counts) != 1 || counts[0].State != errand.Done || largest != groups {
			t.Errorf("counts are %v, %v; a call had %d jobs at most, want one of each group", counts, err, largest)
		}
	})
}
