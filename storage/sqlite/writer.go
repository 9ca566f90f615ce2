package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
)

const (
	// maxBatch is how many requests share one commit at most.
	maxBatch = 512
	// maxWork is how much work they are together, unless a single one is more:
	// 2,000 jobs, or 4 MiB. Everybody waits for a batch, other processes too.
	maxWork = 2000
	// jobBytes is how many bytes are as much work as a job.
	jobBytes = 2048
)

const (
	sqlBegin    = `BEGIN IMMEDIATE`
	sqlCommit   = `COMMIT`
	sqlRollback = `ROLLBACK`
)

// request is something to do in a write transaction. run may be called again
// after a rollback, so it sets its results, never adds to them.
type request struct {
	run func(t *tx) error
	// probe, if set, looks outside of any transaction whether run would find
	// something to do. It is asked only if the request is alone: then a "no"
	// saves the write lock.
	probe func(t *tx) (bool, error)
	// ends says that run ends or keeps up work and adds none: when the disk is
	// full the ballast is for it.
	ends bool
	// urgent says that it goes before others that wait: leases run out, and
	// handlers wait for runners.
	urgent bool
	last   bool // nothing comes after it: the Store is being closed
	work   int  // about how many jobs it writes
	state  atomic.Int32
	done   chan error
}

const (
	waiting = iota
	taken
	withdrawn
)

// queue are the requests that wait for the writer.
type queue struct {
	reqs    chan *request
	urgent  chan *request // served before those in reqs
	written chan struct{} // holds one: Tx has committed, so the log has grown
}

func newQueue() queue {
	return queue{make(chan *request, maxBatch), make(chan *request, maxBatch), make(chan struct{}, 1)}
}

func (q *queue) close() {
	close(q.reqs)
	close(q.urgent)
}

// add waits until r is in the queue, or until ctx ends.
func (q *queue) add(ctx context.Context, r *request) error {
	to := q.reqs
	if r.urgent {
		to = q.urgent
	}
	select {
	case to <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idle is a call that has nothing to do.
func (s *Store) idle(ctx context.Context) error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed {
		return storage.ErrClosed
	}
	return ctx.Err()
}

// submit has r run by the writer and waits for its commit. A context that ends
// withdraws r, unless its transaction has begun.
func (s *Store) submit(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.notInTx(); err != nil {
		return err
	}
	r.done = make(chan error, 1)
	s.gate.RLock()
	if s.closed {
		s.gate.RUnlock()
		return storage.ErrClosed
	}
	err := s.queue.add(ctx, r)
	s.gate.RUnlock()
	if err != nil {
		return err
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if r.state.CompareAndSwap(waiting, withdrawn) {
			return ctx.Err()
		}
		return <-r.done
	}
}

// writer is the state of the goroutine that owns the writing connection.
type writer struct {
	*Store
	stmts   *statements
	log     checkpointer
	kept    *request // for which the last batch had no place
	pause   *time.Timer
	several bool // the last batch was of more than one
	dirty   bool // something may have been written since the last checkpoint
}

// runWriter serves requests until the queues are closed and empty.
func (s *Store) runWriter(conn *sql.Conn) {
	w := &writer{Store: s, stmts: newStatements(conn)}
	w.log = checkpointer{Store: s, db: w.stmts}
	w.log.measure()
	w.pause = time.NewTimer(checkpointIdle)
	defer w.pause.Stop()
	batch := make([]*request, 0, maxBatch)
	for {
		first, ok := w.next()
		if !ok {
			break
		}
		batch = w.gather(append(batch[:0], first))
		err := w.stmts.hold(func() error {
			w.serve(batch)
			w.log.look()
			return nil
		})
		if err != nil { // the connection is closed: nothing has been run
			for _, r := range batch {
				r.answer(translate(err))
			}
		}
	}
	if s.failure.Load() == nil {
		w.stmts.close()
	}
}

// gather adds the requests that have queued up to a batch. Callers who have just
// been answered, all at once, may be about to ask again: as long as more come
// from letting them run, they are let. That waits for nobody who is not ready
// to run, but makes one commit of what would be two. After a batch of one there
// is no such caller.
func (w *writer) gather(batch []*request) []*request {
	several := w.several
	defer func() { w.several = len(batch) > 1 }()
	work, plain := batch[0].work, !batch[0].urgent
	for {
		n := len(batch)
		if several {
			runtime.Gosched()
		}
		for len(batch) < maxBatch {
			used := work
			if !plain && len(batch) == maxBatch-1 { // the last place is not for what is urgent
				used = maxWork
			}
			r := w.take(used, plain)
			if r == nil {
				break
			}
			batch = append(batch, r)
			work += r.work
			plain = plain || !r.urgent
		}
		if len(batch) == n || len(batch) == maxBatch {
			return batch
		}
		several = true
	}
}

// take returns the next request for a batch of so much work, nil if there is
// none. What is urgent comes first. The first request that is not has a place in
// any case, so that none waits for ever.
func (w *writer) take(work int, plain bool) *request {
	if work < maxWork {
		select {
		case r := <-w.queue.urgent: // nil if it is closed
			if r != nil {
				return r
			}
		default:
		}
	}
	if w.kept == nil {
		select {
		case w.kept = <-w.queue.reqs:
		default:
		}
	}
	r := w.kept
	if r == nil || plain && work+r.work > maxWork || r.last && len(w.queue.urgent) > 0 {
		return nil
	}
	w.kept = nil
	return r
}

// next waits for a request, and sees to the log meanwhile.
func (w *writer) next() (*request, bool) {
	if r := w.take(0, false); r != nil {
		return r, true
	}
	urgent, reqs := w.queue.urgent, w.queue.reqs
	for urgent != nil || reqs != nil {
		var pause <-chan time.Time
		if w.dirty {
			w.pause.Reset(checkpointIdle)
			pause = w.pause.C
		}
		select {
		case r, ok := <-urgent:
			if ok {
				return r, true
			}
			urgent = nil
		case r, ok := <-reqs:
			if ok {
				w.kept = r // something urgent may have come with it
				return w.take(0, false), true
			}
			reqs = nil
		case <-w.queue.written:
			w.dirty = true
			w.log.run(w.log.often())
		case <-pause:
			w.dirty = false
			w.log.run(1)
		}
	}
	return nil, false
}

// serve answers every request of batch.
func (w *writer) serve(batch []*request) {
	if r := batch[0]; len(batch) == 1 && r.probe != nil && (r.ends || w.damage() == nil) {
		if found, err := w.probe(r); !found || err != nil {
			r.answer(translate(err))
			return
		}
	}
	batch, last := w.admit(batch), false
	for len(batch) > 0 {
		culprit, err := w.attempt(&batch)
		if culprit < 0 && errors.Is(err, storage.ErrFull) {
			batch = w.drain(batch, err, &last)
			continue
		}
		if culprit < 0 {
			for _, r := range batch {
				r.answer(err)
			}
			return
		}
		// One request failed by itself: the others go again without it.
		batch[culprit].answer(err)
		batch = append(batch[:culprit], batch[culprit+1:]...)
	}
}

// answer ends a request. One that was withdrawn has nobody who listens.
func (r *request) answer(err error) {
	r.state.CompareAndSwap(waiting, taken)
	r.done <- err
}

func (w *writer) probe(r *request) (bool, error) {
	if err := w.usable(); err != nil {
		return false, err
	}
	t := w.newTx()
	if err := t.load(); err != nil {
		return false, err
	}
	return r.probe(t)
}

// attempt runs the requests in one transaction, leaving out of the batch those
// that were withdrawn before it began. If it fails because of one of them, it
// gives that one's index, else -1 and the error of all.
func (w *writer) attempt(batch *[]*request) (culprit int, err error) {
	if err := w.usable(); err != nil {
		return -1, err
	}
	if err := w.takeTurn(context.Background(), &w.stmts); err != nil {
		return -1, err
	}
	defer w.giveTurn()
	if _, err := w.stmts.exec(sqlBegin); err != nil {
		return -1, w.blocked(err)
	}
	w.endGap(w.stmts)
	w.dirty = true
	live := slices.DeleteFunc(*batch, func(r *request) bool {
		return !r.state.CompareAndSwap(waiting, taken) && r.state.Load() == withdrawn
	})
	*batch = live
	t := w.newTx()
	t.begun = true
	defer t.letGo()
	culprit = -1
	err = t.load()
	for i := 0; err == nil && i < len(live); i++ {
		if err = live[i].run(t); err != nil && !ofFile(err) {
			culprit = i
		}
	}
	if err == nil {
		err = t.flush()
	}
	if err == nil && adds(live) {
		err = w.log.reserve()
	}
	if err == nil && w.fault != nil {
		err = w.fault(adds(live))
	}
	if err != nil {
		_, _ = w.stmts.exec(sqlRollback) // SQLite may have done it already
		t.rolledBack()
		return culprit, translate(w.asFull(err))
	}
	if _, err = w.stmts.exec(sqlCommit); err != nil {
		if err = w.commitFailed(err); w.usable() == nil {
			_, _ = w.stmts.exec(sqlRollback)
			t.rolledBack()
		}
		return -1, err
	}
	t.committed()
	return -1, nil
}

// ofFile tells whether an error concerns the database as a whole and not the
// request that met it.
func ofFile(err error) bool {
	for _, code := range []int{lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_CORRUPT, lib.SQLITE_READONLY, lib.SQLITE_NOMEM} {
		if isCode(err, code) {
			return true
		}
	}
	return errors.Is(err, storage.ErrTooNew)
}

// commitFailed sorts out a failed COMMIT. After an I/O error, above all of
// fsync, the kernel may have dropped the dirty pages while it calls them
// clean: trying again would acknowledge what is not there. So the store ends.
func (s *Store) commitFailed(err error) error {
	err = s.asFull(err)
	if !isCode(err, lib.SQLITE_IOERR) || errors.Is(err, storage.ErrFull) {
		return translate(err)
	}
	s.fail(err, "commit")
	return fmt.Errorf("%w: %w", storage.ErrUnknownOutcome, err)
}

// fail ends the store: nothing it wrote from now on could be relied upon.
func (s *Store) fail(err error, of string) {
	s.failure.Store(&err)
	s.opts.Logger.Error("errand: "+of+" failed, the store is closed; open it again to see what was written", "error", err)
	s.listeners.notify(storage.Event{}) // so that idle workers learn of it
}
