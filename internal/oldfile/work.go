package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// work opens a file so many days after it was filled, frees and redrives what stands, works until
// nothing is left to do, also for a new tick, and returns how many jobs of each kind are in which
// state.
func work(ctx context.Context, path string, days int) (_ string, err error) {
	q, err := open(ctx, path, days, func() time.Duration { return 0 })
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	hooks, topics, err := openTopics(q)
	if err != nil {
		return "", err
	}
	defer hooks.Close()
	ctx, err = byHand(ctx)
	if err != nil {
		return "", err
	}
	if _, err := q.Release(ctx, errand.Lane{Kind: "held"}, "maintenance"); err != nil {
		return "", err
	}
	if _, err := q.DeadLetters().Redrive(ctx, errand.JobFilter{}, nil); err != nil {
		return "", err
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "orders", "news", topic.Queues, webhook.Queues}, Concurrency: 4})
	topics.Handle(w)
	hooks.Handle(w)
	for _, kind := range []string{"plain", "dies", "retries", "ordered", "held", "runs", "keeps", "news", "tick"} {
		errand.HandleRaw(w, kind, func(_ context.Context, job *errand.Job[errand.RawArgs]) error {
			if string(job.Args.JSON) == `"hangs"` {
				if err := resume(job); err != nil {
					return errand.Permanent(err)
				}
			}
			return finish(job)
		})
	}
	ticked := func(counts []errand.Count) (n int64) {
		for _, c := range counts {
			if c.Kind == "tick" && c.State == errand.Done {
				n += c.N
			}
		}
		return n
	}
	before, err := q.Counts(ctx)
	if err != nil {
		return "", err
	}
	var after []errand.Count
	stop, err := start(ctx, q, w, nil, func(counts []errand.Count) bool {
		after = counts
		return ticked(counts) > ticked(before) && !slices.ContainsFunc(counts, func(c errand.Count) bool {
			return c.Kind != "later" && (c.State == errand.Scheduled || c.State == errand.Ready || c.State == errand.Running || c.State == errand.Blocked)
		})
	})
	if err == nil {
		err = stop()
	}
	return listed(after), err
}

// listed has a line for each kind of jobs in a state.
func listed(counts []errand.Count) string {
	var lines []string
	for _, c := range counts {
		lines = append(lines, fmt.Sprintf("%s %s %s %d\n", c.Kind, c.Queue, c.State, c.N))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
