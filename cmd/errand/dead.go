package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

func deadCommand(t *tool) *cobra.Command {
	return group("dead", "Look at dead letters, redrive or purge them",
		`Look at the dead letters, that is jobs that were exhausted or refused. Redrive makes
them ready again, purge deletes them for good. Until then they are kept.`,
		deadListCommand(t), deadShowCommand(t), deadGroupsCommand(t), redriveCommand(t), deadEditCommand(t), purgeCommand(t), exportCommand(t), importCommand(t))
}

// pageFlags are those of a list.
type pageFlags struct{ o queue.ListOptions }

func (f *pageFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.o.Limit, "limit", 100, "list at most so many, up to 1,000")
	cmd.Flags().StringVar(&f.o.After, "after", "", "go on where the page before has ended, as it said")
}

func deadListCommand(t *tool) *cobra.Command {
	var f filterFlags
	var page pageFlags
	cmd := &cobra.Command{
		Use:     "ls FILE",
		Short:   "List dead letters, the latest first",
		Example: "  errand dead ls jobs.db --kind send --reason permanent",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter()
			if err != nil {
				return err
			}
			var list queue.JobPage
			err = t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				list, err = q.DeadLetters().List(cmd.Context(), filter, &page.o)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(list, func(p *printer) { t.printJobs(p, &list, 0) })
		},
	}
	f.add(cmd, queue.Dead)
	page.add(cmd)
	completeArgs(cmd, nil)
	return cmd
}

func deadShowCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show FILE ID",
		Short:   "Show all that is known of a dead letter",
		Example: "  errand dead show jobs.db 01890a5d-ac96-774b-bcce-b302099a8057",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.showJob(cmd, args, "", func(ctx context.Context, q *queue.Queue, id queue.ID) (queue.JobInfo, error) {
				return q.DeadLetters().Get(ctx, id)
			})
		},
	}
	completeArgs(cmd, nil)
	return cmd
}

func redriveCommand(t *tool) *cobra.Command {
	order := &queue.Bulk{Do: queue.BulkRedrive}
	o := &order.Redrive
	cmd := bulk{
		order: order, asks: "redrive dead letters of %s", try: t.dryRun,
		do: func(ctx context.Context, q *queue.Queue, filter queue.JobFilter) (done, error) {
			defer t.follow(ctx, q, "redriving", &filter)()
			r, err := q.DeadLetters().Redrive(ctx, filter, o)
			return done{r.Redriven, len(r.Duplicates) + len(r.NotFound), r, func(p *printer) {
				p.printf("%s redriven\n", jobsText(r.Redriven))
				p.printIDs("stayed dead, as another job holds the unique key", r.Duplicates)
				p.printIDs("not dead", r.NotFound)
			}}, err
		},
	}.verb(t, &cobra.Command{
		Use:   "redrive FILE [ID...]",
		Short: "Make dead letters ready again",
		Long: `Make dead letters ready again, the earliest death first: those that are named, or those
that the flags choose. Their retries begin anew; attempts and history are kept, and
checkpoints unless --from-start is set. A job whose unique key another job holds stays
dead. --dry-run changes nothing, and counts
what would be changed. With --rate a bulk job does it, see errand bulk. The exit status is
1 if a named job is not dead, or stayed dead.`,
		Example: `  errand dead redrive jobs.db --kind send --reason permanent --dry-run
  errand dead redrive jobs.db --kind send --yes
  errand dead redrive jobs.db --all --rate 100 --by ada --yes
  errand dead redrive jobs.db 01890a5d-ac96-774b-bcce-b302099a8057`,
	})
	cmd.Flags().StringVar(&o.Queue, "to", "", "put them into this queue")
	cmd.Flags().BoolVar(&o.FromStart, "from-start", false, "drop their checkpoints, so that they begin from the start")
	completeFlag(cmd, "to", queuesOf)
	return cmd
}

// tally is a number of dead letters of a lane that died for one reason.
type tally struct {
	Queue  string       `json:"queue"`
	Kind   string       `json:"kind"`
	Reason queue.Reason `json:"reason"`
	N      int          `json:"n"`
}

// dryRun counts the dead letters that a filter chooses.
func (t *tool) dryRun(ctx context.Context, path string, filter queue.JobFilter) error {
	var counted map[tally]int
	total := 0
	err := t.reading(ctx, path, func(q *queue.Queue) error {
		counted, total = map[tally]int{}, 0
		if err := knowsCause(ctx, q, filter.Cause); err != nil {
			return err
		}
		bar := t.progress("counting", 0)
		defer bar.end()
		return eachDead(ctx, q, filter, func(j *queue.JobInfo) error {
			counted[tally{Queue: j.Queue, Kind: j.Kind, Reason: j.Reason}]++
			total++
			bar.set(int64(total))
			return nil
		})
	})
	if err != nil {
		return err
	}
	all := []tally{}
	for of, n := range counted {
		of.N = n
		all = append(all, of)
	}
	slices.SortFunc(all, func(a, b tally) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason))
	})
	left := missing(filter.IDs, total)
	shown := t.show(struct {
		DryRun  bool    `json:"dry_run"`
		N       int     `json:"n"`
		Dead    []tally `json:"dead"`
		NotDead int     `json:"not_dead,omitempty"`
	}{true, total, all, left}, func(p *printer) {
		p.printf("%s would be redriven\n", jobsText(total))
		if left > 0 {
			p.printf("%s named that are not dead\n", jobsText(left))
		}
		if total == 0 {
			return
		}
		list := table{head: []string{"QUEUE", "KIND", "REASON", " JOBS"}}
		for _, of := range all {
			list.add(text(of.Queue), text(of.Kind), text(string(of.Reason)), number(of.N))
		}
		list.print(p, t.out)
	})
	return findings(left > 0, shown)
}

// eachDead calls f for each dead letter that a filter chooses, page by page. The jobs come
// without args, headers and history.
func eachDead(ctx context.Context, q *queue.Queue, filter queue.JobFilter, f func(j *queue.JobInfo) error) error {
	for chunk := range idChunks(filter.IDs) {
		filter.IDs = chunk
		o := queue.ListOptions{Limit: 1000}
		for {
			page, err := q.DeadLetters().List(ctx, filter, &o)
			if err != nil {
				return err
			}
			for i := range page.Jobs {
				if err := f(&page.Jobs[i]); err != nil {
					return err
				}
			}
			if o.After = page.Next; o.After == "" {
				break
			}
		}
	}
	return nil
}

// idChunks yields IDs as many at a time as a list takes, and nil once if there are none.
func idChunks(ids []queue.ID) func(yield func([]queue.ID) bool) {
	if len(ids) == 0 {
		return func(yield func([]queue.ID) bool) { yield(nil) }
	}
	return slices.Chunk(ids, 1000)
}

// follow shows a bar while dead letters are changed, until the function that it returns
// is called.
func (t *tool) follow(ctx context.Context, q *queue.Queue, label string, filter *queue.JobFilter) (stop func()) {
	dead := func() (n int64) {
		counts, err := q.Counts(ctx)
		for _, c := range counts {
			if c.State == queue.Dead && (filter.Queue == "" || filter.Queue == c.Queue) && (filter.Kind == "" || filter.Kind == c.Kind) {
				n += c.N
			}
		}
		if err != nil {
			return -1
		}
		return n
	}
	if !t.errs.terminal() {
		return func() {}
	}
	begun := dead()
	bar := t.progress(label, 0)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * barEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if left := dead(); left >= 0 {
					bar.set(max(begun-left, 0))
				}
			case <-over:
				bar.end()
				return
			}
		}
	}()
	return func() { close(over); <-ended }
}

func purgeCommand(t *tool) *cobra.Command {
	return bulk{
		order: &queue.Bulk{Do: queue.BulkDelete}, takes: queue.BulkRedrive.States(), asks: "delete dead letters of %s for good", always: true,
		do: func(ctx context.Context, q *queue.Queue, filter queue.JobFilter) (done, error) {
			defer t.follow(ctx, q, "deleting", &filter)()
			n, err := q.DeadLetters().Purge(ctx, filter)
			return done{n, missing(filter.IDs, n), map[string]int{"purged": n}, func(p *printer) { p.printf("%s deleted\n", jobsText(n)) }}, err
		},
		prepare: func(_ context.Context, _ *queue.Queue, b *queue.Bulk) error {
			if len(b.Filter.IDs) > 0 {
				return errors.New("--rate: choose the jobs by flags, not by IDs")
			}
			b.Filter.All, b.Filter.States = false, queue.BulkRedrive.States() // the dead ones
			return nil
		},
	}.verb(t, &cobra.Command{
		Use:   "purge FILE [ID...]",
		Short: "Delete dead letters for good",
		Long: `Delete dead letters for good: those that are named, or those that the flags choose. It
asks before, or wants --yes. Export them first if they may be wanted again. The exit
status is 1 if a named job is not dead.`,
		Example: "  errand dead purge jobs.db --older-than 720h --yes",
	})
}
