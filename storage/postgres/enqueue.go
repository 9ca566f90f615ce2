package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

const (
	// Keys rise in the order of the arrays: unnest returns their elements in order, and
	// nothing comes between it and the rows.
	sqlInsert = `INSERT INTO errand_job (id, lane, state, priority, due_at, created_at, timeout, salt, weight, policy, headers, args)
SELECT nextval('errand_key'), * FROM unnest($1::integer[], $2::smallint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[],
  $7::integer[], $8::integer[], $9::bytea[], $10::bytea[], $11::bytea[])
RETURNING id`
	sqlDelta = `INSERT INTO errand_delta (lane, number, n) SELECT * FROM unnest($1::integer[], $2::smallint[], $3::bigint[])`
)

// The states as the tables have them.
const (
	scheduled = 1
	ready     = 2
	running   = 3
	done      = 4
	cancelled = 5
	dead      = 6
)

var states = [...]storage.State{
	scheduled: storage.Scheduled, ready: storage.Ready, running: storage.Running,
	done: storage.Done, cancelled: storage.Cancelled, dead: storage.Dead,
}

// One statement inserts so many jobs, and so many bytes and one job more: a message of
// the protocol has a limit.
const (
	insertJobs  = 10_000
	insertBytes = 8 << 20
)

// plain returns an error for a job that needs what the Store does not do yet.
func plain(jobs []storage.NewJob) error {
	for i := range jobs {
		j := &jobs[i]
		switch {
		case j.Unique != "" || j.Conflict != nil:
			return unsupported("a job with a unique key")
		case j.Group != "":
			return unsupported("a job of a group")
		case len(j.Tags) > 0:
			return unsupported("a job with tags")
		case j.StartWithin > 0 || j.FinishWithin > 0 || j.OnExpire != "":
			return unsupported("a job that has to begin in time")
		}
	}
	return nil
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
}

// entering adds jobs as of now. Their lanes are known.
func (s *Store) entering(e *entering, now time.Time, jobs []storage.NewJob) {
	for i := range jobs {
		j := &jobs[i]
		at := j.DueAt
		switch {
		case j.Delay > 0:
			at = now.Add(j.Delay)
		case at.IsZero():
			at = now
		}
		state := int16(ready)
		if at.After(now) {
			state = scheduled
		}
		e.lane = append(e.lane, s.lanes.number(storage.Lane{Queue: j.Queue, Kind: j.Kind}))
		e.state = append(e.state, state)
		e.priority = append(e.priority, int16(j.Priority))
		e.due = append(e.due, due(at))
		e.created = append(e.created, micros(now))
		e.timeout = append(e.timeout, length(j.Timeout))
		e.salt = append(e.salt, rand.Int32N(storage.MaxSalt+1))
		weight := len(j.Args) + len(j.Headers)
		e.weight = append(e.weight, int32(weight))
		e.policy = append(e.policy, optional(j.Policy))
		e.headers = append(e.headers, optional(j.Headers))
		if e.args = append(e.args, j.Args); j.Args == nil {
			e.args[len(e.args)-1] = []byte{}
		}
	}
}

// optional returns nil for what is empty.
func optional(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// insert queues the insertion, as few statements as may be.
func (e *entering) insert(b *pgx.Batch, d sums) {
	e.keys = e.keys[:0]
	for from := 0; from < len(e.lane); {
		to, size := from, 0
		for to < len(e.lane) && to-from < insertJobs && size < insertBytes {
			size += int(e.weight[to]) + len(e.policy[to])
			to++
		}
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
		from = to
	}
	for i := range e.lane {
		d.add(e.lane[i], e.state[i], 1)
	}
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
	if err := plain(jobs); err != nil || len(jobs) == 0 {
		return []storage.Enqueued{}, err
	}
	if err := s.know(ctx, jobs); err != nil {
		return nil, err
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
		d := sums{}
		e.insert(b, d)
		s.count(b, d)
		return s.commitAs(ctx, c, b, number, true)
	}, e.recall)
	if err != nil {
		return err
	}
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
