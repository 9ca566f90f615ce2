// Command appdb is a web application with its queue in its own database: a sign-up writes a user
// and a job in one transaction. It shows the queue to those who know a password, and to Prometheus.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/metrics"
	"github.com/errandq/errand/storage/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	defer stop()
	if err := run(ctx, "app.db", "localhost:8080", os.Getenv("OPS_PASSWORD")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path, addr, password string) (err error) {
	db, err := openDB(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }() // last
	store, err := sqlite.New(db.DB, nil)
	if err != nil {
		return err
	}
	q, err := errand.New(ctx, store, nil)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	defer func() { err = errors.Join(err, q.Close()) }() // after the worker; it closes the store

	a := &app{db: db, q: q, mail: logMail}
	ops := map[string]dashboard.User{"ops": {Password: password, Role: dashboard.Operator}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /users", a.postUser)
	mux.Handle("/errand/", dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Basic(ops)}))
	mux.Handle("GET /metrics", metrics.Handler(q, &metrics.Options{File: path}))
	return serve(ctx, addr, mux, a.worker())
}

// openDB opens the application's database, with its tables.
func openDB(ctx context.Context, path string) (*sqlx.DB, error) {
	db, err := sqlite.OpenDB(path, "foreign_keys(1)")
	if err != nil {
		return nil, err
	}
	const table = `CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE)`
	if _, err := db.ExecContext(ctx, table); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return sqlx.NewDb(db, "sqlite"), nil
}

func logMail(_ context.Context, to, text string) error { return log.Output(1, text+" to "+to) }
