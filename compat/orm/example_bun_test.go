package orm_test

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/errandq/errand"
)

func orderBun(ctx context.Context, pool *sql.DB, q *errand.Queue, email string) error {
	db := bun.NewDB(pool, sqlitedialect.New())
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&Order{Email: email}).Exec(ctx); err != nil {
			return err
		}
		_, err := q.EnqueueTx(ctx, tx.Tx, Confirm{email}, nil)
		return err
	})
}
