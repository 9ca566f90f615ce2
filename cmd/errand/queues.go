package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

func queuesCommand(t *tool) *cobra.Command {
	return group("queues", "List queues, hold or pause them, and set caps",
		`List queues with their jobs by state, and say whether workers may start them.

A hold keeps all workers of all processes from starting the jobs of a queue, of a
kind, or of a kind in a queue, until it is released or its time is over. Jobs that
run go on. A lane, that is one kind in one queue, can be held for several reasons
at a time. A pause is the hold of a queue for the reason "paused".`,
		queuesListCommand(t), pauseCommand(t), resumeCommand(t), holdCommand(t), releaseCommand(t), setCommand(t))
}

// holds returns the holds in force, in a list that is not nil.
func holds(ctx context.Context, q *queue.Queue) ([]queue.HoldState, error) {
	all, err := q.Holds(ctx)
	return append([]queue.HoldState{}, all...), err
}

func queuesListCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls FILE",
		Short: "List queues, kinds and holds",
		Long: `List the queues and kinds that have or had jobs: the number of jobs by state, the bytes
of those that have not ended, for how long the oldest ready one waits, when a job last
succeeded and last failed, with its error, the holds in force, and the settings, such as
caps with how much of them is in use. The numbers are kept, not counted: the list is
quick however many jobs there are.`,
		Example: "  errand queues ls jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var list struct {
				Lanes []laneState       `json:"lanes"`
				Holds []queue.HoldState `json:"holds"`

				Settings []setting `json:"settings"`
			}
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				var errHolds, errSettings error
				list.Lanes, err = lanes(cmd.Context(), q)
				list.Holds, errHolds = holds(cmd.Context(), q)
				list.Settings, errSettings = settings(cmd.Context(), q)
				return errors.Join(err, errHolds, errSettings)
			})
			if err != nil {
				return err
			}
			return t.show(list, func(p *printer) {
				t.printLanes(p, list.Lanes)
				t.printHolds(p, list.Holds)
				if len(list.Settings) > 0 {
					p.printf("\n")
					t.printSettings(p, list.Settings)
				}
			})
		},
	}
	completeArgs(cmd, nil)
	return cmd
}

func (t *tool) printHolds(p *printer, all []queue.HoldState) {
	if len(all) == 0 {
		return
	}
	p.printf("\n")
	list := table{head: []string{"HELD QUEUE", "KIND", "REASON", "SINCE", "UNTIL", " WAITING", "BY", "NOTE"}}
	for _, h := range all {
		until := "released"
		if !h.Until.IsZero() {
			until = when(h.Until)
		}
		if h.Probe {
			until = "a job succeeds"
		}
		list.add(text(cmp.Or(h.Queue, "(all)")), text(cmp.Or(h.Kind, "(all)")), text(h.Reason).in(yellow), text(when(h.Since)), text(until),
			number(h.Waiting), text(orDash(h.By)), text(orDash(h.Detail)))
	}
	list.print(p, t.out)
}

func pauseCommand(t *tool) *cobra.Command {
	o := queue.HoldOptions{Reason: "paused"}
	cmd := &cobra.Command{
		Use:     "pause FILE QUEUE...",
		Short:   "Keep workers from starting jobs of queues",
		Example: "  errand queues pause jobs.db mail --by ada --note 'until the provider is back'",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.eachQueue(cmd.Context(), args, "paused", func(q *queue.Queue, ctx context.Context, name string) error {
				return q.Hold(ctx, queue.Lane{Queue: name}, &o)
			})
		},
	}
	holdFlags(cmd, &o)
	completeArgs(cmd, queuesOf)
	return cmd
}

// holdFlags are those that say who holds something, and why.
func holdFlags(cmd *cobra.Command, o *queue.HoldOptions) {
	cmd.Flags().StringVar(&o.By, "by", "", "who, for people")
	cmd.Flags().StringVar(&o.Detail, "note", "", "why, for people")
}

func resumeCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resume FILE QUEUE...",
		Short:   "End the pause of queues",
		Example: "  errand queues resume jobs.db mail",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.eachQueue(cmd.Context(), args, "resumed", (*queue.Queue).Resume)
		},
	}
	completeArgs(cmd, queuesOf)
	return cmd
}

// eachQueue does something to the queues that the arguments name after the file.
func (t *tool) eachQueue(ctx context.Context, args []string, done string, do func(q *queue.Queue, ctx context.Context, name string) error) error {
	var names []string // of queues that it was done to
	err := t.writing(ctx, args[0], false, func(q *queue.Queue) error {
		for _, name := range args[1:] {
			if err := do(q, ctx, name); err != nil {
				return err
			}
			names = append(names, name)
		}
		return nil
	})
	return t.inPart(ctx, len(names), map[string][]string{done: names}, func(p *printer) {
		for _, name := range names {
			p.printf("%s: %s\n", safe(name), done)
		}
	}, err)
}

// holdText says in a line what is held, why and by whom.
func holdText(h *queue.HoldState) string {
	text := laneText(queue.Lane{Queue: h.Queue, Kind: h.Kind}) + ", " + safe(h.Reason)
	for _, more := range []string{h.By, h.Detail} {
		if more != "" {
			text += ": " + safe(more)
		}
	}
	return text
}

// laneArgs returns the lane that a verb names by an optional queue and the flag --kind.
func laneArgs(args []string, kind string) (l queue.Lane) {
	l.Kind = kind
	if len(args) > 1 {
		l.Queue = args[1]
	}
	return l
}

func laneText(l queue.Lane) string {
	switch {
	case l.Kind == "":
		return "queue " + safe(l.Queue)
	case l.Queue == "":
		return "kind " + safe(l.Kind)
	}
	return fmt.Sprintf("kind %s in queue %s", safe(l.Kind), safe(l.Queue))
}

func holdCommand(t *tool) *cobra.Command {
	var kind string
	var until string
	var o queue.HoldOptions
	cmd := &cobra.Command{
		Use:   "hold FILE [QUEUE]",
		Short: "Keep workers from starting jobs of a queue, a kind, or both",
		Long: `Keep all workers from starting jobs of a queue, of the kind that --kind names, or of
that kind in the queue. Without --for and --until the hold lasts until it is
released. A hold for the same reason takes the place of the one before.`,
		Example: `  errand queues hold jobs.db mail --for 2h --reason provider --by ada --note 'ticket 4711'
  errand queues hold jobs.db --kind upload`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			lane := laneArgs(args, kind)
			if until != "" {
				if o.Until, err = parseTime(until); err != nil {
					return fmt.Errorf("--until: %w", err)
				}
			}
			var held []queue.HoldState
			err = t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) error {
				if err := q.Hold(cmd.Context(), lane, &o); err != nil {
					return err
				}
				held, err = holds(cmd.Context(), q)
				return err
			})
			if err != nil {
				return err
			}
			reason := cmp.Or(o.Reason, "held")
			held = slices.DeleteFunc(held, func(h queue.HoldState) bool {
				return h.Queue != lane.Queue || h.Kind != lane.Kind || h.Reason != reason
			})
			return t.show(map[string]any{"held": held}, func(p *printer) {
				p.printf("%s: held, reason %s\n", laneText(lane), safe(reason))
			})
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "hold only this kind")
	cmd.Flags().StringVar(&o.Reason, "reason", "", "a name that tells holds of a lane apart (default held)")
	holdFlags(cmd, &o)
	cmd.Flags().DurationVar(&o.For, "for", 0, "for how long, as in 90m")
	cmd.Flags().StringVar(&until, "until", "", "until when, as in 2026-03-01T06:00:00Z")
	completeFlag(cmd, "kind", kindsOf)
	completeArgs(cmd, queuesOf)
	return cmd
}

func releaseCommand(t *tool) *cobra.Command {
	var kind, reason string
	cmd := &cobra.Command{
		Use:   "release FILE [QUEUE]",
		Short: "End a hold",
		Long: `End the hold of a queue, a kind, or both, for a reason. Holds for other reasons stay,
and so do those of the queue or the kind alone. The exit status is 1 if there was
no such hold.`,
		Example: "  errand queues release jobs.db mail --reason provider",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			lane, was := laneArgs(args, kind), false
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				was, err = q.Release(cmd.Context(), lane, reason)
				return err
			})
			if err != nil {
				return err
			}
			err = t.show(map[string]bool{"released": was}, func(p *printer) {
				what := "released"
				if !was {
					what = "there was no such hold"
				}
				p.printf("%s: %s\n", laneText(lane), what)
			})
			if err == nil && !was {
				err = errFindings
			}
			return err
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "the kind that is held")
	cmd.Flags().StringVar(&reason, "reason", "", "why it is held (default held)")
	completeFlag(cmd, "kind", kindsOf)
	completeArgs(cmd, queuesOf)
	return cmd
}
