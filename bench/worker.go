package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A worker process works on a file that others use too. It says "ready", waits
// for a line, works and says every few milliseconds how many jobs it has done;
// when its input ends it stops, and says what came of it.

// workerResult is what a worker process says at its end.
type workerResult struct {
	Done       int    `json:"done"`
	Last       int64  `json:"last"` // when the last handler was called, in nanoseconds since 1970
	Written    int64  `json:"written"`
	Durability string `json:"durability"`
	// Waits are the milliseconds from the enqueue of each job to its handler.
	Waits waits `json:"waits"`
}

const progressEvery = 5 * time.Millisecond

// work is main of a worker process.
func (t *trial) work(ctx context.Context, in io.Reader, out io.Writer) error {
	s, err := t.openAt(ctx, setup{path: t.path()})
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	if !lines.Scan() {
		return errors.New("bench: worker: its input ended before it began")
	}
	if err := t.start(); err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for lines.Scan() {
		}
		stop()
	}()
	r := workerResult{Durability: t.sample.Durability}
	var done, last atomic.Int64
	var mu sync.Mutex
	var progress sync.WaitGroup
	progress.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-run.Done():
				return
			case <-tick.C:
				_, _ = fmt.Fprintln(out, done.Load()) // if nobody reads, the input has ended too
			}
		}
	})
	err = s.Work(run, workers, func(_ context.Context, j *job) error {
		now := time.Now().UnixNano()
		done.Add(1)
		last.Store(now)
		if j.At != 0 {
			mu.Lock()
			r.Waits.add(time.Duration(now - j.At))
			mu.Unlock()
		}
		return nil
	})
	progress.Wait()
	if err != nil {
		return err
	}
	u, err := t.meter.stop()
	if err != nil {
		return err
	}
	r.Done, r.Last, r.Written = int(done.Load()), last.Load(), u.written
	return json.NewEncoder(out).Encode(r)
}

// workerProcess is a worker process, as its parent sees it.
type workerProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	done   atomic.Int64
	result chan workerResult // closed without one if the process failed
}

// hire starts a worker process on the file of t, and waits until it is ready.
func (t *trial) hire(ctx context.Context) (*workerProcess, error) {
	s := t.spec
	s.Role = roleWorker
	p := &workerProcess{result: make(chan workerResult, 1)}
	var err error
	if p.cmd, err = command(ctx, s); err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, 64<<20) // the result has all waits in one line
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if !p.out.Scan() || p.out.Text() != "ready" {
		return nil, errors.Join(fmt.Errorf("bench: worker process: got %q: want ready", p.out.Text()), p.dismiss())
	}
	return p, nil
}

// begin has it work. Its numbers are in done from then on.
func (p *workerProcess) begin() error {
	go func() {
		defer close(p.result)
		for p.out.Scan() {
			line := p.out.Text()
			if strings.HasPrefix(line, "{") {
				var r workerResult
				if json.Unmarshal([]byte(line), &r) == nil {
					p.result <- r
				}
				return
			}
			if n, err := strconv.ParseInt(line, 10, 64); err == nil {
				p.done.Store(n)
			}
		}
	}()
	_, err := fmt.Fprintln(p.in, "go")
	return err
}

var errWorkerDied = errors.New("bench: a worker process has ended without a result")

// end has it stop, and returns its result.
func (p *workerProcess) end() (workerResult, error) {
	if err := p.in.Close(); err != nil {
		return workerResult{}, err
	}
	r, ok := <-p.result
	err := p.cmd.Wait()
	if !ok {
		err = errors.Join(errWorkerDied, err)
	}
	return r, err
}

// dismiss stops a process of which no result is wanted.
func (p *workerProcess) dismiss() error {
	return errors.Join(p.in.Close(), p.cmd.Wait())
}
