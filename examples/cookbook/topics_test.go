package cookbook_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/errandq/errand"
)

// Delivery is one way of a message to one subscriber.
type Delivery struct{ Message, To string }

// Kind names the type of job.
func (Delivery) Kind() string { return "delivery" }

// A message is stored once, beside the jobs that deliver it, and goes with the last of
// them. The revision of a family of entries shows that nobody has subscribed meanwhile.
func Example_queueTopics() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(&errand.Options{Retention: -1})
	defer remove()
	topics := must(q.Topics())

	for _, name := range []string{"ada", "bob"} {
		e := errand.Entry{Class: "subscription", Name: "orders/" + name, Family: "orders", Doc: []byte(name)}
		must(topics.PutEntries(ctx, []errand.Entry{e}))
	}
	subscribers, revision, err := topics.Entries(ctx, "subscription", "orders", "", 1000)
	check(err)
	p := errand.Publication{
		Family: "orders", Revision: revision,
		Message: errand.Message{ID: "order-7", Topic: "orders", Body: []byte("7 is paid")},
	}
	for _, s := range subscribers {
		p.Jobs = append(p.Jobs, errand.NewJob{Args: Delivery{Message: "order-7", To: string(s.Doc)}})
	}
	must(topics.Publish(ctx, []errand.Publication{p}))

	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	left := len(subscribers)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Delivery]) error {
		m, err := topics.Message(ctx, job.Args.Message)
		if err != nil {
			return err
		}
		fmt.Printf("to %s: %s\n", job.Args.To, m.Body)
		if left--; left == 0 {
			stop()
		}
		return nil
	})
	check(w.Run(ctx))

	_, err = topics.Message(context.Background(), "order-7")
	fmt.Println("gone:", errors.Is(err, errand.ErrNotFound))
	// Output:
	// to ada: 7 is paid
	// to bob: 7 is paid
	// gone: true
}
