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

// head reads the ready jobs of a lane for one merge: those that were read ahead,
// then those of a statement.
type head struct {
	*ahead
	lane  int64
	taken int // jobs of the lane that the merge returns
	slot  int // of the statement
	rows  driver.Rows
}

// merge reads the first lanes of a lineup side by side and returns the first n
// jobs, until it is called again. The lineup is afterwards as if they were leased.
func (s *statements) merge(l *lineup, n int) (out []jobRow, err error) {
	clear(s.merged)
	out = s.merged[:0]
	defer func() { s.merged = out }()
	most := 1
	if n < readAhead*len(l.order) && s.lineups.read < mostAhead {
		most = readAhead
	}
	err = s.hold(func() error {
		m := merger{statements: s}
		defer m.close()
		for len(out) < n && len(l.order) > 0 {
			b := l.order[0]
			at := b.head
			if at == nil {
				at = m.visit(b)
			} else {
				out = append(out, at.jobs[at.next])
				at.next++
				at.taken++
				s.lineups.read--
			}
			if at.left() == 0 && !at.end {
				if err := m.fill(at, most); err != nil {
					return err
				}
			}
			if at.left() > 0 {
				l.set(b, at.jobs[at.next].place())
			} else {
				l.empty(b)
			}
		}
		return nil
	})
	return out, err
}

// merger is what one merge has open.
type merger struct {
	*statements
	visited []*berth
	open    int   // statements, of which some may be
	free    []int // again
}

func (m *merger) visit(b *berth) *head {
	b.head = &head{ahead: m.lineups.aheadOf(b.lane), lane: b.lane}
	m.visited = append(m.visited, b)
	return b.head
}

// fill reads jobs ahead, at least one if there is any, and at most most.
func (m *merger) fill(at *head, most int) error {
	if at.rows == nil {
		if err := m.begin(at); err != nil {
			return err
		}
	}
	at.jobs, at.next = at.jobs[:0], 0
	for len(at.jobs) < most {
		switch err := at.rows.Next(m.heads[:]); {
		case errors.Is(err, io.EOF):
			_ = at.rows.Close()
			m.free = append(m.free, at.slot)
			at.end, at.rows = true, nil
			return nil
		case err != nil:
			return err
		}
		var r jobRow
		if err := r.set(at.lane, m.heads[:]); err != nil {
			return err
		}
		at.jobs = append(at.jobs, r)
		m.lineups.read++
	}
	return nil
}

// begin begins to read a lane with one of several equal statements, after the
// jobs that the merge has taken already.
func (m *merger) begin(at *head) error {
	at.slot = m.open
	if k := len(m.free); k > 0 {
		at.slot, m.free = m.free[k-1], m.free[:k-1]
	} else {
		m.open++
	}
	for len(m.lanes) <= at.slot {
		st, err := m.prepare(sqlHeads)
		if err != nil {
			return err
		}
		m.lanes = append(m.lanes, st)
	}
	args, err := m.bind(at.lane)
	if err != nil {
		return err
	}
	at.rows, err = m.lanes[at.slot].(driver.StmtQueryContext).QueryContext(context.Background(), args)
	for i := 0; err == nil && i < at.taken; i++ {
		err = at.rows.Next(m.heads[:])
	}
	return err
}

func (m *merger) close() {
	for _, b := range m.visited {
		if rows := b.head.rows; rows != nil {
			_ = rows.Close() // cut short on purpose
		}
		b.head = nil
	}
}
