package errandtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
)

// exampleT stands for the *testing.T of a test, which an example does not have.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func (*exampleT) Helper()                           {}
func (*exampleT) Output() io.Writer                 { return io.Discard }
func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleT) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }

func (t *exampleT) TempDir() string {
	dir, err := os.MkdirTemp("", "errandtest-")
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (t *exampleT) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

// ChargeCard is a job that must not charge twice.
type ChargeCard struct {
	Order int `json:"order"`
}

// Kind names the type of job.
func (ChargeCard) Kind() string { return "charge_card" }

// ShipOrder follows a charge.
type ShipOrder struct {
	Order int `json:"order"`
}

// Kind names the type of job.
func (ShipOrder) Kind() string { return "ship_order" }

// shop is the application: charge asks its provider.
type shop struct {
	charge func(key string) error
}

func (s *shop) chargeCard(_ context.Context, job *errand.Job[ChargeCard]) error {
	if err := s.charge(job.ID.String()); err != nil {
		return err
	}
	return job.Then(ShipOrder{Order: job.Args.Order}, nil)
}

func (s *shop) worker(q *errand.Queue) *errand.Worker {
	w := errand.NewWorker(q, nil)
	errand.Handle(w, s.chargeCard)
	return w
}

var errBusy = errors.New("the provider is busy")

func ExamplePerform() {
	t := &exampleT{} // in a test, its own t
	defer t.end()
	q := errandtest.New(t, nil)
	s := &shop{charge: func(string) error { return nil }}
	a := errandtest.Perform(t, q, s.chargeCard, ChargeCard{Order: 17}, nil)
	fmt.Println(a.Event.Type, "| then:", len(a.Then), a.Then[0].Kind)

	s.charge = func(string) error { return errand.RetryAfter(time.Hour, errBusy) }
	a = errandtest.Perform(t, q, s.chargeCard, ChargeCard{Order: 18}, &errandtest.PerformOptions{Failures: 3})
	fmt.Println(a.Event.Type, "| verdict:", a.Verdict.Kind, "| in an hour or later:", a.Delay > 59*time.Minute, "| next:", a.NextPhase, "| then:", len(a.Then))
	// Output:
	// done | then: 1 ship_order
	// retried | verdict: retry after | in an hour or later: true | next: backoff | then: 0
}

func ExampleDrain() {
	t := &exampleT{} // in a test, its own t
	defer t.end()
	q := errandtest.New(t, nil)
	if _, err := q.Enqueue(context.Background(), ChargeCard{Order: 17}, nil); err != nil {
		t.Fatal(err)
	}
	left := 15
	s := &shop{charge: func(string) error {
		if left--; left > 0 {
			return errBusy
		}
		return nil
	}}
	began := q.Clock().Now
	got := errandtest.Drain(t, q, s.worker(q), &errandtest.DrainOptions{Scheduled: true})
	fmt.Println(got.Attempts, "attempts,", got.Done, "done, minutes have passed:", q.Clock().Now.Sub(began) > time.Minute)
	// Output:
	// 15 attempts, 1 done, minutes have passed: true
}

func ExampleRequireEnqueued() {
	t := &exampleT{} // in a test, its own t
	defer t.end()
	q := errandtest.New(t, nil)
	if _, err := q.Enqueue(context.Background(), ShipOrder{Order: 17}, &errand.JobOptions{Group: "ada"}); err != nil {
		t.Fatal(err)
	}
	jobs := errandtest.RequireEnqueued(t, q, func(e errandtest.Enqueued[ShipOrder]) error {
		if e.Args.Order != 17 {
			return fmt.Errorf("it ships order %d", e.Args.Order)
		}
		return nil
	})
	errandtest.RequireNone[ChargeCard](t, q)
	fmt.Println(len(jobs), "job, in group", jobs[0].Group)
	// Output:
	// 1 job, in group ada
}

func ExampleRequireEnqueuedTx() {
	t := &exampleT{} // in a test, its own t
	defer t.end()
	q := errandtest.New(t, nil)
	errNo := errors.New("the order is not valid")
	err := q.Tx(context.Background(), func(tx *sql.Tx) error {
		if _, err := q.EnqueueTx(context.Background(), tx, ShipOrder{Order: 17}, nil); err != nil {
			return err
		}
		errandtest.RequireEnqueuedTx[ShipOrder](t, q, tx)
		return errNo
	})
	errandtest.RequireNone[ShipOrder](t, q)
	fmt.Println(err)
	// Output:
	// the order is not valid
}

func ExampleCrash() {
	t := &exampleT{} // in a test, its own t
	defer t.end()
	q := errandtest.New(t, nil)
	if _, err := q.Enqueue(context.Background(), ChargeCard{Order: 17}, nil); err != nil {
		t.Fatal(err)
	}
	var next *errand.Queue
	charges := map[string]int{}
	s := &shop{charge: func(key string) error {
		if charges[key]++; charges[key] == 1 {
			next = errandtest.Crash(t, q) // the card is charged, and the process dies
		}
		return nil
	}}
	errandtest.Drain(t, q, s.worker(q), nil)
	got := errandtest.Drain(t, next, s.worker(next), &errandtest.DrainOptions{Scheduled: true})
	fmt.Println(got.Crashed, "crash,", got.Done, "done")
	for _, n := range charges {
		fmt.Println(n, "charges with the same key")
	}
	// Output:
	// 1 crash, 1 done
	// 2 charges with the same key
}
