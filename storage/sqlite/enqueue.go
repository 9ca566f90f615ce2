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
	sqlKeyHolder = `SELECT job, salt, created_at FROM errand_unique WHERE key = ?1 AND slot = 0`
	// A live job is looked for first: most keys are of one.
	sqlKeyGone = `SELECT until <> 0 AND NOT EXISTS (SELECT 1 FROM errand_job WHERE id = job)
AND NOT EXISTS (SELECT 1 FROM errand_finished WHERE id = job) AND NOT EXISTS (SELECT 1 FROM errand_dead WHERE id = job)
FROM errand_unique WHERE key = ?1 AND slot = 0`
	sqlEndKeyWithJob = `UPDATE errand_unique SET until = 0 WHERE key = ?1 AND slot = 0 AND EXISTS (SELECT 1 FROM errand_job WHERE id = job)`
	sqlDropKey       = `DELETE FROM errand_unique WHERE key = ?1 AND slot = 0`
	sqlReleaseKey    = `DELETE FROM errand_unique WHERE key = ?1 AND job = ?2 AND until = 0`
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
	err := s.submit(ctx, &request{work: workOf(jobs), run: func(t *tx) (err error) {
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

// workOf returns how much work it is to insert jobs.
func workOf(jobs []storage.NewJob) int {
	bytes := 0
	for i := range jobs {
		j := &jobs[i]
		bytes += len(j.Args) + len(j.Headers) + len(j.Policy)
	}
	return len(jobs) + bytes/jobBytes
}

// EnqueueTx implements [storage.TxEnqueuer].
func (s *Store) EnqueueTx(ctx context.Context, in *sql.Tx, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	if len(jobs) == 0 {
		return nil, s.idle(ctx)
	}
	if err := s.intake(); err != nil {
		return nil, err
	}
	err = s.inside(ctx, in, len(jobs), func(t *tx) (err error) {
		out, err = t.enqueue(now, jobs)
		return err
	})
	if err != nil {
		return nil, err
	}
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
				if err := t.row(sqlKeyGone, []any{j.Unique}, &out[i].Gone); err != nil {
					return nil, err
				}
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

// ReleaseUnique implements [storage.Store].
func (s *Store) ReleaseUnique(ctx context.Context, key string) (holder storage.ID, err error) {
	found := false
	err = s.submit(ctx, &request{ends: true, run: func(t *tx) error {
		holder = storage.ID{}
		var job, salt, created int64
		err := t.row(sqlKeyHolder, []any{key}, &job, &salt, &created)
		if found = !errors.Is(err, sql.ErrNoRows); !found {
			return nil // as in Cancel
		}
		if err != nil {
			return err
		}
		res, err := t.exec(sqlEndKeyWithJob, key)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); n == 1 || err != nil {
			holder = storage.NewID(fromMicros(created), uint32(salt), job)
			return err
		}
		_, err = t.exec(sqlDropKey, key)
		return err
	}})
	if err == nil && !found {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.ID{}, err
	}
	return holder, nil
}

// releaseKey gives a key up whose scope was the life of this job.
func (t *tx) releaseKey(key sql.NullString, job int64) error {
	if !key.Valid {
		return nil
	}
	_, err := t.exec(sqlReleaseKey, key.String, job)
	return err
}
