package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// way is a database with a Store that decides about plain jobs without their rows, or with them.
type way struct {
	*db
	s     *postgres.Store
	trips trips
	out   []storage.Enqueued
	state storage.State
	err   error
	// Of an exchange: what it has returned, and the leases of jobs that have not ended, by key.
	res    storage.ExchangeResult
	leases map[int64]storage.Lease
}

// step is a call.
type step struct {
	jobs   []storage.NewJob
	finish []storage.Finish // with keys alone
	extend []int64
	want   int
	cancel int64 // key
	keep   storage.Retention
}

const createdAt = `SELECT created_at, salt FROM errand_job WHERE id = $1 UNION ALL SELECT created_at, salt FROM errand_finished WHERE id = $1
UNION ALL SELECT created_at, salt FROM errand_dead WHERE id = $1 UNION ALL SELECT 0, 0 LIMIT 1`

func jobID(created int64, salt int32, key int64) storage.ID {
	return storage.NewID(time.UnixMicro(created), uint32(salt), key)
}

// take makes the call, as of now. Salts are random, so that the answers have none.
func (w *way) take(ctx context.Context, now time.Time, queue string, c step) {
	w.res, w.out, w.state, w.err = storage.ExchangeResult{}, nil, "", nil
	switch {
	case len(c.jobs) > 0:
		if w.out, w.err = w.s.Enqueue(ctx, now, c.jobs); w.err != nil {
			return
		}
		for i, e := range w.out {
			w.out[i].ID = jobID(0, 0, e.ID.Key())
		}
	case c.cancel != 0:
		var created int64
		var salt int32
		if w.err = w.conn.QueryRow(ctx, createdAt, c.cancel).Scan(&created, &salt); w.err == nil {
			w.state, w.err = w.s.Cancel(ctx, now, jobID(created, salt, c.cancel), c.keep)
		}
	default:
		x := storage.Exchange{LeaseDuration: time.Minute, Retention: c.keep}
		for _, f := range c.finish {
			f.Lease = w.leases[f.Key]
			x.Finish = append(x.Finish, f)
		}
		for _, key := range c.extend {
			x.Extend = append(x.Extend, w.leases[key])
		}
		if c.want > 0 {
			x.Wants = []storage.Want{{Queues: []string{queue}, Kinds: []string{"k"}, N: c.want}}
		}
		w.res, w.err = w.s.Exchange(ctx, now, x)
		for _, then := range w.res.Then {
			for i, e := range then {
				then[i].ID = jobID(0, 0, e.ID.Key())
			}
		}
		for i := range w.res.Leased {
			l := &w.res.Leased[i]
			w.leases[l.Key] = l.Lease
			l.ID, l.Lease, l.Previous = storage.ID{}, storage.Lease{Key: l.Key}, 0
		}
	}
}

// rows returns what there is but for salts and tokens.
func (w *way) rows() string {
	w.t.Helper()
	var all []string
	for _, text := range []string{
		`SELECT (to_jsonb(j) - '{salt,token,instance,call}'::text[])::text FROM errand_job j ORDER BY id`,
		`SELECT (to_jsonb(j) - '{salt,token}'::text[])::text FROM errand_finished j ORDER BY id`,
		`SELECT (to_jsonb(j) - '{salt,token}'::text[])::text FROM errand_dead j ORDER BY id`,
		`SELECT (to_jsonb(h) - '{instance}'::text[])::text FROM errand_history h ORDER BY job, n`,
		`SELECT format('%s %s %s %s', lane, number, sum(n), sum(bytes)) FROM (SELECT lane, number, n, bytes FROM errand_number UNION ALL SELECT lane, number, n, bytes FROM errand_delta) n WHERE number <> -4 GROUP BY lane, number HAVING sum(n) <> 0 ORDER BY lane, number`,
	} {
		rows, err := w.conn.Query(context.Background(), text)
		if err != nil {
			w.t.Fatal(err)
		}
		for rows.Next() {
			var row string
			if err := rows.Scan(&row); err != nil {
				w.t.Error(err)
			}
			all = append(all, row)
		}
		if err := rows.Err(); err != nil {
			w.t.Fatal(err)
		}
	}
	stats, err := w.s.Stats(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range stats {
		l.FailedJob = jobID(0, 0, l.FailedJob.Key())
		all = append(all, fmt.Sprintf("%+v", l))
	}
	return strings.Join(all, "\n")
}

// Whatever calls about plain jobs decide, it is the same with their rows and without.
func TestStore_BothWays(t *testing.T) {
	const histories, steps = 1000, 6
	ways := [2]*way{}
	for i := range ways {
		w := &way{db: newDBIn(t, pgtest.NewSchema(t)), leases: map[int64]storage.Lease{}}
		var err error
		if w.s, err = postgres.OpenBy(t.Context(), pgtest.Server(t), &postgres.Options{Schema: w.schema}, w.trips.wrap); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.kill(w.s) })
		if ways[i] = w; i == 1 {
			w.s.TakeLongWay()
		}
	}
	now := now
	for seed := range uint64(histories) {
		r := rand.New(rand.NewPCG(seed, 7))
		h := history{r: r, queue: fmt.Sprint("q", seed%10), keep: time.Duration(r.IntN(2)) * time.Hour}
		for n := range steps {
			c := h.next(n)
			var wg sync.WaitGroup
			for _, w := range ways {
				wg.Go(func() { w.take(t.Context(), now, h.queue, c) })
			}
			wg.Wait()
			short, long := ways[0], ways[1]
			if !reflect.DeepEqual(short.out, long.out) || !reflect.DeepEqual(short.res, long.res) || short.state != long.state || fmt.Sprint(short.err) != fmt.Sprint(long.err) {
				t.Fatalf("history %d, %+v returned\n%+v %+v %q %v, and with rows\n%+v %+v %q %v", seed, c, short.out, short.res, short.state, short.err, long.out, long.res, long.state, long.err)
			}
			h.note(short)
			now = now.Add(time.Duration(r.IntN(3)) * time.Second)
		}
		if seed%100 == 99 {
			if short, long := ways[0].rows(), ways[1].rows(); short != long {
				t.Fatalf("after history %d there is\n%s\nand with rows\n%s", seed, short, long)
			}
		}
	}
	if short, long := ways[0].trips.take(), ways[1].trips.take(); short >= long {
		t.Errorf("without rows there were %d round trips, and with them %d", short, long)
	}
	for _, w := range ways {
		w.Invariants(t)
	}
}

// history is a random one of plain jobs.
type history struct {
	r       *rand.Rand
	queue   string
	keep    time.Duration
	running []int64
	entered []int64
}

// next returns the n-th call.
func (h *history) next(n int) (c step) {
	r := h.r
	c.keep.Default = h.keep
	if n == 0 || r.IntN(5) == 0 {
		c.jobs = newJobs(1+r.IntN(4), h.queue, "k")
		for i := range c.jobs {
			c.jobs[i].Priority, c.jobs[i].Delay = r.IntN(3), time.Duration(max(r.IntN(6)-3, 0))*time.Second
		}
		return c
	}
	if len(h.entered) > 0 && r.IntN(8) == 0 {
		c.cancel = h.entered[r.IntN(len(h.entered))]
		return c
	}
	c.want = 1 + r.IntN(3)
	for _, key := range h.running {
		f := storage.Finish{Lease: storage.Lease{Key: key}, Outcome: storage.OutcomeDone, Error: "e"}
		switch r.IntN(12) {
		case 0:
			f.Outcome = storage.OutcomeCancelled
		case 1:
			f.Outcome, f.Failure = storage.OutcomeRetry, &storage.NewFailure{Error: "bad"}
		case 2:
			f.Outcome, f.Reason = storage.OutcomeDead, storage.ReasonPermanent
		case 3:
			f.Then = newJobs(1, h.queue, "k")
		case 4:
			f.Outcome = storage.OutcomeReturned
		case 5:
			f.Outcome = storage.OutcomeCrashed
		case 6, 7:
			c.extend = append(c.extend, key)
			continue
		}
		if c.finish = append(c.finish, f); r.IntN(10) == 0 {
			c.finish = append(c.finish, f) // which is lost
		}
	}
	return c
}

// note takes note of what a call has returned.
func (h *history) note(w *way) {
	for _, e := range w.out {
		h.entered = append(h.entered, e.ID.Key())
	}
	for _, then := range w.res.Then {
		for _, e := range then {
			h.entered = append(h.entered, e.ID.Key())
		}
	}
	slices.Sort(h.entered)
	for _, l := range w.res.Leased {
		h.running = append(h.running, l.Key)
	}
}
