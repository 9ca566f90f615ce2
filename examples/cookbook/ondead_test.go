package cookbook_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/errandq/errand"
)

// A mail that cannot be delivered is followed by a job that tells somebody.
func Example_onDead() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error {
		return errand.Permanent(errors.New("no such mailbox"))
	}, errand.HandlerOptions{OnDead: &errand.OnDead{}})
	errand.Handle(w, func(_ context.Context, job *errand.Job[errand.DeadNotice]) error {
		fmt.Printf("%s is dead after attempt %d: %s\n", job.Args.OfKind, job.Args.Attempt, job.Args.Error)
		stop()
		return nil
	})
	must(q.Enqueue(ctx, SendEmail{To: "nobody@example.org"}, nil))
	check(w.Run(ctx))
	// Output:
	// send_email is dead after attempt 1: no such mailbox
}
