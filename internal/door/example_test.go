package door_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
)

// Delivery is one way of a message to one subscriber.
type Delivery struct{ Message, To string }

// Kind names the type of job.
func (Delivery) Kind() string { return "delivery" }

// A message is stored once, beside the jobs that deliver it, and goes with the last of
// them. The revision of a family of entries shows that nobody has subscribed meanwhile.
func ExampleOpen() {
	ctx, stop := context.WithCancel(context.Background())
	dir := must(os.MkdirTemp("", "errand-door-"))
	defer os.RemoveAll(dir) //nolint:errcheck // of an example
	q := must(errand.Open(ctx, filepath.Join(dir, "jobs.db"), &errand.Options{Retention: -1, Logger: slog.New(slog.DiscardHandler)}))
	topics := must(door.Open[errand.NewJob](q))

	for _, name := range []string{"ada", "bob"} {
		e := storage.Entry{Class: "subscription", Name: "orders/" + name, Family: "orders", Doc: []byte(name)}
		must(topics.PutEntries(ctx, []storage.Entry{e}))
	}
	subscribers, revision, err := topics.Entries(ctx, "subscription", "orders", "", 1000)
	check(err)
	p := door.Publication[errand.NewJob]{
		Family: "orders", Revision: revision,
		Message: storage.Message{ID: "order-7", Topic: "orders", Body: []byte("7 is paid")},
	}
	for _, s := range subscribers {
		p.Jobs = append(p.Jobs, errand.NewJob{Args: Delivery{Message: "order-7", To: string(s.Doc)}})
	}
	must(topics.Publish(ctx, []door.Publication[errand.NewJob]{p}))

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
	check(q.Close())
	// Output:
	// to ada: 7 is paid
	// to bob: 7 is paid
	// gone: true
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
