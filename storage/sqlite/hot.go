package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// hot runs the few statements that each job costs on the driver itself, on the
// writer's connection: what database/sql does around a statement takes a third
// of the time of the statement, and half of that of reading a row. Everything
// else goes through [statements].
type hot struct {
	conn   *sql.Conn
	byText map[string]driver.Stmt
	lanes  []driver.Stmt       // of sqlHeads: one for each lane read at the same time
	args   []driver.NamedValue // reused
	values []driver.Value      // reused
}

// prepare gives a statement for use inside of conn.Raw.
func (h *hot) prepare(conn any, text string) (driver.Stmt, error) {
	c, ok := conn.(driver.ConnPrepareContext)
	if !ok {
		return nil, fmt.Errorf("errand: driver connection %T cannot prepare", conn)
	}
	// The background context is on purpose, see statements.
	return c.PrepareContext(context.Background(), text)
}

// exec runs a statement and gives how many rows it has changed.
func (h *hot) exec(text string, args ...int64) (n int64, err error) {
	err = h.conn.Raw(func(conn any) error {
		st := h.byText[text]
		if st == nil {
			if st, err = h.prepare(conn, text); err != nil {
				return err
			}
			h.byText[text] = st
		}
		res, err := st.(driver.StmtExecContext).ExecContext(context.Background(), h.bind(args...))
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n, err
}

func (h *hot) bind(args ...int64) []driver.NamedValue {
	h.args = h.args[:0]
	for i, a := range args {
		h.args = append(h.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return h.args
}

// head is the first job of a lane that has not been taken yet.
type head struct {
	rows driver.Rows
	row  leasedRow
}

// advance reads the next row; false if there is none.
func (h *hot) advance(at *head) (bool, error) {
	switch err := at.rows.Next(h.values); {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, at.row.set(h.values)
}

// merge reads the heads of all lanes side by side and gives the first n jobs.
// Of each lane it reads no more than one row ahead.
func (h *hot) merge(lanes []int64, n int) (out []leasedRow, err error) {
	err = h.conn.Raw(func(conn any) error {
		heads := make([]*head, 0, len(lanes))
		defer func() {
			for _, at := range heads {
				_ = at.rows.Close() // read to its end, or cut short on purpose
			}
		}()
		for _, lane := range lanes {
			at, err := h.open(conn, len(heads), lane)
			if err != nil {
				return err
			}
			if at != nil {
				heads = append(heads, at)
			}
		}
		for len(out) < n && len(heads) > 0 {
			first := 0
			for i := range heads {
				if heads[i].row.before(&heads[first].row) {
					first = i
				}
			}
			at := heads[first]
			out = append(out, at.row)
			more, err := h.advance(at)
			if err != nil {
				return err
			}
			if !more {
				_ = at.rows.Close()
				heads = append(heads[:first], heads[first+1:]...)
			}
		}
		return nil
	})
	return out, err
}

// open begins to read a lane with the i-th of several equal statements; nil if
// there is nothing in it.
func (h *hot) open(conn any, i int, lane int64) (*head, error) {
	for len(h.lanes) <= i {
		st, err := h.prepare(conn, sqlHeads)
		if err != nil {
			return nil, err
		}
		h.lanes = append(h.lanes, st)
	}
	rows, err := h.lanes[i].(driver.StmtQueryContext).QueryContext(context.Background(), h.bind(lane))
	if err != nil {
		return nil, err
	}
	if n := len(rows.Columns()); len(h.values) != n {
		h.values = make([]driver.Value, n)
	}
	at := &head{rows: rows}
	more, err := h.advance(at)
	if err != nil || !more {
		return nil, errors.Join(err, rows.Close())
	}
	return at, nil
}

func (h *hot) close() {
	_ = h.conn.Raw(func(any) error {
		for _, st := range h.byText {
			_ = st.Close()
		}
		for _, st := range h.lanes {
			_ = st.Close()
		}
		return nil
	})
}
