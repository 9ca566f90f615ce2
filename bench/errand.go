package main

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// errandQueue is errand through its public API, with its defaults but for what
// a workload is about.
type errandQueue struct {
	q       *errand.Queue
	queues  []string
	relaxed bool
}

type (
	work  payload
	other payload
)

func (work) Kind() string  { return "work" }
func (other) Kind() string { return "other" }

func errandOptions(s setup) *errand.Options {
	o := &errand.Options{
		Policy: policy.Policy{Retries: s.retries, NoDelayRetries: s.retries},
		Queues: map[string]errand.QueueOptions{"default": {MaxDeaths: -1}}, // where workloads let jobs die
		Logger: slog.New(slog.DiscardHandler),
	}
	if !s.keep {
		o.Retention = -1
	}
	return o
}

func openErrand(ctx context.Context, s setup) (system, error) {
	o := errandOptions(s)
	if s.relaxed {
		o.SQLite.Durability = errand.Relaxed
	}
	q, err := errand.Open(ctx, s.path, o)
	if err != nil {
		return nil, err
	}
	return &errandQueue{q: q, queues: s.queues, relaxed: s.relaxed}, nil
}

func (e *errandQueue) args(j *newJob) (errand.Args, *errand.JobOptions) {
	var o *errand.JobOptions
	if !j.Due.IsZero() || j.Priority != 0 || j.Queue != "" || j.Group != "" || j.Unique != "" {
		o = &errand.JobOptions{DueAt: j.Due, Priority: j.Priority, Queue: j.Queue, Group: j.Group}
		if j.Unique != "" {
			o.Unique = &errand.Unique{Key: j.Unique}
		}
	}
	switch {
	case j.Other:
		return other(j.payload), o
	case j.Kind > 0:
		return kinds[j.Kind-1].args(j.payload), o
	}
	return work(j.payload), o
}

func (e *errandQueue) Enqueue(ctx context.Context, j newJob) error {
	args, o := e.args(&j)
	_, err := e.q.Enqueue(ctx, args, o)
	return err
}

func (e *errandQueue) EnqueueMany(ctx context.Context, jobs []newJob) error {
	all := make([]errand.NewJob, len(jobs))
	for i := range jobs {
		all[i].Args, all[i].Options = e.args(&jobs[i])
	}
	_, err := e.q.EnqueueMany(ctx, all)
	return err
}

func (e *errandQueue) EnqueueTx(ctx context.Context, j newJob, note string) error {
	args, o := e.args(&j)
	return e.q.Tx(ctx, func(tx *sql.Tx) error {
		// As in the bare loop: with a context that can end the driver starts a
		// goroutine for a statement, which is nothing that errand could help.
		if _, err := tx.ExecContext(context.WithoutCancel(ctx), sqlOrder, note); err != nil {
			return err
		}
		_, err := e.q.EnqueueTx(ctx, tx, args, o)
		return err
	})
}

func (e *errandQueue) Work(ctx context.Context, n int, handle func(context.Context, *job) error) error {
	w := errand.NewWorker(e.q, &errand.WorkerOptions{Concurrency: n, Queues: e.queues})
	for i := range kinds {
		if e.queues != nil {
			kinds[i].handle(w, handle)
		}
	}
	errand.Handle(w, func(ctx context.Context, j *errand.Job[work]) error {
		return handle(ctx, &job{payload: payload(j.Args), Attempt: j.Attempt})
	})
	return w.Run(ctx)
}

func (e *errandQueue) Hold(ctx context.Context, kind int) error {
	return e.q.Hold(ctx, errand.Lane{Kind: kinds[kind-1].args(payload{}).Kind()}, nil)
}

func (e *errandQueue) KeepNewest(ctx context.Context, n int) error {
	return e.q.Configure(ctx, errand.Lane{Queue: "default"}, errand.Settings{MaxJobs: &n, WhenFull: new(errand.EvictOldest)})
}

func (e *errandQueue) Redrive(ctx context.Context) (int, error) {
	r, err := e.q.DeadLetters().Redrive(ctx, errand.JobFilter{}, nil)
	return r.Redriven, err
}

func (e *errandQueue) Left(ctx context.Context) (int, error) {
	all, err := e.q.Counts(ctx)
	n := 0
	for _, c := range all {
		switch c.State {
		case errand.Scheduled, errand.Ready, errand.Running, errand.Blocked:
			n += int(c.N)
		}
	}
	return n, err
}

// Durability is what the documentation of errand.Full and errand.Relaxed says; its
// connections cannot be asked from outside.
func (e *errandQueue) Durability(context.Context) (string, error) {
	if e.relaxed {
		return "WAL NORMAL", nil
	}
	return "WAL FULL", nil
}

func (e *errandQueue) Close() error { return e.q.Close() }
