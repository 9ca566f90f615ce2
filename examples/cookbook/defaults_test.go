package cookbook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// SendInvoice has what all its jobs have in common beside its kind.
type SendInvoice struct {
	Customer string
	Number   int
}

// Kind names the type of job.
func (SendInvoice) Kind() string { return "send_invoice" }

// JobDefaults returns the options of each job: one customer's invoices go in order.
func (i SendInvoice) JobDefaults() errand.JobOptions {
	return errand.JobOptions{
		Queue: "invoices", Timeout: 30 * time.Second, Policy: policy.Forever(time.Hour),
		Group: i.Customer, Unique: &errand.Unique{Key: fmt.Sprint(i.Number), Forever: true},
	}
}

// A kind has its queue, its timeout, its key and its group in one place. A call that sets
// a field has its own.
func Example_jobDefaulter() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	e := must(q.Enqueue(ctx, SendInvoice{Customer: "ada", Number: 17}, nil))
	urgent := must(q.Enqueue(ctx, SendInvoice{Customer: "ben", Number: 18}, &errand.JobOptions{Queue: "urgent"}))
	again := must(q.Enqueue(ctx, SendInvoice{Customer: "ada", Number: 17}, nil))
	for _, id := range []errand.ID{e.ID, urgent.ID} {
		j := must(q.Job(ctx, id))
		fmt.Println(j.Queue, j.Group, j.Timeout)
	}
	fmt.Println("duplicate:", again.Duplicate)
	// Output:
	// invoices ada 30s
	// urgent ben 30s
	// duplicate: true
}

// A queue whose name is mistyped would have no worker. Strict options refuse it.
func Example_optionsStrict() {
	ctx := context.Background()
	q, remove := tempQueue(&errand.Options{
		Strict: true,
		Queues: map[string]errand.QueueOptions{"mail": {}, "device/*": {}},
	})
	defer remove()

	_, err := q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Queue: "mial"})
	fmt.Println(err)
	_, err = q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Queue: "device/17"})
	fmt.Println(err)
	// Output:
	// errand: queue "mial": must be listed in Options.Queues, as Options.Strict is set: device/*, mail
	// <nil>
}
