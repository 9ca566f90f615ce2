package litestream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// process is a program that is to be killed.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
	said  bytes.Buffer // read it when the process has ended
}

// start starts a program. If it ends before kill or stop, the test fails.
func (s *site) start(cmd *exec.Cmd) *process {
	s.Helper()
	p := &process{t: s.T, cmd: cmd, ended: make(chan struct{})}
	cmd.Env = append(s.env(), cmd.Env...)
	cmd.Stderr = &p.said
	if cmd.Stdout == nil {
		cmd.Stdout = &p.said
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	s.Cleanup(func() {
		p.kill()
		if p.said.Len() > 0 && s.Failed() {
			s.Logf("%s has printed:\n%s", cmd, &p.said)
		}
	})
	return p
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // or it has ended
	<-p.ended
}

// worker is a process that works on the queue, see work, and its ledger.
type worker struct {
	*process
	in io.WriteCloser

	mu    sync.Mutex
	lines map[string][]int // numbers by word
	fault string           // a line of another form
	more  chan struct{}    // closed with the next line
	all   bool             // there is no next line
}

// work starts a worker, which enqueues jobs too if it produces.
func (s *site) work(produces bool) *worker {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, os.Args[0])
	cmd.Env = append(cmd.Env, workOn+"="+s.path())
	if produces {
		cmd.Env = append(cmd.Env, producing+"=1")
	}
	w := &worker{lines: map[string][]int{}, more: make(chan struct{})}
	in, err := cmd.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	out, to := io.Pipe()
	cmd.Stdout, w.in = to, in
	w.process = s.start(cmd)
	go func() {
		<-w.ended // and all that it has printed is copied
		_ = to.Close()
	}()
	go w.read(bufio.NewScanner(out))
	return w
}

// read reads the ledger.
func (w *worker) read(out *bufio.Scanner) {
	for more := true; more; {
		more = out.Scan()
		w.mu.Lock()
		var word string
		var n int
		if !more {
			w.all = true
		} else if _, err := fmt.Sscan(out.Text(), &word, &n); err != nil {
			w.fault = out.Text()
		} else {
			w.lines[word] = append(w.lines[word], n)
		}
		close(w.more)
		w.more = make(chan struct{})
		w.mu.Unlock()
	}
}

// of returns the numbers that the ledger has of a word so far.
func (w *worker) of(word string) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines[word]
}

// wait waits for lines of the ledger until done is true.
func (w *worker) wait(what string, done func() bool) {
	w.t.Helper()
	for {
		w.mu.Lock()
		more, all, fault := w.more, w.all, w.fault
		w.mu.Unlock()
		switch {
		case fault != "":
			w.t.Fatalf("before %s, the worker has printed %q", what, fault)
		case done():
			return
		case all:
			w.t.Fatalf("before %s, the worker has ended: %v", what, w.err)
		}
		<-more
	}
}

// say writes a line to the worker, which does what the line says.
func (w *worker) say(line string) {
	if _, err := fmt.Fprintln(w.in, line); err != nil {
		w.t.Fatal(err)
	}
}

// compact has the worker rewrite the file, for the n-th time.
func (w *worker) compact(n int) {
	w.t.Helper()
	w.say("compact")
	w.wait("the file was rewritten", func() bool { return len(w.of("compacted")) == n })
	if freed := w.of("compacted")[n-1]; freed <= 0 {
		w.t.Errorf("the file was rewritten, which gave back %d bytes: want some", freed)
	}
}

// die kills the worker, and reads the rest of the ledger.
func (w *worker) die() {
	w.t.Helper()
	w.kill()
	w.rest()
}

// stop has the worker shut down.
func (w *worker) stop() {
	w.t.Helper()
	_ = w.in.Close()
	<-w.ended
	w.rest()
	if w.err != nil {
		w.t.Errorf("the worker has ended: %v", w.err)
	}
}

// rest reads the ledger to its end.
func (w *worker) rest() {
	w.t.Helper()
	w.wait("the end of the ledger", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.all })
}
