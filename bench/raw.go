package main

import (
	"context"
	_ "embed"
	"time"
)

//go:embed raw.sql
var rawSchema string

const (
	sqlInsertRaw = `INSERT INTO raw_job (lane, state, priority, due_at, created_at, timeout, policy, args)
VALUES (?, ?, ?, ?, ?, 0, 0, ?)`
	sqlInsertRawPayload = `INSERT INTO raw_payload (job, args) VALUES (last_insert_rowid(), ?)`
	sqlOrder            = `INSERT INTO app_order (note) VALUES (?)`
)

const (
	rawScheduled, rawReady = 1, 2
	laneWork, laneOther    = 1, 2
	// rawInline is from where on args are kept beside the row, as in errand.
	rawInline = 2048
)

// raw is the ceiling: a loop over prepared statements on one held connection,
// with errand's hot table and indexes, and nothing that makes it a queue.
type raw struct {
	loop
	retries int
	token   int64
	decode  bool // the args of each job, before it is handled
}

func openRaw(ctx context.Context, s setup) (system, error) {
	r := &raw{retries: s.retries}
	if err := r.open(ctx, s, rawSchema, "raw_job"); err != nil {
		return nil, err
	}
	return r, nil
}

// openRawDecode opens a raw loop that decodes what it does, as a queue must.
func openRawDecode(ctx context.Context, s setup) (system, error) {
	q, err := openRaw(ctx, s)
	if err != nil {
		return nil, err
	}
	q.(*raw).decode = true
	return q, nil
}

func (r *raw) insert(j *newJob) error {
	now := time.Now()
	at, lane, state := now.UnixMicro(), laneWork, rawReady
	due := at
	if j.Other {
		lane = laneOther
	}
	if j.Due.After(now) {
		state, due = rawScheduled, j.Due.UnixMicro()
	}
	args := encoded(j)
	if len(args) <= rawInline {
		return r.exec(sqlInsertRaw, lane, state, j.Priority, due, at, args)
	}
	if err := r.exec(sqlInsertRaw, lane, state, j.Priority, due, at, nil); err != nil {
		return err
	}
	return r.exec(sqlInsertRawPayload, args)
}

// Enqueue is one statement, and so a transaction by itself.
func (r *raw) Enqueue(_ context.Context, j newJob) error { return r.insert(&j) }

func (r *raw) EnqueueMany(_ context.Context, jobs []newJob) error {
	return r.tx(func() error { return r.insertAll(jobs) })
}

func (r *raw) insertAll(jobs []newJob) error {
	for i := range jobs {
		if err := r.insert(&jobs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *raw) EnqueueTx(_ context.Context, j newJob, note string) error {
	return r.tx(func() error {
		if err := r.exec(sqlOrder, note); err != nil {
			return err
		}
		return r.insert(&j)
	})
}

func (r *raw) Left(ctx context.Context) (n int, err error) {
	err = r.conn.QueryRowContext(ctx, `SELECT count(*) FROM raw_job`).Scan(&n)
	return n, err
}
