package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/errandq/errand/storage"
)

// Tx implements [storage.TxEnqueuer]. The transaction begins IMMEDIATE on a
// connection of its own and takes its turn with the writer, which waits
// meanwhile: fn should be short, and must not call Enqueue, which would wait
// for fn (and give up with [storage.ErrBusy]).
func (s *Store) Tx(ctx context.Context, fn func(tx *sql.Tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.usable(); err != nil {
		return err
	}
	s.gate.RLock()
	if s.closed {
		s.gate.RUnlock()
		return storage.ErrClosed
	}
	s.joined.Add(1) // Close waits for fn
	s.gate.RUnlock()
	defer s.joined.Done()
	if err := s.turn.take(s.opts.BusyTimeout); err != nil {
		return err
	}
	defer s.turn.give()
	tx, err := s.apps.BeginTx(ctx, nil)
	if err != nil {
		return translate(err)
	}
	s.begun.Add(1)
	s.pending.own.Store(tx, true)
	defer s.pending.own.Delete(tx)
	finished := false
	defer func() {
		if !finished { // fn gave an error or panicked
			if e := tx.Rollback(); e != nil && !errors.Is(e, sql.ErrTxDone) {
				err = errors.Join(err, translate(e))
			}
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	finished = true
	if err := tx.Commit(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, sql.ErrTxDone) {
			return fmt.Errorf("errand: transaction: ended by the function that it was given to: %w", err)
		}
		return s.commitFailed(err)
	}
	select {
	case s.pending.kick <- struct{}{}:
	default:
	}
	return nil
}
