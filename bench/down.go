package main

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// down measures a worker with jobs whose other side refuses connections.
type down struct {
	n      int
	during time.Duration
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

func (w down) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	if err := fill(ctx, s, t.n(w.n), smallPad); err != nil {
		return err
	}
	if err := t.start(); err != nil {
		return err
	}
	work, stop := context.WithTimeout(ctx, t.scaled(w.during))
	defer stop()
	var attempts atomic.Int64
	err = s.Work(work, workers, func(context.Context, *job) error {
		attempts.Add(1)
		return errRefused
	})
	if err != nil {
		return err
	}
	if err := t.stop(int(attempts.Load())); err != nil {
		return err
	}
	t.only(figCPU, figBytes, figCalls, figPeak)
	return nil
}
