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

// changeVerb has cmd change the jobs that are named, or that flags choose. read returns
// the change that the other flags say, in which args may be without a kind.
func changeVerb(t *tool, cmd *cobra.Command, read func() (queue.JobChange, error)) *cobra.Command {
	order := &queue.Bulk{Do: queue.BulkChange}
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		order.Change, err = read()
		return err
	}
	prepare := func(ctx context.Context, q *queue.Queue, b *queue.Bulk) (err error) {
		if c := &b.Change; c.Args != nil {
			c.Args, err = argsOf(ctx, q, b.Filter.IDs, c.Args)
		}
		return err
	}
	return bulk{
		order: order, prepare: prepare, asks: cmd.Name() + " jobs of %s",
		do: func(ctx context.Context, q *queue.Queue, filter queue.JobFilter) (done, error) {
			b := queue.Bulk{Filter: filter, Change: order.Change}
			if err := prepare(ctx, q, &b); err != nil {
				return done{}, err
			}
			r, err := q.Change(ctx, filter, b.Change)
			return done{r.Changed, len(r.Running) + len(r.NotFound), r, func(p *printer) {
				p.printf("%s changed\n", jobsText(r.Changed))
				p.printIDs("left as they are, since they run", r.Running)
				p.printIDs("ended or not there", r.NotFound)
			}}, err
		},
	}.verb(t, cmd)
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
		Long: `Change when waiting jobs are due: those that are named, or those that the flags choose.
Retries count as before. A delay of 0 makes them ready at once. If flags choose the jobs
it asks before, or wants --yes. The exit status is 1 if a named job runs, has ended, or
is not there; the others are changed.`,
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
		Long: `Change the priority, queue, policy or args of jobs that do not run: those that are
named, also dead ones, or those that the flags choose. --args is for named jobs; the
args before are kept in the history. If flags choose the jobs it asks before, or wants
--yes. The exit status is 1 if a named job runs, has ended, or is not there; the others
are changed.`,
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
	return bulk{
		order: &queue.Bulk{Do: queue.BulkCancel}, asks: "cancel jobs of %s",
		do: func(ctx context.Context, q *queue.Queue, filter queue.JobFilter) (done, error) {
			if len(filter.IDs) > 0 {
				return cancelEach(ctx, q, filter.IDs)
			}
			r, err := q.CancelAll(ctx, filter)
			return done{r.Changed + len(r.Running), 0, struct {
				Cancelled int        `json:"cancelled"`
				Running   []queue.ID `json:"running,omitempty"`
			}{r.Changed, r.Running}, func(p *printer) {
				p.printf("%s cancelled\n", jobsText(r.Changed))
				p.printIDs("asked to stop", r.Running)
			}}, err
		},
	}.verb(t, &cobra.Command{
		Use:   "cancel FILE [ID...]",
		Short: "Cancel jobs",
		Long: `Cancel jobs: those that are named, or those that the flags choose. Waiting jobs are
finished as cancelled. The handlers of running ones are asked to stop, in whatever
process. A job that has ended keeps its state. If flags choose the jobs it asks before,
or wants --yes. The exit status is 1 if a job is not there.`,
		Example: `  errand jobs cancel jobs.db 01890a5d-ac96-774b-bcce-b302099a8057
  errand jobs cancel jobs.db --kind send --state scheduled --yes`,
	})
}

// cancelEach cancels the jobs that are named, and says of each what it is now.
func cancelEach(ctx context.Context, q *queue.Queue, ids []queue.ID) (done, error) {
	type became struct {
		ID     queue.ID `json:"id"`
		Result string   `json:"result"`
	}
	all := map[string][]became{"jobs": {}}
	d := done{json: all, text: func(p *printer) {
		for _, r := range all["jobs"] {
			p.printf("%v: %s\n", r.ID, r.Result)
		}
	}}
	for _, id := range ids {
		state, err := q.Cancel(ctx, id)
		result := string(state)
		switch {
		case isNotFound(err):
			result = "not found"
			d.left++
		case err != nil:
			return d, fmt.Errorf("job %v: %w", id, err)
		case state == queue.Running:
			result = "asked to stop"
		}
		all["jobs"] = append(all["jobs"], became{id, result})
		d.n++
	}
	return d, nil
}

func jobRemoveCommand(t *tool) *cobra.Command {
	return bulk{
		order: &queue.Bulk{Do: queue.BulkDelete}, asks: "delete jobs of %s for good", always: true,
		do: func(ctx context.Context, q *queue.Queue, filter queue.JobFilter) (done, error) {
			n, err := q.Delete(ctx, filter)
			if errors.Is(err, queue.ErrLive) {
				err = &statusError{statusFindings, fmt.Errorf("%w; to cancel it: errand jobs cancel", err)}
			}
			return done{n, missing(filter.IDs, n), map[string]int{"deleted": n}, func(p *printer) { p.printf("%s deleted\n", jobsText(n)) }}, err
		},
	}.verb(t, &cobra.Command{
		Use:   "rm FILE [ID...]",
		Short: "Delete jobs that have ended",
		Long: `Delete finished jobs and dead letters for good: those that are named, or those that the
flags choose. It asks before, or wants --yes. Jobs that have not ended stay: cancel them
first. The exit status is 1 if a named job has not ended, or is not there; the others
are deleted.`,
		Example: `  errand jobs rm jobs.db 01890a5d-ac96-774b-bcce-b302099a8057 --yes
  errand jobs rm jobs.db --state done --yes`,
	})
}
