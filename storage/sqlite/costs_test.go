package sqlite_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"math/bits"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

const (
	warm    = 4                              // lots before anything is counted, as statements are prepared and memory grows
	counted = 10                             // lots that are counted
	lot     = 256                            // jobs, of most workloads
	stock   = 2 * (warm + counted + 2) * lot // so many that the last lots are as the others
)

// workload is work in lots, each of which does the same.
type workload struct {
	name    string
	jobs    int // of a lot
	commits int // of a lot
	begin   func(r *costRig) (lot func())
}

// A job costs no more statements, pages, steps of SQLite and allocations than it did.
//
// Nothing here depends on time, load, or the order of goroutines: in the bubble time stands
// still, one goroutine makes all calls, or the calls that are to share a commit wait for it
// together. The garbage collector, which empties pools, is off. A map that is refilled all the
// time is made anew after a number of lots that depends on its random seed, so the allocations
// are those of the lot with the fewest.
func TestCosts(t *testing.T) {
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			var got cost
			list := ""
			synctest.Test(t, func(t *testing.T) { got, list = w.measure(t) })
			w.compare(t, got, list)
		})
	}
}

// measure returns what all lots that are counted have cost together, but of the allocations
// those of the lot with the fewest, and a list of statements.
func (w *workload) measure(t *testing.T) (sum cost, list string) {
	defer runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // each processor has pools of its own
	time.Sleep(time.Until(t0))
	turnMeter(true)
	defer turnMeter(false)
	lot := w.begin(newCostRig(t))
	for range warm {
		lot()
		synctest.Wait() // for what the writer does after a commit
	}
	forgetTexts()
	var allocs [counted]int
	begun := readCost(t)
	for i := range allocs {
		before := readCost(t).allocs
		lot()
		allocs[i] = readCost(t).allocs - before
	}
	sum = readCost(t).less(begun)
	t.Logf("allocations of the lots: %d", allocs)
	sum.allocs = slices.Min(allocs[:])
	return sum, dearest(counted * w.jobs)
}

// compare compares costs with the maxima.
func (w *workload) compare(t *testing.T, got cost, list string) {
	line := fmt.Sprintf("%q: {%d, %d, %d, %d},", w.name, got.statements, got.pages, got.steps, got.allocs)
	t.Log(line)
	was, jobs, commits := mostCost[w.name], float64(counted*w.jobs), float64(counted*w.commits)
	for _, c := range []struct {
		what, each string
		got, most  int
		per        float64
	}{
		{"statements", "a job", got.statements, was.statements, jobs},
		{"pages", "a commit", got.pages, was.pages, commits},
		{"steps", "a job", got.steps, was.steps, jobs},
		{"allocations", "a job", got.allocs, was.allocs, float64(w.jobs)},
	} {
		figures := fmt.Sprintf("%d %s, %.3f %s; costs_most_test.go has %d, %.3f", c.got, c.what, float64(c.got)/c.per, c.each, c.most, float64(c.most)/c.per)
		switch g, m := float64(c.got), float64(c.most); {
		case c.what == "allocations" && (raced || bits.UintSize < 64):
			t.Log("allocations are not compared: with the race detector, and on 32 bits, there are others")
		case g > 1.03*m:
			t.Errorf("%s costs more: %s", w.name, figures)
		case g < 0.97*m:
			t.Errorf("%s costs less, which is to stay so: %s. Write %s", w.name, figures, line)
		}
	}
	if t.Failed() {
		t.Logf("its statements are%s", list)
		t.Logf("where it allocates: go test ./storage/sqlite -run 'TestCosts/^%s$' -memprofile mem.out -memprofilerate 1, then go tool pprof -sample_index alloc_objects -top", w.name)
	}
}

// costRig is a queue under test.
type costRig struct {
	*testing.T
	s *sqlite.Store
	q *errand.Queue
}

func newCostRig(t *testing.T) *costRig {
	r := &costRig{T: t}
	sqlite.FixSalts(t)
	discard := slog.New(slog.DiscardHandler)
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true, Logger: discard})
	r.must(err)
	q, err := errand.New(t.Context(), s, &errand.Options{Logger: discard})
	r.must(err)
	t.Cleanup(func() { r.must(q.Close()) })
	r.s, r.q = s, q
	return r
}

func (r *costRig) must(err error) {
	if err != nil {
		r.Helper()
		r.Fatal(err)
	}
}

// costNote is what jobs of the public API carry.
type costNote struct{ Text string }

func (costNote) Kind() string { return "note" }

func costJob(queue string) storage.NewJob {
	return storage.NewJob{Queue: queue, Kind: "a", Args: []byte(`{"text":"fifty bytes or so of args for a handler"}`)}
}

// twice returns lots of two, where one in two looks after the log or reads ahead.
func twice(lot func()) func() {
	return func() {
		lot()
		synctest.Wait()
		lot()
	}
}

// fill enqueues jobs before anything is counted.
func (r *costRig) fill(n int, job func(i int) storage.NewJob) {
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = job(i)
	}
	for part := range slices.Chunk(jobs, 1000) {
		_, err := r.s.Enqueue(r.Context(), t0, part)
		r.must(err)
	}
}

func plain(int) storage.NewJob { return costJob("q") }

// inGroups returns jobs of so many groups in turn.
func inGroups(n int) func(i int) storage.NewJob {
	return func(i int) storage.NewJob {
		j := costJob("q")
		j.Group = "group " + strconv.Itoa(i%n)
		return j
	}
}

// work returns lots in which so many jobs are leased and those of the lot before are ended, as a
// worker does.
func (r *costRig) work(n int, keep time.Duration, end func(f *storage.Finish, l *storage.Leased), queues ...string) func() {
	x := storage.Exchange{
		LeaseDuration: time.Minute, Retention: storage.Retention{Default: keep},
		Wants: []storage.Want{{Queues: queues, Kinds: []string{"a"}, N: n}}, Finish: make([]storage.Finish, 0, n),
	}
	ctx := r.Context()
	return func() {
		got, err := r.s.Exchange(ctx, t0, x)
		r.must(err)
		if len(got.Leased) != n {
			r.Fatalf("leased %d jobs, want %d", len(got.Leased), n)
		}
		x.Finish = x.Finish[:0]
		for i := range got.Leased {
			l := &got.Leased[i]
			f := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
			if end != nil {
				end(&f, l)
			}
			x.Finish = append(x.Finish, f)
		}
	}
}

// together returns lots in which these calls are made while the writer is busy with another one,
// and so share the next commit.
func (r *costRig) together(busy func(), calls ...func()) func() {
	type caller struct{ begin, end chan struct{} }
	start := func(call func()) caller {
		c := caller{make(chan struct{}), make(chan struct{})}
		r.Cleanup(func() { close(c.begin) })
		go func() {
			for range c.begin {
				call()
				c.end <- struct{}{}
			}
		}()
		return c
	}
	first := start(busy)
	var others []caller
	for _, call := range calls {
		others = append(others, start(call))
	}
	return func() {
		release := make(chan struct{})
		meter.mu.Lock()
		meter.stall = release
		meter.mu.Unlock()
		first.begin <- struct{}{}
		synctest.Wait() // in its transaction
		for _, c := range others {
			c.begin <- struct{}{}
			synctest.Wait() // in the queue, in the same order each time
		}
		close(release)
		<-first.end
		for _, c := range others {
			<-c.end
		}
	}
}

func (r *costRig) enqueue() { r.enqueueWith(nil) }

func (r *costRig) enqueueWith(o *errand.JobOptions) {
	_, err := r.q.Enqueue(r.Context(), costNote{"fifty bytes or so of args for a handler"}, o)
	r.must(err)
}

var workloads = []workload{
	{name: "drain", jobs: lot, commits: 1, begin: func(r *costRig) func() {
		r.fill(stock, plain)
		return r.work(lot, 0, nil, "q")
	}},
	{name: "kept", jobs: lot, commits: 1, begin: func(r *costRig) func() {
		r.fill(stock, plain)
		return r.work(lot, time.Hour, nil, "q")
	}},
	// Each job fails twice before it succeeds.
	{name: "failing", jobs: lot, commits: 3, begin: func(r *costRig) func() {
		r.fill(stock, plain)
		failure := storage.NewFailure{Phase: "immediate", Error: "status 503", Instance: "host/1/1"} // a name of the same length everywhere
		once := r.work(lot, 0, func(f *storage.Finish, l *storage.Leased) {
			if l.Attempt <= 2 {
				f.Outcome, f.Failure = storage.OutcomeRetry, &failure
			}
		}, "q")
		return func() {
			for range 3 {
				once()
			}
		}
	}},
	{name: "enqueue-1", jobs: lot, commits: lot, begin: func(r *costRig) func() {
		return func() {
			for range lot {
				r.enqueue()
				synctest.Wait()
			}
		}
	}},
	{name: "enqueue-64", jobs: 65, commits: 2, begin: func(r *costRig) func() {
		return r.together(r.enqueue, slices.Repeat([]func(){r.enqueue}, 64)...)
	}},
	{name: "enqueue-64-keys", jobs: 65, commits: 2, begin: func(r *costRig) func() {
		n := 0
		add := func() {
			n++
			r.enqueueWith(&errand.JobOptions{Unique: &errand.Unique{Key: strconv.Itoa(n)}})
		}
		return r.together(add, slices.Repeat([]func(){add}, 64)...)
	}},
	// Each job evicts the oldest one.
	{name: "enqueue-64-evict", jobs: 65, commits: 2, begin: func(r *costRig) func() {
		r.fill(stock, func(int) storage.NewJob { return costJob("default") })
		r.must(r.q.Configure(r.Context(), errand.Lane{Queue: "default"}, errand.Settings{MaxJobs: new(stock), WhenFull: new(errand.EvictOldest)}))
		return r.together(r.enqueue, slices.Repeat([]func(){r.enqueue}, 64)...)
	}},
	{name: "enqueue-batch", jobs: 2 * lot, commits: 2, begin: func(r *costRig) func() {
		jobs := make([]errand.NewJob, lot)
		for i := range jobs {
			jobs[i].Args = costNote{"fifty bytes or so of args for a handler"}
		}
		return twice(func() {
			_, err := r.q.EnqueueMany(r.Context(), jobs)
			r.must(err)
		})
	}},
	{name: "enqueue-tx", jobs: 64, commits: 64, begin: func(r *costRig) func() {
		ctx := r.Context()
		r.must(r.q.Tx(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
			return err
		}))
		fn := func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders DEFAULT VALUES"); err != nil {
				return err
			}
			_, err := r.q.EnqueueTx(ctx, tx, costNote{"fifty bytes or so of args for a handler"}, nil)
			return err
		}
		return func() {
			for range 64 {
				r.must(r.q.Tx(ctx, fn))
				synctest.Wait()
			}
		}
	}},
	// 32 producers, and a worker that leases what they enqueue.
	{name: "mixed", jobs: 33, commits: 2, begin: func(r *costRig) func() {
		r.fill(lot, plain)
		add := func() {
			_, err := r.s.Enqueue(r.Context(), t0, []storage.NewJob{costJob("q")})
			r.must(err)
		}
		return r.together(add, append(slices.Repeat([]func(){add}, 32), r.work(33, 0, nil, "q"))...)
	}},
	{name: "drain-keys", jobs: lot, commits: 1, begin: func(r *costRig) func() {
		r.fill(stock, func(i int) storage.NewJob {
			j := costJob("q")
			j.Unique = strconv.Itoa(i)
			return j
		})
		return r.work(lot, 0, nil, "q")
	}},
	// One job of a group runs at a time.
	{name: "groups", jobs: 2 * 64, commits: 2, begin: func(r *costRig) func() {
		r.fill(stock/4, inGroups(64))
		return twice(r.work(64, 0, nil, "q"))
	}},
	// A group of its own for each job.
	{name: "groups-each", jobs: 2 * lot, commits: 2, begin: func(r *costRig) func() {
		r.fill(stock, inGroups(stock))
		return twice(r.work(lot, 0, nil, "q"))
	}},
	{name: "groups-1", jobs: 64, commits: 64, begin: func(r *costRig) func() {
		r.fill(stock/4, inGroups(1))
		one := r.work(1, 0, nil, "q")
		return func() {
			for range 64 {
				one()
				synctest.Wait()
			}
		}
	}},
	{name: "lanes", jobs: 2 * lot, commits: 2, begin: func(r *costRig) func() {
		var queues []string
		for i := range 64 {
			queues = append(queues, "queue "+strconv.Itoa(i))
		}
		r.fill(stock, func(i int) storage.NewJob { return costJob(queues[i%64]) })
		return twice(r.work(lot, 0, nil, queues...))
	}},
	{name: "held", jobs: lot, commits: 1, begin: func(r *costRig) func() {
		r.fill(4*lot, func(int) storage.NewJob { return costJob("held") })
		r.must(r.s.Hold(r.Context(), t0, storage.Hold{Lane: storage.Lane{Queue: "held"}, Reason: "r"}))
		r.fill(stock, plain)
		return r.work(lot, 0, nil, "held", "q")
	}},
	// Jobs of a group wait for the first one, which is not due.
	{name: "behind", jobs: lot, commits: 1, begin: func(r *costRig) func() {
		r.fill(4*lot, func(i int) storage.NewJob {
			j := costJob("q")
			if j.Group = "g"; i == 0 {
				j.Delay = time.Hour
			}
			return j
		})
		r.fill(stock, plain)
		return r.work(lot, 0, nil, "q")
	}},
}
