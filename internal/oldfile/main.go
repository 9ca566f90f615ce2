// Command oldfile makes files that builds of errand have left, and works on them. It is compiled
// in the checkout of each build, so it calls only what the oldest of them has; what came with a
// later schema is in a file since*.go, which is left out of older builds.
//
//	go run ./internal/oldfile make FOLDER       makes each FOLDER/N.db.gz that is missing, by the build of schema N
//	go run ./internal/oldfile fill FILE         makes a file, and ends as if it were killed
//	go run ./internal/oldfile work FILE DAYS    works on the file so many days later, and prints what is in it
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "make":
		return makeAll(ctx, args[1])
	case len(args) == 2 && args[0] == "fill":
		if err := fill(ctx, args[1]); err != nil {
			return err
		}
		os.Exit(0) // while its jobs run
	case len(args) == 3 && args[0] == "work":
		days, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		text, err := work(ctx, args[1], days)
		fmt.Print(text)
		return err
	}
	return errors.New("usage: oldfile make FOLDER | fill FILE | work FILE DAYS")
}

// filledAt is when each file is filled, whatever the machine's clock says.
var filledAt = time.Date(2026, time.November, 25, 12, 0, 0, 0, time.UTC)

// open opens a queue so many days after it was filled, by a clock that goes on from then.
func open(ctx context.Context, path string, days int, ahead func() time.Duration) (*errand.Queue, error) {
	began := time.Now()
	return errand.Open(ctx, path, &errand.Options{
		Clock: func() time.Time {
			return filledAt.AddDate(0, 0, days).Add(time.Since(began) + ahead())
		},
		Retention: 20 * 365 * 24 * time.Hour, // finished jobs are counted later
		Logger:    slog.New(slog.DiscardHandler),
	})
}

// start runs the worker, and returns once over is true, which it asks after each event and when
// something is sent to wake.
func start(ctx context.Context, q *errand.Queue, w *errand.Worker, wake <-chan error, over func([]errand.Count) bool) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	events, err := q.Subscribe(ctx, errand.EventFilter{}, 1000)
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for {
		counts, err := q.Counts(ctx)
		if err == nil && over(counts) {
			return func() error { cancel(); return <-ended }, nil
		}
		select {
		case <-events.Events():
		case err = <-wake:
		case err = <-ended:
			err = errors.Join(errors.New("the worker has ended"), err)
		}
		if err != nil {
			cancel()
			return nil, err
		}
	}
}

func args(kind, text string) errand.RawArgs {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return errand.RawArgs{OfKind: kind, JSON: data}
}

// taker is a receiver of webhooks that takes all.
type taker struct{}

func (taker) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func openTopics(q *errand.Queue) (*webhook.Webhooks, *topic.Topics, error) {
	hooks, err := webhook.New(q, &webhook.Options{Transport: taker{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, err
	}
	topics, err := topic.New(q, hooks, nil)
	return hooks, topics, err
}
