package main

import (
	"context"
	"time"
)

// opening measures how long it takes to open a file.
type opening struct{}

func (opening) run(ctx context.Context, t *trial) error {
	if err := t.start(); err != nil {
		return err
	}
	begun := time.Now()
	_, err := t.openAt(ctx, setup{path: t.path()})
	took := time.Since(begun)
	if err != nil {
		return err
	}
	if err := t.stop(1); err != nil {
		return err
	}
	t.only(figPeak, figBytes)
	t.sample.Jobs = 0
	t.sample.Figures[figOpen] = milliseconds(took)
	return nil
}
