package main

import (
	"context"
	"fmt"
	"time"
)

// cross measures the time from the call of enqueue in this process to the start
// of the handler in another, which has nothing else to do.
type cross struct{ n int }

func (w cross) run(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, setup{})
	if err != nil {
		return err
	}
	p, err := t.hire(ctx)
	if err != nil {
		return err
	}
	if err := p.begin(); err != nil {
		return err
	}
	time.Sleep(t.scaled(time.Second)) // until its worker is idle
	n := t.n(w.n)
	if err := t.start(); err != nil {
		return err
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		if err := s.Enqueue(ctx, newJob{payload: payload{N: i, At: time.Now().UnixNano(), Pad: smallPad}}); err != nil {
			return err
		}
	}
	for limit := time.Now().Add(30 * time.Second); int(p.done.Load()) < n && time.Now().Before(limit); {
		<-tick.C
	}
	if err := t.stop(n); err != nil {
		return err
	}
	r, err := p.end()
	if err != nil {
		return err
	}
	if r.Done != n {
		return fmt.Errorf("%d jobs were done: want %d", r.Done, n)
	}
	t.only(figPeak)
	t.note(figP50, figP99, r.Waits)
	return nil
}
