package sqlite

import (
	"cmp"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlLease = `UPDATE main.errand_job SET state = 3, token = ?, instance = ?, until = ?, attempt = attempt + 1
WHERE id = ? AND state = 2`
	sqlLeaseBlocked = `UPDATE main.errand_job SET state = 3, token = ?, instance = ?, until = ?, attempt = attempt + 1, delay = 0
WHERE id = ? AND state = 7`
	// until always changes, for that is what observers see of a holder's life,
	// even if the clock stands still.
	sqlExtend      = sqlExtendAny + ` AND cancelling = 0`
	sqlExtendAsked = sqlExtendAny + ` RETURNING cancelling`
	sqlExtendAny   = `UPDATE main.errand_job SET until = MAX(?, until + 1) WHERE id = ? AND token = ? AND state = 3`

	sqlReschedule = `UPDATE main.errand_job SET state = ?, due_at = ?, delay = ?, attempt = ?, retry = ?, snoozes = ?, crashes = ?,
instance = 0, until = 0, fate = 0, cancelling = 0
WHERE id = ? AND token = ? AND state = 3 AND cancelling = 0`
	sqlRunNow  = `UPDATE main.errand_job SET state = 2, due_at = MIN(due_at, ?2), delay = 0 WHERE id = ?1`
	sqlMove    = `UPDATE main.errand_job SET state = ?2, delay = ?3 WHERE id IN (SELECT value FROM json_each(?1))`
	sqlMoveTo  = `UPDATE main.errand_job SET state = ?2, delay = ?3, due_at = ?4 WHERE id IN (SELECT value FROM json_each(?1))`
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
SELECT ` + carriedColumns + `, ?, snoozes, ?, ?, ?, ?, ? FROM main.errand_job WHERE id = ? AND token = ? AND state = ?`
	// For a job that has nothing but args; the rest would cost 0.6 us more.
	sqlKeepPlain = `INSERT ` + keepPlain + ` WHERE id = ? AND token = ? AND state = 3`
	keepPlain    = `INTO main.errand_finished (` + coreColumns + `, token, attempt, args, state, ended_at, purge_at)
SELECT ` + coreColumns + `, token, attempt, args, ?, ?, ? FROM main.errand_job`

	// Of a run, see runs. Without OR ROLLBACK, which is for what writes the whole batch again,
	// SQLite would keep a copy of each page until the end of the statement.
	sqlLeaseRun = `UPDATE OR ROLLBACK main.errand_job NOT INDEXED SET state = 3, token = id + ?, instance = ?, until = ?, attempt = attempt + 1
WHERE id BETWEEN ? AND ? AND state = 2`
	sqlKeepRun     = `INSERT OR ROLLBACK ` + keepPlain + ` NOT INDEXED` + ofRun
	sqlDropRun     = `DELETE FROM main.errand_job NOT INDEXED` + ofRun
	ofRun          = ` WHERE id BETWEEN ? AND ? AND token = id + ? AND state = 3`
	sqlDropOptions = `DELETE FROM main.errand_option WHERE job BETWEEN ? AND ?`

	sqlBury = `INSERT INTO main.errand_dead (` + carriedColumns + `, attempt, crashes, snoozes, in_effect, ended_at, reason, error, cause)
SELECT ` + carriedColumns + `, ?, ?, ?, ?, ?, ?, ?, ? FROM main.errand_job WHERE id = ? AND token = ? AND state = ?`
	sqlDropDead = `DELETE FROM main.errand_dead WHERE id = ?1 RETURNING cause`

	sqlInsertPayload = `INSERT INTO main.errand_payload (job, headers, args) VALUES (?, ?, ?)`
	sqlDeletePayload = `DELETE FROM main.errand_payload WHERE job = ?`
	sqlDeleteHistory = `DELETE FROM main.errand_history WHERE job = ?`
	sqlDeleteTags    = `DELETE FROM main.errand_tag WHERE job = ? RETURNING tag`
)

// plainColumns are all that need be bound for a job that has nothing but args:
// the others have their defaults.
const plainColumns = coreColumns + `, args, state`

var (
	sqlInsertJob      = insertJob(plainColumns + `, headers, ` + keyColumns + `, delay, instance, until, ` + numberColumns)
	sqlInsertPlainJob = insertJob(plainColumns)
	// For a job that has only headers, tags or a row of errand_option beside its args.
	sqlInsertMarkedJob = insertJob(plainColumns + `, headers, options`)
)

// sqlInsertReadyJobs are for plain jobs that are ready and have no priority, as most have: two
// parameters less to bind. That at i is for 1<<i of them. Without OR FAIL SQLite would keep a copy of
// each page until the end of the statement. An error ends the whole call anyway.
var sqlInsertReadyJobs = func() (texts [7]string) {
	for i := range texts {
		texts[i] = `INSERT OR FAIL INTO main.errand_job (` + plainColumns + `) VALUES (?, ?, 0, ?, ?, ?, ?, 2)` +
			strings.Repeat(`, (?, ?, 0, ?, ?, ?, ?, 2)`, 1<<i-1)
	}
	return texts
}()

// readyValues is how many values each of these jobs has.
const readyValues = 6

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
		if t.leaseInRun(d) {
			return true, nil
		}
		text := sqlLease
		if was.State == blocked {
			text = sqlLeaseBlocked
		}
		n, err = t.execCount(text, r.Token, d.to.holder, d.to.until, r.ID)
	case setBack:
		n, err = t.execCount(sqlReschedule, r.State, r.DueAt, r.Delay, r.Attempt, r.Retry, r.Snoozes, r.Crashes, was.ID, was.Token)
	case setRunNow:
		n, err = t.execCount(sqlRunNow, was.ID, d.at)
	case setWork, setPlace:
		return true, t.rewrite(d)
	case setUntil:
		if n, err = t.execCount(sqlExtend, d.at, was.ID, was.Token); n == 0 && err == nil {
			b := t.returned()
			err = t.row(sqlExtendAsked, []any{d.at, was.ID, was.Token}, &b.cancelling)
			d.cancelling = b.cancelling
			n = 1
		}
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
		n, err = t.execCount(sqlMarkKept, was.ID, was.Token, was.State, !d.clears)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return n > 0, err
}

// remove is write for a job that leaves its table: it has the job enter the one to which it goes, if
// any, before.
func (t *tx) remove(f *facts, e *departure) (found bool, err error) {
	n, is := int64(1), e.effect.Counters(f.counters())
	switch e.state {
	case done, cancelled, expired:
		if f.plain && e.error == "" && e.effect.Add.Attempt == 0 {
			n, err = t.execCount(sqlKeepPlain, e.state, e.at, e.purgeAt, f.ID, f.Token)
			break
		}
		n, err = t.execCount(sqlKeep, is.Attempt, is.Crashes, e.state, e.at, e.purgeAt, nullable(e.error), f.ID, f.Token, f.State)
	case dead:
		n, err = t.execCount(sqlBury, is.Attempt, is.Crashes, is.Snoozes, e.inEffect, e.at, e.reason, e.error, e.cause, f.ID, f.Token, f.State)
	}
	if n > 0 && err == nil && f.State.live() {
		n, err = t.execCount(sqlDropJob, f.ID, f.Token, f.State)
	}
	return n > 0 && err == nil, err
}

// moveAll is write for setMoved: the same becomes of all jobs.
func (t *tx) moveAll(rows []*rules.Row, m *move) error {
	all := make([]int64, len(rows))
	for i, r := range rows {
		all[i] = r.Is.ID
	}
	keys := jsonKeys(all)
	if m.has { // also of jobs that are missing: damage need not stop the others
		if _, err := t.exec(sqlSetRoles, keys, m.role); err != nil {
			return err
		}
	}
	var err error
	switch {
	case m.state == 0:
	case m.put:
		_, err = t.exec(sqlMoveTo, keys, m.state, m.delay, m.due)
	default:
		_, err = t.exec(sqlMove, keys, m.state, m.delay)
	}
	return err
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
		if n != &r.Options {
			set |= *n
		}
	}
	few := set == 0 && !r.UniqueKey.Valid
	var values []any
	if t.stmts != nil {
		values = t.stmts.job[:0]
	}
	plain := few && headers == nil && r.Options == 0
	if plain && r.Priority == 0 && r.State == ready {
		return t.insertReady(append(values, r.ID, r.Lane, r.DueAt, int64(r.Salt), r.CreatedAt, args)...)
	}
	values = append(values, r.ID, r.Lane, r.Priority, r.DueAt, int64(r.Salt), r.CreatedAt, args, r.State)
	switch {
	case plain:
		_, err = t.exec(sqlInsertPlainJob, values...)
		return err
	case few:
		_, err = t.exec(sqlInsertMarkedJob, append(values, headers, r.Options)...)
		return err
	}
	values = append(values, headers, r.Token, r.Attempt, nullable(r.UniqueKey.String), r.Delay, r.Instance, r.Until)
	for _, n := range numbers {
		values = append(values, *n)
	}
	_, err = t.exec(sqlInsertJob, values...)
	return err
}

// inserts are the values of new jobs on their way into errand_job.
type inserts struct {
	job [21]any // of one
	// unwritten are those of jobs that the transaction has inserted and that are not in the table yet,
	// see insertReady. They are written before any other statement runs, so none misses them.
	unwritten []any
}

// insertReady is insert for a plain job that is ready and has no priority.
func (t *tx) insertReady(values ...any) error {
	if !t.collects() {
		_, err := t.exec(sqlInsertReadyJobs[0], values...)
		return err
	}
	t.stmts.unwritten = append(t.stmts.unwritten, values...)
	if len(t.stmts.unwritten) < readyValues<<(len(sqlInsertReadyJobs)-1) {
		return nil
	}
	return t.stmts.writeInserts()
}

// writeInserts writes the jobs that are unwritten. An error may be that of another request than the
// one that meets it, so the batch is written again row by row.
func (s *statements) writeInserts() error {
	rest := s.unwritten
	s.unwritten = rest[:0]
	for i := len(sqlInsertReadyJobs) - 1; i >= 0; i-- {
		for n := readyValues << i; len(rest) >= n; rest = rest[n:] {
			if _, err := s.exec(sqlInsertReadyJobs[i], rest[:n]...); err != nil {
				s.runs.broken = true
				return err
			}
			s.wrote += 1<<i - 1
		}
	}
	return nil
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

// deleteBelongings deletes what is kept beside a job that is gone, see dropOption.
func (t *tx) deleteBelongings(f *facts, inRun bool) error {
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
	return t.dropOption(f, inRun)
}

// execCount runs a statement and returns how many rows it has changed.
func (t *tx) execCount(text string, args ...any) (int64, error) {
	res, err := t.exec(text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// runs are the leases of jobs, and the ends of those that are plain or not kept, that a call of the
// writer has made and not written yet. Jobs with neighbouring keys and tokens are a run, which one
// statement writes: most jobs are leased in the order of their keys. If a run is not as it was taken
// to be, the transaction is rolled back, and the batch is written again without runs.
type runs struct {
	off    bool // the batch is written again
	broken bool // a run was not as it was taken to be, or jobs could not be inserted together
	open   bool // changes are collected, see inRuns
	leases []inRun
	ends   []inRun
	to     grant // of all leases
	ended  int64 // when those of ends have
}

// inRun is a job of a run.
type inRun struct {
	key, token int64
	purgeAt    int64 // 0 if the job is not kept, or does not end
	size       int64 // of an end: of args and headers
	option     bool  // the job that ends has a row of errand_option
}

// firstLeaf is how many bytes the rows have that are deleted last, those with the lowest keys.
// They are more than a third of a page, below which SQLite would move rows from the next pages
// into the first one of the table again and again, and write all of these: with rows of 170 bytes
// it wrote twice as many pages. Each row has rowBytes beside its args.
const (
	firstLeaf = 2400
	rowBytes  = 60
)

// errRun says that jobs of a run have changed.
var errRun = errors.New("errand: jobs that were leased or ended together are not as they were")

// orRowByRow runs a transaction, and runs it again without runs if one of them is broken.
func (rs *runs) orRowByRow(transact func() (culprit int, err error)) (culprit int, err error) {
	rs.broken = false
	if culprit, err = transact(); err != nil && rs.broken {
		was := rs.off
		rs.off, rs.broken = true, false
		culprit, err = transact()
		rs.off = was
	}
	return culprit, err
}

// collects reports whether changes are collected, so that jobs are written many at a time: in
// transactions of the writer, but not on a disk that is nearly full.
func (t *tx) collects() bool { return t.inTx && !t.stmts.runs.off && !t.store.marks.low.Load() }

// err returns an error if broken is set, also if a request has passed over that.
func (rs *runs) err() error {
	if rs.broken {
		return errRun
	}
	return nil
}

// inRuns calls f, which must not call inRuns, and writes the runs of what f has changed. Until then or
// until writeRuns no statement must depend on the rows of jobs that f leases or ends. There are no runs
// but in transactions of the writer, as OR ROLLBACK ends those of others; nor on a disk that is
// nearly full: jobs that are kept together take their new room before they give the old one back.
func (t *tx) inRuns(f func() error) error {
	if !t.collects() {
		return f()
	}
	rs := &t.stmts.runs
	rs.open, rs.ends, rs.leases = true, rs.ends[:0], rs.leases[:0]
	err := f()
	if err == nil {
		err = t.writeRuns()
	}
	rs.open = false
	return err
}

// writeRuns writes the runs so far, if changes are collected.
func (t *tx) writeRuns() error {
	if t.stmts == nil || !t.stmts.runs.open {
		return nil
	}
	rs := &t.stmts.runs
	slices.SortFunc(rs.leases, byKey)
	slices.SortFunc(rs.ends, byKey)
	err := eachRun(rs.leases, t.leaseRun)
	if err == nil {
		err = eachRun(rs.ends, t.keepRun)
	}
	if err == nil {
		err = eachRun(firstLast(rs.ends), t.dropRun)
	}
	rs.ends, rs.leases = rs.ends[:0], rs.leases[:0]
	return err
}

// eachRun calls write with each run of jobs.
func eachRun(jobs []inRun, write func(run []inRun) error) error {
	for len(jobs) > 0 {
		n := 1
		for n < len(jobs) && jobs[n].key == jobs[n-1].key+1 && jobs[n].token == jobs[n-1].token+1 && jobs[n].purgeAt == jobs[0].purgeAt {
			n++
		}
		if err := write(jobs[:n]); err != nil {
			return err
		}
		jobs = jobs[n:]
	}
	return nil
}

// firstLast moves the first of jobs to the end, see firstLeaf.
func firstLast(jobs []inRun) []inRun {
	n, bytes := 0, int64(0)
	for ; n < len(jobs) && bytes < firstLeaf; n++ {
		bytes += rowBytes + jobs[n].size
	}
	slices.Reverse(jobs[:n])
	slices.Reverse(jobs[n:])
	slices.Reverse(jobs)
	return jobs
}

func byKey(a, b inRun) int { return cmp.Compare(a.key, b.key) }

// leaseInRun reports whether a lease goes with a run. A job that may be urgent does not, nor one
// of a group whose others may be leased with it, see [granting.bring].
func (t *tx) leaseInRun(d *delta) bool {
	if d.was.State != ready || d.outOfTurn || d.row.leads > 0 && d.row.Options&hasOption != 0 || t.stmts == nil || !t.stmts.runs.open || t.mayHurry() {
		return false
	}
	rs := &t.stmts.runs
	rs.leases, rs.to = append(rs.leases, inRun{key: d.row.ID, token: d.row.Token}), *d.to
	return true
}

// endInRun reports whether the end of a job goes with a run: if it is not kept, with its option.
func (t *tx) endInRun(f *facts, e *departure) bool {
	if !f.together || e.unkept != done && (e.state != done || !f.plain) || e.error != "" || e.effect.Add != (storage.Counters{}) || t.stmts == nil || !t.stmts.runs.open {
		return false
	}
	rs, end := &t.stmts.runs, inRun{key: f.ID, token: f.Token, size: f.Size, option: f.Options&hasOption != 0}
	if e.state == done {
		end.purgeAt = e.purgeAt
	}
	rs.ends, rs.ended = append(rs.ends, end), e.at
	return true
}

func (t *tx) leaseRun(run []inRun) error {
	to := t.stmts.runs.to
	return t.execRun(run, sqlLeaseRun, run[0].token-run[0].key, to.holder, to.until, run[0].key, run[len(run)-1].key)
}

func (t *tx) keepRun(run []inRun) error {
	if run[0].purgeAt == 0 {
		return nil
	}
	return t.execRun(run, sqlKeepRun, done, t.stmts.runs.ended, run[0].purgeAt, run[0].key, run[len(run)-1].key, run[0].token-run[0].key)
}

func (t *tx) dropRun(run []inRun) error {
	first, last := run[0].key, run[len(run)-1].key
	err := t.execRun(run, sqlDropRun, first, last, run[0].token-first)
	if err == nil && slices.ContainsFunc(run, func(r inRun) bool { return r.option }) {
		_, err = t.exec(sqlDropOptions, first, last)
		t.stmts.wrote += len(run) - 1
	}
	return err
}

// execRun runs a statement that changes a row of each job of a run.
func (t *tx) execRun(run []inRun, text string, args ...any) error {
	changed, err := t.execCount(text, args...)
	if err == nil && changed != int64(len(run)) {
		err = errRun
	}
	t.stmts.wrote += len(run) - 1
	t.stmts.runs.broken = t.stmts.runs.broken || err != nil // writeInserts may have set it
	return err
}
