package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// retries are those that a job still has.
type retries struct {
	// Known is false if the policy in effect is not known, and the job has not ended.
	Known bool `json:"-"`
	// Effect is the policy in effect of a job that has not ended.
	Effect *policy.Document `json:"policy_in_effect,omitempty"`
	Coming []policy.Coming  `json:"retries_to_come,omitempty"`

	policy policy.Document
	now    time.Time // on the queue's clock
}

// list lists the next retries of a job that has not ended, if its policy is known.
func (r *retries) list(j *queue.JobInfo) {
	if !r.Known || j.State != queue.Scheduled && j.State != queue.Ready && j.State != queue.Running {
		return
	}
	r.Effect = &r.policy
	r.Coming = j.Coming(r.policy.For(policy.Retryable), r.now)
}

// text says what the policy in effect is.
func (r *retries) text(ended bool) string {
	switch {
	case ended:
		return ""
	case !r.Known:
		return "not known: no worker that runs has a handler for the job"
	}
	return inAll(r.policy.For(policy.Retryable))
}

// printJob writes all of a job, and its attempts as a timeline.
func (t *tool) printJob(p *printer, j *queue.JobInfo, r *retries) {
	field := func(name, value string) {
		if value != "" {
			p.printf("%-10s %s\n", name, value)
		}
	}
	field("id", j.ID.String())
	field("kind", safe(j.Kind))
	field("queue", safe(j.Queue))
	state := string(j.State)
	if j.Cancelling {
		state += ", asked to stop"
	}
	if j.Reason != "" {
		state += ", " + string(j.Reason)
	}
	field("state", state)
	p.printf("%-10s %d\n", "priority", j.Priority)
	p.printf("%-10s %d attempts, %d retries, %d crashes in a row, %d snoozes\n", "counters", j.Attempt, j.Retry, j.Crashes, j.Snoozes)
	field("created", when(j.CreatedAt))
	moment := func(name string, at time.Time) {
		if !at.IsZero() {
			field(name, when(at))
		}
	}
	moment("due", j.DueAt)
	moment("started", j.StartedAt)
	moment("ended", j.EndedAt)
	moment("start by", j.StartBy)
	moment("deadline", j.Deadline)
	if j.Timeout > 0 {
		field("timeout", j.Timeout.String())
	}
	field("policy", r.text(!j.EndedAt.IsZero()))
	field("unique", safe(j.Unique))
	field("group", safe(j.Group))
	if !j.Parent.IsZero() {
		field("parent", j.Parent.String())
	}
	field("origin", safe(originText(j.Origin)))
	field("tags", safe(strings.Join(j.Tags, ", ")))
	field("args", jsonText(j.Args))
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		field("header", safe(name)+": "+safe(j.Headers[name]))
	}
	if j.Progress != nil {
		field("progress", progressText(j.Progress))
	}
	field("checkpoint", jsonText(j.Checkpoint))
	field("result", jsonText(j.Result))
	field("error", safe(j.Error))
	t.printTimeline(p, j, r.Coming)
}

func (t *tool) printTimeline(p *printer, j *queue.JobInfo, coming []policy.Coming) {
	if len(j.History)+len(coming) == 0 {
		return
	}
	p.printf("\n")
	list := table{head: []string{" ATTEMPT", "AT", "PHASE", " TOOK", "OUTCOME"}}
	for _, f := range j.History {
		if len(f.Args) > 0 {
			list.add(text("-"), text(when(f.At)), text(f.Phase), text("-"), text("args before: "+jsonText(f.Args)))
			continue
		}
		list.add(number(f.Attempt), text(when(f.At)), text(f.Phase), text(lasting(f.Duration)), text(f.Error).in(red))
	}
	for _, c := range coming {
		list.add(text("-"), text(when(c.At)), text(c.Phase.String()), text("-"), text("retry "+number(c.Retry).text+", if need be"))
	}
	list.print(p, t.out)
	for _, f := range slices.Backward(j.History) {
		if f.Stack != "" {
			p.printf("\nstack of attempt %d:\n", f.Attempt)
			for line := range strings.SplitSeq(strings.TrimSpace(f.Stack), "\n") {
				p.printf("  %s\n", safe(strings.ReplaceAll(line, "\t", "    ")))
			}
			break
		}
	}
}

// jsonText returns JSON in one harmless line.
func jsonText(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return safe(string(raw))
	}
	return string(safeJSON(b.Bytes()))
}

// isNotFound reports whether a job or schedule is not there.
func isNotFound(err error) bool { return errors.Is(err, queue.ErrNotFound) }

// findings returns the first error, or errFindings if there is something to look at.
func findings(any bool, errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if any {
		return errFindings
	}
	return nil
}

// progressText returns how far a job has got, and since when that is known.
func progressText(p *queue.Progress) string {
	s := strconv.FormatInt(p.Done, 10)
	if p.Total != 0 {
		s += fmt.Sprintf(" of %d", p.Total)
	}
	if p.Total > 0 {
		s += fmt.Sprintf(" (%.0f %%)", 100*float64(p.Done)/float64(p.Total))
	}
	if p.Note != "" {
		s += ", " + safe(p.Note)
	}
	return s + ", at " + when(p.At)
}
