package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/errandq/errand/storage"
)

// Asking for a column takes as long as a tenth of the whole, so that the numbers
// that most jobs do not have come as one, which for them is NULL.
// There is no limit: the reader stops when it has enough.
var sqlHeads = `SELECT id, priority, due_at, attempt, salt, created_at, headers, args, unique_key,
CASE WHEN ` + strings.ReplaceAll(numberColumns, ",", " |") + ` OR args IS NULL
THEN ` + strings.ReplaceAll(numberColumns, ", ", " || ' ' || ") + ` || ' ' || (args IS NULL) END
FROM errand_job WHERE state = 2 AND lane = ?1 ORDER BY priority DESC, due_at, id`

const headColumns = 10

// set takes the values of a row of sqlHeads. The driver returns int64, string,
// nil, and []byte that nobody else has.
func (r *jobRow) set(lane int64, v []driver.Value) error {
	var ints [6]int64
	for i := range ints {
		x, ok := v[i].(int64)
		if !ok {
			return fmt.Errorf("%w: column %d of a ready job is a %T: must be an integer", storage.ErrCorrupt, i, v[i])
		}
		ints[i] = x
	}
	*r = jobRow{Priority: int(ints[1]), DueAt: ints[2], Salt: uint32(ints[4]), CreatedAt: ints[5]}
	r.ID, r.Lane, r.State, r.Attempt = ints[0], lane, ready, int(ints[3])
	r.Headers, _ = v[6].([]byte) // nil if NULL
	r.Args, _ = v[7].([]byte)
	r.UniqueKey.String, r.UniqueKey.Valid = v[8].(string)
	if rest, ok := v[9].(string); ok {
		return r.setRest(rest)
	}
	return nil
}

func (r *jobRow) setRest(text string) error {
	next := func() (n int64, err error) {
		word, rest, _ := strings.Cut(text, " ")
		text = rest
		if n, err = strconv.ParseInt(word, 10, 64); err != nil {
			err = fmt.Errorf("%w: numbers of a ready job: %w", storage.ErrCorrupt, err)
		}
		return n, err
	}
	for _, to := range r.numbers() {
		n, err := next()
		if err != nil {
			return err
		}
		*to = n
	}
	beside, err := next()
	r.Beside = beside != 0
	return err
}

// place returns that of the job in the common order.
func (r *jobRow) place() place { return place{r.Priority, r.DueAt, r.ID} }

// head is the first job of a lane that has not been taken yet.
type head struct {
	*berth
	slot int // of the statement
	rows driver.Rows
	row  jobRow
}

// advance reads the next row; false if there is none.
func (s *statements) advance(at *head) (bool, error) {
	switch err := at.rows.Next(s.heads[:]); {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, at.row.set(at.lane, s.heads[:])
}

// merge reads the first lanes of a lineup side by side and returns the first n
// jobs, until it is called again. Of each lane it reads no more than one row
// ahead. The lineup is afterwards as if they were leased.
func (s *statements) merge(l *lineup, n int) (out []jobRow, err error) {
	clear(s.merged)
	out = s.merged[:0]
	defer func() { s.merged = out }()
	err = s.hold(func() error {
		var heads []*head // that were opened
		var free []int    // slots of those that have been read to their end
		defer func() {
			for _, at := range heads {
				at.head = nil
				_ = at.rows.Close() // read to its end, or cut short on purpose
			}
		}()
		for len(out) < n && len(l.order) > 0 {
			b := l.order[0]
			at := b.head
			if at == nil {
				slot := len(heads)
				if k := len(free); k > 0 {
					slot, free = free[k-1], free[:k-1]
				}
				if at, err = s.open(slot, b); err != nil {
					return err
				}
				heads = append(heads, at)
			} else {
				out = append(out, at.row)
			}
			more, err := s.advance(at)
			switch {
			case err != nil:
				return err
			case more:
				l.set(b, at.row.place())
			default:
				_ = at.rows.Close()
				free = append(free, at.slot)
				l.empty(b)
			}
		}
		return nil
	})
	return out, err
}

// open begins to read a lane with one of several equal statements.
func (s *statements) open(slot int, b *berth) (*head, error) {
	for len(s.lanes) <= slot {
		st, err := s.prepare(sqlHeads)
		if err != nil {
			return nil, err
		}
		s.lanes = append(s.lanes, st)
	}
	args, err := s.bind(b.lane)
	if err != nil {
		return nil, err
	}
	rows, err := s.lanes[slot].(driver.StmtQueryContext).QueryContext(context.Background(), args)
	if err != nil {
		return nil, err
	}
	at := &head{berth: b, slot: slot, rows: rows}
	b.head = at
	return at, nil
}
