package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// once is a policy without a retry.
var once = policy.Policy{}

// unbraked are queues in which any number of jobs may die in a row.
var unbraked = map[string]errand.QueueOptions{"default": {MaxDeaths: -1}}

// bulkQueue opens a queue in memory with n dead notes.
func bulkQueue(t *testing.T, n int, o errand.Options) (*errand.Queue, []errand.ID) {
	t.Helper()
	o.Policy, o.Queues = once, unbraked
	q, _ := memoryQueue(t, o)
	return q, killNotes(t, q, n)
}

// killNotes enqueues notes and lets them die.
func killNotes(t *testing.T, q *errand.Queue, n int) (ids []errand.ID) {
	t.Helper()
	jobs := make([]errand.NewJob, n)
	for i := range jobs {
		jobs[i].Args = note{N: i}
	}
	added, err := q.EnqueueMany(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range added {
		ids = append(ids, e.ID)
	}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Permanent(errors.New("no")) })
	stop := run(t, w)
	synctest.Wait()
	if err := stop(); err != nil || notesIn(t, q, errand.Dead) != int64(n) {
		t.Fatalf("%d of %d are dead, %v", notesIn(t, q, errand.Dead), n, err)
	}
	return ids
}

// notesIn returns how many notes are in a state.
func notesIn(t *testing.T, q *errand.Queue, state errand.State) (n int64) {
	t.Helper()
	for _, c := range must(q.Counts(t.Context())) {
		if c.State == state && c.Kind == "note" {
			n += c.N
		}
	}
	return n
}

// startBulk starts a bulk job that must be fine.
func startBulk(t *testing.T, q *errand.Queue, b errand.Bulk) errand.ID {
	t.Helper()
	info, err := q.StartBulk(t.Context(), b)
	if err != nil || info.ID.IsZero() || info.Do != b.Do || info.By != b.By || info.Rate != b.Rate {
		t.Fatalf("StartBulk gave %+v, %v", info, err)
	}
	return info.ID
}

// bulkEnded waits in fake time until a bulk job has ended.
func bulkEnded(t *testing.T, q *errand.Queue, id errand.ID) errand.BulkInfo {
	t.Helper()
	for range 100_000 {
		if b := theBulk(t, q, id); !b.EndedAt.IsZero() {
			return b
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%+v has no end", theBulk(t, q, id))
	return errand.BulkInfo{}
}

func theBulk(t *testing.T, q *errand.Queue, id errand.ID) errand.BulkInfo {
	t.Helper()
	all, err := q.Bulks(t.Context(), id)
	if err != nil || len(all) != 1 {
		t.Fatalf("Bulks gave %+v, %v: want one", all, err)
	}
	return all[0]
}

// idle is a worker that has no handlers.
func idle(t *testing.T, q *errand.Queue) (stop func() error) {
	t.Helper()
	return run(t, errand.NewWorker(q, nil))
}

// Each action does to the jobs what the call does that does it at once, by a worker whose
// queues and Concurrency are for others.
func TestBulk_actions(t *testing.T) {
	const n = 250
	for _, c := range []struct {
		name string
		bulk errand.Bulk
		from errand.State
		want errand.State
		is   func(j *errand.JobInfo) bool
	}{
		{"redrive", errand.Bulk{Do: errand.BulkRedrive}, errand.Dead, errand.Ready, nil},
		{"redrive elsewhere", errand.Bulk{Do: errand.BulkRedrive, Redrive: errand.RedriveOptions{Queue: "other"}}, errand.Dead, errand.Ready,
			func(j *errand.JobInfo) bool { return j.Queue == "other" }},
		{"redrive with other args", errand.Bulk{Do: errand.BulkRedrive, Set: map[string]json.RawMessage{"Text": json.RawMessage(`"new"`)}}, errand.Dead, errand.Ready,
			func(j *errand.JobInfo) bool {
				var a note
				check(json.Unmarshal(j.Args, &a))
				return a.Text == "new" && j.History[len(j.History)-1].Phase == errand.PhaseEdited
			}},
		{"redrive with a change", errand.Bulk{Do: errand.BulkRedrive, Redrive: errand.RedriveOptions{Change: &errand.JobChange{Priority: new(7)}}}, errand.Dead, errand.Ready,
			func(j *errand.JobInfo) bool { return j.Priority == 7 }},
		{"run now", errand.Bulk{Do: errand.BulkRunNow, RunNow: errand.RunNowOptions{FirstRuns: true}}, errand.Scheduled, errand.Ready, nil},
		{"not run yet", errand.Bulk{Do: errand.BulkRunNow}, errand.Scheduled, errand.Scheduled, nil},
		{"change", errand.Bulk{Do: errand.BulkChange, Change: errand.JobChange{Priority: new(7), Delay: time.Hour}}, errand.Scheduled, errand.Scheduled,
			func(j *errand.JobInfo) bool { return j.Priority == 7 && time.Until(j.DueAt) <= time.Hour }},
		{"cancel", errand.Bulk{Do: errand.BulkCancel}, errand.Scheduled, errand.Cancelled, nil},
		{"delete", errand.Bulk{Do: errand.BulkDelete}, errand.Dead, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, ids := bulkQueue(t, 0, errand.Options{})
				if c.from == errand.Dead {
					ids = killNotes(t, q, n)
				}
				for i := len(ids); i < n; i++ {
					ids = append(ids, enqueue(t, q, note{N: i}, &errand.JobOptions{Delay: 24 * time.Hour}))
				}
				c.bulk.Filter, c.bulk.By = errand.JobFilter{All: true}, "operator"
				idle(t, q)
				id := startBulk(t, q, c.bulk)
				b := bulkEnded(t, q, id)
				want := int64(n)
				if c.name == "not run yet" {
					want = 0
				}
				if b.State != errand.Done || b.Changed != want || b.Total != want || b.Left != 0 || b.More || b.By != "operator" || b.Error != "" {
					t.Errorf("it ended as %+v", b)
				}
				for _, id := range ids {
					j, err := q.Job(t.Context(), id)
					if c.want == "" {
						if !errors.Is(err, errand.ErrNotFound) {
							t.Errorf("a deleted job: %v, %v", j, err)
						}
						continue
					}
					if err != nil || j.State != c.want || c.is != nil && !c.is(&j) {
						t.Fatalf("a job is %+v, %v", j, err)
					}
				}
			})
		})
	}
}

// Jobs that are named are taken as others are, and those that cannot be changed are counted.
func TestBulk_named(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ids := bulkQueue(t, 30, errand.Options{})
		live := enqueue(t, q, note{}, nil)
		idle(t, q)
		b := bulkEnded(t, q, startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{IDs: append(ids[:20:20], live)}, Rate: 1000}))
		if b.Changed != 20 || b.Left != 1 || b.Total != 21 || notesIn(t, q, errand.Dead) != 10 {
			t.Errorf("%+v, and %d are dead", b, notesIn(t, q, errand.Dead))
		}
		// What it has left is kept as a number, and hangs on no wording.
		var kept struct{ Left int64 }
		if p := lookUp(t, q, b.ID).Progress; p == nil || json.Unmarshal([]byte(p.Note), &kept) != nil || kept.Left != 1 {
			t.Errorf("its progress is %+v", p)
		}
	})
}

// The rate is kept: as many jobs are taken in each second.
func TestBulk_rate(t *testing.T) {
	for _, rate := range []int{5, 70, 400} {
		synctest.Test(t, func(t *testing.T) {
			n := rate * 10
			q, _ := bulkQueue(t, n, errand.Options{})
			idle(t, q)
			synctest.Wait()
			began := time.Now()
			id := startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Rate: rate})
			for s := range 10 {
				time.Sleep(time.Until(began.Add(time.Duration(s) * time.Second)))
				synctest.Wait()
				// The first step is at once.
				got, want := notesIn(t, q, errand.Ready), int64(s*rate)
				if step := int64(max(rate/20, 1)); got < want-step || got > want+2*step {
					t.Errorf("at %d a second %d jobs were taken after %d s", rate, got, s)
				}
			}
			if took := bulkEnded(t, q, id).EndedAt.Sub(began); took < 9500*time.Millisecond || took > 10500*time.Millisecond {
				t.Errorf("%d jobs at %d a second took %v", n, rate, took)
			}
		})
	}
}

// Steps come in bursts with pauses between, which leave the file to other writers: of 200 times
// that are 5 ms apart there is something new at 40.
func TestBulk_bursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 400
		q, _ := bulkQueue(t, 2*rate, errand.Options{})
		idle(t, q)
		id := startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Rate: rate})
		last, times := int64(0), 0
		for range 200 {
			time.Sleep(5 * time.Millisecond)
			synctest.Wait()
			if n := notesIn(t, q, errand.Ready); n != last {
				last = n
				times++
			}
		}
		if times > 50 || times < 20 {
			t.Errorf("jobs were taken in %d of 200 intervals", times)
		}
		bulkEnded(t, q, id)
	})
}

// Bulk jobs run one at a time in the whole file, in the order in which they were started.
func TestBulk_order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storagetest.NewMemory()
		var queues []*errand.Queue
		for range 2 {
			q, err := errand.New(t.Context(), m.Open(), &errand.Options{Policy: once, Queues: unbraked, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			queues = append(queues, q)
		}
		q := queues[0]
		killNotes(t, q, 100)
		var ids []errand.ID
		for i := range 10 {
			to := fmt.Sprintf("q%d", i)
			ids = append(ids, startBulk(t, queues[i%2], errand.Bulk{Do: errand.BulkRedrive, Rate: 100,
				Filter: errand.JobFilter{Queue: "default"}, Redrive: errand.RedriveOptions{Queue: to}}))
		}
		for _, q := range queues {
			idle(t, q)
		}
		last := bulkEnded(t, q, ids[9])
		all := must(q.Bulks(t.Context()))
		slices.Reverse(all)
		for i, b := range all {
			if b.ID != ids[i] || b.State != errand.Done || i > 0 && b.EndedAt.Before(all[i-1].EndedAt) || b.Changed != []int64{100, 0}[min(i, 1)] {
				t.Errorf("bulk job %d is %+v", i, b)
			}
		}
		if len(all) != 10 || last.EndedAt.Before(all[8].EndedAt) {
			t.Errorf("%d bulk jobs are listed", len(all))
		}
	})
}

// What dies again while its bulk job runs is not taken twice.
func TestBulk_diesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := bulkQueue(t, 200, errand.Options{})
		w := errand.NewWorker(q, nil)
		var ran atomic.Int64
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			ran.Add(1)
			return errand.Permanent(errors.New("no"))
		})
		run(t, w)
		b := bulkEnded(t, q, startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Rate: 20}))
		synctest.Wait()
		if b.Changed != 200 || ran.Load() != 200 || notesIn(t, q, errand.Dead) != 200 {
			t.Errorf("%+v: %d ran, and %d are dead", b, ran.Load(), notesIn(t, q, errand.Dead))
		}
	})
}

// A pause holds the work at once, and after it the work goes on at its rate.
func TestBulk_pause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := bulkQueue(t, 1000, errand.Options{})
		idle(t, q)
		id := startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Rate: 100})
		time.Sleep(3 * time.Second)
		check(q.Pause(t.Context(), "errand.bulk"))
		time.Sleep(time.Second)
		held := notesIn(t, q, errand.Ready)
		time.Sleep(time.Hour)
		if b := theBulk(t, q, id); notesIn(t, q, errand.Ready) != held || !b.Paused || b.Changed != held || held < 290 || held > 320 {
			t.Errorf("while it is paused %d jobs were taken, before %d: %+v", notesIn(t, q, errand.Ready), held, b)
		}
		check(q.Resume(t.Context(), "errand.bulk"))
		began := time.Now()
		b := bulkEnded(t, q, id)
		if took := b.EndedAt.Sub(began); b.Paused || b.Changed != 1000 || took < 6500*time.Millisecond || took > 7500*time.Millisecond {
			t.Errorf("the rest took %v: %+v", took, b)
		}
	})
}

// A bulk job that is cancelled leaves what it has not done, whether it runs or waits.
func TestBulk_cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := bulkQueue(t, 500, errand.Options{Retention: -1})
		idle(t, q)
		first := startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Rate: 100})
		second := startBulk(t, q, errand.Bulk{Do: errand.BulkDelete, Filter: errand.JobFilter{All: true}})
		time.Sleep(2 * time.Second)
		for _, id := range []errand.ID{second, first} {
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if b := bulkEnded(t, q, id); b.State != errand.Cancelled {
				t.Errorf("it ended as %+v", b)
			}
		}
		b, ready, dead := theBulk(t, q, first), notesIn(t, q, errand.Ready), notesIn(t, q, errand.Dead)
		if ready+dead != 500 || b.Changed != ready || ready < 190 || ready > 215 {
			t.Errorf("%d were redriven, %d stayed dead: %+v", ready, dead, b)
		}
	})
}

// A worker that stops leaves its bulk job to the next, and one whose process is killed too:
// each job is put back once, although all die again while the next worker goes on.
func TestBulk_goesOn(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := storagetest.NewMemory()
			open := func() (*errand.Queue, storage.Store) {
				s := m.Open()
				q, err := errand.New(t.Context(), s, &errand.Options{Policy: once, Queues: unbraked, Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				return q, s
			}
			q, store := open()
			ids := killNotes(t, q, 1000)
			stop := idle(t, q)
			id := startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Rate: 100})
			time.Sleep(4500 * time.Millisecond)
			other, _ := open()
			if killed {
				m.Kill(store)
				_ = stop() // the store of a process that is gone is closed
			} else if err := stop(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			done := notesIn(t, other, errand.Ready)
			if done < 400 || done > 500 {
				t.Errorf("%d jobs were done before", done)
			}
			w := errand.NewWorker(other, nil)
			errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Permanent(errors.New("no")) })
			run(t, w)
			b := bulkEnded(t, other, id)
			synctest.Wait()
			if b.Changed != 1000 || notesIn(t, other, errand.Dead) != 1000 {
				t.Errorf("killed %v: %+v, %d are dead", killed, b, notesIn(t, other, errand.Dead))
			}
			for _, id := range ids {
				if j := lookUp(t, other, id); j.Attempt != 2 {
					t.Fatalf("killed %v: a job has had %d attempts, want 2", killed, j.Attempt)
				}
			}
		})
	}
}

// However often the process dies that works on a bulk job, that gets on from where it was, and its
// numbers are those of the jobs.
func TestBulk_crashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storagetest.NewMemory()
		open := func() (*errand.Queue, storage.Store) {
			s := m.Open()
			return must(errand.New(t.Context(), s, &errand.Options{Policy: once, Queues: unbraked, Logger: quiet})), s
		}
		q, _ := open()
		ids := killNotes(t, q, 60)
		id := startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Rate: 2})
		for kill := range 12 {
			victim, store := open()
			stop := idle(t, victim)
			for theBulk(t, q, id).State != errand.Running {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(300 * time.Millisecond)
			m.Kill(store)
			_ = stop() // the store of a process that is gone is closed
			if b := theBulk(t, q, id); !b.EndedAt.IsZero() || b.Changed != notesIn(t, q, errand.Ready) {
				t.Fatalf("after %d kills: %+v, and %d were redriven", kill+1, b, notesIn(t, q, errand.Ready))
			}
		}
		idle(t, q)
		if b := bulkEnded(t, q, id); b.State != errand.Done || b.Changed != 60 || b.Left != 0 {
			t.Errorf("it ended as %+v", b)
		}
		for _, id := range ids {
			if j := lookUp(t, q, id); j.State != errand.Ready {
				t.Errorf("a job is %s", j.State)
			}
		}
	})
}

// steppedStore calls before each step of a bulk job.
type steppedStore struct {
	storage.Store
	storage.Notifier
	before func()
}

func (s *steppedStore) Redrive(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
	s.before()
	return s.Store.Redrive(ctx, now, sel, queue)
}

func (s *steppedStore) Change(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
	if e.Args != nil {
		s.before()
	}
	return s.Store.Change(ctx, now, sel, e)
}

// A process that was stopped in the middle of its work, and goes on when the bulk job was cancelled,
// does nothing more, whether it was about to put values into args or to redrive.
func TestBulk_fenced(t *testing.T) {
	for name, set := range map[string]map[string]json.RawMessage{"redrive": nil, "args": {"Text": json.RawMessage(`"new"`)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := storagetest.NewMemory()
				open := func(s storage.Store) *errand.Queue {
					return must(errand.New(t.Context(), s, &errand.Options{Policy: once, Queues: unbraked, Logger: quiet}))
				}
				other := open(m.Open())
				ids := killNotes(t, other, 5)
				store := m.Open()
				asked, goOn := make(chan struct{}, 10), make(chan struct{})
				s := &steppedStore{Store: store, Notifier: store.(storage.Notifier), before: func() { asked <- struct{}{}; <-goOn }}
				q := open(s)
				stop := idle(t, q)
				id := startBulk(t, other, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Set: set})
				<-asked
				must(other.Cancel(t.Context(), id))
				close(goOn)
				if b := bulkEnded(t, other, id); b.State != errand.Cancelled || b.Changed != 0 {
					t.Errorf("it ended as %+v", b)
				}
				check(stop())
				for _, id := range ids {
					if j := lookUp(t, other, id); j.State != errand.Dead || j.Attempt != 1 || len(j.History) != 1 {
						t.Errorf("a job is %s, with %s", j.State, j.Args)
					}
				}
			})
		})
	}
}

// Nothing that is set for all jobs is for bulk jobs: caps, windows, policies, filters.
func TestBulk_apart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := bulkQueue(t, 50, errand.Options{Retention: -1})
		enqueue(t, q, note{}, &errand.JobOptions{Delay: time.Hour})
		ctx := t.Context()
		check(q.Configure(ctx, errand.Lane{}, errand.Settings{MaxJobs: new(1), StartWithin: new(time.Second), WhenFull: new(errand.EvictOldest)}))
		check(q.Pause(ctx, "errand.bulk"))
		var ids []errand.ID
		for range 3 {
			ids = append(ids, startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}}))
		}
		time.Sleep(time.Minute)
		all := errand.JobFilter{All: true}
		must(q.RunNow(ctx, all, &errand.RunNowOptions{FirstRuns: true}))
		must(q.Change(ctx, all, errand.JobChange{Priority: new(1)}))
		must(q.CancelAll(ctx, all))
		must(q.Delete(ctx, all))
		must(q.DeadLetters().Purge(ctx, all))
		for _, id := range ids {
			if j := lookUp(t, q, id); j.EndedAt != (time.Time{}) || j.Priority != 0 {
				t.Errorf("a bulk job is %+v", j)
			}
		}
		if page := must(q.Jobs(ctx, errand.JobFilter{}, nil)); len(page.Jobs) != 0 {
			t.Errorf("all jobs are %+v", page.Jobs)
		}
		if page := must(q.Jobs(ctx, errand.JobFilter{Queue: "errand.bulk"}, nil)); len(page.Jobs) != 3 {
			t.Errorf("those of the queue are %+v", page.Jobs)
		}
		check(q.Configure(ctx, errand.Lane{}, errand.Settings{MaxJobs: new(0), StartWithin: new(time.Duration(0))}))
		killNotes(t, q, 5)
		check(q.Resume(ctx, "errand.bulk"))
		idle(t, q)
		if b := bulkEnded(t, q, ids[2]); b.State != errand.Done {
			t.Errorf("the last ended as %+v", b)
		}
		if n := notesIn(t, q, errand.Ready); n != 5 {
			t.Errorf("%d jobs were redriven", n)
		}
	})
}

// A file without a worker says that nobody does the work, and one whose only queue is that of
// bulk jobs does nothing else.
func TestBulk_unserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := bulkQueue(t, 10, errand.Options{Strict: true})
		enqueue(t, q, note{}, nil)
		id := startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}})
		run(t, errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"errand.bulk"}}))
		if b := bulkEnded(t, q, id); b.Changed != 10 || b.Unserved {
			t.Errorf("it ended as %+v", b)
		}
	})
	q := openQueue(t, nil)
	if b, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkDelete, Filter: errand.JobFilter{All: true}}); err != nil || !b.Unserved {
		t.Errorf("StartBulk gave %+v, %v: want it to say that nobody runs it", b, err)
	}
}

// bulkSpy counts the exchanges that ask for bulk jobs, and the lists of these.
type bulkSpy struct {
	storage.Store
	storage.Notifier
	exchanges, lists atomic.Int64
}

func (s *bulkSpy) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	for _, w := range x.Wants {
		if slices.Contains(w.Queues, storage.BulkQueue) {
			s.exchanges.Add(1)
		}
	}
	return s.Store.Exchange(ctx, now, x)
}

func (s *bulkSpy) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
	if f.Queue == storage.BulkQueue {
		s.lists.Add(1)
	}
	return s.Store.Jobs(ctx, f, after, limit)
}

// A worker asks for bulk jobs only while there are some, and looks for them when it begins and
// when the store tells of one.
func TestBulk_lazy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storagetest.NewMemory().Open()
		s := &bulkSpy{Store: store, Notifier: store.(storage.Notifier)}
		q, err := errand.New(t.Context(), s, &errand.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		idle(t, q)
		for range 100 {
			enqueue(t, q, note{}, nil)
		}
		time.Sleep(time.Hour)
		if e, l := s.exchanges.Load(), s.lists.Load(); e != 0 || l != 1 {
			t.Errorf("without a bulk job there were %d exchanges for them, and %d lists", e, l)
		}
		bulkEnded(t, q, startBulk(t, q, errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{All: true}}))
		time.Sleep(time.Minute)
		e, l := s.exchanges.Load(), s.lists.Load()
		enqueue(t, q, note{}, nil)
		time.Sleep(time.Hour)
		if e == 0 || s.exchanges.Load() != e || s.lists.Load() != l {
			t.Errorf("after the bulk job: %d exchanges, then %d, and %d lists, then %d", e, s.exchanges.Load(), l, s.lists.Load())
		}
	})
}

// At most 100 bulk jobs are kept, whatever the Retention is.
func TestBulk_kept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := bulkQueue(t, 0, errand.Options{Retention: -1})
		idle(t, q)
		var last errand.ID
		for range 105 {
			last = startBulk(t, q, errand.Bulk{Do: errand.BulkDelete, Filter: errand.JobFilter{All: true}})
			bulkEnded(t, q, last)
		}
		time.Sleep(48 * time.Hour)
		all := must(q.Bulks(t.Context()))
		if len(all) != 100 || all[0].ID != last {
			t.Errorf("%d are kept, the last %v", len(all), all[0].ID)
		}
		page := must(q.Jobs(t.Context(), errand.JobFilter{Queue: "errand.bulk"}, &errand.ListOptions{Limit: 1000}))
		if len(page.Jobs) != 100 {
			t.Errorf("%d are in the file", len(page.Jobs))
		}
	})
}

// The values take the place of those at their paths; args without such a field stay, and so
// does their job.
func TestBulk_set(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: once})
		args := []string{`{"a":{"b":1,"big":12345678901234567890},"c":2,"d":3}`, `{"a":{"b":null},"d":null}`, `{"a":{},"d":1}`, `{"a":3,"d":1}`, `{"d":1}`, `[1]`}
		w := errand.NewWorker(q, nil)
		errand.HandleRaw(w, "any", func(context.Context, *errand.Job[errand.RawArgs]) error { return errand.Permanent(nil) })
		var ids []errand.ID
		for _, a := range args {
			ids = append(ids, enqueue(t, q, errand.RawArgs{OfKind: "any", JSON: json.RawMessage(a)}, nil))
		}
		stop := run(t, w)
		synctest.Wait()
		check(stop())
		idle(t, q)
		b := bulkEnded(t, q, startBulk(t, q, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{Kind: "any"},
			Set: map[string]json.RawMessage{"a.b": json.RawMessage(`{"x":[1]}`), "d": json.RawMessage(`null`)}}))
		if b.Changed != 2 || b.Left != 4 {
			t.Errorf("it ended as %+v", b)
		}
		want := []string{`{"a":{"b":{"x":[1]},"big":12345678901234567890},"c":2,"d":null}`, `{"a":{"b":{"x":[1]}},"d":null}`, args[2], args[3], args[4], args[5]}
		for i, id := range ids {
			j := lookUp(t, q, id)
			if string(j.Args) != want[i] || (j.State == errand.Ready) != (i < 2) {
				t.Errorf("job %d is %s, with %s: want %s", i, j.State, j.Args, want[i])
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }
