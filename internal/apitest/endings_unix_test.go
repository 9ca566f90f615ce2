//go:build unix

package apitest

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// ended is a job whose handler ends in a way of its own.
type ended struct{ How string }

func (ended) Kind() string { return "ended" }

// endedMany is one of a call of several.
type endedMany struct {
	How string
	N   int
}

func (endedMany) Kind() string { return "ended_many" }

var errEnded = errors.New("it went wrong")

// waysToEnd are those of a handler of one job. Those that begin with "finish" complete it first.
var waysToEnd = map[string]func(ctx context.Context, job *errand.Job[ended]) error{
	"nil":              func(context.Context, *errand.Job[ended]) error { return nil },
	"error":            giving(errEnded),
	"wrapped":          giving(fmt.Errorf("send: %w", errEnded)),
	"joined":           giving(errors.Join(errEnded, io.ErrUnexpectedEOF)),
	"refused":          giving(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}),
	"closed":           giving(net.ErrClosed),
	"server closed":    giving(http.ErrServerClosed),
	"404":              giving(&policy.StatusError{Status: http.StatusNotFound}),
	"401":              giving(&policy.StatusError{Status: http.StatusUnauthorized}),
	"500":              giving(&policy.StatusError{Status: http.StatusInternalServerError}),
	"cancelled":        giving(context.Canceled),
	"deadline":         giving(context.DeadlineExceeded),
	"permanent":        giving(errand.Permanent(errEnded)),
	"wrapped verdict":  giving(fmt.Errorf("send: %w", errand.Permanent(errEnded))),
	"permanent cancel": giving(errand.Permanent(context.Canceled)),
	"retry after":      giving(errand.RetryAfter(time.Minute, errEnded)),
	"marked":           giving(policy.Mark(errEnded, policy.Permanent)),
	"snooze":           giving(errand.Snooze(time.Minute, nil)),
	"cancel":           giving(errand.Cancel(errEnded)),
	"unavailable":      giving(errand.Unavailable(errEnded)),
	"hold":             giving(errand.HoldLane(time.Minute, errEnded)),
	"shutdown":         giving(errand.ErrShutdown),
	"lease lost":       giving(errand.ErrLeaseLost),
	"its context": func(ctx context.Context, _ *errand.Job[ended]) error {
		return errors.Join(errEnded, ctx.Err(), context.Cause(ctx))
	},
	"permanent context":    func(ctx context.Context, _ *errand.Job[ended]) error { return errand.Permanent(ctx.Err()) },
	"panic":                func(context.Context, *errand.Job[ended]) error { panic("oops") },
	"panic with an error":  func(context.Context, *errand.Job[ended]) error { panic(errEnded) },
	"panic with nil":       func(context.Context, *errand.Job[ended]) error { panic(nil) },
	"panic with a verdict": func(context.Context, *errand.Job[ended]) error { panic(errand.Permanent(errEnded)) },
	"abort":                func(context.Context, *errand.Job[ended]) error { panic(http.ErrAbortHandler) },
	"run-time error":       func(context.Context, *errand.Job[ended]) error { var none []int; _ = none[len(os.Args)]; return nil },
	"Goexit":               func(context.Context, *errand.Job[ended]) error { runtime.Goexit(); return nil },
	"result":               func(_ context.Context, job *errand.Job[ended]) error { return errors.Join(job.SetResult(1), errEnded) },
	"follow-up": func(_ context.Context, job *errand.Job[ended]) error {
		return errors.Join(job.Then(memo{}, nil), errEnded)
	},
	"not committed":     notCommitted,
	"finish":            giving(nil),
	"finish, error":     giving(errEnded),
	"finish, permanent": giving(errand.Permanent(errEnded)),
	"finish, panic":     func(context.Context, *errand.Job[ended]) error { panic(errEnded) },
	"child":             nil, // see endJobs
	"child, wrapped":    nil,
}

// deaf is the way of a handler that ignores its context. It has a process of its own, which is
// left soon.
const deaf = "ignores its context"

func giving(err error) func(context.Context, *errand.Job[ended]) error {
	return func(context.Context, *errand.Job[ended]) error { return err }
}

func notCommitted(ctx context.Context, job *errand.Job[ended]) error {
	_ = job.Finish(context.WithoutCancel(ctx), func(*sql.Tx) error { return errEnded })
	return nil
}

// callsToEnd are ways of a handler of four jobs.
var callsToEnd = map[string]func(jobs []*errand.Job[endedMany]) error{
	"nil":       func([]*errand.Job[endedMany]) error { return nil },
	"permanent": func([]*errand.Job[endedMany]) error { return errand.Permanent(errEnded) },
	"panic":     func([]*errand.Job[endedMany]) error { panic(errEnded) },
	"the last": func(jobs []*errand.Job[endedMany]) error {
		return errand.BatchError{jobs[len(jobs)-1].ID: errand.Permanent(errEnded)}
	},
	"finish": func([]*errand.Job[endedMany]) error { return errand.Permanent(errEnded) }, // the first
}

// endJobs runs a worker until a signal or a line of its input stops it. Handlers end when that
// begins, or when their contexts end.
func endJobs(ctx context.Context, q *errand.Queue, role string, lease time.Duration) error {
	if err := syscall.Setpgid(0, 0); err != nil { // who stops it signals what it has started too
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, errand.StopSignals()...)
	defer stop()
	o := errand.WorkerOptions{Concurrency: 100, Grace: time.Minute, StuckAfter: time.Minute, LeaseDuration: lease}
	late := role != "ends soon"
	if late {
		o.Grace = -1
	}
	if role == "ends never" {
		o.StuckAfter = 500 * time.Millisecond
	}
	wait := func(own context.Context) {
		if late {
			<-own.Done()
		}
		<-orDone(ctx, own).Done()
	}
	w := errand.NewWorker(q, &o)
	errand.Handle(w, func(own context.Context, job *errand.Job[ended]) error {
		how := job.Args.How
		if job.Attempt > 1 { // after a lost lease
			<-own.Done()
			return own.Err()
		}
		if strings.HasPrefix(how, "finish") {
			check(job.Finish(own, func(*sql.Tx) error { return nil }))
		}
		child := exec.CommandContext(own, "sleep", "100")
		if strings.HasPrefix(how, "child") {
			check(child.Start())
		}
		fmt.Println("began")
		defer fmt.Println("ended")
		switch {
		case child.Process != nil:
			err := child.Wait()
			if how == "child" {
				return errand.Permanent(err)
			}
			return fmt.Errorf("convert: %w", err)
		case how == deaf:
			select {}
		}
		wait(own)
		return waysToEnd[how](own, job)
	})
	errand.HandleMany(w, func(own context.Context, jobs []*errand.Job[endedMany]) error {
		if jobs[0].Attempt > 1 {
			<-own.Done()
			return own.Err()
		}
		how := jobs[0].Args.How
		if how == "finish" {
			check(jobs[0].Finish(own, func(*sql.Tx) error { return nil }))
		}
		fmt.Println("began")
		defer fmt.Println("ended")
		wait(own)
		return callsToEnd[how](jobs)
	}, errand.BatchOptions{Max: 4, ByGroup: true})
	go func() {
		if bufio.NewScanner(os.Stdin).Scan() {
			_ = w.Shutdown(context.Background()) // as Run returns
		}
	}()
	fmt.Println("ready")
	if err := w.Run(ctx); err != nil {
		if role == "ends never" && errors.Is(err, errand.ErrStuck) {
			return nil
		}
		return err
	}
	return q.Close()
}

// orDone returns a context that ends with either.
func orDone(a, b context.Context) context.Context {
	ctx, cancel := context.WithCancel(a)
	context.AfterFunc(b, cancel)
	return ctx
}

// However a handler ends in a real process that is stopped, or loses its lease: no retry, crash or
// death is used up, and what was done is not done again.
//
//errand:shows killed while it stops
func TestProcesses_Endings(t *testing.T) {
	for name, c := range map[string]struct {
		role string
		stop func(o *other, q *errand.Queue)
		lost bool
	}{
		"SIGTERM, in the grace": {role: "ends soon", stop: func(o *other, _ *errand.Queue) { o.signalAll(syscall.SIGTERM) }},
		"SIGTERM":               {role: "ends late", stop: func(o *other, _ *errand.Queue) { o.signalAll(syscall.SIGTERM) }},
		"SIGHUP, in the grace":  {role: "ends soon", stop: func(o *other, _ *errand.Queue) { o.signalAll(syscall.SIGHUP) }},
		"SIGHUP":                {role: "ends late", stop: func(o *other, _ *errand.Queue) { o.signalAll(syscall.SIGHUP) }},
		"Shutdown":              {role: "ends late", stop: func(o *other, _ *errand.Queue) { o.says("shutdown") }},
		"SIGTERM, deaf":         {role: "ends never", stop: func(o *other, _ *errand.Queue) { o.signalAll(syscall.SIGTERM) }},
		"SIGHUP, deaf":          {role: "ends never", stop: func(o *other, _ *errand.Queue) { o.signalAll(syscall.SIGHUP) }},
		"Shutdown, deaf":        {role: "ends never", stop: func(o *other, _ *errand.Queue) { o.says("shutdown") }},
		"lost lease":            {role: "ends late", lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, path := openShared(t)
			soon := c.role == "ends soon"
			jobs, calls := map[string]errand.ID{}, map[string][]errand.ID{}
			ways, ofMany, lease := waysToEnd, callsToEnd, time.Minute
			if c.lost {
				lease = longLease
			}
			if c.role == "ends never" {
				jobs[deaf], ways, ofMany = mustEnqueue(t, q, ended{deaf}), nil, nil
			}
			for how := range ways {
				jobs[how] = mustEnqueue(t, q, ended{how})
			}
			for how := range ofMany {
				for n := range 4 {
					calls[how] = append(calls[how], must(q.Enqueue(t.Context(), endedMany{how, n}, &errand.JobOptions{Group: how})).ID)
				}
			}
			o := startOther(t, path, c.role, lease, 0, "")
			for range len(jobs) + len(calls) {
				o.wants("began")
			}
			own := errand.NewWorker(q, &errand.WorkerOptions{LeaseDuration: shortLease, Logger: quiet})
			errand.Handle(own, func(context.Context, *errand.Job[memo]) error { return nil })
			if c.lost {
				o.stop(q)
				run(t, own)           // which takes their leases
				cut := len(calls) - 1 // of a job that is completed the lease is not lost
				for how, id := range jobs {
					if !strings.HasPrefix(how, "finish") {
						waitFor(t, q, id, errand.Ready)
						cut++
					}
				}
				for how, ids := range calls {
					first := 0
					if how == "finish" {
						first = 1
					}
					waitFor(t, q, ids[first], errand.Ready) // the others of its group are blocked
				}
				o.signal(syscall.SIGCONT)
				for range cut {
					o.wants("ended")
				}
				o.signalAll(syscall.SIGTERM)
			} else {
				c.stop(o, q)
			}
			if err := o.cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if id, ok := jobs[deaf]; ok {
				run(t, own)
				waitFor(t, q, id, errand.Ready)
			}
			for how, id := range jobs {
				done := strings.HasPrefix(how, "finish") || how == "nil" && !c.lost
				wantUnspent(t, q, how, id, done, soon && how == "snooze", soon && how == "cancel")
			}
			for how, ids := range calls {
				for n, id := range ids {
					done := how == "finish" && n == 0 || !c.lost && (how == "nil" || how == "the last" && n < 3)
					wantUnspent(t, q, fmt.Sprint("call ", how, " ", n), id, done, false, false)
				}
			}
		})
	}
}

// wantUnspent checks that a job has used up nothing.
func wantUnspent(t *testing.T, q *errand.Queue, what string, id errand.ID, done, snoozed, cancelled bool) {
	t.Helper()
	j := lookUp(t, q, id)
	snoozes := 0
	if snoozed {
		snoozes = 1
	}
	if j.State == errand.Dead || j.Retry > 0 || j.Crashes > 0 || j.Snoozes != snoozes || len(j.History) > 0 ||
		(j.State == errand.Done) != done || (j.State == errand.Cancelled) != cancelled || j.State == errand.Running {
		t.Errorf("%s: the job is %s after %d attempts: %d retries, %d crashes, %d snoozes, %q, history %+v", what, j.State, j.Attempt, j.Retry, j.Crashes, j.Snoozes, j.Error, j.History)
	}
}

// signalAll signals the process and what it has started.
func (o *other) signalAll(s syscall.Signal) {
	o.t.Helper()
	if err := syscall.Kill(-o.cmd.Process.Pid, s); err != nil {
		o.t.Fatal(err)
	}
}
