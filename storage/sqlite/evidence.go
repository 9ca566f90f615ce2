package sqlite

import (
	"database/sql"
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	sqlLaneOf     = `SELECT lane FROM main.errand_job WHERE id = ?1 AND token = ?2 AND state = 3`
	sqlSuccess    = `SELECT n FROM main.errand_number WHERE id = ?1`
	sqlSetSuccess = `UPDATE main.errand_number SET n = MAX(n, ?) WHERE id = ?`
	// A job that was asked to stop is gone.
	sqlSetError = `INSERT INTO main.errand_error (job, token, error) SELECT id, token, ?3 FROM main.errand_job WHERE id = ?1 AND token = ?2
ON CONFLICT DO UPDATE SET token = excluded.token, error = excluded.error`
	sqlDeleteError = `DELETE FROM main.errand_error WHERE job = ?1`
)

// successNumber is the number of a lane under which its last success is noted.
const successNumber = 17

// unavailable puts a job back unspent, unless others have reached the other side.
func (t *tx) unavailable(now time.Time, f *storage.Finish, e storage.Effect, keep *storage.Retention) (storage.ItemResult, error) {
	var lane int64
	err := t.row(sqlLaneOf, []any{f.Key, f.Token}, &lane)
	if errors.Is(err, sql.ErrNoRows) {
		return t.notHeld(f.Lease)
	}
	if err != nil {
		return 0, err
	}
	success, err := t.success(lane)
	if err != nil {
		return 0, err
	}
	if f.Spent != nil && f.Spent.Outcome != storage.OutcomeUnavailable && f.Since != 0 && success > f.Since {
		spent := *f.Spent
		spent.Lease = f.Lease
		result, err := t.finish(now, &spent, keep)
		if result == storage.Applied {
			result = storage.Spent
		}
		return result, err
	}
	unspent := *f
	unspent.Failure = nil
	result, err := t.reschedule(now, &unspent, e, keep)
	if err != nil || result != storage.Applied {
		return result, err
	}
	_, err = t.exec(sqlSetError, f.Key, f.Token, f.Error)
	return result, err
}

// success returns the token of the last attempt of a lane that has ended well, and
// has successes of the lane noted from now on.
func (t *tx) success(lane int64) (token int64, err error) {
	err = t.row(sqlSuccess, []any{lane*laneNumbers + successNumber}, &token)
	if errors.Is(err, sql.ErrNoRows) {
		if _, err = t.exec(sqlAddNumber, lane*laneNumbers+successNumber, 0); err == nil {
			t.meta.gen++ // for all caches
		}
	}
	token = max(token, t.successes[lane])
	if t.successes == nil {
		t.successes = map[int64]int64{}
	}
	t.successes[lane] = token
	return token, err
}

// watches reports whether successes of a lane are noted, or may be: transactions of
// the application do not bring the cache up to date.
func (t *tx) watches(lane int64) bool {
	_, ok := t.successes[lane]
	return ok || t.stmts == nil || t.store.cache.watches(lane) || t.store.cache.stale(t.was.gen)
}

// succeeded notes that an attempt has ended well.
func (t *tx) succeeded(lane, token int64) {
	if !t.watches(lane) {
		return
	}
	if t.successes == nil {
		t.successes = map[int64]int64{}
	}
	t.successes[lane] = max(t.successes[lane], token)
}

// flushSuccesses writes what succeeded has noted.
func (t *tx) flushSuccesses() error {
	for lane, token := range t.successes {
		if _, err := t.exec(sqlSetSuccess, token, lane*laneNumbers+successNumber); err != nil {
			return err
		}
	}
	return nil
}
