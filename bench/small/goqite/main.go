// Command goqite is a small program with goqite and its runner, as in its README.
package main

import (
	"context"
	"database/sql"
	"errors"
	"os"

	"maragu.dev/goqite"
	"maragu.dev/goqite/jobs"
	_ "modernc.org/sqlite"

	"github.com/errandq/errand/bench/small"
)

type queue struct {
	db    *sql.DB
	queue *goqite.Queue
	stop  context.CancelFunc
	ended chan struct{}
}

func main() {
	small.Main(func(ctx context.Context, path string, handled func()) (small.Queue, error) {
		schema, err := os.ReadFile("goqite.sql")
		if err != nil {
			return nil, err
		}
		_, missing := os.Stat(path)
		db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1)
		if missing != nil {
			if _, err := db.ExecContext(ctx, string(schema)); err != nil {
				return nil, errors.Join(err, db.Close())
			}
		}
		q := goqite.New(goqite.NewOpts{DB: db, Name: "jobs"})
		r := jobs.NewRunner(jobs.NewRunnerOpts{Queue: q})
		r.Register("work", func(context.Context, []byte) error {
			handled()
			return nil
		})
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			r.Start(ctx)
			close(ended)
		}()
		return queue{db, q, stop, ended}, nil
	})
}

func (q queue) Enqueue(ctx context.Context) error {
	_, err := jobs.Create(ctx, q.queue, "work", goqite.Message{Body: []byte("{}")})
	return err
}

func (q queue) Close() error {
	q.stop()
	<-q.ended
	return q.db.Close()
}
