package storagetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

var (
	errTxEnded    = errors.New("errand: transaction: it has ended")
	errNotEnded   = errors.New("errand: transaction: rolled back, as the lease of a job in it is not held")
	errCalledInTx = fmt.Errorf("%w: called inside the function of Tx, whose end it would wait for", storage.ErrBusy)
)

// transaction is what Tx passes to its function. It works on a copy of all that is stored,
// which takes the place of the original with the commit. There is one at a time, and nobody
// else writes meanwhile.
type transaction struct {
	of     *Memory
	by     *instance
	ctx    context.Context
	copied *Memory
	seenBy map[*instance]*instance // as they are on the copy
	over   chan struct{}           // closed when others may write again

	at     time.Time // the latest time that its calls were given
	event  *storage.Event
	after  []func() // the functions to be called with the commit
	tells  []func() // and when it is over
	failed error    // why it can go on no more
}

// Tx implements [storage.TxEnqueuer].
func (in *instance) Tx(ctx context.Context, fn func(tx any) error) error {
	m := in.m
	if err := m.await(ctx, in, 1); err != nil {
		return err
	}
	t := &transaction{of: m, by: in, ctx: ctx, copied: &Memory{salt: m.salt, data: m.clone()}, seenBy: map[*instance]*instance{}, over: make(chan struct{})}
	m.open = t
	m.mu.Unlock()
	if err := t.run(ctx, in, fn); err != nil {
		return err
	}
	for _, tell := range t.tells {
		tell()
	}
	m.emit(in, t.at, t.event)
	return nil
}

// run calls fn and commits, and lets others write again, also if fn panics.
func (t *transaction) run(ctx context.Context, in *instance, fn func(tx any) error) error {
	m := t.of
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.open, t.failed = nil, errTxEnded
		close(t.over)
	}()
	if err := fn(t); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := t.commit(in); err != nil {
		return err
	}
	for _, call := range t.after {
		call()
	}
	return nil
}

// commit has all others see what the transaction has done.
func (t *transaction) commit(in *instance) error {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	switch {
	case t.failed != nil:
		return t.failed
	case in.gone:
		return storage.ErrClosed
	}
	t.failed = errTxEnded
	t.of.data = t.copied.data
	for in, own := range t.seenBy {
		in.ended = own.ended
	}
	return nil
}

// clone returns a copy that shares nothing that is ever changed.
func (d *data) clone() data {
	c := *d
	c.jobs, c.unended = copies(d.jobs), maps.Clone(d.unended)
	for _, j := range c.jobs {
		j.History = slices.Clone(j.History)
	}
	c.unique, c.windows, c.behind = maps.Clone(d.unique), maps.Clone(d.windows), maps.Clone(d.behind)
	c.holds = nil
	for _, h := range d.holds {
		copied := *h
		c.holds = append(c.holds, &copied)
	}
	c.settings, c.successes = maps.Clone(d.settings), maps.Clone(d.successes)
	c.regroups.ungrouped, c.regroups.letIn = maps.Clone(d.regroups.ungrouped), slices.Clone(d.regroups.letIn)
	c.graves = graves{evicted: maps.Clone(d.graves.evicted), dropped: maps.Clone(d.graves.dropped)}
	c.schedules, c.throttles, c.lasts = copies(d.schedules), copies(d.throttles), copies(d.lasts)
	c.totals, c.numbers = maps.Clone(d.totals), maps.Clone(d.numbers)
	c.topics = d.topics.clone()
	return c
}

// copies returns a map with copies of what m has pointers to.
func copies[K comparable, V any](m map[K]*V) map[K]*V {
	out := make(map[K]*V, len(m))
	for k, v := range m {
		copied := *v
		out[k] = &copied
	}
	return out
}

// versions returns all that has jobs: the database and the copy of an open transaction.
func (m *Memory) versions() []*Memory {
	if m.open == nil {
		return []*Memory{m}
	}
	return []*Memory{m, m.open.copied}
}

// beginWrite is begin for a call that writes. It waits for the end of an open transaction.
func (m *Memory) beginWrite(ctx context.Context, in *instance) error { return m.await(ctx, in, 0) }

// await is beginWrite for a call that has so many calls of Tx among its callers anyway.
func (m *Memory) await(ctx context.Context, in *instance, frames int) error {
	for {
		if err := m.begin(ctx, in); err != nil || m.open == nil {
			return err
		}
		over, busy := m.open.over, &trouble{storage.ErrBusy, in, nil}
		if m.open.by == in {
			busy.open = m.open.ctx
		}
		m.mu.Unlock()
		if callsOfTx() > frames {
			return errCalledInTx
		}
		if in.hasty {
			return busy
		}
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// txName is the name of Tx in a stack.
var txName string

func init() { txName = runtime.FuncForPC(reflect.ValueOf((*instance).Tx).Pointer()).Name() }

// callsOfTx returns how many calls of Tx, of any Memory, are among the callers.
func callsOfTx() (found int) {
	pcs := make([]uintptr, 1<<10)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function == txName {
			found++
		}
	}
	return found
}

// inside runs f in a transaction, with in as it is there. The database is locked.
func (in *instance) inside(ctx context.Context, tx any, f func(t *transaction, own *instance) error) error {
	if err := in.m.begin(ctx, in); err != nil {
		return err
	}
	defer in.m.mu.Unlock()
	t, ok := tx.(*transaction)
	switch {
	case !ok || t.of != in.m:
		return fmt.Errorf("%w: the transaction is a %T", storage.ErrWrongDatabase, tx)
	case t.failed != nil:
		return t.failed
	}
	own := t.seenBy[in]
	if own == nil {
		copied := *in
		own = &copied
		own.m, own.ended = t.copied, maps.Clone(in.ended)
		t.seenBy[in] = own
	}
	return f(t, own)
}

// wrote notes that a call has written. With cancel a running job was asked to stop.
func (t *transaction) wrote(now time.Time, cancel bool) {
	if now.After(t.at) {
		t.at = now
	}
	t.event = &storage.Event{Cancel: cancel || t.event != nil && t.event.Cancel}
}

// admitted notes what a call has added. Nothing of it is handed over.
func (t *transaction) admitted(in *instance, a *admission) {
	t.wrote(a.now, false)
	t.tells = append(t.tells, func() { in.tellEvicted(a.now, a.evicted) })
}

// EnqueueTx implements [storage.TxEnqueuer].
func (in *instance) EnqueueTx(ctx context.Context, tx any, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	err = in.inside(ctx, tx, func(t *transaction, own *instance) error {
		added, a, err := own.m.enqueueAll(now, jobs)
		if err != nil {
			return err
		}
		t.admitted(in, a)
		own.m.didAdd(ctx, added)
		out = added
		return nil
	})
	return out, err
}

// PublishMessagesTx implements [storage.TxEnqueuer].
func (in *instance) PublishMessagesTx(ctx context.Context, tx any, now time.Time, publications []storage.Publication) (out []storage.PublishResult, err error) {
	err = in.inside(ctx, tx, func(t *transaction, own *instance) error {
		published, a, err := own.m.publishAll(now, publications)
		if err != nil {
			return err
		}
		t.admitted(in, a)
		own.m.didPublish(ctx, published)
		out = published
		return nil
	})
	return out, err
}

// CancelTx implements [storage.TxEnqueuer].
func (in *instance) CancelTx(ctx context.Context, tx any, now time.Time, id storage.ID, keep storage.Retention) (state storage.State, err error) {
	err = in.inside(ctx, tx, func(t *transaction, own *instance) (err error) {
		if state, err = own.m.cancel(ctx, now, id, keep); err == nil {
			t.wrote(now, state == storage.Running)
		}
		return err
	})
	return state, err
}

// FinishTx implements [storage.TxEnqueuer].
func (in *instance) FinishTx(ctx context.Context, tx any, now time.Time, ends []storage.Finish, keep storage.Retention, committed func(i int)) ([]storage.ItemResult, map[int][]storage.Enqueued, error) {
	return finishTx(in.finishTx).each(ctx, tx, now, ends, keep, committed)
}

// finishTx is FinishTx for one lease.
type finishTx func(ctx context.Context, tx any, now time.Time, end storage.Finish, keep storage.Retention, committed func()) (storage.ItemResult, []storage.Enqueued, error)

// each is FinishTx by calls for one lease each.
func (finish finishTx) each(ctx context.Context, tx any, now time.Time, ends []storage.Finish, keep storage.Retention, committed func(i int)) (results []storage.ItemResult, then map[int][]storage.Enqueued, err error) {
	for i := range ends {
		var told func()
		if committed != nil {
			told = func() { committed(i) }
		}
		r, added, err := finish(ctx, tx, now, ends[i], keep, told)
		if err != nil {
			return nil, nil, err
		}
		if len(added) > 0 {
			if then == nil {
				then = map[int][]storage.Enqueued{}
			}
			then[i] = added
		}
		if results = append(results, r); r != storage.Applied {
			return results, nil, nil
		}
	}
	return results, then, nil
}

// finishOneTx is FinishTx of a store, for one lease.
func finishOneTx(s storage.TxEnqueuer) finishTx {
	return func(ctx context.Context, tx any, now time.Time, end storage.Finish, keep storage.Retention, committed func()) (r storage.ItemResult, then []storage.Enqueued, err error) {
		var told func(i int)
		if committed != nil {
			told = func(int) { committed() }
		}
		results, added, err := s.FinishTx(ctx, tx, now, []storage.Finish{end}, keep, told)
		if len(results) == 1 {
			r = results[0]
		}
		return r, added[0], err
	}
}

func (in *instance) finishTx(ctx context.Context, tx any, now time.Time, f storage.Finish, keep storage.Retention, committed func()) (r storage.ItemResult, then []storage.Enqueued, err error) {
	l := f.Lease
	err = in.inside(ctx, tx, func(t *transaction, own *instance) error {
		if r = own.look(l); r != storage.Applied {
			t.failed = errNotEnded
			return nil
		}
		t.wrote(now, false)
		at := own.m.wrote(now)
		own.m.regroups.turn, own.m.regroups.later = at, true
		r = own.finish(at, f, keep)
		then, _ = own.m.enqueueThen(now, f.Then)
		own.m.regroupNoted()
		own.m.regroups.turn = time.Time{}
		own.ended[l.Token] = true
		if committed != nil {
			t.after = append(t.after, committed)
		}
		return nil
	})
	if t, ok := tx.(*transaction); ok && err != nil {
		t.fail(err)
	}
	return r, then, err
}

// fail has the transaction be rolled back, whatever its function returns.
func (t *transaction) fail(err error) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
}

// SpoilTx implements [storage.TxEnqueuer].
func (in *instance) SpoilTx(tx any, err error) {
	if t, ok := tx.(*transaction); ok {
		t.fail(err)
	}
}

// LookTx implements [storage.TxEnqueuer].
func (in *instance) LookTx(ctx context.Context, tx any, l storage.Lease) (r storage.ItemResult, err error) {
	if tx != nil {
		err = in.inside(ctx, tx, func(_ *transaction, own *instance) error {
			r = own.look(l)
			return nil
		})
		return r, err
	}
	if err := in.m.begin(ctx, in); err != nil {
		return 0, err
	}
	defer in.m.mu.Unlock()
	return in.look(l), nil
}

// look says whether a lease is held.
func (in *instance) look(l storage.Lease) storage.ItemResult {
	switch j := in.m.held(l); {
	case j == nil:
		return in.notHeld(l)
	case j.Cancelling:
		return storage.Cancelling
	}
	return storage.Applied
}

// notHeld says what became of a lease that is not held.
func (in *instance) notHeld(l storage.Lease) storage.ItemResult {
	if in.ended[l.Token] {
		return storage.Ended
	}
	return storage.Lost
}
