// Package small measures what a queue costs a small program: one with a queue, a worker
// and a handler. Its folders are such programs, and command measure runs them.
package small

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Queue is an open queue whose worker runs.
type Queue interface {
	Enqueue(ctx context.Context) error
	Close() error
}

// Cost is what one run of a program has measured. Times are in milliseconds.
type Cost struct {
	New, NewCPU           float64 // to open a new file and start the worker
	Existing, ExistingCPU float64 // the same with a file that is there already
	First                 float64 // from there to the handler of a job that was enqueued at once
	Close                 float64 // to stop the worker and close the file
	Idle                  float64 // per cent of a core
}

// Main measures what open opens, idle for as many seconds as the first argument says,
// and prints its Cost as JSON. Handlers call handled.
func Main(open func(ctx context.Context, path string, handled func()) (Queue, error)) {
	if err := run(open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(open func(ctx context.Context, path string, handled func()) (Queue, error)) error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: %s SECONDS", os.Args[0])
	}
	idle, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "small")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, path := context.Background(), filepath.Join(dir, "jobs.db")
	var c Cost
	handled := make(chan struct{}, 1)
	opened := func() (q Queue, wall, cpu float64, err error) {
		begun, used := time.Now(), cpuTime()
		q, err = open(ctx, path, func() { handled <- struct{}{} })
		return q, ms(time.Since(begun)), ms(cpuTime() - used), err
	}
	q, wall, cpu, err := opened()
	if err != nil {
		return err
	}
	c.New, c.NewCPU = wall, cpu
	if err := q.Close(); err != nil {
		return err
	}
	if q, c.Existing, c.ExistingCPU, err = opened(); err != nil {
		return err
	}
	begun := time.Now()
	if err := q.Enqueue(ctx); err != nil {
		return err
	}
	<-handled
	c.First = ms(time.Since(begun))
	time.Sleep(time.Second) // what the job has left is done
	used := cpuTime()
	time.Sleep(time.Duration(idle) * time.Second)
	c.Idle = 100 * (cpuTime() - used).Seconds() / float64(idle)
	begun = time.Now()
	if err := q.Close(); err != nil {
		return err
	}
	c.Close = ms(time.Since(begun))
	return json.NewEncoder(os.Stdout).Encode(c)
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // it cannot fail for the process itself
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
