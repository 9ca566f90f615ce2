package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

func openIn(t *testing.T, e entry, s setup) system {
	t.Helper()
	s.path = filepath.Join(t.TempDir(), databaseName)
	q, err := e.open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func left(t *testing.T, q system, want int) {
	t.Helper()
	if n, err := q.Left(context.Background()); err != nil || n != want {
		t.Errorf("%d jobs are left, %v: want %d", n, err, want)
	}
}

// enqueueEachWay adds n jobs, by all the ways there are.
func enqueueEachWay(t *testing.T, q system, n int) {
	t.Helper()
	x, inTx := q.(txEnqueuer)
	i := 0
	for ; i < 10; i++ {
		if err := q.Enqueue(t.Context(), newJob{payload: payload{N: i, Pad: smallPad}}); err != nil {
			t.Fatal(err)
		}
	}
	for ; inTx && i < 20; i++ {
		if err := x.EnqueueTx(t.Context(), newJob{payload: payload{N: i, Pad: smallPad}}, "note"); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.EnqueueMany(t.Context(), jobs(i, n-i, smallPad)); err != nil {
		t.Fatal(err)
	}
}

func TestSystems_loseNothing(t *testing.T) {
	const n = 100
	for _, e := range systems {
		t.Run(e.name, func(t *testing.T) {
			relaxed := openIn(t, e, setup{relaxed: true})
			if got, err := relaxed.Durability(t.Context()); err != nil || got != "WAL NORMAL" {
				t.Errorf("relaxed: durability %q, %v", got, err)
			}
			path := filepath.Join(t.TempDir(), databaseName)
			q, err := e.open(t.Context(), setup{path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			if err := makeOrders(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			want := "WAL FULL"
			if e.unsynced {
				want = "WAL NORMAL"
			}
			if got, err := q.Durability(t.Context()); err != nil || got != want {
				t.Errorf("durability %q, %v: want %q", got, err, want)
			}
			enqueueEachWay(t, q, n)
			left(t, q, n)
			if e.name != "floor" {
				losesNothing(t, q, n)
			}
		})
	}
}

// losesNothing checks that each of n jobs is done once.
func losesNothing(t *testing.T, q system, n int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var mu sync.Mutex
	seen := map[int]int{}
	err := q.Work(ctx, workers, func(_ context.Context, j *job) error {
		p, err := j.decoded()
		if err != nil || p.Pad != smallPad || j.Attempt != 1 {
			t.Errorf("job %+v, attempt %d, %v", p, j.Attempt, err)
		}
		mu.Lock()
		defer mu.Unlock()
		seen[p.N]++
		if len(seen) == n {
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if seen[i] != 1 {
			t.Errorf("job %d was done %d times", i, seen[i])
		}
	}
	left(t, q, 0)
}

func TestSystems_carryLargePayloads(t *testing.T) {
	const size = 16 << 10
	pad := padFor(size)
	if got := len(encoded(&newJob{payload: payload{N: 1234567, At: 1234567890123456789, Pad: pad}})); got != size {
		t.Fatalf("a payload has %d bytes: want %d", got, size)
	}
	for _, e := range systems {
		if e.name == "floor" {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			q := openIn(t, e, setup{})
			if err := q.EnqueueMany(t.Context(), jobs(0, 3, pad)); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			seen := newSet(3)
			err := q.Work(ctx, workers, func(_ context.Context, j *job) error {
				if p, err := j.decoded(); err != nil || p.Pad != pad {
					t.Errorf("a payload of %d bytes came as %d, %v", len(pad), len(p.Pad), err)
				}
				if seen.add(j) == 3 {
					stop()
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := seen.err(); err != nil {
				t.Error(err)
			}
			left(t, q, 0)
		})
	}
}

func TestSystems_retryAndRedrive(t *testing.T) {
	for _, e := range systems {
		if !ownAndRaw(e) {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			q := openIn(t, e, setup{retries: 2})
			if err := fill(t.Context(), q, 100, smallPad); err != nil {
				t.Fatal(err)
			}
			if err := drainAll(t.Context(), q, 100, 2, 0); err != nil {
				t.Error(err)
			}
			q = openIn(t, e, setup{})
			if err := fill(t.Context(), q, 100, smallPad); err != nil {
				t.Fatal(err)
			}
			if err := failAll(t.Context(), q, 100); err != nil {
				t.Fatal(err)
			}
			left(t, q, 0)
			if n, err := q.(redriver).Redrive(t.Context()); n != 100 || err != nil {
				t.Errorf("%d were redriven, %v", n, err)
			}
			left(t, q, 100)
		})
	}
}

func TestRaw_Mixed(t *testing.T) {
	e, err := findSystem("raw")
	if err != nil {
		t.Fatal(err)
	}
	q := openIn(t, e, setup{})
	n := 0
	if err := q.(mixer).Mixed(t.Context(), 8, 100, func(context.Context, *job) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	if n != 100 {
		t.Errorf("%d jobs were done", n)
	}
	left(t, q, 0)
}

func TestSystems_finishInTransactions(t *testing.T) {
	const n = 250
	for _, e := range systems {
		if !finishers(e) {
			continue
		}
		for _, perCall := range []int{1, 100} {
			t.Run(fmt.Sprint(e.name, "/", perCall), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), databaseName)
				q, err := e.open(t.Context(), setup{path: path})
				if err != nil {
					t.Fatal(err)
				}
				defer q.Close()
				if err := errors.Join(makeOrders(t.Context(), path), fill(t.Context(), q, n, smallPad)); err != nil {
					t.Fatal(err)
				}
				err = workAll(t.Context(), q, n, 0, func(ctx context.Context, done func(*job)) error {
					return q.(txFinisher).WorkTx(ctx, workers, perCall, "note", done)
				})
				if err := errors.Join(err, checkOrders(t.Context(), path, n)); err != nil {
					t.Error(err)
				}
				if err := checkOrders(t.Context(), path, n+1); err == nil {
					t.Errorf("%d rows are there and one more is wanted: want an error", n)
				}
			})
		}
	}
}

func TestErrand_WorkProgress(t *testing.T) {
	e, err := findSystem("errand")
	if err != nil {
		t.Fatal(err)
	}
	q := openIn(t, e, setup{keep: true})
	if err := fill(t.Context(), q, 3, smallPad); err != nil {
		t.Fatal(err)
	}
	err = workAll(t.Context(), q, 3, 0, func(ctx context.Context, done func(*job)) error {
		return q.(progresser).WorkProgress(ctx, workers, func(j *job, say func(done, total int64)) error {
			say(int64(j.N), 7)
			done(j)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	own := q.(*errandQueue).q
	page, err := own.Jobs(t.Context(), errand.JobFilter{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, j := range page.Jobs {
		info, err := own.Job(t.Context(), j.ID)
		if err != nil || info.Progress == nil || info.Progress.Total != 7 {
			t.Fatalf("progress %+v, %v: want some of 7", info.Progress, err)
		}
		got = append(got, info.Progress.Done)
	}
	if slices.Sort(got); !slices.Equal(got, []int64{0, 1, 2}) {
		t.Errorf("progress of the jobs %v: want the number of each", got)
	}
}

func TestProgress_handle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, w := range []progress{{steps: 20, step: 100 * time.Microsecond, say: true}, {steps: 20, step: 100 * time.Microsecond}} {
			begun, said := time.Now(), 0
			w.handle(func(done, total int64) {
				said++
				if at := time.Since(begun); done != int64(said) || total != 20 || at != time.Duration(done)*w.step {
					t.Errorf("%d of %d are done after %v: want %d of 20, a step each", done, total, at, said)
				}
			})
			if took := time.Since(begun); took != 2*time.Millisecond || (said == 20) != w.say || (said == 0) == w.say {
				t.Errorf("%+v: said %d times in %v: want 2 ms", w, said, took)
			}
		}
	})
}

func TestDrainAll_noticesLoss(t *testing.T) {
	e, err := findSystem("errand")
	if err != nil {
		t.Fatal(err)
	}
	q := openIn(t, e, setup{})
	if err := fill(t.Context(), q, 3, smallPad); err != nil {
		t.Fatal(err)
	}
	if err := drainAll(t.Context(), q, 2, 0, 0); err == nil {
		t.Error("two jobs were to be done and three were there: want an error")
	}
}

func TestErrand_marks(t *testing.T) {
	const n = 9
	for _, c := range []struct {
		name           string
		mark           mark
		ready, blocked int64 // once all jobs were enqueued twice
	}{
		{"none", func(*newJob) {}, 2 * n, 0},
		{"a key each", withKey, n, 0},
		{"three groups", inGroups(3), 3, 2*n - 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := openIn(t, systems[0], setup{}).(*errandQueue)
			for range 2 {
				if err := fill(t.Context(), q, n, smallPad, c.mark); err != nil {
					t.Fatal(err)
				}
			}
			counts, err := q.q.Counts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := map[errand.State]int64{}
			for _, k := range counts {
				got[k.State] += k.N
			}
			if got[errand.Ready] != c.ready || got[errand.Blocked] != c.blocked {
				t.Errorf("states %v: want %d ready and %d blocked", got, c.ready, c.blocked)
			}
		})
	}
}

// lenient is a queue that evicts too few jobs.
type lenient struct {
	*errandQueue
	more int
}

func (q *lenient) KeepNewest(ctx context.Context, n int) error {
	return q.errandQueue.KeepNewest(ctx, n+q.more)
}

func TestEnqueue_noticesThatTooFewAreEvicted(t *testing.T) {
	w := enqueue{callers: 4, batch: 1, n: 40, full: 100}
	for more := range 2 {
		e := entry{name: "lenient", open: func(ctx context.Context, s setup) (system, error) {
			q, err := openErrand(ctx, s)
			if err != nil {
				return nil, err
			}
			return &lenient{q.(*errandQueue), more}, nil
		}}
		tr := &trial{spec: spec{Scale: 1, Dir: t.TempDir()}, entry: e, sample: sample{Figures: map[string]float64{}}}
		if err := w.run(t.Context(), tr); (err != nil) != (more > 0) {
			t.Errorf("%d jobs too many may be there: got error %v", more, err)
		}
		if err := tr.close(); err != nil {
			t.Error(err)
		}
	}
}
