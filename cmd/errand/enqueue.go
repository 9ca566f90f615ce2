package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// conflictOptions are the flags about a key that is held.
type conflictOptions struct {
	onConflict                string
	uniqueFor, quiet, maxWait time.Duration
}

// windowOptions are the flags of windows.
type windowOptions struct {
	startWithin, finishWithin time.Duration
	onExpire                  string
}

// enqueueOptions are the flags of errand jobs enqueue.
type enqueueOptions struct {
	file, kind, queue string
	args, from        string
	stdin, create     bool
	priority          int
	delay             time.Duration
	due               string
	unique, field     string // the key of all jobs, or where it is in the args of each
	group             string
	forever           bool
	conflictOptions
	labelOptions
	timeout time.Duration
	windowOptions
	policy string
}

// labelOptions are what the jobs carry beside their args.
type labelOptions struct {
	headers, tags []string
	origin        queue.Origin
}

func enqueueCommand(t *tool) *cobra.Command {
	o := &enqueueOptions{}
	cmd := &cobra.Command{
		Use:   "enqueue FILE --kind KIND [flags]",
		Short: "Add jobs",
		Long: `Add one job with the args of --args, or a job for each line of --stdin or --file. A line
is one value of JSON: the args of one job. Empty lines are skipped, but counted. A
--file may also be one value over several lines. Without any of these flags there is one
job whose args are {}.

1,000 lines are one commit; lines wait at most a second for others. A line that is
refused ends the command with status 2 and is named by its number; the jobs of the
lines before it stay. A cap that is reached refuses all lines of a commit, and no line is
named.

With --json and lines there is an object for each job as soon as it is safe: the "line",
the "id", and "duplicate": true if another job holds the unique key; the ID is then that
job's.

--unique-field takes the unique key from the args of each job: it names a field, and
with dots one of an object in it. Its value must be a text or a number.`,
		Example: `  errand jobs enqueue q.db --create --kind sum --args '{"n":1}'
  seq 10 | sed 's/.*/{"n":&}/' | errand jobs enqueue q.db --kind sum --stdin
  echo '{"order":{"id":17}}' | errand jobs enqueue q.db --kind bill --stdin --unique-field order.id --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file = args[0]
			return o.run(cmd.Context(), t)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.kind, "kind", "", "the kind of the jobs")
	f.StringVar(&o.queue, "queue", "default", "the queue of the jobs")
	f.StringVar(&o.args, "args", "{}", "the args of one job, as JSON")
	f.StringVar(&o.from, "file", "", "read a job for each line of this file")
	f.BoolVar(&o.stdin, "stdin", false, "read a job for each line of standard input")
	f.BoolVar(&o.create, "create", false, "make the file if there is none, or nothing in it")
	f.IntVar(&o.priority, "priority", 0, "higher first, from -100 to 100")
	f.DurationVar(&o.delay, "delay", 0, "how long from now the jobs are due")
	f.StringVar(&o.due, "due", "", "when the jobs are due, as 2026-05-01T12:00:00+02:00, or a day, which begins at midnight UTC")
	f.StringVar(&o.unique, "unique", "", "add the job only if no other one of the kind has this key")
	f.StringVar(&o.field, "unique-field", "", "take the key of --unique from this field of the args, as order.id")
	f.StringVar(&o.group, "group", "", "run the jobs one at a time with others of this group, in the order of enqueueing")
	f.BoolVar(&o.forever, "unique-forever", false, "hold the key after the end of the job too")
	f.DurationVar(&o.uniqueFor, "unique-for", 0, "hold the key for that long, and until the end of the job")
	f.StringVar(&o.onConflict, "on-conflict", "keep", "if the key is held: keep, replace, debounce, after or fail")
	f.DurationVar(&o.quiet, "quiet-for", 0, "with debounce, how long after the last one the job is due")
	f.DurationVar(&o.maxWait, "max-wait", 0, "with debounce, how long after the first one the job is due at the latest")
	f.StringArrayVar(&o.headers, "header", nil, "a header, as name=value; may be repeated")
	f.StringArrayVar(&o.tags, "tag", nil, "a tag to find the jobs by; may be repeated")
	originFlag(cmd, &o.origin, "where the jobs come from, as `DEVICE,ID`: a device or system, and what they are called there")
	f.DurationVar(&o.timeout, "timeout", 0, "how long each attempt may take")
	f.DurationVar(&o.startWithin, "start-within", 0, "how long after they are due the jobs may begin; then they end as expired")
	f.DurationVar(&o.finishWithin, "finish-within", 0, "how long after they are due an attempt may begin; then they are dead")
	f.StringVar(&o.onExpire, "on-expire", "", "what becomes of jobs that have not begun within --start-within: expired (default) or dead")
	f.StringVar(&o.policy, "policy", "", "a preset or a file with the delivery policy of the jobs, see: errand policy")
	cmd.MarkFlagsMutuallyExclusive("args", "file", "stdin")
	cmd.MarkFlagsMutuallyExclusive("delay", "due")
	cmd.MarkFlagsMutuallyExclusive("unique", "unique-field")
	cmd.MarkFlagsMutuallyExclusive("unique", "file")
	cmd.MarkFlagsMutuallyExclusive("unique", "stdin")
	completeArgs(cmd, nil)
	completeFlag(cmd, "kind", kindsOf)
	completeFlag(cmd, "queue", queuesOf)
	return cmd
}

// job returns the options of each job.
func (o *enqueueOptions) job(in io.Reader) (*queue.JobOptions, error) {
	j := &queue.JobOptions{Queue: o.queue, Priority: o.priority, Delay: o.delay, Timeout: o.timeout, Tags: o.tags,
		StartWithin: o.startWithin, FinishWithin: o.finishWithin, OnExpire: queue.State(o.onExpire), Group: o.group, Origin: o.origin}
	if o.due != "" {
		due, err := parseTime(o.due)
		if err != nil {
			return nil, fmt.Errorf("--due %w", err)
		}
		j.DueAt = due
	}
	if o.unique != "" || o.field != "" {
		j.Unique = &queue.Unique{Key: o.unique, Forever: o.forever}
		if err := o.conflict(j.Unique); err != nil {
			return nil, err
		}
	} else if o.forever || o.uniqueFor != 0 || o.onConflict != "keep" {
		return nil, errors.New("--unique-forever, --unique-for and --on-conflict need --unique or --unique-field")
	}
	var err error
	if j.Headers, err = jobHeaders(o.headers); err != nil {
		return nil, err
	}
	if o.policy != "" {
		if o.policy == "-" && o.stdin {
			return nil, errors.New("--policy - and --stdin: standard input can be read once")
		}
		d, err := readDelivery(in, o.policy, policy.ProfileQueue)
		if err != nil {
			return nil, err
		}
		j.Policy = d
	}
	return j, nil
}

// conflict sets what becomes of a job whose key is held.
func (o *enqueueOptions) conflict(u *queue.Unique) error {
	mode := slices.Index([]string{"keep", "replace", "debounce", "after", "fail"}, o.onConflict)
	if mode < 0 {
		return fmt.Errorf("--on-conflict %q: must be keep, replace, debounce, after or fail", o.onConflict)
	}
	u.For = o.uniqueFor
	u.OnConflict = queue.OnConflict{Mode: queue.ConflictMode(mode), Quiet: o.quiet, MaxWait: o.maxWait}
	return nil
}

func (o *enqueueOptions) run(ctx context.Context, t *tool) error {
	if o.kind == "" {
		return errors.New("--kind is missing: name the kind of the jobs")
	}
	job, err := o.job(t.in)
	if err != nil {
		return err
	}
	lines, closeLines, err := o.lines(ctx, t.in)
	if err != nil {
		return err
	}
	defer closeLines()
	b := &batch{one: !o.stdin && o.from == "", longest: maxLine}
	b.parse = func(line []byte) (n queue.NewJob, err error) {
		n = queue.NewJob{Args: queue.RawArgs{OfKind: o.kind, JSON: line}, Options: job}
		if err = checkLine(line); err == nil && o.field != "" {
			n.Options, err = withKey(job, line, o.field)
		}
		return n, err
	}
	if t.json && !b.one {
		b.told = t.tellAdded
	}
	err = b.all(ctx, t, o.file, o.create, lines, t.progress("enqueued", 0))
	if err != nil || b.told != nil {
		return err
	}
	return t.show(struct {
		File       string    `json:"file"`
		Queue      string    `json:"queue"`
		Kind       string    `json:"kind"`
		Enqueued   int       `json:"enqueued"`
		Duplicates int       `json:"duplicates"`
		Replaced   int       `json:"replaced,omitempty"` // of the duplicates, those that have changed a job
		ID         *queue.ID `json:"id,omitempty"`       // of one job, or of its duplicate
	}{o.file, o.queue, o.kind, b.enqueued, b.duplicates, b.replaced, b.id}, b.print)
}

// tellAdded writes what became of a line.
func (t *tool) tellAdded(line int, e queue.Enqueued) error {
	return writeJSON(t.out, struct {
		Line      int      `json:"line"`
		ID        queue.ID `json:"id"`
		Duplicate bool     `json:"duplicate"`
		Replaced  bool     `json:"replaced,omitempty"`
		Key       string   `json:"key,omitempty"`
	}{line, e.ID, e.Duplicate, e.Replaced, e.Key}, false)
}

// withKey returns the options of a job whose unique key is in a field of its args.
func withKey(o *queue.JobOptions, args json.RawMessage, field string) (*queue.JobOptions, error) {
	value := args
	for name := range strings.SplitSeq(field, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil || object[name] == nil {
			return nil, fmt.Errorf("--unique-field %s: the args have no such field", field)
		}
		value = object[name]
	}
	var key any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if err := d.Decode(&key); err != nil {
		return nil, err
	}
	mine, unique := *o, *o.Unique
	switch key := key.(type) {
	case string:
		unique.Key = key
	case json.Number:
		unique.Key = key.String()
	default:
		return nil, fmt.Errorf("--unique-field %s: %s: must be a text or a number", field, shortened(value))
	}
	if unique.Key == "" {
		return nil, fmt.Errorf("--unique-field %s: must not be empty", field)
	}
	mine.Unique = &unique
	return &mine, nil
}

// shortened returns the beginning of JSON, for an error.
func shortened(value []byte) string {
	const most = 64
	if len(value) > most {
		return cutText(string(value), most) + "..."
	}
	return string(value)
}

// print says what was added.
func (b *batch) print(p *printer) {
	switch {
	case !b.one:
		p.printf("%s enqueued", jobsText(b.enqueued))
		if b.duplicates > 0 {
			p.printf(", %d duplicates", b.duplicates)
		}
		p.printf("\n")
	case b.replaced > 0:
		p.printf("replaced in %v\n", b.id)
	case b.duplicates > 0:
		p.printf("duplicate of %v\n", b.id)
	default:
		p.printf("%v\n", b.id)
	}
}

// lines returns what to read lines from, and what closes it.
func (o *enqueueOptions) lines(ctx context.Context, in io.Reader) (io.Reader, func(), error) {
	switch {
	case o.stdin:
		return in, func() {}, nil
	case o.from == "":
		if err := checkLine([]byte(o.args)); err != nil {
			return nil, nil, fmt.Errorf("--args: %w", err)
		}
		return compacted([]byte(o.args)), func() {}, nil
	}
	f, err := os.Open(o.from)
	if err != nil {
		return nil, nil, err
	}
	closeFile := func() { f.Close() } //nolint:errcheck // only read
	// One value over several lines is one job.
	in = &input{ctx: ctx, r: f}
	head, err := io.ReadAll(io.LimitReader(in, maxLine+1))
	if err != nil {
		closeFile()
		return nil, nil, err
	}
	if len(head) <= maxLine && json.Valid(head) {
		return compacted(head), closeFile, nil
	}
	return io.MultiReader(bytes.NewReader(head), in), closeFile, nil
}

// compacted returns JSON, which is valid, without line ends.
func compacted(text []byte) io.Reader {
	var b bytes.Buffer
	_ = json.Compact(&b, text)
	return &b
}

// maxLine bounds the memory for a line. The limit for args is lower.
const maxLine = 1 << 20

// checkLine checks what can be said about a line without its queue.
func checkLine(line []byte) error {
	if !utf8.Valid(line) {
		return errors.New("must be valid UTF-8")
	}
	var v json.RawMessage
	if err := json.Unmarshal(line, &v); err != nil {
		return fmt.Errorf("must be one value of JSON: %w", err)
	}
	return nil
}
