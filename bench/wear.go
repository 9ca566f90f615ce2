package main

import "context"

// wear measures what goes to the disk in the whole life of jobs.
type wear struct{ n int }

func (w wear) run(ctx context.Context, t *trial) error {
	s, err := t.openAt(ctx, setup{path: t.path()})
	if err != nil {
		return err
	}
	n := t.n(w.n)
	if err := t.start(); err != nil {
		return err
	}
	for from := 0; from < n; from += 1000 {
		if err := s.EnqueueMany(ctx, jobs(from, min(1000, n-from), smallPad)); err != nil {
			return err
		}
	}
	if err := drainAll(ctx, s, n, 0, 0); err != nil {
		return err
	}
	if err := t.close(); err != nil {
		return err
	}
	if err := checkpoint(ctx, t.path()); err != nil {
		return err
	}
	if err := t.stop(n); err != nil {
		return err
	}
	t.only(figWritten, figBytes, figPeak)
	return nil
}
