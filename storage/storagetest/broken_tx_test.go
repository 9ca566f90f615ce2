package storagetest

import (
	"context"
	"errors"
	"maps"
	"math"
	"time"

	"github.com/errandq/errand/storage"
)

// faultyTx is an instance with some of what concerns transactions replaced.
type faultyTx struct {
	*hooks
	tx        func(ctx context.Context, fn func(tx any) error) error
	enqueueTx func(ctx context.Context, tx any, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error)
	cancelTx  func(ctx context.Context, tx any, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error)
	publishTx func(ctx context.Context, tx any, now time.Time, all []storage.Publication) ([]storage.PublishResult, error)
	finishTx  finishTx
	putTx     func(ctx context.Context, tx any, now time.Time, entries []storage.Entry) (int64, error)
	configure func(ctx context.Context, tx any, lane storage.Lane, s storage.Settings) error
	spoilTx   func(tx any, err error)
	lookTx    func(ctx context.Context, tx any, l storage.Lease) (storage.ItemResult, error)

	checkpointTx func(ctx context.Context, tx any, c storage.Checkpoint) (storage.ItemResult, error)
}

func (b *faultyTx) Tx(ctx context.Context, fn func(tx any) error) error { return b.tx(ctx, fn) }

func (b *faultyTx) EnqueueTx(ctx context.Context, tx any, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	return b.enqueueTx(ctx, tx, now, jobs)
}

func (b *faultyTx) CancelTx(ctx context.Context, tx any, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
	return b.cancelTx(ctx, tx, now, id, keep)
}

func (b *faultyTx) PublishMessagesTx(ctx context.Context, tx any, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
	return b.publishTx(ctx, tx, now, all)
}

func (b *faultyTx) FinishTx(ctx context.Context, tx any, now time.Time, ends []storage.Finish, keep storage.Retention, committed func(i int)) ([]storage.ItemResult, map[int][]storage.Enqueued, error) {
	return b.finishTx.each(ctx, tx, now, ends, keep, committed)
}

func (b *faultyTx) PutEntriesTx(ctx context.Context, tx any, now time.Time, entries []storage.Entry) (int64, error) {
	return b.putTx(ctx, tx, now, entries)
}

func (b *faultyTx) ConfigureTx(ctx context.Context, tx any, lane storage.Lane, s storage.Settings) error {
	return b.configure(ctx, tx, lane, s)
}

func (b *faultyTx) SpoilTx(tx any, err error) { b.spoilTx(tx, err) }

func (b *faultyTx) LookTx(ctx context.Context, tx any, l storage.Lease) (storage.ItemResult, error) {
	return b.lookTx(ctx, tx, l)
}

func (b *faultyTx) CheckpointTx(ctx context.Context, tx any, c storage.Checkpoint) (storage.ItemResult, error) {
	return b.checkpointTx(ctx, tx, c)
}

// transacting has f replace what it likes.
func transacting(f func(in *instance, b *faultyTx)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		b := &faultyTx{
			hooks: sound(in), tx: in.Tx, enqueueTx: in.EnqueueTx, cancelTx: in.CancelTx, publishTx: in.PublishMessagesTx, finishTx: in.finishTx, spoilTx: in.SpoilTx, lookTx: in.LookTx,
			putTx: in.PutEntriesTx, configure: in.ConfigureTx, checkpointTx: in.CheckpointTx,
		}
		f(in, b)
		return b
	}
}

// finishing has f change the transaction, or the answer, after each FinishTx. It is given what
// was stored before.
func finishing(f func(in *instance, t *transaction, was *data, l storage.Lease, r *storage.ItemResult)) func(in *instance) storage.Store {
	return transacting(func(in *instance, b *faultyTx) {
		b.finishTx = func(ctx context.Context, tx any, now time.Time, end storage.Finish, keep storage.Retention, committed func()) (r storage.ItemResult, then []storage.Enqueued, err error) {
			t, ok := tx.(*transaction)
			if !ok {
				return in.finishTx(ctx, tx, now, end, keep, committed)
			}
			var was data
			in.m.locked(func() { was = t.copied.clone() })
			r, then, err = in.finishTx(ctx, tx, now, end, keep, committed)
			in.m.locked(func() { f(in, t, &was, end.Lease, &r) })
			return r, then, err
		}
	})
}

// committing has f say with which committed a lease is ended.
func committing(f func(in *instance, b *faultyTx, committed func()) func()) func(in *instance) storage.Store {
	return transacting(func(in *instance, b *faultyTx) {
		b.finishTx = func(ctx context.Context, tx any, now time.Time, end storage.Finish, keep storage.Retention, committed func()) (storage.ItemResult, []storage.Enqueued, error) {
			if committed != nil {
				committed = f(in, b, committed)
			}
			return in.finishTx(ctx, tx, now, end, keep, committed)
		}
	})
}

// goesOn lets a transaction commit in which FinishTx had this answer.
func goesOn(with storage.ItemResult) func(in *instance) storage.Store {
	return finishing(func(_ *instance, t *transaction, _ *data, _ storage.Lease, r *storage.ItemResult) {
		if *r == with {
			t.failed = nil
		}
	})
}

// answering has f change the results of each exchange, and what is known of ended leases.
func answering(f func(in *instance, x *storage.Exchange, res *storage.ExchangeResult)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := in.Exchange(ctx, now, x)
			in.m.locked(func() { f(in, &x, &res) })
			return res, err
		}
		return h
	}
}

// forgets makes Lost of Ended.
func forgets(results []storage.ItemResult) {
	for i, r := range results {
		if r == storage.Ended {
			results[i] = storage.Lost
		}
	}
}

var txFaults = []fault{
	{"entries of a transaction are there at once", "tx_entries", transacting(func(in *instance, b *faultyTx) {
		b.putTx = func(ctx context.Context, tx any, now time.Time, entries []storage.Entry) (int64, error) {
			revision, err := in.PutEntriesTx(ctx, tx, now, entries)
			if t, ok := tx.(*transaction); ok {
				in.m.locked(func() { in.m.data = t.copied.clone() })
			}
			return revision, err
		}
	})},
	{"entries of a transaction are forgotten", "tx_entries", transacting(func(in *instance, b *faultyTx) {
		b.putTx = func(context.Context, any, time.Time, []storage.Entry) (int64, error) { return 1, nil }
	})},
	{"settings of a transaction are forgotten", "tx_configure", transacting(func(in *instance, b *faultyTx) {
		b.configure = func(context.Context, any, storage.Lane, storage.Settings) error { return nil }
	})},
	{"settings of a transaction hold at once", "tx_configure", transacting(func(in *instance, b *faultyTx) {
		b.configure = func(ctx context.Context, tx any, lane storage.Lane, s storage.Settings) error {
			err := in.ConfigureTx(ctx, tx, lane, s)
			if t, ok := tx.(*transaction); ok {
				in.m.locked(func() { in.m.data = t.copied.clone() })
			}
			return err
		}
	})},
	{"what is enqueued in a transaction is there at once", "tx_enqueue", transacting(func(in *instance, b *faultyTx) {
		b.enqueueTx = func(ctx context.Context, tx any, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.EnqueueTx(ctx, tx, now, jobs)
			if t, ok := tx.(*transaction); ok {
				in.m.locked(func() { in.m.data = t.copied.clone() })
			}
			return out, err
		}
	})},
	{"a transaction is never committed", "tx_enqueue", transacting(func(in *instance, b *faultyTx) {
		b.tx = func(ctx context.Context, fn func(tx any) error) error {
			var err error
			if e := in.Tx(ctx, func(tx any) error { err = fn(tx); return errDeclined }); !errors.Is(e, errDeclined) {
				return e
			}
			return err
		}
	})},
	{"a transaction is committed though its function fails", "tx_enqueue_vanishes", transacting(func(in *instance, b *faultyTx) {
		b.tx = func(ctx context.Context, fn func(tx any) error) (err error) {
			if e := in.Tx(ctx, func(tx any) error { err = fn(tx); return nil }); e != nil {
				return e
			}
			return err
		}
	})},
	{"a transaction is committed though its function panics", "finishtx_vanishes", transacting(func(in *instance, b *faultyTx) {
		b.tx = func(ctx context.Context, fn func(tx any) error) error {
			var r any
			err := in.Tx(ctx, func(tx any) error {
				defer func() { r = recover() }()
				return fn(tx)
			})
			if r != nil {
				panic(r)
			}
			return err
		}
	})},
	{"args enqueued in a transaction are the caller's", "tx_enqueue", transacting(func(in *instance, b *faultyTx) {
		b.enqueueTx = func(ctx context.Context, tx any, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.EnqueueTx(ctx, tx, now, jobs)
			if t, ok := tx.(*transaction); ok && err == nil {
				in.m.locked(func() {
					for i := range out {
						if j := t.copied.find(out[i].ID); j != nil && !out[i].Duplicate {
							j.Args = jobs[i].Args
						}
					}
				})
			}
			return out, err
		}
	})},
	{"a running job is asked to stop before the commit", "tx_cancel", transacting(func(in *instance, b *faultyTx) {
		b.cancelTx = func(ctx context.Context, tx any, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
			state, err := in.CancelTx(ctx, tx, now, id, keep)
			in.m.locked(func() {
				if j := in.m.find(id); j != nil && state == storage.Running {
					j.Cancelling = true
				}
			})
			return state, err
		}
	})},
	{"CancelTx leaves running jobs alone", "tx_cancel", transacting(func(in *instance, b *faultyTx) {
		b.cancelTx = func(ctx context.Context, tx any, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
			state, err := in.CancelTx(ctx, tx, now, id, keep)
			if t, ok := tx.(*transaction); ok && state == storage.Running {
				in.m.locked(func() { t.copied.find(id).Cancelling = false })
			}
			return state, err
		}
	})},
	{"CancelTx says cancelled of what is gone", "tx_cancel_answers", transacting(func(in *instance, b *faultyTx) {
		b.cancelTx = func(ctx context.Context, tx any, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
			state, err := in.CancelTx(ctx, tx, now, id, keep)
			if errors.Is(err, storage.ErrNotFound) {
				return storage.Cancelled, nil
			}
			return state, err
		}
	})},
	{"any transaction will do for entries", "tx_wrong", transacting(func(in *instance, b *faultyTx) {
		b.putTx = func(ctx context.Context, _ any, now time.Time, entries []storage.Entry) (int64, error) {
			return in.PutEntries(ctx, now, entries)
		}
	})},
	{"any transaction will do", "tx_wrong", transacting(func(in *instance, b *faultyTx) {
		b.enqueueTx = func(ctx context.Context, tx any, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			if _, ok := tx.(*transaction); !ok {
				return in.Enqueue(ctx, now, jobs)
			}
			return in.EnqueueTx(ctx, tx, now, jobs)
		}
	})},
	{"Enqueue in the function of Tx joins the transaction", "tx_busy", transacting(func(in *instance, b *faultyTx) {
		b.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			var t *transaction
			if in.m.locked(func() { t = in.m.open }); t != nil {
				return in.EnqueueTx(ctx, t, now, jobs)
			}
			return in.Enqueue(ctx, now, jobs)
		}
	})},
	{"what is published in a transaction is there at once", "tx_publish", transacting(func(in *instance, b *faultyTx) {
		b.publishTx = func(ctx context.Context, tx any, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
			out, err := in.PublishMessagesTx(ctx, tx, now, all)
			if t, ok := tx.(*transaction); ok {
				in.m.locked(func() { in.m.data = t.copied.clone() })
			}
			return out, err
		}
	})},
}

// severalTx answers for all leases of a FinishTx, and ends as many as most, or has others told.
type severalTx struct {
	*hooks
	most int
	told func(i int) int
}

func (s *severalTx) FinishTx(ctx context.Context, tx any, now time.Time, ends []storage.Finish, keep storage.Retention, committed func(i int)) ([]storage.ItemResult, map[int][]storage.Enqueued, error) {
	told := committed
	if committed != nil && s.told != nil {
		told = func(i int) { committed(s.told(i)) }
	}
	results, then, err := s.hooks.FinishTx(ctx, tx, now, ends[:min(len(ends), s.most)], keep, told)
	for err == nil && len(results) < len(ends) {
		results = append(results, storage.Applied)
	}
	return results, then, err
}

var finishTxFaults = []fault{
	{"FinishTx ends only the first of several leases", "finishtx_many", func(in *instance) storage.Store { return &severalTx{sound(in), 1, nil} }},
	{"FinishTx says of the first lease alone that it has ended", "finishtx_many", func(in *instance) storage.Store {
		return &severalTx{sound(in), math.MaxInt, func(int) int { return 0 }}
	}},
	{"a job has ended before the commit", "finishtx_commits", finishing(func(in *instance, t *transaction, _ *data, _ storage.Lease, _ *storage.ItemResult) {
		in.m.data = t.copied.clone()
	})},
	{"all that FinishTx ends is kept", "finishtx_commits", transacting(func(in *instance, b *faultyTx) {
		b.finishTx = func(ctx context.Context, tx any, now time.Time, end storage.Finish, _ storage.Retention, committed func()) (storage.ItemResult, []storage.Enqueued, error) {
			return in.finishTx(ctx, tx, now, end, kept(keep), committed)
		}
	})},
	{"an attempt that FinishTx ends does not count", "finishtx_commits", finishing(func(_ *instance, t *transaction, _ *data, l storage.Lease, _ *storage.ItemResult) {
		if j := t.copied.jobs[l.Key]; j != nil {
			j.Attempt--
		}
	})},
	{"FinishTx lets no other member of the group in", "finishtx_commits", finishing(func(_ *instance, t *transaction, was *data, _ storage.Lease, _ *storage.ItemResult) {
		for _, j := range was.jobs {
			if j.State == storage.Blocked {
				t.copied.put(j)
			}
		}
	})},
	{"FinishTx frees no unique key", "finishtx_commits", finishing(func(_ *instance, t *transaction, was *data, _ storage.Lease, _ *storage.ItemResult) {
		maps.Copy(t.copied.unique, was.unique)
	})},
	{"what FinishTx ends is no success", "finishtx_counts", finishing(func(_ *instance, t *transaction, was *data, _ storage.Lease, _ *storage.ItemResult) {
		t.copied.lasts = was.lasts
	})},
	{"what FinishTx ends is no evidence", "finishtx_counts", finishing(func(_ *instance, t *transaction, was *data, _ storage.Lease, _ *storage.ItemResult) {
		t.copied.successes = was.successes
	})},
	{"a lost lease lets the transaction commit", "finishtx_lost", goesOn(storage.Lost)},
	{"a cancelled job lets the transaction commit", "finishtx_cancelling", goesOn(storage.Cancelling)},
	{"an ended lease lets the transaction commit", "finishtx_ended", goesOn(storage.Ended)},
	{"no fence in FinishTx", "finishtx_lost", transacting(func(in *instance, b *faultyTx) {
		b.finishTx = func(ctx context.Context, tx any, now time.Time, end storage.Finish, keep storage.Retention, committed func()) (storage.ItemResult, []storage.Enqueued, error) {
			in.m.locked(func() { current(in.m, &end.Lease) })
			return in.finishTx(ctx, tx, now, end, keep, committed)
		}
	})},
	{"a cancelled job is done", "finishtx_cancelling", transacting(func(in *instance, b *faultyTx) {
		b.finishTx = func(ctx context.Context, tx any, now time.Time, end storage.Finish, keep storage.Retention, committed func()) (storage.ItemResult, []storage.Enqueued, error) {
			if t, ok := tx.(*transaction); ok {
				in.m.locked(func() {
					if j := t.copied.held(end.Lease); j != nil {
						j.Cancelling = false
					}
				})
			}
			return in.finishTx(ctx, tx, now, end, keep, committed)
		}
	})},
	{"what is spoiled commits", "finishtx_spoiled", transacting(func(_ *instance, b *faultyTx) { b.spoilTx = func(any, error) {} })},
	{"FinishTx calls lost what has ended", "finishtx_ended", finishing(func(_ *instance, _ *transaction, _ *data, _ storage.Lease, r *storage.ItemResult) {
		if *r == storage.Ended {
			*r = storage.Lost
		}
	})},
	{"an extension calls lost what has ended", "finishtx_ended_exchange", answering(func(_ *instance, _ *storage.Exchange, res *storage.ExchangeResult) {
		forgets(res.Extended)
	})},
	{"a late outcome calls lost what has ended", "finishtx_ended_exchange", answering(func(_ *instance, _ *storage.Exchange, res *storage.ExchangeResult) {
		forgets(res.Finished)
	})},
	{"that a lease has ended is said once", "finishtx_ended_exchange", answering(func(in *instance, x *storage.Exchange, _ *storage.ExchangeResult) {
		for _, l := range x.Extend {
			delete(in.ended, l.Token)
		}
	})},
	{"that a lease has ended is forgotten with its job", "finishtx_ended_exchange", answering(func(in *instance, x *storage.Exchange, res *storage.ExchangeResult) {
		for i, l := range x.Extend {
			if in.m.jobs[l.Key] == nil {
				forgets(res.Extended[i : i+1])
			}
		}
	})},
	{"a late outcome changes what has ended", "finishtx_ended_exchange", answering(func(in *instance, x *storage.Exchange, res *storage.ExchangeResult) {
		for i, f := range x.Finish {
			if j := in.m.jobs[f.Key]; j != nil && res.Finished[i] == storage.Ended {
				j.remember(entry(*f.Failure, j.Attempt, in.m.mark, in.name))
			}
		}
	})},
	{"what was rolled back has ended", "finishtx_taken", finishing(func(in *instance, _ *transaction, _ *data, l storage.Lease, _ *storage.ItemResult) {
		in.ended[l.Token] = true
	})},
	{"LookTx sees only what was committed", "finishtx_look", transacting(func(in *instance, b *faultyTx) {
		b.lookTx = func(ctx context.Context, _ any, l storage.Lease) (storage.ItemResult, error) {
			return in.LookTx(ctx, nil, l)
		}
	})},
	{"LookTx sees what is not committed", "finishtx_look", transacting(func(in *instance, b *faultyTx) {
		b.lookTx = func(ctx context.Context, tx any, l storage.Lease) (storage.ItemResult, error) {
			var t *transaction
			if in.m.locked(func() { t = in.m.open }); t != nil && tx == nil {
				tx = t
			}
			return in.LookTx(ctx, tx, l)
		}
	})},
	{"LookTx takes back the wish to cancel", "finishtx_look", transacting(func(in *instance, b *faultyTx) {
		b.lookTx = func(ctx context.Context, tx any, l storage.Lease) (storage.ItemResult, error) {
			r, err := in.LookTx(ctx, tx, l)
			in.m.locked(func() {
				if j := in.m.held(l); j != nil {
					j.Cancelling = false
				}
			})
			return r, err
		}
	})},
	{"LookTx extends", "finishtx_look", transacting(func(in *instance, b *faultyTx) {
		b.lookTx = func(ctx context.Context, tx any, l storage.Lease) (storage.ItemResult, error) {
			r, err := in.LookTx(ctx, tx, l)
			in.m.locked(func() {
				if j := in.m.held(l); j != nil {
					j.lease.until = j.lease.until.Add(time.Second)
				}
			})
			return r, err
		}
	})},
	{"committed is not called", "finishtx_committed", committing(func(*instance, *faultyTx, func()) func() { return nil })},
	{"committed is called twice", "finishtx_committed", committing(func(_ *instance, _ *faultyTx, committed func()) func() {
		return func() { committed(); committed() }
	})},
	{"committed is called by FinishTx", "finishtx_committed", committing(func(_ *instance, _ *faultyTx, committed func()) func() {
		committed()
		return nil
	})},
	{"committed is called after a rollback too", "finishtx_committed", committing(func(in *instance, b *faultyTx, committed func()) func() {
		b.tx = func(ctx context.Context, fn func(tx any) error) error {
			defer committed()
			return in.Tx(ctx, fn)
		}
		return committed
	})},
	{"committed is called with the next Enqueue", "finishtx_committed_first", committing(func(in *instance, b *faultyTx, committed func()) func() {
		return func() {
			b.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
				committed()
				b.enqueue = in.Enqueue
				return in.Enqueue(ctx, now, jobs)
			}
		}
	})},
}
