package main

import (
	"context"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

func deadGroupsCommand(t *tool) *cobra.Command {
	var o queue.CauseOptions
	cmd := &cobra.Command{
		Use:   "groups FILE",
		Short: "List what the dead letters died of",
		Long: `List the causes of the dead letters, the most frequent first. A cause has the jobs of a
queue and kind that died for the same reason with the same error; numbers, IDs and
quoted text may differ. Ten thousand of one cause are one line. Other verbs take the ID
as --cause.`,
		Example: "  errand dead groups jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []queue.Cause
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				all, err = causes(cmd.Context(), q, &o)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(map[string][]queue.Cause{"causes": all}, func(p *printer) {
				if len(all) == 0 {
					p.printf("no dead letters\n")
					return
				}
				t.printCauses(p, all)
			})
		},
	}
	laneFlags(cmd, &o.Lane.Queue, &o.Lane.Kind)
	cmd.Flags().IntVar(&o.Limit, "limit", 100, "list at most so many, up to 10,000")
	completeArgs(cmd, nil)
	return cmd
}

// causes returns causes, in a list that is not nil.
func causes(ctx context.Context, q *queue.Queue, o *queue.CauseOptions) ([]queue.Cause, error) {
	all, err := q.DeadLetters().Causes(ctx, o)
	return append([]queue.Cause{}, all...), err
}

// printCauses writes causes as a table, if there are any.
func (t *tool) printCauses(p *printer, all []queue.Cause) {
	if len(all) == 0 {
		return
	}
	list := table{head: []string{" CAUSE", " JOBS", "QUEUE", "KIND", "REASON", "LAST", "ERROR"}}
	for _, c := range all {
		list.add(number(c.ID), number(c.N), text(c.Queue), text(c.Kind), text(string(c.Reason)), text(when(c.Last)), text(c.Text))
	}
	list.print(p, t.out)
}
