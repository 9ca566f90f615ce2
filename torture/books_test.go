//go:build unix

package torture_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand"
)

// books compare the rows of the application with the jobs, and with what tills were
// told. The test itself enqueues the jobs.
type books struct {
	t      *testing.T
	db     *sql.DB
	jobs   []int        // numbers of those that were enqueued
	wrote  map[int]int  // by job, the attempt of which a till was told that it is committed
	late   map[int]bool // jobs of which a till was told that its lease is lost
	within int          // tills that were killed while an attempt was under way
}

func newBooks(t *testing.T, path string) *books {
	t.Helper()
	db, err := raw(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &books{t: t, db: db, wrote: map[int]int{}, late: map[int]bool{}}
}

// add enqueues the jobs with the next n numbers.
func (r *books) add(q *errand.Queue, n, waits int) (numbers []int) {
	r.t.Helper()
	for range n {
		numbers = append(numbers, len(r.jobs)+len(numbers))
	}
	r.enqueue(q, newCharges(waits, numbers...), numbers)
	return numbers
}

func (r *books) enqueue(q *errand.Queue, jobs []errand.NewJob, numbers []int) {
	r.t.Helper()
	if _, err := q.EnqueueMany(r.t.Context(), jobs); err != nil {
		r.t.Fatal(err)
	}
	r.jobs = append(r.jobs, numbers...)
}

// hear takes what a till has said to its end.
func (r *books) hear(lines ...string) {
	r.t.Helper()
	pays := 0
	for _, line := range lines {
		var word string
		var n, attempt int
		if _, err := fmt.Sscan(line, &word, &n, &attempt); err != nil {
			continue // it is about no attempt
		}
		switch word {
		case "pays":
			pays++
			continue
		case "wrote":
			if before, ok := r.wrote[n]; ok {
				r.t.Errorf("job %d: a till was told that attempt %d is committed, and then that attempt %d is", n, before, attempt)
			}
			r.wrote[n] = attempt
		case "late":
			r.late[n] = true
		}
		pays--
	}
	if pays > 0 {
		r.within++
	}
}

// rest returns what a child that has ended has said and nobody has heard.
func rest(c *child) (lines []string) {
	for line := range c.said {
		lines = append(lines, line)
	}
	return lines
}

// sqlBooks is one statement, and so sees one moment.
const sqlBooks = `SELECT 'job', json_extract(CAST(args AS TEXT), '$.N'), attempt, state FROM (
SELECT args, attempt, state FROM errand_job UNION ALL SELECT args, attempt, state FROM errand_finished UNION ALL SELECT args, attempt, 6 FROM errand_dead)
UNION ALL SELECT 'receipt', n, attempt, program FROM receipt`

// sold is a job, or a receipt, as the tables have it.
type sold struct{ attempt, state, program int }

func (r *books) read() (jobs, rows map[int][]sold) {
	r.t.Helper()
	jobs, rows, err := r.tryRead()
	if err != nil {
		r.t.Fatal(err)
	}
	return jobs, rows
}

// locked reports whether an error is that of a reader which could not begin, as a process is
// stopped in the middle of a change of the log's index.
func locked(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == lib.SQLITE_PROTOCOL
}

// tryRead is read for a file that may be locked.
func (r *books) tryRead() (jobs, rows map[int][]sold, err error) {
	jobs, rows = map[int][]sold{}, map[int][]sold{}
	all, err := r.db.Query(sqlBooks)
	if err != nil {
		return nil, nil, err
	}
	defer all.Close()
	for all.Next() {
		var what string
		var n, attempt, last int
		if err := all.Scan(&what, &n, &attempt, &last); err != nil {
			return nil, nil, err
		}
		if what == "job" {
			jobs[n] = append(jobs[n], sold{attempt: attempt, state: last})
		} else {
			rows[n] = append(rows[n], sold{attempt: attempt, program: last})
		}
	}
	return jobs, rows, all.Err()
}

// mustMatch fails the test unless each job that is done has one receipt, that of its last
// attempt, and each other job has none. So it has to be at any moment. It returns how many
// jobs are done, and how many of them were cut off before: of those of which no attempt can
// have failed.
func (r *books) mustMatch(after string, args ...any) (ended, again int) {
	r.t.Helper()
	jobs, rows := r.read()
	var faults []string
	fault := func(n int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("job %d (way %d, careless %t): ", n, charge{N: n}.way(), charge{N: n}.careless())+fmt.Sprintf(format, args...))
	}
	for _, n := range r.jobs {
		all, mine := jobs[n], rows[n]
		delete(jobs, n)
		delete(rows, n)
		over := len(all) == 0 || all[0].state == done // if it is nowhere, it was done and not kept
		want := 0
		if over {
			ended, want = ended+1, 1
		}
		attempt, told := r.wrote[n]
		switch {
		case len(all) > 1 || len(mine) != want || told && !over:
			fault(n, "its rows are %+v, its receipts %+v; a till was told that it is committed: %t", all, mine, told)
		case !over && all[0].state > done:
			fault(n, "its state is %d", all[0].state)
		case over && len(all) == 1 && mine[0].attempt != all[0].attempt, told && mine[0].attempt != attempt:
			fault(n, "it ended with %+v, its receipt is %+v; a till was told that attempt %d is committed", all, mine[0], attempt)
		case over && mine[0].attempt > 1 && !(charge{N: n}).unlucky() && charge{N: n}.way() != inBulk:
			again++
		}
	}
	for n, all := range jobs {
		fault(n, "nobody enqueued it: %+v", all)
	}
	for n, all := range rows {
		fault(n, "nobody enqueued it: its receipts are %+v", all)
	}
	if len(faults) > 0 {
		r.t.Errorf("%s: %d jobs have not exactly one receipt:\n\t%s", fmt.Sprintf(after, args...), len(faults), strings.Join(faults[:min(len(faults), 20)], "\n\t"))
	}
	return ended, again
}
