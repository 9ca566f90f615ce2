package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

func exportCommand(t *tool) *cobra.Command {
	var f filterFlags
	cmd := &cobra.Command{
		Use:   "export FILE [ID...]",
		Short: "Write dead letters as JSON lines",
		Long: `Write dead letters to standard output, one object a line, with args, headers and
history: all, those that are named, or those that the flags choose. They stay where they
are. The exit status is 1 if a named job is not dead.`,
		Example: "  errand dead export jobs.db --kind send > dead.jsonl",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter()
			if err == nil {
				filter.IDs, err = t.jobIDs(cmd.Context(), args[0], args[1:])
			}
			if err != nil {
				return err
			}
			out := bufio.NewWriter(t.out)
			n := 0
			err = t.open(cmd.Context(), args[0], onlyRead(), func(q *queue.Queue) error { // not twice, as it writes
				bar := t.progress("exporting", 0)
				defer bar.end()
				return eachDead(cmd.Context(), q, filter, func(j *queue.JobInfo) error {
					whole, err := q.DeadLetters().Get(cmd.Context(), j.ID)
					if isNotFound(err) { // it was redriven or purged since
						return nil
					}
					if err != nil {
						return err
					}
					n++
					bar.set(int64(n))
					return writeJSON(out, whole, false)
				})
			})
			if err = errors.Join(err, out.Flush()); err == nil && missing(filter.IDs, n) > 0 {
				err = &statusError{statusFindings, fmt.Errorf("%s named that are not dead", jobsText(missing(filter.IDs, n)))}
			}
			return err
		},
	}
	f.add(cmd, queue.Dead)
	completeArgs(cmd, nil)
	return cmd
}

// maxExportLine is how long a line may be: args and headers may be up to 64 MiB each.
const maxExportLine = 160 << 20

func importCommand(t *tool) *cobra.Command {
	var to string
	var create bool
	cmd := &cobra.Command{
		Use:   "import FILE [EXPORT]",
		Short: "Enqueue exported dead letters",
		Long: `Enqueue what "errand dead export" has written, from a file, or from standard input: each
line becomes a new job that is ready, with the kind, queue, priority, args, headers,
tags, timeout and unique key of the old one. Its policy is the one by which the old one
died. Jobs whose unique key another job holds are left out, and the exit status is 1.`,
		Example: "  errand dead export jobs.db | errand dead import other.db --create",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			in := t.in
			if len(args) > 1 && args[1] != "-" {
				f, err := os.Open(args[1])
				if err != nil {
					return err
				}
				defer f.Close() //nolint:errcheck // only read
				in = &input{ctx: cmd.Context(), r: f}
			}
			lines := &batch{longest: maxExportLine, parse: func(line []byte) (queue.NewJob, error) { return newJobOf(line, to) }}
			err = lines.all(cmd.Context(), t, args[0], create, in, t.progress("importing", 0))
			if err != nil && lines.enqueued == 0 {
				return err
			}
			shown := t.show(struct {
				Imported   int `json:"imported"`
				Duplicates int `json:"duplicates"`
			}{lines.enqueued, lines.duplicates}, func(p *printer) {
				p.printf("%s imported\n", jobsText(lines.enqueued))
				if lines.duplicates > 0 {
					p.printf("%s left out, as others hold their unique keys\n", jobsText(lines.duplicates))
				}
			})
			return findings(lines.duplicates > 0, err, shown)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "put them into this queue")
	cmd.Flags().BoolVar(&create, "create", false, "make the file if there is none, or nothing in it")
	return cmd
}

// newJobOf reads a line of an export.
func newJobOf(line []byte, to string) (queue.NewJob, error) {
	var j queue.JobInfo
	if err := json.Unmarshal(line, &j); err != nil {
		return queue.NewJob{}, fmt.Errorf("must be an object as errand dead export writes it: %w", err)
	}
	o := &queue.JobOptions{Queue: j.Queue, Priority: j.Priority, Timeout: j.Timeout, Headers: j.Headers, Tags: j.Tags, Group: j.Group}
	if to != "" {
		o.Queue = to
	}
	if j.Unique != "" {
		o.Unique = &queue.Unique{Key: j.Unique}
	}
	if j.Policy != nil {
		o.Policy = *j.Policy
	}
	return queue.NewJob{Args: queue.RawArgs{OfKind: j.Kind, JSON: j.Args}, Options: o}, nil
}
