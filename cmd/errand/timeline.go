package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// comingJSON is a retry that a job still has.
type comingJSON struct {
	Retry int       `json:"retry"` // from 1 on
	Phase string    `json:"phase"`
	Delay float64   `json:"delay_s"`
	At    time.Time `json:"at"` // if all attempts before it fail at once
}

// mostComing is how many retries are listed.
const mostComing = 10

// retriesToCome returns the next retries that a job has by a policy: that which preset
// names, else its own. Without a policy it returns none.
func retriesToCome(in io.Reader, j *queue.JobInfo, preset string) (all []comingJSON, err error) {
	var p policy.Policy
	switch {
	case preset != "":
		if p, err = readPolicy(in, preset, policy.ProfileQueue); err != nil {
			return nil, err
		}
	case j.Policy != nil && j.Policy.Retry != nil:
		p = *j.Policy.Retry
	}
	at, retry := j.DueAt, j.Retry
	switch j.State {
	case queue.Scheduled, queue.Ready, queue.Running:
	default:
		return nil, nil
	}
	if j.State == queue.Scheduled && retry > 0 && p.Retries > 0 { // it waits for this one
		phase, delay, _ := p.Next(retry - 1)
		all = append(all, comingJSON{retry, phase.String(), delay.Seconds(), at.UTC()})
	}
	for len(all) < mostComing {
		phase, delay, ok := p.Next(retry)
		if !ok {
			break
		}
		retry++
		at = at.Add(delay)
		all = append(all, comingJSON{retry, phase.String(), delay.Seconds(), at.UTC()})
	}
	return all, nil
}

// printJob writes all of a job, and its attempts as a timeline.
func (t *tool) printJob(p *printer, j *jobJSON, coming []comingJSON) {
	field := func(name, value string) {
		if value != "" {
			p.printf("%-10s %s\n", name, value)
		}
	}
	field("id", j.ID)
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
	if j.DueAt != nil {
		field("due", when(*j.DueAt))
	}
	if j.EndedAt != nil {
		field("ended", when(*j.EndedAt))
	}
	if j.Timeout > 0 {
		field("timeout", (time.Duration(j.Timeout * float64(time.Second))).String())
	}
	field("unique", safe(j.Unique))
	field("tags", safe(strings.Join(j.Tags, ", ")))
	field("args", jsonText(j.Args))
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		field("header", safe(name)+": "+safe(j.Headers[name]))
	}
	field("error", safe(j.Error))
	t.printTimeline(p, j, coming)
}

func (t *tool) printTimeline(p *printer, j *jobJSON, coming []comingJSON) {
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
		list.add(number(f.Attempt), text(when(f.At)), text(f.Phase), text(lasting(time.Duration(f.Duration*float64(time.Second)))), text(f.Error).in(red))
	}
	for _, c := range coming {
		list.add(text("-"), text(when(c.At)), text(c.Phase), text("-"), text("retry "+number(c.Retry).text+", if need be"))
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
