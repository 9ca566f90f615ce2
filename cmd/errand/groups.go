package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/storage"
)

func deadGroupsCommand(t *tool) *cobra.Command {
	var o queue.CauseOptions
	cmd := &cobra.Command{
		Use:   "groups FILE",
		Short: "List what the dead letters died of",
		Long: `List the causes of the dead letters, the most frequent first. A cause has the jobs of a
queue and kind that died for the same reason with the same error; numbers, IDs and
quoted text may differ. Ten thousand of one cause are one line. Other verbs take the ID
as --cause. FIRST is when the first job died of it, whether it is dead still or not; a
cause is new for a day. LAST DAY has a character for each of 24 hours, the last one being
that of now, and how many died in the worst, in UTC; of an hour at most 200 are counted,
and nothing after the first 20 causes.`,
		Example: "  errand dead groups jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []queue.Cause
			var now time.Time
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				now = q.Clock().Now
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
				t.printCauses(p, all, now)
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
	o.Hours = true
	all, err := q.DeadLetters().Causes(ctx, o)
	return append([]queue.Cause{}, all...), err
}

// printCauses writes causes as a table, if there are any.
func (t *tool) printCauses(p *printer, all []queue.Cause, now time.Time) {
	if len(all) == 0 {
		return
	}
	list := table{head: []string{" CAUSE", " JOBS", "QUEUE", "KIND", "REASON", "FIRST", "LAST", "LAST DAY", "ERROR"}}
	for _, c := range all {
		first := when(c.First)
		if c.IsNew(now) {
			first += " new"
		}
		list.add(number(c.ID), number(c.N), text(c.Queue), text(c.Kind), text(string(c.Reason)), text(first), text(when(c.Last)), text(dayText(c.Hours)), text(c.Text))
	}
	list.print(p, t.out)
}

// levels are the heights of an hour in which somebody died.
const levels = "▁▂▃▄▅▆▇█"

// dayText returns a character for each hour and the highest number; "-" if nothing was counted.
func dayText(h *storage.CauseHours) string {
	if h == nil || len(h.Died) == 0 {
		return "-"
	}
	peak := slices.Max(h.Died)
	if peak == 0 {
		return "none"
	}
	high := []rune(levels)
	var b strings.Builder
	for _, n := range h.Died {
		if n == 0 {
			b.WriteByte('.')
			continue
		}
		b.WriteRune(high[(n*len(high)-1)/peak])
	}
	b.WriteString(" " + strconv.Itoa(peak))
	if peak >= h.Most {
		b.WriteString(" or more")
	}
	return b.String()
}
