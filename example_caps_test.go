package errand_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/errandq/errand"
)

// A queue of orders says no when it is full. One of readings lets go of the oldest: the
// latest matter most.
func ExampleQueue_Configure() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Configure(ctx, errand.Lane{Queue: "orders"}, errand.Settings{MaxJobs: new(2)}))
	check(q.Configure(ctx, errand.Lane{Queue: "readings"}, errand.Settings{
		MaxBytes: new(int64(1000)),
		WhenFull: new(errand.EvictOldest),
	}))

	var full *errand.QueueFullError
	for {
		_, err := q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Queue: "orders"})
		if errors.As(err, &full) {
			fmt.Printf("%s: %d of %d jobs\n", full.Queue, full.Jobs, full.MaxJobs)
			break
		}
		check(err)
	}
	for range 100 {
		must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Queue: "readings"}))
	}
	for _, s := range must(q.Stats(ctx)) {
		fmt.Printf("%s: %d wait, %d were evicted\n", s.Queue, s.Ready, s.Evicted)
	}
	// Output:
	// orders: 2 of 2 jobs
	// orders: 2 wait, 0 were evicted
	// readings: 6 wait, 94 were evicted
}

// The whole file has caps of its own, for which a job of any queue may have to go.
func ExampleQueue_Settings() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Configure(ctx, errand.Lane{}, errand.Settings{MaxBytes: new(int64(100 << 20)), WhenFull: new(errand.EvictLowest)}))
	check(q.Configure(ctx, errand.Lane{Queue: "readings"}, errand.Settings{MaxJobs: new(50_000), WhenFull: new(errand.EvictOldest)}))
	check(q.Configure(ctx, errand.Lane{Queue: "readings"}, errand.Settings{MaxJobs: new(0)})) // takes it back
	for _, s := range must(q.Settings(ctx)) {
		fmt.Printf("queue %q: a cap of jobs: %v, of bytes: %v, %v\n", s.Queue, s.MaxJobs != nil, s.MaxBytes != nil, *s.WhenFull)
	}
	// Output:
	// queue "": a cap of jobs: false, of bytes: true, evict-lowest
	// queue "readings": a cap of jobs: false, of bytes: false, evict-oldest
}

// The last of the disk is for what matters most.
func ExampleSettings_minFree() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Configure(ctx, errand.Lane{}, errand.Settings{MinFree: new(int64(1 << 62))})) // more than there is
	_, err := q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil)
	fmt.Println("an ordinary job is refused:", errors.Is(err, errand.ErrQueueFull))
	must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Priority: 1}))
	// Output:
	// an ordinary job is refused: true
}

func ExampleLaneSettings_CapUse() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Configure(ctx, errand.Lane{Queue: "mail"}, errand.Settings{MaxJobs: new(100)}))
	must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Queue: "mail"}))
	stats := must(q.Stats(ctx))
	for _, s := range must(q.Settings(ctx)) {
		fmt.Printf("%s: %d of %d jobs\n", s.Queue, s.CapUse(stats).Jobs, *s.MaxJobs)
	}
	// Output:
	// mail: 1 of 100 jobs
}

// Of what has died the last is what somebody may still look at.
func ExampleSettings_maxDead() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Configure(ctx, errand.Lane{Queue: "readings"}, errand.Settings{
		MaxDead:      new(10),
		WhenDeadFull: new(errand.EvictDead),
	}))
	for range 2 {
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"readings"}, Concurrency: 1})
		errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error {
			return errand.Permanent(errors.New("no such reading"))
		})
		for range 10 {
			must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, &errand.JobOptions{Queue: "readings"}))
		}
		workOff(q, w, 10)
	}
	for _, s := range must(q.Stats(ctx)) {
		fmt.Printf("%s: %d are dead, %d were evicted\n", s.Queue, s.Dead, s.DeadEvicted)
	}
	// Output:
	// readings: 10 are dead, 10 were evicted
}
