package orm_test

import (
	"context"
	"database/sql"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/errandq/errand"
)

// Order is a row of the application, for GORM and Bun.
type Order struct {
	ID    int64 `bun:",pk,autoincrement"`
	Email string
}

func orderGORM(ctx context.Context, pool *sql.DB, q *errand.Queue, email string) error {
	db, err := gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{})
	if err != nil {
		return err
	}
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&Order{Email: email}).Error; err != nil {
			return err
		}
		_, err := q.EnqueueTx(ctx, tx.Statement.ConnPool.(*sql.Tx), Confirm{email}, nil)
		return err
	})
}
