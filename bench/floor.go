package main

import (
	"context"
	_ "embed"
	"errors"
)

//go:embed floor.sql
var floorSchema string

// floor inserts payloads, and can do nothing else.
type floor struct{ loop }

func openFloor(ctx context.Context, s setup) (system, error) {
	f := &floor{}
	if err := f.open(ctx, s, floorSchema, "floor_job"); err != nil {
		return nil, err
	}
	return f, nil
}

const sqlInsertFloor = `INSERT INTO floor_job (args) VALUES (?)`

func (f *floor) Enqueue(_ context.Context, j newJob) error {
	return f.exec(sqlInsertFloor, encoded(&j))
}

func (f *floor) EnqueueMany(_ context.Context, jobs []newJob) error {
	return f.tx(func() error {
		for i := range jobs {
			if err := f.exec(sqlInsertFloor, encoded(&jobs[i])); err != nil {
				return err
			}
		}
		return nil
	})
}

var errNoWork = errors.New("bench: floor does no jobs")

func (f *floor) Work(context.Context, int, func(context.Context, *job) error) error {
	return errNoWork
}

func (f *floor) Left(ctx context.Context) (n int, err error) {
	err = f.conn.QueryRowContext(ctx, `SELECT count(*) FROM floor_job`).Scan(&n)
	return n, err
}
