//go:build unix

package torture_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["till"] = runTill }

// charge is a job that is done with one row of the application's, its receipt: both are
// written in one transaction. Its number says in which manner.
type charge struct {
	N     int
	Waits int // for what its first attempt waits before it goes on
}

// What the first attempt of a job waits for.
const (
	forNothing = iota
	untilTaken // until another attempt is under way, which ends when the first has tried to end
	untilOver  // until another attempt has done the job
)

func (charge) Kind() string { return "charge" }

// bulkCharge is a charge that ends with others, in one call and one transaction, in the
// manner of the last of them.
type bulkCharge struct{ charge }

func (bulkCharge) Kind() string { return "bulk-charge" }

// The ways in which a job ends with the transaction of its receipt.
const (
	byFinish = iota // Job.Finish
	byTx            // CompleteTx in a transaction of the queue
	byOwn           // CompleteTx in a transaction of the application
	inBulk          // CompleteTx of many jobs, in either
	waysToEnd
)

func (c charge) way() int { return c.N % waysToEnd }

// careless reports whether the handler ignores the errors of Finish, CompleteTx, Commit and
// Rollback, and goes on when its lease is lost.
func (c charge) careless() bool { return c.N/waysToEnd%2 == 1 }

// first reports whether the job is completed before the receipt is written.
func (c charge) first() bool { return c.N/(2*waysToEnd)%2 == 1 }

// inOwn reports whether the transaction is one of the application.
func (c charge) inOwn() bool {
	return c.way() == byOwn || c.way() == inBulk && c.N/(4*waysToEnd)%2 == 1
}

// unlucky reports whether the first attempt fails after it has written all there is to write.
func (c charge) unlucky() bool { return c.N%5 == 0 && c.Waits == forNothing }

var errUnlucky = errors.New("bad luck")

// manners is how many jobs have all that may differ between them.
const manners = 8 * waysToEnd

// newCharges returns the jobs with these numbers.
func newCharges(waits int, numbers ...int) (jobs []errand.NewJob) {
	for _, n := range numbers {
		c := charge{N: n, Waits: waits}
		if c.way() == inBulk {
			jobs = append(jobs, errand.NewJob{Args: bulkCharge{c}})
		} else {
			jobs = append(jobs, errand.NewJob{Args: c})
		}
	}
	return jobs
}

// The table has no unique constraint: a second receipt would be seen.
const (
	sqlMakeReceipts = `CREATE TABLE receipt (n INTEGER, attempt INTEGER, program INTEGER); CREATE TABLE tried (n INTEGER)`
	sqlAddReceipt   = `INSERT INTO receipt VALUES (?1, ?2, ?3)`
	sqlHasReceipt   = `SELECT EXISTS (SELECT 1 FROM receipt WHERE n = ?1)`
	sqlIsTaken      = `SELECT NOT EXISTS (SELECT 1 FROM errand_job WHERE json_extract(CAST(args AS TEXT), '$.N') = ?1 AND attempt = 1)`
	sqlAddTried     = `INSERT INTO tried VALUES (?1)`
	sqlHasTried     = `SELECT EXISTS (SELECT 1 FROM tried WHERE n = ?1)`
)

// makeReceipts makes the tables.
func makeReceipts(t *testing.T, q *errand.Queue) {
	t.Helper()
	err := q.Tx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec(sqlMakeReceipts)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// till is a program that writes receipts.
type till struct {
	part
	voice *voice
	q     *errand.Queue
	db    *sql.DB // the application's own
}

// runTill is the program. With Finish it ends when no job is left, and else when it is told
// to. One with an odd number keeps no finished jobs.
func runTill(p part, v *voice) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o := groupOptions(p.Relaxed)
	if p.First%2 == 1 {
		o.Retention = -1
	}
	q, err := errand.Open(context.Background(), p.DB, o)
	if err != nil {
		return err
	}
	db, err := raw(p.DB)
	if err != nil {
		return err
	}
	t := &till{part: p, voice: v, q: q, db: db}
	w := errand.NewWorker(q, &errand.WorkerOptions{
		Concurrency: max(p.Workers, 1), LeaseDuration: cmp.Or(p.Lease, time.Minute), MaxCrashes: 1_000_000,
	})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[charge]) error {
		return t.handle(ctx, payment{job.Args, []entered{{job, job.Args, job.Attempt}}})
	})
	errand.HandleMany(w, func(ctx context.Context, jobs []*errand.Job[bulkCharge]) error {
		var p payment
		for _, job := range jobs {
			p.charge = job.Args.charge
			p.all = append(p.all, entered{job, job.Args.charge, job.Attempt})
		}
		return t.handle(ctx, p)
	}, errand.BatchOptions{Max: 5})
	v.say("ready")
	var left error
	if p.Finish {
		all, cancel := context.WithCancel(ctx)
		waited := make(chan error, 1)
		go func() {
			waited <- t.untilDone(ctx)
			cancel()
		}()
		err = w.Run(all)
		left = <-waited
	} else {
		err = w.Run(ctx)
	}
	if err := errors.Join(err, left, q.Close(), db.Close()); err != nil {
		return err
	}
	v.say("complete")
	return nil
}

// payment is a call of a handler: jobs that end in one transaction, and in what manner.
type payment struct {
	charge
	all []entered
}

// entered is a job of a payment.
type entered struct {
	job interface {
		Finish(context.Context, func(*sql.Tx) error) error
		CompleteTx(context.Context, *sql.Tx) error
	}
	charge
	attempt int
}

func (t *till) handle(ctx context.Context, p payment) error {
	if err := t.wait(p); err != nil {
		return err
	}
	t.say("pays", p, nil)
	<-time.After(rand.N(t.Handling + 1))
	if p.careless() {
		ctx = context.Background()
	}
	tried, err := t.pay(ctx, p)
	for _, e := range p.all {
		if e.waitsFor() == sqlIsTaken {
			if _, err := t.db.Exec(sqlAddTried, e.N); err != nil {
				return err
			}
		}
	}
	switch {
	case err == nil:
		t.say("wrote", p, nil)
	case errors.Is(err, errand.ErrLeaseLost):
		t.say("late", p, err)
	default:
		t.say("refused", p, err)
	}
	if tried && p.careless() {
		return nil
	}
	return err
}

func (t *till) say(word string, p payment, err error) {
	var lines []string
	for _, e := range p.all {
		lines = append(lines, fmt.Sprintf("%s %d %d %s", word, e.N, e.attempt, strings.ReplaceAll(fmt.Sprint(err), "\n", "; ")))
	}
	t.voice.lines(lines)
}

// pay writes the receipts and ends the jobs. tried reports whether it came to the latter: a
// job that nobody has tried to complete is done if its handler returns nil, as ever.
func (t *till) pay(ctx context.Context, p payment) (tried bool, err error) {
	var luck error
	for _, e := range p.all {
		if e.unlucky() && e.attempt == 1 {
			luck = errUnlucky
		}
	}
	write := func(tx *sql.Tx) error {
		for _, e := range p.all {
			if _, err := tx.ExecContext(ctx, sqlAddReceipt, e.N, e.attempt, t.First); err != nil {
				return err
			}
		}
		<-time.After(rand.N(t.Handling/4 + 1)) // so that some are killed here
		return nil
	}
	if p.way() == byFinish {
		return true, p.all[0].job.Finish(ctx, func(tx *sql.Tx) error { return cmp.Or(write(tx), luck) })
	}
	var ignored error
	complete := func(tx *sql.Tx) error {
		tried = true
		for _, e := range p.all {
			err := e.job.CompleteTx(ctx, tx)
			if err != nil && !p.careless() {
				return err
			}
			ignored = errors.Join(ignored, err)
		}
		return nil
	}
	steps := []func(*sql.Tx) error{write, complete}
	if p.first() {
		slices.Reverse(steps)
	}
	both := func(tx *sql.Tx) error {
		if err := steps[0](tx); err != nil {
			return err
		}
		return cmp.Or(steps[1](tx), luck)
	}
	if p.inOwn() {
		err = t.ownTx(ctx, both)
	} else {
		err = t.q.Tx(ctx, both)
	}
	if err != nil {
		err = errors.Join(err, ignored)
	}
	return tried, err
}

// ownTx calls f in a transaction of the application.
func (t *till) ownTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the commit there is nothing to roll back
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// waitsFor returns the question that is to be answered with yes before an attempt goes on.
func (e entered) waitsFor() string {
	switch {
	case e.Waits == untilTaken && e.attempt == 1:
		return sqlIsTaken
	case e.Waits == untilTaken && e.attempt == 2:
		return sqlHasTried
	case e.Waits == untilOver && e.attempt == 1:
		return sqlHasReceipt
	}
	return ""
}

// wait says which first attempts wait, and whether they are careless after that.
func (t *till) wait(p payment) error {
	for _, e := range p.all {
		if e.attempt == 1 && e.Waits != forNothing {
			t.voice.say("waits %d %t", e.N, p.careless())
		}
	}
	for _, e := range p.all {
		question := e.waitsFor()
		for yes := question == ""; !yes; <-time.After(5 * time.Millisecond) {
			if err := t.db.QueryRow(question, e.N).Scan(&yes); err != nil {
				return err
			}
		}
	}
	return nil
}

// untilDone waits until no job is left.
func (t *till) untilDone(ctx context.Context) error {
	for left := int64(1); left > 0; <-time.After(5 * time.Millisecond) {
		counts, err := t.q.Counts(ctx)
		if err != nil {
			return err
		}
		left = 0
		for _, c := range counts {
			if c.State != errand.Done {
				left += c.N
			}
		}
	}
	return nil
}
