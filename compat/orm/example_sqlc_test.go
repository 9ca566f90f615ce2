package orm_test

import (
	"context"
	"database/sql"

	"github.com/errandq/errand"
	"github.com/errandq/errand/compat/orm/sqlc"
)

func orderSQLC(ctx context.Context, pool *sql.DB, q *errand.Queue, email string) error {
	queries := sqlc.New(pool)
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after the commit there is nothing to roll back
	if err := queries.WithTx(tx).AddOrder(ctx, email); err != nil {
		return err
	}
	if _, err := q.EnqueueTx(ctx, tx, Confirm{email}, nil); err != nil {
		return err
	}
	return tx.Commit()
}
