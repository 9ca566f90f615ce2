package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
)

const (
	sqlBegin  = `BEGIN IMMEDIATE`
	sqlCommit = `COMMIT`
)

// loop is one held connection with its prepared statements.
type loop struct {
	db    *sql.DB
	conn  *sql.Conn
	held  any // the driver's connection, within a transaction
	stmts map[string]driver.Stmt
	args  []driver.NamedValue // reused
}

// open opens a file with the pragmas of errand's writer, and makes its tables
// unless the one named is there.
func (l *loop) open(ctx context.Context, s setup, schema, table string) (err error) {
	if l.db, err = s.open(errandPragmas...); err != nil {
		return err
	}
	l.stmts = map[string]driver.Stmt{}
	if l.conn, err = l.db.Conn(ctx); err != nil {
		return errors.Join(err, l.db.Close())
	}
	var n int
	err = l.conn.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE name = ?1`, table).Scan(&n)
	if err == nil && n == 0 {
		_, err = l.conn.ExecContext(ctx, schema)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return nil
}

// exec runs a statement, past database/sql: what that does around a statement
// takes a quarter of its time. The background context is on purpose: with one
// that can end, the driver starts a goroutine for each statement.
func (l *loop) exec(text string, args ...any) error {
	return l.raw(text, args, func(st driver.Stmt, args []driver.NamedValue) error {
		_, err := st.(driver.StmtExecContext).ExecContext(context.Background(), args)
		return err
	})
}

// query runs a query, and calls row with the values of each row, which are good
// only for that call.
func (l *loop) query(row func(values []driver.Value) error, text string, args ...any) error {
	return l.raw(text, args, func(st driver.Stmt, args []driver.NamedValue) (err error) {
		rows, err := st.(driver.StmtQueryContext).QueryContext(context.Background(), args)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		values := make([]driver.Value, len(rows.Columns()))
		for {
			switch err := rows.Next(values); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			if err := row(values); err != nil {
				return err
			}
		}
	})
}

// raw prepares each text once, and returns the statement with its arguments.
func (l *loop) raw(text string, args []any, f func(driver.Stmt, []driver.NamedValue) error) error {
	return l.hold(func(conn any) (err error) {
		st := l.stmts[text]
		if st == nil {
			if st, err = conn.(driver.ConnPrepareContext).PrepareContext(context.Background(), text); err != nil {
				return err
			}
			l.stmts[text] = st
		}
		l.args = l.args[:0]
		for i, a := range args {
			if n, ok := a.(int); ok {
				a = int64(n) // database/sql would do that
			}
			l.args = append(l.args, driver.NamedValue{Ordinal: i + 1, Value: a})
		}
		return f(st, l.args)
	})
}

// hold runs f with the driver's connection, which within a transaction is at
// hand.
func (l *loop) hold(f func(conn any) error) error {
	if l.held != nil {
		return f(l.held)
	}
	return l.conn.Raw(f)
}

// tx runs f in one transaction. After an error the measurement is over, so
// nothing is rolled back.
func (l *loop) tx(f func() error) error {
	return l.hold(func(conn any) error {
		l.held = conn
		defer func() { l.held = nil }()
		if err := l.exec(sqlBegin); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		return l.exec(sqlCommit)
	})
}

func (l *loop) Durability(ctx context.Context) (string, error) { return durability(ctx, l.conn) }

func (l *loop) Close() error {
	err := l.conn.Raw(func(any) (err error) {
		for _, st := range l.stmts {
			err = errors.Join(err, st.Close())
		}
		return err
	})
	return errors.Join(err, l.conn.Close(), l.db.Close())
}
