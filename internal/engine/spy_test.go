package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

// spy is a Store that notes the calls the engine makes, and can be told to
// fail. It has the Notifier of the store below.
type spy struct {
	storage.Store
	alone bool
	full  atomic.Bool // it takes only what ends work
	// room, if not 0, is how many bytes an exchange may bring, and what it takes for each outcome.
	room atomic.Int64
	// damaged: likewise, since damage was found.
	damaged atomic.Bool

	mu        sync.Mutex
	calls     []call
	fail      func(op string) error // nil: nothing
	listening int
}

type call struct {
	op      string
	at      time.Time
	x       storage.Exchange
	firings []storage.Firing
}

func (s *spy) note(op string, x storage.Exchange) error {
	x.Extend, x.Finish = slices.Clone(x.Extend), slices.Clone(x.Finish)
	return s.record(call{op: op, x: x})
}

func (s *spy) record(c call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.at = time.Now()
	s.calls = append(s.calls, c)
	if s.fail != nil {
		return s.fail(c.op)
	}
	return nil
}

// failing has all calls from now on give what fail returns.
func (s *spy) failing(fail func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// since returns the calls from the n-th on.
func (s *spy) since(n int) []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls[n:]...)
}

// of returns the calls of one kind from the n-th on.
func (s *spy) of(op string, n int) []call {
	return slices.DeleteFunc(s.since(n), func(c call) bool { return c.op != op })
}

func (s *spy) count() int { return len(s.since(0)) }

func (s *spy) Alone() bool { return s.alone }

func (s *spy) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if err := s.note("exchange", x); err != nil {
		return storage.ExchangeResult{}, err
	}
	for i := range x.Finish {
		for f := &x.Finish[i]; f != nil; f = f.Spent {
			if (f.Cause == "") != (f.Outcome != storage.OutcomeDead || f.Error == "") {
				panic(fmt.Sprintf("outcome %v with error %q has the cause %q", f.Outcome, f.Error, f.Cause))
			}
		}
	}
	bytes := int64(0)
	for i := range x.Finish {
		bytes += 100 + int64(x.Finish[i].Bytes())
	}
	if room := s.room.Load(); room > 0 && bytes > room {
		return storage.ExchangeResult{}, storage.ErrFull
	}
	if x.Wanted() > 0 && s.full.Load() {
		return storage.ExchangeResult{}, storage.ErrFull
	}
	if x.Wanted() > 0 && s.damaged.Load() {
		return storage.ExchangeResult{}, fmt.Errorf("while testing: %w", storage.ErrCorrupt)
	}
	return s.Store.Exchange(ctx, now, x)
}

func (s *spy) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
	if err := s.note("reclaim", storage.Exchange{}); err != nil {
		return nil, err
	}
	if s.damaged.Load() {
		return nil, storage.ErrCorrupt
	}
	return s.Store.Reclaim(ctx, now, mono, lease, limit)
}

func (s *spy) Counts(ctx context.Context) ([]storage.Count, error) {
	if err := s.note("counts", storage.Exchange{}); err != nil {
		return nil, err
	}
	return s.Store.Counts(ctx)
}

func (s *spy) Holds(ctx context.Context, now time.Time) ([]storage.HoldState, error) {
	if err := s.note("holds", storage.Exchange{}); err != nil {
		return nil, err
	}
	return s.Store.Holds(ctx, now)
}

func (s *spy) PurgeFinished(ctx context.Context, now time.Time) (int, time.Time, error) {
	if err := s.note("purge", storage.Exchange{}); err != nil {
		return 0, time.Time{}, err
	}
	return s.Store.PurgeFinished(ctx, now)
}

func (s *spy) Started(l storage.Lease, now time.Time) error {
	if err := s.note("started", storage.Exchange{}); err != nil {
		return err
	}
	return s.marker().Started(l, now)
}

func (s *spy) Stopping(l storage.Lease) error { return s.marker().Stopping(l) }

func (s *spy) Ended(l storage.Lease) error { return s.marker().Ended(l) }

func (s *spy) marker() storage.Marker { return s.Store.(storage.Marker) }

func (s *spy) scheduler() storage.Scheduler { return s.Store.(storage.Scheduler) }

func (s *spy) PutSchedule(ctx context.Context, now time.Time, in storage.Schedule) (int64, error) {
	return s.scheduler().PutSchedule(ctx, now, in)
}

func (s *spy) DropSchedule(ctx context.Context, now time.Time, name string) error {
	return s.scheduler().DropSchedule(ctx, now, name)
}

func (s *spy) Ticks(ctx context.Context, name string) ([]storage.Tick, error) {
	return s.scheduler().Ticks(ctx, name)
}

func (s *spy) Schedule(ctx context.Context, name string) (storage.ScheduleRecord, error) {
	return s.scheduler().Schedule(ctx, name)
}

func (s *spy) Schedules(ctx context.Context) ([]storage.ScheduleRecord, error) {
	if err := s.note("schedules", storage.Exchange{}); err != nil {
		return nil, err
	}
	return s.scheduler().Schedules(ctx)
}

func (s *spy) Fire(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	if err := s.record(call{op: "fire", firings: slices.Clone(firings)}); err != nil {
		return nil, err
	}
	return s.scheduler().Fire(ctx, now, firings)
}

func (s *spy) Clock(ctx context.Context) (time.Time, bool, error) {
	if err := s.note("clock", storage.Exchange{}); err != nil {
		return time.Time{}, false, err
	}
	return s.Store.(storage.Timekeeper).Clock(ctx)
}

func (s *spy) StepClock(ctx context.Context, now time.Time, after int64) (int64, error) {
	if err := s.note("step", storage.Exchange{}); err != nil {
		return 0, err
	}
	return s.Store.(storage.Timekeeper).StepClock(ctx, now, after)
}

func (s *spy) Notify(f func(storage.Event)) func() {
	s.listen(+1)
	cancel := s.Store.(storage.Notifier).Notify(f)
	return func() {
		s.listen(-1)
		cancel()
	}
}

func (s *spy) listen(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening += n
}

// slowStore can keep the answers to exchanges back.
type slowStore struct {
	*spy
	hold atomic.Pointer[chan struct{}]
}

// keepBack begins to keep answers back; goOn ends it.
func (s *slowStore) keepBack() (goOn func()) {
	c := make(chan struct{})
	s.hold.Store(&c)
	return func() {
		s.hold.Store(nil)
		close(c)
	}
}

func (s *slowStore) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	res, err := s.spy.Exchange(ctx, now, x)
	if c := s.hold.Load(); c != nil {
		<-*c
	}
	return res, err
}
