// Command production is a small service: an API that takes emails, and a
// worker in the same process that sends them.
//
//	go run ./examples/production -db /tmp/mail/jobs.db -mail https://mail.example.org/send
//	curl -d '{"to":"ada@example.org","subject":"Hello"}' localhost:8080/emails
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy/policyhttp"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "where the API listens")
	path := flag.String("db", "jobs.db", "the file of the queue")
	url := flag.String("mail", "", "where emails are posted to")
	flag.Parse()

	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	slog.SetDefault(log)
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := run(ctx, *addr, *path, &mailer{url: *url, client: policyhttp.NewClient()})
	if err != nil {
		log.Error("the service failed", "error", err)
	}
	os.Exit(status(err))
}

// status is what the process ends with: 0 after a clean stop, 3 if to start
// again would not help, 1 otherwise. ErrUnsupportedDB is 1: a file with two
// names is fit again once one of them is gone.
func status(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errand.ErrCorrupt), errors.Is(err, errand.ErrTakenAway), errors.Is(err, errand.ErrTooNew):
		return 3
	default:
		return 1
	}
}

// run serves and works until ctx ends, or until one of the two fails.
func run(ctx context.Context, addr, path string, m *mailer) error {
	q, err := errand.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	w := newWorker(q, m)
	errand.Handle(w, backup(q, filepath.Dir(path)))
	if err = scheduleBackups(ctx, q); err == nil {
		err = serve(ctx, addr, routes(q), w)
	}
	return errors.Join(err, q.Close()) // the queue last
}
