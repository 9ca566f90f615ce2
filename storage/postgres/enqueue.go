package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// Keys rise in the order of the arrays: unnest returns their elements in order, and
	// nothing comes between it and the rows.
	sqlInsert = `INSERT INTO errand_job (id, lane, state, priority, due_at, created_at, timeout, salt, weight, policy, headers, args)
SELECT nextval('errand_key'), * FROM unnest($1::integer[], $2::smallint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[],
  $7::integer[], $8::integer[], $9::bytea[], $10::bytea[], $11::bytea[])
RETURNING id`
	sqlDelta = `INSERT INTO errand_delta SELECT * FROM unnest($1::integer[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])`
)

// The states as the tables have them.
const (
	scheduled = 1
	ready     = 2
	running   = 3
	done      = 4
	cancelled = 5
	dead      = 6
	blocked   = 7
)

var states = [...]storage.State{
	scheduled: storage.Scheduled, ready: storage.Ready, running: storage.Running,
	done: storage.Done, cancelled: storage.Cancelled, dead: storage.Dead, blocked: storage.Blocked,
}

// codeOf returns a state as the tables have it.
func codeOf(s storage.State) int16 { return int16(slices.Index(states[:], s)) }

// One statement inserts so many jobs, and so many bytes and one job more: a message of
// the protocol has a limit.
const (
	insertJobs  = 10_000
	insertBytes = 8 << 20
)

// supported returns an error for a job that needs what the Store does not do yet. It reports
// whether all are plain.
func supported(jobs []storage.NewJob) (plain bool, err error) {
	plain = true
	for i := range jobs {
		j := &jobs[i]
		if err := unsupported(j.Needs()...); err != nil {
			return false, err
		}
		plain = plain && rules.PlainJob(j)
	}
	return plain, nil
}

// entering are jobs that enter the table, as columns. The slices of bytes are those of
// the caller.
type entering struct {
	lane     []int32
	state    []int16
	priority []int16
	due      []int64
	created  []int64
	timeout  []int64
	salt     []int32
	weight   []int32
	policy   [][]byte
	headers  [][]byte
	args     [][]byte
	keys     []int64 // once they are inserted

	// Only of jobs of which some have unique keys or groups. These have placeColumns beside them, and so
	// neither state, due nor keys.
	unique [][]byte
	group  []*string
}

// entering adds jobs as of now. Their lanes are known, and all of them are plain.
func (s *Store) entering(e *entering, now time.Time, jobs []storage.NewJob) {
	for i := range jobs {
		j := &jobs[i]
		state, due, _ := rules.DueTime(now, j)
		e.state, e.due = append(e.state, codeOf(state)), append(e.due, due)
		e.add(s.lanes.number(storage.Lane{Queue: j.Queue, Kind: j.Kind}), newSalt(), micros(now), j, j)
	}
}

func newSalt() int32 { return rand.Int32N(storage.MaxSalt + 1) }

// add adds what a job has apart from its state and its due time. does is whose work it does: its
// own, or that of another one of the call whose Conflict has replaced it.
func (e *entering) add(lane, salt int32, created int64, j, does *storage.NewJob) {
	e.lane, e.created, e.salt = append(e.lane, lane), append(e.created, created), append(e.salt, salt)
	e.timeout, e.policy = append(e.timeout, length(j.Timeout)), append(e.policy, optional(j.Policy))
	e.priority, e.weight = append(e.priority, int16(does.Priority)), append(e.weight, weightOf(does))
	e.headers, e.args = append(e.headers, optional(does.Headers)), append(e.args, filled(does.Args))
}

// weightOf returns how many bytes a job has beside its row.
func weightOf(j *storage.NewJob) int32 { return int32(len(j.Args) + len(j.Headers)) }

// insertRows queues the insertion of jobs of which some have unique keys or groups.
func insertRows(b *pgx.Batch, rows []*rules.Row) {
	var e entering
	var p placeColumns
	p.grow(len(rows))
	for _, r := range rows {
		p.add(&r.Is)
		e.add(int32(r.Is.Lane), int32(r.Is.Salt), r.Is.Created, r.New, r.Does)
		e.unique = append(e.unique, optional([]byte(r.New.Unique)))
		var group *string
		if r.Is.Group != "" {
			group = &r.Is.Group
		}
		e.group = append(e.group, group)
	}
	e.inParts(func(from, to int) {
		b.Queue(sqlInsertBeside, p.part(from, to).behind(e.lane[from:to], e.priority[from:to], e.created[from:to], e.timeout[from:to],
			e.salt[from:to], e.weight[from:to], e.policy[from:to], e.headers[from:to], e.args[from:to], e.unique[from:to], e.group[from:to])...)
	})
}

// optional returns nil for what is empty.
func optional(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// insert queues the insertion of plain jobs, and counts them.
func (s *Store) insert(b *pgx.Batch, e *entering) {
	e.keys = e.keys[:0]
	e.inParts(func(from, to int) { e.insertPart(b, from, to) })
	var c rules.Changes
	for i := range e.lane {
		c.Numbers.Follow(rules.Standing{}, rules.Standing{Lane: int64(e.lane[i]), State: states[e.state[i]], Bytes: int64(e.weight[i])}, "")
	}
	s.count(b, &c)
}

// inParts calls queue for the jobs of each statement, of as few as may be.
func (e *entering) inParts(queue func(from, to int)) {
	for from := 0; from < len(e.lane); {
		to, size := from, 0
		for to < len(e.lane) && to-from < insertJobs && size < insertBytes {
			size += int(e.weight[to]) + len(e.policy[to])
			to++
		}
		queue(from, to)
		from = to
	}
}

// insertPart queues one statement.
func (e *entering) insertPart(b *pgx.Batch, from, to int) {
	n := to - from
	b.Queue(sqlInsert, e.lane[from:to], e.state[from:to], e.priority[from:to], e.due[from:to], e.created[from:to], e.timeout[from:to],
		e.salt[from:to], e.weight[from:to], e.policy[from:to], e.headers[from:to], e.args[from:to],
	).Query(func(rows pgx.Rows) error {
		keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err == nil && len(keys) != n {
			err = fmt.Errorf("%d of %d jobs were inserted", len(keys), n)
		}
		// The order of the rows returned is that of insertion, which nobody promises.
		slices.Sort(keys)
		e.keys = append(e.keys, keys...)
		return err
	})
}

// id returns the ID of the i-th job, once it is inserted.
func (e *entering) id(i int) storage.ID { return jobID(e.created[i], e.salt[i], e.keys[i]) }

func jobID(created int64, salt int32, key int64) storage.ID {
	return storage.NewID(fromMicros(created), uint32(salt), key)
}

// Enqueue implements [storage.Store].
func (s *Store) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	plain, err := supported(jobs)
	if err != nil || len(jobs) == 0 {
		return []storage.Enqueued{}, err
	}
	if err := s.know(ctx, jobs); err != nil {
		return nil, err
	}
	if !plain || s.long {
		return s.enqueueBeside(ctx, now, jobs)
	}
	r := newRequest(now, jobs)
	s.grouped.do(ctx, r, s.enqueue)
	return r.answers, r.err
}

// enqueue inserts the jobs of all requests in one transaction.
func (s *Store) enqueue(ctx context.Context, all []*request) error {
	var e entering
	for _, r := range all {
		s.entering(&e, r.now, r.jobs)
	}
	number := s.sent.begin()
	defer s.sent.end(number)
	err := s.runTo(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		s.insert(b, &e)
		return s.commitAs(ctx, c, b, number, true)
	}, e.recall)
	if err != nil {
		return err
	}
	var n news
	for i, state := range e.state {
		n.add(e.lane[i], states[state], e.due[i])
	}
	n.bulk = slices.ContainsFunc(e.lane, s.isBulk)
	s.wake.committed(n)
	i := 0
	for _, r := range all {
		r.answers = make([]storage.Enqueued, len(r.jobs))
		for k := range r.jobs {
			r.answers[k].ID = e.id(i)
			i++
		}
	}
	return nil
}
