// Package sqlc has the types and methods of code that sqlc generates, written by hand: of
// the query "-- name: AddOrder :exec".
package sqlc

import (
	"context"
	"database/sql"
)

// DBTX is a pool or a transaction.
type DBTX interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

// New returns queries on a pool.
func New(db DBTX) *Queries { return &Queries{db: db} }

// Queries of an application.
type Queries struct{ db DBTX }

// WithTx returns the queries in a transaction.
func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{db: tx} }

// AddOrder adds an order.
func (q *Queries) AddOrder(ctx context.Context, email string) error {
	_, err := q.db.ExecContext(ctx, "INSERT INTO orders (email) VALUES (?)", email)
	return err
}
