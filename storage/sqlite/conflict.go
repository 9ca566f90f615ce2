package sqlite

import (
	"bytes"
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

// windowed reports whether the key may be held without a live job, but not for ever.
func (k *keyRow) windowed() bool { return k.until > 0 && k.until < forever }

// windowOver reports whether a key is free whose holder had it for a time. A time that
// began later than now begins anew, as the clock was set back.
func (t *tx) windowOver(at int64, key string, k *keyRow) (bool, error) {
	live, err := t.live(k.id())
	if err != nil || live {
		return false, err
	}
	if k.created > at && k.until > k.created {
		k.until = at + k.until - k.created
		t.renewed++
		if _, err := t.exec(sqlKeyWindow, key, k.until); err != nil {
			return false, err
		}
	}
	return k.until <= at, nil
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
	if err != nil || next.job == 0 && until > at {
		return err
	}
	if _, err = t.exec(sqlDropKey, key); err != nil || next.job == 0 {
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

// enterOrReplace is enter for a job with a Conflict, which may change the holder.
func (t *tx) enterOrReplace(now time.Time, r *jobRow, j *storage.NewJob, e *storage.Enqueued) (storage.ID, error) {
	c, key := j.Conflict, r.UniqueKey.String
	if c.Merge != nil {
		holder, stale, err := t.unmerged(r, c)
		if stale != nil || err != nil {
			e.Duplicate, e.Unmerged = true, stale
			return holder, err
		}
	}
	holder, err := t.enter(now, r, keyUntil(r, j))
	if err != nil || holder.IsZero() {
		return holder, err
	}
	if c.Mode == storage.Fail {
		d := &storage.DuplicateError{ID: holder}
		if err := t.row(sqlKeyGone, []any{key, micros(now)}, &d.Gone); err != nil {
			return holder, err
		}
		return holder, d
	}
	if !c.Replaces() {
		return holder, nil
	}
	h, err := t.keyHolder(key)
	if err != nil {
		return holder, err
	}
	var w jobRow
	waits, err := t.waiting(key, &h, c, &w)
	if err != nil {
		return holder, err
	}
	if waits {
		e.Replaced = true
		return w.id(), t.replace(now, &w, j)
	}
	live, err := t.live(holder)
	if err != nil || !live && !h.windowed() || live && (h.until == forever || j.Group != "") {
		return holder, err
	}
	if h.windowed() && h.until > r.DueAt {
		r.State, r.DueAt, r.Delay = scheduled, h.until, h.until-r.CreatedAt
		if r.option, err = t.newOption(now, r, j); err != nil {
			return holder, err
		}
	}
	if live {
		return storage.ID{}, t.follow(now, r, keyUntil(r, j))
	}
	if err := t.takeKey(r, keyUntil(r, j)); err != nil {
		return holder, err
	}
	return storage.ID{}, t.admit(now, r)
}

// waiting reads the job with a key that c may change, and reports whether there is one.
func (t *tx) waiting(key string, h *keyRow, c *storage.Conflict, w *jobRow) (bool, error) {
	job := h.job
	if h.until != 0 && h.until != forever {
		next, err := t.follower(key)
		if err != nil {
			return false, err
		}
		job = cmp.Or(next.job, job)
	}
	err := t.row(sqlJob, []any{job}, w.dest(&w.State)...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil && w.State != running && (c.Mode != storage.After || w.Attempt == 0), err
}

// unmerged returns the holder and what the args of a job are to be made of, or nil if they
// were made of the job that waits.
func (t *tx) unmerged(r *jobRow, c *storage.Conflict) (holder storage.ID, stale *storage.Unmerged, err error) {
	h, err := t.keyHolder(r.UniqueKey.String)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return holder, nil, err
	}
	var w jobRow
	waits := false
	if err == nil {
		if waits, err = t.waiting(r.UniqueKey.String, &h, c, &w); err == nil && waits && w.Beside {
			err = t.row(sqlPayload, []any{w.ID}, &w.Headers, &w.Args)
		}
		if err != nil {
			return holder, nil, err
		}
	}
	if old := c.Merge.Old; waits == (old != nil) && (!waits || bytes.Equal(old, w.Args)) {
		return holder, nil, nil
	}
	stale = new(storage.Unmerged)
	if waits {
		stale.Found = append([]byte{}, w.Args...)
	}
	return h.id(), stale, nil
}

// replace has a job that waits do what j is to do.
func (t *tx) replace(now time.Time, w *jobRow, j *storage.NewJob) error {
	was, at, c := w.facts, micros(now), j.Conflict
	due := w.DueAt
	if c.Fresh {
		if w.State == scheduled && w.Attempt > 0 && due > at {
			due = at
		}
		w.Retry, w.Crashes, w.Snoozes = 0, 0, 0
	}
	due = dueMicros(c.Due(now, fromMicros(w.CreatedAt), fromMicros(due)))
	m, err := t.membership(&was)
	if err != nil {
		return err
	}
	rest := rewrite{args: true, member: m, as: m.Role}
	d := delta{change: setWork, was: &was, row: w, rest: &rest, tell: nobody}
	if due != w.DueAt {
		w.DueAt, w.Delay = due, max(due-at, 0)
		rest.delay, rest.moves, d.tell = w.Delay, m.GroupKey != "", everybody
		if w.State = ready; due > at {
			w.State = scheduled
		}
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
