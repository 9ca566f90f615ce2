package sqlite_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/storagetest"
)

// throttled returns a file in which so many queues have a shared throttle of one an hour.
func throttled(t testing.TB, queues int, opts *sqlite.Options) *db {
	t.Helper()
	d := newDB(t, opts)
	if err := d.open().Close(); err != nil {
		t.Fatal(err)
	}
	d.exec(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
INSERT INTO errand_setting (queue, kind, name, value)
SELECT 'web/' || i, '', s.column1, s.column2 FROM n, (VALUES ('starts', 1), ('starts_per', 3600000000), ('starts_burst', 1)) s`, queues)
	return d
}

// BenchmarkConfigure sets the throttle of a new queue beside those of others, in one
// process, and adds a job in another, which has to know of it.
func BenchmarkConfigure(b *testing.B) {
	for _, queues := range []int{1, 10_000} {
		b.Run(strconv.Itoa(queues), func(b *testing.B) {
			d := throttled(b, queues, &sqlite.Options{Durability: sqlite.Relaxed})
			s, other := d.open(), d.open()
			b.ResetTimer()
			for i := range b.N {
				if err := s.Configure(context.Background(), storage.Lane{Queue: fmt.Sprint("new/", i)}, storage.Settings{storage.SettingStarts: 10}); err != nil {
					b.Fatal(err)
				}
				if _, err := other.Enqueue(context.Background(), t0, []storage.NewJob{newJob("free", "a")}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// outOfTokens returns a Store in which as many queues have a shared throttle and jobs, and
// no token left for an hour, beside a queue without one. The exchange leases of all.
func outOfTokens(t testing.TB, queues int) (*sqlite.Store, storage.Exchange) {
	t.Helper()
	d := throttled(t, queues, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true})
	s := d.open()
	var jobs []storage.NewJob
	for i := range queues {
		name := fmt.Sprintf("web/%d", i)
		jobs = append(jobs, newJob(name, "a"), newJob(name, "a"))
	}
	for part := range slices.Chunk(jobs, 10_000) {
		if _, err := s.Enqueue(context.Background(), t0, part); err != nil {
			t.Fatal(err)
		}
	}
	x := storage.Exchange{LeaseDuration: time.Hour, Wants: []storage.Want{{Queues: []string{"web/*", "free"}, Kinds: []string{"a"}, N: 10_000}}}
	for leased := 0; leased < queues; {
		r, err := s.Exchange(context.Background(), t0, x)
		if err != nil || len(r.Leased) == 0 {
			t.Fatalf("leased %d more: %v", len(r.Leased), err)
		}
		leased += len(r.Leased)
	}
	x.Wants[0].N = 1
	return s, x
}

// pass adds a job to the queue without a throttle, and leases and ends it.
func pass(t testing.TB, s *sqlite.Store, x *storage.Exchange) {
	if _, err := s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("free", "a")}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Exchange(context.Background(), t0, *x)
	if err != nil || len(r.Leased) != 1 {
		t.Fatalf("leased %d: %v", len(r.Leased), err)
	}
	x.Finish = []storage.Finish{{Lease: r.Leased[0].Lease, Outcome: storage.OutcomeDone}}
}

// Lanes that wait for a token cost an exchange nothing.
func TestThrottle_ManyWait(t *testing.T) {
	work := func(queues int) float64 {
		s, x := outOfTokens(t, queues)
		return testing.AllocsPerRun(50, func() { pass(t, s, &x) })
	}
	one, many := work(1), work(1000)
	if many > 2*one+50 {
		t.Errorf("with 1,000 queues that have no token an exchange takes %.0f allocations, with one %.0f", many, one)
	}
}

// BenchmarkExchange_OutOfTokens adds a job and leases it beside queues that have no token.
func BenchmarkExchange_OutOfTokens(b *testing.B) {
	for _, queues := range []int{1, 1500, 10_000} {
		b.Run(strconv.Itoa(queues), func(b *testing.B) {
			s, x := outOfTokens(b, queues)
			b.ResetTimer()
			for range b.N {
				pass(b, s, &x)
			}
		})
	}
}

// What is leased, and when the next job can be, are those of the model, which looks at each
// job each time: with throttles of queues, of kinds and of both, which change, with tokens
// that come back, and a clock that is set back.
func TestThrottle_AsModel(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(strconv.Itoa(int(seed)), func(t *testing.T) { likeModel(t, rand.New(rand.NewPCG(seed, 5))) })
	}
}

func likeModel(t *testing.T, rnd *rand.Rand) {
	ctx := context.Background()
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	real, other, model := d.open(), d.open(), storagetest.NewMemory().Open()
	all := []storage.Store{real, model}
	queue := func() string { return fmt.Sprintf("q%d", rnd.IntN(6)) }
	kind := func() string { return fmt.Sprintf("k%d", rnd.IntN(2)) }
	sets := []storage.Want{
		{Queues: []string{"q*"}, Kinds: []string{"k0", "k1"}},
		{Queues: []string{"q*"}, Kinds: []string{"k0", "k1"}, Each: 2, EachOf: map[string]int{"q1": 0, "q2": 1}},
		{Queues: []string{"q1", "q2", "q3"}, Kinds: []string{"k0"}},
	}
	now := t0
	var held [2][]storage.Leased
	throttles := map[storage.Lane]storage.Settings{}
	n, leases, denied := 0, 0, 0
	for range 1500 {
		switch rnd.IntN(14) {
		case 0, 1, 2:
			var jobs []storage.NewJob
			for range 1 + rnd.IntN(5) {
				j := newJob(queue(), kind())
				j.Priority, j.Args = rnd.IntN(2), []byte(strconv.Itoa(n))
				jobs, n = append(jobs, j), n+1
			}
			for _, s := range all {
				if _, err := s.Enqueue(ctx, now, jobs); err != nil {
					t.Fatal(err)
				}
			}
		case 3:
			lane := storage.Lane{Queue: queue()}
			if rnd.IntN(4) == 0 {
				lane = storage.Lane{Kind: kind()}
			}
			set := storage.Settings{storage.SettingStarts: int64(rnd.IntN(12)), storage.SettingStartsBurst: int64(rnd.IntN(4))}
			again := rnd.IntN(2) == 0 // as it is, but with a full bucket
			for _, s := range all {
				if again {
					set = throttles[lane]
					if err := s.Configure(ctx, lane, storage.Settings{storage.SettingStarts: 0}); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.Configure(ctx, lane, set); err != nil {
					t.Fatal(err)
				}
			}
			throttles[lane] = set
		case 4:
			now = now.Add(-time.Duration(rnd.IntN(400)) * time.Millisecond)
		case 5: // another process writes
			if _, err := other.Enqueue(ctx, now, []storage.NewJob{newJob("x", "x")}); err != nil {
				t.Fatal(err)
			}
			if _, err := model.Enqueue(ctx, now, []storage.NewJob{newJob("x", "x")}); err != nil {
				t.Fatal(err)
			}
		default:
			now = now.Add(time.Duration(rnd.IntN(60)) * time.Millisecond)
			want := sets[rnd.IntN(len(sets))]
			want.N = rnd.IntN(6)
			wants := []storage.Want{want}
			if rnd.IntN(3) == 0 {
				wants = append(wants, storage.Want{Queues: []string{"q4", "q5"}, Kinds: []string{"k0", "k1"}, N: rnd.IntN(3)})
			}
			outcomes := make([]storage.Outcome, len(held[0]))
			for i := range outcomes {
				outcomes[i] = []storage.Outcome{storage.OutcomeDone, storage.OutcomeReturned, storage.OutcomeRetry}[rnd.IntN(3)]
			}
			var got [2]string
			var next [2]time.Time
			for i, s := range all {
				x := storage.Exchange{LeaseDuration: time.Minute, Wants: slices.Clone(wants)}
				for j, l := range held[i] {
					x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: outcomes[j], DueAt: t0.Add(-time.Hour)})
				}
				r, err := s.Exchange(ctx, now, x)
				if err != nil {
					t.Fatal(err)
				}
				held[i] = r.Leased
				for _, l := range r.Leased {
					got[i] += string(l.Args) + " "
				}
				next[i] = r.NextDue
				if leases += len(r.Leased); !r.NextDue.IsZero() {
					denied++
				}
			}
			if got[0] != got[1] {
				t.Fatalf("leased of %v: %s: want %s", wants, got[0], got[1])
			}
			// Of a lane that other wants have emptied the Store finds out when it has a token.
			early := next[0].After(now) && (next[1].IsZero() || next[0].Before(next[1]))
			if !next[0].Equal(next[1]) && !early {
				t.Fatalf("NextDue of %v is %v: want %v", wants, next[0], next[1])
			}
		}
	}
	if leases < 200 || denied < 200 {
		t.Errorf("only %d leases, and %d exchanges that had to wait", leases, denied)
	}
}
