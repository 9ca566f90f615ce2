package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/cmd/errand/internal/program"
)

const (
	// misconfigured is the reason of the hold of jobs that the command cannot run, for
	// holdFor.
	misconfigured = "misconfigured"
	holdFor       = time.Minute
	// maxBy is the limit of errand for who holds a lane.
	maxBy = 255
	// maxTail is how much of the end of standard error is kept.
	maxTail = 4 << 10
)

// Exit statuses of commands, as in sysexits.h and in shells.
const (
	exDataErr     = 65
	exUnavailable = 69
	exConfig      = 78
	notExecutable = 126
	notFound      = 127
)

// commander runs the command for jobs.
type commander struct {
	queue  *queue.Queue
	runner *program.Runner
	args   []string
	kill   time.Duration
	env    []string        // what all commands have
	dir    *program.Folder // of the files with results
	out    *os.File        // standard output of commands
	errs   io.Writer
	log    *slog.Logger
	name   string // who holds, if the command cannot run

	attempts, done atomic.Int64
	ignored        sync.Once // a result beside status 0
}

// folders is how the names of folders with results begin.
const folders = "errand-work-"

// newCommander makes a commander, and clears away what those have left that were killed.
// What commands write to standard output goes to that of this program if it is a file, and
// with --json to standard error.
func newCommander(o *workOptions, q *queue.Queue, log *slog.Logger, t *tool) (*commander, error) {
	if err := program.ClearFolders(folders); err != nil {
		log.Warn("errand: what commands of earlier workers needed was not cleared away", "error", err)
	}
	dir, err := program.NewFolder(folders)
	if err != nil {
		return nil, err
	}
	r, err := commandRunner()
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	out, _ := t.out.Writer.(*os.File)
	if out != nil && t.json {
		out = os.Stderr
	}
	return &commander{
		queue: q, runner: r, args: o.command, kill: o.kill, env: inherited(os.Environ()), dir: dir,
		out: out, errs: t.errs, log: log, name: "errand work on " + host,
	}, nil
}

func (c *commander) close() error { return errors.Join(c.runner.Close(), c.dir.Close()) }

// handle runs the command for one attempt.
func (c *commander) handle(ctx context.Context, job *queue.Job[queue.RawArgs]) error {
	dir, err := c.dir.Path()
	if err != nil {
		return queue.Unavailable(err)
	}
	file := filepath.Join(dir, fmt.Sprintf("%v-%d", job.ID, job.Attempt))
	defer os.Remove(file) //nolint:errcheck // the command need not have made it
	last := &tail{}
	c.attempts.Add(1)
	res := c.runner.Run(ctx, &program.Program{
		Args: c.args, Env: append(c.env[:len(c.env):len(c.env)], environment(job, file)...),
		In: append(bytes.Clone(job.Args.JSON), '\n'), Out: c.out, Errs: io.MultiWriter(last, c.errs), Grace: c.kill,
	})
	switch {
	case res.Start != nil:
		return c.unstarted(ctx, job, res.Start)
	case res.Exit == nil:
		c.done.Add(1)
		c.end(job, file)
		return nil
	}
	said, err := readResult(file)
	if err == nil && said.Checkpoint != nil {
		err = job.Checkpoint(context.WithoutCancel(ctx), said.Checkpoint)
	}
	if res.Stopped {
		if err != nil {
			c.log.Warn("errand: the checkpoint of a command that was stopped is not kept", "kind", job.Kind, "job", job.ID, "error", err)
		}
		return failure(res.Exit, last.String())
	}
	text := said.Error
	if text == "" {
		text = last.String()
	}
	if err != nil {
		text = strings.TrimSpace(fmt.Sprintf("%s (ERRAND_RESULT: %v)", text, err))
	}
	return c.verdict(ctx, job, res.Exit, said, text)
}

// end takes the result of a command that has ended with status 0. What else it has written is
// ignored, which is said once.
func (c *commander) end(job *queue.Job[queue.RawArgs], file string) {
	said, err := readResult(file)
	if err == nil && said.Result != nil {
		err = job.SetResult(said.Result)
	}
	if err != nil {
		c.log.Warn("errand: a command has ended with status 0, and its result is not kept: its job is done", "kind", job.Kind, "job", job.ID, "error", err)
	}
	if said.beside() {
		c.ignored.Do(func() {
			c.log.Warn("errand: a command has ended with status 0 and written ERRAND_RESULT, of which all but the result counts beside others only: its job is done",
				"kind", job.Kind, "job", job.ID)
		})
	}
}

// failure is the error of an attempt: how the command ended, and what it says.
func failure(exit error, text string) error {
	if text == "" {
		return exit
	}
	return fmt.Errorf("%w: %s", exit, text)
}

// verdict returns what the end of a command means for its job.
func (c *commander) verdict(ctx context.Context, job *queue.Job[queue.RawArgs], exit error, said result, text string) error {
	status := -1 // after a signal
	if e, ok := errors.AsType[*exec.ExitError](exit); ok {
		status = e.ExitCode()
	}
	err := failure(exit, text)
	switch {
	case status == exConfig, status == notExecutable, status == notFound:
		return c.hold(ctx, job, err)
	case said.Cancel:
		return queue.Cancel(err)
	case said.Snooze > 0:
		return queue.Snooze(said.Snooze.duration(), err)
	case status == exDataErr:
		return queue.Permanent(err)
	case status == exUnavailable && said.RetryAfter > 0:
		return queue.HoldLane(said.RetryAfter.duration(), err)
	case status == exUnavailable:
		return queue.Unavailable(err)
	case said.RetryAfter > 0:
		return queue.RetryAfter(said.RetryAfter.duration(), err)
	}
	return err
}

// unstarted returns what it means that a command could not be started: with its path or
// mode, as 126 and 127 of a shell; with its args or headers, a failure; else this
// machine lacks memory or processes, which the job is not to blame for.
func (c *commander) unstarted(ctx context.Context, job *queue.Job[queue.RawArgs], err error) error {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission),
		errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENOEXEC):
		return c.hold(ctx, job, err)
	case errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EINVAL):
		return err
	}
	return queue.Unavailable(err)
}

// hold holds the kind and queue of a job that the command is not able to run. The job
// goes back as it was: not by HoldLane, which may cost a retry if others fare better.
func (c *commander) hold(ctx context.Context, job *queue.Job[queue.RawArgs], err error) error {
	lane := queue.Lane{Queue: job.Queue, Kind: job.Kind}
	by := cutText(oneLine(c.name+": "+err.Error()), maxBy)
	if failed := c.queue.Hold(ctx, lane, &queue.HoldOptions{Reason: misconfigured, For: holdFor, By: by}); failed != nil {
		return queue.HoldLane(holdFor, err)
	}
	c.log.Error("errand: the command is not able to run, jobs are held",
		"queue", lane.Queue, "kind", lane.Kind, "for_s", holdFor.Seconds(), "error", err)
	return queue.Snooze(0, err)
}

// tail keeps the end of what is written to it.
type tail struct {
	last []byte
	cut  bool
}

// Write keeps the end of b and of what came before.
func (t *tail) Write(b []byte) (int, error) {
	n := len(b)
	if more := n - maxTail; more > 0 {
		b, t.last, t.cut = b[more:], t.last[:0], true
	}
	if more := len(t.last) + len(b) - maxTail; more > 0 {
		t.last, t.cut = append(t.last[:0], t.last[more:]...), true
	}
	t.last = append(t.last, b...)
	return n, nil
}

// String returns the end without the space around it. It begins with a whole line if
// more than one is left.
func (t *tail) String() string {
	text := string(t.last)
	if t.cut {
		if _, rest, ok := strings.Cut(text, "\n"); ok && strings.TrimSpace(rest) != "" {
			text = rest
		}
		text = "... " + strings.TrimLeftFunc(text, func(r rune) bool { return r == '\uFFFD' })
	}
	return strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
}

// oneByOne lets one goroutine write at a time. It returns no error: on a full disk, what a
// command says is lost to the stream, but commands go on, and jobs have their errors.
type oneByOne struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneByOne) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.w.Write(b)
	return len(b), nil
}
