package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	sqlInsertJob = `INSERT INTO errand_job
(id, lane, state, priority, due_at, salt, created_at, timeout, policy, unique_key, headers, args)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)`
	sqlInsertPayload = `INSERT INTO errand_payload (job, headers, args) VALUES (?1, ?2, ?3)`
	sqlClaimKey      = `INSERT INTO errand_unique (key, job, salt, created_at, until) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING`
	sqlKeyHolder  = `SELECT job, salt, created_at FROM errand_unique WHERE key = ?1`
	sqlReleaseKey = `DELETE FROM errand_unique WHERE key = ?1 AND job = ?2 AND until = 0`
	// The counters are raised before anything is read: a deferred transaction
	// that began by reading could not write any more once another has
	// committed (SQLITE_BUSY_SNAPSHOT).
	sqlReserve = `UPDATE errand_meta SET next_job = next_job + ?1
RETURNING min_writer, next_job, next_token, next_instance, generation`
	sqlSaveGeneration = `UPDATE errand_meta SET generation = ?1`
)

// inlineLimit is how many bytes of args and headers stay in the job's row.
// Larger ones are written once, beside it, and never moved.
const inlineLimit = 2048

const forever = math.MaxInt64

// Enqueue implements [storage.Store].
func (s *Store) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	if len(jobs) == 0 {
		return nil, ctx.Err()
	}
	var out []storage.Enqueued
	err := s.submit(ctx, &request{run: func(t *tx) (err error) {
		out, err = t.enqueue(now, jobs)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// EnqueueTx implements [storage.TxEnqueuer].
func (s *Store) EnqueueTx(ctx context.Context, tx *sql.Tx, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	if err := ctx.Err(); err != nil || len(jobs) == 0 {
		return nil, err
	}
	if err := s.usable(); err != nil {
		return nil, err
	}
	if !s.pending.ours(tx) {
		path, err := databaseFile(ctx, tx)
		if err != nil || !sameFile(path, s.path) {
			return nil, fmt.Errorf("%w: it is on %q, this queue on %q", storage.ErrWrongDatabase, path, s.path)
		}
	}
	return s.enqueueIn(ctx, tx, now, jobs)
}

func (s *Store) enqueueIn(ctx context.Context, in *sql.Tx, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	t := &tx{execer: plain{ctx, in}, store: s, counts: map[laneState]int64{}}
	m := &t.meta
	err := t.row(sqlReserve, []any{len(jobs)}, &m.minWriter, &m.nextJob, &m.nextToken, &m.nextInstance, &m.gen)
	if err == nil {
		err = tooNew(m.minWriter)
	}
	if err != nil {
		return nil, translate(err)
	}
	m.nextJob -= int64(len(jobs))
	t.was = *m
	out, err := t.enqueue(now, jobs)
	if err == nil && m.gen != t.was.gen {
		_, err = t.exec(sqlSaveGeneration, m.gen)
	}
	if err == nil {
		err = t.flushCounts()
	}
	if err != nil {
		return nil, translate(err)
	}
	s.lookFor(t.was.nextJob)
	return out, nil
}

// enqueue inserts jobs, taking their keys from the counters.
func (t *tx) enqueue(now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	out := make([]storage.Enqueued, len(jobs))
	created := micros(now)
	for i := range jobs {
		j := &jobs[i]
		key, salt := t.meta.nextJob, rand.Uint32()&storage.MaxSalt
		if key > storage.MaxKey {
			return nil, fmt.Errorf("errand: job key %d: must be at most %d", key, int64(storage.MaxKey))
		}
		var unique any
		if j.Unique != "" {
			unique = j.Unique
			holder, err := t.claimKey(j.Unique, key, int64(salt), created, j.UniqueScope)
			if err != nil {
				return nil, err
			}
			if !holder.IsZero() {
				out[i] = storage.Enqueued{ID: holder, Duplicate: true}
				continue
			}
		}
		if err := t.insert(j, key, salt, created, now, unique); err != nil {
			return nil, err
		}
		t.meta.nextJob++
		out[i].ID = storage.NewID(fromMicros(created), salt, key)
	}
	return out, nil
}

func (t *tx) insert(j *storage.NewJob, key int64, salt uint32, created int64, now time.Time, unique any) error {
	lane, err := t.lane(j.Queue, j.Kind)
	if err != nil {
		return err
	}
	policy, err := t.policy(j.Policy)
	if err != nil {
		return err
	}
	state, due := ready, created
	event := storage.Event{}
	if !j.DueAt.IsZero() {
		if due = dueMicros(j.DueAt); due > created {
			state, event.Due = scheduled, j.DueAt
		}
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
	_, err = t.exec(sqlInsertJob, key, lane, state, j.Priority, due, salt, created,
		j.Timeout.Microseconds(), policy, unique, headers, args)
	if err != nil {
		return err
	}
	t.move(lane, 0, state)
	t.notifyAll(event)
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
