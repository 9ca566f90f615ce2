package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/cmd/errand/internal/program"
	"github.com/errandq/errand/policy"
)

// The exit statuses of errand work, beside 0 and 2.
const (
	statusHeld    = 3
	statusDied    = 4
	statusStopped = 5
)

// workOptions are the flags of errand work.
type workOptions struct {
	file          string
	command       []string
	kinds, queues []string
	concurrency   int
	rate          int
	policy        string
	timeout       time.Duration
	grace, kill   time.Duration
	untilEmpty    bool
	wait          time.Duration
	create        bool
}

func workCommand(t *tool) *cobra.Command {
	o := &workOptions{}
	cmd := &cobra.Command{
		Use:   "work FILE --kind KIND [flags] -- COMMAND [ARG...]",
		Short: "Run a command for each job, in any language",
		Long: `Run a command for each job of a kind. The command reads the args of the job as
one line of JSON from standard input. Its environment has ERRAND_JOB_ID,
ERRAND_ATTEMPT, ERRAND_KIND, ERRAND_QUEUE, ERRAND_HEADERS (an object of JSON) and
ERRAND_HEADER_NAME for each header, and ERRAND_CHECKPOINT once there is one.

Exit status of the command:

  0              done
  65             dead at once: no retry can help
  69             the other side cannot be reached: again later. This uses up a
                 retry if another job of its kind and queue was begun and done
                 since the previous attempt of this one; otherwise it is free
  78, 126, 127   this worker is not able to run the job: its kind and queue are
                 held for a minute, and the job loses nothing
  any other      failed: a retry by the policy (75 and 64 are the usual ones)

The end of what the command writes to standard error is the error of the job. The
command may write one object of JSON to the file that ERRAND_RESULT names: "error" is
the text in place of it, "retry_after" the least number of seconds until the next
attempt, "snooze" such a number for a job that has not failed, and "cancel": true
finishes the job as cancelled. "checkpoint" is any JSON for ERRAND_CHECKPOINT of the
next attempt. With status 0 only "result" counts: any JSON that is kept with the job.

The command and all that it has started get SIGTERM when its time is over or the
worker stops, and SIGKILL after --kill-after. They die with the worker. SIGTERM,
SIGHUP or an interrupt stops the worker: commands may go on for --grace. A second
signal ends everything at once. With nohup SIGHUP does nothing.

Without --until-empty errand work runs until it is stopped, with status 0. With it the
status is 0 if no job is left, 4 if none is left and jobs have died, 5 if it was stopped
before, and 3 if all jobs left are held, wait for others of their groups, or are put off
as they could not reach the other side. It ends with 3 once the holds, and the next
attempts of jobs that are put off, are all beyond --hold-wait. A job that has a delay or
waits for a retry keeps it running. The time between two attempts of jobs that cannot
reach the other side grows to a tenth of the time since the first one failed, so this
takes up to some eleven times --hold-wait. With --json it ends with one object, and
commands write to standard error.`,
		Example: `  errand work q.db --kind sum --until-empty -- ./sum.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return errors.New("errand work takes one FILE, then --, then the command: errand work q.db --kind sum -- ./sum.sh")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file, o.command = args[0], args[1:]
			return o.run(cmd.Context(), t)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.kinds, "kind", nil, "the kinds of jobs to run the command for")
	f.StringSliceVar(&o.queues, "queue", []string{"default"}, "the queues to work for; webhook/* are all that begin with webhook/")
	f.IntVar(&o.concurrency, "concurrency", runtime.NumCPU(), "how many commands run at a time")
	f.IntVar(&o.rate, "rate", 0, "how many commands of a kind start a second, on average (0: no limit)")
	f.StringVar(&o.policy, "policy", "", "a preset or a file with the delivery policy of the kinds, see: errand policy")
	f.DurationVar(&o.timeout, "timeout", 0, "how long a command may run, if the job does not say (0: no limit)")
	f.DurationVar(&o.grace, "grace", 5*time.Second, "how long commands may go on when the worker stops")
	f.DurationVar(&o.kill, "kill-after", 3*time.Second, "the time between SIGTERM and SIGKILL")
	f.BoolVar(&o.untilEmpty, "until-empty", false, "end when no job is left, those that wait for a retry included")
	f.DurationVar(&o.wait, "hold-wait", 10*time.Second, "with --until-empty: end with status 3 if all jobs left are held or put off for longer; at most 4m")
	f.BoolVar(&o.create, "create", false, "make the file if there is none, or nothing in it")
	completeArgs(cmd, nil)
	completeFlag(cmd, "kind", kindsOf)
	completeFlag(cmd, "queue", queuesOf)
	return cmd
}

// mostWait is below the longest time between two attempts of jobs that cannot reach the
// other side, or it would never pass.
const mostWait = 4 * time.Minute

// check checks the flags, and finds the command.
func (o *workOptions) check() error {
	if len(o.kinds) == 0 {
		return errors.New("--kind is missing: name the kinds of jobs that the command is for")
	}
	slices.Sort(o.kinds)
	o.kinds = slices.Compact(o.kinds)
	for _, n := range []struct {
		flag  string
		value int64
		least int64
	}{
		{"concurrency", int64(o.concurrency), 1}, {"rate", int64(o.rate), 0}, {"timeout", int64(o.timeout), 0},
		{"grace", int64(o.grace), 0}, {"kill-after", int64(o.kill), 0}, {"hold-wait", int64(o.wait), 0},
	} {
		if n.value < n.least {
			return fmt.Errorf("--%s must be at least %d", n.flag, n.least)
		}
	}
	if o.wait > mostWait {
		return fmt.Errorf("--hold-wait %v: must be at most %v: jobs that cannot reach the other side are tried again within 5m", o.wait, mostWait)
	}
	_, err := exec.LookPath(o.command[0])
	return err
}

// delivery returns the policy of the kinds.
func (o *workOptions) delivery(in io.Reader) (d policy.Document, err error) {
	if o.policy != "" {
		d, err = readDelivery(in, o.policy, policy.ProfileQueue)
	}
	if o.rate > 0 {
		d.Throttle = &policy.Throttle{MaxReceivesPerSecond: o.rate}
	}
	return d, errors.Join(err, d.Validate())
}

func (o *workOptions) run(ctx context.Context, t *tool) error {
	if err := o.check(); err != nil {
		return err
	}
	d, err := o.delivery(t.in)
	if err != nil {
		return err
	}
	t.errs.Writer = &oneByOne{w: t.errs.Writer} // commands, logs and the summary
	ctx, stop := heedSignals(ctx)
	defer stop()
	var r *left
	err = t.writing(ctx, o.file, o.create, func(q *queue.Queue) (err error) {
		r, err = o.work(ctx, t, &workLanes{queue: q, kinds: o.kinds, queues: o.queues}, d)
		return err
	})
	if err != nil {
		return err
	}
	return o.report(t, r)
}

// work runs the worker, and returns what it has left.
func (o *workOptions) work(ctx context.Context, t *tool, l *workLanes, d policy.Document) (*left, error) {
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	level := slog.LevelInfo
	if o.untilEmpty {
		level = slog.LevelWarn // the summary says the rest
	}
	log := slog.New(slog.NewTextHandler(t.errs, &slog.HandlerOptions{Level: level}))
	c, err := newCommander(o, l.queue, log, t)
	if err != nil {
		return nil, err
	}
	grace := o.grace
	if grace == 0 {
		grace = -1 // none: zero is the default
	}
	w := queue.NewWorker(l.queue, &queue.WorkerOptions{
		Queues: o.queues, Concurrency: o.concurrency, Grace: grace,
		StuckAfter: o.kill + 10*time.Second, MaxSnoozes: math.MaxInt32, Logger: log,
	})
	for _, kind := range o.kinds {
		queue.HandleRaw(w, kind, c.handle, queue.HandlerOptions{Policy: d, Timeout: o.timeout})
	}
	working, end := context.WithCancel(ctx)
	defer end()
	why := make(chan ending, 1)
	go func() {
		if !o.untilEmpty {
			why <- stopped
			return
		}
		why <- l.drained(working, o.wait)
		end()
	}()
	err = w.Run(working)
	end()
	if failed := c.close(); failed != nil { // the jobs have ended all the same
		log.Warn("errand: what the commands needed was not cleared away", "error", failed)
	}
	if err != nil {
		return nil, err
	}
	ended := <-why
	r, err := l.left(context.WithoutCancel(ctx))
	r.Attempts, r.Done, r.ended = c.attempts.Load(), c.done.Load(), ended
	return r, err
}

// report writes what is left, and returns the status that says so.
func (o *workOptions) report(t *tool, r *left) error {
	var err error
	if t.json {
		err = writeJSON(t.out, r, true)
	} else {
		p := printer{w: t.errs}
		p.printf("errand: %d attempts, %d done; %d waiting, %d dead\n", r.Attempts, r.Done, r.Waiting, r.Dead)
		for _, h := range r.Held {
			p.printf("errand: held: %s\n", holdText(&h))
		}
		if off := r.PutOff; off != nil {
			p.printf("errand: put off: %s that cannot reach the other side, the first until %s: %s\n", jobsText(int(off.N)), when(off.Until), safe(off.Error))
		}
		if r.Blocked > 0 {
			p.printf("errand: blocked: %s behind others of their groups, see: errand groups ls\n", jobsText(int(r.Blocked)))
		}
		err = p.err
	}
	switch {
	case err != nil || !o.untilEmpty:
		return err
	case r.ended == stopped:
		return &statusError{status: statusStopped}
	case r.ended == blocked:
		return &statusError{status: statusHeld}
	case r.Died:
		return &statusError{status: statusDied}
	}
	return nil
}

// guardCommand is the name of a command that is not for people.
const guardCommand = "work-guard"

// guardian returns the command that ends what is left of the commands of a worker when
// that is gone.
func guardian(*tool) *cobra.Command {
	return &cobra.Command{
		Use: guardCommand, Hidden: true, Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { program.Guard(os.Stdin) },
	}
}

// commandRunner returns what runs programs, with this program as its guard.
func commandRunner() (*program.Runner, error) { return program.NewRunner("errand", guardCommand) }
