package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlClaimKey = `INSERT INTO main.errand_unique (key, job, salt, created_at, until) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING`
	sqlKeyHolder = `SELECT job, salt, created_at, until FROM main.errand_unique WHERE key = ?1 AND slot = 0`
	// A live job is looked for first: most keys are of one.
	sqlKeyGone = `SELECT until > ?2 AND NOT EXISTS (SELECT 1 FROM main.errand_job WHERE id = job)
AND NOT EXISTS (SELECT 1 FROM main.errand_finished WHERE id = job) AND NOT EXISTS (SELECT 1 FROM main.errand_dead WHERE id = job)
FROM main.errand_unique WHERE key = ?1 AND slot = 0`
	sqlEndKeyWithJob = `UPDATE main.errand_unique SET until = CASE WHEN ` + hasFollower + ` THEN -1 ELSE 0 END WHERE key = ?1 AND slot = 0 AND EXISTS (SELECT 1 FROM main.errand_job WHERE id = job)`
	sqlDropKey       = `DELETE FROM main.errand_unique WHERE key = ?1 AND slot = 0`
	sqlReleaseKey    = `DELETE FROM main.errand_unique WHERE key = ?1 AND job = ?2 AND until = 0`
)

// Enqueue implements [storage.Store].
func (s *Store) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	if len(jobs) == 0 {
		return nil, s.idle(ctx)
	}
	var answer struct { // one of them, on the heap
		added   []storage.Enqueued
		refused error
	}
	err := s.submit(ctx, &request{work: workOf(jobs), run: func(t *tx) (err error) {
		t.fresh.single = len(jobs) == 1
		answer.added, answer.refused, err = t.enqueueOrRefuse(now, jobs)
		t.fresh.single = false
		if err != nil || answer.refused != nil {
			return err
		}
		return t.handOver(now)
	}})
	if err != nil {
		return nil, err
	}
	if answer.refused != nil {
		return nil, answer.refused
	}
	return answer.added, nil
}

// workOf returns how much work it is to insert jobs.
func workOf(jobs []storage.NewJob) int {
	bytes, rows := 0, len(jobs)
	for i := range jobs {
		j := &jobs[i]
		bytes += len(j.Args) + len(j.Headers) + len(j.Policy)
		rows += len(j.Tags)
	}
	return rows + bytes/jobBytes
}

// EnqueueTx implements [storage.TxEnqueuer].
func (s *Store) EnqueueTx(ctx context.Context, in any, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	if len(jobs) == 0 {
		return nil, s.idle(ctx)
	}
	if err := s.intake(); err != nil {
		return nil, err
	}
	var refused error
	err = s.inside(ctx, in, len(jobs), len(jobs) > 1, func(t *tx) (err error) {
		if refused, err = s.reserveInTx(t, workOf(jobs)); refused != nil || err != nil {
			return err
		}
		out, refused, err = t.enqueueOrRefuse(now, jobs)
		return err
	})
	if err == nil && refused != nil {
		err = refused
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// enqueue inserts jobs, taking their keys from the counters, and makes room for them. A
// room that is nil has room for all.
func (t *tx) enqueue(now time.Time, jobs []storage.NewJob, m *room) ([]storage.Enqueued, error) {
	out := make([]storage.Enqueued, len(jobs))
	created, first := t.seen(now), t.meta.nextJob
	for i := range jobs {
		j := &jobs[i]
		r := jobRow{
			Queue: j.Queue, Kind: j.Kind, Priority: j.Priority, Salt: rand.Uint32() & storage.MaxSalt, CreatedAt: created,
			Timeout: j.Timeout.Microseconds(), Doc: j.Policy, Headers: j.Headers, Args: j.Args,
		}
		r.ID, r.UniqueKey = t.meta.nextJob, sql.NullString{String: j.Unique, Valid: j.Unique != ""}
		if len(j.Tags) > 0 {
			r.Options = hasTags
		}
		r.Beside = len(j.Args)+len(j.Headers) > inlineLimit
		r.State, r.DueAt, r.Delay = dueTime(now, created, j)
		if r.ID > storage.MaxKey {
			return nil, fmt.Errorf("errand: job key %d: must be at most %d", r.ID, int64(storage.MaxKey))
		}
		if m != nil {
			if err := m.make(&r); err != nil {
				return nil, err
			}
		}
		var err error
		if r.option, err = t.newOption(now, &r, j); err != nil {
			return nil, err
		}
		if r.option != nil {
			r.Options |= hasOption
		}
		var holder storage.ID
		if j.Conflict == nil {
			holder, err = t.enter(now, &r, rules.Until(j, r.CreatedAt, r.DueAt))
		} else {
			holder, err = t.enterOrReplace(now, &r, j, &out[i])
		}
		if err != nil {
			return nil, refusal(err, i, first)
		}
		if holder.IsZero() && !out[i].Duplicate {
			t.meta.nextJob++
			out[i].ID = r.id()
			for _, tag := range j.Tags {
				if _, err := t.exec(sqlInsertTag, tag, r.ID); err != nil {
					return nil, err
				}
			}
			continue
		}
		out[i].ID, out[i].Duplicate = holder, true
		m.keep(holder)
		if out[i].Replaced || holder.IsZero() {
			continue
		}
		if err := t.row(sqlKeyGone, []any{j.Unique, created}, &out[i].Gone); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// dueTime returns the state of a new job, when it is due, and how much of that was
// counted from now.
func dueTime(now time.Time, created int64, j *storage.NewJob) (state stateCode, at, delay int64) {
	switch {
	case j.Conflict != nil && j.Conflict.Mode == storage.Debounce:
		at = rules.Due(now.Add(j.Conflict.Quiet))
		return scheduled, at, at - created
	case j.Delay > 0:
		at = rules.Due(now.Add(j.Delay))
		return scheduled, at, at - created
	case j.DueAt.After(now):
		return scheduled, rules.Due(j.DueAt), 0
	case !j.DueAt.IsZero():
		return ready, rules.Due(j.DueAt), 0
	}
	return ready, created, 0
}

// enter puts a job into errand_job, as scheduled, ready or blocked, unless another job
// holds its unique key: then it returns the ID of that one. A ready job of a call
// that adds it alone is leased at once if a worker of this process waits for it,
// which saves the page on which it would have been ready.
func (t *tx) enter(now time.Time, r *jobRow, until int64) (holder storage.ID, err error) {
	if r.UniqueKey.Valid {
		holder, err = t.claimKey(micros(now), r, until)
		if err != nil || !holder.IsZero() && holder != r.id() { // its own, if it outlives the job
			return holder, err
		}
	}
	return storage.ID{}, t.admit(now, r)
}

// admit is enter for a job that has its unique key.
func (t *tx) admit(now time.Time, r *jobRow) (err error) {
	others := false // of the group, which may have to be let in
	if r.option != nil && r.option.GroupKey != "" {
		if others, err = t.join(r); err != nil {
			return err
		}
	}
	var to *handoff
	if t.fresh.single && r.State == ready {
		if to, err = t.receiver(now, r); err != nil {
			return err
		}
	}
	if r.Lane, err = t.lane(r.Queue, r.Kind); err != nil {
		return err
	}
	if r.Doc != nil {
		if r.Policy, err = t.policy(r.Doc); err != nil {
			return err
		}
	}
	if to != nil {
		r.State, r.Token, r.Attempt, r.Instance = running, t.token(), 1, to.holder
		r.Until = micros(now.Add(to.offer.lease))
	}
	if _, err = t.apply(&delta{change: setRow, was: &facts{}, row: r}); err != nil {
		return err
	}
	switch {
	case to != nil:
		return t.handTo(to, r)
	case others:
		return t.regroup(r.option.GroupKey)
	}
	return nil
}

// claimKey takes the unique key of a job. If another job holds it, claimKey
// returns that job's ID.
func (t *tx) claimKey(at int64, r *jobRow, until int64) (holder storage.ID, err error) {
	key := r.UniqueKey.String
	n, err := t.execCount(sqlClaimKey, key, r.ID, r.Salt, r.CreatedAt, until)
	if n > 0 || err != nil {
		return holder, err
	}
	h, err := t.keyHolder(key)
	if err != nil || h.until <= 0 || h.until == rules.Forever {
		return h.id(), err
	}
	over, err := t.over(at, key, &h)
	if err != nil || !over {
		return h.id(), err
	}
	return holder, t.takeKey(r, until)
}

// keyRow is who holds a unique key.
type keyRow struct {
	job, created, until int64
	salt                uint32
}

func (k *keyRow) id() storage.ID {
	if k.job == 0 {
		return storage.ID{}
	}
	return storage.NewID(fromMicros(k.created), k.salt, k.job)
}

// keyHolder returns who holds a unique key, or [sql.ErrNoRows].
func (t *tx) keyHolder(key string) (k keyRow, err error) {
	err = t.row(sqlKeyHolder, []any{key}, &k.job, &k.salt, &k.created, &k.until)
	return k, err
}

// ReleaseUnique implements [storage.Store].
func (s *Store) ReleaseUnique(ctx context.Context, key string) (holder storage.ID, err error) {
	found := false
	err = s.submit(ctx, &request{ends: true, run: func(t *tx) (err error) {
		k, err := t.keyHolder(key)
		holder = k.id()
		if found = !errors.Is(err, sql.ErrNoRows); !found {
			return nil // an answer, not an error: an error would make the batch run again
		}
		if err != nil {
			return err
		}
		n, err := t.execCount(sqlEndKeyWithJob, key)
		if n > 0 || err != nil {
			return err
		}
		holder = storage.ID{}
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
