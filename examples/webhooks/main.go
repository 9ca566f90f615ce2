// Webhooks is a shop in a single binary. Each sale is a row of its own table and an event,
// both written in one transaction. The events are delivered, signed, to three receivers,
// which here are part of the program: one fails at random, one is slow, one is gone for a
// while. In the end it says what each has received.
//
// Read main.go to see how package webhook is used, and receiver.go to see how a receiver
// verifies what it gets.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/webhook"
)

func main() {
	sales := flag.Int("sales", 60, "`how many` sales there are")
	db := flag.String("db", "", "`file` that holds orders and webhooks (default a new one in a temporary folder)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Stdout, *db, *sales); err != nil {
		fmt.Fprintln(os.Stderr, "webhooks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, db string, sales int) (err error) {
	if db == "" {
		dir, err := os.MkdirTemp("", "errand-webhooks")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		db = filepath.Join(dir, "shop.db")
	}
	// Receivers that are away are what this program is about: no need to log each time.
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	q, err := errand.Open(ctx, db, &errand.Options{Logger: logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	hooks, err := webhook.New(q, &webhook.Options{
		AllowHTTP:      true, // the receivers are in this program
		AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		Policy:         quick,
		Logger:         logger,
	})
	if err != nil {
		return err
	}
	s := &shop{q: q, hooks: hooks}
	receivers, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, r := range receivers {
			err = errors.Join(err, r.Close())
		}
	}()
	if err := s.deliverWhile(ctx, func(ctx context.Context) error { return s.sell(ctx, sales, receivers) }); err != nil {
		return err
	}
	return account(out, s.first, sales, receivers)
}

// quick retries soon, as the receivers are back soon.
var quick = policy.Policy{MinDelay: 50 * time.Millisecond, MaxDelay: time.Second, Backoff: policy.Doubling, Retries: 100, MaxDelayRetries: 90}

// shop sells things.
type shop struct {
	q     *errand.Queue
	hooks *webhook.Webhooks
	first int // number of this run's sales
}

// Sale is what is sold, and the body of its event.
type Sale struct {
	Number   int    `json:"number"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// open makes the table of orders, and an endpoint for each receiver.
func (s *shop) open(ctx context.Context) (receivers []*receiver, err error) {
	err = s.q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL)`)
		if err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(number), 0) + 1 FROM orders`).Scan(&s.first)
	})
	if err != nil {
		return nil, err
	}
	for _, b := range []behaviour{flaky, slow, gone} {
		r, err := startReceiver(b)
		if err != nil {
			return nil, err
		}
		receivers = append(receivers, r)
		e := webhook.Endpoint{ID: r.name, URL: r.url, EventTypes: []string{"order.*"}}
		_, secret, err := s.hooks.Declare(ctx, e, r.secret)
		if err == nil && secret.Reveal() != r.secret.Reveal() { // it is there since an earlier run
			_, err = s.hooks.RotateSecret(ctx, e.ID, r.secret, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	return receivers, nil
}

// sell makes sales, and waits until all their events are delivered.
func (s *shop) sell(ctx context.Context, sales int, receivers []*receiver) error {
	for i := range sales {
		n := s.first + i
		if err := s.sale(ctx, Sale{Number: n, Customer: fmt.Sprintf("customer-%d", n%5), Cents: 100 * n}); err != nil {
			return err
		}
		if i == sales/2 {
			receivers[len(receivers)-1].Back()
		}
	}
	return s.settle(ctx)
}

// sale writes an order and sends its event, or neither. Events of a customer come in order.
func (s *shop) sale(ctx context.Context, sale Sale) error {
	body, err := json.Marshal(sale)
	if err != nil {
		return err
	}
	return s.q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO orders (number, customer, cents) VALUES (?, ?, ?)`, sale.Number, sale.Customer, sale.Cents)
		if err != nil {
			return err
		}
		_, err = s.hooks.SendAllTx(ctx, tx, webhook.Message{Type: "order.paid", Body: body, Group: sale.Customer})
		return err
	})
}

// deliverWhile delivers while f runs.
func (s *shop) deliverWhile(ctx context.Context, f func(context.Context) error) error {
	w := errand.NewWorker(s.q, &errand.WorkerOptions{Queues: []string{webhook.Queues}})
	s.hooks.Handle(w)
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(ctx)
		stop(err)
		ended <- err
	}()
	err := f(ctx)
	stop(nil)
	if failed := <-ended; failed != nil {
		err = failed
	}
	return err
}

// settle waits until no delivery waits.
func (s *shop) settle(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		counts, err := s.q.Counts(ctx)
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		waiting := int64(0)
		for _, c := range counts {
			switch c.State {
			case errand.Scheduled, errand.Ready, errand.Running, errand.Blocked:
				waiting += c.N
			}
		}
		if waiting == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// account says what the receivers have received.
func account(out io.Writer, first, sales int, receivers []*receiver) error {
	var all tally
	for _, r := range receivers {
		t := r.tally(first, sales)
		_, err := fmt.Fprintf(out, "%-6s received %d of %d in %d requests, %d of them refused; duplicates %d out-of-order %d\n",
			r.name, t.received, sales, t.requests, t.refused, t.duplicates, t.disorder)
		if err != nil {
			return err
		}
		all.received += t.received
		all.duplicates += t.duplicates
		all.disorder += t.disorder
	}
	published := sales * len(receivers)
	_, err := fmt.Fprintf(out, "published %d received %d lost %d duplicates %d out-of-order %d\n",
		published, all.received, published-all.received, all.duplicates, all.disorder)
	return err
}
