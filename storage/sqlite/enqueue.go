package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	sqlInsertJob = `INSERT INTO errand_job
(id, lane, state, priority, due_at, delay, salt, created_at, timeout, policy, unique_key, headers, args)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	// What most jobs do not have need not be bound.
	sqlInsertPlainJob = `INSERT INTO errand_job
(id, lane, state, priority, due_at, salt, created_at, timeout, policy, args) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, ?)`
	sqlInsertPayload = `INSERT INTO errand_payload (job, headers, args) VALUES (?1, ?2, ?3)`
	sqlClaimKey      = `INSERT INTO errand_unique (key, job, salt, created_at, until) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING`
	sqlKeyHolder  = `SELECT job, salt, created_at FROM errand_unique WHERE key = ?1`
	sqlReleaseKey = `DELETE FROM errand_unique WHERE key = ?1 AND job = ?2 AND until = 0`
	// The counters are raised before anything is read: a deferred transaction
	// that began by reading could not write any more once another has
	// committed (SQLITE_BUSY_SNAPSHOT).
	sqlReserve    = `UPDATE errand_number SET n = n + ?1 WHERE id = 1`
	sqlBeginAgain = `BEGIN`
	sqlSavepoint  = `SAVEPOINT errand`
	sqlRollbackTo = `ROLLBACK TO errand`
	sqlRelease    = `RELEASE errand`
)

// inlineLimit is how many bytes of args and headers stay in the job's row.
// Larger ones are written once, beside it, and never moved.
const inlineLimit = 2048

const forever = math.MaxInt64

// Enqueue implements [storage.Store].
func (s *Store) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	if len(jobs) == 0 {
		return nil, s.idle(ctx)
	}
	var out []storage.Enqueued
	err := s.submit(ctx, &request{run: func(t *tx) (err error) {
		t.single = len(jobs) == 1
		out, err = t.enqueue(now, jobs)
		t.single = false
		if err != nil {
			return err
		}
		return t.handOver(now)
	}})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// EnqueueTx implements [storage.TxEnqueuer].
func (s *Store) EnqueueTx(ctx context.Context, tx *sql.Tx, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	if len(jobs) == 0 {
		return nil, s.idle(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := errors.Join(s.usable(), s.intake()); err != nil {
		return nil, err
	}
	if own := s.own.Load(); own != nil && own.tx == tx {
		out, err = s.enqueueOwn(own, now, jobs)
	} else {
		// A statement that is interrupted may take the whole transaction with it.
		out, err = s.enqueueIn(plain{context.WithoutCancel(ctx), tx}, now, jobs)
	}
	if endedTx(err) {
		return nil, ended(ctx, err) // the transaction's context may be the same
	}
	if err != nil {
		return nil, translate(err)
	}
	return out, nil
}

// enqueueOwn is enqueue in a transaction of Tx.
func (s *Store) enqueueOwn(own *ownTx, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.failed != nil {
		return nil, own.failed
	}
	defer func() { own.failed = err }()
	if err := inTx(s.app); err != nil {
		return nil, err
	}
	t := &tx{execer: s.app, store: s, stmts: s.app, begun: true, counts: map[laneState]int64{}}
	if own.enqueued { // they may not be as they were left: the application may have gone back to a savepoint
		if err := t.row(sqlMeta, nil, t.meta.dest()...); err != nil {
			return nil, err
		}
		t.was = t.meta
	} else if _, err := t.counters(); err != nil {
		return nil, err
	}
	if out, err = t.enqueue(now, jobs); err != nil {
		return nil, err
	}
	if err := t.flush(); err != nil {
		return nil, err
	}
	own.meta, own.enqueued, own.raised = t.meta, true, t.meta.nextJob > t.was.nextJob
	return out, nil
}

// inTx makes sure that a transaction is one. SQLite may have ended it by
// itself, which database/sql does not notice: then this statement succeeds,
// which in a transaction it cannot.
func inTx(db execer) error {
	if _, err := db.exec(sqlBeginAgain); err == nil {
		_, _ = db.exec(sqlRollback)
		return fmt.Errorf("errand: transaction: rolled back by SQLite after an error: %w", sql.ErrTxDone)
	} else if endedTx(err) {
		return fmt.Errorf("errand: transaction: %w", err)
	}
	return nil
}

func (s *Store) checkDatabase(db plain) error {
	path, err := databaseFile(db.ctx, db.tx)
	if endedTx(err) {
		return fmt.Errorf("errand: transaction: %w", err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrWrongDatabase, err)
	}
	if !sameFile(path, s.path) {
		return fmt.Errorf("%w: it is on %q, this queue on %q", storage.ErrWrongDatabase, path, s.path)
	}
	if path != s.path { // a folder may have two names, a file not
		return checkNames(path, s.opts)
	}
	return nil
}

// enqueueIn is enqueue in a transaction of the application.
func (s *Store) enqueueIn(db plain, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	if err := inTx(db); err != nil {
		return nil, err
	}
	if err := s.checkDatabase(db); err != nil {
		return nil, err
	}
	if _, err := db.exec(sqlSavepoint); err != nil {
		return nil, err
	}
	out, err := s.enqueueReserved(db, now, jobs)
	if err != nil {
		_, _ = db.exec(sqlRollbackTo) // SQLite may have rolled back all of it
	}
	if _, e := db.exec(sqlRelease); err == nil {
		err = e
	}
	return out, err
}

func (s *Store) enqueueReserved(db plain, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	t := &tx{execer: db, store: s, counts: map[laneState]int64{}}
	if _, err := t.exec(sqlReserve, len(jobs)); err != nil {
		return nil, err
	}
	if s.opts.Durability == Full { // not before: it may have to read the schema
		if err := checkSync(t.row); err != nil {
			return nil, err
		}
	}
	m := &t.meta
	err := t.row(sqlMeta, nil, m.dest()...)
	if err == nil {
		err = tooNew(m.minWriter)
	}
	if err != nil {
		return nil, err
	}
	reserved := m.nextJob
	first := reserved - int64(len(jobs))
	t.was = *m
	m.nextJob = first
	out, err := t.enqueue(now, jobs)
	m.nextJob = reserved
	if err == nil {
		err = t.flush()
	}
	if err != nil {
		return nil, err
	}
	s.lookFor(first, reserved)
	return out, nil
}

// enqueue inserts jobs, taking their keys from the counters.
func (t *tx) enqueue(now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	out := make([]storage.Enqueued, len(jobs))
	created := t.seen(now)
	for i := range jobs {
		j := &jobs[i]
		key, salt := t.meta.nextJob, rand.Uint32()&storage.MaxSalt
		if key > storage.MaxKey {
			return nil, fmt.Errorf("errand: job key %d: must be at most %d", key, int64(storage.MaxKey))
		}
		unique := sql.NullString{String: j.Unique, Valid: j.Unique != ""}
		if unique.Valid {
			holder, err := t.claimKey(j.Unique, key, int64(salt), created, j.UniqueScope)
			if err != nil {
				return nil, err
			}
			if !holder.IsZero() {
				out[i] = storage.Enqueued{ID: holder, Duplicate: true}
				continue
			}
		}
		var to *handoff
		if t.single {
			var err error
			if to, err = t.taker(j, now); err != nil {
				return nil, err
			}
		}
		if err := t.insert(j, key, salt, created, now, unique, to); err != nil {
			return nil, err
		}
		t.meta.nextJob++
		out[i].ID = storage.NewID(fromMicros(created), salt, key)
	}
	return out, nil
}

// insert inserts a job, leased already if there is a worker to take it.
func (t *tx) insert(j *storage.NewJob, key int64, salt uint32, created int64, now time.Time, unique sql.NullString, to *handoff) error {
	lane, err := t.lane(j.Queue, j.Kind)
	if err != nil {
		return err
	}
	policy, err := t.policy(j.Policy)
	if err != nil {
		return err
	}
	t.refer(policy, 1)
	state, due, delay := ready, created, int64(0)
	event := storage.Event{}
	switch {
	case j.Delay > 0:
		state, event.Due = scheduled, now.Add(j.Delay)
		due = dueMicros(event.Due)
		delay = due - created
	case j.DueAt.After(now):
		state, event.Due = scheduled, j.DueAt
		due = dueMicros(j.DueAt)
	case !j.DueAt.IsZero():
		due = dueMicros(j.DueAt)
	}
	var headers, args any
	if inline := len(j.Args)+len(j.Headers) <= inlineLimit; inline {
		args = j.Args
		if j.Headers != nil {
			headers = j.Headers
		}
	} else if _, err := t.exec(sqlInsertPayload, key, j.Headers, j.Args); err != nil {
		return err
	}
	if to != nil {
		r := leasedRow{
			id: key, lane: lane, priority: j.Priority, dueAt: due, attempt: 1, salt: salt, createdAt: created,
			timeout: j.Timeout.Microseconds(), policy: policy, headers: j.Headers, args: j.Args, unique: unique,
		}
		return t.insertLeased(&r, headers, args, now, to)
	}
	if delay == 0 && j.Timeout == 0 && policy == 0 && !unique.Valid && headers == nil {
		_, err = t.exec(sqlInsertPlainJob, key, lane, state, j.Priority, due, salt, created, args)
	} else {
		_, err = t.exec(sqlInsertJob, key, lane, state, j.Priority, due, delay, salt, created,
			j.Timeout.Microseconds(), policy, unique, headers, args)
	}
	if err != nil {
		return err
	}
	t.move(lane, 0, state)
	if state == ready {
		t.fresh.add(key, laneName{j.Queue, j.Kind})
	} else {
		t.notifyAll(event)
	}
	return nil
}

// claimKey takes a unique key for a job. If another job holds it, it gives that
// job's ID.
func (t *tx) claimKey(key string, job, salt, created int64, scope storage.UniqueScope) (holder storage.ID, err error) {
	until := int64(0)
	if scope == storage.UniqueForever {
		until = forever
	}
	res, err := t.exec(sqlClaimKey, key, job, salt, created, until)
	if err != nil {
		return holder, err
	}
	if n, err := res.RowsAffected(); n == 1 || err != nil {
		return holder, err
	}
	if err := t.row(sqlKeyHolder, []any{key}, &job, &salt, &created); err != nil {
		return holder, err
	}
	return storage.NewID(fromMicros(created), uint32(salt), job), nil
}

// releaseKey gives a key up whose scope was the life of this job.
func (t *tx) releaseKey(key sql.NullString, job int64) error {
	if !key.Valid {
		return nil
	}
	_, err := t.exec(sqlReleaseKey, key.String, job)
	return err
}
