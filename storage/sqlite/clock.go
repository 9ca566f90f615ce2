package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlClock = `SELECT clock, shifting FROM main.errand_meta`
	// Limits and offsets are no parameters, see sqlPromote. A step is 1,000 live
	// jobs, whether or not they have to be shifted, or shiftDead dead ones.
	sqlShiftEnd = `SELECT id FROM main.errand_job WHERE id > ?1 ORDER BY id LIMIT 1 OFFSET 999`
	// Without a delay it is over at a date, but what lets jobs through may not close for years.
	sqlShiftHolds = `UPDATE main.errand_hold SET since = MIN(since, ?1), let_at = MIN(let_at, ?1),
until = CASE WHEN (delay <> 0 OR probe = 1) AND until - ABS(delay) > ?1 THEN ?2 + ABS(delay) ELSE until END
WHERE since > ?1 OR let_at > ?1 OR (delay <> 0 OR probe = 1) AND until - ABS(delay) > ?1`
	sqlShiftDead = `UPDATE main.errand_dead SET ended_at = ?1 WHERE id IN
(SELECT id FROM main.errand_dead WHERE ended_at > ?1 ORDER BY ended_at LIMIT 500)`
)

var _ storage.Timekeeper = (*Store)(nil)

const (
	// clockPace is by how much the clock of the counters may lag, in
	// microseconds, if a write changes nothing else: a commit for the clock alone
	// comes at most once a second.
	clockPace = 1_000_000
	shiftDead = 500
)

// seen takes note of the time that a write was given, and returns it in
// microseconds.
func (t *tx) seen(now time.Time) int64 {
	at := micros(now)
	t.at = max(t.at, at)
	return at
}

// keepClock sets the clock to the latest time that the transaction was given. What
// is written in it has that time: if the clock lagged, a queue that goes on from it
// after a reboot would date new jobs before this one. It costs no page, as
// nearly all that writes a job writes numbers beside the clock.
func (t *tx) keepClock() {
	at := t.at
	switch {
	case at <= t.meta.clock:
	case t.changes(), at-t.meta.clock >= clockPace:
		t.meta.clock = at
	default:
		t.after = append(t.after, func() { raise(&t.store.floor.unkept, at) })
	}
}

// changes reports whether the transaction leaves anything behind that may have its time, see
// the function of this name.
func (t *tx) changes() bool { return t.stmts == nil || t.stmts.changed || t.meta != t.was }

// unkept reports whether the clock lags behind a write that left nothing with its time. It lags by
// less than clockPace, unless somebody has stepped it since.
func (t *tx) unkept() bool {
	lag := t.store.floor.unkept.Load() - t.meta.clock
	return lag > 0 && lag < clockPace
}

// Clock implements [storage.Timekeeper].
func (s *Store) Clock(ctx context.Context) (latest time.Time, shifting bool, err error) {
	var row struct {
		Clock    int64
		Shifting bool
	}
	err = s.reading(ctx, s.inner, func(tx *sqlx.Tx) error { return tx.Get(&row, sqlClock) })
	return timeOrZero(row.Clock), row.Shifting, err
}

// StepClock implements [storage.Timekeeper].
func (s *Store) StepClock(ctx context.Context, now time.Time, after int64) (next int64, err error) {
	err = s.submit(ctx, &request{work: shiftDead, run: func(t *tx) (err error) {
		next, err = t.stepClock(now, after)
		return err
	}})
	if err != nil {
		return 0, err
	}
	return next, nil
}

// stepClock shifts live jobs by key, and when there are no more of them the
// dead ones by when they died, for which keys beyond the last one stand.
func (t *tx) stepClock(now time.Time, after int64) (next int64, err error) {
	at := micros(now)
	t.at, t.meta.clock = min(t.at, at), min(t.meta.clock, at)
	held, err := t.execCount(sqlShiftHolds, at, rules.Due(now))
	if err != nil {
		return 0, err
	}
	if held > 0 {
		t.manyHoldsChange()
	}
	end := int64(math.MaxInt64)
	err = t.row(sqlShiftEnd, []any{after}, &next)
	switch {
	case err == nil:
		end = next
	case !errors.Is(err, sql.ErrNoRows):
		return 0, err
	}
	if _, err := t.apply(&delta{change: setEarly, low: after, high: end, at: at, up: rules.Due(now)}); err != nil {
		return 0, err
	}
	if err := t.shiftWindows(now, after, end); err != nil {
		return 0, err
	}
	if next == 0 {
		res, err := t.exec(sqlShiftDead, at)
		if err != nil {
			return 0, err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return 0, err
		}
		t.stmts.wrote += int(n)
		if n == shiftDead {
			next = max(after, storage.MaxKey) + 1
		}
	}
	t.meta.shifting = 0
	if next != 0 {
		t.meta.shifting = 1
	}
	return next, nil
}
