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
	// Limits and offsets are no parameters alone, see sqlPromote. A step is shiftStep rows of a
	// table, whether or not they have to be shifted, or shiftDead dead jobs, or less where there is
	// no room for as many.
	sqlShiftEnd = `SELECT id FROM main.errand_job WHERE id > ?1 UNION ALL SELECT id FROM main.errand_finished WHERE id > ?1
ORDER BY id LIMIT 1 OFFSET ?2 + 0`
	sqlShiftFinished = `UPDATE main.errand_finished SET purge_at = purge_at - (ended_at - ?3), ended_at = ?3 WHERE id > ?1 AND id <= ?2 AND ended_at > ?3`
	// Without a delay it is over at a date, but what lets jobs through may not close for years.
	sqlShiftHolds = `UPDATE main.errand_hold SET since = MIN(since, ?1), let_at = MIN(let_at, ?1),
until = CASE WHEN (delay <> 0 OR probe = 1) AND until - ABS(delay) > ?1 THEN ?2 + ABS(delay) ELSE until END
WHERE since > ?1 OR let_at > ?1 OR (delay <> 0 OR probe = 1) AND until - ABS(delay) > ?1`
	sqlShiftDead = `UPDATE main.errand_dead SET ended_at = ?1 WHERE id IN
(SELECT id FROM main.errand_dead WHERE ended_at > ?1 ORDER BY ended_at LIMIT ?2 + 0)`
	sqlMessageEnd    = `SELECT message FROM main.errand_message WHERE message > ?1 ORDER BY message LIMIT 1 OFFSET ?2 + 0`
	sqlShiftMessages = `UPDATE main.errand_message SET published_at = ?3,
keep_until = CASE WHEN keep_until > 0 THEN MAX(keep_until - (published_at - ?3), 1) ELSE 0 END,
purge_at = CASE WHEN keep_until > 0 THEN MAX(purge_at - (published_at - ?3), 1) ELSE purge_at END,
dedup_until = CASE WHEN dedup_until > 0 THEN dedup_until - (published_at - ?3) ELSE 0 END
WHERE message > ?1 AND message <= ?2 AND published_at > ?3`
	sqlEntryEnd     = `SELECT entry FROM main.errand_entry WHERE entry > ?1 ORDER BY entry LIMIT 1 OFFSET ?2 + 0`
	sqlShiftEntries = `UPDATE main.errand_entry SET updated_at = ?3 WHERE entry > ?1 AND entry <= ?2 AND updated_at > ?3`
	// By the index of times, from the first bound on; keys that end at one moment go together, however
	// small the step. A job that waits for a date keeps its key.
	sqlKeyEnd = `SELECT until FROM main.errand_unique WHERE until > ?1 AND until > 0 AND until < 9223372036854775807
ORDER BY until LIMIT 1 OFFSET ?2 + 0`
	began        = `CASE since WHEN 0 THEN created_at ELSE since END`
	sqlShiftKeys = `UPDATE main.errand_unique SET until = until - (` + began + ` - ?3), since = ?3
WHERE until > ?1 AND until <= ?2 AND until > 0 AND until < 9223372036854775807 AND ` + began + ` > ?3 AND slot = 0
AND NOT EXISTS (SELECT 1 FROM main.errand_job j WHERE j.id = job AND j.state = 1 AND j.delay = 0)`
	sqlShiftCauses = `UPDATE main.errand_cause SET first = ?1 WHERE first > ?1`
	// When attempts of lanes have ended for the last time, see errand_number.
	sqlShiftLasts = `UPDATE main.errand_number SET n = ?1 WHERE id >= 32 AND id % 32 IN (18, 20) AND n > ?1`
)

var _ storage.Timekeeper = (*Store)(nil)

const (
	// clockPace is by how much the clock of the counters may lag, in
	// microseconds, if a write changes nothing else: a commit for the clock alone
	// comes at most once a second.
	clockPace = 1_000_000
	shiftStep = 1000
	shiftDead = 500
)

// seen takes note of the time that a write was given, and returns it in
// microseconds.
func (t *tx) seen(now time.Time) int64 {
	at := micros(now)
	t.at = max(t.at, at)
	t.beginSample(at)
	return at
}

// keepClock sets the clock to the latest time that the transaction was given. What
// is written in it has that time: if the clock lagged, a queue that goes on from it
// after a reboot would date new jobs before this one. It costs no page, as
// nearly all that writes a job writes numbers beside the clock, or is a new job that has the
// time. With the first time of a SampleEach it writes the sample of that.
func (t *tx) keepClock() error {
	at := t.at
	switch {
	case at <= t.meta.clock:
	case t.changes(), at-t.meta.clock >= clockPace:
		t.meta.clock = at
	default:
		t.after = append(t.after, func() { raise(&t.store.floor.unkept, at) })
	}
	return t.flushSample()
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
	if row.Clock != 0 {
		latest = time.UnixMicro(row.Clock).UTC() // as it is: a time that no clock shows is to be known as one
	}
	return latest, row.Shifting, err
}

// StepClock implements [storage.Timekeeper].
func (s *Store) StepClock(ctx context.Context, now time.Time, after int64) (next int64, err error) {
	r := &request{ends: true, work: shiftDead, step: shiftStep}
	r.run = func(t *tx) (err error) {
		next, err = t.stepClock(now, after, r.step)
		return err
	}
	if err = s.submit(ctx, r); err != nil {
		return 0, err
	}
	return next, nil
}

// A pass goes through the tables one after the other. The place at which a step begins is the
// table, from placeBits on, and below that the last row that is done.
const placeBits = 58

// shifts are the steps over these tables.
var shifts = [...]func(t *tx, now time.Time, after int64, step int) (last int64, more bool, err error){
	(*tx).shiftJobs,
	(*tx).shiftDead,
	func(t *tx, now time.Time, after int64, step int) (int64, bool, error) {
		return t.shiftRows(now, after, step, sqlShiftMessages, sqlMessageEnd)
	},
	func(t *tx, now time.Time, after int64, step int) (int64, bool, error) {
		return t.shiftRows(now, after, step, sqlShiftEntries, sqlEntryEnd)
	},
	func(t *tx, now time.Time, after int64, step int) (int64, bool, error) {
		return t.shiftRows(now, max(after, micros(now)), step, sqlShiftKeys, sqlKeyEnd)
	},
}

func (t *tx) stepClock(now time.Time, after int64, step int) (next int64, err error) {
	at := micros(now)
	t.at, t.meta.clock = min(t.at, at), min(t.meta.clock, at)
	if after == 0 {
		if _, err := t.exec(sqlShiftLasts, at); err != nil {
			return 0, err
		}
		if err := t.shiftSamples(at); err != nil {
			return 0, err
		}
	}
	held, err := t.execCount(sqlShiftHolds, at, rules.Due(now))
	if err != nil {
		return 0, err
	}
	if held > 0 {
		t.manyHoldsChange()
	}
	t.meta.shifting = 0
	table, last := after>>placeBits, after&(1<<placeBits-1)
	for ; table < int64(len(shifts)); table++ {
		to, more, err := shifts[table](t, now, last, step)
		if err != nil {
			return 0, err
		}
		if more {
			t.meta.shifting = 1
			return table<<placeBits | to, nil
		}
		last = 0
	}
	return 0, nil
}

// shiftJobs is a step over live and finished jobs.
func (t *tx) shiftJobs(now time.Time, after int64, step int) (last int64, more bool, err error) {
	if last, more, err = t.shiftRows(now, after, step, sqlShiftFinished, sqlShiftEnd); err != nil {
		return 0, false, err
	}
	if _, err := t.apply(&delta{change: setEarly, low: after, high: last, at: micros(now), up: rules.Due(now)}); err != nil {
		return 0, false, err
	}
	return last, more, t.shiftWindows(now, after, last)
}

// shiftDead is a step over dead jobs, of which the place says nothing. Each step is over all causes:
// between two steps a job that has not been shifted yet may have come to another cause.
func (t *tx) shiftDead(now time.Time, after int64, step int) (last int64, more bool, err error) {
	most := int64(min(step, shiftDead))
	n, err := t.execCount(sqlShiftDead, micros(now), most)
	t.stmts.wrote += int(n)
	if err == nil {
		_, err = t.exec(sqlShiftCauses, micros(now))
	}
	return after + 1, n == most, err
}

// shiftRows is a step over the rows of a table behind one. end finds the last of them, unless
// the table ends before.
func (t *tx) shiftRows(now time.Time, after int64, step int, shift, end string) (last int64, more bool, err error) {
	if err = t.row(end, []any{after, step - 1}, &last); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, false, err
	}
	if more = err == nil && last < 1<<placeBits; !more {
		last = math.MaxInt64
	}
	n, err := t.execCount(shift, after, last, micros(now))
	t.stmts.wrote += int(n)
	return last, more, err
}
