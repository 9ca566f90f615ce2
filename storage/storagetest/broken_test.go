package storagetest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
)

// broken is a Memory whose instances have a fault.
type broken struct {
	*Memory
	wrap func(*instance) storage.Store
	mu   sync.Mutex
	in   map[storage.Store]*instance
}

func newBroken(wrap func(*instance) storage.Store) *broken {
	return &broken{Memory: NewMemory(), wrap: wrap, in: map[storage.Store]*instance{}}
}

func (b *broken) Open() storage.Store { return b.open(b.Memory.Open()) }

func (b *broken) OpenHasty() storage.Store { return b.open(b.Memory.OpenHasty()) }

func (b *broken) open(sound storage.Store) storage.Store {
	in := sound.(*instance)
	s := b.wrap(in)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.in[s] = in
	return s
}

func (b *broken) Kill(s storage.Store)   { b.Memory.Kill(b.in[s]) }
func (b *broken) Reboot(s storage.Store) { b.Memory.Reboot(b.in[s]) }

// Lose implements [Loser] for stores that have hooks.
func (b *broken) Lose(s storage.Store, commits bool, calls int) {
	l := loss{commits, calls}
	if h, ok := s.(*hooks); ok && h.loses != nil {
		h.loses(&l)
	}
	if h, ok := s.(interface{ lose(commits bool, calls int) }); ok {
		h.lose(l.commits, l.calls)
	}
}

// hooks is an instance with some of its methods replaced or surrounded.
type hooks struct {
	*amnesiac
	enqueue  func(context.Context, time.Time, []storage.NewJob) ([]storage.Enqueued, error)
	exchange func(context.Context, time.Time, storage.Exchange) (storage.ExchangeResult, error)
	reclaim  func(context.Context, time.Time, time.Duration, time.Duration, int) ([]storage.Reclaimed, error)
	redrive  func(context.Context, time.Time, storage.Selection, string) (storage.Step, error)
	runNow   func(context.Context, time.Time, storage.Selection, storage.Waiting) (storage.Step, error)
	change   func(context.Context, time.Time, storage.Selection, storage.Edit) (storage.Step, error)
	del      func(context.Context, storage.Selection) (storage.Step, error)
	counts   func(context.Context) ([]storage.Count, error)
	cancel   func(context.Context, time.Time, storage.ID, storage.Retention) (storage.State, error)
	list     func(context.Context, storage.Filter, string, int) (storage.Page, error)
	causes   func(context.Context, storage.Lane, int) ([]storage.Cause, error)
	deaths   func(context.Context, []int64, time.Time, time.Duration, int, int) ([][]int, error)
	stats    func(context.Context) ([]storage.LaneStats, error)
	closing  func() error
	put      func(context.Context, time.Time, storage.Schedule) (int64, error)
	fire     func(context.Context, time.Time, []storage.Firing) ([]storage.Fired, error)
	drop     func(context.Context, time.Time, string) error
	notify   func(func(storage.Event)) func()
	one      func(context.Context, string) (storage.ScheduleRecord, error)
	step     func(context.Context, time.Time, int64) (int64, error)
	offer    func(storage.Want, time.Duration, func([]storage.Leased, time.Time)) storage.Offer
	hold     func(context.Context, time.Time, storage.Hold) error
	release  func(context.Context, time.Time, storage.Lane, string) (bool, error)
	holds    func(context.Context, time.Time) ([]storage.HoldState, error)

	configure func(context.Context, storage.Lane, storage.Settings) error
	settings  func(context.Context) ([]storage.LaneSettings, error)
	evicted   func(func(time.Time, []storage.Evicted)) func()

	checkpoint func(context.Context, storage.Checkpoint) (storage.ItemResult, error)
	states     func(context.Context, []storage.ID) ([]storage.State, error)
	loses      func(*loss)
}

// sound returns an instance without a fault.
func sound(instance *instance) *hooks {
	in := &amnesiac{instance: instance}
	return &hooks{
		amnesiac: in, enqueue: in.Enqueue, exchange: in.Exchange, reclaim: in.Reclaim, redrive: in.Redrive,
		runNow: in.RunNow, change: in.Change, del: in.Delete, counts: in.Counts, cancel: in.Cancel, list: in.Jobs, closing: in.Close, causes: in.Causes, deaths: in.Deaths, stats: in.Stats,
		put: in.PutSchedule, fire: in.Fire, drop: in.DropSchedule, one: in.Schedule, notify: in.Notify, step: in.StepClock, offer: in.Offer,
		hold: in.Hold, release: in.Release, holds: in.Holds, configure: in.Configure, settings: in.Settings, evicted: in.NotifyEvicted,
		checkpoint: in.Checkpoint, states: in.States,
	}
}

func (h *hooks) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	return h.enqueue(ctx, now, jobs)
}

func (h *hooks) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	return h.exchange(ctx, now, x)
}

func (h *hooks) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
	return h.reclaim(ctx, now, mono, lease, limit)
}

func (h *hooks) Redrive(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
	return h.redrive(ctx, now, sel, queue)
}

func (h *hooks) RunNow(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
	return h.runNow(ctx, now, sel, which)
}

func (h *hooks) Change(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
	return h.change(ctx, now, sel, e)
}

func (h *hooks) Delete(ctx context.Context, sel storage.Selection) (storage.Step, error) {
	return h.del(ctx, sel)
}

func (h *hooks) Counts(ctx context.Context) ([]storage.Count, error) { return h.counts(ctx) }

func (h *hooks) Cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
	return h.cancel(ctx, now, id, keep)
}

func (h *hooks) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
	return h.list(ctx, f, after, limit)
}

func (h *hooks) Stats(ctx context.Context) ([]storage.LaneStats, error) { return h.stats(ctx) }

func (h *hooks) Causes(ctx context.Context, lane storage.Lane, limit int) ([]storage.Cause, error) {
	return h.causes(ctx, lane, limit)
}

func (h *hooks) Deaths(ctx context.Context, causes []int64, from time.Time, each time.Duration, n, most int) ([][]int, error) {
	return h.deaths(ctx, causes, from, each, n, most)
}

func (h *hooks) Close() error { return h.closing() }

func (h *hooks) PutSchedule(ctx context.Context, now time.Time, s storage.Schedule) (int64, error) {
	return h.put(ctx, now, s)
}

func (h *hooks) Fire(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	return h.fire(ctx, now, firings)
}

func (h *hooks) DropSchedule(ctx context.Context, now time.Time, name string) error {
	return h.drop(ctx, now, name)
}

func (h *hooks) Schedule(ctx context.Context, name string) (storage.ScheduleRecord, error) {
	return h.one(ctx, name)
}

func (h *hooks) Notify(f func(storage.Event)) func() { return h.notify(f) }

func (h *hooks) StepClock(ctx context.Context, now time.Time, after int64) (int64, error) {
	return h.step(ctx, now, after)
}

func (h *hooks) Offer(want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
	return h.offer(want, lease, receive)
}

func (h *hooks) Hold(ctx context.Context, now time.Time, n storage.Hold) error {
	return h.hold(ctx, now, n)
}

func (h *hooks) Release(ctx context.Context, now time.Time, lane storage.Lane, reason string) (bool, error) {
	return h.release(ctx, now, lane, reason)
}

func (h *hooks) Holds(ctx context.Context, now time.Time) ([]storage.HoldState, error) {
	return h.holds(ctx, now)
}

func (h *hooks) Configure(ctx context.Context, lane storage.Lane, s storage.Settings) error {
	return h.configure(ctx, lane, s)
}

func (h *hooks) Settings(ctx context.Context) ([]storage.LaneSettings, error) { return h.settings(ctx) }

func (h *hooks) NotifyEvicted(f func(time.Time, []storage.Evicted)) func() { return h.evicted(f) }

func (h *hooks) Checkpoint(ctx context.Context, c storage.Checkpoint) (storage.ItemResult, error) {
	return h.checkpoint(ctx, c)
}

func (h *hooks) States(ctx context.Context, ids []storage.ID) ([]storage.State, error) {
	return h.states(ctx, ids)
}

// locked runs f with the database locked.
func (m *Memory) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// before has f change the database, or the exchange, before each exchange.
func before(f func(m *Memory, x *storage.Exchange)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			x.Extend, x.Finish = slices.Clone(x.Extend), slices.Clone(x.Finish)
			in.m.locked(func() { f(in.m, &x) })
			return in.Exchange(ctx, now, x)
		}
		return h
	}
}

// bounding has f change the bounds while a call adds or leases: they are not as DB says.
func bounding(f func(b *Bounds)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h, was := sound(in), in.m.Bounds()
		set := func(b Bounds) { in.m.locked(func() { in.m.bounds = b }) }
		other := was
		f(&other)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			set(other)
			defer set(was)
			return in.Enqueue(ctx, now, jobs)
		}
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			set(other)
			defer set(was)
			return in.Exchange(ctx, now, x)
		}
		return h
	}
}

// leasing has f change what jobs look like while some are leased.
func leasing(f func(j *job), undo func(j *job, was storage.Record)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			first, err := in.Exchange(ctx, now, storage.Exchange{LeaseDuration: x.LeaseDuration, Extend: x.Extend, Finish: x.Finish, Retention: x.Retention})
			if err != nil || x.Wanted() <= 0 {
				return first, err
			}
			was := map[int64]storage.Record{}
			in.m.locked(func() {
				in.m.promote(now, all)
				for key, j := range in.m.jobs {
					was[key] = j.Record
					f(j)
				}
			})
			res, err := in.Exchange(ctx, now, storage.Exchange{LeaseDuration: x.LeaseDuration, Wants: x.Wants})
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					undo(j, was[key])
				}
			})
			for i, l := range res.Leased {
				res.Leased[i].Priority, res.Leased[i].DueAt, res.Leased[i].Queue = was[l.Key].Priority, was[l.Key].DueAt, was[l.Key].Queue
			}
			res.Extended, res.Finished = first.Extended, first.Finished
			return res, err
		}
		return h
	}
}

// after has f change the database after each exchange.
func after(f func(m *Memory, now time.Time, x storage.Exchange, res *storage.ExchangeResult)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := in.Exchange(ctx, now, x)
			if err == nil {
				in.m.locked(func() { f(in.m, now, x, &res) })
			}
			return res, err
		}
		return h
	}
}

// reclaiming has f change the database before each reclaim.
func reclaiming(f func(in *instance, now time.Time)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			in.m.locked(func() { f(in, now) })
			return in.Reclaim(ctx, now, mono, lease, limit)
		}
		return h
	}
}

// current gives l the token that its job has now.
func current(m *Memory, l *storage.Lease) {
	if j := m.jobs[l.Key]; j != nil && j.State == storage.Running {
		l.Token = j.lease.token
	}
}

// fault is a way to be broken.
type fault struct {
	name string
	by   string // the case that must find it
	wrap func(*instance) storage.Store
}

// faults returns all, in the order of names.
func faults() []fault {
	return slices.Concat(
		capFaults,
		causeFaults,
		checkpointFaults,
		checkpointTxFaults,
		clockFaults,
		clockedFaults,
		compactFaults,
		concurrentFaults,
		conflictFaults,
		bulkFaults,
		editFaults,
		expiryFaults,
		finishTxFaults,
		groupFaults,
		handoffFaults,
		historyFaults, auditFaults,
		holdFaults,
		jobFaults,
		keepBackFaults,
		kindFaults,
		leaseFaults,
		lookFaults,
		lostFaults,
		orderFaults,
		partialFaults,
		prefixFaults,
		probeFaults,
		promoteFaults,
		reclaimFaults,
		resultFaults,
		scheduleFaults,
		settingFaults,
		startFaults,
		stateFaults,
		statsFaults,
		totalsFaults,
		throttleFaults,
		togetherFaults,
		topicFaults,
		troubleFaults,
		txFaults,
	)
}

// TestBroken runs the suite on stores that are broken each in one way. A fault
// that is not found by the case that should is a fault of the suite.
func TestBroken(t *testing.T) {
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			var found []string
			// The rest of the suite is run only if its verdict is of use.
			for _, c := range slices.Concat(caseNamed(fault.by), cases()) {
				if strings.HasPrefix(c.name, "notify_") {
					continue // it would wait in vain
				}
				run := record
				if strings.HasPrefix(c.name, "concurrent_") {
					run = recordAlone
				}
				if run(t, func(t testing.TB) { c.check(t, newBroken(fault.wrap)) }) == "" {
					continue
				}
				if c.name == fault.by {
					return
				}
				found = append(found, c.name)
			}
			t.Errorf("%s did not find it, but %q did", fault.by, found)
		})
	}
}

// recordAlone is record in a bubble of its own, where which calls overlap does not depend on how busy
// the machine is.
func recordAlone(t testing.TB, check func(t testing.TB)) (verdict string) {
	synctest.Test(t.(*testing.T), func(t *testing.T) { verdict = record(t, check) })
	return verdict
}

func caseNamed(name string) []testCase {
	return slices.DeleteFunc(cases(), func(c testCase) bool { return c.name != name })
}

// TestBroken_soundStorePasses shows that the harness breaks nothing itself.
func TestBroken_soundStorePasses(t *testing.T) {
	for _, wrap := range []func(*instance) storage.Store{
		func(in *instance) storage.Store { return sound(in) },
		func(in *instance) storage.Store { return soundNarrow(in) },
	} {
		for _, c := range cases() {
			if got := record(t, func(t testing.TB) { c.check(t, newBroken(wrap)) }); got != "" {
				t.Errorf("%s %s", c.name, got)
			}
		}
	}
}
