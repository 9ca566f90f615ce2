package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/argfilter"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/policy"
)

func jobsCommand(t *tool) *cobra.Command {
	return group("jobs", "Look at jobs, and change them",
		`Look at single jobs in any state, say why they do not run, and change them. A job is
named by its ID, or by the first characters of it, four or more, if no other job has
an ID that begins so.`,
		jobListCommand(t), jobShowCommand(t), jobWhyCommand(t), jobWaitCommand(t), enqueueCommand(t), jobRunCommand(t),
		jobRescheduleCommand(t), jobEditCommand(t), jobCancelCommand(t), jobRemoveCommand(t), jobReleaseKeyCommand(t))
}

func jobListCommand(t *tool) *cobra.Command {
	var f filterFlags
	var page pageFlags
	var conditions []argfilter.Arg
	cmd := &cobra.Command{
		Use:   "ls FILE",
		Short: "List jobs",
		Long: `List the jobs that the flags choose, live, finished and dead. Some choices are quick
however many jobs there are: states, groups, tags, when jobs were enqueued, are due or
died, and queue and kind of ready jobs. For others jobs are looked at one by one, for
about a second for a page, and the list says how many were.`,
		Example: `  errand jobs ls jobs.db --state ready --kind send
  errand jobs ls jobs.db --queue edits --group "document 17"
  errand jobs ls jobs.db --kind send --arg to=ada@example.org
  errand jobs ls jobs.db --created-from 2026-03-01 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter()
			if err != nil {
				return err
			}
			var list queue.JobPage
			var about int64
			err = t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				if list, err = jobsWith(cmd.Context(), q, filter, page.o, conditions); err != nil || !list.Partial || page.o.After != "" {
					return err
				}
				lanes, err := q.Totals(cmd.Context())
				about, _ = argfilter.About(&filter, lanes)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(list, func(p *printer) { t.printJobs(p, &list, about) })
		},
	}
	f.add(cmd, queue.Scheduled, queue.Ready, queue.Blocked, queue.Running, queue.Done, queue.Cancelled, queue.Expired, queue.Dead)
	cmd.Flags().Func("arg", "only with this value in the args, as `NAME=VALUE`; NAME may be a path such as address.city; VALUE alone is in any field (repeatable: all must hold)", func(s string) error {
		a, err := argfilter.Parse(s)
		conditions = append(conditions, a)
		return err
	})
	page.add(cmd)
	completeArgs(cmd, nil)
	return cmd
}

// jobsWith returns a page of the jobs that match and whose args meet all conditions. The jobs come
// without args, as they do in any list.
func jobsWith(ctx context.Context, q *queue.Queue, filter queue.JobFilter, o queue.ListOptions, all []argfilter.Arg) (queue.JobPage, error) {
	looking, stop := context.WithTimeout(ctx, argfilter.LookFor)
	defer stop()
	enough := func() bool { return looking.Err() != nil }
	if len(all) == 0 {
		return argfilter.List(ctx, q, filter, o, nil, enough)
	}
	o.Args = true
	page, err := argfilter.List(ctx, q, filter, o, func(j *queue.JobInfo) (bool, error) { return argfilter.Match(all, j.Args), nil }, enough)
	for i := range page.Jobs {
		page.Jobs[i].Args, page.Jobs[i].ArgsBytes = nil, 0
	}
	return page, err
}

func jobShowCommand(t *tool) *cobra.Command {
	var preset string
	cmd := &cobra.Command{
		Use:   "show FILE ID",
		Short: "Show all that is known of a job",
		Long: `Show all that is known of a job: what it is, the attempts that failed, the retries still
to come, and of a delivery its message. The retries are those of the policy that
--policy names, a file or a preset, or else of the policy in effect: the job's own, or
that of a running worker with a handler for the job.`,
		Example: "  errand jobs show jobs.db 01890a5d-ac96-774b-bcce-b302099a8057",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.showJob(cmd, args, preset, func(ctx context.Context, q *queue.Queue, id queue.ID) (queue.JobInfo, error) {
				return q.Job(ctx, id)
			})
		},
	}
	cmd.Flags().StringVar(&preset, "policy", "", "a file or preset with the policy in effect")
	completeArgs(cmd, nil)
	return cmd
}

// ofJob names a job in an error about it.
func ofJob(id queue.ID, err error) error {
	return &aboutError{"job " + id.String(), err}
}

// showJob shows the job that the arguments name and get returns.
func (t *tool) showJob(cmd *cobra.Command, args []string, preset string,
	get func(ctx context.Context, q *queue.Queue, id queue.ID) (queue.JobInfo, error),
) error {
	ids, err := t.jobIDs(cmd.Context(), args[0], args[1:])
	if err != nil {
		return err
	}
	id := ids[0]
	var info queue.JobInfo
	var more struct {
		retries
		Message *shownMessage `json:"message,omitempty"`
	}
	r := &more.retries
	err = t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
		if info, err = get(cmd.Context(), q, id); err == nil {
			r.policy, r.Known, err = q.PolicyOf(cmd.Context(), info)
			r.now = q.Clock().Now
		}
		if err == nil {
			more.Message, err = messageOf(cmd.Context(), q, &info)
		}
		return err
	})
	if err != nil {
		return ofJob(id, err)
	}
	if preset != "" {
		p, err := readPolicy(t.in, preset, policy.ProfileQueue)
		if err != nil {
			return err
		}
		r.policy, r.Known = policy.Document{Retry: &p}, true
	}
	r.list(&info)
	return t.show(seconds.Join(info, &more), func(p *printer) {
		t.printJob(p, &info, r)
		more.Message.print(p)
	})
}

func jobWhyCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why FILE ID",
		Short: "Say why a job does not run now",
		Long: `Say all that is known to keep a job from running: when it is due, holds and pauses,
what the workers of all processes show of their gates and limits, and how many jobs
go before it.`,
		Example: "  errand jobs why jobs.db 01890a5d-ac96-774b-bcce-b302099a8057",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := t.jobIDs(cmd.Context(), args[0], args[1:])
			if err != nil {
				return err
			}
			id := ids[0]
			var why queue.Why
			err = t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				why, err = q.Why(cmd.Context(), id)
				return err
			})
			if err != nil {
				return ofJob(id, err)
			}
			return t.show(why, func(p *printer) {
				p.printf("%s job %v, kind %s in queue %s\n", why.State, why.ID, safe(why.Kind), safe(why.Queue))
				for _, r := range why.Reasons {
					p.printf("- %s\n", safe(r.Text))
				}
			})
		},
	}
	completeArgs(cmd, nil)
	return cmd
}

func jobRunCommand(t *tool) *cobra.Command {
	order := &queue.Bulk{Do: queue.BulkRunNow}
	o := &order.RunNow
	cmd := &cobra.Command{
		Use:   "run FILE [ID...]",
		Short: "Make jobs ready that wait for a retry",
		Long: `Make jobs ready that wait for their next attempt. This uses up no retry. A single job
that is named by its ID goes before all others, even if its lane is held or its gate
closed. The exit status is 1 if a named job has ended, or is not there.`,
		Example: `  errand jobs run jobs.db 01890a5d-ac96-774b-bcce-b302099a8057
  errand jobs run jobs.db --kind send --failed-only`,
	}
	cmd.Flags().BoolVar(&o.FailedOnly, "failed-only", false, "leave out jobs whose handler chose the delay")
	cmd.Flags().BoolVar(&o.FirstRuns, "first-runs", false, "take jobs too that have not run yet")
	return bulk{
		order: order,
		do: func(ctx context.Context, q *queue.Queue, filter queue.JobFilter) (done, error) {
			r, err := q.RunNow(ctx, filter, o)
			var state queue.State // of a single job that was not made ready
			if err == nil && len(filter.IDs) == 1 && r.Ready+len(r.NotFound) == 0 {
				if j, gone := q.Job(ctx, filter.IDs[0]); gone == nil {
					state = j.State
				}
			}
			return done{r.Ready, len(r.NotFound), struct {
				Ready    int         `json:"ready"`
				State    queue.State `json:"state,omitempty"`
				NotFound []queue.ID  `json:"not_found,omitempty"`
			}{r.Ready, state, r.NotFound}, func(p *printer) {
				switch state {
				case "":
					p.printf("%s made ready\n", jobsText(r.Ready))
				case queue.Ready:
					p.printf("it was ready, and goes before all others now\n")
				default:
					p.printf("it is %s\n", state)
				}
				p.printIDs("ended or not there", r.NotFound)
			}}, err
		},
	}.verb(t, cmd)
}

func jobsText(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

func idTexts(ids []queue.ID) (all []string) {
	for _, id := range ids {
		all = append(all, id.String())
	}
	return all
}

func (p *printer) printIDs(what string, ids []queue.ID) {
	if len(ids) > 0 {
		p.printf("%s: %s\n", what, strings.Join(idTexts(ids), ", "))
	}
}
