package cookbook_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
)

// Sort has the args of a job that sorts words. In River: SortArgs.
type Sort struct {
	Words []string `json:"words"`
}

// Kind names the type of job, as in River.
func (Sort) Kind() string { return "sort" }

// sortWords is a handler. In River: the method Work of a SortWorker.
func sortWords(_ context.Context, job *errand.Job[Sort]) error {
	if len(job.Args.Words) == 0 {
		return errand.Cancel(errors.New("no words")) // in River: JobCancel
	}
	fmt.Println(strings.Join(slices.Sorted(slices.Values(job.Args.Words)), " "))
	return nil
}

// What River's introduction shows: a worker, jobs alone and in a transaction, a unique job, a
// periodic job, and what a test asks. The comments name what River has in each place.
func Example_fromRiver() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	noon := time.Date(2027, 5, 1, 12, 5, 0, 0, time.UTC) // no tick comes while this runs
	q, remove := tempQueue(&errand.Options{Clock: func() time.Time { return noon }})
	defer remove()

	// Insert
	must(q.Enqueue(ctx, Sort{Words: []string{"whale", "tiger", "bear"}}, nil))

	// InsertTx: the row and the job are committed together
	check(q.Tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE animal (name TEXT)`); err != nil {
			return err
		}
		_, err := q.EnqueueTx(ctx, tx, Sort{Words: []string{"zebra", "ant"}}, nil)
		return err
	}))

	// InsertOpts with UniqueOpts{ByArgs: true}, UniqueSkippedAsDuplicate
	once := &errand.JobOptions{Unique: &errand.Unique{ByArgs: true}}
	must(q.Enqueue(ctx, Sort{Words: []string{"owl", "cat"}}, once))
	fmt.Println("duplicate:", must(q.Enqueue(ctx, Sort{Words: []string{"owl", "cat"}}, once)).Duplicate)

	// NewPeriodicJob with PeriodicInterval and RunOnStart
	check(q.Schedule(ctx, errand.Schedule{
		Name: "sort-often", Spec: "@every 15m", Args: Sort{Words: []string{"yak", "gnu"}}, RunOnStart: true,
	}))

	// JobList
	for _, c := range must(q.Counts(ctx)) {
		fmt.Println(c.N, c.Kind, c.State)
	}

	// AddWorker, NewClient with MaxWorkers, Start; a last job ends the example
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.Handle(w, sortWords)
	errand.Handle(w, func(context.Context, *errand.Job[Last]) error { stop(); return nil })
	must(q.Enqueue(ctx, Last{}, &errand.JobOptions{Priority: -100}))
	check(w.Run(ctx))
	// Output:
	// duplicate: true
	// 4 sort ready
	// bear tiger whale
	// ant zebra
	// cat owl
	// gnu yak
}

// In River: rivertest.NewWorker and its method Work, rivertest.RequireInserted.
func TestSortWords(t *testing.T) {
	q := errandtest.New(t, nil)
	a := errandtest.Perform(t, q, sortWords, Sort{}, nil)
	if a.Verdict.Kind != errand.VerdictCancel {
		t.Errorf("without words: %v, want the verdict cancel", a.Err)
	}
	must(q.Enqueue(t.Context(), Sort{Words: []string{"whale"}}, nil))
	errandtest.RequireEnqueued[Sort](t, q)
}
