package sqlite

import (
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	sqlLease = `UPDATE main.errand_job SET state = 3, token = ?, instance = ?, until = ?, attempt = attempt + 1
WHERE id = ? AND state = 2`
	sqlLeaseBlocked = `UPDATE main.errand_job SET state = 3, token = ?, instance = ?, until = ?, attempt = attempt + 1, delay = 0
WHERE id = ? AND state = 7`
	// until always changes, for that is what observers see of a holder's life,
	// even if the clock stands still.
	sqlExtend = `UPDATE main.errand_job SET until = MAX(?3, until + 1) WHERE id = ?1 AND token = ?2 AND state = 3 RETURNING cancelling`

	sqlReschedule = `UPDATE main.errand_job SET state = ?3, due_at = COALESCE(?4, due_at), delay = ?10,
attempt = attempt + ?5, retry = retry + ?6, snoozes = snoozes + ?7, crashes = crashes * ?8 + ?9,
instance = 0, until = 0, fate = 0, cancelling = 0
WHERE id = ?1 AND token = ?2 AND state = 3 AND cancelling = 0
RETURNING lane, attempt, options, args IS NULL, COALESCE(length(args), 0) + COALESCE(length(headers), 0)`
	sqlRunNow = `UPDATE main.errand_job SET state = 2, due_at = MIN(due_at, ?2), delay = 0 WHERE id = ?1`
	// The second parameter is the time of a call, before all others if that is of no matter.
	sqlLetIn = `UPDATE main.errand_job SET state = CASE WHEN delay < 0 OR due_at <= ?2 THEN 2 ELSE 1 END,
delay = CASE WHEN delay < 0 OR due_at <= ?2 THEN 0 ELSE delay END, due_at = CASE WHEN due_at <= ?2 THEN ?2 ELSE due_at END WHERE id = ?1
RETURNING lane, state, due_at`
	sqlBlock   = `UPDATE main.errand_job SET state = 7, delay = CASE state WHEN 2 THEN -1 ELSE delay END WHERE id = ?1`
	sqlReplace = `UPDATE main.errand_job SET priority = ?2, headers = ?3, args = ?4, state = ?5, due_at = ?6, delay = COALESCE(?7, delay),
retry = ?8, crashes = ?9, snoozes = ?10 WHERE id = ?1`
	sqlChangeJob = `UPDATE main.errand_job SET lane = ?2, priority = ?3, policy = ?4, state = ?5, due_at = COALESCE(?6, due_at),
delay = COALESCE(?7, delay) WHERE id = ?1`
	sqlChangeDead = `UPDATE main.errand_dead SET lane = ?2, priority = ?3, policy = ?4 WHERE id = ?1`
	sqlEditJob    = `UPDATE main.errand_job SET headers = ?2, args = ?3, options = options | ?4 WHERE id = ?1`
	sqlEditDead   = `UPDATE main.errand_dead SET headers = ?2, args = ?3, options = options | ?4 WHERE id = ?1`
	sqlTake       = `UPDATE main.errand_job SET token = ?4, instance = ?5, until = ?6, fate = ?7
WHERE id = ?1 AND token = ?2 AND until = ?3 AND state = 3
RETURNING ` + wideColumns + `, cancelling`
	sqlHandBack   = `UPDATE main.errand_job SET instance = ?3, fate = CASE fate WHEN 0 THEN ?4 ELSE fate END WHERE id = ?1 AND token = ?2`
	sqlAskToStop  = `UPDATE main.errand_job SET cancelling = 1 WHERE id = ?1`
	sqlMarkKept   = `UPDATE main.errand_job SET options = options | 16, crashes = crashes * ?4 WHERE id = ?1 AND token = ?2 AND state = ?3`
	sqlMoveLeases = `UPDATE main.errand_job SET instance = ?2 WHERE state = 3 AND instance = ?1`
	// By key whatever the planner thinks of the states: they bound nothing.
	sqlShift = `UPDATE main.errand_job NOT INDEXED SET due_at = CASE WHEN state <> 2 AND delay > 0 THEN ?4 + delay ELSE ?3 END
WHERE id > ?1 AND id <= ?2 AND (state IN (1, 7) AND delay > 0 AND due_at - delay > ?3 OR (state = 2 OR state = 7 AND delay < 0) AND due_at > ?3)
RETURNING state, due_at`
	// Limits are no parameters: SQLite plans by their value, and would prepare
	// the statement again each time it is bound. The order in which rows are
	// updated and returned does not matter.
	sqlPromote = `UPDATE main.errand_job SET state = 2 WHERE id IN
(SELECT id FROM main.errand_job WHERE state = 1 AND due_at <= ?1 ORDER BY due_at, id LIMIT 1000)
RETURNING CASE WHEN options & 1 THEN -id ELSE lane END`

	sqlDropJob = `DELETE FROM main.errand_job WHERE id = ? AND token = ? AND state = ?`
	sqlKeep    = `INSERT INTO main.errand_finished (` + carriedColumns + `, attempt, snoozes, crashes, state, ended_at, purge_at, error)
SELECT ` + carriedColumns + `, attempt + ?, snoozes, crashes * ?, ?, ?, ?, ? FROM main.errand_job WHERE id = ? AND token = ? AND state = ?`
	// For a job that has nothing but args; the rest would cost 0.6 us more.
	sqlKeepPlain = `INSERT INTO main.errand_finished (` + coreColumns + `, token, attempt, args, state, ended_at, purge_at)
SELECT ` + coreColumns + `, token, attempt, args, ?, ?, ? FROM main.errand_job WHERE id = ? AND token = ? AND state = 3`
	sqlBury = `INSERT INTO main.errand_dead (` + carriedColumns + `, attempt, crashes, snoozes, in_effect, ended_at, reason, error, cause)
SELECT ` + carriedColumns + `, attempt + ?, crashes * ? + ?, snoozes + ?, ?, ?, ?, ?, ? FROM main.errand_job WHERE id = ? AND token = ? AND state = ?`
	sqlDropDead = `DELETE FROM main.errand_dead WHERE id = ?1 RETURNING cause`

	sqlInsertPayload = `INSERT INTO main.errand_payload (job, headers, args) VALUES (?1, ?2, ?3)`
	sqlDeletePayload = `DELETE FROM main.errand_payload WHERE job = ?1`
	sqlDeleteHistory = `DELETE FROM main.errand_history WHERE job = ?1`
	sqlInsertTag     = `INSERT INTO main.errand_tag (tag, job) VALUES (?1, ?2)`
	sqlDeleteTags    = `DELETE FROM main.errand_tag WHERE job = ?1 RETURNING tag`
)

// plainColumns are all that need be bound for a job that has nothing but args:
// the others have their defaults.
const plainColumns = coreColumns + `, args, state`

var (
	sqlInsertJob      = insertJob(plainColumns + `, headers, ` + keyColumns + `, delay, instance, until, ` + numberColumns)
	sqlInsertPlainJob = insertJob(plainColumns)
)

// insertJob returns an INSERT of these columns.
func insertJob(columns string) string {
	marks := strings.Repeat(", ?", strings.Count(columns, ",")+1)
	return `INSERT INTO main.errand_job (` + columns + `) VALUES (` + marks[2:] + `)`
}

// enter puts a job into errand_job, as scheduled, ready or blocked, unless another job
// holds its unique key: then it returns the ID of that one. A ready job of a call
// that adds it alone is leased at once if a worker of this process waits for it,
// which saves the page on which it would have been ready.
func (t *tx) enter(now time.Time, r *jobRow, until int64) (holder storage.ID, err error) {
	if r.UniqueKey.Valid {
		holder, err = t.claimKey(micros(now), r, until)
		if err != nil || !holder.IsZero() && holder != r.id() { // its own, if it outlives the job
			return holder, err
		}
	}
	return storage.ID{}, t.admit(now, r)
}

// admit is enter for a job that has its unique key.
func (t *tx) admit(now time.Time, r *jobRow) (err error) {
	others := false // of the group, which may have to be let in
	if r.option != nil && r.option.GroupKey != "" {
		if others, err = t.join(r); err != nil {
			return err
		}
	}
	var to *handoff
	if t.fresh.single && r.State == ready {
		if to, err = t.receiver(now, r); err != nil {
			return err
		}
	}
	if r.Lane, err = t.lane(r.Queue, r.Kind); err != nil {
		return err
	}
	if r.Doc != nil {
		if r.Policy, err = t.policy(r.Doc); err != nil {
			return err
		}
	}
	if to != nil {
		r.State, r.Token, r.Attempt, r.Instance = running, t.token(), 1, to.holder
		r.Until = micros(now.Add(to.offer.lease))
	}
	if err := t.insert(r); err != nil {
		return err
	}
	if r.option != nil {
		if err := t.addOption(r.ID, r.option, r.State == running); err != nil {
			return err
		}
	}
	t.arrived(r)
	switch {
	case to != nil:
		return t.handTo(to, r)
	case r.State == ready:
		t.fresh.add(r.ID, storage.Lane{Queue: r.Queue, Kind: r.Kind})
	case r.State == scheduled:
		t.notifyAll(storage.Event{Due: fromMicros(r.DueAt)})
	case others:
		return t.regroup(r.option.GroupKey)
	}
	return nil
}

// insert writes the row, and the payload beside it unless that is there already.
func (t *tx) insert(r *jobRow) error {
	headers, args, err := t.payload(r)
	if err != nil {
		return err
	}
	r.Size = int64(len(r.Args) + len(r.Headers))
	if err := t.weigh(&r.facts, 1); err != nil {
		return err
	}
	numbers, set := r.numbers(), r.Token|r.Delay
	for _, n := range numbers {
		set |= *n
	}
	plain := set == 0 && headers == nil && !r.UniqueKey.Valid
	values := make([]any, 0, 8)
	if !plain {
		values = make([]any, 0, 24)
	}
	values = append(values, r.ID, r.Lane, r.Priority, r.DueAt, r.Salt, r.CreatedAt, args, r.State)
	if plain {
		_, err = t.exec(sqlInsertPlainJob, values...)
		return err
	}
	values = append(values, headers, r.Token, r.Attempt, nullable(r.UniqueKey.String), r.Delay, r.Instance, r.Until)
	for _, n := range numbers {
		values = append(values, *n)
	}
	_, err = t.exec(sqlInsertJob, values...)
	return err
}

// payload returns the args and headers of a row, and writes those that are beside it,
// unless they are there already.
func (t *tx) payload(r *jobRow) (headers, args any, err error) {
	given := r.Args
	if given == nil { // none, or as read from a BLOB of no bytes
		given = []byte{}
	}
	switch {
	case !r.Beside:
		args = given
		if r.Headers != nil {
			headers = r.Headers
		}
	case r.Args != nil || r.Headers != nil: // else it was read without its payload
		_, err = t.exec(sqlInsertPayload, r.ID, r.Headers, given)
	}
	return headers, args, err
}

// departure says where a job goes that leaves its table.
type departure struct {
	// state is done, cancelled, expired or dead for a copy in the table of that state. It is
	// ready for a dead job that has entered errand_job again, and 0 for one that goes
	// for good, with all that belongs to it.
	state stateCode
	at    int64
	error string

	keep        *storage.Retention // of a finished job
	reason      string             // of a dead one, as the next
	inEffect    int64              // the policy
	cause       int64              // in errand_cause
	keepCrashes bool               // else they become zero before add
	add         storage.Counters
}

// leave takes a job out of its table. It reports whether the job was there, with
// this token and in this state. Of a finished job PurgeFinished has deleted the row.
func (t *tx) leave(f *facts, e *departure) (found bool, err error) {
	var purgeAt int64
	var unkept stateCode
	if e.keep != nil {
		kept, err := t.kept(f.Lane, e.keep)
		if err != nil {
			return false, err
		}
		if purgeAt = e.at + kept; kept <= 0 {
			e.state, unkept = 0, e.state
		}
	}
	to, from, n := e.state, f.State, int64(1)
	switch e.state {
	case done, cancelled, expired:
		if f.plain && e.error == "" && e.add.Attempt == 0 {
			n, err = t.execCount(sqlKeepPlain, to, e.at, purgeAt, f.ID, f.Token)
			break
		}
		n, err = t.execCount(sqlKeep, e.add.Attempt, e.keepCrashes, to, e.at, purgeAt, nullable(e.error), f.ID, f.Token, from)
	case dead:
		n, err = t.execCount(sqlBury, e.add.Attempt, e.keepCrashes, e.add.Crashes, e.add.Snoozes, e.inEffect, e.at, e.reason, e.error, e.cause, f.ID, f.Token, from)
	default:
		to = 0
	}
	if n > 0 && err == nil && from.live() {
		n, err = t.execCount(sqlDropJob, f.ID, f.Token, from)
	}
	if n == 0 || err != nil {
		return false, err
	}
	switch {
	case from == dead:
		var cause int64
		if err := t.row(sqlDropDead, []any{f.ID}, &cause); err != nil {
			return false, err
		}
		t.deaths.count(cause, -1)
		t.refer(e.inEffect, -1)
	case from.live() && f.UniqueKey.Valid:
		if err := t.releaseKey(f, e.at); err != nil {
			return false, err
		}
	}
	if err := t.weigh(f, -1); err != nil {
		return false, err
	}
	group, err := t.quit(f, e)
	if err != nil {
		return false, err
	}
	if from.live() {
		if err := t.endOption(f, to); err != nil {
			return false, err
		}
	}
	t.move(f.Lane, from, to)
	switch to {
	case dead:
		t.deaths.count(e.cause, 1)
		t.died = append(t.died, death{f.Lane, f.ID})
		t.lasts.failure(f.Lane, f.ID, e.at)
		t.refer(e.inEffect, 1)
	case 0:
		t.refer(f.Policy, -1)
		t.gone(f.Lane, unkept)
	}
	if e.state == 0 {
		if err := t.deleteBelongings(f); err != nil {
			return false, err
		}
	}
	return true, t.regroup(group)
}

// kept returns for how many microseconds the finished jobs of a lane are kept.
func (t *tx) kept(lane int64, r *storage.Retention) (int64, error) {
	all, err := t.settings()
	if err != nil || len(r.Lanes) == 0 && len(all) == 0 {
		return r.Default.Microseconds(), err
	}
	name, err := t.laneName(lane)
	if errors.Is(err, sql.ErrNoRows) { // damage, which need not stop the others
		return r.Default.Microseconds(), nil
	}
	if kept := all.of(name, storage.SettingRetention); kept != 0 {
		return max(kept, 0), err
	}
	return r.Of(name.Queue, name.Kind).Microseconds(), err
}

// execCount runs a statement and returns how many rows it has changed.
func (t *tx) execCount(text string, args ...any) (int64, error) {
	res, err := t.exec(text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// deleteBelongings deletes what is kept beside a job that is gone.
func (t *tx) deleteBelongings(f *facts) error {
	if f.Attempt > 1 || f.Attempt == 1 && f.State != running || f.Options&hasEdits != 0 { // else nothing has failed, nor was edited
		if _, err := t.exec(sqlDeleteHistory, f.ID); err != nil {
			return err
		}
	}
	if t.watches(f.Lane) {
		if _, err := t.exec(sqlDeleteError, f.ID); err != nil {
			return err
		}
	}
	if f.Beside {
		if _, err := t.exec(sqlDeletePayload, f.ID); err != nil {
			return err
		}
	}
	return t.dropOption(f)
}
