package main

import (
	"context"
	"slices"
	"strings"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/seconds"
)

// laneState is how the jobs of a kind in a queue are: less than [queue.LaneStats], and how long they wait.
type laneState struct {
	queue.Lane
	stateCounts
	Bytes int64 `json:"bytes"` // of the args and headers of those that have not ended
	// OldestDue is when the ready job that waits longest was due, and Waits how long ago that was.
	OldestDue   time.Time         `json:"oldest_due,omitzero"`
	Waits       seconds.Duration  `json:"waits_s,omitempty"`
	LastSuccess time.Time         `json:"last_success,omitzero"`
	LastFailure queue.LastFailure `json:"last_failure,omitzero"`
	Held        []string          `json:"held,omitempty"` // the reasons of the holds in force
	Rate        *queue.Rate       `json:"rate,omitempty"` // nil: not known
}

// lanes returns the lanes that have or had jobs, sorted.
func lanes(ctx context.Context, q *queue.Queue) ([]laneState, error) {
	stats, err := q.Stats(ctx)
	now, all := q.Clock().Now, []laneState{}
	for i := range stats {
		all = append(all, laneOf(&stats[i], now))
	}
	return all, err
}

func laneOf(s *queue.LaneStats, now time.Time) laneState {
	l := laneState{
		Lane: queue.Lane{Queue: s.Queue, Kind: s.Kind},
		stateCounts: stateCounts{
			Scheduled: s.Scheduled, Ready: s.Ready, Running: s.Running, Done: s.Done, Cancelled: s.Cancelled,
			Expired: s.Expired, Dead: s.Dead, Blocked: s.Blocked,
		},
		Bytes: s.Bytes, OldestDue: s.OldestDue, LastSuccess: s.LastSuccess, LastFailure: s.LastFailure, Rate: s.Rate,
	}
	if !l.OldestDue.IsZero() {
		l.Waits = seconds.Duration(max(now.Sub(s.OldestDue), 0))
	}
	for i := range s.Holds {
		l.Held = append(l.Held, s.Holds[i].Reason)
	}
	return l
}

func (t *tool) printLanes(p *printer, all []laneState) {
	if len(all) == 0 {
		p.printf("no jobs\n")
		return
	}
	list := table{head: []string{"QUEUE", "KIND", " SCHEDULED", " READY", " RUNNING", " DONE", " CANCELLED", " DEAD"}}
	// Most queues have no groups, and no jobs that expire.
	groups := slices.ContainsFunc(all, func(l laneState) bool { return l.Blocked > 0 })
	windows := slices.ContainsFunc(all, func(l laneState) bool { return l.Expired > 0 })
	if windows {
		list.head = append(list.head, " EXPIRED")
	}
	if groups {
		list.head = append(list.head, " BLOCKED")
	}
	for i := range all {
		l := &all[i]
		dead := number(l.Dead)
		if l.Dead > 0 {
			dead = dead.in(red)
		}
		cells := []cell{text(l.Queue), text(l.Kind), number(l.Scheduled), number(l.Ready), number(l.Running), number(l.Done), number(l.Cancelled), dead}
		if windows {
			cells = append(cells, number(l.Expired))
		}
		if groups {
			cells = append(cells, number(l.Blocked))
		}
		list.add(cells...)
	}
	list.print(p, t.out)
	t.printTimes(p, all)
}

// printTimes writes how fast the jobs of lanes go, how long they wait, and what became of the last ones.
func (t *tool) printTimes(p *printer, all []laneState) {
	if len(all) == 0 {
		return
	}
	p.printf("\n")
	list := table{head: []string{"QUEUE", "KIND", " BYTES", " DONE/MIN", " FAILED/MIN", " WAITS", "HELD", "LAST DONE", "LAST FAILED", "ERROR"}}
	for i := range all {
		l := &all[i]
		waits := "-"
		held := text("-")
		if len(l.Held) > 0 {
			held = text(strings.Join(l.Held, ", ")).in(yellow)
		}
		if !l.OldestDue.IsZero() {
			waits = lasting(time.Duration(l.Waits))
		}
		list.add(text(l.Queue), text(l.Kind), number(l.Bytes),
			text(rateText(l.Rate, func(r *queue.Rate) float64 { return r.Done })), text(rateText(l.Rate, func(r *queue.Rate) float64 { return r.Failed })), text(waits), held, text(when(l.LastSuccess)), text(when(l.LastFailure.At)),
			text(orDash(l.LastFailure.Error)))
	}
	list.print(p, t.out)
}
