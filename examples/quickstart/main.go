package main

import (
	"context"
	"log"

	"github.com/errandq/errand"
)

type SendEmail struct{ To, Subject string }

func (SendEmail) Kind() string { return "send_email" }

func main() {
	q, err := errand.Open(context.Background(), "jobs.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[SendEmail]) error {
		return log.Output(1, "sending to "+job.Args.To)
	})
	log.Println(q.Enqueue(context.Background(), SendEmail{To: "ada@example.org"}, nil))
	log.Fatal(w.Run(context.Background()))
}
