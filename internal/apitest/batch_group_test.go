package apitest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
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

// With ByGroup a call has the jobs of one group in order. One that fails keeps those behind
// it back, but for those that are done.
func TestHandleMany_ByGroup(t *testing.T) {
	for _, middleware := range []bool{false, true} {
		t.Run(fmt.Sprint("middleware ", middleware), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const groups, each = 5, 40
				q, _ := memoryQueue(t, errand.Options{Policy: policy.Policy{Retries: 50, MinDelayRetries: 50, MinDelay: time.Second, MaxDelay: time.Second, Jitter: policy.NoJitter}})
				var items []errand.NewJob
				for i := range groups * each {
					items = append(items, errand.NewJob{Args: note{Text: fmt.Sprint(i / groups)}, Options: &errand.JobOptions{Group: fmt.Sprint(i % groups)}})
				}
				if _, err := q.EnqueueMany(t.Context(), items); err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				next, largest, ahead, refused := map[string]int{}, 0, map[string]bool{}, map[errand.ID]int{}
				w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 3})
				var o []errand.HandlerOptions
				if middleware {
					o = append(o, errand.HandlerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
						return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
							if job.Retry == 0 && job.ID.Key()%11 == 0 {
								return errors.New("refused on its way")
							}
							return next(ctx, job)
						}
					}}})
				}
				errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error {
					mu.Lock()
					defer mu.Unlock()
					group, failed := jobs[0].Group, errand.BatchError{}
					largest = max(largest, len(jobs))
					for i, job := range jobs {
						n, _ := strconv.Atoi(job.Args.Text)
						if job.Group != group {
							t.Errorf("a call has jobs of groups %s and %s", group, job.Group)
						}
						for ahead[fmt.Sprint(group, " ", next[group])] {
							next[group]++
						}
						switch {
						case i == 3 && job.Retry == 0: // those behind it go back, but for one
							failed[job.ID] = errors.New("refused")
						case len(failed) > 0 && i%2 == 0:
							failed[job.ID] = errors.New("behind one that was refused")
						case len(failed) > 0:
							ahead[fmt.Sprint(group, " ", n)] = true
						case n != next[group]:
							t.Errorf("group %s: job %d comes as job %d is next", group, n, next[group])
						default:
							next[group]++
						}
						if want := refused[job.ID]; !middleware && (job.Retry != want || job.Attempt != want+1) {
							t.Errorf("group %s: job %d is in attempt %d and has failed %d times, it was refused %d times", group, n, job.Attempt, job.Retry, want)
						}
						if _, ok := failed[job.ID]; ok && len(failed) == 1 {
							refused[job.ID]++
						}
					}
					return failed
				}, errand.BatchOptions{Max: 10, ByGroup: true}, o...)
				run(t, w)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				counts, err := q.Counts(t.Context())
				if err != nil || len(counts) != 1 || counts[0].State != errand.Done || counts[0].N != groups*each || largest != 10 {
					t.Errorf("counts are %v, %v; a call had %d jobs at most, want 10", counts, err, largest)
				}
			})
		})
	}
}

// Each job of a call takes a token of a shared throttle. Calls are as large as tokens go, and
// the order stays.
func TestHandleMany_ByGroupThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const groups, each, burst = 3, 40, 5
		q, _ := memoryQueue(t, errand.Options{})
		if err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{Starts: new(1), StartsBurst: new(burst)}); err != nil {
			t.Fatal(err)
		}
		var items []errand.NewJob
		for i := range groups * each {
			items = append(items, errand.NewJob{Args: note{Text: fmt.Sprint(i / groups)}, Options: &errand.JobOptions{Group: fmt.Sprint(i % groups)}})
		}
		if _, err := q.EnqueueMany(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		began, started, largest, next := time.Now(), 0, 0, map[string]int{}
		w := errand.NewWorker(q, nil)
		errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error {
			mu.Lock()
			defer mu.Unlock()
			started, largest = started+len(jobs), max(largest, len(jobs))
			if most := burst + int(time.Since(began)/time.Second); started > most {
				t.Errorf("%d jobs have started after %v", started, time.Since(began))
			}
			for _, job := range jobs {
				if want := fmt.Sprint(next[job.Group]); job.Args.Text != want {
					t.Errorf("group %s: job %s comes as job %s is next", job.Group, job.Args.Text, want)
				}
				next[job.Group]++
			}
			return nil
		}, errand.BatchOptions{Max: 10, ByGroup: true})
		run(t, w)
		time.Sleep((groups*each - burst + 1) * time.Second)
		synctest.Wait()
		if most := burst - groups + 1; started != groups*each || largest != most { // beside the heads of the others
			t.Errorf("%d jobs have started, %d at most in a call, want %d and %d", started, largest, groups*each, most)
		}
	})
}

// A job that was to begin before its head has ended expires where it is. The next call has
// those around it.
func TestHandleMany_ByGroupExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Clock: func() time.Time { return time.Now().AddDate(30, 0, 0) }}) // which is believed
		var calls [][]string
		w := errand.NewWorker(q, nil)
		errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error {
			var texts []string
			for _, job := range jobs {
				texts = append(texts, job.Args.Text)
			}
			if calls = append(calls, texts); len(calls) == 1 {
				time.Sleep(2 * time.Minute)
			}
			return nil
		}, errand.BatchOptions{Max: 10, ByGroup: true})
		run(t, w)
		ids := []errand.ID{enqueue(t, q, note{Text: "0"}, &errand.JobOptions{Group: "g"})}
		synctest.Wait()
		for i, within := range []time.Duration{0, time.Minute, time.Hour, time.Minute, 0} {
			ids = append(ids, enqueue(t, q, note{Text: fmt.Sprint(i + 1)}, &errand.JobOptions{Group: "g", StartWithin: within}))
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if want := [][]string{{"0"}, {"1", "3", "5"}}; !reflect.DeepEqual(calls, want) {
			t.Errorf("calls of %q, want %q", calls, want)
		}
		for i, id := range ids {
			want := map[bool]errand.State{true: errand.Expired, false: errand.Done}[i == 2 || i == 4]
			if j := lookUp(t, q, id); j.State != want {
				t.Errorf("job %d is %s, want %s", i, j.State, want)
			}
		}
	})
}
