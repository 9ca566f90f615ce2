package storagetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// Loser is a DB that can lose the answer to a commit, as a server does whose connections break.
type Loser interface {
	DB
	// Lose has the next commit of s take place, or not, and its answer be lost. That call and
	// the ones of s after it cannot find out which of the two, so many in all; with 0 the call
	// itself finds out.
	Lose(s storage.Store, commits bool, calls int)
}

// Lossy is a [Memory] that can lose answers.
type Lossy struct{ *Memory }

var _ Loser = Lossy{}

// NewLossy returns an empty database that can lose answers.
func NewLossy() Lossy { return Lossy{NewMemory()} }

// Open returns another instance, as [Memory.Open] does.
func (l Lossy) Open() storage.Store { return &amnesiac{instance: l.Memory.Open().(*instance)} }

// Lose implements [Loser].
func (l Lossy) Lose(s storage.Store, commits bool, calls int) { s.(*amnesiac).lose(commits, calls) }

// amnesiac is an instance that can lose answers.
type amnesiac struct {
	*instance

	mu       sync.Mutex
	next     *loss                 // of the next commit; nil: none
	away     int                   // so many calls cannot reach the database
	lastCall int64                 // that was lost
	lost     map[int64]*lostAnswer // of exchanges, by Call
	untold   []storage.Reclaimed   // by Reclaim
}

// loss says what becomes of a commit and of its answer.
type loss struct {
	commits bool
	calls   int
}

// lostAnswer is that of an Exchange; of one that has not taken effect it is nil.
type lostAnswer struct{ *storage.ExchangeResult }

var errConnection = errors.New("connection lost")

func (f *amnesiac) lose(commits bool, calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = &loss{commits, calls}
}

// reach begins a call that writes. It returns what its commit loses; nil: nothing. It fails if
// the database cannot be reached.
func (f *amnesiac) reach(ctx context.Context) (*loss, error) {
	if err := f.m.begin(ctx, f.instance); err != nil {
		return nil, err
	}
	f.m.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away > 0 {
		f.away--
		return nil, fmt.Errorf("%w: %w", storage.ErrIO, errConnection)
	}
	l := f.next
	f.next = nil
	return l, nil
}

// forget notes that the answer to a call is lost, and returns its error. kept, if not nil, keeps
// the answer and returns the Call.
func (f *amnesiac) forget(l *loss, kept func() int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = l.calls - 1
	err := &storage.UnknownOutcomeError{Err: errConnection}
	if kept != nil {
		err.Call = kept()
	}
	return err
}

// lossy makes a call that writes. If its answer is lost, that goes to kept.
func lossy[R any](ctx context.Context, f *amnesiac, call func(in *instance) (R, error), kept func(answer R, committed bool) (number int64)) (R, error) {
	var none R
	l, err := f.reach(ctx)
	if err != nil {
		return none, err
	}
	if l == nil || l.calls == 0 { // it has found out, and made the call again if it was undone
		return call(f.instance)
	}
	answer, err := apart(ctx, f.instance, call, l.commits)
	switch {
	case err != nil: // it has no commit
		f.lose(l.commits, l.calls)
		return none, err
	case kept == nil:
		return none, f.forget(l, nil)
	}
	return none, f.forget(l, func() int64 { return kept(answer, l.commits) })
}

// lossyError is lossy for a call that returns nothing else.
func lossyError(ctx context.Context, f *amnesiac, call func(in *instance) error) error {
	_, err := lossy(ctx, f, func(in *instance) (struct{}, error) { return struct{}{}, call(in) }, nil)
	return err
}

// apart makes a call on a copy of the database, which takes the place of the original if it
// commits. Nothing is handed over, as nobody is told.
func apart[R any](ctx context.Context, in *instance, call func(in *instance) (R, error), commits bool) (answer R, err error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return answer, err
	}
	own, events := *in, []storage.Event(nil)
	own.m = &Memory{salt: m.salt, data: m.clone(), instances: []*instance{{listeners: map[int]func(storage.Event){
		0: func(e storage.Event) { events = append(events, e) },
	}}}}
	own.seen, own.ended, own.offers, own.listeners, own.evictees = maps.Clone(in.seen), maps.Clone(in.ended), nil, nil, nil
	own.m.pass(in, &own)
	if answer, err = call(&own); err != nil || !commits {
		events = nil
	} else {
		own.m.pass(&own, in)
		m.data, in.longest, in.seen, in.ended = own.m.data, own.longest, own.seen, own.ended
	}
	m.mu.Unlock()
	for _, e := range events {
		at := e.Clock
		e.Clock = time.Time{}
		m.emit(in, at, &e)
	}
	return answer, err
}

// pass moves the leases of one instance to another.
func (m *Memory) pass(from, to *instance) {
	for _, j := range m.jobs {
		if j.lease.holder == from {
			j.lease.holder = to
		}
	}
}

// Enqueue implements [storage.Store].
func (f *amnesiac) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	return lossy(ctx, f, func(in *instance) ([]storage.Enqueued, error) { return in.Enqueue(ctx, now, jobs) }, nil)
}

// Exchange implements [storage.Store].
func (f *amnesiac) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if x.Repeats != 0 {
		known, err := f.remember(ctx, x.Repeats)
		if err != nil {
			return storage.ExchangeResult{}, err
		}
		if known.ExchangeResult != nil {
			return *known.ExchangeResult, nil
		}
		x.Repeats = 0
	}
	return lossy(ctx, f, func(in *instance) (storage.ExchangeResult, error) { return in.Exchange(ctx, now, x) }, f.keepExchange)
}

// keepExchange keeps the answer to an Exchange that is lost.
func (f *amnesiac) keepExchange(res storage.ExchangeResult, committed bool) int64 {
	kept := &lostAnswer{}
	if committed {
		kept.ExchangeResult = &res
	}
	if f.lost == nil {
		f.lost = map[int64]*lostAnswer{}
	}
	f.lastCall++
	f.lost[f.lastCall] = kept
	return f.lastCall
}

// remember returns what is known of a lost Exchange, once.
func (f *amnesiac) remember(ctx context.Context, call int64) (*lostAnswer, error) {
	f.mu.Lock()
	known := f.lost[call]
	f.mu.Unlock()
	if err := f.m.begin(context.WithoutCancel(ctx), f.instance); err != nil {
		return nil, err
	}
	f.m.mu.Unlock()
	if known == nil {
		return nil, fmt.Errorf("%w: no call %d was lost", storage.ErrNotFound, call)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, &storage.UnknownOutcomeError{Call: call, Err: err}
	}
	if f.away > 0 {
		f.away--
		return nil, &storage.UnknownOutcomeError{Call: call, Err: errConnection}
	}
	delete(f.lost, call)
	return known, nil
}

// Reclaim implements [storage.Store].
func (f *amnesiac) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
	f.mu.Lock()
	told := f.untold[:min(len(f.untold), limit)]
	f.mu.Unlock()
	out, err := lossy(ctx, f, func(in *instance) ([]storage.Reclaimed, error) {
		return in.Reclaim(ctx, now, mono, lease, limit-len(told))
	}, func(answer []storage.Reclaimed, committed bool) int64 {
		if committed {
			f.untold = append(f.untold, answer...)
		}
		return 0
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.untold = f.untold[len(told):]
	f.mu.Unlock()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	for _, r := range told {
		if f.m.held(r.Lease) != nil {
			out = append(out, r)
		}
	}
	return out, nil
}

// Alone implements [storage.Peers].
func (f *amnesiac) Alone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.untold) == 0 && f.instance.Alone()
}

// Cancel implements [storage.Store].
func (f *amnesiac) Cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
	return lossy(ctx, f, func(in *instance) (storage.State, error) { return in.Cancel(ctx, now, id, keep) }, nil)
}

// ReleaseUnique implements [storage.Store].
func (f *amnesiac) ReleaseUnique(ctx context.Context, key string) (storage.ID, error) {
	return lossy(ctx, f, func(in *instance) (storage.ID, error) { return in.ReleaseUnique(ctx, key) }, nil)
}

// Hold implements [storage.Holder].
func (f *amnesiac) Hold(ctx context.Context, now time.Time, h storage.Hold) error {
	return lossyError(ctx, f, func(in *instance) error { return in.Hold(ctx, now, h) })
}

// Release implements [storage.Holder].
func (f *amnesiac) Release(ctx context.Context, now time.Time, lane storage.Lane, reason string) (bool, error) {
	return lossy(ctx, f, func(in *instance) (bool, error) { return in.Release(ctx, now, lane, reason) }, nil)
}

// Configure implements [storage.Settler].
func (f *amnesiac) Configure(ctx context.Context, lane storage.Lane, s storage.Settings) error {
	return lossyError(ctx, f, func(in *instance) error { return in.Configure(ctx, lane, s) })
}

// SkipHead implements [storage.Grouper].
func (f *amnesiac) SkipHead(ctx context.Context, queue, group string) (storage.ID, error) {
	return lossy(ctx, f, func(in *instance) (storage.ID, error) { return in.SkipHead(ctx, queue, group) }, nil)
}

// Regroup implements [storage.Grouper].
func (f *amnesiac) Regroup(ctx context.Context, queue, after string) (string, error) {
	return lossy(ctx, f, func(in *instance) (string, error) { return in.Regroup(ctx, queue, after) }, nil)
}

// Checkpoint implements [storage.Checkpointer].
func (f *amnesiac) Checkpoint(ctx context.Context, c storage.Checkpoint) (storage.ItemResult, error) {
	return lossy(ctx, f, func(in *instance) (storage.ItemResult, error) { return in.Checkpoint(ctx, c) }, nil)
}

// Redrive implements [storage.Store].
func (f *amnesiac) Redrive(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
	return lossy(ctx, f, func(in *instance) (storage.Step, error) { return in.Redrive(ctx, now, sel, queue) }, nil)
}

// RunNow implements [storage.Store].
func (f *amnesiac) RunNow(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
	return lossy(ctx, f, func(in *instance) (storage.Step, error) { return in.RunNow(ctx, now, sel, which) }, nil)
}

// Change implements [storage.Store].
func (f *amnesiac) Change(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
	return lossy(ctx, f, func(in *instance) (storage.Step, error) { return in.Change(ctx, now, sel, e) }, nil)
}

// Delete implements [storage.Store].
func (f *amnesiac) Delete(ctx context.Context, sel storage.Selection) (storage.Step, error) {
	return lossy(ctx, f, func(in *instance) (storage.Step, error) { return in.Delete(ctx, sel) }, nil)
}

// PurgeFinished implements [storage.Store].
func (f *amnesiac) PurgeFinished(ctx context.Context, now time.Time) (n int, next time.Time, err error) {
	n, err = lossy(ctx, f, func(in *instance) (n int, err error) {
		n, next, err = in.PurgeFinished(ctx, now)
		return n, err
	}, nil)
	return n, next, err
}

// PutSchedule implements [storage.Scheduler].
func (f *amnesiac) PutSchedule(ctx context.Context, now time.Time, s storage.Schedule) (int64, error) {
	return lossy(ctx, f, func(in *instance) (int64, error) { return in.PutSchedule(ctx, now, s) }, nil)
}

// Fire implements [storage.Scheduler].
func (f *amnesiac) Fire(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	return lossy(ctx, f, func(in *instance) ([]storage.Fired, error) { return in.Fire(ctx, now, firings) }, nil)
}

// DropSchedule implements [storage.Scheduler].
func (f *amnesiac) DropSchedule(ctx context.Context, now time.Time, name string) error {
	return lossyError(ctx, f, func(in *instance) error { return in.DropSchedule(ctx, now, name) })
}

// StepClock implements [storage.Timekeeper].
func (f *amnesiac) StepClock(ctx context.Context, now time.Time, after int64) (int64, error) {
	return lossy(ctx, f, func(in *instance) (int64, error) { return in.StepClock(ctx, now, after) }, nil)
}

// PutEntries implements [storage.Topics].
func (f *amnesiac) PutEntries(ctx context.Context, now time.Time, entries []storage.Entry) (int64, error) {
	return lossy(ctx, f, func(in *instance) (int64, error) { return in.PutEntries(ctx, now, entries) }, nil)
}

// PublishMessages implements [storage.Topics].
func (f *amnesiac) PublishMessages(ctx context.Context, now time.Time, publications []storage.Publication) ([]storage.PublishResult, error) {
	return lossy(ctx, f, func(in *instance) ([]storage.PublishResult, error) { return in.PublishMessages(ctx, now, publications) }, nil)
}

// Tx implements [storage.TxEnqueuer].
func (f *amnesiac) Tx(ctx context.Context, fn func(tx any) error) error {
	l, err := f.reach(ctx)
	if err != nil {
		return err
	}
	if l == nil || l.calls == 0 && l.commits {
		return f.instance.Tx(ctx, fn)
	}
	commits := false // that is, is to
	err = f.instance.Tx(ctx, func(tx any) error {
		err := fn(tx)
		t := tx.(*transaction)
		t.of.mu.Lock()
		commits = err == nil && t.failed == nil
		t.of.mu.Unlock()
		if commits && l.calls > 0 {
			t.after = nil
		}
		if commits && !l.commits {
			return errConnection
		}
		return err
	})
	switch {
	case !commits:
		f.lose(l.commits, l.calls)
		return err
	case l.calls > 0 && (err == nil || !l.commits):
		return f.forget(l, nil)
	case !l.commits:
		return fmt.Errorf("%w: %w", storage.ErrIO, err)
	}
	return err
}
