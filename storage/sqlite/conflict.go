package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlClaimKey = `INSERT INTO main.errand_unique (key, job, salt, created_at, until) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING`
	sqlReleaseKey = `DELETE FROM main.errand_unique WHERE key = ? AND job = ? AND until = 0`

	// errand_job comes first, as most holders live. 3: who is behind waits for a date, see sqlLetIn.
	sqlKey = `SELECT slot, job, salt, created_at, max(until, 0), since,
CASE WHEN slot = 1 AND EXISTS (SELECT 1 FROM main.errand_job WHERE id = job AND state = 7 AND delay = 0) THEN 3 WHEN EXISTS (SELECT 1 FROM main.errand_job WHERE id = job) THEN 2
WHEN EXISTS (SELECT 1 FROM main.errand_finished WHERE id = job) OR EXISTS (SELECT 1 FROM main.errand_dead WHERE id = job) THEN 1 ELSE 0 END
FROM main.errand_unique WHERE key = ?`
	sqlWriteKey = `INSERT INTO main.errand_unique (key, slot, job, salt, created_at, until, since) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET job = excluded.job, salt = excluded.salt, created_at = excluded.created_at, until = excluded.until, since = excluded.since`
	sqlDropKey = `DELETE FROM main.errand_unique WHERE key = ? AND slot = ?`

	// The bounds are literals, or the index would not be used.
	sqlNextWindow  = `SELECT until FROM main.errand_unique WHERE until > 0 AND until < 9223372036854775807 AND slot = 0 ORDER BY until LIMIT 1`
	sqlOverWindows = `SELECT key FROM main.errand_unique WHERE until > 0 AND until < 9223372036854775807 AND slot = 0 AND until <= ?1 ORDER BY until LIMIT 500`

	sqlHolderBefore = `SELECT h.job, h.salt, h.created_at FROM main.errand_job j JOIN main.errand_unique h ON h.key = j.unique_key AND h.slot = 0 WHERE j.id = ?1`
)

// ruleRows is [rules.Rows] of a transaction. With one writer nothing is to be locked.
type ruleRows struct {
	*tx
	groups map[string]rules.Group // as tallies has read them
	waiter jobRow                 // of the Waiting of the last key
}

// Load implements [rules.Rows].
func (t *ruleRows) Load(n rules.Need) (err error) {
	if len(n.Groups) > 0 {
		t.groups, err = t.tallies(n.Groups)
	}
	return err
}

// Key implements [rules.Rows].
func (t *ruleRows) Key(name string, c *storage.Conflict) (*rules.Key, error) {
	k, err := t.key(name)
	of := k.Last()
	if err != nil || !c.Replaces() || of.Job == 0 {
		return k, err
	}
	w := &t.waiter
	if err := t.row(sqlJob, []any{of.Job}, w.dest(&w.State)...); errors.Is(err, sql.ErrNoRows) {
		return k, nil
	} else if err != nil {
		return nil, err
	}
	if w.Beside && c.Merge != nil {
		if err := t.row(sqlPayload, []any{w.ID}, &w.Headers, &w.Args); err != nil {
			return nil, err
		}
	}
	k.Waiting = &rules.Waiting{State: stateNames[w.State], Created: w.CreatedAt, Due: w.DueAt, Counters: w.counters(), Args: w.Args}
	return k, nil
}

// key reads a unique key, but for its Waiting.
func (t *tx) key(name string) (*rules.Key, error) {
	k := &rules.Key{Name: name}
	var slot, where int64
	var w rules.Keeper
	err := t.each(sqlKey, []any{name}, []any{&slot, &w.Job, &w.Salt, &w.Created, &w.Until, &w.Since, &where}, func() {
		if slot != 0 {
			k.Behind, k.Dated = w, where == 3
			return
		}
		k.Holder, k.Live, k.Kept = w, where == 2, where == 1
	})
	k.Were = [2]rules.Keeper{k.Holder, k.Behind}
	return k, err
}

// writeKey writes what has changed of a key since it was read. The until of a holder with a job
// behind it is -1 in place of 0: so sqlReleaseKey passes it over, and other jobs pay nothing
// for it.
func (t *tx) writeKey(k *rules.Key) error {
	were, are := k.Were, [2]rules.Keeper{k.Holder, k.Behind}
	for _, of := range []*[2]rules.Keeper{&were, &are} {
		if of[1].Job != 0 && of[0].Until == 0 {
			of[0].Until = -1
		}
	}
	for slot, is := range are {
		var err error
		switch {
		case is == were[slot]:
			continue
		case is.Job == 0:
			_, err = t.exec(sqlDropKey, k.Name, slot)
		default:
			_, err = t.exec(sqlWriteKey, k.Name, slot, is.Job, is.Salt, is.Created, is.Until, is.Since)
		}
		if err != nil {
			return err
		}
		t.keysWritten++
	}
	return nil
}

// claimKey has a new job have its unique key, or says whose it is. It has a job that waits do
// what the new one is to do.
func (t *tx) claimKey(now time.Time, r *jobRow, j *storage.NewJob) (c rules.Claim, err error) {
	if j.Conflict == nil || j.Conflict.Merge == nil { // mostly nobody has it
		n, err := t.execCount(sqlClaimKey, j.Unique, r.ID, r.Salt, r.CreatedAt, rules.Until(j, r.CreatedAt, r.DueAt))
		if n > 0 || err != nil {
			return rules.Claim{Verdict: rules.Succeed}, err
		}
	}
	var d rules.Delta
	rows := ruleRows{tx: t}
	c, err = rules.ClaimKey(&rows, now, j, rules.Keeper{Job: r.ID, Created: r.CreatedAt, Salt: r.Salt}, r.DueAt, &d)
	if err == nil {
		err = t.decided(&d)
	}
	switch {
	case err != nil:
	case c.Verdict == rules.Change:
		err = t.replace(now, &rows.waiter, &c, j)
	case c.Due != 0:
		r.State, r.DueAt, r.Delay = scheduled, c.Due, c.Due-r.CreatedAt
		r.option, err = t.newOption(now, r, j)
	}
	if c.Verdict == rules.Follow {
		r.block()
	}
	return c, err
}

// releaseKey frees the unique key of a job that leaves its table, if it has it no longer.
func (t *tx) releaseKey(f *facts, e *departure) error {
	n, err := t.execCount(sqlReleaseKey, f.UniqueKey.String, f.ID)
	if n > 0 || err != nil {
		return err
	}
	var d rules.Delta
	if err := rules.ReleaseKey(&ruleRows{tx: t}, f.UniqueKey.String, f.ID, e.at, e.state != 0, &d); err != nil {
		return err
	}
	return t.decided(&d)
}

// forgoKey has a job that is about to be evicted hold its unique key no longer than it lives, if its
// handler was never called.
func (t *tx) forgoKey(f *facts) error {
	if !f.UniqueKey.Valid || f.Attempt > 0 {
		return nil
	}
	var d rules.Delta
	if err := rules.ForgoKey(&ruleRows{tx: t}, f.UniqueKey.String, f.ID, &d); err != nil {
		return err
	}
	return t.decided(&d)
}

// ReleaseUnique implements [storage.Store].
func (s *Store) ReleaseUnique(ctx context.Context, key string) (holder storage.ID, err error) {
	found := false
	err = s.submit(ctx, &request{ends: true, run: func(t *tx) error {
		k, err := t.key(key)
		if found = k.Holder.Job != 0; err != nil || !found {
			return err // not found is an answer, not an error: an error would make the batch run again
		}
		k.EndTime()
		holder = k.Holder.ID()
		return cmp.Or(t.writeKey(k), t.did(ctx, 0))
	}})
	if err == nil && !found {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.ID{}, err
	}
	return holder, nil
}

// replace has a job that waits do what j is to do.
func (t *tx) replace(now time.Time, w *jobRow, c *rules.Claim, j *storage.NewJob) error {
	was := w.facts
	w.Retry, w.Crashes, w.Snoozes = int64(c.Is.Retry), int64(c.Is.Crashes), int64(c.Is.Snoozes)
	m, err := t.membership(&was)
	if err != nil {
		return err
	}
	rest := rewrite{args: true, member: m, as: m.Role}
	d := delta{change: setWork, was: &was, row: w, rest: &rest, tell: nobody}
	if c.Put {
		w.DueAt, w.Delay, w.State = c.Is.Due, c.Is.Delay, codeOf(c.Is.State)
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
func (t *tx) forgetWindows(at int64, step int) error {
	var keys []string
	var key string
	if err := t.each(sqlOverWindows, []any{at}, []any{&key}, func() { keys = append(keys, key) }); err != nil {
		return err
	}
	for _, key := range keys[:min(len(keys), step)] {
		k, err := t.key(key)
		if err != nil {
			return err
		}
		k.EndTime()
		if err := t.writeKey(k); err != nil {
			return err
		}
	}
	return nil
}

// holderBefore returns the holder of the unique key of a job that waits behind it.
func holderBefore(tx *sqlx.Tx, job int64) (storage.ID, error) {
	var k rules.Keeper
	err := tx.QueryRow(sqlHolderBefore, job).Scan(&k.Job, &k.Salt, &k.Created)
	if errors.Is(err, sql.ErrNoRows) { // damage
		err = nil
	}
	return k.ID(), err
}
