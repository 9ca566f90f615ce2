// Dashboard is a program that works on a queue, and shows it to those who know a password.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

type Report struct{ Number int }

func (Report) Kind() string { return "report" }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	defer stop()
	if err := run(ctx, "jobs.db", "127.0.0.1:8080", os.Getenv("OPS_PASSWORD")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, db, addr, password string) error {
	q, err := errand.Open(ctx, db, nil)
	if err != nil {
		return err
	}
	users := map[string]dashboard.User{"ops": {Password: password, Role: dashboard.Operator}}
	mux := http.NewServeMux()
	mux.Handle("/errand/", dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Basic(users), Name: db}))
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[Report]) error {
		return log.Output(1, "report made")
	})
	return errors.Join(serve(ctx, addr, mux, w), q.Close()) // the queue last
}
