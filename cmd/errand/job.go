package main

import (
	"encoding/json"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// jobJSON is a job as --json writes it, and as dead letters are exported.
type jobJSON struct {
	ID       string      `json:"id"`
	Queue    string      `json:"queue"`
	Kind     string      `json:"kind"`
	State    queue.State `json:"state"`
	Priority int         `json:"priority"`
	countersJSON
	timesJSON
	Timeout    float64           `json:"timeout_s,omitempty"`
	Unique     string            `json:"unique,omitempty"`
	Group      string            `json:"group,omitempty"`
	Tags       []string          `json:"tags,omitempty"`
	Cancelling bool              `json:"cancelling,omitempty"`
	Reason     queue.Reason      `json:"reason,omitempty"`
	Error      string            `json:"error,omitempty"`
	Policy     *policy.Document  `json:"policy,omitempty"`
	Args       json.RawMessage   `json:"args,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	History    []failureJSON     `json:"history,omitempty"`
}

// countersJSON are the counters of a job.
type countersJSON struct {
	Attempt int `json:"attempt"`
	Retry   int `json:"retry"`
	Crashes int `json:"crashes,omitempty"`
	Snoozes int `json:"snoozes,omitempty"`
}

// timesJSON are the times of a job.
type timesJSON struct {
	CreatedAt time.Time  `json:"created_at"`
	DueAt     *time.Time `json:"due_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	StartBy   *time.Time `json:"start_by,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty"`
}

// failureJSON is an attempt that failed.
type failureJSON struct {
	Attempt  int       `json:"attempt"`
	At       time.Time `json:"at"`
	Phase    string    `json:"phase"`
	Error    string    `json:"error"`
	Stack    string    `json:"stack,omitempty"`
	Duration float64   `json:"duration_s"`
	Instance string    `json:"instance,omitempty"`
	// Args are those before a change of them, which is no attempt.
	Args json.RawMessage `json:"args,omitempty"`
}

func jobOf(j *queue.JobInfo) jobJSON {
	out := jobJSON{
		ID: j.ID.String(), Queue: j.Queue, Kind: j.Kind, State: j.State, Priority: j.Priority,
		countersJSON: countersJSON{j.Attempt, j.Retry, j.Crashes, j.Snoozes},
		timesJSON:    timesJSON{j.CreatedAt.UTC(), timeOrNil(j.DueAt), timeOrNil(j.EndedAt), timeOrNil(j.StartBy), timeOrNil(j.Deadline)},
		Timeout:      j.Timeout.Seconds(),
		Unique:       j.Unique, Group: j.Group, Tags: j.Tags, Cancelling: j.Cancelling, Reason: j.Reason, Error: j.Error, Policy: j.Policy,
		Args: j.Args, Headers: j.Headers,
	}
	for _, f := range j.History {
		out.History = append(out.History, failureJSON{f.Attempt, f.At.UTC(), f.Phase, f.Error, f.Stack, f.Duration.Seconds(), f.Instance, f.Args})
	}
	return out
}

// jobsJSON is a page of jobs.
type jobsJSON struct {
	Jobs []jobJSON `json:"jobs"`
	Next string    `json:"next,omitempty"` // for --after
	// Partial: enough jobs were looked at that do not match. The list goes on at Next.
	Partial bool `json:"partial,omitempty"`
	Looked  int  `json:"looked,omitempty"`
}

func pageOf(page *queue.JobPage) jobsJSON {
	return jobsJSON{jobsOf(page.Jobs), page.Next, page.Partial, page.Looked}
}

func jobsOf(infos []queue.JobInfo) []jobJSON {
	jobs := []jobJSON{}
	for i := range infos {
		jobs = append(jobs, jobOf(&infos[i]))
	}
	return jobs
}

// stateCell returns a cell for a state, in the colour of what should be looked at.
func stateCell(s queue.State) cell {
	c := text(string(s))
	switch s {
	case queue.Dead:
		return c.in(red)
	case queue.Running:
		return c.in(green)
	}
	return c
}

// printJobs writes a page of jobs as a table.
func (t *tool) printJobs(p *printer, page *jobsJSON) {
	if len(page.Jobs) == 0 {
		p.printf("no jobs\n")
	} else {
		list := table{head: []string{"ID", "QUEUE", "KIND", "STATE", " ATTEMPT", "AT", "LAST ERROR"}}
		for _, j := range page.Jobs {
			at := j.DueAt
			if j.EndedAt != nil {
				at = j.EndedAt
			}
			if at == nil {
				at = &j.CreatedAt
			}
			list.add(text(j.ID), text(j.Queue), text(j.Kind), stateCell(j.State), number(j.Attempt), text(when(*at)), text(orDash(j.Error)))
		}
		list.print(p, t.out)
	}
	if page.Partial {
		p.printf("%s looked at, as no index serves this choice\n", jobsText(page.Looked))
	}
	if page.Next != "" {
		p.printf("more: --after %s\n", page.Next)
	}
}
