package main

import (
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

// causeJSON is what dead letters have in common.
type causeJSON struct {
	ID     int64        `json:"id"` // for --cause
	Queue  string       `json:"queue"`
	Kind   string       `json:"kind"`
	Reason queue.Reason `json:"reason"`
	Text   string       `json:"text"`
	N      int64        `json:"count"`
	First  time.Time    `json:"first"`
	Last   time.Time    `json:"last"`
	Job    string       `json:"job"` // the last of them
}

func deadGroupsCommand(t *tool) *cobra.Command {
	var o queue.CauseOptions
	cmd := &cobra.Command{
		Use:   "groups FILE",
		Short: "List what the dead letters died of",
		Long: `List the causes of the dead letters, the most frequent first: jobs of a queue and kind
that died for the same reason, with the same error but for numbers, IDs and what is
quoted. Ten thousand of one cause are one line. Other verbs take the ID as --cause.`,
		Example: "  errand dead groups jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []causeJSON
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				causes, err := q.DeadLetters().Causes(cmd.Context(), &o)
				all = causesOf(causes)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(map[string][]causeJSON{"causes": all}, func(p *printer) {
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

func causesOf(causes []queue.Cause) []causeJSON {
	all := []causeJSON{}
	for _, c := range causes {
		all = append(all, causeJSON{c.ID, c.Queue, c.Kind, c.Reason, c.Text, c.N, c.First.UTC(), c.Last.UTC(), c.Job.String()})
	}
	return all
}

// printCauses writes causes as a table, if there are any.
func (t *tool) printCauses(p *printer, all []causeJSON) {
	if len(all) == 0 {
		return
	}
	list := table{head: []string{" CAUSE", " JOBS", "QUEUE", "KIND", "REASON", "LAST", "ERROR"}}
	for _, c := range all {
		list.add(number(c.ID), number(c.N), text(c.Queue), text(c.Kind), text(string(c.Reason)), text(when(c.Last)), text(c.Text))
	}
	list.print(p, t.out)
}
