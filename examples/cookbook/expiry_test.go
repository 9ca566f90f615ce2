package cookbook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

type sendCode struct{ To string }

func (sendCode) Kind() string { return "send_code" }

// A code that is sent late is of no use: it is not sent at all.
func Example_jobOptionsStartWithin() {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	q, remove := tempQueue(&errand.Options{Clock: func() time.Time { return now }})
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	events := must(q.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{errand.EventExpired, errand.EventDead}}, 10))

	code := must(q.Enqueue(ctx, sendCode{To: "ada@example.org"}, &errand.JobOptions{
		StartWithin: 10 * time.Minute,
	}))
	fmt.Println("starts before", must(q.Job(ctx, code.ID)).StartBy.Format(time.TimeOnly))
	must(q.Enqueue(ctx, sendCode{To: "bob@example.org"}, &errand.JobOptions{
		FinishWithin: 10 * time.Minute, Priority: -1,
	}))

	now = now.Add(time.Hour) // without a worker
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[sendCode]) error {
		fmt.Println("sent to", job.Args.To)
		return nil
	})
	go func() {
		for range 2 {
			e := <-events.Events()
			fmt.Println(e.Kind, e.Type, e.Error)
		}
		stop()
	}()
	check(w.Run(ctx))
	// Output:
	// starts before 12:10:00
	// send_code expired not started in time
	// send_code dead too late for another attempt
}
