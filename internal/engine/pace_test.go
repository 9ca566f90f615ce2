package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// slow is a Store whose exchanges take their time.
type slow struct {
	*spy
	takes time.Duration
}

func (s slow) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	time.Sleep(s.takes)
	return s.spy.Exchange(ctx, now, x)
}

// mostWanted is the largest number of jobs that was asked for at a time.
func (s *spy) mostWanted() (n int) {
	for _, c := range s.since(0) {
		n = max(n, c.x.Wanted())
	}
	return n
}

func work(d time.Duration) handle {
	return func(ctx context.Context, _ *storage.Leased) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestPace_ShortHandlersAreFedAhead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = slow{r.store, 10 * time.Millisecond}
		r.handle("short", work(time.Millisecond))
		ids := r.enqueue("short", 2000)
		r.start()
		pass(2 * time.Second) // in fours it would take 5
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
		if n := r.store.mostWanted(); n < 30 || n > 44 {
			t.Errorf("at most %d jobs were asked for, want about 40: 10 ms of 4 runners", n)
		}
	})
}

// Of heavy jobs few are leased ahead, and all are leased though the store returns
// less than was asked for.
//
//errand:shows memory of large args | | jobs leased ahead of the handlers are bounded by the size of their args too
func TestPace_HeavyJobsAreNot(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 10
		r.cfg.Store = slow{r.store, 10 * time.Millisecond}
		r.handle("heavy", work(time.Millisecond))
		jobs := make([]storage.NewJob, 30)
		for i := range jobs {
			jobs[i] = storage.NewJob{Queue: "q", Kind: "heavy", Args: make([]byte, storage.LeaseBytes/8)}
		}
		if _, err := r.app.Enqueue(t.Context(), r.now(), jobs); err != nil {
			t.Fatal(err)
		}
		r.start()
		pass(time.Second)
		counts, err := r.app.Counts(t.Context())
		if err != nil || len(counts) != 1 || counts[0].State != storage.Done {
			t.Errorf("counts are %v, %v: want all done", counts, err)
		}
		if n := r.store.mostWanted(); n > 10+8 {
			t.Errorf("%d jobs were asked for at a time, want at most 8 ahead of 10 runners", n)
		}
	})
}

func TestPace_LongHandlersAreNot(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = slow{r.store, 10 * time.Millisecond}
		r.handle("long", work(time.Minute))
		r.enqueue("long", 50)
		r.start()
		pass(5 * time.Minute)
		if n := r.store.mostWanted(); n != 4 {
			t.Errorf("%d jobs were asked for at a time, want 4", n)
		}
	})
}

func TestPace_GivesBackWhatWaitsTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = slow{r.store, 10 * time.Millisecond}
		r.handle("short", work(time.Millisecond))
		r.handle("long", work(time.Minute))
		r.enqueue("short", 1000)
		ids := r.enqueue("long", 100)
		r.start()
		pass(2 * time.Second)
		var running, ahead int
		for _, id := range ids {
			switch rec := r.job(id); {
			case rec.State == storage.Running:
				running++
			case rec.State != storage.Ready || rec.Counters != (storage.Counters{}):
				t.Errorf("job is %s %+v, want it ready and unspent", rec.State, rec.Counters)
			}
		}
		for _, c := range r.store.since(0) {
			for _, f := range c.x.Finish {
				if f.Outcome == storage.OutcomeReturned {
					ahead++
				}
			}
		}
		if running != 4 || ahead == 0 {
			t.Errorf("%d running, %d given back: want 4, and some", running, ahead)
		}
	})
}

func TestPace_YieldsOnceWhileNothingEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 16
		r.cfg.Store = slow{r.store, 30 * time.Millisecond}
		r.handle("short", work(time.Millisecond))
		r.handle("long", work(time.Hour))
		r.enqueue("short", 2000)
		r.enqueue("long", 500)
		r.start()
		pass(10 * time.Second)
		before := r.store.count()
		pass(time.Minute)
		n := 0
		for _, c := range r.store.since(before) {
			if c.op == "exchange" {
				n++
			}
		}
		if n > 10 { // heartbeats
			t.Errorf("%d exchanges in a minute in which nothing could start", n)
		}
	})
}

// An attempt that could not start says nothing about how long handlers take.
func TestPace_AttemptsThatCannotStartAreNoShortHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = slow{r.store, 200 * time.Millisecond}
		r.handle("long", work(time.Second))
		r.enqueue("long", 4)
		r.start()
		pass(5 * time.Second)
		r.store.failing(func(op string) error {
			if op == "started" {
				return storage.ErrFull
			}
			return nil
		})
		r.enqueue("long", 100)
		pass(10 * time.Minute)
		r.store.failing(nil)
		pass(10 * time.Minute)
		if n := r.store.mostWanted(); n > 4 {
			t.Errorf("%d jobs were asked for, want at most as many as there are runners", n)
		}
	})
}
