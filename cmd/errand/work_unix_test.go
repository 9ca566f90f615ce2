//go:build unix

package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	queue "github.com/errandq/errand"
)

// What signals do to a worker whose command goes on, as docs/operations.md has it. None but the last
// ones counts as a crash of the job.
//
//errand:shows commands of `errand work`
func TestWork_signals(t *testing.T) {
	needShell(t)
	for name, c := range map[string]struct {
		first  syscall.Signal
		stops  bool           // by the first one
		second syscall.Signal // which ends the process
		ignore string         // as nohup does
		unread bool           // who has read what it writes has gone
		status int            // -1: ended by the last signal
		crash  bool
	}{
		"TERM":         {first: syscall.SIGTERM, stops: true},
		"INT":          {first: syscall.SIGINT, stops: true},
		"HUP":          {first: syscall.SIGHUP, stops: true},
		"HUP ignored":  {first: syscall.SIGHUP, ignore: "HUP"},
		"QUIT":         {first: syscall.SIGQUIT, stops: true},
		"XCPU":         {first: syscall.SIGXCPU, stops: true},
		"PIPE":         {first: syscall.SIGPIPE},
		"XFSZ":         {first: syscall.SIGXFSZ},
		"TERM, TERM":   {first: syscall.SIGTERM, stops: true, second: syscall.SIGTERM, status: -1},
		"HUP, HUP":     {first: syscall.SIGHUP, stops: true, second: syscall.SIGHUP, status: -1},
		"QUIT, QUIT":   {first: syscall.SIGQUIT, stops: true, second: syscall.SIGQUIT, status: 2},
		"nobody reads": {first: syscall.SIGTERM, stops: true, unread: true},
		"TERM, KILL":   {first: syscall.SIGTERM, stops: true, second: syscall.SIGKILL, status: -1},
		"ABRT":         {second: syscall.SIGABRT, status: 2, crash: true},
		"KILL":         {second: syscall.SIGKILL, status: -1, crash: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "q.db")
			succeed(t, "jobs", "enqueue", file, "--create", "--kind", "run", "--header", "run=true")
			w := startWorker(t, dir, c.ignore)
			if c.unread {
				_ = w.out.Close()
			}
			if c.first != 0 {
				w.send(c.first)
			}
			if c.stops && !c.unread {
				w.await("worker is stopping")
			}
			if c.second == 0 {
				w.touch("go")
			}
			if c.second == 0 && !c.unread {
				w.await("done")
			}
			switch {
			case c.second != 0:
				w.sendUntilEnded(c.second)
			case !c.stops:
				w.send(syscall.SIGTERM)
			}
			status := w.wait()
			if ended := c.status < 0; ended != (status.Signaled() && status.Signal() == c.second) || !ended && status.ExitStatus() != c.status {
				t.Errorf("ended with %#x", status)
			}
			if c.second != 0 {
				drain(t, file)
			}
			onFile(t, file, func(q *queue.Queue) {
				j, err := q.Jobs(t.Context(), queue.JobFilter{}, nil)
				if err != nil || len(j.Jobs) != 1 {
					t.Fatal(j, err)
				}
				job, err := q.Job(t.Context(), j.Jobs[0].ID)
				want := 1
				if c.second != 0 {
					want = 2
				}
				if err != nil || job.State != queue.Done || job.Attempt != want || job.Retry > 0 || len(job.History) > 0 != c.crash {
					t.Errorf("the job is %s after %d attempts, %d retries, with the history %+v, %v", job.State, job.Attempt, job.Retry, job.History, err)
				}
			})
		})
	}
}

// liveWorker is errand work as a process, with a command that runs until there is a file "go".
type liveWorker struct {
	t     *testing.T
	dir   string
	cmd   *exec.Cmd
	out   *os.File
	lines *bufio.Scanner
	ended chan struct{}
	err   error // of Wait, once it has ended
}

// startWorker returns when the command runs.
func startWorker(t *testing.T, dir, ignore string) *liveWorker {
	t.Helper()
	const job = `trap "" TERM HUP INT QUIT PIPE; echo runs; while [ ! -e go ]; do sleep 0.02; done; echo done 2>&- || true`
	args := []string{"errand", "work", "q.db", "--kind", "run", "--grace", "1m", "--", "sh", "-c", job}
	if ignore != "" {
		args = append([]string{"sh", "-c", "trap '' " + ignore + `; exec "$@"`, "sh"}, args...)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := &liveWorker{t: t, dir: dir, cmd: exec.CommandContext(t.Context(), args[0], args[1:]...), out: out, lines: bufio.NewScanner(out), ended: make(chan struct{})}
	w.cmd.Dir, w.cmd.Stdout, w.cmd.Stderr = dir, in, in
	err = errors.Join(w.cmd.Start(), in.Close())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.ended)
		w.err = w.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // if the test has failed before its end
		<-w.ended
		_ = out.Close()
	})
	w.await("runs")
	return w
}

// await reads what the worker and its command write until a line has text.
func (w *liveWorker) await(text string) {
	w.t.Helper()
	for w.lines.Scan() {
		if strings.Contains(w.lines.Text(), text) {
			return
		}
	}
	w.t.Fatalf("it has ended before %q: %v", text, w.lines.Err())
}

func (w *liveWorker) touch(name string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *liveWorker) send(s os.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// sendUntilEnded sends a signal until the process has ended: the worker may not have begun to leave
// it alone.
func (w *liveWorker) sendUntilEnded(s os.Signal) {
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		_ = w.cmd.Process.Signal(s) // it may just have ended
		select {
		case <-w.ended:
			return
		case <-every.C:
		}
	}
}

// wait waits for the end of the process.
func (w *liveWorker) wait() syscall.WaitStatus {
	w.t.Helper()
	<-w.ended
	status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		w.t.Fatal(w.err)
	}
	return status
}
