package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

// bulk is what a verb does to many jobs: to those that are named, or that flags choose.
type bulk struct {
	// order is what a bulk job is to do, without its filter; flags may set its fields. With
	// durable one does it in any case, and else with --rate. If prepare is not nil, it completes
	// the order.
	order   *queue.Bulk
	durable bool
	prepare func(ctx context.Context, q *queue.Queue, b *queue.Bulk) error
	// takes are the states of the jobs that it is about. If nil, those of the order.
	takes []queue.State
	// asks is what is asked before; it has the verb %s for the file. If empty, nothing is.
	asks string
	// always is true if it asks about jobs that are named too.
	always bool
	// try does the same without a change, with --dry-run. If nil, the jobs are counted that a
	// bulk job would take.
	try func(ctx context.Context, path string, filter queue.JobFilter) error
	do  func(ctx context.Context, q *queue.Queue, filter queue.JobFilter) (done, error)
}

// done is what became of jobs, also beside an error.
type done struct {
	n    int // jobs that it was done to
	left int // jobs that were named, and that it was not done to
	json any
	text func(p *printer)
}

// verb sets the arguments, flags and function of cmd, a bulk verb.
func (b bulk) verb(t *tool, cmd *cobra.Command) *cobra.Command {
	var f filterFlags
	var by bulkFlags
	var yes, dry bool
	if b.takes == nil {
		b.takes = b.order.Do.States()
	}
	f.add(cmd, b.takes...)
	cmd.Flags().BoolVar(&f.all, "all", false, "all of them, if there is no other condition")
	if b.asks != "" {
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}
	if b.try == nil {
		b.try = func(ctx context.Context, path string, filter queue.JobFilter) error {
			return t.countBulk(ctx, path, filter, &b)
		}
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "count what would be done")
	by.add(cmd)
	completeArgs(cmd, nil)
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		filter, err := f.filter()
		if err == nil {
			filter.IDs, err = t.jobIDs(ctx, args[0], args[1:])
		}
		if err == nil {
			err = choose(&filter)
		}
		if err == nil && dry {
			return b.try(ctx, args[0], filter)
		}
		if err == nil && b.asks != "" && (b.always || len(filter.IDs) == 0) {
			err = t.confirm(yes, b.asks, safe(args[0]))
		}
		if err != nil {
			return err
		}
		if b.durable || cmd.Flags().Changed("rate") {
			return t.startBulk(ctx, args[0], filter, &by, &b)
		}
		if by.by != "" {
			return errors.New("--by is for a bulk job: say --rate")
		}
		var d done
		err = t.writing(ctx, args[0], false, func(q *queue.Queue) (err error) {
			if err = knowsCause(ctx, q, filter.Cause); err == nil {
				d, err = b.do(ctx, q, filter)
			}
			return err
		})
		return findings(d.left > 0, t.inPart(ctx, d.n, d.json, d.text, err))
	}
	return cmd
}

// inPart shows what was done, n times, if that was not nothing. With an error the status
// is that of work that was done in part.
func (t *tool) inPart(ctx context.Context, n int, v any, text func(p *printer), err error) error {
	if err != nil && n == 0 {
		return err
	}
	if err != nil && ctx.Err() == nil {
		err = &statusError{statusFindings, err}
	}
	return errors.Join(t.show(v, text), err)
}

// choose returns an error unless either IDs or other conditions say which jobs are meant.
func choose(filter *queue.JobFilter) error {
	rest := *filter
	rest.IDs = nil
	switch others := !reflect.ValueOf(rest).IsZero(); {
	case len(filter.IDs) == 0 && !others:
		return errors.New("no condition: name IDs, give a flag such as --kind, or say --all")
	case len(filter.IDs) > 0 && others:
		return errors.New("name IDs or give flags that choose jobs, not both")
	}
	return nil
}

// knowsCause returns an error if id is of no cause: a cause is there as long as a job is
// dead of it.
func knowsCause(ctx context.Context, q *queue.Queue, id int64) error {
	if id == 0 {
		return nil
	}
	page, err := q.DeadLetters().List(ctx, queue.JobFilter{Cause: id}, &queue.ListOptions{Limit: 1})
	if err == nil && len(page.Jobs) == 0 {
		err = fmt.Errorf("cause %d: %w", id, queue.ErrNotFound)
	}
	return err
}

// missing returns how many of the jobs that are named are not among n.
func missing(ids []queue.ID, n int) int {
	set := map[queue.ID]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return max(len(set)-n, 0)
}
