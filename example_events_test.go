package errand_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/errandq/errand"
)

// A dashboard looks at what becomes of mail.
func ExampleQueue_Subscribe() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	events, err := q.Subscribe(ctx, errand.EventFilter{
		Kind: "send_email", Types: []errand.EventType{errand.EventStarted, errand.EventDone, errand.EventDead},
	}, 1000)
	check(err)

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error {
		return errand.Permanent(errors.New("no such mailbox"))
	})
	must(q.Enqueue(ctx, SendEmail{To: "nobody@example.org"}, nil))
	go func() {
		for e := range events.Events() {
			fmt.Println(e.Kind, e.Type, "attempt", e.Attempt)
			if e.Type == errand.EventDead {
				stop() // which closes the channel
			}
		}
	}()
	check(w.Run(ctx))
	fmt.Println("missed:", events.Missed())
	// Output:
	// send_email started attempt 1
	// send_email dead attempt 1
	// missed: 0
}
