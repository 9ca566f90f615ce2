package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

// What a later schema has beside, see since*.go.
var (
	altered = func(*errand.Schedule) {}
	begin   = func(context.Context, *errand.Job[errand.RawArgs]) error { return nil } // of a job that hangs
	resume  = func(*errand.Job[errand.RawArgs]) error { return nil }                  // of one that has hung
	finish  = func(*errand.Job[errand.RawArgs]) error { return nil }
	byHand  = func(ctx context.Context) (context.Context, error) { return ctx, nil }
)

// fill makes a file with jobs in each state, schedules, settings, a hold, topics and endpoints.
// When it returns, its jobs run.
func fill(ctx context.Context, path string) error {
	var ahead atomic.Int64
	q, err := open(ctx, path, 0, func() time.Duration { return time.Duration(ahead.Load()) })
	if err != nil {
		return err
	}
	return errors.Join(
		q.Configure(ctx, errand.Lane{Queue: "orders"}, errand.Settings{MaxJobs: new(1000), Starts: new(500), StartsPer: new(time.Second)}),
		q.Hold(ctx, errand.Lane{Kind: "held"}, &errand.HoldOptions{Reason: "maintenance", By: "ada"}),
		fillSchedules(ctx, q), fillTopics(ctx, q), fillJobs(ctx, q, func(d time.Duration) { ahead.Add(int64(d)) }),
	)
}

func fillSchedules(ctx context.Context, q *errand.Queue) error {
	daily := errand.Schedule{Name: "daily", Spec: "30 3 * * *", Zone: "Europe/Berlin", Args: args("tick", "daily"), Overlap: errand.OverlapSkip}
	altered(&daily)
	return errors.Join(
		q.Schedule(ctx, daily),
		q.Schedule(ctx, errand.Schedule{Name: "paused", Spec: "@hourly", Args: args("tick", "paused")}),
		q.Schedules().Pause(ctx, "paused"),
	)
}

func fillTopics(ctx context.Context, q *errand.Queue) error {
	hooks, topics, err := openTopics(q)
	if err != nil {
		return err
	}
	defer hooks.Close()
	secret, err := webhook.ParseSecret("whsec_" + strings.Repeat("c2VjcmV0", 4))
	if err != nil {
		return err
	}
	_, _, err = hooks.Create(ctx, webhook.Endpoint{ID: "shop", URL: "https://shop.example/in"}, secret)
	if err != nil {
		return err
	}
	if _, err := topics.Create(ctx, topic.Topic{Name: "orders"}); err != nil {
		return err
	}
	for _, s := range []topic.Subscription{
		{ID: "shop", Topic: "orders", Endpoint: "shop", Filter: json.RawMessage(`{"total": [{"numeric": [">=", 100]}]}`)},
		{ID: "news", Topic: "orders", Kind: "news", Queue: "news"},
	} {
		if _, err := topics.Subscribe(ctx, s); err != nil {
			return err
		}
	}
	for _, total := range []string{"20", "170"} {
		_, err := topics.Publish(ctx, "orders", topic.Message{
			ID: "m" + total, Body: []byte(`{"total":` + total + `}`),
			Attributes: map[string]filter.Attribute{"total": {Type: filter.Number, Value: total}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fillJobs enqueues jobs, steps the clock, and works until there is nothing left to do but what
// hangs.
func fillJobs(ctx context.Context, q *errand.Queue, step func(time.Duration)) error {
	hourly := policy.Policy{Retries: 3, MinDelay: time.Hour, MaxDelay: time.Hour}
	for _, j := range []errand.NewJob{
		{Args: args("plain", "a"), Options: &errand.JobOptions{Tags: []string{"tenant:t5", "x"}, Headers: map[string]string{"trace": "17"}, Priority: 3}},
		{Args: args("plain", strings.Repeat("large", 2000))},
		{Args: args("plain", "once"), Options: &errand.JobOptions{Unique: &errand.Unique{Key: "once", Forever: true}}},
		{Args: args("dies", "a"), Options: &errand.JobOptions{Tags: []string{"x"}}},
		{Args: args("dies", "b"), Options: &errand.JobOptions{Unique: &errand.Unique{ByArgs: true}}},
		{Args: args("retries", "a"), Options: &errand.JobOptions{Policy: hourly}},
		{Args: args("cancelled", "a")},
		{Args: args("expires", "a"), Options: &errand.JobOptions{StartWithin: time.Second, OnExpire: errand.Expired}},
		{Args: args("later", "a"), Options: &errand.JobOptions{DueAt: filledAt.AddDate(50, 0, 0), Unique: &errand.Unique{Key: "later"}}},
		{Args: args("ordered", "dies"), Options: &errand.JobOptions{Queue: "orders", Group: "g"}},
		{Args: args("ordered", "b"), Options: &errand.JobOptions{Queue: "orders", Group: "g"}},
		{Args: args("ordered", "c"), Options: &errand.JobOptions{Queue: "orders", Group: "g"}},
		{Args: args("held", "a")},
		{Args: args("keeps", "a")},
		{Args: args("keeps", "hangs")},
		{Args: args("runs", "hangs")},
	} {
		e, err := q.Enqueue(ctx, j.Args, j.Options)
		if err != nil {
			return err
		}
		if j.Args.Kind() == "cancelled" {
			if _, err := q.Cancel(ctx, e.ID); err != nil {
				return err
			}
		}
	}
	step(time.Minute)

	hanging, wake := atomic.Int64{}, make(chan error, 2)
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "orders"}, Concurrency: 4, LeaseDuration: 3 * time.Second})
	for _, kind := range []string{"plain", "dies", "retries", "expires", "ordered", "held", "runs", "keeps", "tick"} {
		errand.HandleRaw(w, kind, func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			switch text := string(job.Args.JSON); {
			case kind == "dies" || text == `"dies"`:
				return errand.Permanent(errors.New("no such address"))
			case kind == "retries":
				return errors.New("timeout")
			case text == `"hangs"`:
				err := begin(ctx, job)
				hanging.Add(1)
				wake <- err
				select {}
			}
			return finish(job)
		})
	}
	_, err := start(ctx, q, w, wake, func(counts []errand.Count) bool {
		var running int64
		for _, c := range counts {
			switch {
			case c.State == errand.Running:
				running += c.N
			case c.State == errand.Ready && c.Queue != "news" && c.Kind != "held" && c.Kind != "topic":
				return false
			}
		}
		return hanging.Load() == 2 && running == 2
	})
	return err
}
