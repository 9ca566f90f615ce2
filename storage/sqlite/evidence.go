package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"hash/fnv"
	"math"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const (
	sqlLaneOf     = `SELECT lane FROM main.errand_job WHERE id = ? AND token = ? AND state = 3`
	sqlSuccess    = `SELECT n FROM main.errand_number WHERE id = ?1`
	sqlSetSuccess = `UPDATE main.errand_number SET n = MAX(n, ?) WHERE id = ?`
	// A job that was asked to stop is gone.
	sqlSetError = `INSERT INTO main.errand_error (job, token, error) SELECT id, token, ?3 FROM main.errand_job WHERE id = ?1 AND token = ?2
ON CONFLICT DO UPDATE SET token = excluded.token, error = excluded.error`
	sqlDeleteError = `DELETE FROM main.errand_error WHERE job = ?`
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

const (
	sqlFindCause   = `SELECT cause FROM main.errand_cause WHERE lane = ?1 AND reason = ?2 AND hash = ?3`
	sqlCountCauses = `SELECT COUNT(*) FROM main.errand_cause WHERE lane = ?1 AND hash <> ?2`
	sqlAddCause    = `INSERT INTO main.errand_cause (cause, lane, reason, hash, n, text, first) VALUES (?1, ?2, ?3, ?4, 0, ?5, 9223372036854775807)`
	sqlCountDeaths = `UPDATE main.errand_cause SET n = n + ?2, first = MIN(first, ?3) WHERE cause = ?1 RETURNING n`
	sqlDropCause   = `DELETE FROM main.errand_cause WHERE cause = ?1`

	// The literal of the partial index is in each condition on cause.
	firstDeath = `(SELECT ended_at FROM main.errand_dead WHERE cause = c.cause AND cause <> 0 ORDER BY ended_at LIMIT 1)`
	lastDead   = `(SELECT id FROM main.errand_dead WHERE cause = c.cause AND cause <> 0 ORDER BY ended_at DESC, id DESC LIMIT 1)`
	sqlCauses  = `SELECT c.cause, queue, kind, c.reason, text, n, COALESCE(first, ` + firstDeath + `) AS first, d.ended_at AS last, d.id, d.salt, d.created_at
FROM (SELECT * FROM main.errand_cause c LEFT JOIN main.errand_lane USING (lane) WHERE (?1 = '' OR queue = ?1) AND (?2 = '' OR kind = ?2)
ORDER BY n DESC, cause LIMIT ?3) c
CROSS JOIN main.errand_dead d ON d.id = ` + lastDead + ` ORDER BY n DESC, c.cause`
)

// sqlDeaths counts no row twice and none beyond the limits: each time is a range of the index.
const sqlDeaths = `WITH RECURSIVE time (i) AS (SELECT 0 WHERE ?4 > 0 UNION ALL SELECT i + 1 FROM time WHERE i < ?4 - 1)
SELECT k.key AS k, i, (SELECT COUNT(*) FROM (SELECT 1 FROM main.errand_dead WHERE cause = k.value AND cause <> 0 AND ended_at >= ?2 + i * ?3 AND ended_at < ?2 + (i + 1) * ?3 LIMIT ?5 + 0)) AS n FROM json_each(?1) k CROSS JOIN time`

// deaths are the causes that a transaction has found, and what it adds to each.
type deaths struct {
	found map[causeName]int64
	added map[int64]*added // by cause, also those found for nothing
}

// added is what a transaction adds to a cause.
type added struct{ n, first int64 }

type causeName struct {
	lane         int64
	reason, text string
}

// of returns what is added to a cause.
func (d *deaths) of(cause int64) *added {
	if d.added == nil {
		d.added = map[int64]*added{}
	}
	if d.added[cause] == nil {
		d.added[cause] = &added{first: math.MaxInt64}
	}
	return d.added[cause]
}

// come counts a dead letter of a cause that died at a time.
func (d *deaths) come(cause, at int64) {
	if cause != 0 { // which stands for none
		a := d.of(cause)
		a.n, a.first = a.n+1, min(a.first, at)
	}
}

// leave counts one of a cause that is no longer dead.
func (d *deaths) leave(cause int64) {
	if cause != 0 {
		d.of(cause).n--
	}
}

// cause returns the number of a cause, creating it if need be.
func (t *tx) cause(lane int64, reason, text string) (id int64, err error) {
	d, name := &t.deaths, causeName{lane, reason, text}
	if id, ok := d.found[name]; ok {
		return id, nil
	}
	hash := hashOf(text)
	err = t.row(sqlFindCause, []any{lane, reason, hash}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		id, err = t.newCause(name, hash)
	}
	if err != nil {
		return 0, err
	}
	if d.found == nil {
		d.found = map[causeName]int64{}
	}
	d.found[name] = id
	d.of(id) // so that it goes if the job turns out not to be there
	return id, nil
}

// blame sets the cause of a job that dies.
func (t *tx) blame(f *facts, text string, e *departure) (err error) {
	if e.state == dead {
		e.cause, err = t.cause(f.Lane, e.reason, text)
	}
	return err
}

// newCause creates a cause, or returns that of all other deaths if the lane has as
// many as it may have.
func (t *tx) newCause(name causeName, hash int64) (id int64, err error) {
	if name.text != storage.OtherCause {
		var n int
		if err := t.row(sqlCountCauses, []any{name.lane, hashOf(storage.OtherCause)}, &n); err != nil {
			return 0, err
		}
		if n >= storage.CauseLimit {
			return t.cause(name.lane, name.reason, storage.OtherCause)
		}
	}
	id = t.token()
	_, err = t.exec(sqlAddCause, id, name.lane, name.reason, hash, name.text)
	return id, err
}

// hashOf returns what is kept of a text in the key of its cause.
func hashOf(text string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return int64(h.Sum64())
}

// flushDeaths writes what the transaction has added to causes, and deletes those
// without a dead letter.
func (t *tx) flushDeaths() error {
	for cause, add := range t.deaths.added {
		var n int64
		err := t.row(sqlCountDeaths, []any{cause, add.n, add.first}, &n)
		if err == nil && n <= 0 {
			_, err = t.exec(sqlDropCause, cause)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) { // damage, which need not stop the others
			return err
		}
	}
	return nil
}

// Causes implements [storage.Store].
func (s *Store) Causes(ctx context.Context, lane storage.Lane, limit int) (out []storage.Cause, err error) {
	var rows []struct {
		Cause, N, First, Last     int64
		Queue, Kind, Reason, Text string
		ID                        int64
		Salt                      uint32
		CreatedAt                 int64 `db:"created_at"`
	}
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		return tx.Select(&rows, sqlCauses, lane.Queue, lane.Kind, max(limit, 0))
	})
	for _, r := range rows {
		out = append(out, storage.Cause{
			ID: r.Cause, Lane: storage.Lane{Queue: r.Queue, Kind: r.Kind}, Reason: storage.Reason(r.Reason), Text: r.Text, N: r.N,
			First: fromMicros(r.First), Last: fromMicros(r.Last), Job: idOf(r.CreatedAt, r.Salt, r.ID),
		})
	}
	return out, err
}

// Deaths implements [storage.Store].
func (s *Store) Deaths(ctx context.Context, causes []int64, from time.Time, each time.Duration, n, most int) ([][]int, error) {
	list, err := json.Marshal(append([]int64{}, causes...)) // null has a row
	if err != nil {
		return nil, err
	}
	var rows []struct{ K, I, N int }
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		return tx.Select(&rows, sqlDeaths, string(list), micros(from), each.Microseconds(), max(n, 0), max(most, 0))
	})
	if err != nil {
		return nil, err
	}
	out := make([][]int, len(causes))
	for k := range out {
		out[k] = make([]int, max(n, 0))
	}
	for _, r := range rows {
		out[r.K][r.I] = r.N
	}
	return out, nil
}
