package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/errandq/errand"
)

// describe has a line for all that was put into a file, but the times.
func describe(ctx context.Context, q *errand.Queue) (lines []string, err error) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format+"\n", args...)) }
	jobs, err := q.Jobs(ctx, errand.JobFilter{}, nil)
	if err != nil {
		return nil, err
	}
	for _, listed := range jobs.Jobs {
		j, err := q.Job(ctx, listed.ID)
		if err != nil {
			return nil, err
		}
		name := j.Kind + " " + cut(string(j.Args))
		say("%s is %s in %s: priority %d, group %q, headers %v, attempt %d, %d failures, error %q",
			name, j.State, j.Queue, j.Priority, j.Group, len(j.Headers), j.Attempt, len(j.History), j.Error)
		if j.Progress != nil || j.Checkpoint != nil || j.Result != nil {
			say("%s has kept %s, checkpoint %q, result %q", name, kept(j), j.Checkpoint, j.Result)
		}
	}
	tagged, err := q.Jobs(ctx, errand.JobFilter{Tag: "x"}, nil)
	say("%d jobs have the tag x", len(tagged.Jobs))
	if err != nil {
		return nil, err
	}
	settings, err1 := q.Settings(ctx)
	for _, s := range settings {
		say("settings of %q: jobs %d, starts %d in %v", s.Queue, *s.MaxJobs, *s.Starts, *s.StartsPer)
	}
	holds, err2 := q.Holds(ctx)
	for _, h := range holds {
		say("hold of %q %q: %s by %s", h.Queue, h.Kind, h.Reason, h.By)
	}
	schedules, err3 := q.Schedules().List(ctx)
	for _, s := range schedules {
		say("schedule %s: %s in %s, %s %s, overlap %q, paused %t", s.Name, s.Spec, s.Zone, s.Kind, s.Args, s.Overlap, s.Paused)
	}
	causes, err4 := q.DeadLetters().Causes(ctx, nil)
	for _, c := range causes {
		say("cause %s in %s: %s %q, %d", c.Kind, c.Queue, c.Reason, c.Text, c.N)
	}
	hooks, topics, err5 := openTopics(q)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	defer hooks.Close()
	endpoint, err1 := hooks.Endpoint(ctx, "shop")
	secrets, err2 := hooks.Secrets(ctx, "shop")
	subscriptions, err3 := topics.Subscriptions(ctx, "orders", "", 10)
	say("endpoint %s: %s, %s, %d secrets", endpoint.ID, endpoint.URL, endpoint.State, len(secrets))
	for _, s := range subscriptions {
		say("subscription %s: %s%s %s, %s", s.ID, s.Endpoint, s.Kind, s.Filter, s.State)
	}
	return lines, errors.Join(err1, err2, err3)
}

func cut(text string) string {
	if len(text) > 60 {
		return fmt.Sprintf("of %d bytes", len(text))
	}
	return text
}

func kept(j errand.JobInfo) string {
	if j.Progress == nil {
		return "no progress"
	}
	return fmt.Sprintf("%d of %d (%s)", j.Progress.Done, j.Progress.Total, j.Progress.Note)
}
