package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
)

// statements runs SQL on one connection, preparing each text once. It goes past
// database/sql, inside of conn.Raw, where that can be done simply: what it does
// around a statement takes a quarter of the time of the statement, and half of
// that of reading a row.
type statements struct {
	conn  *sql.Conn
	raw   map[string]driver.Stmt // by text
	plain map[string]*sql.Stmt   // by text, for query
	lanes []driver.Stmt          // of sqlHeads: one for each lane read at the same time

	args   []driver.NamedValue // reused, as the next two
	values []driver.Value
	heads  [headColumns]driver.Value
}

func newStatements(conn *sql.Conn) *statements {
	return &statements{conn: conn, raw: map[string]driver.Stmt{}, plain: map[string]*sql.Stmt{}}
}

// prepareOn prepares a statement inside of conn.Raw. The background context is
// on purpose, here and below: with one that can end the driver starts a
// goroutine for each statement.
func prepareOn(conn any, text string) (driver.Stmt, error) {
	c, ok := conn.(driver.ConnPrepareContext)
	if !ok {
		return nil, fmt.Errorf("errand: connection %T cannot prepare", conn)
	}
	return c.PrepareContext(context.Background(), text)
}

// run calls f with a prepared statement and its arguments.
func (s *statements) run(text string, args []any, f func(st driver.Stmt, args []driver.NamedValue) error) error {
	return s.conn.Raw(func(conn any) (err error) {
		st := s.raw[text]
		if st == nil {
			if st, err = prepareOn(conn, text); err != nil {
				return err
			}
			s.raw[text] = st
		}
		bound, err := s.bind(args...)
		if err != nil {
			return err
		}
		return f(st, bound)
	})
}

func (s *statements) bind(args ...any) ([]driver.NamedValue, error) {
	s.args = s.args[:0]
	for i, a := range args {
		switch a.(type) {
		case nil, int64, string, []byte:
		default:
			v, err := driver.DefaultParameterConverter.ConvertValue(a)
			if err != nil {
				return nil, fmt.Errorf("errand: argument %d: %w", i+1, err)
			}
			a = v
		}
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s.args, nil
}

func (s *statements) exec(text string, args ...any) (res sql.Result, err error) {
	err = s.run(text, args, func(st driver.Stmt, args []driver.NamedValue) (err error) {
		res, err = st.(driver.StmtExecContext).ExecContext(context.Background(), args)
		return err
	})
	return res, err
}

// row runs a query for at most one row; [sql.ErrNoRows] if there is none. What
// it gives as []byte is nobody else's.
func (s *statements) row(text string, args []any, dest ...any) error {
	return s.run(text, args, func(st driver.Stmt, args []driver.NamedValue) error {
		rows, err := st.(driver.StmtQueryContext).QueryContext(context.Background(), args)
		if err != nil {
			return err
		}
		s.values = slices.Grow(s.values[:0], len(dest))[:len(dest)]
		switch err = rows.Next(s.values); {
		case errors.Is(err, io.EOF):
			err = sql.ErrNoRows
		case err == nil:
			err = scan(s.values, dest)
		}
		if e := rows.Close(); err == nil {
			err = e
		}
		return err
	})
}

// scan is that of database/sql for the types there are here.
func scan(values []driver.Value, dest []any) error {
	for i, v := range values {
		ok := true
		switch d := dest[i].(type) {
		case sql.Scanner:
			if err := d.Scan(v); err != nil {
				return fmt.Errorf("errand: column %d: %w", i, err)
			}
		case *string:
			*d, ok = v.(string)
		case *[]byte:
			switch v := v.(type) {
			case nil:
				*d = nil
			case []byte:
				*d = v
			case string:
				*d = []byte(v)
			default:
				ok = false
			}
		default:
			var n int64
			if n, ok = v.(int64); ok {
				ok = setInt(d, n)
			}
		}
		if !ok {
			return fmt.Errorf("errand: column %d is a %T: does not fit a %T", i, v, dest[i])
		}
	}
	return nil
}

func setInt(dest any, n int64) bool {
	switch d := dest.(type) {
	case *int64:
		*d = n
	case *int:
		*d = int(n)
	case *uint32:
		*d = uint32(n)
	case *bool:
		*d = n != 0
	default:
		return false
	}
	return true
}

// query runs a query of which there may be any number of rows.
func (s *statements) query(text string, args ...any) (*sql.Rows, error) {
	st, ok := s.plain[text]
	if !ok {
		var err error
		if st, err = s.conn.PrepareContext(context.Background(), text); err != nil {
			return nil, err
		}
		s.plain[text] = st
	}
	return st.Query(args...)
}

// close closes the statements, for open ones would keep the connection open,
// and gives that back to the pool, which reports what matters.
func (s *statements) close() {
	for _, st := range s.plain {
		_ = st.Close()
	}
	_ = s.conn.Raw(func(any) error {
		for _, st := range s.raw {
			_ = st.Close()
		}
		for _, st := range s.lanes {
			_ = st.Close()
		}
		return nil
	})
	_ = s.conn.Close()
}
