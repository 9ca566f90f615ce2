package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// changedJSON is what became of jobs that were to be changed.
type changedJSON struct {
	Changed  int      `json:"changed"`
	Running  []string `json:"running,omitempty"`
	NotFound []string `json:"not_found,omitempty"`
}

// waitingFlags adds the flags that choose among jobs that have not ended.
func waitingFlags(cmd *cobra.Command, f *filterFlags, yes *bool, states string) {
	laneFlags(cmd, &f.queue, &f.kind)
	cmd.Flags().StringVar(&f.tag, "tag", "", "only with this tag")
	cmd.Flags().StringVar(&f.error, "error", "", "only with this text in the last error")
	cmd.Flags().StringSliceVar(&f.states, "state", nil, "only in this state: "+states)
	f.addAll(cmd)
	cmd.Flags().BoolVar(yes, "yes", false, "do not ask")
	completeArgs(cmd, nil)
}

// changeVerb has cmd change the jobs that are named, or that flags choose. read returns
// the change that the other flags say, in which args may be without a kind.
func changeVerb(t *tool, cmd *cobra.Command, read func() (queue.JobChange, error)) *cobra.Command {
	var f filterFlags
	var yes bool
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		filter, err := f.filter(args[1:])
		if err == nil {
			err = choose(&filter)
		}
		var c queue.JobChange
		if err == nil {
			c, err = read()
		}
		if err == nil && len(filter.IDs) == 0 {
			err = t.confirm(yes, "%s jobs of %s", cmd.Name(), safe(args[0]))
		}
		if err != nil {
			return err
		}
		var r queue.ChangeResult
		err = t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
			if c.Args != nil {
				if c.Args, err = argsOf(cmd.Context(), q, filter.IDs, c.Args); err != nil {
					return err
				}
			}
			r, err = q.Change(cmd.Context(), filter, c)
			return err
		})
		if err != nil && r.Changed == 0 {
			return err
		}
		out := changedJSON{r.Changed, idTexts(r.Running), idTexts(r.NotFound)}
		shown := t.show(out, func(p *printer) {
			p.printf("%s changed\n", jobsText(r.Changed))
			p.printIDs("left as they are, since they run", r.Running)
			p.printIDs("ended or not there", r.NotFound)
		})
		return findings(len(r.Running)+len(r.NotFound) > 0, err, shown)
	}
	waitingFlags(cmd, &f, &yes, "scheduled or ready")
	return cmd
}

// argsOf returns args with the kind of the first of the jobs that is there. If none is,
// they come as they are, and the change finds no job.
func argsOf(ctx context.Context, q *queue.Queue, ids []queue.ID, args queue.Args) (queue.Args, error) {
	raw, ok := args.(queue.RawArgs)
	for _, id := range ids {
		job, err := q.Job(ctx, id)
		switch {
		case isNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("job %v: %w", id, err)
		case ok:
			raw.OfKind = job.Kind
			return raw, nil
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("--args: name the jobs by their IDs")
	}
	return nil, fmt.Errorf("job %v: %w", ids[0], queue.ErrNotFound)
}

func jobRescheduleCommand(t *tool) *cobra.Command {
	var at string
	var delay time.Duration
	cmd := changeVerb(t, &cobra.Command{
		Use:   "reschedule FILE [ID...]",
		Short: "Change when jobs are due",
		Long: `Change when jobs are due that do not run: those that are named, or those that the
flags choose. Retries count as before. A delay of 0 makes them ready at once. For
many it asks before, or wants --yes. The exit status is 1 if a job that is named
runs, has ended, or is not there; the others are changed.`,
		Example: `  errand jobs reschedule jobs.db 01890a5d-ac96-774b-bcce-b302099a8057 --delay 10m
  errand jobs reschedule jobs.db --kind send --at 2030-01-01T06:00:00Z --yes`,
	}, func() (c queue.JobChange, err error) {
		switch {
		case at != "":
			if c.DueAt, err = parseTime(at); err != nil {
				err = fmt.Errorf("--at: %w", err)
			}
		case delay == 0:
			c.DueAt = time.Now()
		default:
			c.Delay = delay
		}
		return c, err
	})
	cmd.Flags().StringVar(&at, "at", "", "when they are due, as in 2026-03-01T06:00:00Z")
	cmd.Flags().DurationVar(&delay, "delay", 0, "how long after now they are due")
	cmd.MarkFlagsOneRequired("at", "delay")
	cmd.MarkFlagsMutuallyExclusive("at", "delay")
	return cmd
}

func jobEditCommand(t *tool) *cobra.Command {
	var to, preset, args string
	var priority int
	var cmd *cobra.Command
	cmd = changeVerb(t, &cobra.Command{
		Use:   "edit FILE [ID...]",
		Short: "Change priority, queue, policy or args of jobs",
		Long: `Change the priority, queue, policy or args of jobs that do not run: of those that are
named, dead ones among them, or of those that the flags choose. Args are changed of
jobs that are named, and those before are kept in the history. For many it asks
before, or wants --yes. The exit status is 1 if a job that is named runs, has ended,
or is not there; the others are changed.`,
		Example: `  errand jobs edit jobs.db 01890a5d-ac96-774b-bcce-b302099a8057 --args '{"verdict":"done"}'
  errand jobs edit jobs.db --kind send --priority 10 --yes`,
	}, func() (queue.JobChange, error) {
		c := queue.JobChange{Queue: to}
		if cmd.Flags().Changed("priority") {
			c.Priority = &priority
		}
		if preset != "" {
			p, err := readDelivery(t.in, preset, policy.ProfileQueue)
			if err != nil {
				return c, err
			}
			c.Policy = p
		}
		if args != "" {
			if !json.Valid([]byte(args)) {
				return c, errors.New("--args: must be JSON")
			}
			c.Args = queue.RawArgs{JSON: json.RawMessage(args)}
		}
		return c, nil
	})
	cmd.Flags().IntVar(&priority, "priority", 0, "from -100 to 100, higher first")
	cmd.Flags().StringVar(&to, "to", "", "put them into this queue")
	cmd.Flags().StringVar(&preset, "policy", "", "a file or preset with their policy")
	cmd.Flags().StringVar(&args, "args", "", "their args, as JSON")
	cmd.MarkFlagsOneRequired("priority", "to", "policy", "args")
	completeFlag(cmd, "to", queuesOf)
	return cmd
}

func jobCancelCommand(t *tool) *cobra.Command {
	var f filterFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "cancel FILE [ID...]",
		Short: "Cancel jobs",
		Long: `Cancel jobs: those that are named, or those that the flags choose. Those that do not
run are finished as cancelled. The handlers of those that run are asked to stop, in
whatever process. A job that has ended keeps its state. For many it asks before, or
wants --yes. The exit status is 1 if a job is not there.`,
		Example: `  errand jobs cancel jobs.db 01890a5d-ac96-774b-bcce-b302099a8057
  errand jobs cancel jobs.db --kind send --state scheduled --yes`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(args[1:])
			if err == nil {
				err = choose(&filter)
			}
			if err == nil && len(filter.IDs) > 0 {
				err = onlyIDs(filter)
			}
			if err != nil {
				return err
			}
			if len(filter.IDs) == 0 {
				return t.cancelAll(cmd.Context(), args[0], filter, yes)
			}
			return t.eachJob(cmd.Context(), args, func(ctx context.Context, q *queue.Queue, id queue.ID) (string, error) {
				state, err := q.Cancel(ctx, id)
				if state == queue.Running {
					return "asked to stop", err
				}
				return string(state), err
			})
		},
	}
	waitingFlags(cmd, &f, &yes, "scheduled, ready or running")
	return cmd
}

// onlyIDs returns an error if there is a condition beside the IDs.
func onlyIDs(filter queue.JobFilter) error {
	filter.IDs = nil
	if choose(&filter) == nil {
		return errors.New("name IDs or give flags that choose jobs, not both")
	}
	return nil
}

// cancelAll cancels the jobs that a filter chooses.
func (t *tool) cancelAll(ctx context.Context, path string, filter queue.JobFilter, yes bool) error {
	if err := t.confirm(yes, "cancel jobs of %s", safe(path)); err != nil {
		return err
	}
	var r queue.ChangeResult
	err := t.writing(ctx, path, false, func(q *queue.Queue) (err error) {
		r, err = q.CancelAll(ctx, filter)
		return err
	})
	if err != nil && r.Changed == 0 {
		return err
	}
	return errors.Join(err, t.show(struct {
		Cancelled int      `json:"cancelled"`
		Running   []string `json:"running,omitempty"`
	}{r.Changed, idTexts(r.Running)}, func(p *printer) {
		p.printf("%s cancelled\n", jobsText(r.Changed))
		p.printIDs("asked to stop", r.Running)
	}))
}

func jobRemoveCommand(t *tool) *cobra.Command {
	var f filterFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm FILE [ID...]",
		Short: "Delete jobs that have ended",
		Long: `Delete finished jobs and dead letters for good: those that are named, or those that the
flags choose. It asks before, or wants --yes. Jobs that have not ended stay: cancel
them first. The exit status is 1 if a job that is named has not ended, or is not
there; the others are deleted.`,
		Example: `  errand jobs rm jobs.db 01890a5d-ac96-774b-bcce-b302099a8057 --yes
  errand jobs rm jobs.db --state done --yes`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(args[1:])
			if err == nil {
				err = choose(&filter)
			}
			if err == nil {
				err = t.confirm(yes, "delete jobs of %s for good", safe(args[0]))
			}
			if err != nil {
				return err
			}
			n := 0
			err = t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				n, err = q.Delete(cmd.Context(), filter)
				return err
			})
			live := errors.Is(err, queue.ErrLive)
			if err != nil && !live {
				if n > 0 {
					err = fmt.Errorf("after %s: %w", jobsText(n), err)
				}
				return err
			}
			shown := t.show(map[string]int{"deleted": n}, func(p *printer) { p.printf("%s deleted\n", jobsText(n)) })
			if live {
				err = &statusError{statusFindings, fmt.Errorf("%w; to cancel it: errand jobs cancel", err)}
			}
			return findings(distinct(filter.IDs) > n, shown, err)
		},
	}
	f.add(cmd, true)
	cmd.Flags().StringSliceVar(&f.states, "state", nil, "only in this state: done, cancelled or dead")
	f.addAll(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	completeArgs(cmd, nil)
	return cmd
}

// distinct returns how many IDs there are, each counted once.
func distinct(ids []queue.ID) int {
	set := map[queue.ID]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return len(set)
}
