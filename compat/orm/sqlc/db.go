package sqlc

import (
	"context"
	"database/sql"
)

type DBTX interface {
	ExecContext(context.Context, string, ...interface{}) (sql.Result, error)
}

func New(db DBTX) *Queries { return &Queries{db: db} }

type Queries struct{ db DBTX }

func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{db: tx} }

func (q *Queries) AddOrder(ctx context.Context, email string) error {
	_, err := q.db.ExecContext(ctx, "INSERT INTO orders (email) VALUES (?)", email)
	return err
}
