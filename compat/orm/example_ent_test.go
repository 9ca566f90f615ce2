package orm_test

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"

	"github.com/errandq/errand"
)

// inTx has a client of Ent write in an open transaction, and so begin none.
type inTx struct{ *entsql.Driver }

// Tx implements [dialect.Driver].
func (d inTx) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

func orderEnt(ctx context.Context, pool *sql.DB, q *errand.Queue, email string) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()                                                            // after the commit there is nothing to roll back
	driver := inTx{entsql.NewDriver(dialect.SQLite, entsql.Conn{ExecQuerier: tx})} // for ent.NewClient(ent.Driver(driver))
	if err := createOrder(ctx, driver, email); err != nil {
		return err
	}
	if _, err := q.EnqueueTx(ctx, tx, Confirm{email}, nil); err != nil {
		return err
	}
	return tx.Commit()
}

// createOrder does what the code that Ent generates for a schema does on its driver.
func createOrder(ctx context.Context, driver dialect.Driver, email string) error {
	return sqlgraph.CreateNode(ctx, driver, &sqlgraph.CreateSpec{
		Table:  "orders",
		ID:     &sqlgraph.FieldSpec{Column: "id", Type: field.TypeInt},
		Fields: []*sqlgraph.FieldSpec{{Column: "email", Type: field.TypeString, Value: email}},
	})
}
