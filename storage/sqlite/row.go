package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// The columns that a job takes along from table to table. A new one that is a
// number, and zero for most jobs, goes to optionColumns and to numbers. Columns are
// named, bound or read one by one in dest, numbers, sqlHeads, headColumns and set here,
// in keepPlain and insert of jobtable.go, and in sqlPurgeFinished of dead.go.
const (
	coreColumns    = `id, lane, priority, due_at, salt, created_at`
	keyColumns     = `token, attempt, unique_key`
	optionColumns  = `timeout, policy, options`
	payloadColumns = `headers, args`

	numberColumns  = optionColumns + `, retry, crashes, snoozes`
	narrowColumns  = coreColumns + `, ` + keyColumns + `, ` + numberColumns
	carriedColumns = coreColumns + `, token, unique_key, ` + optionColumns + `, retry, ` + payloadColumns
	// The driver gives nil for a BLOB of no bytes, so NULL is asked for apart.
	wideColumns = narrowColumns + `, ` + payloadColumns + `, args IS NULL AS beside, COALESCE(length(args), 0) + COALESCE(length(headers), 0) AS size`

	sqlJob  = `SELECT ` + wideColumns + `, state FROM main.errand_job WHERE id = ?`
	sqlDead = `SELECT ` + wideColumns + `, 6 AS state, in_effect FROM main.errand_dead WHERE id = ?1`
)

// inlineLimit is how many bytes of args and headers stay in the job's row.
// Larger ones are written once, beside it, and never moved.
const inlineLimit = 2048

// The bits of options: errand_option has a row of the job, errand_tag has; the job was
// redriven; errand_history may have edits of it; errand_kept may have a row; a schedule
// has enqueued it, so that errand_origin has a row while it is live or dead; its tags say
// where it came from, see [storage.Origin].
const (
	hasOption   = 1
	hasTags     = 2
	wasRedriven = 4
	hasEdits    = 8
	hasKept     = 16
	hasOrigin   = 32
	wasPassedOn = 64
)

// facts are what has to be known of a job when its row goes. Of a leased job none
// of them changes while the lease is held, but see forgetFacts.
// With more than 128 bytes a map would have each of them on the heap.
type facts struct {
	ID        int64
	Token     int64
	Lane      int64
	DueAt     int64 `db:"due_at"`
	Attempt   int
	Retry     int64
	Crashes   int64
	Snoozes   int64
	UniqueKey sql.NullString `db:"unique_key"`
	Policy    int64
	Options   int64
	Size      int64 // of args and headers; 0 if they are beside and were not read
	State     stateCode
	Beside    bool    // args and headers are in errand_payload
	plain     bool    // the job has nothing but args
	together  bool    // the job is leased and has no unique key, and FinishTx has not ended it as far as is known: see endInRun
	option    *option // of a job that is new or leased; of others nil until it is read, see headsOf
}

// jobRow is a job of any table, as sqlx and the prepared statements read it.
type jobRow struct {
	facts
	Queue     string
	Kind      string
	Priority  int
	Delay     int64
	Salt      uint32
	CreatedAt int64 `db:"created_at"`
	Instance  int64
	Until     int64
	Timeout   int64
	Doc       []byte // of the policy
	Headers   []byte
	Args      []byte
	comesFrom
	leads int // see calls: the index of a want, plus one; 0: the job brings no others
}

// comesFrom is what has made a new job.
type comesFrom struct {
	schedule string
	origin   storage.Origin
}

// markTags notes that a new job has tags, if there are any, and what they say of its origin.
func (r *jobRow) markTags(tags []string) {
	if len(tags) == 0 {
		return
	}
	r.Options |= hasTags
	if r.origin, _ = storage.OriginOf(tags); r.origin != (storage.Origin{}) {
		r.Options |= wasPassedOn
	}
}

// dest returns where the values of wideColumns go.
func (r *jobRow) dest(more ...any) []any {
	all := append(make([]any, 0, 21), &r.ID, &r.Lane, &r.Priority, &r.DueAt, &r.Salt, &r.CreatedAt, &r.Token, &r.Attempt, &r.UniqueKey)
	for _, n := range r.numbers() {
		all = append(all, n)
	}
	return append(append(all, &r.Headers, &r.Args, &r.Beside, &r.Size), more...)
}

// numbers returns where the values of numberColumns are.
func (r *jobRow) numbers() [6]*int64 {
	return [...]*int64{&r.Timeout, &r.Policy, &r.Options, &r.Retry, &r.Crashes, &r.Snoozes}
}

// id returns the name of the job for the outside.
func (r *jobRow) id() storage.ID { return idOf(r.CreatedAt, r.Salt, r.ID) }

// counters returns the four counters.
func (f *facts) counters() storage.Counters {
	return storage.Counters{Attempt: f.Attempt, Retry: int(f.Retry), Crashes: int(f.Crashes), Snoozes: int(f.Snoozes)}
}

// count sets the four counters.
func (f *facts) count(n storage.Counters) {
	f.Attempt, f.Retry, f.Crashes, f.Snoozes = n.Attempt, int64(n.Retry), int64(n.Crashes), int64(n.Snoozes)
}

// Asking for a column takes as long as a tenth of the whole, so that the numbers
// that most jobs do not have come as one, which for them is NULL.
// There is no limit: the reader stops when it has enough. What is in errand_option comes
// with these numbers, if there is a row: its role, whether it has more than that, and the group.
var headsOf = `SELECT id, priority, due_at, attempt, salt, created_at, headers, args, unique_key,
CASE WHEN ` + strings.ReplaceAll(numberColumns, ",", " |") + ` OR args IS NULL OR token
THEN ` + strings.ReplaceAll(numberColumns, ", ", " || ' ' || ") + ` || ' ' || (args IS NULL) || ' ' || token
|| CASE WHEN options & 1 THEN COALESCE((SELECT ' ' || role || ' ' || ` + moreOption + ` || ' ' || COALESCE(group_key, '') FROM main.errand_option WHERE job = id), '') ELSE '' END END`

var sqlHeads = headsOf + ` FROM main.errand_job WHERE state = 2 AND lane = ?1 ORDER BY priority DESC, due_at, id`

const headColumns = 10

// set takes the values of a row of sqlHeads. The driver returns int64, string,
// nil, and []byte that nobody else has.
func (r *jobRow) set(lane int64, v []driver.Value) error {
	var ints [6]int64
	for i := range ints {
		x, ok := v[i].(int64)
		if !ok {
			return fmt.Errorf("%w: column %d of a ready job is a %T: must be an integer", storage.ErrCorrupt, i, v[i])
		}
		ints[i] = x
	}
	*r = jobRow{Priority: int(ints[1]), Salt: uint32(ints[4]), CreatedAt: ints[5]}
	r.ID, r.Lane, r.State, r.DueAt, r.Attempt = ints[0], lane, ready, ints[2], int(ints[3])
	r.Headers, _ = v[6].([]byte) // nil if NULL
	r.Args, _ = v[7].([]byte)
	r.UniqueKey.String, r.UniqueKey.Valid = v[8].(string)
	if rest, ok := v[9].(string); ok {
		return r.setRest(rest)
	}
	r.plain = r.Headers == nil && !r.UniqueKey.Valid
	return nil
}

func (r *jobRow) setRest(text string) error {
	next := func() (n int64, err error) {
		word, rest, _ := strings.Cut(text, " ")
		text = rest
		if n, err = strconv.ParseInt(word, 10, 64); err != nil {
			err = fmt.Errorf("%w: numbers of a ready job: %w", storage.ErrCorrupt, err)
		}
		return n, err
	}
	for _, to := range r.numbers() {
		n, err := next()
		if err != nil {
			return err
		}
		*to = n
	}
	beside, err := next()
	if err != nil {
		return err
	}
	r.Beside = beside != 0
	if r.Token, err = next(); err != nil || text == "" {
		return err
	}
	role, err := next()
	if err != nil {
		return err
	}
	if more, err := next(); more != 0 || err != nil {
		return err
	}
	r.option = &option{Job: r.ID, membership: membership{GroupKey: text, Role: rules.Role(role)}}
	return nil
}

// waitingJob is a job as sqlTally and sqlKey return it, the latter with its state: numbers in a text, or
// NULL, as there is mostly none.
type waitingJob rules.Job

// Scan implements [sql.Scanner].
func (w *waitingJob) Scan(v any) error {
	text, _ := v.(string)
	state := int64(0)
	for _, to := range [...]*int64{&w.ID, &w.Lane, &w.Due, &w.Delay, &state} {
		word, rest, _ := strings.Cut(text, " ")
		if *to, text = 0, rest; word == "" {
			continue
		}
		var err error
		if *to, err = strconv.ParseInt(word, 10, 64); err != nil {
			return fmt.Errorf("%w: numbers of a job that waits: %w", storage.ErrCorrupt, err)
		}
	}
	if state > 0 && state < int64(len(stateNames)) {
		w.State = stateNames[state]
	}
	setDelay((*rules.Job)(w))
	return nil
}

// setDelay sets what the column says of the delay of a job, see dueBlocked.
func setDelay(j *rules.Job) {
	if j.WasDue = j.Delay == dueBlocked; j.WasDue {
		j.Delay = 0
	}
}

// delayOf is the reverse of setDelay.
func delayOf(j *rules.Job) int64 {
	if j.WasDue {
		return dueBlocked
	}
	return j.Delay
}

// move is what becomes of jobs that wait.
type move struct {
	state stateCode // 0: the state, the due time and the delay stay
	delay int64
	put   bool // they are due at another time
	due   int64
	has   bool // they have another role
	role  rules.Role
}

// moveOf returns what becomes of a job.
func moveOf(r *rules.Row) (m move) {
	is := &r.Is
	if m.has = is.Role != r.Was.Role; m.has {
		m.role = is.Role
	}
	if m.put = is.Due != r.Was.Due; m.put {
		m.due = is.Due
	}
	if !m.put && is.State == r.Was.State && is.Delay == r.Was.Delay && is.WasDue == r.Was.WasDue {
		return m
	}
	m.state, m.delay = codeOf(is.State), delayOf(is)
	return m
}

const (
	sqlFindPolicy = `SELECT policy FROM main.errand_policy WHERE doc = ?1`
	sqlAddPolicy  = `INSERT INTO main.errand_policy (doc) VALUES (?1)`
	sqlPolicy     = `SELECT doc FROM main.errand_policy WHERE policy = ?1`
	sqlRefer      = `UPDATE main.errand_policy SET refs = refs + ?2 WHERE policy = ?1`
	// The last one stays: its number would be given again, to another document.
	sqlDropPolicies = `DELETE FROM main.errand_policy WHERE policy IN
(SELECT policy FROM main.errand_policy WHERE refs = 0 AND policy < (SELECT MAX(policy) FROM main.errand_policy) LIMIT 1000)`
)

// mostPolicies is how many documents are kept in memory.
const mostPolicies = 1000

// policy returns the number under which a policy document is stored, and 0 for
// none.
func (t *tx) policy(doc []byte) (int64, error) {
	if len(doc) == 0 {
		return 0, nil
	}
	var id int64
	err := t.row(sqlFindPolicy, []any{string(doc)}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		var res sql.Result
		if res, err = t.exec(sqlAddPolicy, string(doc)); err == nil {
			id, err = res.LastInsertId()
			t.tidy = true
		}
	}
	return id, err
}

// policyDoc is the reverse of policy.
func (t *tx) policyDoc(id int64) ([]byte, error) {
	if id == 0 {
		return nil, nil
	}
	if doc, ok := t.store.cache.policy(id); ok {
		return slices.Clone(doc), nil
	}
	var doc []byte
	if err := t.row(sqlPolicy, []any{id}, &doc); err != nil {
		return nil, err
	}
	t.after = append(t.after, func() { t.store.cache.keepPolicy(id, slices.Clone(doc)) }) // not before: a rollback frees the number
	return doc, nil
}

// refer counts n references to a policy more; 0 stands for none.
func (t *tx) refer(policy, n int64) {
	if policy == 0 {
		return
	}
	if t.refs == nil {
		t.refs = map[int64]int64{}
	}
	t.refs[policy] += n
}

// flushPolicies writes what refer has counted. When policies are added, or jobs
// deleted after their time, it also deletes policies that nothing refers to. Not
// whenever a job ends: the next job may have the same policy.
func (t *tx) flushPolicies() error {
	for policy, n := range t.refs {
		if n == 0 {
			continue
		}
		if _, err := t.exec(sqlRefer, policy, n); err != nil {
			return err
		}
	}
	if !t.tidy || len(t.refs) == 0 {
		return nil
	}
	_, err := t.exec(sqlDropPolicies)
	return err
}
