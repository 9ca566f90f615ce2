package errand_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

// Report is what the jobs of these schedules are about.
type Report struct{ Of string }

// Kind names the type of job.
func (Report) Kind() string { return "report" }

// calendar is a clock for examples.
type calendar struct{ now time.Time }

// on returns a calendar at a time of Berlin.
func on(date string) *calendar {
	return &calendar{must(time.ParseInLocation("2006-01-02 15:04", date, must(time.LoadLocation("Europe/Berlin"))))}
}

func (c *calendar) queue() (*errand.Queue, func()) {
	return tempQueue(&errand.Options{Clock: func() time.Time { return c.now }})
}

// workUntil works on the jobs of q until n of them have run.
func workUntil(q *errand.Queue, n int, fn func(job *errand.Job[Report])) {
	ctx, stop := context.WithCancel(context.Background())
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.Handle(w, func(_ context.Context, job *errand.Job[Report]) error {
		fn(job)
		if n--; n == 0 {
			stop()
		}
		return nil
	})
	check(w.Run(ctx))
}

// A program declares its schedules at each start. What is there already is left
// alone.
func ExampleQueue_Schedule() {
	ctx := context.Background()
	q, remove := on("2027-05-01 12:00").queue()
	defer remove()

	check(q.Schedule(ctx, errand.Schedule{
		Name: "monthly-report", Spec: "30 8 1 * *", Zone: "Europe/Berlin",
		Args: Report{Of: "sales"}, Options: &errand.JobOptions{Queue: "reports"},
	}))
	for _, s := range must(q.Schedules().List(ctx)) {
		fmt.Printf("%s (%s in %s): %s %s\n", s.Name, s.Spec, s.Zone, s.Kind, s.Args)
		for _, tick := range s.Next {
			fmt.Println("  ", tick.Format("Mon 2006-01-02 15:04 MST"))
		}
	}

	fmt.Println(q.Schedule(ctx, errand.Schedule{Name: "never", Spec: "0 0 30 2 *", Args: Report{}}))
	// Output:
	// monthly-report (30 8 1 * * in Europe/Berlin): report {"Of":"sales"}
	//    Tue 2027-06-01 08:30 CEST
	//    Thu 2027-07-01 08:30 CEST
	//    Sun 2027-08-01 08:30 CEST
	//    Wed 2027-09-01 08:30 CEST
	//    Fri 2027-10-01 08:30 CEST
	// errand: spec "0 0 30 2 *": day of month: never comes in the months given
}

// Specs with fixed hours go by what the clocks on the wall show, those with a *
// or a step in the hours by the time that passes.
func ExampleQueue_Schedule_daylightSaving() {
	ctx := context.Background()
	for _, evening := range []string{"2027-03-27 23:45", "2027-10-30 23:45"} {
		q, remove := on(evening).queue()
		for name, spec := range map[string]string{"fixed": "30 2 * * *", "hourly": "30 * * * *"} {
			check(q.Schedule(ctx, errand.Schedule{Name: name, Spec: spec, Zone: "Europe/Berlin", Args: Report{}}))
		}
		fmt.Println("after", evening)
		for _, s := range must(q.Schedules().List(ctx)) {
			fmt.Printf("%-11s", s.Spec)
			for _, tick := range s.Next {
				if tick.Sub(s.Next[0]) < 12*time.Hour {
					fmt.Print("  ", tick.Format("15:04 MST"))
				}
			}
			fmt.Println()
		}
		remove()
	}
	// Output:
	// after 2027-03-27 23:45
	// 30 2 * * *   03:00 CEST
	// 30 * * * *   00:30 CET  01:30 CET  03:30 CEST  04:30 CEST  05:30 CEST
	// after 2027-10-30 23:45
	// 30 2 * * *   02:30 CEST
	// 30 * * * *   00:30 CEST  01:30 CEST  02:30 CEST  02:30 CET  03:30 CET
}

// No worker ran for two weeks: what that is worth is for each schedule to say.
func ExampleSchedule_missed() {
	ctx := context.Background()
	clock := on("2027-05-01 12:00")
	q, remove := clock.queue()
	defer remove()

	for name, missed := range map[string]errand.Missed{
		"skip": errand.MissedSkip, "one": errand.MissedOne, "all": errand.MissedAll(3),
	} {
		check(q.Schedule(ctx, errand.Schedule{Name: name, Spec: "0 */6 * * *", Args: Report{Of: name}, Missed: missed}))
	}
	clock.now = clock.now.Add(14 * 24 * time.Hour)
	jobs := map[string]int{}
	workUntil(q, 4, func(job *errand.Job[Report]) { jobs[job.Headers["errand-schedule"]]++ })
	for _, name := range []string{"skip", "one", "all"} {
		fmt.Println(name, jobs[name])
		for _, t := range must(q.Schedules().History(ctx, name)) {
			fmt.Println("  ", t.Taken, t.N, "from", t.At.Format(time.DateTime), "to", t.Until.Format(time.DateTime))
		}
	}
	// Output:
	// skip 0
	//    missed 56 from 2027-05-01 12:00:00 to 2027-05-15 06:00:00
	// one 1
	//    fired 1 from 2027-05-15 06:00:00 to 2027-05-15 06:00:00
	//    missed 55 from 2027-05-01 12:00:00 to 2027-05-15 00:00:00
	// all 3
	//    fired 1 from 2027-05-15 06:00:00 to 2027-05-15 06:00:00
	//    fired 1 from 2027-05-15 00:00:00 to 2027-05-15 00:00:00
	//    fired 1 from 2027-05-14 18:00:00 to 2027-05-14 18:00:00
	//    missed 53 from 2027-05-01 12:00:00 to 2027-05-14 12:00:00
}

// What would have come during a pause is dropped, and noted.
func ExampleSchedules_Pause() {
	ctx := context.Background()
	clock := on("2027-05-01 12:00")
	q, remove := clock.queue()
	defer remove()

	check(q.Schedule(ctx, errand.Schedule{Name: "hourly", Spec: "@hourly", Zone: "Europe/Berlin", Args: Report{}}))
	schedules := q.Schedules()
	check(schedules.Pause(ctx, "hourly"))
	clock.now = clock.now.Add(150 * time.Minute)
	check(schedules.Resume(ctx, "hourly"))
	for _, t := range must(schedules.History(ctx, "hourly")) {
		fmt.Println(t.Taken, t.N, "from", t.At.Format(time.TimeOnly), "to", t.Until.Format(time.TimeOnly))
	}
	fmt.Println("next", must(schedules.Get(ctx, "hourly")).Next[0].Format(time.TimeOnly))
	// Output:
	// paused 2 from 13:00:00 to 14:00:00
	// next 15:00:00
}

// Once more, now: a job like those of the schedule, whose ticks stay as they are.
func ExampleSchedules_Run() {
	ctx := context.Background()
	q, remove := on("2027-05-01 12:00").queue()
	defer remove()

	check(q.Schedule(ctx, errand.Schedule{Name: "nightly", Spec: "@daily", Zone: "Europe/Berlin", Args: Report{Of: "stock"}}))
	e := must(q.Schedules().Run(ctx, "nightly"))
	workUntil(q, 1, func(job *errand.Job[Report]) {
		fmt.Println(job.ID == e.ID, job.Args.Of, job.Headers["errand-schedule"], job.Headers["errand-tick"])
	})
	for _, t := range must(q.Schedules().History(ctx, "nightly")) {
		fmt.Println(t.Taken, t.At.Format(time.DateTime), t.Job == e.ID)
	}
	// Output:
	// true stock nightly 2027-05-01T12:00:00+02:00
	// manual 2027-05-01 12:00:00 true
}

// A new release does without some of the schedules of the one before.
func ExampleSchedules_Keep() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	for _, name := range []string{"daily", "weekly", "monthly"} { // the release before
		check(q.Schedule(ctx, errand.Schedule{Name: name, Spec: "@" + name, Args: Report{Of: name}}))
	}

	var names []string
	for _, s := range []errand.Schedule{
		{Name: "daily", Spec: "@daily", Args: Report{Of: "daily"}},
		{Name: "yearly", Spec: "@yearly", Args: Report{Of: "yearly"}},
	} {
		check(q.Schedule(ctx, s))
		names = append(names, s.Name)
	}
	fmt.Println("removed:", must(q.Schedules().Keep(ctx, names...)))
	// Output:
	// removed: [monthly weekly]
}

// A clock that jumps is noticed, and one that is set back is not believed at
// once.
func ExampleQueue_Clock() {
	clock := on("2027-05-01 12:00")
	q, remove := clock.queue()
	defer remove()

	clock.now = clock.now.Add(time.Hour)
	c := q.Clock()
	fmt.Println(c.Now.Format(time.Kitchen), c.Plausible, c.Jumps)
	clock.now = clock.now.Add(-3 * time.Hour)
	c = q.Clock()
	fmt.Println(c.Now.Format(time.Kitchen), c.Plausible, c.Jumps)
	// Output:
	// 1:00PM true 1
	// 1:00PM true 2
}

// With RunOnStart the cache is filled as the program starts, and not only at the next tick.
// A second program that starts beside it enqueues no job.
func ExampleSchedule_runOnStart() {
	ctx := context.Background()
	q, remove := on("2027-05-01 12:00").queue()
	defer remove()

	warm := errand.Schedule{Name: "warm-cache", Spec: "@hourly", Args: Report{Of: "cache"}, RunOnStart: true}
	check(q.Schedule(ctx, warm))
	check(q.Schedule(ctx, warm)) // once more in the same program
	for _, tick := range must(q.Schedules().History(ctx, "warm-cache")) {
		fmt.Println(tick.Taken, tick.At.Format("15:04"))
	}
	fmt.Println("next:", must(q.Schedules().Get(ctx, "warm-cache")).Next[0].Format("15:04"))

	// Output:
	// start 10:00
	// next: 11:00
}
