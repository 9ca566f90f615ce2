package main

import (
	"context"
	"errors"
	"log"
	"os/signal"

	"github.com/errandq/errand"
)

type SendEmail struct{ To, Subject string }

func (SendEmail) Kind() string { return "send_email" }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	defer stop()
	q, err := errand.Open(ctx, "jobs.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		return log.Output(1, "sending to "+job.Args.To)
	})
	if _, err := q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil); err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(w.Run(ctx), q.Close()); err != nil {
		log.Fatal(err)
	}
}
