package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// What is leased comes in the common order of all lanes, whoever has written in
// between: the same that a query over the whole table gives.
//
//errand:shows a worker of many queues | | an exchange looks only into queues that it leases from, and its jobs still come in one order
//errand:shows held lanes
func TestLineup_Order(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	stores := []*sqlite.Store{d.open(), d.open()}
	db := d.raw()
	defer db.Close()
	ctx := context.Background()
	rnd := rand.New(rand.NewPCG(11, 21))
	queue := func() string { return fmt.Sprintf("q%d", rnd.IntN(8)) }
	now := t0
	job := func() storage.NewJob {
		j := newJob(queue(), fmt.Sprintf("k%d", rnd.IntN(8)))
		j.Priority = rnd.IntN(3)
		j.DueAt = now.Add(time.Duration(rnd.IntN(5)-3) * time.Second)
		return j
	}
	one, queues, all := storage.Want{Queues: []string{"q3"}, Kinds: []string{"k1"}}, storage.Want{Queues: []string{"q2"}}, storage.Want{}
	for i := range 8 {
		queues.Kinds = append(queues.Kinds, fmt.Sprintf("k%d", i))
		all.Queues = append(all.Queues, fmt.Sprintf("q%d", i), "q0")
		all.Kinds = append(all.Kinds, fmt.Sprintf("k%d", i))
	}
	keeping := all
	keeping.Min, keeping.Wait = 3, 4*time.Second
	many := all
	many.Queues = []string{"q*"}
	most := many
	most.Except = []storage.Lane{{Queue: "q3", Kind: "k1"}}
	few, any := many, many
	few.Queues, few.Each = []string{"q1*", "q2", "q*"}, 1
	any.Each, any.EachOf = 2, map[string]int{"q1": 0, "q2": 1, "q3": 3}
	sets := [][]storage.Want{{one}, {queues}, {all}, {one, all}, {queues, one, all}, {all, one}, {keeping}, {one, keeping}, {many}, {most, one}, {few}, {one, any}}
	held := make([][]storage.Finish, len(stores))
	exchange := func(i int, wants []storage.Want) {
		t.Helper()
		wants = slices.Clone(wants)
		for k := range wants {
			wants[k].N = rnd.IntN(6)
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Wants: slices.Clone(wants)}
		if _, err := stores[i].Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Minute, Finish: held[i]}); err != nil {
			t.Fatal(err)
		}
		if _, err := stores[i].Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Minute, Wants: want(1, "none")}); err != nil {
			t.Fatal(err) // makes ready what is due
		}
		var want, got []int64
		rows, err := db.Query(`SELECT j.id, queue, kind,
COUNT(*) OVER (PARTITION BY j.lane), MIN(due_at) OVER (PARTITION BY j.lane) FROM errand_job j JOIN errand_lane l USING (lane) WHERE state = 2
AND NOT EXISTS (SELECT 1 FROM errand_hold h WHERE h.queue IN ('', l.queue) AND h.kind IN ('', l.kind) AND (until IS NULL OR until > ?1))
ORDER BY priority DESC, due_at, id`, now.UnixMicro())
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		taken := map[string]int{}
		for rows.Next() {
			var id, ready, due int64
			var queue, kind string
			if err := rows.Scan(&id, &queue, &kind, &ready, &due); err != nil {
				t.Fatal(err)
			}
			first := wants[max(slices.IndexFunc(wants, func(w storage.Want) bool { return w.Matches(queue, kind) }), 0)]
			if first.Matches(queue, kind) && int(ready) < first.Min && due+first.Wait.Microseconds() > now.UnixMicro() {
				continue
			}
			k := slices.IndexFunc(wants, func(w storage.Want) bool {
				return w.N > 0 && w.Matches(queue, kind) && w.HasRoom(queue, taken[queue])
			})
			if k >= 0 {
				taken[queue]++
				want = append(want, id)
				wants[k].N--
			}
		}
		r, err := stores[i].Exchange(ctx, now, x)
		if err != nil {
			t.Fatal(err)
		}
		held[i] = nil
		for n, l := range r.Leased {
			got = append(got, l.Key)
			f := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
			if n%2 == 1 { // comes back
				f.Outcome, f.DueAt = storage.OutcomeRetry, now.Add(time.Duration(rnd.IntN(3)-1)*time.Second)
			}
			held[i] = append(held[i], f)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("leased %v, want %v", got, want)
		}
	}
	var some storage.ID
	for range 2000 {
		i := rnd.IntN(2)
		var err error
		switch rnd.IntN(12) {
		case 0, 1:
			jobs := make([]storage.NewJob, 1+rnd.IntN(3))
			for k := range jobs {
				jobs[k] = job()
			}
			var out []storage.Enqueued
			if out, err = stores[i].Enqueue(ctx, now, jobs); err == nil {
				some = out[0].ID
			}
		case 2, 3:
			h := storage.Hold{Lane: storage.Lane{Queue: queue(), Kind: fmt.Sprintf("k%d", rnd.IntN(8))}, Reason: "r"}
			switch rnd.IntN(3) {
			case 0:
				h.Queue = ""
			case 1:
				h.Kind = ""
			}
			switch rnd.IntN(8) {
			case 0:
				err = stores[i].Hold(ctx, now, h)
			case 1, 2:
				h.For = time.Duration(1+rnd.IntN(20)) * 100 * time.Millisecond
				err = stores[i].Hold(ctx, now, h)
			default:
				_, err = stores[i].Release(ctx, now, h.Lane, "r")
			}
		case 4:
			if !some.IsZero() {
				_, err = stores[i].Cancel(ctx, now, some, storage.Retention{})
			}
			if errors.Is(err, storage.ErrNotFound) {
				err = nil
			}
		case 5:
			_, err = stores[i].StepClock(ctx, now.Add(-time.Duration(rnd.IntN(10))*time.Second), 0)
		case 6: // what it adds and leases comes to nothing
			stores[i].Fault(func(bool) error { return storage.ErrBusy })
			_, _ = stores[i].Enqueue(ctx, now, []storage.NewJob{job()})
			_, _ = stores[i].Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: all.Queues, Kinds: all.Kinds, N: 3}}})
			stores[i].Fault(nil)
		default:
			exchange(i, sets[rnd.IntN(len(sets))])
		}
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(100 * time.Millisecond)
	}
	d.Invariants(t)
}

// Lanes from which nothing is leased cost an exchange nothing: with a thousand
// of them it does about the same as with one, however many have jobs.
//
//errand:shows a worker of many queues
func TestLineup_ManyLanes(t *testing.T) {
	ctx := context.Background()
	work := func(queues, ready int) float64 {
		s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
		wanted := storage.Want{Kinds: []string{"a"}, N: 1}
		var jobs []storage.NewJob
		for i := range queues {
			wanted.Queues = append(wanted.Queues, fmt.Sprintf("q%d", i))
			job := newJob(wanted.Queues[i], "a")
			if i >= ready { // a lane with nothing in it
				job.DueAt = t0.Add(time.Hour)
			}
			for range 1 + 100/queues {
				jobs = append(jobs, job)
			}
		}
		if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
			t.Fatal(err)
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{wanted}}
		return testing.AllocsPerRun(50, func() {
			r, err := s.Exchange(ctx, t0, x)
			if err != nil {
				t.Fatal(err)
			}
			x.Finish = x.Finish[:0]
			for _, l := range r.Leased {
				x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			}
		})
	}
	one := work(1, 1)
	for _, ready := range []int{0, 1, 1000} {
		if n := work(1000, ready); n > 2*one+100 {
			t.Errorf("1,000 lanes, of which %d have jobs: an exchange takes %.0f allocations, of one lane %.0f", ready, n, one)
		}
	}
}

// The same for the queues of a prefix, also where jobs come one by one, each a surprise.
func TestLineup_ManyOfPrefix(t *testing.T) {
	ctx := context.Background()
	work := func(queues, each int) (allocs float64, took time.Duration) {
		s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
		var jobs []storage.NewJob
		for i := range queues { // each has a lane, with nothing in it that is due
			job := newJob(fmt.Sprintf("web/%d", i), "a")
			job.DueAt = t0.Add(time.Hour)
			jobs = append(jobs, job)
		}
		if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
			t.Fatal(err)
		}
		one := []storage.NewJob{newJob(fmt.Sprintf("web/%d", queues/2), "a")}
		x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"web/*"}, Kinds: []string{"a"}, N: 1, Each: each}}}
		exchange := func() {
			if _, err := s.Enqueue(ctx, t0, one); err != nil {
				t.Fatal(err)
			}
			r, err := s.Exchange(ctx, t0, x)
			if err != nil || len(r.Leased) != 1 {
				t.Fatalf("leased %d: %v", len(r.Leased), err)
			}
			x.Finish = []storage.Finish{{Lease: r.Leased[0].Lease, Outcome: storage.OutcomeDone}}
		}
		allocs = testing.AllocsPerRun(50, exchange)
		began := time.Now()
		for range 200 {
			exchange()
		}
		return allocs, time.Since(began) / 200
	}
	for _, each := range []int{0, 5} {
		one, tookOne := work(1, each)
		n, took := work(10_000, each)
		t.Logf("Each %d: an enqueue and an exchange take %v and %.0f allocations with 10,000 queues, %v and %.0f with one: a ratio of %.2f",
			each, took, n, tookOne, one, float64(took)/float64(tookOne))
		if n > 2*one+100 {
			t.Errorf("10,000 queues, of which one has a job: an exchange takes %.0f allocations, of one queue %.0f", n, one)
		}
	}
}

// A clock that is set back makes jobs due at one time, and the first enqueued
// goes first.
//
//errand:shows a worker of many queues
func TestLineup_ClockSetBack(t *testing.T) {
	s := newDB(t, nil).open()
	ctx := context.Background()
	var jobs []storage.NewJob
	for _, due := range []time.Duration{2, 1, 0} {
		job := newJob("default", string(rune('a'+due)))
		job.DueAt = t0.Add(due * time.Second)
		jobs = append(jobs, job)
	}
	out, err := s.Enqueue(ctx, t0.Add(3*time.Second), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []storage.ID{out[2].ID, out[0].ID} {
		if got := lease(t, s, 1, "a", "b", "c"); len(got) != 1 || got[0].ID != want {
			t.Errorf("leased %v, want %v", got, want)
		}
		if _, err := s.StepClock(ctx, t0, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// Of jobs that are read ahead few bytes are kept, and none once they are leased.
func TestLineup_Ahead(t *testing.T) {
	const lanes, each = 500, 8
	ctx := context.Background()
	s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed}).open()
	wanted := storage.Want{Kinds: []string{"a"}, N: 100}
	for i := range lanes {
		wanted.Queues = append(wanted.Queues, fmt.Sprintf("q%d", i))
	}
	var jobs []storage.NewJob
	for range each {
		for _, q := range wanted.Queues {
			j := newJob(q, "a")
			j.Args = make([]byte, 1900)
			jobs = append(jobs, j)
		}
	}
	if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
		t.Fatal(err)
	}
	most := 0
	for n := 0; n < len(jobs); {
		r, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{wanted}})
		if err != nil || len(r.Leased) == 0 {
			t.Fatalf("%d leased after %d: %v", len(r.Leased), n, err)
		}
		n += len(r.Leased)
		of, kept, err := s.KeptAhead()
		if err != nil {
			t.Fatal(err)
		}
		if most = max(most, kept); n == len(jobs) && of+kept > 0 {
			t.Errorf("%d bytes of args and %d lanes are kept when all jobs are leased", kept, of)
		}
	}
	if most == 0 || most > 6<<20 {
		t.Errorf("up to %d bytes of args were read ahead, of %d", most, len(jobs)*1900)
	}
}

// The first jobs of lanes are found by few statements, however few or many jobs are ready in each,
// and whatever lanes are between these.
func TestLineup_Survey(t *testing.T) {
	const lanes = 300
	ctx := context.Background()
	for _, each := range []int{1, 3, 20} { // at most, in a lane
		for _, between := range []int{0, 20} { // lanes that are not wanted
			s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed}).open()
			var jobs []storage.NewJob
			ready := 0 // lanes
			for i := range lanes {
				ready += min(i%(each+1), 1)
				for range i % (each + 1) {
					jobs = append(jobs, newJob(fmt.Sprintf("q%d", i), "a"))
				}
				for n := range between {
					jobs = append(jobs, newJob(fmt.Sprintf("other %d", i*between+n), "a"))
				}
			}
			added, err := s.Enqueue(ctx, t0, jobs)
			if err != nil {
				t.Fatal(err)
			}
			x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q*"}, Kinds: []string{"a"}, N: 100}}}
			n, err := s.SurveyStatements(t0, x.Wants[0])
			if err != nil || n > ready || each+between < 4 && n != 1 {
				t.Errorf("%d jobs a lane, %d lanes between: %d statements (%v) for %d lanes", each, between, n, err, ready)
			}
			for want := 0; ; {
				r, err := s.Exchange(ctx, t0, x)
				if err != nil {
					t.Fatal(err)
				}
				for want < len(jobs) && strings.HasPrefix(jobs[want].Queue, "other") {
					want++
				}
				if len(r.Leased) == 0 {
					if want != len(jobs) {
						t.Errorf("%d jobs a lane, %d lanes between: %d of %d jobs are leased", each, between, want, len(jobs))
					}
					break
				}
				for i := range r.Leased {
					for strings.HasPrefix(jobs[want].Queue, "other") {
						want++
					}
					if r.Leased[i].ID != added[want].ID {
						t.Fatalf("%d jobs a lane, %d lanes between: leased %s of %s, want %s of %s",
							each, between, r.Leased[i].ID, r.Leased[i].Queue, added[want].ID, jobs[want].Queue)
					}
					want++
				}
			}
		}
	}
}

// Of lanes that have had their jobs the writer keeps no jobs, and few successes.
func TestLineup_NothingKept(t *testing.T) {
	ctx := context.Background()
	s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed}).open()
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"*"}, Kinds: []string{"a"}, N: 1000}}}
	_, most, err := s.KeptSuccesses()
	if err != nil {
		t.Fatal(err)
	}
	var jobs []storage.NewJob
	for i := range most + 500 {
		jobs = append(jobs, newJob(fmt.Sprintf("q%d", i), "a"))
	}
	if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(jobs); n += len(x.Finish) {
		r, err := s.Exchange(ctx, t0, x)
		if err != nil || len(r.Leased) == 0 {
			t.Fatalf("%d leased after %d: %v", len(r.Leased), n, err)
		}
		x.Finish = x.Finish[:0]
		for i := range r.Leased {
			x.Finish = append(x.Finish, storage.Finish{Lease: r.Leased[i].Lease, Outcome: storage.OutcomeDone})
		}
	}
	if _, err := s.Exchange(ctx, t0, x); err != nil {
		t.Fatal(err)
	}
	if lanes, _, err := s.KeptAhead(); lanes != 0 || err != nil {
		t.Errorf("jobs of %d lanes are kept (%v), want none", lanes, err)
	}
	if n, _, err := s.KeptSuccesses(); n == 0 || n > most || err != nil {
		t.Errorf("successes of %d lanes are kept (%v), want at most %d", n, err, most)
	}
}

// An index that has fewer jobs at the second reading is damaged.
func TestLineup_FewerThanRead(t *testing.T) {
	if err := newDB(t, nil).open().SkipMissing(); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
}

// The lanes of a want that asks for no jobs are not looked at, and do not make jobs
// of the others be read ahead.
func TestLineup_ClosedWant(t *testing.T) {
	s, x := closedWant(t, 20, 100)
	r, err := s.Exchange(t.Context(), t0, x)
	if err != nil || len(r.Leased) != 4 || r.Leased[0].Queue != "open" {
		t.Fatalf("leased %v, %v: want 4 jobs of the open queue", r.Leased, err)
	}
	if _, kept, err := s.KeptAhead(); kept > len("{}") || err != nil {
		t.Errorf("%d bytes of args were read ahead (%v), want those of the next job", kept, err)
	}
}

// BenchmarkExchange_ClosedWant leases 4 jobs behind lanes of which none are wanted.
func BenchmarkExchange_ClosedWant(b *testing.B) {
	for _, lanes := range []int{1, 1000} {
		b.Run(fmt.Sprint(lanes), func(b *testing.B) {
			s, x := closedWant(b, lanes, 4*b.N)
			b.ResetTimer()
			for range b.N {
				r, err := s.Exchange(b.Context(), t0, x)
				if err != nil || len(r.Leased) != 4 {
					b.Fatalf("leased %d, %v", len(r.Leased), err)
				}
				x.Finish = x.Finish[:0]
				for _, l := range r.Leased {
					x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
				}
			}
		})
	}
}

// closedWant returns a Store in which lanes of a want for no jobs come before a
// queue of n jobs, of which the exchange leases 4.
func closedWant(t testing.TB, lanes, n int) (*sqlite.Store, storage.Exchange) {
	t.Helper()
	s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed}).open()
	shut, open := storage.Want{Kinds: []string{"a"}}, storage.Want{Queues: []string{"open"}, Kinds: []string{"a"}, N: 4}
	jobs := make([]storage.NewJob, 0, lanes+n)
	for i := range lanes {
		shut.Queues = append(shut.Queues, fmt.Sprintf("shut %d", i))
		jobs = append(jobs, newJob(shut.Queues[i], "a"))
	}
	for range n {
		jobs = append(jobs, newJob("open", "a"))
	}
	for part := range slices.Chunk(jobs, 10_000) {
		if _, err := s.Enqueue(context.Background(), t0, part); err != nil {
			t.Fatal(err)
		}
	}
	return s, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{shut, open}}
}
