package errand_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

// Jobs are listed page by page: here those of one customer, found by a tag.
func ExampleQueue_Jobs() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	for i, customer := range []string{"ada", "bob", "ada", "ada"} {
		_, err := q.Enqueue(ctx, SendEmail{To: customer + "@example.org"}, &errand.JobOptions{
			Tags:  []string{"customer:" + customer, "newsletter"},
			Delay: time.Duration(i) * time.Hour,
		})
		check(err)
	}

	filter := errand.JobFilter{Tag: "customer:ada"}
	o := &errand.ListOptions{Limit: 2}
	for {
		page, err := q.Jobs(ctx, filter, o)
		check(err)
		for _, job := range page.Jobs {
			fmt.Println(job.State, job.Kind, job.Tags)
		}
		if o.After = page.Next; o.After == "" {
			break
		}
	}
	// Output:
	// scheduled send_email [customer:ada newsletter]
	// scheduled send_email [customer:ada newsletter]
	// ready send_email [customer:ada newsletter]
}

// A server has a job that a device has passed on to it, and finds it by what the device calls it.
func ExampleJobOptions_origin() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	_, err := q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{
		Origin: errand.Origin{Device: "pi-17", ID: "4711"},
	})
	check(err)
	page, err := q.Jobs(ctx, errand.JobFilter{Origin: errand.Origin{Device: "pi-17", ID: "4711"}}, nil)
	check(err)
	for _, job := range page.Jobs {
		fmt.Println(job.State, job.Kind, job.Origin.ID)
	}
	// Output: ready send_email 4711
}
