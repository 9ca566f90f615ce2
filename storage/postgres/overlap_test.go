package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// overlapping is a test of workers that lease jobs and end them, until all have ended.
type overlapping struct {
	t     *testing.T
	lanes []storage.Lane
	total int
	lose  func(s *postgres.Store) // before each exchange; nil: nothing is lost

	mu    sync.Mutex
	ended map[int64]int // how often a job has ended, by key
	held  map[int64]bool
}

func (o *overlapping) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ended) == o.total || o.t.Failed()
}

// leased takes note of a lease, which nobody else may have.
func (o *overlapping) leased(l storage.Leased) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held[l.Key] || o.ended[l.Key] > 0 {
		o.t.Errorf("job %d was leased while another has it, or after its end", l.Key)
	}
	o.held[l.Key] = true
}

// release takes note that a lease is about to end.
func (o *overlapping) release(l storage.Leased) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, l.Key)
}

func (o *overlapping) end(l storage.Leased) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended[l.Key]++
}

// exchange makes an exchange until it is known that it has taken effect.
func (o *overlapping) exchange(s *postgres.Store, x storage.Exchange) (res storage.ExchangeResult, err error) {
	for !o.t.Failed() {
		if o.lose != nil && x.Repeats == 0 {
			o.lose(s)
		}
		res, err = s.Exchange(context.Background(), now, x)
		lost, ok := errors.AsType[*storage.UnknownOutcomeError](err)
		switch {
		case ok:
			x.Repeats = lost.Call
		case errors.Is(err, storage.ErrIO) && o.lose != nil: // nothing was written
			x.Repeats = 0
		default:
			return res, err
		}
	}
	return res, err
}

// work is a worker: of its jobs one in three fails once or twice.
func (o *overlapping) work(s *postgres.Store, wants []storage.Want) {
	var x storage.Exchange
	var ends []storage.Leased
	for !o.over() {
		x.LeaseDuration, x.Wants, x.Retention.Default = time.Minute, wants, time.Hour
		res, err := o.exchange(s, x)
		if err != nil {
			o.t.Errorf("Exchange: %v", err)
			return
		}
		for i, r := range res.Finished {
			if r != storage.Applied {
				o.t.Errorf("finishing job %d returned %d", x.Finish[i].Key, r)
			}
		}
		for _, l := range ends {
			o.end(l)
		}
		x, ends = storage.Exchange{}, nil
		for _, l := range res.Leased {
			o.leased(l)
			o.release(l) // before the exchange that ends it, after which others may lease it
			fin := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
			switch {
			case l.Key%3 == 0 && l.Attempt < 3:
				fin.Outcome, fin.Failure = storage.OutcomeRetry, &storage.NewFailure{Error: "no"}
			case l.Key%5 == 0:
				fin.Outcome, fin.Reason, fin.Error = storage.OutcomeDead, storage.ReasonPermanent, "no"
				ends = append(ends, l)
			default:
				ends = append(ends, l)
			}
			x.Finish = append(x.Finish, fin)
		}
	}
}

func TestStore_Overlapping(t *testing.T) { overlap(t, newDB(t), nil) }

// Of workers whose answers are lost now and then no job stays leased, and none ends twice.
func TestStore_OverlappingLosses(t *testing.T) {
	d := newDB(t)
	overlap(t, d, func(s *postgres.Store) {
		if rand.IntN(3) == 0 {
			d.Lose(s, rand.IntN(2) == 0, rand.IntN(3))
		}
	})
}

func overlap(t *testing.T, d *db, lose func(*postgres.Store)) {
	o := &overlapping{t: t, lose: lose, ended: map[int64]int{}, held: map[int64]bool{}}
	const each, producers = 50, 3
	for i := range 4 {
		o.lanes = append(o.lanes, storage.Lane{Queue: fmt.Sprint("q", i%2), Kind: fmt.Sprint("k", i/2)})
	}
	o.total = each * producers * len(o.lanes)
	var stores [3 * producers]*postgres.Store // all, before any is in use
	for i := range stores {
		stores[i] = d.open()
	}
	var wg sync.WaitGroup
	for s := range slices.Chunk(stores[:], 3) {
		for _, lane := range o.lanes {
			wg.Go(func() {
				for range each {
					if _, err := s[0].Enqueue(context.Background(), now, newJobs(1, lane.Queue, lane.Kind)); err != nil {
						t.Errorf("Enqueue: %v", err)
						return
					}
				}
			})
		}
		one := []storage.Want{{Queues: []string{"q*"}, Kinds: []string{"k0", "k1"}, N: 7}}
		several := []storage.Want{{Queues: []string{"q0"}, Kinds: []string{"k0"}, N: 5}, {Queues: []string{"q0", "q1"}, Kinds: []string{"k0", "k1"}, N: 5, Each: 3}}
		wg.Go(func() { o.work(s[1], one) })
		wg.Go(func() { o.work(s[2], several) })
	}
	wg.Wait()
	for key, n := range o.ended {
		if n != 1 {
			t.Errorf("job %d has ended %d times", key, n)
		}
	}
	if len(o.ended) != o.total {
		t.Errorf("%d of %d jobs have ended", len(o.ended), o.total)
	}
	d.Invariants(t)
}

func TestStore_OverlappingDeadlock(t *testing.T) {
	d := newDB(t)
	s := d.open()
	ctx := t.Context()
	if _, err := s.Enqueue(ctx, now, newJobs(2, "q", "k")); err != nil {
		t.Fatal(err)
	}
	res, err := s.Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 2}}})
	if err != nil || len(res.Leased) != 2 {
		t.Fatalf("leased %v, %v", res.Leased, err)
	}
	const lock = `SELECT id FROM errand_job WHERE id = $1 FOR UPDATE`
	a, b := res.Leased[0].Lease, res.Leased[1].Lease
	d.exec("SET deadlock_timeout = '1min'") // it is the exchange that finds out
	d.exec("BEGIN")
	d.exec(lock, b.Key)
	var wg sync.WaitGroup
	wg.Go(func() {
		res, err := s.Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Minute, Extend: []storage.Lease{b, a}})
		if err != nil || len(res.Extended) != 2 || res.Extended[0] != storage.Applied || res.Extended[1] != storage.Applied {
			t.Errorf("extending returned %v, %v", res.Extended, err)
		}
	})
	d.waits() // it has the one, and waits for the other
	d.exec(lock, a.Key)
	d.exec("COMMIT")
	wg.Wait()
}
