package errand_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/errandq/errand"
)

// One job is done, one is refused, and then somebody holds the kind.
func ExampleQueue_Stats() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil))
	refuse(q, 1, nil)
	must(q.Enqueue(ctx, SendEmail{To: "nobody"}, nil))
	refuse(q, 1, errand.Permanent(errors.New("user unknown")))
	must(q.Enqueue(ctx, SendEmail{To: "grace@example.com"}, nil))
	check(q.Hold(ctx, errand.Lane{Kind: "send_email"}, &errand.HoldOptions{Reason: "maintenance"}))

	for _, s := range must(q.Stats(ctx)) {
		fmt.Printf("%s: %d ready, %d done, %d dead\n", s.Kind, s.Ready, s.Done, s.Dead)
		fmt.Println("last success:", !s.LastSuccess.IsZero())
		fmt.Println("last failure:", s.LastFailure.Error)
		for _, h := range s.Holds {
			fmt.Println("held:", h.Reason)
		}
	}
	// Output:
	// send_email: 1 ready, 1 done, 1 dead
	// last success: true
	// last failure: user unknown
	// held: maintenance
}
