package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

// bulkQueue is the queue of bulk jobs.
const bulkQueue = "errand.bulk"

// bulkLook is how often it is looked how far a bulk job is.
const bulkLook = 200 * time.Millisecond

func bulkCommand(t *tool) *cobra.Command {
	return group("bulk", "Look at bulk jobs, pause or cancel them",
		`Look at bulk jobs, pause or cancel them. A bulk job changes many jobs in the background,
at the rate that --rate of the other verbs has set. Whatever worker runs does it; while none
runs, the verb that has started it does. It goes on after a crash.`,
		bulkListCommand(t), bulkWatchCommand(t), bulkPauseCommand(t), bulkResumeCommand(t), bulkCancelCommand(t))
}

func bulkListCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls FILE",
		Short:   "List the last 100 bulk jobs, the latest first",
		Example: "  errand bulk ls jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []queue.BulkInfo
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				all, err = q.Bulks(cmd.Context())
				return err
			})
			if err != nil {
				return err
			}
			return t.show(map[string]any{"bulks": all}, func(p *printer) { t.printBulks(p, all) })
		},
	}
	completeArgs(cmd, nil)
	return cmd
}

func (t *tool) printBulks(p *printer, all []queue.BulkInfo) {
	if len(all) == 0 {
		p.printf("no bulk jobs\n")
		return
	}
	list := table{head: []string{"ID", "DO", "STATE", " CHANGED", " UNCHANGED", " OF", " RATE", "BY", "STARTED", "ENDED", "ERROR"}}
	for i := range all {
		b := &all[i]
		ended := "-"
		if !b.EndedAt.IsZero() {
			ended = when(b.EndedAt)
		}
		list.add(text(b.ID.String()), text(string(b.Do)), text(bulkState(b)), number(b.Changed), number(b.Left), text(bulkTotal(b)),
			text(orDash(strings.TrimPrefix(fmt.Sprint(b.Rate), "0"))), text(orDash(b.By)), text(when(b.StartedAt)), text(ended), text(orDash(b.Error)))
	}
	list.print(p, t.out)
}

// bulkState says in words what a bulk job does.
func bulkState(b *queue.BulkInfo) string {
	switch {
	case !b.EndedAt.IsZero():
		return string(b.State)
	case b.Paused:
		return "paused"
	case b.Unserved:
		return "no worker runs"
	}
	return string(b.State)
}

func bulkTotal(b *queue.BulkInfo) string {
	switch {
	case b.More:
		return fmt.Sprintf("more than %d", b.Total)
	case b.Total == 0:
		return "-"
	}
	return fmt.Sprint(b.Total)
}

func bulkWatchCommand(t *tool) *cobra.Command {
	var serve bool
	cmd := &cobra.Command{
		Use:   "watch FILE [ID]",
		Short: "Wait until a bulk job has ended",
		Long: `Wait until a bulk job has ended: that which is named, or else the first that has not
ended. With --serve this command does the work while no worker runs. The exit status is 1
if it was cancelled, or is dead.`,
		Example: `  errand bulk watch jobs.db
  errand bulk watch jobs.db --serve`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			ids, err := t.jobIDs(ctx, args[0], args[1:])
			if err != nil {
				return err
			}
			var b *queue.BulkInfo
			open := t.reading
			if serve {
				open = func(ctx context.Context, path string, f func(q *queue.Queue) error) error {
					return t.writing(ctx, path, false, f)
				}
			}
			err = open(ctx, args[0], func(q *queue.Queue) error {
				all, err := q.Bulks(ctx, ids...)
				if err != nil {
					return err
				}
				if len(ids) > 0 && len(all) == 0 {
					return fmt.Errorf("bulk job %v: %w", ids[0], queue.ErrNotFound)
				}
				slices.Reverse(all)
				i := slices.IndexFunc(all, func(b queue.BulkInfo) bool { return len(ids) > 0 || b.EndedAt.IsZero() })
				if i < 0 {
					return nil
				}
				b = &all[i]
				return t.followBulk(ctx, q, b, serve)
			})
			if b == nil && err == nil {
				return t.show(map[string]any{}, func(p *printer) { p.printf("no bulk job is left to do\n") })
			}
			return t.toldBulk(ctx, args[0], b, err)
		},
	}
	cmd.Flags().BoolVar(&serve, "serve", false, "do the work while no worker runs")
	completeArgs(cmd, nil)
	return cmd
}

func bulkPauseCommand(t *tool) *cobra.Command {
	return t.bulkHold("pause", "Have all bulk jobs wait", "paused", (*queue.Queue).Pause)
}

func bulkResumeCommand(t *tool) *cobra.Command {
	return t.bulkHold("resume", "Have bulk jobs go on", "resumed", (*queue.Queue).Resume)
}

// bulkHold is a verb that does something to the queue of bulk jobs.
func (t *tool) bulkHold(verb, short, done string, do func(*queue.Queue, context.Context, string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:     verb + " FILE",
		Short:   short,
		Example: "  errand bulk " + verb + " jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.eachQueue(cmd.Context(), []string{args[0], bulkQueue}, done, do)
		},
	}
	completeArgs(cmd, nil)
	return cmd
}

func bulkCancelCommand(t *tool) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "cancel FILE [ID...]",
		Short: "Cancel bulk jobs",
		Long: `Cancel bulk jobs: those that are named, or with --all each that has not ended. What they
have done stays done. The exit status is 1 if a named bulk job is not there.`,
		Example: "  errand bulk cancel jobs.db --all",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			ids, err := t.jobIDs(ctx, args[0], args[1:])
			if err == nil && all == (len(ids) > 0) {
				err = errors.New("name IDs of bulk jobs, or say --all")
			}
			if err != nil {
				return err
			}
			var d done
			err = t.writing(ctx, args[0], false, func(q *queue.Queue) error {
				found, err := q.Bulks(ctx, ids...)
				if err != nil {
					return err
				}
				left := missing(ids, len(found))
				found = slices.DeleteFunc(found, func(b queue.BulkInfo) bool { return all && !b.EndedAt.IsZero() })
				ids = nil
				for _, b := range found {
					ids = append(ids, b.ID)
				}
				d, err = cancelEach(ctx, q, ids)
				d.left += left
				return err
			})
			return findings(d.left > 0, t.inPart(ctx, d.n, d.json, d.text, err))
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that have not ended")
	completeArgs(cmd, nil)
	return cmd
}

// bulkFlags are those by which a verb has its work done by a bulk job.
type bulkFlags struct {
	rate int
	by   string
}

func (f *bulkFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.rate, "rate", 0, "by a bulk job that takes so many in a second, see errand bulk (0: as many as it can)")
	cmd.Flags().StringVar(&f.by, "by", "", "who asks for the bulk job, for people")
}

// start has a bulk job do what a verb does, or counts what it would do.
func (b *bulk) start(ctx context.Context, q *queue.Queue, filter queue.JobFilter, by *bulkFlags, dry bool) (queue.BulkInfo, error) {
	o := *b.order
	o.Filter, o.Rate, o.By, o.DryRun = filter, by.rate, by.by, dry
	if b.prepare != nil {
		if err := b.prepare(ctx, q, &o); err != nil {
			return queue.BulkInfo{}, err
		}
	}
	return q.StartBulk(ctx, o)
}

// startBulk has a bulk job do what a verb does, and waits for its end.
func (t *tool) startBulk(ctx context.Context, path string, filter queue.JobFilter, by *bulkFlags, b *bulk) error {
	var info *queue.BulkInfo
	err := t.writing(ctx, path, false, func(q *queue.Queue) error {
		if err := knowsCause(ctx, q, filter.Cause); err != nil {
			return err
		}
		begun, err := b.start(ctx, q, filter, by, false)
		if err != nil {
			return err
		}
		info = &begun
		return t.followBulk(ctx, q, info, true)
	})
	return t.toldBulk(ctx, path, info, err)
}

// countBulk says how many jobs a bulk job would take now, and names some of them.
func (t *tool) countBulk(ctx context.Context, path string, filter queue.JobFilter, b *bulk) error {
	var info queue.BulkInfo
	err := t.reading(ctx, path, func(q *queue.Queue) (err error) {
		info, err = b.start(ctx, q, filter, &bulkFlags{}, true)
		return err
	})
	if err != nil {
		return err
	}
	return t.show(info, func(p *printer) {
		more := ""
		if info.More {
			more = "more than "
		}
		p.printf("%s: %s%s\n", info.Do, more, jobsText(int(info.Total)))
		for _, id := range info.Sample {
			p.printf("%v\n", id)
		}
	})
}

// toldBulk says what became of a bulk job, nil if none was started.
func (t *tool) toldBulk(ctx context.Context, path string, b *queue.BulkInfo, err error) error {
	if b == nil {
		return err
	}
	err = t.inPart(ctx, 1, b, func(p *printer) {
		p.printf("bulk job %v, %s: %s, %d changed", b.ID, b.Do, bulkState(b), b.Changed)
		if b.Left > 0 {
			p.printf(", %d left as they are", b.Left)
		}
		p.printf("\n")
		if b.Error != "" {
			p.printf("%s\n", safe(b.Error))
		}
		if b.EndedAt.IsZero() {
			p.printf("a worker goes on with it; without one: errand bulk watch %s --serve\n", safe(path))
		}
	}, err)
	return findings(!b.EndedAt.IsZero() && b.State != queue.Done, err)
}

// followBulk waits until a bulk job has ended, and shows how far it is. With serve it works
// on it itself once no worker runs.
func (t *tool) followBulk(ctx context.Context, q *queue.Queue, b *queue.BulkInfo, serve bool) (err error) {
	bar := t.progress(string(b.Do), 0)
	stop := func() error { return nil }
	defer func() {
		bar.end()
		err = errors.Join(err, stop())
	}()
	working := false
	for {
		all, err := q.Bulks(ctx, b.ID)
		if err == nil && len(all) == 0 {
			err = fmt.Errorf("bulk job %v: %w", b.ID, queue.ErrNotFound)
		}
		if err != nil {
			return err
		}
		if *b = all[0]; !b.EndedAt.IsZero() {
			return nil
		}
		if bar != nil && !b.More {
			bar.total = b.Total
		}
		bar.set(b.Changed + b.Left)
		if serve && b.Unserved && !working {
			working, stop = true, workOnBulks(ctx, q)
		}
		select {
		case <-time.After(bulkLook):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// workOnBulks runs a worker for bulk jobs alone, until the function that it returns is
// called.
func workOnBulks(ctx context.Context, q *queue.Queue) (stop func() error) {
	w := queue.NewWorker(q, &queue.WorkerOptions{Queues: []string{bulkQueue}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.WithoutCancel(ctx)) }()
	return func() error {
		return errors.Join(w.Shutdown(context.WithoutCancel(ctx)), <-ended)
	}
}

func deadEditCommand(t *tool) *cobra.Command {
	var set []string
	order := &queue.Bulk{Do: queue.BulkRedrive, Set: map[string]json.RawMessage{}}
	cmd := bulk{
		order: order, asks: "edit and redrive dead letters of %s", try: t.dryRun, durable: true,
	}.verb(t, &cobra.Command{
		Use:   "edit FILE [ID...]",
		Short: "Change the args of dead letters, and make them ready again",
		Long: `Put values into the args of dead letters, and make these ready again: those that are
named, or those that the flags choose. A bulk job does it, see errand bulk. --set names a
field by its path, with a dot before each inner field, and its value as JSON; what is no
JSON is a string, but 007 and the like are refused. The args before are kept in the history. A job whose args lack the field,
or whose unique key another job holds, stays dead.`,
		Example: `  errand dead edit jobs.db --kind send --set to=ada@example.com --yes
  errand dead edit jobs.db 01890a5d-ac96-774b-bcce-b302099a8057 --set options.retries=3`,
		PreRunE: func(*cobra.Command, []string) error {
			for _, s := range set {
				path, value, ok := strings.Cut(s, "=")
				if !ok || path == "" {
					return fmt.Errorf("--set %q: must be a path, = and a value", s)
				}
				if !json.Valid([]byte(value)) {
					if _, err := strconv.ParseFloat(value, 64); err == nil && strings.ContainsAny(value, "0123456789") {
						return fmt.Errorf("--set %s: %s is no number in JSON: write it as one, or in quotes, as '%s=\"%s\"'", path, value, path, value)
					}
					quoted, err := json.Marshal(value)
					if err != nil {
						return fmt.Errorf("--set: %w", err)
					}
					value = string(quoted)
				}
				order.Set[path] = json.RawMessage(value)
			}
			return nil
		},
	})
	cmd.Flags().StringArrayVar(&set, "set", nil, "a field of the args and its value, as in address.city=Paris; more than once for several")
	cmd.Flags().StringVar(&order.Redrive.Queue, "to", "", "put them into this queue")
	require(cmd, "set")
	completeFlag(cmd, "to", queuesOf)
	return cmd
}
