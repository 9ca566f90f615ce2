package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlJob = `SELECT j.*, queue, kind FROM (
  SELECT lane, state, priority, due_at, created_at, 0::bigint AS ended_at, timeout, salt, attempt, retry, crashes, snoozes, cancelling,
    ''::text AS reason, ''::bytea AS error, policy, headers, args, unique_key, group_key FROM errand_job WHERE id = $1
  UNION ALL
  SELECT lane, state, priority, due_at, created_at, ended_at, timeout, salt, attempt, retry, crashes, snoozes, false,
    '', error, policy, headers, args, unique_key, group_key FROM errand_finished WHERE id = $1
  UNION ALL
  SELECT lane, 6, priority, due_at, created_at, ended_at, timeout, salt, attempt, retry, crashes, snoozes, false,
    reason, error, in_effect, headers, args, unique_key, group_key FROM errand_dead WHERE id = $1) j JOIN errand_lane USING (lane)`
	sqlHistory = `SELECT attempt, at, phase, error, stack, duration, instance, retry_after, args FROM errand_history WHERE job = $1 ORDER BY n`
)

// Job implements [storage.Store].
func (s *Store) Job(ctx context.Context, id storage.ID) (rec storage.Record, err error) {
	err = s.read(ctx, func(b *pgx.Batch) {
		rec = storage.Record{}
		each(b, func(row pgx.CollectableRow) error { return scanRecord(row, id.Key(), &rec) }, sqlJob, id.Key())
		each(b, func(row pgx.CollectableRow) error {
			f, err := scanFailure(row)
			rec.History = append(rec.History, f)
			return err
		}, sqlHistory, id.Key())
	})
	switch {
	case err != nil:
		return storage.Record{}, err
	case rec.Key == 0 || rec.ID != id:
		return storage.Record{}, storage.ErrNotFound
	case rec.Error == "":
		for _, h := range rec.History {
			if h.Phase != storage.PhaseEdited {
				rec.Error = h.Error // the last one is left
			}
		}
	}
	return rec, nil
}

func scanRecord(row pgx.CollectableRow, key int64, rec *storage.Record) error {
	var lane, salt int32
	var state int16
	var due, created, ended, timeout int64
	var text, unique []byte
	var group *string
	err := row.Scan(&lane, &state, &rec.Priority, &due, &created, &ended, &timeout, &salt, &rec.Attempt, &rec.Retry, &rec.Crashes, &rec.Snoozes,
		&rec.Cancelling, &rec.Reason, &text, &rec.Policy, &rec.Headers, &rec.Args, &unique, &group, &rec.Queue, &rec.Kind)
	if rec.Unique = string(unique); group != nil {
		_, rec.Group = rules.SplitGroup(*group)
	}
	rec.Key, rec.ID, rec.State, rec.Error = key, jobID(created, salt, key), states[state], string(text)
	rec.CreatedAt, rec.DueAt, rec.Timeout = fromMicros(created), fromMicros(due), fromLength(timeout)
	if ended != 0 {
		rec.EndedAt = fromMicros(ended)
	}
	return err
}

func scanFailure(row pgx.CollectableRow) (f storage.Failure, err error) {
	var at, took int64
	var phase, text, stack, instance []byte
	err = row.Scan(&f.Attempt, &at, &phase, &text, &stack, &took, &instance, &f.RetryAfter, &f.Args)
	f.At, f.Duration = fromMicros(at), fromLength(took)
	f.Phase, f.Error, f.Stack, f.Instance = string(phase), string(text), string(stack), string(instance)
	return f, err
}
