package sqlite

import (
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

	// In the order of slots, each with where the job is: 4 stands for errand_job, 0 for nowhere. The numbers
	// are of who is behind, if that is live, see waitingJob; NULL if sqlWaiter is to ask for all of it.
	sqlKey = `SELECT slot +
CASE WHEN j.id IS NOT NULL THEN 4 WHEN EXISTS (SELECT 1 FROM main.errand_finished f WHERE f.id = u.job) OR EXISTS (SELECT 1 FROM main.errand_dead d WHERE d.id = u.job) THEN 2 ELSE 0 END,
u.job, u.salt, u.created_at, u.until, u.since, CASE WHEN slot AND NOT ? THEN j.id || ' ' || lane || ' ' || due_at || ' ' || delay || ' ' || state END
FROM main.errand_unique u LEFT JOIN main.errand_job j ON j.id = u.job WHERE key = ? ORDER BY slot`
	sqlWaiter   = `SELECT ` + wideColumns + `, state, delay FROM main.errand_job WHERE id = ?`
	sqlWriteKey = `INSERT INTO main.errand_unique (key, slot, job, salt, created_at, until, since) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET job = excluded.job, salt = excluded.salt, created_at = excluded.created_at, until = excluded.until, since = excluded.since`
	sqlDropKey = `DELETE FROM main.errand_unique WHERE key = ? AND slot = ?`

	// The bounds are literals, or the index would not be used.
	sqlNextWindow  = `SELECT until FROM main.errand_unique WHERE until > 0 AND until < 9223372036854775807 AND slot = 0 ORDER BY until LIMIT 1`
	sqlOverWindows = `SELECT key FROM main.errand_unique WHERE until > 0 AND until < 9223372036854775807 AND slot = 0 AND until <= ?1 ORDER BY until LIMIT 500`

	sqlHolderBefore = `SELECT h.job, h.salt, h.created_at FROM main.errand_job j JOIN main.errand_unique h ON h.key = j.unique_key AND h.slot = 0 WHERE j.id = ?1`
)

// readKey is the part of know for a unique key.
func (t *tx) readKey(n *rules.NeedKey) error {
	r, replaces := &t.deciding.tx.key, n.Conflict.Replaces()
	*r = keyReading{}
	is, j := &r.is, &r.job
	err := t.each(sqlKey, []any{replaces, n.Name}, []any{&r.slot, &is.Job, &is.Salt, &is.Created, &is.Until, &is.Since, (*waitingJob)(j)}, func() {
		r.has[r.slot&1] = true
		is.Until = max(is.Until, 0) // see writeKey
		t.deciding.tx.ReadKey(n.Name, r.slot&1 == 1, *is, r.slot&4 != 0, r.slot&2 != 0)
		if j.ID != 0 {
			j.Salt, j.Created = is.Salt, is.Created
			t.deciding.tx.ReadJob(*j)
		}
	})
	for slot, has := range r.has {
		if err == nil && !has {
			t.deciding.tx.ReadKey(n.Name, slot == 1, rules.Keeper{}, false, false)
		}
	}
	if err != nil || !replaces || r.slot&4 == 0 {
		return err
	}
	w := &t.deciding.tx.waiter
	*w = jobRow{}
	if err := t.row(sqlWaiter, []any{is.Job}, w.dest(&w.State, &w.Delay)...); err != nil {
		return err
	}
	if n.Conflict.Merge != nil {
		if w.Beside {
			if err := t.row(sqlPayload, []any{w.ID}, &w.Headers, &w.Args); err != nil {
				return err
			}
		}
		if w.Args == nil { // as read from a BLOB of no bytes
			w.Args = []byte{}
		}
	}
	*j = rules.Job{
		ID: w.ID, Lane: w.Lane, Created: w.CreatedAt, Due: w.DueAt, Delay: w.Delay, Salt: w.Salt, State: stateNames[w.State],
		Priority: w.Priority, Counters: w.counters(), Args: w.Args,
	}
	setDelay(j)
	t.deciding.tx.ReadJob(*j)
	return nil
}

// forget drops what was read: the args of a job may be large.
func (x *ruleTx) forget() {
	x.Reset(rules.Need{})
	x.key, x.waiter = keyReading{}, jobRow{}
}

// key reads a unique key, but for its Waiting.
func (t *tx) key(name string) (*rules.Key, error) {
	if err := t.knowKey(name, nil, time.Time{}); err != nil {
		return nil, err
	}
	return t.deciding.tx.Key(name, nil)
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
			return rules.Claim{Admission: rules.Succeed}, err
		}
	}
	if err := t.knowKey(j.Unique, j.Conflict, now); err != nil {
		return c, err
	}
	c, err = t.deciding.tx.Claim(j, rules.Keeper{Job: r.ID, Created: r.CreatedAt, Salt: r.Salt}, r.DueAt)
	if err == nil {
		err = t.writeChanges()
	}
	switch {
	case err != nil:
	case c.Admission == rules.Change:
		err = t.replace(now, &t.deciding.tx.waiter, &c, j)
	case c.Due != 0:
		r.State, r.DueAt, r.Delay = scheduled, c.Due, c.Due-r.CreatedAt
		r.option, err = t.newOption(now, r, j)
	}
	if c.Admission == rules.Follow {
		r.block()
	}
	if j.Conflict.Replaces() {
		t.deciding.tx.forget()
	}
	return c, err
}

// releaseKey frees the unique key of a job that leaves its table, if it has it no longer.
func (t *tx) releaseKey(f *facts, e *departure) error {
	n, err := t.execCount(sqlReleaseKey, f.UniqueKey.String, f.ID)
	if n > 0 || err != nil {
		return err
	}
	key := f.UniqueKey.String
	if err := t.knowKey(key, nil, time.UnixMicro(e.at)); err != nil {
		return err
	}
	if _, err := t.deciding.tx.End(f.ID, key, "", rules.NoRole, stateNames[e.state], e.state != 0); err != nil {
		return err
	}
	return t.writeChanges()
}

// forgoKey has a job that is about to be evicted hold its unique key no longer than it lives, if its
// handler was never called.
func (t *tx) forgoKey(f *facts) error {
	if !f.UniqueKey.Valid || f.Attempt > 0 {
		return nil
	}
	if err := t.knowKey(f.UniqueKey.String, nil, time.Time{}); err != nil {
		return err
	}
	if err := t.deciding.tx.Forgo(f.UniqueKey.String, f.ID); err != nil {
		return err
	}
	return t.writeChanges()
}

// ReleaseUnique implements [storage.Store].
func (s *Store) ReleaseUnique(ctx context.Context, key string) (holder storage.ID, err error) {
	found := false
	err = s.submit(ctx, &request{ends: true, run: func(t *tx) (err error) {
		if found, holder, err = t.endTime(key); err != nil || !found {
			return err // not found is an answer, not an error: an error would make the batch run again
		}
		return t.did(ctx, 0)
	}})
	if err == nil && !found {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.ID{}, err
	}
	return holder, nil
}

// endTime is [rules.Tx.EndTime], as it is written.
func (t *tx) endTime(key string) (found bool, holder storage.ID, err error) {
	if err := t.knowKey(key, nil, time.Time{}); err != nil {
		return false, holder, err
	}
	if found, holder, err = t.deciding.tx.EndTime(key); err == nil {
		err = t.writeChanges()
	}
	return found, holder, err
}

// replace has a job that waits do what j is to do.
func (t *tx) replace(now time.Time, w *jobRow, c *rules.Claim, j *storage.NewJob) error {
	was := w.facts
	m, err := t.membership(&was)
	if err != nil {
		return err
	}
	if err := t.tellRules(m.GroupKey); err != nil {
		return err
	}
	as, err := t.deciding.tx.Replace(c, j, m.GroupKey, m.Role)
	if err != nil {
		return err
	}
	w.Retry, w.Crashes, w.Snoozes = int64(as.Is.Retry), int64(as.Is.Crashes), int64(as.Is.Snoozes)
	rest := rewrite{args: true, was: m, is: membership{m.GroupKey, as.Is.Role}}
	d := delta{change: setWork, was: &was, row: w, rest: &rest, tell: nobody}
	if c.Put {
		w.DueAt, w.Delay, w.State = as.Is.Due, delayOf(&as.Is), codeOf(as.Is.State)
		rest.delay, rest.moves, d.tell = w.Delay, m.GroupKey != "", everybody
		if w.Options&hasOption != 0 {
			if err := t.beginAnew(now, w, j.Doubtful); err != nil {
				return err
			}
		}
	}
	if err := t.forgetKept(&was); err != nil {
		return err
	}
	w.Priority, w.Headers, w.Args = as.Is.Priority, j.Headers, j.Args
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
		if _, _, err := t.endTime(key); err != nil {
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
