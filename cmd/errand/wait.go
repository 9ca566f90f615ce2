package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

// The exit statuses of errand jobs wait, beside those that all verbs share. The first two are those
// of errand work for the same: jobs are left, and jobs have died.
const (
	statusLeft      = statusHeld
	statusDead      = statusDied
	statusCancelled = 6
	statusExpired   = 7
)

// seldom is how often errand jobs wait looks at the file once it has waited for long.
const seldom = time.Second

func jobWaitCommand(t *tool) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait FILE ID...",
		Short: "Wait until jobs have ended",
		Long: `Wait until jobs have ended, and say what became of them. A job that is dead has ended,
also if it is redriven later. The file is only read, ten times a second at first and at
last once a second: what comes and goes between two looks is not seen. A worker elsewhere
has to run the jobs.

The exit status is that of the worst job. From the worst on:

  4    a job is dead
  3    a job has not ended within --timeout
  7    a job has expired
  6    a job was cancelled
  1    a job is not there: it was deleted, or never there. A job that has ended is
       deleted after the time for which its queue keeps such jobs
  0    all jobs are done

As with all verbs it is 2 if the file cannot be used, and 130 after an interrupt; then
nothing is said of the jobs.`,
		Example: `  errand jobs wait jobs.db 01890a5d-ac96-774b-bcce-b302099a8057
  errand jobs wait jobs.db 01890a5d-ac96-774b-bcce-b302099a8057 --timeout 10m --json`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return fmt.Errorf("--timeout %v: must be at least 0", timeout)
			}
			w := &waiting{timeout: timeout}
			var err error
			if w.ids, err = t.jobIDs(cmd.Context(), args[0], args[1:]); err != nil {
				return err
			}
			err = t.reading(cmd.Context(), args[0], func(q *queue.Queue) error { return w.wait(cmd.Context(), q) })
			if err != nil {
				return err
			}
			out := struct {
				queue.JobPage
				NotFound []queue.ID `json:"not_found,omitempty"`
			}{w.page(), w.gone}
			if err := t.show(out, w.print(t)); err != nil || w.status() == 0 {
				return err
			}
			return &statusError{status: w.status()}
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "end with status 3 if jobs have not ended by then (0: no limit)")
	completeArgs(cmd, nil)
	return cmd
}

// waiting is a call of errand jobs wait.
type waiting struct {
	ids     []queue.ID
	timeout time.Duration
	// found are the jobs as they were last seen. One that has ended is not looked at again.
	found map[queue.ID]queue.JobInfo
	gone  []queue.ID
}

// wait looks at the jobs until all have ended, or for the timeout. The pause between two looks is a
// tenth of the time that it has waited, so that no end is told later than by that. With many jobs
// a pause is at least ten times as long as the look before it.
func (w *waiting) wait(ctx context.Context, q *queue.Queue) error {
	left := slices.Clone(w.ids)
	w.found, w.gone = map[queue.ID]queue.JobInfo{}, nil
	begun, read := time.Now(), false
	for {
		var err error
		looked := time.Now()
		left, err = w.look(ctx, q, left)
		switch {
		case err == nil && len(left) == 0:
			return nil
		case err == nil:
			read = true
		case !read || !errors.Is(err, queue.ErrBusy) && !errors.Is(err, queue.ErrNeedsRecovery):
			return err
		} // else others begin to write, or have died while they wrote: it can be read again later
		waited := time.Since(begun)
		pause := max(min(max(waited/10, look), seldom), 10*time.Since(looked))
		if w.timeout > 0 {
			if waited >= w.timeout {
				return nil
			}
			pause = min(pause, w.timeout-waited)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look looks at the jobs that are left, and returns those that have not ended.
func (w *waiting) look(ctx context.Context, q *queue.Queue, left []queue.ID) (rest []queue.ID, err error) {
	for i, id := range left {
		switch j, err := q.Job(ctx, id); {
		case errors.Is(err, queue.ErrNotFound):
			delete(w.found, id)
			if !slices.Contains(w.gone, id) {
				w.gone = append(w.gone, id)
			}
		case err != nil:
			return append(rest, left[i:]...), err
		default:
			j.Args, j.Headers, j.History = nil, nil, nil // as in a list
			if w.found[id] = j; severity(j.State) == statusLeft {
				rest = append(rest, id)
			}
		}
	}
	return rest, nil
}

// severity returns the exit status for a job in a state.
func severity(s queue.State) int {
	switch s {
	case queue.Done:
		return 0
	case queue.Cancelled:
		return statusCancelled
	case queue.Expired:
		return statusExpired
	case queue.Dead:
		return statusDead
	}
	return statusLeft
}

// worst are the exit statuses, the worst first.
var worst = []int{statusDead, statusLeft, statusExpired, statusCancelled, statusFindings, 0}

// status returns the exit status.
func (w *waiting) status() int {
	is := len(worst) - 1
	if len(w.gone) > 0 {
		is = slices.Index(worst, statusFindings)
	}
	for _, j := range w.found {
		is = min(is, slices.Index(worst, severity(j.State)))
	}
	return worst[is]
}

// page returns the jobs in the order in which they were named.
func (w *waiting) page() queue.JobPage {
	out := queue.JobPage{Jobs: []queue.JobInfo{}}
	told := map[queue.ID]bool{}
	for _, id := range w.ids {
		if j, ok := w.found[id]; ok && !told[id] {
			told[id] = true
			out.Jobs = append(out.Jobs, j)
		}
	}
	return out
}

// print returns what writes the jobs as a table.
func (w *waiting) print(t *tool) func(p *printer) {
	return func(p *printer) {
		if page := w.page(); len(page.Jobs) > 0 {
			t.printJobs(p, &page, 0)
		}
		p.printIDs("not there", w.gone)
	}
}
