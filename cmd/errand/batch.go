package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
)

// batch enqueues the jobs of lines, many in one commit.
type batch struct {
	parse   func(line []byte) (queue.NewJob, error)
	longest int  // a line may be, in bytes
	one     bool // there is one line, which errors do not name
	// from, if not nil, returns the ID that the job which was parsed last has in the queue that it
	// comes from. A job that was imported before is not added again.
	from func() queue.ID
	// told is called for each line whose job was added, or was a duplicate; it may be nil.
	told func(line int, e queue.Enqueued) error

	enqueued, duplicates int
	replaced, before     int
	id                   *queue.ID // of one job, or of its duplicate

	bar   *progress
	queue *queue.Queue
	jobs  []queue.NewJob
	ids   []queue.ID // of jobs where they come from, with from
	at    []int      // the lines of jobs
	size  int
	line  int // that was read last
}

const (
	// batchLines and batchBytes bound what is enqueued in one commit.
	batchLines = 1000
	batchBytes = 16 << 20
	// patience is how long a job waits for others of its batch.
	patience = time.Second
)

// line is one line that was read, or why there is none.
type line struct {
	text []byte
	err  error
}

// all adds the job of each line, but for empty ones, to the queue in a file. If one is
// refused, those before it stay. A file that is to be made is not if that is the first.
func (b *batch) all(ctx context.Context, t *tool, path string, create bool, in io.Reader, bar *progress) error {
	b.bar = bar
	defer bar.end()
	lines := make(chan line)
	go b.read(ctx, in, lines)
	var end, err error
	if _, missing := os.Stat(path); create && errors.Is(missing, fs.ErrNotExist) {
		end = b.gather(ctx, lines)
		err = b.try(ctx, end)
	}
	if err == nil {
		err = t.writing(ctx, path, create, func(q *queue.Queue) error {
			b.queue = q
			return b.each(ctx, lines, end)
		})
	}
	if err != nil && !b.one {
		err = fmt.Errorf("%w; jobs enqueued before: %d", err, b.enqueued)
	}
	return err
}

// try returns the error of the first job, if lines were gathered until end: that is it if
// there are no jobs, else a queue says so that is thrown away.
func (b *batch) try(ctx context.Context, end error) error {
	switch {
	case len(b.jobs) == 0 && errors.Is(end, io.EOF):
		return nil
	case len(b.jobs) == 0:
		return end
	}
	dir, err := os.MkdirTemp("", "errand")
	if err != nil {
		return nil // the queue itself will refuse it
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nobody knows of it
	q, err := queue.Open(ctx, filepath.Join(dir, "try.db"), &queue.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil // likewise
	}
	_, err = q.EnqueueMany(ctx, b.jobs[:1])
	_ = q.Close()
	if _, text := refused(err); text != "" {
		return b.fault(b.at[0], errors.New(text))
	}
	return nil
}

// each adds the jobs of lines, after those that were gathered until err.
func (b *batch) each(ctx context.Context, lines <-chan line, err error) error {
	for {
		if errors.Is(err, io.EOF) {
			return b.flush(ctx)
		}
		if err = errors.Join(b.flush(ctx), err); err != nil {
			return err
		}
		err = b.gather(ctx, lines)
	}
}

// gather reads the lines of one commit, or until an error, which is [io.EOF] at the end. It
// is called while another goroutine waits for lines, so that ctx ends it; that goroutine
// stays until the program ends.
func (b *batch) gather(ctx context.Context, lines <-chan line) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			if len(b.jobs) > 0 {
				return nil
			}
			late.Reset(patience)
		case l := <-lines:
			b.line++
			if err := b.add(b.line, l); err != nil || len(b.jobs) == batchLines || b.size > batchBytes {
				return err
			}
		}
	}
}

// read reads lines until there are no more, or ctx ends.
func (b *batch) read(ctx context.Context, in io.Reader, lines chan<- line) {
	for r := bufio.NewReaderSize(in, 64<<10); ; {
		text, err := b.readLine(r)
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

// readLine returns the next line in memory of its own.
func (b *batch) readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > b.longest:
			return nil, fmt.Errorf("longer than %d bytes", b.longest)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// add adds the job of a line to those of the next commit.
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
	job, err := b.parse(text)
	if err != nil {
		return b.fault(n, err)
	}
	if b.from != nil {
		b.ids = append(b.ids, b.from())
	}
	b.jobs = append(b.jobs, job)
	b.at, b.size = append(b.at, n), b.size+len(text)
	return nil
}

// flush adds the jobs that were read. If one of them is refused those before it are
// added.
func (b *batch) flush(ctx context.Context) error {
	if len(b.jobs) == 0 {
		return nil
	}
	added, before, err := b.enqueue(ctx, len(b.jobs))
	var fault error
	if i, text := refused(err); text != "" {
		if fault, err = b.fault(b.at[i], errors.New(text)), nil; i > 0 {
			added, before, err = b.enqueue(ctx, i)
		}
	}
	for i, e := range added {
		if b.told != nil {
			err = errors.Join(err, b.told(b.at[i], e))
		}
		if b.one {
			b.id = &e.ID
		}
		if e.Replaced {
			b.replaced++
		}
		switch {
		case b.from != nil && before[i]:
			b.before++
		case e.Duplicate:
			b.duplicates++
		default:
			b.enqueued++
		}
	}
	b.bar.set(int64(b.enqueued + b.duplicates + b.before))
	b.jobs, b.ids, b.at, b.size = b.jobs[:0], b.ids[:0], b.at[:0], 0
	return errors.Join(err, fault)
}

// enqueue adds the first n of the jobs that were read. before, with from, says which were imported before.
func (b *batch) enqueue(ctx context.Context, n int) (added []queue.Enqueued, before []bool, err error) {
	if b.from != nil {
		return door.Import(ctx, b.queue, b.jobs[:n], b.ids[:n])
	}
	added, err = b.queue.EnqueueMany(ctx, b.jobs[:n])
	return added, nil, err
}

// fault names the line that a fault is in, if there are lines.
func (b *batch) fault(line int, err error) error {
	if b.one {
		return err
	}
	return fmt.Errorf("line %d: %w", line, err)
}

// refused returns the index of the first job that is refused, and why; no text if err
// says nothing of that.
func refused(err error) (int, string) {
	if held, ok := errors.AsType[*queue.DuplicateError](err); ok {
		if held.ID == (queue.ID{}) {
			return held.Index, "unique key is held by a line before"
		}
		return held.Index, strings.TrimPrefix(held.Error(), "errand: ")
	}
	f, ok := errors.AsType[*queue.FieldError](err)
	if !ok || f.Job == 0 {
		return 0, ""
	}
	alone, i := *f, f.Job-1
	alone.Field = strings.TrimPrefix(f.Field, fmt.Sprintf("jobs[%d].", i))
	return i, strings.TrimPrefix(alone.Error(), "errand: ")
}
