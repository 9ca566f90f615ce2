package main

import (
	"context"
	"database/sql"
	"errors"
)

const (
	sqlBegin  = `BEGIN IMMEDIATE`
	sqlCommit = `COMMIT`
)

// loop is one held connection with its prepared statements.
type loop struct {
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// open opens a file with the pragmas of errand's writer, and makes its tables
// unless the one named is there.
func (l *loop) open(ctx context.Context, path, schema, table string) (err error) {
	if l.db, err = openDB(path, 1, errandPragmas...); err != nil {
		return err
	}
	l.stmts = map[string]*sql.Stmt{}
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

// stmt prepares each text once. The background context is that of errand: with
// one that can end, the driver starts a goroutine for each statement.
func (l *loop) stmt(text string) (*sql.Stmt, error) {
	if st, ok := l.stmts[text]; ok {
		return st, nil
	}
	st, err := l.conn.PrepareContext(context.Background(), text)
	if err == nil {
		l.stmts[text] = st
	}
	return st, err
}

func (l *loop) exec(text string, args ...any) error {
	st, err := l.stmt(text)
	if err != nil {
		return err
	}
	_, err = st.Exec(args...)
	return err
}

// tx runs f in one transaction. After an error the measurement is over, so
// nothing is rolled back.
func (l *loop) tx(f func() error) error {
	if err := l.exec(sqlBegin); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return l.exec(sqlCommit)
}

func (l *loop) Durability(ctx context.Context) (string, error) { return durability(ctx, l.conn) }

func (l *loop) Close() error {
	errs := make([]error, 0, len(l.stmts)+2)
	for _, st := range l.stmts {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, l.conn.Close(), l.db.Close())...)
}
