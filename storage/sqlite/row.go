package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"

	"github.com/errandq/errand/storage"
)

// The columns that a job takes along from table to table. A new one that is a
// number, and zero for most jobs, goes to optionColumns and to numbers. Columns are
// named, bound or read one by one in dest, numbers, sqlHeads, headColumns and set here,
// in sqlKeepPlain and insert of jobtable.go, and in sqlPurgeFinished of dead.go.
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

	sqlJob  = `SELECT ` + wideColumns + `, state FROM main.errand_job WHERE id = ?1`
	sqlDead = `SELECT ` + wideColumns + `, 6 AS state, in_effect FROM main.errand_dead WHERE id = ?1`
)

// inlineLimit is how many bytes of args and headers stay in the job's row.
// Larger ones are written once, beside it, and never moved.
const inlineLimit = 2048

// The bits of options: errand_option has a row of the job, errand_tag has; the job was
// redriven; errand_history may have edits of it; errand_kept may have a row.
const (
	hasOption   = 1
	hasTags     = 2
	wasRedriven = 4
	hasEdits    = 8
	hasKept     = 16
)

// facts are what has to be known of a job when its row goes. Of a leased job none
// of them changes while the lease is held, but see forgetFacts.
type facts struct {
	ID        int64
	Token     int64
	Lane      int64
	State     stateCode
	Attempt   int
	UniqueKey sql.NullString `db:"unique_key"`
	Policy    int64
	Options   int64
	Beside    bool  // args and headers are in errand_payload
	Size      int64 // of args and headers; 0 if they are beside and were not read
	plain     bool  // the job is leased, and is known to have nothing but args
}

// jobRow is a job of any table, as sqlx and the prepared statements read it.
type jobRow struct {
	facts
	Queue     string
	Kind      string
	Priority  int
	DueAt     int64 `db:"due_at"`
	Delay     int64
	Salt      uint32
	CreatedAt int64 `db:"created_at"`
	Instance  int64
	Until     int64
	Retry     int64
	Crashes   int64
	Snoozes   int64
	Timeout   int64
	Doc       []byte // of the policy
	Headers   []byte
	Args      []byte
	option    *option // of a new job; of others nil until it is read
	leads     int     // see calls: the index of a want, plus one; 0: the job brings no others
}

// dest returns where the values of wideColumns go.
func (r *jobRow) dest(more ...any) []any {
	all := []any{&r.ID, &r.Lane, &r.Priority, &r.DueAt, &r.Salt, &r.CreatedAt, &r.Token, &r.Attempt, &r.UniqueKey}
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
func (r *jobRow) id() storage.ID { return storage.NewID(fromMicros(r.CreatedAt), r.Salt, r.ID) }

// counters returns the four counters.
func (r *jobRow) counters() storage.Counters {
	return storage.Counters{Attempt: r.Attempt, Retry: int(r.Retry), Crashes: int(r.Crashes), Snoozes: int(r.Snoozes)}
}

// Asking for a column takes as long as a tenth of the whole, so that the numbers
// that most jobs do not have come as one, which for them is NULL.
// There is no limit: the reader stops when it has enough.
var headsOf = `SELECT id, priority, due_at, attempt, salt, created_at, headers, args, unique_key,
CASE WHEN ` + strings.ReplaceAll(numberColumns, ",", " |") + ` OR args IS NULL OR token
THEN ` + strings.ReplaceAll(numberColumns, ", ", " || ' ' || ") + ` || ' ' || (args IS NULL) || ' ' || token END`

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
	*r = jobRow{Priority: int(ints[1]), DueAt: ints[2], Salt: uint32(ints[4]), CreatedAt: ints[5]}
	r.ID, r.Lane, r.State, r.Attempt = ints[0], lane, ready, int(ints[3])
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
	r.Token, err = next()
	return err
}
