package errand_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/errandq/errand"
)

// An importer takes kinds and args from lines of text; a proxy hands them on. Neither
// has a Go type for them.
func ExampleHandleRaw() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	lines := "thumbnail {\"file\": \"a.jpg\"}\nthumbnail {\"file\": \"b.jpg\"}\n"
	for s := bufio.NewScanner(strings.NewReader(lines)); s.Scan(); {
		kind, args, _ := strings.Cut(s.Text(), " ")
		must(q.Enqueue(ctx, errand.RawArgs{OfKind: kind, JSON: []byte(args)}, nil))
	}

	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.HandleRaw(w, "thumbnail", func(_ context.Context, job *errand.Job[errand.RawArgs]) error {
		fmt.Printf("%s %s\n", job.Kind, job.Args.JSON)
		if strings.Contains(string(job.Args.JSON), "b.jpg") {
			stop() // all this example wants
		}
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// thumbnail {"file":"a.jpg"}
	// thumbnail {"file":"b.jpg"}
}

// A relay passes on the jobs of a queue to another file, whatever their kinds are. A job that
// it passes on again after a crash is a duplicate there.
func ExampleHandleQueue() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()
	next, removeNext := tempQueue(nil)
	defer removeNext()

	outbox := &errand.JobOptions{Queue: "outbox"}
	must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, outbox))
	last := must(q.Enqueue(ctx, errand.RawArgs{OfKind: "thumbnail", JSON: []byte(`{"file": "a.jpg"}`)}, outbox))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"outbox"}})
	errand.HandleQueue(w, "outbox", func(ctx context.Context, jobs []*errand.Job[errand.RawArgs]) error {
		var all []errand.NewJob
		for _, job := range jobs {
			from := errand.Origin{Device: "pi-17", ID: job.ID.String()}
			all = append(all, errand.NewJob{Args: job.Args, Options: &errand.JobOptions{
				Group: job.Group, Headers: job.Headers, Priority: job.Priority, Origin: from,
				Unique: &errand.Unique{Key: from.Device + "/" + from.ID, Forever: true},
			}})
		}
		_, err := next.EnqueueMany(ctx, all)
		if errors.Is(err, errand.ErrInvalid) {
			return errand.Permanent(err) // the call is repeated in halves, until the job that is refused is alone
		}
		return err
	}, errand.BatchOptions{Max: 100})

	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	_, err := errand.Await[any](ctx, q, last.ID)
	fmt.Println(errors.Is(err, errand.ErrNoResult)) // it is done
	stop()
	check(<-ended)
	for _, c := range must(next.Counts(context.Background())) {
		fmt.Println(c.Kind, c.N)
	}
	// Output:
	// true
	// send_email 1
	// thumbnail 1
}
