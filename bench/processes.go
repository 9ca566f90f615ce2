package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// processes measures several processes that drain one file.
type processes struct {
	stock stock
	k     int
}

func (w processes) run(ctx context.Context, t *trial) (err error) {
	// A connection that stays, so that the WAL does.
	hold, err := openDB(t.path(), 1, "busy_timeout(5000)", "journal_mode(WAL)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Close()) }()
	if _, err := hold.ExecContext(ctx, "SELECT 1 FROM sqlite_schema"); err != nil {
		return err
	}
	if err := warm(ctx, t.path()); err != nil {
		return err
	}
	all := make([]*workerProcess, w.k)
	for i := range all {
		if all[i], err = t.hire(ctx); err != nil {
			return err
		}
	}
	n := t.n(w.stock.ready)
	if err := t.start(); err != nil {
		return err
	}
	begun := time.Now()
	for _, p := range all {
		if err := p.begin(); err != nil {
			return err
		}
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for limit := time.Now().Add(5 * time.Minute); ; <-tick.C {
		sum := 0
		for _, p := range all {
			sum += int(p.done.Load())
		}
		if sum >= n {
			break
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%d of %d jobs were done in time", sum, n)
		}
	}
	var sum, least, most int
	var written, last int64
	for i, p := range all {
		r, err := p.end()
		if err != nil {
			return err
		}
		if i == 0 {
			least = r.Done
		}
		sum, least, most = sum+r.Done, min(least, r.Done), max(most, r.Done)
		last, written = max(last, r.Last), written+r.Written
		t.sample.Durability = r.Durability
	}
	if sum != n {
		return fmt.Errorf("%d jobs were done: want %d", sum, n)
	}
	if err := t.stop(n); err != nil {
		return err
	}
	t.only() // this process has only looked on
	took := time.Unix(0, last).Sub(begun)
	t.sample.Seconds = took.Seconds()
	t.sample.Figures[figRate] = float64(n) / took.Seconds()
	t.sample.Figures[figFair] = float64(least) / float64(most)
	t.sample.Figures[figWritten] = float64(written) / float64(n)
	t.sample.Figures[figBytes] = float64(written)
	return nil
}
