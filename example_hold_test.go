package errand_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

// Uploads wait while the device is roaming, and reports while somebody works on the
// server. Each of the two ends its own hold.
func ExampleQueue_Hold() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Hold(ctx, errand.Lane{Kind: "upload"}, &errand.HoldOptions{Reason: "roaming", By: "modem", For: time.Hour}))
	check(q.Hold(ctx, errand.Lane{Queue: "reports"}, &errand.HoldOptions{Reason: "maintenance"}))
	must(q.Enqueue(ctx, SendEmail{}, &errand.JobOptions{Queue: "reports"}))
	for _, h := range must(q.Holds(ctx)) {
		fmt.Printf("queue %q, kind %q: %s, ends by itself: %v, %d wait\n", h.Queue, h.Kind, h.Reason, !h.Until.IsZero(), h.Waiting)
	}

	fmt.Println(must(q.Release(ctx, errand.Lane{Kind: "upload"}, "roaming")), must(q.Release(ctx, errand.Lane{Kind: "upload"}, "roaming")))
	// Output:
	// queue "", kind "upload": roaming, ends by itself: true, 0 wait
	// queue "reports", kind "": maintenance, ends by itself: false, 1 wait
	// true false
}

// What somebody does by hand says later why the reports wait.
func ExampleQueue_Audit() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	byHand := must(errand.WithAudit(ctx, errand.AuditEntry{By: "ada", Do: "pause", What: "queue reports", Note: "no paper"}))
	check(q.Pause(byHand, "reports"))
	for _, e := range must(q.Audit(ctx)) {
		fmt.Printf("%s: %s %s (%s)\n", e.By, e.Do, e.What, e.Note)
	}
	// Output:
	// ada: pause queue reports (no paper)
}
