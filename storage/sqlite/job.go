package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// A lane that is missing is damage, and no reason to find no job.
	recordFrom = ` j LEFT JOIN main.errand_lane l USING (lane) WHERE`
	ownPolicy  = `, queue, kind, (SELECT doc FROM main.errand_policy p WHERE p.policy = j.policy) AS doc`
	lastPolicy = `, queue, kind, (SELECT doc FROM main.errand_policy p WHERE p.policy = j.in_effect) AS doc`

	sqlLiveJob     = `SELECT ` + wideColumns + ownPolicy + `, state, cancelling, instance, ` + isUnreached + ` AS unreached FROM main.errand_job` + recordFrom + ` id = ?1`
	sqlFinishedJob = `SELECT ` + wideColumns + ownPolicy + `, state, ended_at, COALESCE(error, '') AS error
FROM main.errand_finished` + recordFrom + ` id = ?1`
	sqlDeadJob   = `SELECT ` + wideColumns + lastPolicy + `, 6 AS state, ended_at, reason, error FROM main.errand_dead` + recordFrom + ` id = ?1`
	sqlLastError = `SELECT error FROM main.errand_error WHERE job = ?1 AND token = ?2`
	sqlHistory   = `SELECT attempt, at, phase, error, stack, duration, instance, retry_after, args FROM main.errand_history WHERE job = ?1 ORDER BY n`
	sqlTags      = `SELECT tag FROM main.errand_tag WHERE job = ?1 ORDER BY tag`
	sqlCounts    = `SELECT l.queue, l.kind, c.state, c.n FROM main.errand_count c LEFT JOIN main.errand_lane l ON l.lane = c.lane WHERE c.n <> 0`

	sqlEndedState = `SELECT state, salt, created_at FROM main.errand_finished WHERE id = ?1
UNION ALL SELECT 6, salt, created_at FROM main.errand_dead WHERE id = ?1`

	// If the hold before it is over, since is now. A doubtful hold has no since before its
	// clock is decided; until then delay is below zero.
	sqlHold = `INSERT INTO main.errand_hold (queue, kind, reason, since, until, delay, probe, who, detail, hanging)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT DO UPDATE SET since = CASE WHEN until <= ?4 AND probe = 0 AND delay >= 0 THEN ?4 ELSE since END,
token = CASE WHEN until <= ?4 AND probe = 0 AND delay >= 0 THEN 0 ELSE token END,
until = ?5, delay = ?6, probe = ?7, who = ?8, detail = ?9, hanging = ?10`
	sqlWaitsFor = `SELECT COUNT(*) FROM main.errand_hold WHERE queue = ?1 AND kind = ?2 AND reason = ?3
AND job = ?4 AND token = ?5 AND (until IS NULL OR until > ?6 OR probe = 1 OR delay < 0)`
	sqlEndHold = `DELETE FROM main.errand_hold WHERE queue = ?1 AND kind = ?2 AND reason = ?3
RETURNING probe = 1 OR delay < 0 OR until IS NULL OR until > ?4`
	// Over by a date: the clock may be wrong, and set back.
	sqlForgetHolds = `DELETE FROM main.errand_hold WHERE until <= CASE delay WHEN 0 THEN ?2 ELSE ?1 END AND probe = 0 AND delay >= 0`
	sqlBeginAnew   = `UPDATE main.errand_hold SET since = ?1, until = ?2 - delay, delay = -delay WHERE delay < 0`
	sqlEndDoubt    = `UPDATE main.errand_hold SET delay = -delay WHERE delay < 0 AND until <= ?1`
	sqlLetThrough  = `UPDATE main.errand_hold SET until = ?3, job = ?4, token = ?5, let_at = ?6 WHERE queue = ?1 AND kind = ?2 AND probe = 1`
	sqlHolds       = `SELECT queue, kind, reason, since, COALESCE(h.until, 0) AS until, h.delay, probe, who, detail, let_at, hanging,
COALESCE(j.id, 0) AS id, COALESCE(j.token, 0) AS token, COALESCE(salt, 0) AS salt, COALESCE(created_at, 0) AS created_at
FROM main.errand_hold h LEFT JOIN main.errand_job j ON j.id = h.job AND j.token = h.token AND j.state = 3
WHERE h.until IS NULL OR h.until > ?1 OR probe = 1 OR h.delay < 0 ORDER BY queue, kind, reason`
	// States 1 and 2 of each lane, by key: 2 rows for each.
	sqlWaiting = `SELECT queue, kind, COALESCE((SELECT n FROM main.errand_number WHERE id = lane * 32 + 1), 0) AS scheduled,
COALESCE((SELECT n FROM main.errand_number WHERE id = lane * 32 + 2), 0) AS ready FROM main.errand_lane
UNION ALL SELECT queue, kind, state = 1, state = 2 FROM (SELECT lane, state` + fromUncounted + `) JOIN main.errand_lane USING (lane)`
)

// keepDated is for how long a hold that was over at a date is kept, in microseconds. It
// is 86400000000 in the SQL.
const keepDated = 24 * int64(time.Hour/time.Microsecond)

// stateCode is a state as the tables have it, and one that there is. It is small for the sake of facts.
type stateCode int8

// Scan implements [sql.Scanner].
func (s *stateCode) Scan(v any) error {
	n, ok := v.(int64)
	if !ok || n <= 0 || n >= int64(len(stateNames)) {
		return fmt.Errorf("%w: a job is in state %v", storage.ErrCorrupt, v)
	}
	*s = stateCode(n)
	return nil
}

// recordRow is a job of any table as sqlx reads it; columns that a query lacks
// stay zero.
type recordRow struct {
	jobRow
	EndedAt    int64 `db:"ended_at"`
	Cancelling bool
	Reason     string
	Error      string
	Unreached  bool
}

func (r *recordRow) record() storage.Record {
	return storage.Record{
		Key: r.ID, ID: r.id(), Queue: r.Queue, Kind: r.Kind, State: stateNames[r.State], Priority: r.Priority,
		Counters:  r.counters(),
		CreatedAt: fromMicros(r.CreatedAt), DueAt: fromMicros(r.DueAt), EndedAt: timeOrZero(r.EndedAt),
		Timeout: time.Duration(r.Timeout) * time.Microsecond, Unique: r.UniqueKey.String, Cancelling: r.Cancelling,
		Reason: storage.Reason(r.Reason), Error: r.Error, Unreached: r.Unreached, Policy: r.Doc, Args: r.Args, Headers: r.Headers,
	}
}

type failureRow struct {
	Attempt    int
	At         int64
	Phase      string
	Error      string
	Stack      string
	Duration   int64
	Instance   string
	RetryAfter bool `db:"retry_after"`
	Args       []byte
}

// Job implements [storage.Store].
func (s *Store) Job(ctx context.Context, id storage.ID) (rec storage.Record, err error) {
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		rec, err = job(tx, id, s.begins(tx))
		return err
	})
	return rec, err
}

// reading runs fn in a read transaction: all that it sees is of one moment. What
// a worker asks goes by s.inner, so that it does not wait for lists; it must be
// bounded by the number of lanes, instances or schedules. A Store that only reads has
// no pools: all that reads must come by here.
func (s *Store) reading(ctx context.Context, pool *sqlx.DB, fn func(tx *sqlx.Tx) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if s.view != nil {
		return s.ours(ended(ctx, translate(misfit(unread(s.readView(ctx, fn))))))
	}
	tx, err := pool.BeginTxx(ctx, nil)
	if err != nil {
		return s.ours(ended(ctx, translate(err)))
	}
	err = translate(misfit(unread(fn(tx))))
	if e := tx.Rollback(); e != nil {
		err = errors.Join(err, e)
	}
	if e := s.look(); e != nil { // the answer may be of what nobody finds any more
		err = e
	}
	return s.ours(ended(ctx, err))
}

func job(tx *sqlx.Tx, id storage.ID, begins *begins) (storage.Record, error) {
	var row recordRow
	err := sql.ErrNoRows
	for _, text := range []string{sqlLiveJob, sqlFinishedJob, sqlDeadJob} {
		if err = tx.Get(&row, text, id.Key()); !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Record{}, storage.ErrNotFound
	}
	if err != nil {
		return storage.Record{}, err
	}
	rec := row.record()
	if rec.ID != id {
		return storage.Record{}, storage.ErrNotFound
	}
	if rec.StartedAt, err = begins.of(&row.jobRow); err != nil {
		return storage.Record{}, err
	}
	if row.Beside {
		var p struct{ Headers, Args []byte }
		if err := tx.Get(&p, sqlPayload, rec.Key); err != nil {
			return storage.Record{}, err
		}
		rec.Headers, rec.Args = p.Headers, p.Args
	}
	if row.Options&hasTags != 0 {
		if err := tx.Select(&rec.Tags, sqlTags, rec.Key); err != nil {
			return storage.Record{}, err
		}
	}
	if row.Options&hasKept != 0 {
		if err := readKept(tx, &rec); err != nil {
			return storage.Record{}, err
		}
	}
	if row.Options&hasOption != 0 {
		var o option
		if err := tx.Get(&o, sqlOption, rec.Key); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return storage.Record{}, err
		}
		o.show(&rec)
	}
	var failures []failureRow
	if err := tx.Select(&failures, sqlHistory, rec.Key); err != nil {
		return storage.Record{}, err
	}
	for _, f := range failures {
		rec.History = append(rec.History, storage.Failure{
			Attempt: f.Attempt, At: fromMicros(f.At), Phase: f.Phase, Error: f.Error, Stack: f.Stack,
			Duration: time.Duration(f.Duration) * time.Microsecond, Instance: f.Instance, RetryAfter: f.RetryAfter, Args: f.Args,
		})
	}
	if rec.Error == "" {
		err := tx.Get(&rec.Error, sqlLastError, rec.Key, row.Token)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return storage.Record{}, err
		}
	}
	for i := len(rec.History) - 1; i >= 0 && rec.Error == ""; i-- {
		if rec.History[i].Phase != storage.PhaseEdited {
			rec.Error = rec.History[i].Error
			break
		}
	}
	return rec, nil
}

// Cancel implements [storage.Store].
func (s *Store) Cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (state storage.State, err error) {
	found := false
	err = s.submit(ctx, &request{ends: true, urgent: true, work: 1, run: func(t *tx) (err error) {
		state, err = t.cancel(ctx, t.seen(now), id, &keep)
		if found = !errors.Is(err, storage.ErrNotFound); !found {
			return nil // an answer: an error would have all others of the batch go again
		}
		return err
	}})
	if err == nil && !found {
		err = storage.ErrNotFound
	}
	if err != nil {
		return "", err
	}
	return state, nil
}

func (t *tx) cancel(ctx context.Context, at int64, id storage.ID, keep *storage.Retention) (storage.State, error) {
	var r jobRow
	err := t.row(sqlJob, []any{id.Key()}, r.dest(&r.State)...)
	if errors.Is(err, sql.ErrNoRows) {
		r.ID = id.Key()
		if err = t.row(sqlEndedState, []any{r.ID}, &r.State, &r.Salt, &r.CreatedAt); errors.Is(err, sql.ErrNoRows) {
			return "", storage.ErrNotFound
		}
	}
	if err != nil {
		return "", err
	}
	if r.id() != id {
		return "", storage.ErrNotFound
	}
	switch r.State {
	case running:
		return storage.Running, cmp.Or(t.askToStop(r.ID), t.did(ctx, 1))
	case scheduled, ready, blocked:
		return storage.Cancelled, cmp.Or(t.cancelWaiting(at, &r.facts, keep), t.did(ctx, 1))
	}
	return stateNames[r.State], nil
}

// askToStop notes that a job which runs is to stop.
func (t *tx) askToStop(id int64) error {
	_, err := t.apply(&delta{change: setStop, was: &facts{ID: id}})
	return err
}

// cancelWaiting ends a job that does not run as cancelled.
func (t *tx) cancelWaiting(at int64, f *facts, keep *storage.Retention) error {
	_, err := t.leave(f, &departure{state: cancelled, at: at, effect: storage.Effect{KeepCrashes: true}, keep: keep})
	return err
}

// Hold implements [storage.Store].
func (s *Store) Hold(ctx context.Context, now time.Time, h storage.Hold) error {
	return s.submit(ctx, &request{ends: true, urgent: true, work: 1, run: func(t *tx) error {
		return cmp.Or(t.hold(now, &h), t.did(ctx, 0))
	}})
}

func (t *tx) hold(now time.Time, h *storage.Hold) error {
	at, delay := t.seen(now), int64(0)
	if of := h.Through; of != (storage.Lease{}) {
		n := 0
		err := t.row(sqlWaitsFor, []any{h.Queue, h.Kind, h.Reason, of.Key, of.Token, at}, &n)
		if err != nil || n == 0 {
			return err
		}
	}
	var until any
	if h.For > 0 {
		until, delay = rules.Due(now.Add(h.For)), ceilMicros(h.For)
	}
	switch {
	case !h.Until.IsZero():
		until = rules.Due(h.Until)
	case h.Doubtful:
		delay = -delay
	}
	t.holdsChange(h.Lane)
	_, err := t.exec(sqlHold, h.Queue, h.Kind, h.Reason, at, until, delay, h.Probe, h.By, h.Detail, h.Hanging)
	return err
}

// holdsChange has all processes read the holds of these lanes again. The workers of this
// one are told before the call returns.
func (t *tx) holdsChange(of ...storage.Lane) {
	t.meta.gen++
	t.notifyAll(storage.Event{Holds: of})
}

// manyHoldsChange is holdsChange for all lanes that are held.
func (t *tx) manyHoldsChange() {
	all, _ := t.store.cache.committedHolds() // the others were told of as they began
	t.holdsChange(slices.Collect(maps.Keys(all))...)
}

// holdsChanged reports whether the transaction has changed holds.
func (t *tx) holdsChanged() bool { return t.event != nil && len(t.event.Holds) > 0 }

// holds returns the holds as the transaction has left them, and their version.
func (t *tx) holds() (h holds, version int64, err error) {
	if !t.holdsChanged() {
		h, version = t.store.cache.committedHolds()
		return h, version, nil
	}
	h, err = readHolds(t)
	return h, -t.meta.gen, err // those of the cache are positive
}

// letThrough holds the lanes that were ajar, and of which one of these jobs was let
// through, until the leases end.
func (t *tx) letThrough(l *lineup, leased []storage.Leased, lanes []facts, until, now int64) error {
	any := false
	for i := range leased {
		if at, ok := l.find(lanes[i].Lane); !ok || !l.lanes[at].group.ajar {
			continue
		}
		if _, err := t.exec(sqlLetThrough, leased[i].Queue, leased[i].Kind, until, leased[i].Key, leased[i].Token, now); err != nil {
			return err
		}
		leased[i].Probe, any = true, true
		t.holdsChange(storage.Lane{Queue: leased[i].Queue, Kind: leased[i].Kind})
	}
	if any {
		l.lanes = nil // it is made anew, also if the holds end up as they were
	}
	return nil
}

// changeHolds begins and ends the holds of an Exchange.
func (t *tx) changeHolds(now time.Time, x *storage.Exchange) error {
	for i := range x.Hold {
		if err := t.hold(now, &x.Hold[i]); err != nil {
			return err
		}
	}
	for i := range x.Release {
		if _, err := t.release(now, x.Release[i].Lane, x.Release[i].Reason); err != nil {
			return err
		}
	}
	return nil
}

// Release implements [storage.Store].
func (s *Store) Release(ctx context.Context, now time.Time, lane storage.Lane, reason string) (was bool, err error) {
	err = s.submit(ctx, &request{ends: true, urgent: true, work: 1, run: func(t *tx) (err error) {
		if was, err = t.release(now, lane, reason); was && err == nil {
			err = t.did(ctx, 0)
		}
		return err
	}})
	return was && err == nil, err
}

func (t *tx) release(now time.Time, lane storage.Lane, reason string) (was bool, err error) {
	err = t.row(sqlEndHold, []any{lane.Queue, lane.Kind, reason, t.seen(now)}, &was)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	t.holdsChange(lane)
	return was, err
}

// settleHolds ends the doubtful holds whose time is over, if x is doubtful too, and else
// begins all of them anew.
func (t *tx) settleHolds(now time.Time, x *storage.Exchange) (err error) {
	if !t.holdsChanged() && !t.store.cache.settles(micros(now), x.Doubtful) {
		return nil
	}
	var n int64
	if x.Doubtful {
		n, err = t.execCount(sqlEndDoubt, micros(now))
	} else {
		n, err = t.execCount(sqlBeginAnew, micros(now), rules.Due(now))
	}
	if n > 0 {
		t.manyHoldsChange()
	}
	return err
}

// forgetHolds deletes the holds that are over, those with a date a day later.
func (t *tx) forgetHolds(at int64) error {
	if !t.store.cache.forgets(at) {
		return nil
	}
	n, err := t.execCount(sqlForgetHolds, at, at-keepDated)
	if n > 0 {
		t.manyHoldsChange()
	}
	return err
}

// nextChance returns when a job that is wanted may be there to lease, if nothing
// happens before: when the next scheduled job is due, unless the first hold or the first
// window of a job is over earlier. It is zero if none is to come.
func (t *tx) nextChance(due int64, wants []storage.Want, at int64) (time.Time, error) {
	held, _, err := t.holds()
	if err != nil {
		return time.Time{}, err
	}
	end, err := t.nextEnd()
	for _, at := range []int64{held.next(wants, at), end} {
		if at != 0 && (due == 0 || at < due) {
			due = at
		}
	}
	return timeOrZero(due), err
}

// Holds implements [storage.Store].
func (s *Store) Holds(ctx context.Context, now time.Time) (out []storage.HoldState, err error) {
	var rows []struct {
		Queue, Kind, Reason, Who, Detail string
		Since, Until, Delay              int64
		Probe                            bool
		Hanging                          int
		ID, Token                        int64
		Salt                             uint32
		CreatedAt                        int64 `db:"created_at"`
		LetAt                            int64 `db:"let_at"`
	}
	type numbers struct{ waiting, ready int64 }
	of := map[storage.Lane]numbers{} // by all that can be held
	err = s.reading(ctx, s.inner, func(tx *sqlx.Tx) error {
		if err := tx.Select(&rows, sqlHolds, micros(now)); err != nil || len(rows) == 0 {
			return err
		}
		var lanes []struct {
			Queue, Kind      string
			Scheduled, Ready int64
		}
		err := tx.Select(&lanes, sqlWaiting)
		for _, l := range lanes {
			for _, held := range []storage.Lane{{Queue: l.Queue, Kind: l.Kind}, {Queue: l.Queue}, {Kind: l.Kind}} {
				n := of[held]
				of[held] = numbers{n.waiting + l.Scheduled + l.Ready, n.ready + l.Ready}
			}
		}
		return err
	})
	for _, r := range rows {
		lane, through := storage.Lane{Queue: r.Queue, Kind: r.Kind}, storage.Through{}
		if r.ID != 0 {
			id := idOf(r.CreatedAt, r.Salt, r.ID)
			through = storage.Through{Lease: storage.Lease{Key: r.ID, Token: r.Token}, Job: id, Since: fromMicros(r.LetAt)}
		}
		out = append(out, storage.HoldState{
			Lane: lane, Reason: r.Reason, By: r.Who, Detail: r.Detail, Since: fromMicros(r.Since), Until: timeOrZero(r.Until),
			For: (time.Duration(r.Delay) * time.Microsecond).Abs(), Probe: r.Probe, Through: through, Hanging: r.Hanging,
			Waiting: of[lane].waiting, Ready: of[lane].ready,
		})
	}
	return out, err
}

// Counts implements [storage.Store].
func (s *Store) Counts(ctx context.Context) (out []storage.Count, err error) {
	var rows []struct {
		Queue, Kind string
		State       stateCode
		N           int64
	}
	err = s.reading(ctx, s.inner, func(tx *sqlx.Tx) error { return tx.Select(&rows, sqlCounts) })
	for _, r := range rows {
		out = append(out, storage.Count{Queue: r.Queue, Kind: r.Kind, State: stateNames[r.State], N: r.N})
	}
	slices.SortFunc(out, func(a, b storage.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	return out, err
}
