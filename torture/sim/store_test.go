package sim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// store is SQLite's store with faults, and with ears: what it did is told to
// the model, whatever the caller is told. What is not here passes through.
type store struct {
	*sqlite.Store
	w *world
	l *life

	provisional []func() // of the transaction that Tx runs
	// reclaiming holds one. In the store they wait for each other by a mutex,
	// also while one waits for its turn to write; but to a bubble that is no
	// waiting, and no time would pass.
	reclaiming chan struct{}
}

// trouble is what may go wrong with calls for a while.
type trouble struct {
	number int
	until  time.Time
	op     string // "": any
	often  uint64 // percent of the calls
	err    error  // before the call takes effect; nil: none
	after  bool   // the call takes effect, and its outcome is unknown
	slow   time.Duration
}

// writes are the calls that commit.
var writes = map[string]bool{
	"enqueue": true, "exchange": true, "reclaim": true, "cancel": true, "hold": true, "release": true, "redrive": true, "run now": true,
	"purge dead": true, "purge finished": true, "put": true, "fire": true, "drop": true, "step": true, "tx": true,
}

// hit returns what goes wrong with this call, if anything does.
func (s *store) hit(op string) (hit trouble) {
	w, l := s.w, s.l
	w.mu.Lock()
	defer w.mu.Unlock()
	l.calls[op]++
	x := l.trouble
	if time.Now().After(x.until) || x.op != "" && x.op != op ||
		dice(w.seed, op, int64(x.number), l.calls[op])%100 >= x.often {
		return trouble{}
	}
	x.after = x.after && writes[op]
	return x
}

// call makes a call, with what goes wrong. do is told when the call began, and
// tells the model.
func (s *store) call(op string, do func(begin int64) error) error {
	w, l := s.w, s.l
	if err := l.dead(); err != nil {
		return err
	}
	x := s.hit(op)
	x.slow = max(x.slow, w.latency)
	w.pause(l, x.slow/2)
	if err := l.dead(); err != nil {
		return err
	}
	if x.err != nil {
		if op == "exchange" && errors.Is(x.err, storage.ErrFull) {
			l.full.Store(true)
		}
		return fmt.Errorf("%s: %w", op, x.err)
	}
	err := do(w.tick())
	w.pause(l, x.slow-x.slow/2)
	if dead := l.dead(); dead != nil {
		return dead
	}
	if x.after && err == nil {
		l.broken.Store(true)
		return fmt.Errorf("%s: %w", op, storage.ErrUnknownOutcome)
	}
	return err
}

// pause is time that passes in the store.
func (w *world) pause(l *life, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.end:
	}
}

func (s *store) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	s.w.sample(s.l, now)
	err = s.call("enqueue", func(begin int64) (err error) {
		if out, err = s.Store.Enqueue(ctx, now, jobs); err == nil {
			s.w.enqueued(s.l, begin, now, jobs, out)
		}
		return err
	})
	return out, err
}

func (s *store) EnqueueTx(ctx context.Context, tx any, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	s.w.sample(s.l, now)
	begin := s.w.tick()
	if out, err = s.Store.EnqueueTx(ctx, tx, now, jobs); err == nil {
		got := out
		s.provisional = append(s.provisional, func() { s.w.enqueued(s.l, begin, now, jobs, got) })
	}
	return out, err
}

func (s *store) Tx(ctx context.Context, fn func(tx any) error) error {
	return s.call("tx", func(int64) error {
		var mine []func()
		err := s.Store.Tx(ctx, func(tx any) error {
			s.provisional = nil
			err := fn(tx)
			mine, s.provisional = s.provisional, nil
			return err
		})
		if err == nil {
			for _, f := range mine {
				f()
			}
		}
		return err
	})
}

func (s *store) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (out storage.ExchangeResult, err error) {
	s.w.sample(s.l, now)
	err = s.call("exchange", func(begin int64) (err error) {
		if out, err = s.Store.Exchange(ctx, now, x); err == nil {
			s.w.exchanged(s.l, begin, now, &x, &out)
		}
		return err
	})
	return out, err
}

func (s *store) Offer(want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
	return s.Store.Offer(want, lease, func(jobs []storage.Leased, began time.Time) {
		s.w.handedOver(s.l, jobs)
		receive(jobs, began)
	})
}

func (s *store) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) (out []storage.Reclaimed, err error) {
	s.w.sample(s.l, now)
	err = s.call("reclaim", func(begin int64) (err error) {
		s.reclaiming <- struct{}{}
		defer func() { <-s.reclaiming }()
		if out, err = s.Store.Reclaim(ctx, now, mono, lease, limit); err == nil {
			s.w.reclaimed(s.l, begin, out)
		}
		return err
	})
	return out, err
}

func (s *store) Started(l storage.Lease, now time.Time) error {
	s.w.sample(s.l, now)
	return s.call("started", func(int64) error {
		err := s.Store.Started(l, now)
		if err == nil {
			s.w.noted(s.l, l, now)
		}
		return err
	})
}

func (s *store) Stopping(l storage.Lease) error {
	if err := s.l.dead(); err != nil {
		return err
	}
	err := s.Store.Stopping(l) // at once: the loop of the engine does it
	if err == nil {
		s.w.notedStop(s.l, l)
	}
	return err
}

func (s *store) Ended(l storage.Lease) error {
	return s.call("ended", func(int64) error {
		err := s.Store.Ended(l)
		if err == nil {
			s.w.notedEnd(s.l, l)
		}
		return err
	})
}

func (s *store) Cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (state storage.State, err error) {
	s.w.sample(s.l, now)
	err = s.call("cancel", func(begin int64) (err error) {
		if state, err = s.Store.Cancel(ctx, now, id, keep); err == nil {
			s.w.cancelled(s.l, begin, id, state)
		} else if errors.Is(err, storage.ErrNotFound) {
			s.w.notFound(s.l, begin, id, "Cancel")
		}
		return err
	})
	return state, err
}

func (s *store) Hold(ctx context.Context, now time.Time, h storage.Hold) error {
	s.w.sample(s.l, now)
	return s.call("hold", func(begin int64) error {
		err := s.Store.Hold(ctx, now, h)
		if err == nil {
			s.w.paused(s.l, begin, h.Queue, true)
		}
		return err
	})
}

func (s *store) Release(ctx context.Context, now time.Time, lane storage.Lane, reason string) (was bool, err error) {
	s.w.sample(s.l, now)
	err = s.call("release", func(begin int64) (err error) {
		s.w.resuming(s.l, lane.Queue)
		if was, err = s.Store.Release(ctx, now, lane, reason); err == nil {
			s.w.paused(s.l, begin, lane.Queue, false)
		}
		return err
	})
	return was, err
}

func (s *store) Redrive(ctx context.Context, now time.Time, sel storage.Selection, queue string) (out storage.Step, err error) {
	s.w.sample(s.l, now)
	err = s.call("redrive", func(begin int64) (err error) {
		if out, err = s.Store.Redrive(ctx, now, sel, queue); err == nil {
			s.w.redriven(s.l, begin, sel, queue, out)
		}
		return err
	})
	return out, err
}

func (s *store) RunNow(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (out storage.Step, err error) {
	s.w.sample(s.l, now)
	err = s.call("run now", func(begin int64) (err error) {
		if out, err = s.Store.RunNow(ctx, now, sel, which); err == nil {
			s.w.ranNow(s.l, begin, now, sel, which.First, out)
		}
		return err
	})
	return out, err
}

func (s *store) Delete(ctx context.Context, sel storage.Selection) (out storage.Step, err error) {
	err = s.call("purge dead", func(begin int64) (err error) {
		if out, err = s.Store.Delete(ctx, sel); err == nil {
			s.w.purged(s.l, begin, sel, out)
		}
		return err
	})
	return out, err
}

func (s *store) PurgeFinished(ctx context.Context, now time.Time) (n int, next time.Time, err error) {
	err = s.call("purge finished", func(int64) (err error) {
		if n, next, err = s.Store.PurgeFinished(ctx, now); err == nil {
			s.w.purgedFinished(s.l, now)
		}
		return err
	})
	return n, next, err
}

func (s *store) PutSchedule(ctx context.Context, now time.Time, sched storage.Schedule) (revision int64, err error) {
	err = s.call("put", func(int64) (err error) {
		if revision, err = s.Store.PutSchedule(ctx, now, sched); err == nil && revision != 0 {
			s.w.put(s.l, &sched, revision)
		}
		return err
	})
	return revision, err
}

func (s *store) Fire(ctx context.Context, now time.Time, firings []storage.Firing) (out []storage.Fired, err error) {
	s.w.sample(s.l, now)
	err = s.call("fire", func(begin int64) (err error) {
		if out, err = s.Store.Fire(ctx, now, firings); err == nil {
			s.w.fired(s.l, begin, now, firings, out)
		}
		return err
	})
	return out, err
}

func (s *store) DropSchedule(ctx context.Context, now time.Time, name string) error {
	return s.call("drop", func(int64) error { return s.Store.DropSchedule(ctx, now, name) })
}

func (s *store) StepClock(ctx context.Context, now time.Time, after int64) (next int64, err error) {
	s.w.sample(s.l, now)
	err = s.call("step", func(begin int64) (err error) {
		if next, err = s.Store.StepClock(ctx, now, after); err == nil {
			s.w.stepped(s.l, begin, now)
		}
		return err
	})
	return next, err
}

func (s *store) Counts(ctx context.Context) (out []storage.Count, err error) {
	err = s.call("counts", func(int64) (err error) {
		out, err = s.Store.Counts(ctx)
		return err
	})
	return out, err
}

func (s *store) Schedule(ctx context.Context, name string) (out storage.ScheduleRecord, err error) {
	err = s.call("schedule", func(int64) (err error) {
		out, err = s.Store.Schedule(ctx, name)
		return err
	})
	return out, err
}

func (s *store) Schedules(ctx context.Context) (out []storage.ScheduleRecord, err error) {
	err = s.call("schedules", func(int64) (err error) {
		out, err = s.Store.Schedules(ctx)
		return err
	})
	return out, err
}

func (s *store) Clock(ctx context.Context) (latest time.Time, shifting bool, err error) {
	err = s.call("clock", func(int64) (err error) {
		latest, shifting, err = s.Store.Clock(ctx)
		return err
	})
	return latest, shifting, err
}

// forget has nobody hold a lease any more.
func (s *store) forget() error {
	return s.Store.Tx(context.Background(), func(in any) error {
		tx := in.(*sql.Tx)
		_, err := tx.Exec(`UPDATE errand_job SET state = 2, instance = 0 WHERE state = 3`)
		return err
	})
}
