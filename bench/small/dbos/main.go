// Command dbos is a small program with DBOS Transact on SQLite, and its defaults.
package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite"

	"github.com/errandq/errand/bench/small"
)

type queue struct{ dbos dbos.Context }

func main() {
	small.Main(func(ctx context.Context, path string, handled func()) (small.Queue, error) {
		c, err := dbos.NewContext(ctx, dbos.Config{
			AppName: "small", DatabaseURL: "sqlite:" + path, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, err
		}
		dbos.RegisterWorkflow(c, func(dbos.Context, string) (string, error) {
			handled()
			return "", nil
		}, dbos.WithWorkflowName("work"))
		if _, err = dbos.RegisterQueue(c, "work"); err == nil {
			err = dbos.Launch(c)
		}
		q := queue{c}
		if err != nil {
			return nil, errors.Join(err, q.Close())
		}
		return q, nil
	})
}

func (q queue) Enqueue(context.Context) error {
	_, err := dbos.Enqueue[string](q.dbos, "work", "work", "")
	return err
}

func (q queue) Close() error { return dbos.Shutdown(q.dbos, time.Minute) }
