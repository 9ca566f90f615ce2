// Package program runs programs that end with this process. Each has a process group of
// its own, or on Windows a job object, which also holds the processes that the program
// starts.
//
// On Unix a small process watches over the groups, the guard: it learns by the end of a
// pipe that this process is gone, however it died, and kills what is left. On Linux the
// kernel kills the program itself as well, without the guard.
package program

import (
	"context"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// Runner runs programs. It is safe for concurrent use.
type Runner struct {
	starts chan func()
	guard  *guard
}

// NewRunner makes a Runner. guarded is the command line that calls [Guard]; it is not
// used on Windows. The Runner must be closed.
func NewRunner(guarded ...string) (*Runner, error) {
	g, err := newGuard(guarded)
	if err != nil {
		return nil, err
	}
	r := &Runner{starts: make(chan func()), guard: g}
	go r.serve()
	return r, nil
}

// serve starts all programs on one thread, which lives as long as the Runner: the
// kernel sends a program the signal of its parent's death when the thread ends that
// has started it.
func (r *Runner) serve() {
	runtime.LockOSThread()
	for start := range r.starts {
		start()
	}
}

// Close ends the Runner and its guard, once no Run is under way.
func (r *Runner) Close() error {
	close(r.starts)
	return r.guard.close()
}

// Program is what to run.
type Program struct {
	Args []string  // the command and its arguments
	Env  []string  // as [exec.Cmd].Env
	In   []byte    // standard input
	Out  *os.File  // standard output; nil: none
	Errs io.Writer // standard error; written to by one goroutine
	// Grace is the time between the wish to end and the end.
	Grace time.Duration
}

// Result is how a program ended.
type Result struct {
	// Start is the error of a program that was not started; else nil.
	Start error
	// Exit is nil after exit status 0, and an [exec.ExitError] after another end.
	Exit error
	// Stopped is true if ctx ended before the program had.
	Stopped bool
}

// drain is how long Run waits for what may end by itself: for other processes of the
// group after the program, and for the end of standard error after the group. A process
// that has left the group may keep it open.
const drain = 200 * time.Millisecond

// Run runs a program to its end. When ctx ends, its whole group is asked to end, by
// SIGTERM or Ctrl-Break, and what is left of it after the grace is killed. What the
// program leaves behind at an end of its own, and does not end at once either, is ended
// in the same way.
func (r *Runner) Run(ctx context.Context, p *Program) Result {
	in, feed, err := os.Pipe()
	if err != nil {
		return Result{Start: err}
	}
	tail, errs, err := os.Pipe()
	if err != nil {
		closeAll(in, feed)
		return Result{Start: err}
	}
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stderr = p.Env, in, errs
	if p.Out != nil {
		cmd.Stdout = p.Out
	}
	g, err := r.start(cmd)
	closeAll(in, errs)
	if err != nil {
		closeAll(feed, tail)
		return Result{Start: err}
	}
	var pipes sync.WaitGroup
	pipes.Go(func() {
		_, _ = feed.Write(p.In) // a program need not read its input
		closeAll(feed)
	})
	pipes.Go(func() { _, _ = io.Copy(p.Errs, tail) })
	res := r.wait(ctx, cmd, g, p.Grace)
	ended := time.Now().Add(drain)
	_ = tail.SetReadDeadline(ended)
	_ = feed.SetWriteDeadline(ended)
	pipes.Wait()
	closeAll(tail)
	return res
}

// start starts a program as a group, and has the guard watch it.
func (r *Runner) start(cmd *exec.Cmd) (g *group, err error) {
	started := make(chan struct{})
	r.starts <- func() {
		defer close(started)
		alone(cmd)
		if err = cmd.Start(); err != nil {
			return
		}
		if g, err = newGroup(cmd); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return
		}
		r.guard.watch(g)
	}
	<-started
	return g, err
}

// wait waits for the end of a program and of its group.
func (r *Runner) wait(ctx context.Context, cmd *exec.Cmd, g *group, grace time.Duration) (res Result) {
	exit := make(chan error, 1)
	go func() { exit <- cmd.Wait() }()
	select {
	case res.Exit = <-exit:
		if !g.await(drain) {
			g.terminate()
			g.await(grace)
		}
	case <-ctx.Done():
		res.Stopped = true
		g.terminate()
		over := time.NewTimer(grace)
		defer over.Stop()
		began := time.Now()
		select {
		case res.Exit = <-exit:
			g.await(grace - time.Since(began))
		case <-over.C:
			g.kill()
			res.Exit = <-exit
		}
	}
	if !g.empty() {
		g.kill()
	}
	r.guard.forget(g)
	g.close()
	return res
}

// pause is how often await looks whether a group has ended. No event tells of that.
const pause = 10 * time.Millisecond

// await waits until the group has ended, for d at most, and reports whether it has.
func (g *group) await(d time.Duration) bool {
	for over := time.Now().Add(d); !g.empty(); time.Sleep(pause) {
		if time.Now().After(over) {
			return false
		}
	}
	return true
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
