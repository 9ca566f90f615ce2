//go:build unix

package apitest

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// blockedTx is the function of q.Tx, which keeps all from writing.
const blockedTx = "the function of q.Tx"

// workBlocked is the other process, in which a call into the application is blocked while
// a hold runs. What it does is told by lines of its input.
func workBlocked(ctx context.Context, what string) error {
	lease, err := time.ParseDuration(os.Getenv(leaseEnv))
	if err != nil {
		return err
	}
	b := &blocking{blocker: newBlocker(), options: errand.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}}
	b.open = func(o *errand.Options) (*errand.Queue, error) { return errand.Open(ctx, os.Getenv(dbEnv), o) }
	switch {
	case what == blockedTx:
		b.cause = func(q *errand.Queue) error {
			return q.Tx(ctx, func(*sql.Tx) error { b.call(); return nil })
		}
	case blockedMethods[what] != nil:
		blockedMethods[what](b)
	default:
		blockedFields[what](b)
	}
	q, err := b.open(&b.options)
	if err != nil {
		return err
	}
	b.worker.LeaseDuration, b.worker.Queues = lease, []string{"*"}
	w := errand.NewWorker(q, &b.worker)
	finish := make(chan struct{})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[hold]) error {
		fmt.Println("hold", job.Args.Name, job.Attempt)
		<-finish
		fmt.Println("return", job.Attempt, context.Cause(ctx))
		return nil
	})
	errand.Handle(w, func(_ context.Context, job *errand.Job[memo]) error {
		fmt.Println("note", job.Args.Text)
		return nil
	})
	if b.handle != nil {
		b.handle(w, q)
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			switch lines.Text() {
			case "block":
				b.begin()
				go func() {
					if err := b.cause(q); err != nil {
						fmt.Println("error", err)
					}
				}()
				<-b.begun
				fmt.Println("blocked")
			case "go on":
				b.end()
			case "finish":
				close(finish)
			}
		}
	}()
	fmt.Println("ready")
	return w.Run(ctx)
}

// While a call is blocked for three leases, another process that could take over the job
// that runs does not, and the jobs of other lanes run. Nobody can write while the function
// of q.Tx is: then the leases are kept until others can.
//
//errand:shows calls into the application that block | | the same while another process would take the job over, also while the function of `q.Tx` blocks; then it keeps its lease although nobody can write
func TestProcesses_Blocked(t *testing.T) {
	if testing.Short() {
		t.Skip("takes three leases")
	}
	what := []string{
		blockedTx, "logger of the queue", "logger's Enabled", "Error", "MarshalJSON", "errand.Options.Clock", "errand.QueueOptions.Gate",
		"errand.HandlerOptions.Gate", "errand.HandlerOptions.OnUnauthorized", "errand.HandlerOptions.Rules", "errand.OnConflict.Merge",
	}
	ended := make(chan struct{})
	for _, what := range what {
		go func() {
			t.Run(what, func(t *testing.T) { testBlockedProcess(t, what) })
			ended <- struct{}{}
		}()
	}
	for range what {
		<-ended
	}
}

func testBlockedProcess(t *testing.T, what string) {
	q, path := openShared(t)
	o := startOther(t, path, "blocked "+what, longLease, 0, "")
	id := mustEnqueue(t, q, hold{"a"})
	o.wants("hold a 1")
	runs := holder(t, q, longLease)
	twice := make(chan struct{})
	go func() {
		select {
		case <-runs:
			t.Error("the job runs twice at a time")
			_ = o.cmd.Process.Kill()
		case <-twice:
		}
	}()
	o.says("block")
	o.wants("blocked")
	each := time.NewTicker(longLease / 3)
	defer each.Stop()
	for n := range 9 {
		<-each.C
		if what != blockedTx {
			note := fmt.Sprint(n)
			mustEnqueue(t, q, memo{note})
			o.wants("note " + note)
		}
	}
	o.says("go on")
	mustEnqueue(t, q, memo{"after"})
	o.wants("note after")
	for range 6 { // for two more leases
		<-each.C
	}
	o.says("finish")
	o.wants("return 1 <nil>")
	if j := waitFor(t, q, id, errand.Done); j.Attempt != 1 {
		t.Errorf("attempt %d", j.Attempt)
	}
	close(twice)
}
