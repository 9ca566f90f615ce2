package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

func groupsCommand(t *tool) *cobra.Command {
	return group("groups", "List groups in which jobs wait, and let them pass a dead one",
		`Jobs with the same group run one after the other, in the order in which they were
enqueued. When one of them dies the others of its group wait, until it is redriven,
purged or skipped.`,
		groupsListCommand(t), groupsSkipCommand(t))
}

func groupsListCommand(t *tool) *cobra.Command {
	var o queue.GroupOptions
	cmd := &cobra.Command{
		Use:   "ls FILE",
		Short: "List groups whose jobs wait for a dead one",
		Long: `List the groups whose jobs wait because one of them is dead: which one that is, what it
died of, and how many wait, counted up to 1,000. With --waiting all groups are listed in
which jobs wait, whatever for.`,
		Example: `  errand groups ls jobs.db --queue mail
  errand groups ls jobs.db --queue mail --waiting`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var list queue.GroupPage
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				list, err = q.Groups(cmd.Context(), &o)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(list, func(p *printer) { t.printGroups(p, &list, o.Waiting) })
		},
	}
	cmd.Flags().StringVar(&o.Queue, "queue", "", "only of this queue")
	cmd.Flags().BoolVar(&o.Waiting, "waiting", false, "all groups in which jobs wait, also for one that lives")
	cmd.Flags().IntVar(&o.Limit, "limit", 100, "list at most so many, up to 1,000")
	cmd.Flags().StringVar(&o.After, "after", "", "go on where the page before has ended, as it said")
	completeArgs(cmd, nil)
	completeFlag(cmd, "queue", queuesOf)
	return cmd
}

func (t *tool) printGroups(p *printer, page *queue.GroupPage, waiting bool) {
	if len(page.Groups) == 0 {
		what := "for a dead job"
		if waiting {
			what = "for anything"
		}
		p.printf("no group waits %s\n", what)
		return
	}
	list := table{head: []string{"QUEUE", "GROUP", " WAIT", "DEAD JOB", "KIND", "REASON", "DIED", "ERROR"}}
	if waiting {
		list.head = []string{"QUEUE", "GROUP", " WAIT", "FOR", "KIND", "STATE", "DIED", "ERROR"}
	}
	for i := range page.Groups {
		g := &page.Groups[i]
		head, why := text(g.Head.String()), string(g.Reason)
		if g.State == queue.Dead {
			head = head.in(red)
		}
		if waiting {
			why = string(g.State)
		}
		list.add(text(g.Queue), text(g.Group), number(int64(g.Blocked)), head, text(g.Kind), text(why), text(when(g.DiedAt)), text(g.Error))
	}
	list.print(p, t.out)
	if page.Next != "" {
		p.printf("more: --after %s\n", page.Next)
	}
}

func groupsSkipCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skip FILE QUEUE GROUP",
		Short: "Let the jobs of a group pass the dead one that they wait for",
		Long: `Let the jobs of a group pass the dead one that they wait for. It stays a dead letter. If
it is redriven later, it goes before those of its group that still wait. The exit
status is 1 if no dead job keeps the group back.`,
		Example: "  errand groups skip jobs.db mail ada@example.org",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			var head queue.ID
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				head, err = q.SkipHead(cmd.Context(), args[1], args[2])
				return err
			})
			if errors.Is(err, queue.ErrNotFound) {
				return fmt.Errorf("dead job that keeps group %s of queue %s back: %w", args[2], args[1], err)
			}
			if err != nil {
				return err
			}
			return t.show(map[string]string{"skipped": head.String()}, func(p *printer) {
				p.printf("%s: %v is skipped\n", safe(args[2]), head)
			})
		},
	}
	completeArgs(cmd, queuesOf)
	return cmd
}
