package sqlite

import (
	"cmp"
	"database/sql"
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// commonColumns stand in every table of jobs.
	commonColumns = `id, lane, priority, due_at, token, attempt, retry, crashes, snoozes, salt, created_at, timeout, unique_key, headers, args`

	sqlReschedule = `UPDATE errand_job SET state = ?3, due_at = COALESCE(?4, due_at), delay = ?10,
attempt = attempt + ?5, retry = retry + ?6, snoozes = snoozes + ?7, crashes = crashes * ?8 + ?9,
instance = 0, until = 0, fate = 0, cancelling = 0
WHERE id = ?1 AND token = ?2 AND state = 3 AND cancelling = 0 RETURNING lane, attempt`
	sqlIsCancelling = `SELECT cancelling FROM errand_job WHERE id = ?1 AND token = ?2 AND state = 3`
	sqlKeepFinished = `INSERT INTO errand_finished
(` + commonColumns + `, policy, state, ended_at, purge_at, error)
SELECT id, lane, priority, due_at, token, attempt, retry, 0, snoozes, salt, created_at, timeout, unique_key, headers, args,
policy, ?3, ?4, ?5, ?6
FROM errand_job WHERE id = ?1 AND token = ?2 AND state = 3`
	sqlBury = `INSERT INTO errand_dead
(` + commonColumns + `, policy, in_effect, ended_at, reason, error)
SELECT id, lane, priority, due_at, token, attempt, retry, crashes * ?3 + ?9, snoozes + ?4, salt, created_at, timeout, unique_key, headers, args,
policy, ?5, ?6, ?7, ?8
FROM errand_job WHERE id = ?1 AND token = ?2 AND state = 3`
	// Of a job that has nothing but what each has.
	sqlKeepPlainDone = `INSERT INTO errand_finished (id, lane, state, priority, due_at, token, attempt, retry, crashes, snoozes,
salt, created_at, ended_at, purge_at, timeout, policy, args)
SELECT id, lane, 4, priority, due_at, token, attempt, 0, 0, 0, salt, created_at, ?, ?, 0, 0, args
FROM errand_job WHERE id = ? AND token = ? AND state = 3`
	sqlDeleteLeased = `DELETE FROM errand_job WHERE id = ?1 AND token = ?2 AND state = 3
RETURNING lane, attempt, unique_key, args IS NULL, policy`
	sqlDeleteHeld    = `DELETE FROM errand_job WHERE id = ? AND token = ? AND state = 3`
	sqlDeletePayload = `DELETE FROM errand_payload WHERE job = ?1`
	sqlDeleteHistory = `DELETE FROM errand_history WHERE job = ?1`
	sqlAddHistory    = `INSERT INTO errand_history (job, n, attempt, at, phase, error, stack, duration, instance)
SELECT ?1, COALESCE(MAX(n), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM errand_history WHERE job = ?1`
	sqlTrimHistory = `DELETE FROM errand_history WHERE job = ?1
AND n <= (SELECT MAX(n) FROM errand_history WHERE job = ?1) - ?2`
)

// change is what an outcome that keeps the job alive does to it.
type change struct {
	attempt, retry, snoozes int
	keepCrashes, crashes    int // crashes becomes crashes * keepCrashes + crashes
}

var changes = map[storage.Outcome]change{
	storage.OutcomeRetry:       {retry: 1},
	storage.OutcomeSnooze:      {snoozes: 1},
	storage.OutcomeCrashed:     {keepCrashes: 1, crashes: 1},
	storage.OutcomeInterrupted: {keepCrashes: 1},
	storage.OutcomeReturned:    {attempt: -1, keepCrashes: 1},
}

// finish ends one lease.
func (t *tx) finish(now time.Time, f *storage.Finish) (storage.ItemResult, error) {
	at := micros(now)
	switch f.Outcome {
	case storage.OutcomeDone:
		return t.end(at, f, done)
	case storage.OutcomeCancelled:
		return t.end(at, f, cancelled)
	case storage.OutcomeDead:
		if f.Reason == "" {
			return storage.Refused, nil
		}
		return t.bury(at, f)
	}
	c, ok := changes[f.Outcome]
	if !ok {
		return storage.Refused, nil
	}
	return t.reschedule(now, f, c)
}

func (t *tx) reschedule(now time.Time, f *storage.Finish, c change) (storage.ItemResult, error) {
	at := micros(now)
	state, due, delay := ready, any(at), int64(0)
	event := storage.Event{}
	switch {
	case f.DueAt.IsZero():
		if f.Outcome == storage.OutcomeReturned {
			due = nil // as it was
		}
	default:
		us := dueMicros(f.DueAt)
		due = us
		if f.DueAt.After(now) {
			state, event.Due, delay = scheduled, f.DueAt, us-at
		}
	}
	var lane int64
	var attempt int
	err := t.row(sqlReschedule,
		[]any{f.Key, f.Token, state, due, c.attempt, c.retry, c.snoozes, c.keepCrashes, c.crashes, delay}, &lane, &attempt)
	if errors.Is(err, sql.ErrNoRows) {
		return t.endIfCancelling(at, f)
	}
	if err != nil {
		return 0, err
	}
	t.move(lane, running, state)
	if f.Outcome == storage.OutcomeReturned || f.Outcome == storage.OutcomeInterrupted {
		t.notifyAll(event) // this worker is done with it
	} else {
		t.notify(event)
	}
	if f.Outcome == storage.OutcomeReturned { // there was no attempt that could have failed
		return storage.Applied, nil
	}
	return storage.Applied, t.addHistory(at, f, attempt)
}

// endIfCancelling takes over when a job could not be put back: it was asked to
// stop, or the lease is lost.
func (t *tx) endIfCancelling(at int64, f *storage.Finish) (storage.ItemResult, error) {
	var asked bool
	err := t.row(sqlIsCancelling, []any{f.Key, f.Token}, &asked)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Lost, nil
	}
	if err != nil {
		return 0, err
	}
	return t.end(at, f, cancelled)
}

// end finishes a job for good, keeping its row for a while or not.
func (t *tx) end(at int64, f *storage.Finish, state int) (storage.ItemResult, error) {
	keep := f.Keep.Microseconds()
	held, known := t.store.self.holds(f.Token)
	if keep > 0 {
		var res sql.Result
		var err error
		if known && held.plain && state == done && f.Error == "" {
			res, err = t.exec(sqlKeepPlainDone, at, at+keep, f.Key, f.Token)
		} else {
			res, err = t.exec(sqlKeepFinished, f.Key, f.Token, state, at, at+keep, nullable(f.Error))
		}
		if err != nil {
			return 0, err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return storage.Lost, err
		}
	}
	gone, err := t.remove(f.Lease, held, known)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Lost, nil
	}
	if err != nil {
		return 0, err
	}
	if keep > 0 {
		t.move(gone.lane, running, state)
		return storage.Applied, t.addHistory(at, f, gone.attempt)
	}
	t.move(gone.lane, running, 0)
	t.refer(gone.policy, -1)
	return storage.Applied, t.deleteBelongings(f.Key, gone.attempt > 1, gone.payload)
}

func (t *tx) bury(at int64, f *storage.Finish) (storage.ItemResult, error) {
	policy, err := t.policy(f.Policy)
	if err != nil {
		return 0, err
	}
	crashed, counts, snoozed := 0, 0, 0
	switch f.Reason {
	case storage.ReasonCrashed:
		crashed = 1
		if f.Failure != nil {
			counts = 1
		}
	case storage.ReasonSnoozed:
		snoozed = 1
	}
	res, err := t.exec(sqlBury, f.Key, f.Token, crashed, snoozed, policy, at, string(f.Reason), f.Error, counts)
	if err != nil {
		return 0, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return storage.Lost, err
	}
	held, known := t.store.self.holds(f.Token)
	gone, err := t.remove(f.Lease, held, known)
	if err != nil {
		return 0, err
	}
	t.move(gone.lane, running, dead)
	t.refer(policy, 1)
	return storage.Applied, t.addHistory(at, f, gone.attempt)
}

// removed is what has to be known of a leased job when its row goes. None of it
// changes while the lease is held.
type removed struct {
	lane    int64
	attempt int
	key     sql.NullString
	payload bool
	policy  int64
	plain   bool // nothing was ever done to it, and it has nothing but args, which are not beside
}

// remove deletes the row of a leased job and gives up its unique key. What has
// to be known of it is r, or in the row. It gives [sql.ErrNoRows] if the lease
// is lost.
func (t *tx) remove(l storage.Lease, r removed, known bool) (removed, error) {
	if known {
		res, err := t.exec(sqlDeleteHeld, l.Key, l.Token)
		if err != nil {
			return r, err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return r, cmp.Or(err, sql.ErrNoRows)
		}
		return r, t.releaseKey(r.key, l.Key)
	}
	if err := t.row(sqlDeleteLeased, []any{l.Key, l.Token}, &r.lane, &r.attempt, &r.key, &r.payload, &r.policy); err != nil {
		return r, err
	}
	return r, t.releaseKey(r.key, l.Key)
}

// deleteBelongings deletes what is kept beside a job that is gone.
func (t *tx) deleteBelongings(job int64, history, payload bool) error {
	if history {
		if _, err := t.exec(sqlDeleteHistory, job); err != nil {
			return err
		}
	}
	if payload {
		if _, err := t.exec(sqlDeletePayload, job); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) addHistory(at int64, f *storage.Finish, attempt int) error {
	h := f.Failure
	if h == nil {
		return nil
	}
	instance := h.Instance
	if instance == "" {
		instance = t.store.self.title()
	}
	_, err := t.exec(sqlAddHistory, f.Key, attempt, at, h.Phase, h.Error, h.Stack, h.Duration.Microseconds(), instance)
	if err != nil || attempt <= storage.HistoryLimit {
		return err
	}
	_, err = t.exec(sqlTrimHistory, f.Key, storage.HistoryLimit)
	return err
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}
