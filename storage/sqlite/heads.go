package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
)

// head is the first job of a lane that has not been taken yet.
type head struct {
	rows driver.Rows
	row  leasedRow
}

// advance reads the next row; false if there is none.
func (s *statements) advance(at *head) (bool, error) {
	switch err := at.rows.Next(s.heads[:]); {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, at.row.set(s.heads[:])
}

// merge reads the heads of all lanes side by side and gives the first n jobs.
// Of each lane it reads no more than one row ahead.
func (s *statements) merge(lanes []int64, n int) (out []leasedRow, err error) {
	err = s.conn.Raw(func(conn any) error {
		heads := make([]*head, 0, len(lanes))
		defer func() {
			for _, at := range heads {
				_ = at.rows.Close() // read to its end, or cut short on purpose
			}
		}()
		for _, lane := range lanes {
			at, err := s.open(conn, len(heads), lane)
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
			more, err := s.advance(at)
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
func (s *statements) open(conn any, i int, lane int64) (*head, error) {
	for len(s.lanes) <= i {
		st, err := prepareOn(conn, sqlHeads)
		if err != nil {
			return nil, err
		}
		s.lanes = append(s.lanes, st)
	}
	args, err := s.bind(lane)
	if err != nil {
		return nil, err
	}
	rows, err := s.lanes[i].(driver.StmtQueryContext).QueryContext(context.Background(), args)
	if err != nil {
		return nil, err
	}
	at := &head{rows: rows}
	more, err := s.advance(at)
	if err != nil || !more {
		return nil, errors.Join(err, rows.Close())
	}
	return at, nil
}
