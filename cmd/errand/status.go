package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// snapshot is how a queue is at a moment.
type snapshot struct {
	At      time.Time          `json:"at"` // on the queue's clock
	Jobs    stateCounts        `json:"jobs"`
	Lanes   []laneState        `json:"lanes"`
	Holds   []queue.HoldState  `json:"holds"`
	Workers []queue.WorkerInfo `json:"workers"`
	Causes  []queue.Cause      `json:"causes"` // the most frequent ones
	Health  healthSeen         `json:"health"`
	History []queue.Period     `json:"history,omitzero"`
	Relayed []relay.QueueInfo  `json:"relayed,omitzero"`
	Devices *fleet             `json:"devices,omitzero"`
}

// stateCounts is how many jobs are in each state.
type stateCounts struct {
	Scheduled int64 `json:"scheduled"`
	Ready     int64 `json:"ready"`
	Running   int64 `json:"running"`
	Done      int64 `json:"done"`
	Cancelled int64 `json:"cancelled"`
	Expired   int64 `json:"expired"`
	Dead      int64 `json:"dead"`
	Blocked   int64 `json:"blocked,omitempty"`
}

func (n *stateCounts) add(l *stateCounts) {
	n.Scheduled += l.Scheduled
	n.Ready += l.Ready
	n.Running += l.Running
	n.Done += l.Done
	n.Cancelled += l.Cancelled
	n.Expired += l.Expired
	n.Dead += l.Dead
	n.Blocked += l.Blocked
}

// mostCauses is how many causes a status has.
const mostCauses = 5

// statusOf looks at a queue.
func statusOf(ctx context.Context, q *queue.Queue) (s snapshot, err error) {
	var errs [4]error
	s.At = q.Clock().Now.UTC()
	s.Lanes, errs[0] = lanes(ctx, q)
	s.Holds, errs[1] = holds(ctx, q)
	s.Workers, errs[2] = q.Workers(ctx)
	s.Workers = append([]queue.WorkerInfo{}, s.Workers...)
	s.Causes, errs[3] = causes(ctx, q, &queue.CauseOptions{Limit: mostCauses})
	s.Health = healthOf(ctx, q)
	for i := range s.Lanes {
		s.Jobs.add(&s.Lanes[i].stateCounts)
	}
	return s, errors.Join(errs[:]...)
}

func statusCommand(t *tool) *cobra.Command {
	var ago time.Duration
	cmd := &cobra.Command{
		Use:   "status FILE",
		Short: "Show how a queue is",
		Long: `Show how a queue is: its jobs by queue, kind and state, how many a minute are done and
fail, in the last five to ten minutes and by all processes ("-" if that is not known),
how long they wait, the last success and failure, holds, the workers of all processes, the most frequent causes of
dead letters, and what else somebody should look at. All numbers but those of devices are
kept, not counted. The file is only read: whether it can be written is not tried. --history adds
what has become of jobs, by five minutes for up to two hours, by hours for up to two
days, else by six hours; a file keeps a day by five minutes and seven days by hours.

On a device it has the queues that errand relay passes on: streams that are held, outcomes
that are KEPT for jobs which have not ended here, and how often the server was found to
lack jobs. On a server it has the numbers of all its devices together.`,
		Example: "  errand status jobs.db\n  errand status jobs.db --history=1h",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && cmd.Flags().Changed("history") {
				return fmt.Errorf("--history %s: must be --history=%[1]s", args[1])
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkAgo(ago); err != nil {
				return err
			}
			var s snapshot
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				s, err = statusOf(cmd.Context(), q)
				if err == nil {
					s.History, err = historyOf(cmd.Context(), q, ago)
				}
				if err == nil {
					s.Relayed, err = relay.Queues(cmd.Context(), q)
				}
				if err == nil {
					s.Devices, err = fleetOf(cmd.Context(), q)
				}
				return err
			})
			if err != nil {
				return err
			}
			return t.show(&s, func(p *printer) {
				t.printTotal(p, &s.Jobs)
				t.printLanes(p, s.Lanes)
				t.printHolds(p, s.Holds)
				t.printWorkers(p, s.Workers)
				t.printRelayed(p, s.Relayed)
				t.printFleet(p, s.Devices)
				if len(s.Causes) > 0 {
					p.printf("\n")
				}
				t.printCauses(p, s.Causes, s.At)
				t.printHealth(p, &s.Health)
				t.printHistory(p, s.History, ago)
			})
		},
	}
	cmd.Flags().DurationVar(&ago, "history", 0, "also show what has become of jobs since so long ago")
	cmd.Flags().Lookup("history").NoOptDefVal = "24h"
	completeArgs(cmd, nil)
	return cmd
}

func (t *tool) printTotal(p *printer, n *stateCounts) {
	p.printf("%d ready, %d running, %d scheduled, %d dead", n.Ready, n.Running, n.Scheduled, n.Dead)
	if n.Blocked > 0 {
		p.printf(", %d blocked", n.Blocked)
	}
	p.printf("\n\n")
}

func (t *tool) printWorkers(p *printer, all []queue.WorkerInfo) {
	if len(all) == 0 {
		p.printf("\nno worker runs\n")
		return
	}
	p.printf("\n")
	list := table{head: []string{"WORKER", "QUEUES", "KINDS", " AT A TIME", "PROCESS RUNS", "SINCE", "STATE"}}
	for _, w := range all {
		state := "works"
		switch {
		case w.Unknown:
			state = "not known"
		case w.Stopping:
			state = "stopping"
		case w.Full:
			state = "full"
		}
		for _, l := range w.Limits {
			state += limitText(&l)
		}
		list.add(text(w.Instance), text(strings.Join(w.Queues, ", ")), text(kindsText(&w)), number(w.Concurrency), text(loadText(&w)), text(when(w.Since)), text(state))
	}
	list.print(p, t.out)
	t.printProgress(p, all)
}

// kindsText says of which kinds a worker takes jobs.
func kindsText(w *queue.WorkerInfo) string {
	kinds := slices.Clone(w.Kinds)
	for _, name := range w.AllKinds {
		kinds = append(kinds, "all of "+name)
	}
	return strings.Join(kinds, ", ")
}

// loadText says how much of a process is in use.
func loadText(l *queue.WorkerInfo) string {
	if l.Places == 0 {
		return strconv.Itoa(l.Running)
	}
	return fmt.Sprintf("%d of %d, %d%%", l.Running, l.Places, l.Running*100/l.Places)
}

// printProgress writes how far the jobs have got that say so.
func (t *tool) printProgress(p *printer, all []queue.WorkerInfo) {
	list := table{head: []string{"RUNNING JOB", "WORKER", "PROGRESS"}}
	for _, w := range all {
		for i := range w.Progress {
			list.add(text(w.Progress[i].Job.String()), text(w.Instance), text(progressText(&w.Progress[i].Progress)))
		}
	}
	if len(list.rows) > 0 {
		p.printf("\n")
		list.print(p, t.out)
	}
}

// limitText says what a limit of a worker keeps back, if it does.
func limitText(l *queue.WorkerLimit) string {
	of := "queue " + l.Queue
	if l.Kind != "" {
		of = "kind " + l.Kind
	}
	switch {
	case l.Gate != nil && !l.Gate.Open:
		return fmt.Sprintf("; gate of %s closed: %s", of, l.Gate.Reason)
	case l.BudgetEmpty:
		return fmt.Sprintf("; retry budget of %s empty", of)
	case l.Throttled:
		return fmt.Sprintf("; %s throttled", of)
	case l.GroupThrottled:
		return fmt.Sprintf("; groups of %s throttled", of)
	case l.Full:
		return fmt.Sprintf("; %s full", of)
	}
	return ""
}
