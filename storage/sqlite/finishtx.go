package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlLook = `SELECT token, cancelling FROM main.errand_job WHERE id = ?1 AND state = 3`
	// A job has a row in one of the tables.
	sqlLastToken = `SELECT token FROM main.errand_job WHERE id = ?1 UNION ALL SELECT token FROM main.errand_finished WHERE id = ?1
UNION ALL SELECT token FROM main.errand_dead WHERE id = ?1`
)

// errNotEnded ends a transaction of Tx in which FinishTx or CheckpointTx met a lease that is not
// held.
var errNotEnded = errors.New("errand: the lease of a job in the transaction is not held")

// FinishTx implements [storage.TxEnqueuer]. Groups are settled once, when all leases have ended.
func (s *Store) FinishTx(ctx context.Context, in any, now time.Time, ends []storage.Finish, keep storage.Retention, committed func(i int)) (results []storage.ItemResult, then map[int][]storage.Enqueued, err error) {
	err = s.inside(ctx, in, true, false, func(t *tx) error {
		t.deciding.at = t.seen(now)
		err := t.regroupOnce(func() error {
			for i := range ends {
				r, added, err := t.finishInTx(in, now, &ends[i], &keep)
				if err != nil {
					return err
				}
				if added != nil {
					if then == nil {
						then = map[int][]storage.Enqueued{}
					}
					then[i] = added
				}
				if results = append(results, r); r != storage.Applied {
					return errNotEnded
				}
			}
			return nil
		})
		if t.deciding.at = 0; err != nil {
			return err
		}
		for i := range ends {
			var told func()
			if committed != nil {
				told = func() { committed(i) }
			}
			t.endsWithTx(in, ends[i].Lease, told)
		}
		return nil
	})
	if err == nil {
		return results, then, nil
	}
	if _, err := s.refused(in, 0, err); err != nil {
		return nil, nil, err
	}
	return results, nil, nil
}

// finishInTx is FinishTx for one lease.
func (t *tx) finishInTx(in any, now time.Time, f *storage.Finish, keep *storage.Retention) (r storage.ItemResult, then []storage.Enqueued, err error) {
	if err := t.store.endInTx(t, in, f.Lease, f.Bytes()); err != nil {
		return 0, nil, err
	}
	if r, err = t.look(f.Lease); err == nil && r == storage.Applied {
		r, err = t.finish(now, f, keep)
	}
	if err == nil && r == storage.Applied {
		then, err = t.enqueueThen(now, f.Then)
	}
	return r, then, err
}

// endsWithTx notes that a lease has ended if the transaction commits, and has committed, if not nil, be called then.
func (t *tx) endsWithTx(in any, l storage.Lease, committed func()) {
	s := t.store
	s.self.try(l.Token, true)
	t.undo = append(t.undo, func() { s.self.try(l.Token, false) })
	undone := true
	if own := s.own.Load(); own != nil && own.tx == in {
		own.last = append(own.last, func() { undone = t.undone(l) })
	}
	t.after = append(t.after, func() {
		if undone {
			s.self.try(l.Token, false)
			return
		}
		s.self.finished(l.Token)
		if committed != nil {
			committed()
		}
	})
}

// refused returns the answer r to a call about a lease in a transaction, which cannot commit
// after an error, nor if the lease is not held.
func (s *Store) refused(in any, r storage.ItemResult, err error) (storage.ItemResult, error) {
	if err == nil {
		return r, nil
	}
	s.SpoilTx(in, err)
	if errors.Is(err, errNotEnded) {
		return r, nil
	}
	return 0, err
}

// undone reports whether a lease is held at the end of a transaction of Tx in which FinishTx has
// ended it: the application has rolled back to a savepoint.
func (t *tx) undone(l storage.Lease) bool {
	var token int64
	var asked bool
	err := t.row(sqlLook, []any{l.Key}, &token, &asked)
	return err == nil && token == l.Token || err != nil && !errors.Is(err, sql.ErrNoRows) // LookTx decides later
}

// SpoilTx implements [storage.TxEnqueuer].
func (s *Store) SpoilTx(in any, err error) {
	own := s.own.Load()
	if own == nil || own.tx != in {
		rollBack(in)
		return
	}
	own.spoil(err)
}

// rollBack ends a transaction for good, also if rows of it are open: these would have it wait
// until they are closed. Of two calls the first ends it, and the second returns then, or
// when the first has.
func rollBack(in any) {
	tx, ok := in.(*sql.Tx)
	if !ok {
		return
	}
	ended := make(chan struct{}, 2)
	for range 2 {
		go func() {
			_ = tx.Rollback() // one of the two gives sql.ErrTxDone
			ended <- struct{}{}
		}()
	}
	<-ended
}

// LookTx implements [storage.TxEnqueuer].
func (s *Store) LookTx(ctx context.Context, in any, l storage.Lease) (r storage.ItemResult, err error) {
	if in != nil {
		look := func(t *tx) error {
			r, err = t.look(l)
			return err
		}
		if own := s.own.Load(); own != nil && own.tx == in {
			err = s.readOwn(ctx, own, func(t *tx) error {
				own.ends = true // or so it is to
				return look(t)
			})
		} else {
			err = s.inside(ctx, in, false, false, look)
		}
		return r, err
	}
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	t := &tx{execer: plain{ctx, s.inner.DB}, store: s}
	if r, err = t.look(l); err != nil {
		return 0, translate(err)
	}
	if r == storage.Ended {
		s.self.finished(l.Token)
	}
	return r, err
}

// look says whether a lease is held.
func (t *tx) look(l storage.Lease) (storage.ItemResult, error) {
	var token int64
	var asked bool
	err := t.row(sqlLook, []any{l.Key}, &token, &asked)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && token != l.Token:
		return t.notHeld(l)
	case err != nil:
		return 0, err
	case asked:
		return storage.Cancelling, nil
	}
	return storage.Applied, nil
}

// notHeld says what became of a lease that is not held.
func (t *tx) notHeld(l storage.Lease) (storage.ItemResult, error) {
	if !t.store.self.tried(l.Token) {
		return storage.Lost, nil
	}
	var token int64
	err := t.row(sqlLastToken, []any{l.Key}, &token)
	switch {
	case errors.Is(err, sql.ErrNoRows): // finished jobs of its lane are not kept
		return storage.Ended, nil
	case err != nil:
		return 0, err
	case token != l.Token:
		return storage.Lost, nil
	}
	return storage.Ended, nil
}

// finishAll ends the leases that an exchange ends, and settles their groups once that is written.
func (t *tx) finishAll(now time.Time, x *storage.Exchange, out *storage.ExchangeResult) error {
	n := len(x.Finish)
	if n == 0 {
		return nil
	}
	out.Finished = make([]storage.ItemResult, n)
	return t.regroupOnce(func() error {
		return t.inRuns(func() (err error) {
			for i := 0; err == nil && i < n; i++ {
				if out.Finished[i], err = t.finish(now, &x.Finish[i], &x.Retention); err == nil {
					err = t.thenOf(now, x, i, out)
				}
			}
			return err
		})
	})
}

// thenOf enqueues what follows an item of an exchange that has been finished.
func (t *tx) thenOf(now time.Time, x *storage.Exchange, i int, out *storage.ExchangeResult) error {
	f := &x.Finish[i]
	if f.Then == nil && f.Spent == nil {
		return nil
	}
	added, err := t.enqueueThen(now, f.Follows(out.Finished[i]))
	if added != nil {
		if out.Then == nil {
			out.Then = map[int][]storage.Enqueued{}
		}
		out.Then[i] = added
	}
	return err
}

// enqueueThen enqueues what follows a job that has ended, whatever the caps.
func (t *tx) enqueueThen(now time.Time, then []storage.NewJob) ([]storage.Enqueued, error) {
	if len(then) == 0 {
		return nil, nil
	}
	out := make([]storage.Enqueued, len(then))
	for i := range then {
		var answer storage.Enqueued
		added, err := t.enqueue(now, then[i:i+1], nil)
		if err == nil {
			answer = added[0]
		}
		if out[i], err = rules.Following(answer, err); err != nil {
			return nil, err
		}
	}
	t.announce()
	return out, nil
}
