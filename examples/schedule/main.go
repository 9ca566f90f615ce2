// Command schedule declares some schedules, shows their next ticks, runs the jobs that
// they enqueue, and prints in the end what became of the ticks.
//
// Run it twice at the same time on one file, or again after a while: no tick is
// doubled, and each schedule treats missed ticks by its own rule.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"
	_ "time/tzdata" // zones, wherever the program runs

	"github.com/errandq/errand"
)

type Report struct{ Of string }

func (Report) Kind() string { return "report" }

// schedules are those of this release.
var schedules = []errand.Schedule{
	// Each second: many are missed while the program is not running, and are
	// not worth anything then.
	{Name: "pulse", Spec: "* * * * * *", Args: Report{"this second"}, Missed: errand.MissedSkip},
	// Its jobs take longer than two seconds, and must not run side by side.
	{Name: "slow", Spec: "@every 2s", Args: Report{"what takes three seconds"}, Missed: errand.MissedSkip, Overlap: errand.OverlapSkip},
	// Of each minute there must be a report, up to five if it was missed.
	{Name: "minute", Spec: "* * * * *", Args: Report{"a minute"}, Missed: errand.MissedAll(5), Jitter: 2 * time.Second},
	// At half past two in Berlin, every working day.
	{Name: "night", Spec: "30 2 * * mon-fri", Zone: "Europe/Berlin", Args: Report{"a night in Berlin"}},
}

func main() {
	path := flag.String("db", filepath.Join(os.TempDir(), "errand-schedule.db"), "the file of the queue, made if it is not there")
	length := flag.Duration("for", 10*time.Second, "how long to work; 0: until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	defer stop()
	if *length > 0 {
		ctx, stop = context.WithTimeout(ctx, *length)
		defer stop()
	}
	if err := run(ctx, *path, log.New(os.Stdout, "", 0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string, out *log.Logger) error {
	// Until the clock is right nothing is fired: nobody wants the reports of 1970.
	q, err := errand.Open(context.WithoutCancel(ctx), path, &errand.Options{
		WaitForClock: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	err = work(ctx, q, out)
	if closed := q.Close(); err == nil {
		err = closed
	}
	return err
}

func work(ctx context.Context, q *errand.Queue, out *log.Logger) error {
	if err := declare(context.WithoutCancel(ctx), q, out); err != nil {
		return err
	}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Report]) error {
		out.Printf("%s  %-6s  %s, of %s", time.Now().Format(time.TimeOnly), job.Headers["errand-schedule"],
			job.Args.Of, job.Headers["errand-tick"])
		if job.Headers["errand-schedule"] == "slow" {
			select {
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
			}
		}
		return nil
	})
	if err := w.Run(ctx); err != nil {
		return err
	}
	return tell(context.WithoutCancel(ctx), q, out)
}

// declare makes the schedules of the database those of this release.
func declare(ctx context.Context, q *errand.Queue, out *log.Logger) error {
	var names []string
	for _, s := range schedules {
		if err := q.Schedule(ctx, s); err != nil {
			return err
		}
		names = append(names, s.Name)
	}
	removed, err := q.Schedules().Keep(ctx, names...)
	if err != nil {
		return err
	}
	for _, name := range removed {
		out.Println("removed", name)
	}
	all, err := q.Schedules().List(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		const form = "Mon 2 Jan 15:04:05 MST"
		out.Printf("%-6s  %-16s  next  %s  %s", s.Name, s.Spec, s.Next[0].Format(form), s.Next[1].Format(form))
	}
	return nil
}

// tell shows what became of the ticks, by outcome.
func tell(ctx context.Context, q *errand.Queue, out *log.Logger) error {
	for _, s := range schedules {
		ticks, err := q.Schedules().History(ctx, s.Name)
		if err != nil {
			return err
		}
		n := map[errand.TickOutcome]int64{}
		for _, t := range ticks {
			n[t.Taken] += t.N
		}
		out.Printf("%-6s  fired %d, missed %d, skipped since the one before was not over %d",
			s.Name, n[errand.TickFired], n[errand.TickMissed], n[errand.TickOverlap])
	}
	return nil
}
