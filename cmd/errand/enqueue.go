package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// enqueueOptions are the flags of errand jobs enqueue.
type enqueueOptions struct {
	file, kind, queue string
	args, from        string
	stdin, create     bool
	priority          int
	delay             time.Duration
	due, unique       string
	forever           bool
	headers, tags     []string
	timeout           time.Duration
	policy            string
}

func enqueueCommand(t *tool) *cobra.Command {
	o := &enqueueOptions{}
	cmd := &cobra.Command{
		Use:   "enqueue FILE --kind KIND [flags]",
		Short: "Add jobs",
		Long: `Add one job with the args of --args, or a job for each line of --stdin or --file.
A line is one value of JSON: the args of one job. Empty lines count, and are
passed over. A --file may also be one value over several lines. Without any of
these flags there is one job whose args are {}.

1,000 lines are one commit; lines wait at most a second for others. A line that is refused ends the command with status 2
and is named by its number; the jobs of the lines before it stay.`,
		Example: `  errand jobs enqueue q.db --create --kind sum --args '{"n":1}'
  seq 10 | sed 's/.*/{"n":&}/' | errand jobs enqueue q.db --kind sum --stdin`,
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
	f.BoolVar(&o.create, "create", false, "make the file if there is none")
	f.IntVar(&o.priority, "priority", 0, "higher first, from -100 to 100")
	f.DurationVar(&o.delay, "delay", 0, "how long from now the jobs are due")
	f.StringVar(&o.due, "due", "", "when the jobs are due, as 2026-05-01T12:00:00Z")
	f.StringVar(&o.unique, "unique", "", "add the job only if no other one of the kind has this key")
	f.BoolVar(&o.forever, "unique-forever", false, "hold the key after the end of the job too")
	f.StringArrayVar(&o.headers, "header", nil, "a header, as name=value; may be repeated")
	f.StringArrayVar(&o.tags, "tag", nil, "a tag to find the jobs by; may be repeated")
	f.DurationVar(&o.timeout, "timeout", 0, "how long each attempt may take")
	f.StringVar(&o.policy, "policy", "", "a preset or a file with the delivery policy of the jobs, see: errand policy")
	cmd.MarkFlagsMutuallyExclusive("args", "file", "stdin")
	cmd.MarkFlagsMutuallyExclusive("delay", "due")
	cmd.MarkFlagsMutuallyExclusive("unique", "file")
	cmd.MarkFlagsMutuallyExclusive("unique", "stdin")
	completeArgs(cmd, nil)
	completeFlag(cmd, "kind", kindsOf)
	completeFlag(cmd, "queue", queuesOf)
	return cmd
}

// job returns the options of each job.
func (o *enqueueOptions) job(in io.Reader) (*queue.JobOptions, error) {
	j := &queue.JobOptions{Queue: o.queue, Priority: o.priority, Delay: o.delay, Timeout: o.timeout, Tags: o.tags}
	if o.due != "" {
		due, err := parseTime(o.due)
		if err != nil {
			return nil, fmt.Errorf("--due %w", err)
		}
		j.DueAt = due
	}
	if o.unique != "" {
		j.Unique = &queue.Unique{Key: o.unique, Forever: o.forever}
	} else if o.forever {
		return nil, errors.New("--unique-forever needs --unique")
	}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header %q: must be name=value", h)
		}
		if j.Headers == nil {
			j.Headers = map[string]string{}
		}
		j.Headers[name] = value
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
	b := &batch{File: o.file, Queue: o.queue, Kind: o.kind, options: job, many: o.stdin || o.from != ""}
	err = t.writing(ctx, o.file, o.create, func(q *queue.Queue) error {
		b.queue, b.bar = q, t.progress("enqueued", 0)
		err := b.all(ctx, lines)
		b.bar.end()
		if err != nil && b.many {
			err = fmt.Errorf("%w; jobs enqueued before: %d", err, b.Enqueued)
		}
		return err
	})
	if err != nil && (!b.many || !t.json || b.queue == nil) {
		return err
	}
	return errors.Join(err, t.show(b, b.print))
}

// print says what was added.
func (b *batch) print(p *printer) {
	switch {
	case b.many:
		p.printf("%d jobs enqueued", b.Enqueued)
		if b.Duplicates > 0 {
			p.printf(", %d duplicates", b.Duplicates)
		}
		p.printf("\n")
	case b.Duplicates > 0:
		p.printf("duplicate of %v\n", b.ID)
	default:
		p.printf("%v\n", b.ID)
	}
}

// lines returns what to read lines from, and what closes it.
func (o *enqueueOptions) lines(ctx context.Context, in io.Reader) (io.Reader, func(), error) {
	switch {
	case o.stdin:
		return in, func() {}, nil
	case o.from == "" && strings.TrimSpace(o.args) == "":
		return nil, nil, errors.New("--args must be one value of JSON")
	case o.from == "":
		return strings.NewReader(strings.TrimSpace(strings.ReplaceAll(o.args, "\n", " "))), func() {}, nil
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
		var one bytes.Buffer
		_ = json.Compact(&one, head) // it is valid
		return &one, closeFile, nil
	}
	return io.MultiReader(bytes.NewReader(head), in), closeFile, nil
}

const (
	// batchLines and batchBytes bound what is enqueued in one commit.
	batchLines = 1000
	batchBytes = 16 << 20
	// maxLine bounds the memory for a line. The limit for args is lower.
	maxLine = 1 << 20
)

// batch adds jobs.
type batch struct {
	File       string    `json:"file"`
	Queue      string    `json:"queue"`
	Kind       string    `json:"kind"`
	Enqueued   int       `json:"enqueued"`
	Duplicates int       `json:"duplicates"`
	ID         *queue.ID `json:"id,omitempty"` // of one job, or of its duplicate

	many    bool
	bar     *progress
	queue   *queue.Queue
	options *queue.JobOptions
	jobs    []queue.NewJob
	at      []int // the lines of jobs
	size    int
}

// line is one line that was read, or why there is none.
type line struct {
	text []byte
	err  error
}

// patience is how long a job waits for others of its batch.
const patience = time.Second

// all adds a job for each line. It waits for lines in another goroutine, so that ctx
// ends it; that goroutine stays until the program ends.
func (b *batch) all(ctx context.Context, in io.Reader) error {
	lines := make(chan line, batchLines)
	go read(ctx, in, lines)
	late := time.NewTimer(patience)
	defer late.Stop()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			if err := b.flush(ctx); err != nil {
				return err
			}
			late.Reset(patience)
		case l := <-lines:
			err := b.add(n, l)
			if n++; err != nil || len(b.jobs) == batchLines || b.size > batchBytes {
				if errors.Is(err, io.EOF) {
					return b.flush(ctx)
				}
				if err = errors.Join(b.flush(ctx), err); err != nil {
					return err
				}
				late.Reset(patience)
			}
		}
	}
}

// read reads lines until there are no more, or ctx ends.
func read(ctx context.Context, in io.Reader, lines chan<- line) {
	for r := bufio.NewReaderSize(in, 64<<10); ; {
		text, err := readLine(r)
		if len(text) > 0 && errors.Is(err, io.EOF) {
			err = nil // the next read is at the end too
		}
		select {
		case <-ctx.Done():
			return
		case lines <- line{text, err}:
		}
		if err != nil {
			return
		}
	}
}

// add adds the job of a line to the batch.
func (b *batch) add(n int, l line) error {
	text := bytes.TrimSpace(l.text)
	switch {
	case errors.Is(l.err, io.EOF):
		return l.err
	case l.err != nil:
		return b.fault(n, l.err)
	case len(text) == 0:
		return nil
	}
	if err := checkLine(text); err != nil {
		if !b.many {
			return fmt.Errorf("--args: %w", err)
		}
		return b.fault(n, err)
	}
	b.jobs = append(b.jobs, queue.NewJob{Args: queue.RawArgs{OfKind: b.Kind, JSON: text}, Options: b.options})
	b.at, b.size = append(b.at, n), b.size+len(text)
	return nil
}

// readLine returns the next line in memory of its own.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("longer than %d bytes", maxLine)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

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

// flush adds the jobs that were read. If one of them is refused those before it are
// added.
func (b *batch) flush(ctx context.Context) error {
	if len(b.jobs) == 0 {
		return nil
	}
	added, err := b.queue.EnqueueMany(ctx, b.jobs)
	var fault error
	if i, text := refused(err); text != "" {
		if fault, err = b.fault(b.at[i], errors.New(text)), nil; i > 0 {
			added, err = b.queue.EnqueueMany(ctx, b.jobs[:i])
		}
	}
	for _, e := range added {
		if !b.many {
			b.ID = &e.ID
		}
		if e.Duplicate {
			b.Duplicates++
		} else {
			b.Enqueued++
		}
	}
	b.bar.set(int64(b.Enqueued + b.Duplicates))
	b.jobs, b.at, b.size = b.jobs[:0], b.at[:0], 0
	return errors.Join(err, fault)
}

// fault names the line that a fault is in, if there are lines.
func (b *batch) fault(line int, err error) error {
	if !b.many {
		return err
	}
	return fmt.Errorf("line %d: %w", line, err)
}

var place = regexp.MustCompile(`^jobs\[(\d+)\]\.`)

// refused returns the index of the first job that is refused, and why; no text if err
// says nothing of that.
func refused(err error) (int, string) {
	f, ok := errors.AsType[*queue.FieldError](err)
	if !ok {
		return 0, ""
	}
	m := place.FindStringSubmatch(f.Field)
	if m == nil {
		return 0, ""
	}
	i, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, ""
	}
	alone := *f
	alone.Field = strings.TrimPrefix(f.Field, m[0])
	return i, strings.TrimPrefix(alone.Error(), "errand: ")
}
