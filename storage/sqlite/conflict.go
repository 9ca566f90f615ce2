package sqlite

import (
	"cmp"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// hasFollower is whether a job waits behind the holder of a key. The until of the holder
	// is -1 then, unless it has the key for a time: so sqlReleaseKey passes it over, and
	// other jobs pay nothing for it.
	hasFollower     = `EXISTS (SELECT 1 FROM main.errand_unique f WHERE f.key = ?1 AND f.slot = 1)`
	sqlFollower     = `SELECT job, salt, created_at, until FROM main.errand_unique WHERE key = ?1 AND slot = 1`
	sqlFollow       = `INSERT INTO main.errand_unique (key, slot, job, salt, created_at, until) VALUES (?1, 1, ?2, ?3, ?4, ?5)`
	sqlFollowed     = `UPDATE main.errand_unique SET until = -1 WHERE key = ?1 AND slot = 0 AND until = 0`
	sqlUnfollow     = `DELETE FROM main.errand_unique WHERE key = ?1 AND slot = 1`
	sqlNextHolder   = `UPDATE main.errand_unique SET slot = 0 WHERE key = ?1 AND slot = 1`
	sqlHolderBefore = `SELECT h.job, h.salt, h.created_at FROM main.errand_job j JOIN main.errand_unique h ON h.key = j.unique_key AND h.slot = 0 WHERE j.id = ?1`
	sqlEndWindow    = `UPDATE main.errand_unique SET until = CASE WHEN ` + hasFollower + ` THEN -1 ELSE 0 END WHERE key = ?1 AND slot = 0`

	sqlTakeKey = `UPDATE main.errand_unique SET job = ?2, salt = ?3, created_at = ?4, until = ?5 WHERE key = ?1 AND slot = 0`
	// sqlReleaseKey has found nothing.
	sqlKeyOf     = `SELECT slot, until FROM main.errand_unique WHERE key = ?1 AND job = ?2`
	sqlKeyWindow = `UPDATE main.errand_unique SET until = ?2 WHERE key = ?1 AND slot = 0`

	// The bounds are literals, or the index would not be used.
	sqlNextWindow  = `SELECT until FROM main.errand_unique WHERE until > 0 AND until < 9223372036854775807 AND slot = 0 ORDER BY until LIMIT 1`
	sqlOverWindows = `SELECT key, job, salt, created_at FROM main.errand_unique WHERE until > 0 AND until < 9223372036854775807 AND slot = 0 AND until <= ?1 ORDER BY until LIMIT 500`
)

// rule returns what the rules know of a key.
func (k *keyRow) rule() rules.Key { return rules.Key{Created: k.created, Until: max(k.until, 0)} }

// over reports whether a key is free whose holder had it for a time.
func (t *tx) over(at int64, key string, h *keyRow) (over bool, err error) {
	k := h.rule()
	if k.Live, err = t.live(h.id()); err == nil && k.Renew(at) {
		h.until = k.Until
		t.renewed++
		_, err = t.exec(sqlKeyWindow, key, k.Until)
	}
	return k.Over(at), err
}

// takeKey makes a job the holder of its unique key, whoever has held it.
func (t *tx) takeKey(r *jobRow, until int64) error {
	_, err := t.exec(sqlTakeKey, r.UniqueKey.String, r.ID, r.Salt, r.CreatedAt, until)
	return err
}

// releaseKey frees the unique key of a job that ends at, if it holds it no longer.
func (t *tx) releaseKey(f *facts, at int64) error {
	key := f.UniqueKey.String
	n, err := t.execCount(sqlReleaseKey, key, f.ID)
	if n > 0 || err != nil {
		return err
	}
	var slot, until int64
	switch err := t.row(sqlKeyOf, []any{key, f.ID}, &slot, &until); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case slot == 1:
		_, err := t.exec(sqlUnfollow, key)
		return err
	}
	next, err := t.follower(key)
	if err != nil {
		return err
	}
	k := keyRow{until: until}
	rule := k.rule()
	heir := rule.Ended(at, next.job != 0)
	if heir == rules.Holder {
		return nil
	}
	if _, err = t.exec(sqlDropKey, key); err != nil || heir == rules.Nobody {
		return err
	}
	if _, err := t.exec(sqlNextHolder, key); err != nil {
		return err
	}
	return t.unblock(next.job, math.MinInt64, rules.NoRole)
}

// follower returns who waits behind the holder of a key, a row without a job if nobody
// does.
func (t *tx) follower(key string) (k keyRow, err error) {
	err = t.row(sqlFollower, []any{key}, &k.job, &k.salt, &k.created, &k.until)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return k, err
}

// follow enters a job behind the holder of its key, which is live.
func (t *tx) follow(now time.Time, r *jobRow, until int64) error {
	r.block()
	if _, err := t.exec(sqlFollow, r.UniqueKey.String, r.ID, r.Salt, r.CreatedAt, until); err != nil {
		return err
	}
	if _, err := t.exec(sqlFollowed, r.UniqueKey.String); err != nil {
		return err
	}
	return t.admit(now, r)
}

// refusal completes the error of the job at an index of a call, whose first new job would
// have had the key first.
func refusal(err error, index int, first int64) error {
	var d *storage.DuplicateError
	if errors.As(err, &d) {
		d.Index = index
		if d.ID.Key() >= first { // of the same call, and so never there
			d.ID, d.Gone = storage.ID{}, false
		}
	}
	return err
}

// heldKey is what is read of a unique key for a job with a Conflict.
type heldKey struct {
	rules.Key
	holder storage.ID
	waiter jobRow // of Waiting
}

// enterOrReplace is enter for a job with a Conflict, which may change the holder.
func (t *tx) enterOrReplace(now time.Time, r *jobRow, j *storage.NewJob, e *storage.Enqueued) (storage.ID, error) {
	var k heldKey
	if j.Conflict.Merge != nil {
		if err := t.readKey(&k, j); err != nil {
			return k.holder, err
		}
		if e.Unmerged = k.Unmerged(j.Conflict); e.Unmerged != nil {
			e.Duplicate = true
			return k.holder, nil
		}
	}
	holder, err := t.enter(now, r, rules.Until(j, r.CreatedAt, r.DueAt))
	if err != nil || holder.IsZero() {
		return holder, err
	}
	if j.Conflict.Replaces() {
		if err := t.readKey(&k, j); err != nil {
			return holder, err
		}
	}
	verdict := k.Conflict(j)
	switch verdict {
	case rules.Duplicate:
		return holder, nil
	case rules.Refuse:
		d := &storage.DuplicateError{ID: holder}
		if err := t.row(sqlKeyGone, []any{j.Unique, micros(now)}, &d.Gone); err != nil {
			return holder, err
		}
		return holder, d
	case rules.Change:
		e.Replaced = true
		return k.waiter.id(), t.replace(now, &k, j)
	}
	if k.Until > r.DueAt {
		r.State, r.DueAt, r.Delay = scheduled, k.Until, k.Until-r.CreatedAt
		if r.option, err = t.newOption(now, r, j); err != nil {
			return holder, err
		}
	}
	until := rules.Until(j, r.CreatedAt, r.DueAt)
	if verdict == rules.Follow {
		return storage.ID{}, t.follow(now, r, until)
	}
	if err := t.takeKey(r, until); err != nil {
		return holder, err
	}
	return storage.ID{}, t.admit(now, r)
}

// readKey reads the unique key of a job, and the job that may be changed for it.
func (t *tx) readKey(k *heldKey, j *storage.NewJob) error {
	*k = heldKey{}
	h, err := t.keyHolder(j.Unique)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	job := h.job
	if err == nil && h.until != 0 && h.until != rules.Forever {
		var next keyRow
		next, err = t.follower(j.Unique)
		job = cmp.Or(next.job, job)
	}
	if err != nil {
		return err
	}
	k.Key, k.holder = h.rule(), h.id()
	w := &k.waiter
	if err := t.row(sqlJob, []any{job}, w.dest(&w.State)...); errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	if w.Beside && j.Conflict.Merge != nil {
		if err := t.row(sqlPayload, []any{w.ID}, &w.Headers, &w.Args); err != nil {
			return err
		}
	}
	k.Live = true
	k.Waiting = &rules.Waiting{State: stateNames[w.State], Created: w.CreatedAt, Due: w.DueAt, Counters: w.counters(), Args: w.Args}
	return nil
}

// replace has a job that waits do what j is to do.
func (t *tx) replace(now time.Time, k *heldKey, j *storage.NewJob) error {
	w := &k.waiter
	was := w.facts
	is, put := k.Waiting.Replaced(now, j.Conflict)
	w.Retry, w.Crashes, w.Snoozes = int64(is.Retry), int64(is.Crashes), int64(is.Snoozes)
	m, err := t.membership(&was)
	if err != nil {
		return err
	}
	rest := rewrite{args: true, member: m, as: m.Role}
	d := delta{change: setWork, was: &was, row: w, rest: &rest, tell: nobody}
	if put {
		w.DueAt, w.Delay, w.State = is.Due, is.Delay, codeOf(is.State)
		rest.delay, rest.moves, d.tell = w.Delay, m.GroupKey != "", everybody
		if rest.as, err = t.place(&was, w, m, "", true, &rest.delay); err != nil {
			return err
		}
		if w.Options&hasOption != 0 {
			if err := t.beginAnew(now, w, j.Doubtful); err != nil {
				return err
			}
		}
	}
	if err := t.forgetKept(&was); err != nil {
		return err
	}
	w.Priority, w.Headers, w.Args = j.Priority, j.Headers, j.Args
	_, err = t.apply(&d)
	return err
}

// forgetWindows forgets the times for which keys were to be held that are over, and the
// keys that nothing else holds.
func (t *tx) forgetWindows(at int64) error {
	var keys []string
	var holders []keyRow
	var key string
	var k keyRow
	err := t.each(sqlOverWindows, []any{at}, []any{&key, &k.job, &k.salt, &k.created}, func() {
		keys, holders = append(keys, key), append(holders, k)
	})
	if err != nil {
		return err
	}
	for i, key := range keys {
		live, err := t.live(holders[i].id())
		if err != nil {
			return err
		}
		if live {
			_, err = t.exec(sqlEndWindow, key)
		} else {
			_, err = t.exec(sqlDropKey, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holderBefore returns the holder of the unique key of a job that waits behind it.
func holderBefore(tx *sqlx.Tx, job int64) (storage.ID, error) {
	var k keyRow
	err := tx.QueryRow(sqlHolderBefore, job).Scan(&k.job, &k.salt, &k.created)
	if errors.Is(err, sql.ErrNoRows) { // damage
		err = nil
	}
	return k.id(), err
}
