// Command backlite is a small program with backlite, as in its README.
package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mikestefanello/backlite"
	_ "modernc.org/sqlite"

	"github.com/errandq/errand/bench/small"
)

type work struct{}

func (work) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "work", MaxAttempts: 5, Timeout: 5 * time.Second, Backoff: 30 * time.Second}
}

type queue struct {
	db     *sql.DB
	client *backlite.Client
}

func main() {
	small.Main(func(ctx context.Context, path string, handled func()) (small.Queue, error) {
		db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
		if err != nil {
			return nil, err
		}
		c, err := backlite.NewClient(backlite.ClientConfig{DB: db, ReleaseAfter: 10 * time.Minute, NumWorkers: 10, CleanupInterval: time.Hour})
		if err == nil {
			c.Register(backlite.NewQueue(func(context.Context, work) error {
				handled()
				return nil
			}))
			err = c.Install()
		}
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		c.Start(ctx)
		return queue{db, c}, nil
	})
}

func (q queue) Enqueue(ctx context.Context) error {
	_, err := q.client.Add(work{}).Ctx(ctx).Save()
	return err
}

func (q queue) Close() error {
	if !q.client.Stop(context.Background()) {
		return errors.New("backlite did not stop")
	}
	return q.db.Close()
}
