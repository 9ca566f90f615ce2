package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

func watchCommand(t *tool) *cobra.Command {
	var every time.Duration
	var count int
	cmd := &cobra.Command{
		Use:   "watch FILE",
		Short: "Show how a queue goes on",
		Long: `Show how a queue goes on, again and again until it is interrupted: jobs by queue, kind
and state, how many of each state come or go a second, and the rest of errand status.
On a terminal each picture takes the place of the one before. With --json each is an
object on a line.`,
		Example: "  errand watch jobs.db --interval 100ms --count 2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 100*time.Millisecond {
				return fmt.Errorf("--interval %v: must be at least 100ms", every)
			}
			if count < 0 {
				return fmt.Errorf("--count %d: must be at least 0", count)
			}
			return t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				return t.watch(cmd.Context(), q, every, count)
			})
		},
	}
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "how long between two pictures")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many pictures; 0 goes on")
	completeArgs(cmd, nil)
	return cmd
}

// watch shows count pictures, or those until ctx ends.
func (t *tool) watch(ctx context.Context, q *queue.Queue, every time.Duration, count int) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before snapshot
	for n := 1; ; n++ {
		now, err := statusOf(ctx, q)
		switch {
		case ctx.Err() != nil: // the way to end it
			return nil
		case errors.Is(err, queue.ErrBusy): // others began to write meanwhile: it can be read again
			n--
		case err != nil:
			return err
		default:
			if err := t.picture(&now, &before); err != nil || n == count {
				return err
			}
			before = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// picture shows a status, and what has changed since the one before.
func (t *tool) picture(now, before *snapshot) error {
	if t.json {
		return writeJSON(t.out, now, false)
	}
	var b bytes.Buffer
	p := printer{w: &b}
	p.printf("%s  ", when(now.At))
	t.printTotal(&p, &now.Jobs)
	t.printRates(&p, now, before)
	t.printTimes(&p, now.Lanes)
	t.printHolds(&p, now.Holds)
	t.printWorkers(&p, now.Workers)
	if len(now.Causes) > 0 {
		p.printf("\n")
	}
	t.printCauses(&p, now.Causes, now.At)
	t.printHealth(&p, &now.Health)
	if t.out.terminal() {
		_, err := fmt.Fprintf(t.out, "\x1b[H\x1b[J%s", b.Bytes())
		return err
	}
	p.printf("\n")
	_, err := t.out.Write(b.Bytes())
	return err
}

// printRates writes the lanes, with the change of each number a second.
func (t *tool) printRates(p *printer, now, before *snapshot) {
	past := map[queue.Lane]*laneState{}
	for i := range before.Lanes {
		l := &before.Lanes[i]
		past[l.Lane] = l
	}
	seconds := now.At.Sub(before.At).Seconds()
	change := func(now int64, was func(l *laneState) int64, l *laneState) cell {
		switch {
		case before.At.IsZero() || l == nil || seconds <= 0 || now == was(l):
			return number(now)
		}
		return text(fmt.Sprintf("%d (%+.1f/s)", now, float64(now-was(l))/seconds))
	}
	list := table{head: []string{"QUEUE", "KIND", " SCHEDULED", " READY", " RUNNING", " DONE", " DEAD"}}
	for i := range now.Lanes {
		l := &now.Lanes[i]
		was := past[l.Lane]
		list.add(text(l.Queue), text(l.Kind),
			change(l.Scheduled, func(l *laneState) int64 { return l.Scheduled }, was),
			change(l.Ready, func(l *laneState) int64 { return l.Ready }, was),
			change(l.Running, func(l *laneState) int64 { return l.Running }, was),
			change(l.Done, func(l *laneState) int64 { return l.Done }, was),
			change(l.Dead, func(l *laneState) int64 { return l.Dead }, was))
	}
	list.print(p, t.out)
}
