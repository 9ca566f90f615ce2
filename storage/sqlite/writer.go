package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/crowd"
)

const (
	// maxBatch is how many requests share one commit at most.
	maxBatch = 512
	// maxWork is how much work the requests of a batch are together, unless a single
	// one is more: 2,000 jobs, or 4 MiB. All callers wait for a batch, and other
	// processes too.
	maxWork = 2000
	// jobBytes is how many bytes are as much work as a job.
	jobBytes = 2048
)

const (
	sqlBegin    = `BEGIN IMMEDIATE`
	sqlCommit   = `COMMIT`
	sqlRollback = `ROLLBACK`
)

// request is a function to run in a write transaction. run may be called again
// after a rollback, so it sets its results and never appends to them.
type request struct {
	run func(t *tx) error
	// probe, if set, reports outside of any transaction whether run would find
	// something to do. It is called only if the request is alone in its batch; if it
	// returns false, the write lock is not taken.
	probe func(t *tx) (bool, error)
	// ends: run finishes, extends, takes over or deletes jobs and adds none, so it may
	// use the ballast when the disk is full.
	ends bool
	// urgent: the request is served before others that wait, since leases run out
	// and jobs wait to start.
	urgent bool
	leases bool // run leases jobs that are ready
	// step, if not 0, is how many jobs run changes at most beside those that it was given, or how
	// many groups it goes through, see Regroup. It becomes less while there is no room for as many.
	step  int
	last  bool // no request comes after it: the Store is being closed
	work  int  // about how many jobs run writes
	state atomic.Int32
	done  chan struct{} // holds one once err is set; a chan error would be two allocations
	err   error
}

const (
	waiting = iota
	probing // probe may write results of the call, which waits for it
	taken
	withdrawn
)

// queue are the requests that wait for the writer.
type queue struct {
	reqs    chan *request
	urgent  chan *request // served before those in reqs
	written chan struct{} // holds one: Tx or direct has committed, so the log has grown
	writer  *writer
}

func newQueue() queue {
	return queue{make(chan *request, maxBatch), make(chan *request, maxBatch), make(chan struct{}, 1), nil}
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
	select { // without the lock of the context, which callers may share
	case to <- r:
		return nil
	default:
	}
	select {
	case to <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// submit has the writer run r, and waits for the commit. If ctx ends before the
// transaction has begun, r is withdrawn.
func (s *Store) submit(ctx context.Context, r *request) error { return s.ours(s.ask(ctx, r)) }

func (s *Store) ask(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.notInTx(0); err != nil {
		return err
	}
	if t := s.taken.Load(); t != nil {
		if err := t.await(ctx); err != nil {
			return err
		}
	}
	r.done = make(chan struct{}, 1)
	if done, err := s.direct(ctx, r); done {
		return err
	}
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
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return r.withdraw(ctx.Err())
	}
}

// direct runs r on the goroutine of its caller, if nobody else calls: to wake the
// writer and to be woken takes as long as a third of a commit that is not synced. It
// reports false if r has to be queued: others call, or it would have to wait for
// somebody outside of errand, where it could not be withdrawn.
func (s *Store) direct(ctx context.Context, r *request) (done bool, err error) {
	w := s.queue.writer
	s.gate.RLock()
	free := !s.closed && s.failure.Load() == nil && len(s.queue.reqs)+len(s.queue.urgent) == 0 && w.tryTake()
	s.gate.RUnlock()
	if !free {
		return false, nil
	}
	defer w.give()
	if w.crowd.Several() || w.log.due() { // the writer looks after the log before it serves another call
		return false, nil
	}
	err = w.stmts.hold(func() error {
		if err := w.log.patience(0); err != nil {
			return err
		}
		served := false
		defer func() {
			if !served { // a panic, from which the caller may recover
				w.stmts.rollback()
				_ = w.stmts.finalize()
				s.fail(errors.New("it panicked"), "a call")
			}
		}()
		w.serve(ctx, []*request{r})
		served = true
		return nil
	})
	if err != nil { // the writer says what it means
		return false, nil
	}
	if err = r.answered(); isCode(err, lib.SQLITE_BUSY) { // as it did not wait
		r.state.Store(waiting)
		return false, nil
	}
	if w.log.due() {
		s.queue.tell()
	}
	return true, err
}

// writer writes the requests, on a goroutine and, one at a time, on those of callers.
type writer struct {
	*Store
	mine  chan struct{} // holds a value while a goroutine has stmts, log and crowd
	stmts *statements
	log   checkpointer
	crowd crowd.Crowd // who is answered at once, and may come back
	idle  *time.Timer // goes off when nothing was written for checkpointIdle
	looks *time.Timer // goes off lookEach after that, and again while there is something to lose
	kept  *request    // taken from the queue; the last batch had no place for it
}

func newWriter(s *Store, conn *sql.Conn) *writer {
	w := &writer{Store: s, mine: make(chan struct{}, 1), stmts: newStatements(conn), idle: time.NewTimer(checkpointIdle), looks: time.NewTimer(time.Hour)}
	w.looks.Stop()
	w.log = checkpointer{Store: s, db: w.stmts, waits: s.opts.BusyTimeout}
	s.measure()
	return w
}

// run serves requests until the queues are closed and empty.
func (w *writer) run() {
	defer w.idle.Stop()
	defer w.looks.Stop()
	batch := make([]*request, 0, maxBatch)
	for {
		first, ok := w.next()
		if !ok {
			break
		}
		err := w.alone(func() error {
			if err := w.log.patience(w.opts.BusyTimeout); err != nil {
				return err
			}
			if !first.urgent && len(w.queue.urgent) > 0 { // it came while a caller wrote
				w.kept = first
				first = w.pick(0, false)
			}
			batch = w.gather(append(batch[:0], first))
			slices.SortStableFunc(batch, inOrder)
			w.serve(context.Background(), batch)
			select {
			case <-w.queue.written:
				w.log.run(w.log.often())
			default:
				w.log.runIfDue()
			}
			return nil
		})
		if err != nil { // the connection is closed: nothing was run
			first.answer(translate(cmp.Or(w.usable(), err)))
		}
	}
	w.mine <- struct{}{}
	defer w.give()
	if w.failure.Load() == nil && w.taken.Load() == nil { // else what saves the file has the connection
		w.stmts.close()
	}
}

// gather adds the requests that have queued up to a batch. The callers of the last
// batch were answered all at once, and may be about to call again. So gather yields
// to goroutines that are ready to run, as long as that brings more requests, which makes
// one commit of what would be two. After a slow sync it waits for these callers too, see
// crowd, unless a request is urgent. After a batch of one there is no such caller.
func (w *writer) gather(batch []*request) []*request {
	several := w.crowd.Several()
	defer func() { w.crowd.Took(len(batch)) }()
	work, plain, hurry := batch[0].work, !batch[0].urgent, batch[0].hurries()
	for {
		n := len(batch)
		if several {
			runtime.Gosched()
		}
		for len(batch) < maxBatch {
			used := work
			if !plain && len(batch) == maxBatch-1 { // the last place is for a request that is not urgent
				used = maxWork
			}
			r := w.pick(used, plain)
			if r == nil {
				break
			}
			batch = append(batch, r)
			work += r.work
			plain, hurry = plain || !r.urgent, hurry || r.hurries()
		}
		several = true
		if len(batch) > n && len(batch) < maxBatch {
			continue
		}
		if hurry || w.kept != nil || work >= maxWork || len(batch) == maxBatch {
			return batch
		}
		switch r := w.await(len(batch)); {
		case r == nil:
			return batch
		case r.urgent:
			batch, work, hurry = append(batch, r), work+r.work, true
		default:
			w.kept = r // for pick
		}
	}
}

// await waits for a request beside a batch of so many, and returns nil if none is to be waited for.
func (w *writer) await(size int) *request {
	wait := w.crowd.Wait(size, time.Now())
	if wait <= 0 {
		return nil
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case r := <-w.queue.urgent:
		return r
	case r := <-w.queue.reqs:
		return r
	case <-late.C:
		return nil
	}
}

// inOrder compares requests of a batch by when they run. What leases runs after what
// enqueues, so that a new job need not wait for the next exchange.
func inOrder(a, b *request) int {
	rank := func(r *request) int {
		switch {
		case r.last:
			return 2
		case r.leases:
			return 1
		}
		return 0
	}
	return rank(a) - rank(b)
}

// pick returns the next request for a batch that has so much work already, nil if
// there is none. Urgent requests come first. plain is true if the batch has a
// request that is not urgent: then another one is taken only if its work fits in.
// The first one is taken whatever its work, so that none waits for ever.
func (w *writer) pick(work int, plain bool) *request {
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

// next waits for a request, and does the checkpoints meanwhile. It returns false
// once the queue is closed and empty.
func (w *writer) next() (*request, bool) {
	if r := w.pick(0, false); r != nil {
		return r, true
	}
	urgent, reqs := w.queue.urgent, w.queue.reqs
	for urgent != nil || reqs != nil {
		select {
		case r, ok := <-urgent:
			if ok {
				return r, true
			}
			urgent = nil
		case r, ok := <-reqs:
			if ok {
				w.kept = r // an urgent request may have come with it
				return w.pick(0, false), true
			}
			reqs = nil
		case <-w.queue.written:
			w.idle.Reset(checkpointIdle)
			w.checkpoint(w.log.often())
		case <-w.idle.C:
			w.checkpoint(w.log.whenIdle())
			w.lookIdle()
		case <-w.looks.C:
			w.lookIdle()
		}
	}
	return nil, false
}

// checkpoint does one if the log has so many pages, and takes the ballast back.
func (w *writer) checkpoint(pages int) {
	_ = w.alone(func() error { // or the connection is closed
		w.log.run(pages)
		w.refill()
		return nil
	})
}

// serve answers every request of batch.
func (w *writer) serve(ctx context.Context, batch []*request) {
	if r := batch[0]; len(batch) == 1 && r.probe != nil && (r.ends || w.damage() == nil) {
		if !r.state.CompareAndSwap(waiting, probing) {
			return // withdrawn
		}
		if found, err := w.probe(r); !found || err != nil || !r.state.CompareAndSwap(probing, waiting) {
			r.answer(translate(err))
			return
		}
	}
	w.commit(ctx, w.admit(batch))
}

// commit answers every request of batch, from one transaction or several.
func (w *writer) commit(ctx context.Context, batch []*request) {
	tried := tries{}
	for len(batch) > 0 {
		culprit, err := w.stmts.runs.orRowByRow(func() (int, error) {
			return w.floor.samples.without(func() (int, error) { return w.transact(ctx, &batch) })
		})
		if culprit < 0 && errors.Is(err, storage.ErrFull) {
			var rest []*request
			batch, rest = w.retryWithoutRoom(batch, err, &tried)
			if len(rest) > 0 {
				w.commit(ctx, batch)
				batch, tried = w.admit(rest), tries{} // the ballast may be given up since
			}
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

// answer ends a request. If it was withdrawn, its caller does not return this error.
func (r *request) answer(err error) {
	r.state.CompareAndSwap(waiting, taken)
	r.state.CompareAndSwap(probing, taken)
	r.err = err
	r.done <- struct{}{}
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

// transact runs the requests in one transaction. It first drops from the batch those
// that were withdrawn. If one request made the transaction fail, transact returns its
// index and error; otherwise -1 and the error of all.
func (w *writer) transact(ctx context.Context, batch *[]*request) (culprit int, err error) {
	if err := w.usable(); err != nil {
		return -1, err
	}
	if err := w.takeTurn(ctx, &w.stmts); err != nil {
		return -1, err
	}
	defer w.giveTurn()
	if _, err := w.stmts.exec(sqlBegin); err != nil {
		return -1, w.blocked(err)
	}
	w.endGap(w.stmts)
	live := slices.DeleteFunc(*batch, func(r *request) bool {
		return !r.state.CompareAndSwap(waiting, taken) && r.state.Load() == withdrawn
	})
	*batch = live
	t := w.newTx()
	t.inTx = true
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
	if err == nil {
		err = cmp.Or(w.stmts.writeInserts(), w.stmts.runs.err())
	}
	if err == nil {
		err = w.reserve(t, live)
	}
	began := time.Now()
	if err == nil && w.fault != nil {
		err = w.fault(slices.ContainsFunc(live, (*request).begins))
	}
	if err != nil {
		w.stmts.rollback()
		t.rolledBack()
		return culprit, translate(w.asFull(err))
	}
	if gone := w.taken.Load(); gone != nil { // found while it waited for the lock
		w.stmts.rollback()
		t.rolledBack()
		return -1, gone.err()
	}
	if _, err = w.stmts.exec(sqlCommit); err != nil {
		if err = w.commitFailed(err); w.usable() == nil {
			w.stmts.rollback()
			t.rolledBack()
		}
		return -1, err
	}
	if w.opts.Durability == Full {
		w.crowd.Synced(began, time.Now(), len(w.queue.reqs)+len(w.queue.urgent))
	}
	w.idle.Reset(checkpointIdle)
	t.committed()
	return -1, nil
}
