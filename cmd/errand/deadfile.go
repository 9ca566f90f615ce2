package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/storage"
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

// importTag begins the tag of a job that was imported, which a line may have from an import before.
var importTag, _, _ = strings.Cut(storage.ImportTag(queue.ID{}), queue.ID{}.String())

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
tags, origin, timeout and unique key of the old one. Its policy is the one by which the old one
died. Jobs whose unique key another job holds are left out, and the exit status is 1.

A job that was imported before is left out too, as long as it is there, in whatever state. So an
import that was cut off can be run again. The job has the tag errand.origin:ID, with the ID
of the old one, by which errand jobs ls --tag finds it.`,
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
			var id queue.ID
			lines := &batch{longest: maxExportLine, from: func() queue.ID { return id }}
			lines.parse = func(line []byte) (job queue.NewJob, err error) {
				job, id, err = newJobOf(line, to)
				return job, err
			}
			err = lines.all(cmd.Context(), t, args[0], create, in, t.progress("importing", 0))
			if err != nil && lines.enqueued+lines.before == 0 {
				return err
			}
			shown := t.show(struct {
				Imported   int `json:"imported"`
				Duplicates int `json:"duplicates"`
				Before     int `json:"before"`
			}{lines.enqueued, lines.duplicates, lines.before}, func(p *printer) {
				p.printf("%s imported\n", jobsText(lines.enqueued))
				if lines.before > 0 {
					p.printf("%s left out: imported before\n", jobsText(lines.before))
				}
				if lines.duplicates > 0 {
					p.printf("%s left out: others hold the unique keys\n", jobsText(lines.duplicates))
				}
			})
			return findings(lines.duplicates > 0, err, shown)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "put them into this queue")
	cmd.Flags().BoolVar(&create, "create", false, "make the file if there is none, or nothing in it")
	return cmd
}

// newJobOf reads a line of an export. id is what its job was.
func newJobOf(line []byte, to string) (job queue.NewJob, id queue.ID, err error) {
	var j queue.JobInfo
	if err := json.Unmarshal(line, &j); err != nil {
		return job, id, fmt.Errorf("must be an object as errand dead export writes it: %w", err)
	}
	j.Tags = slices.DeleteFunc(j.Tags, func(tag string) bool { return strings.HasPrefix(tag, importTag) })
	o := &queue.JobOptions{Queue: j.Queue, Priority: j.Priority, Timeout: j.Timeout, Headers: j.Headers, Tags: j.Tags, Group: j.Group, Origin: j.Origin}
	if to != "" {
		o.Queue = to
	}
	if j.Unique != "" {
		o.Unique = &queue.Unique{Key: j.Unique}
	}
	if j.Policy != nil {
		o.Policy = *j.Policy
	}
	return queue.NewJob{Args: queue.RawArgs{OfKind: j.Kind, JSON: j.Args}, Options: o}, j.ID, nil
}
