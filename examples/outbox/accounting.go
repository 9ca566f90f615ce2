package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// reportRetries shows how many retries each phase of the policy took. It reads
// them from the jobs, which remember their last 20 failures, so that retries of
// runs that were killed are counted too.
func (o *outbox) reportRetries(ctx context.Context) error {
	n := make(map[string]int)
	for _, id := range o.ids {
		job, err := o.q.Job(ctx, id)
		if errors.Is(err, errand.ErrNotFound) {
			continue // delivered so long ago that it is deleted
		}
		if err != nil {
			return err
		}
		for _, phase := range attempts(job) {
			n[phase]++
		}
	}
	fmt.Println("retries by phase:")
	for _, p := range []policy.Phase{policy.PhaseImmediate, policy.PhasePreBackoff, policy.PhaseBackoff, policy.PhasePostBackoff} {
		fmt.Printf("  %-12s %5d\n", p, n[p.String()])
	}
	return nil
}

// attempts returns the phase of each attempt of a job that has ended: of those
// that failed, which are its history, and of the last one if that did not.
func attempts(job errand.JobInfo) []string {
	var phases []string
	for _, f := range job.History {
		phases = append(phases, f.Phase)
	}
	if job.State == errand.Done && job.Retry > 0 {
		phase, _, _ := delivery.Next(job.Retry - 1)
		phases = append(phases, phase.String())
	}
	return phases
}

// reportDead shows the dead letters by reason, and by their errors.
func (o *outbox) reportDead(ctx context.Context) error {
	reasons, faults := make(map[errand.Reason]int), make(map[string]int)
	for next := ""; ; {
		page, err := o.q.DeadLetters().List(ctx, errand.JobFilter{}, &errand.ListOptions{After: next})
		if err != nil {
			return err
		}
		for _, job := range page.Jobs {
			reasons[job.Reason]++
			faults[fmt.Sprintf("%s: %s", job.Reason, job.Error)]++
		}
		if next = page.Next; next == "" {
			break
		}
	}
	fmt.Println("dead letters by reason:")
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Printf("  %-12s %5d\n", reason, reasons[reason])
	}
	common := slices.SortedFunc(maps.Keys(faults), func(a, b string) int {
		return cmp.Or(cmp.Compare(faults[b], faults[a]), cmp.Compare(a, b))
	})
	for _, f := range common[:min(len(common), 5)] {
		fmt.Printf("    %3d x %s\n", faults[f], f)
	}
	return nil
}

// account compares what the receiver has with what it should have, which is
// the one thing that counts in the end.
func (o *outbox) account(ctx context.Context, events []OrderEvent, received string) error {
	t, err := o.tally(ctx)
	if err != nil {
		return err
	}
	times, err := readLedger(received)
	if err != nil {
		return err
	}
	s := balance(events, times)
	fmt.Printf("events %d received %d lost %d duplicates %d dead %d\n",
		len(events), s.received, s.lost, s.duplicates, t.dead)
	if s.lost+t.dead+t.waiting > 0 {
		return fmt.Errorf("%d events lost, %d dead, %d undelivered", s.lost, t.dead, t.waiting)
	}
	return nil
}

type sheet struct{ received, lost, duplicates int }

func balance(events []OrderEvent, times map[string]int) (s sheet) {
	for _, e := range events {
		if n := times[e.ID]; n == 0 {
			s.lost++
		} else {
			s.received++
			s.duplicates += n - 1
		}
	}
	return s
}
