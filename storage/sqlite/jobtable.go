package sqlite

import (
	"database/sql"
	"errors"
	"strings"

	"github.com/errandq/errand/storage/internal/rules"
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
delay = CASE WHEN delay < 0 OR due_at <= ?2 THEN 0 ELSE delay END, due_at = CASE WHEN due_at <= ?2 THEN ?2 ELSE due_at END WHERE id IN (SELECT value FROM json_each(?1))
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
	// Limits are no parameters: SQLite plans by their value, and would prepare the statement
	// again each time it is bound. One that differs from call to call is an expression, as
	// ?2 + 0. The order in which rows are updated and returned does not matter.
	sqlPromote    = sqlMakeReady + `1000)` + sqlMadeReady
	sqlPromoteFew = sqlMakeReady + `?2 + 0)` + sqlMadeReady
	sqlMakeReady  = `UPDATE main.errand_job SET state = 2 WHERE id IN
(SELECT id FROM main.errand_job WHERE state = 1 AND due_at <= ?1 ORDER BY due_at, id LIMIT `
	sqlMadeReady = `
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

// write runs the statement of a change.
func (t *tx) write(d *delta) (found bool, err error) {
	var n int64
	r, was := d.row, d.was
	switch d.change {
	case setRow:
		return true, t.insert(r)
	case setLease:
		text := sqlLease
		if was.State == blocked {
			text = sqlLeaseBlocked
		}
		n, err = t.execCount(text, r.Token, d.to.holder, d.to.until, r.ID)
	case setBack:
		b, add := t.returned(), &d.effect.Add
		var due any // as it was
		if !d.effect.KeepPlace {
			due = r.DueAt
		}
		err = t.row(sqlReschedule, []any{was.ID, was.Token, r.State, due, add.Attempt, add.Retry, add.Snoozes, d.effect.KeepCrashes, add.Crashes, r.Delay},
			&b.Lane, &b.Attempt, &b.Options, &b.Beside, &b.Size)
		was.Lane, r.ID, r.Lane, r.Attempt, r.Options, r.Beside, r.Size = b.Lane, was.ID, b.Lane, b.Attempt, b.Options, b.Beside, b.Size
		n = 1
	case setRunNow:
		n, err = t.execCount(sqlRunNow, was.ID, d.at)
	case setBlocked:
		n, err = t.execCount(sqlBlock, was.ID)
	case setWork, setPlace:
		return true, t.rewrite(d)
	case setUntil:
		b := t.returned()
		err = t.row(sqlExtend, []any{was.ID, was.Token, d.at}, &b.cancelling)
		d.cancelling = b.cancelling
		n = 1
	case setHolder:
		n, err = t.execCount(sqlHandBack, was.ID, was.Token, d.holder, d.fate)
	case setTaken:
		b := t.returned()
		err = t.row(sqlTake, []any{was.ID, was.Token, d.seenUntil, r.Token, d.holder, d.at, d.fate}, b.dest(&b.cancelling)...)
		*r, d.cancelling = b.jobRow, b.cancelling
		n = 1
	case setStop:
		n, err = t.execCount(sqlAskToStop, was.ID)
	case setKept:
		n, err = t.execCount(sqlMarkKept, was.ID, was.Token, was.State, d.effect.KeepCrashes)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return n > 0, err
}

// letIn is apply for setLetIn: it has blocked jobs be ready, or scheduled if they are due later.
// Those that were due before a time are due at that.
func (t *tx) letIn(d *delta) error {
	all := make([]int64, len(d.jobs))
	for i := range d.jobs {
		all[i] = d.jobs[i].ID
	}
	keys := jsonKeys(all)
	if d.role != rules.NoRole { // also of jobs that are missing: damage need not stop the others
		t.groups.moved += len(all)
		if _, err := t.exec(sqlSetRoles, keys, d.role); err != nil {
			return err
		}
	}
	one := delta{change: setLetIn, row: &jobRow{}}
	r := one.row
	return t.each(sqlLetIn, []any{keys, d.at}, []any{&r.Lane, &r.State, &r.DueAt}, func() {
		t.move(r.Lane, blocked, r.Lane, r.State)
		t.tell(&one)
	})
}

// rewrite is write for a job whose place may be another, or its args.
func (t *tx) rewrite(d *delta) (err error) {
	r, rest := d.row, d.rest
	var headers, args any
	if rest.args {
		if d.was.Beside {
			if _, err := t.exec(sqlDeletePayload, r.ID); err != nil {
				return err
			}
		}
		r.Size = int64(len(r.Args) + len(r.Headers))
		r.Beside = r.Size > inlineLimit
		if headers, args, err = t.payload(r); err != nil {
			return err
		}
	}
	if d.change == setWork {
		_, err = t.exec(sqlReplace, r.ID, r.Priority, headers, args, r.State, r.DueAt, rest.delay, r.Retry, r.Crashes, r.Snoozes)
		return err
	}
	place, edit := sqlChangeJob, sqlEditJob
	values := []any{r.ID, r.Lane, r.Priority, r.Policy, r.State, rest.due, rest.delay}
	if r.State == dead {
		place, edit, values = sqlChangeDead, sqlEditDead, values[:4]
	}
	if rest.args {
		if _, err = t.exec(edit, r.ID, headers, args, hasEdits); err != nil {
			return err
		}
	}
	_, err = t.exec(place, values...)
	return err
}

// returned returns where a statement may return what a row has, until the next one does.
func (t *tx) returned() *back {
	if t.stmts == nil {
		return &back{}
	}
	t.stmts.back = back{}
	return &t.stmts.back
}

// insert writes the row, what few jobs have, and the payload beside it unless that is there
// already.
func (t *tx) insert(r *jobRow) error {
	if r.option != nil {
		if err := t.addOption(r.ID, r.option, r.State == running); err != nil {
			return err
		}
	}
	if err := t.addOrigin(r); err != nil {
		return err
	}
	headers, args, err := t.payload(r)
	if err != nil {
		return err
	}
	r.Size = int64(len(r.Args) + len(r.Headers))
	numbers, set := r.numbers(), r.Token|r.Delay
	for _, n := range numbers {
		set |= *n
	}
	plain := set == 0 && headers == nil && !r.UniqueKey.Valid
	var values []any
	if t.stmts != nil {
		values = t.stmts.job[:0]
	}
	values = append(values, r.ID, r.Lane, r.Priority, r.DueAt, int64(r.Salt), r.CreatedAt, args, r.State)
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

// execCount runs a statement and returns how many rows it has changed.
func (t *tx) execCount(text string, args ...any) (int64, error) {
	res, err := t.exec(text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
