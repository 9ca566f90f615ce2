// Outbox delivers order events to a partner over HTTP, through bad times: the
// partner is offline, overloaded, hangs, and refuses some events for good.
//
// It may be killed at any moment and started again. It then goes on where it
// was, and its last line accounts for every event.
//
// Read main.go, events.go and deliver.go to see how errand is used. The other
// files are the partner (receiver.go, order.go, ledger.go) and the display
// (progress.go, accounting.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/errandq/errand"
)

func main() {
	db := flag.String("db", "outbox.db", "`file` that holds the jobs; what the receiver accepts goes to a second one, with .received added to its name")
	flag.Parse()
	// The first Ctrl-C stops the worker in an orderly way, a second one at once.
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, *db); err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

// concurrency is how many events are on their way at once.
const concurrency = 32

func run(ctx context.Context, db string) (err error) {
	events, err := loadEvents(eventsFile)
	if err != nil {
		return err
	}
	q, err := errand.Open(ctx, db, &errand.Options{
		Policy: &delivery,
		// Each dead letter is a warning. Here they are part of the show, and
		// would tear the progress bar.
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()

	ids, fresh, err := enqueue(ctx, q, events)
	if err != nil {
		return err
	}
	fmt.Printf("%d events, %d of them new\n", len(events), fresh)

	o := &outbox{q: q, ids: ids}
	t, err := o.tally(ctx)
	if err != nil {
		return err
	}
	if t.waiting+t.dead == 0 {
		fmt.Println("all events are delivered")
	} else if err := o.deliver(ctx, db+".received"); err != nil {
		return err
	}
	return o.account(ctx, events, db+".received")
}

// An outbox is one run of the program.
type outbox struct {
	q   *errand.Queue
	ids []errand.ID // of the jobs, one for each event
}

// deliver runs a worker until every event is delivered.
func (o *outbox) deliver(ctx context.Context, received string) error {
	partner, err := startReceiver(received)
	if err != nil {
		return err
	}
	w := errand.NewWorker(o.q, &errand.WorkerOptions{Concurrency: concurrency})
	errand.Handle(w, deliverer(newClient(concurrency), partner.URL), errand.HandlerOptions{Timeout: attemptTimeout})

	// Run ends when its context does, with all that it started. If it ends by
	// itself, by a fault of the disk for example, nobody should wait for it.
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(ctx)
		stop(err)
		ended <- err
	}()
	err = o.follow(ctx, partner)
	stop(nil)
	if failed := <-ended; failed != nil {
		err = failed // and what follow saw is a consequence of it
	}
	return errors.Join(err, partner.Close())
}

// follow waits until nothing but dead letters is left, has the cause of them
// corrected, and puts them back.
func (o *outbox) follow(ctx context.Context, partner *receiver) error {
	if err := o.settle(ctx); err != nil {
		return err
	}
	if err := o.reportRetries(ctx); err != nil {
		return err
	}
	if err := o.reportDead(ctx); err != nil {
		return err
	}
	partner.Correct()
	r, err := o.q.DeadLetters().Redrive(ctx, errand.JobFilter{Kind: OrderEvent{}.Kind()}, nil)
	if err != nil {
		return err
	}
	fmt.Printf("receiver corrected, %d dead letters redriven\n", r.Redriven)
	return o.settle(ctx)
}

// settle shows the progress until no job is live: each is done or dead.
func (o *outbox) settle(ctx context.Context) error {
	p := newProgress(os.Stdout)
	defer p.end()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		t, err := o.tally(ctx)
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if p.show(t, time.Now()); t.waiting == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tally counts where the events are. Finished jobs are deleted after a day, so an
// event that is neither live nor dead counts as delivered.
func (o *outbox) tally(ctx context.Context) (tally, error) {
	counts, err := o.q.Counts(ctx)
	if err != nil {
		return tally{}, err
	}
	t := tally{delivered: len(o.ids)}
	for _, c := range counts {
		switch {
		case c.Kind != OrderEvent{}.Kind():
		case c.State == errand.Dead:
			t.dead += int(c.N)
			t.delivered -= int(c.N)
		case c.State == errand.Scheduled, c.State == errand.Ready, c.State == errand.Running:
			t.waiting += int(c.N)
			t.delivered -= int(c.N)
		}
	}
	return t, nil
}
