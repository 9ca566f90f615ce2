package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

// A call has a number in its Store. Each transaction that writes ends with a row of
// errand_call that says so: a mark. Who does not get the answer to a commit finds out by
// that row whether it took place: it inserts the row itself, as a fence. If a transaction
// has done so that is still under way, that waits for its end. If the row is there, the
// transaction took place. If not, it cannot take place any more, as the row is there now.
//
// Nothing cheaper is exact. The number of the transaction comes with the answer, and is lost
// with it. A row of the instance that is changed by each call would be a lock that all its
// connections meet, and a chain of versions to read while an old snapshot lives.
//
// The row of a call has the number of the call times eight. The numbers after it have rows only if
// something of the answer is not as usual.
const (
	callParts = 8

	partExtended = 1 // not all were extended: tokens of those that were, negative if it is to stop
	partStarted  = 2 // not all were started: tokens of those that were
	partEnded    = 3 // not all were ended: tokens of those that were
)

const (
	// Nothing is marked that has written nothing. $3 says that the mark has the key of the last
	// job inserted. The answer is the server's clock.
	sqlMark = `WITH m AS (INSERT INTO errand_call (store, call, keys)
  SELECT $1::integer, $2::bigint, CASE WHEN $3::boolean THEN ARRAY[currval('errand_key')] END WHERE pg_current_xact_id_if_assigned() IS NOT NULL)
SELECT ` + serverClock

	sqlFence  = `INSERT INTO errand_call (store, call, keys) VALUES ($1::integer, $2::bigint, '{}') ON CONFLICT DO NOTHING`
	sqlMarked = `SELECT call - $2::bigint, keys FROM errand_call WHERE store = $1::integer AND call >= $2::bigint AND call < $2::bigint + 8`

	// $3 are the calls that were not answered.
	sqlUnmark    = `DELETE FROM errand_call WHERE store = $1::integer AND call < $2::bigint AND call / 8 <> ALL($3::bigint[])`
	sqlUnmarkOld = `DELETE FROM errand_call WHERE day < CURRENT_DATE - 1`

	sqlLeasedBy = `SELECT ` + leasedColumns + ` FROM (SELECT *, 0::bigint AS previous FROM errand_job WHERE state = 3 AND instance = $1 AND call = $2) j`
	sqlHeldOf   = `SELECT j.token FROM unnest($1::bigint[], $2::bigint[]) f(id, token) JOIN errand_job j ON j.id = f.id AND j.token = f.token AND j.state = 3`
	sqlInserted = `SELECT id, salt, created_at FROM errand_job WHERE id > $1 AND id <= $2
UNION ALL SELECT id, salt, created_at FROM errand_finished WHERE id > $1 AND id <= $2
UNION ALL SELECT id, salt, created_at FROM errand_dead WHERE id > $1 AND id <= $2`

	// Leases that nobody was told of go to an instance without a process.
	sqlDisown = `WITH i AS (INSERT INTO errand_instance (instance, name, lease, seen_at)
  SELECT nextval('errand_instance_number')::integer, name, lease, 0 FROM errand_instance WHERE instance = $1 RETURNING instance)
UPDATE errand_job j SET instance = i.instance FROM i WHERE j.state = 3 AND j.instance = $1 AND j.call = ANY($2::integer[])`
)

const (
	// unmarkAfter is after how many calls the Store deletes the marks of those that were answered.
	unmarkAfter = 500
	// findOutFor is for how long a call tries to find out whether it took effect.
	findOutFor = 10 * time.Second
)

// calls are those of a Store that write.
type calls struct {
	store int32

	mu     sync.Mutex
	last   int64
	open   map[int64]bool // not answered
	lost   map[int64]*exchange
	untold []untold
}

// untold is what a Reclaim has taken and its caller was not told of.
type untold struct {
	number int64
	known  bool // that it took place
	took   []storage.Reclaimed
}

// begin returns the number of a new call.
func (c *calls) begin() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.lost = map[int64]bool{}, map[int64]*exchange{}
	}
	c.last++
	c.open[c.last] = true
	return c.last
}

// end says that a call was answered, or that nobody will ask for the answer.
func (c *calls) end(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, number)
}

// unanswered returns the calls that were not.
func (c *calls) unanswered() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.open))
}

// ofRow returns the number of a call as the row of a job has it, which is enough to tell a
// call that was lost from all others with leases.
func ofRow(number int64) int32 { return int32(number & (1<<31 - 1)) }

// unanswered is the error of a commit whose answer was lost.
type unanswered struct {
	number int64
	err    error
}

func (e *unanswered) Error() string { return fmt.Sprintf("%v: %v", storage.ErrUnknownOutcome, e.err) }

// commitAs sends b as commit does, for a call that has a number. keys says that it inserts
// jobs whose keys are asked for if the answer is lost.
func (s *Store) commitAs(ctx context.Context, c *pgx.Conn, b *pgx.Batch, number int64, keys bool) error {
	n := b.Len()
	b.Queue(sqlMark, s.sent.store, number*callParts, keys).QueryRow(s.clock.scan)
	if number%unmarkAfter == 0 {
		b.Queue(sqlUnmark, s.sent.store, number*callParts, s.sent.unanswered())
	}
	if q := b.QueuedQueries; n > 0 && q[n-1].SQL == sqlCommit { // which stays the last
		last := q[n-1]
		b.QueuedQueries = append(slices.Delete(q, n-1, n), last)
	}
	err := c.SendBatch(ctx, b).Close()
	if err != nil && lost(err) {
		return &unanswered{number, err}
	}
	return err
}

// commit sends b in one round trip, at the end of which what it has written is durable. If
// b begins no transaction, all of it is one.
func (s *Store) commit(ctx context.Context, c *pgx.Conn, b *pgx.Batch) error {
	number := s.sent.begin()
	err := s.commitAs(ctx, c, b, number, false)
	if _, ok := errors.AsType[*unanswered](err); !ok {
		s.sent.end(number)
	}
	return err
}

// run is attempt. If the answer to the commit is lost, run finds out whether it took place.
func (s *Store) run(ctx context.Context, fn func(ctx context.Context, c *pgx.Conn) error) error {
	return s.runTo(ctx, fn, func(context.Context, *pgx.Conn, parts) error { return errUntold })
}

// runTold is run for what knows its answer before the commit.
func (s *Store) runTold(ctx context.Context, fn func(ctx context.Context, c *pgx.Conn) error) error {
	return s.runTo(ctx, fn, isTold)
}

func isTold(context.Context, *pgx.Conn, parts) error { return nil }

var errUntold = errors.New("it took place, and its answer is not known")

// runTo is run with answer, which reads the answer of what took place.
func (s *Store) runTo(ctx context.Context, fn func(ctx context.Context, c *pgx.Conn) error, answer func(context.Context, *pgx.Conn, parts) error) error {
	err := s.attempt(ctx, fn)
	lost, ok := errors.AsType[*unanswered](err)
	if !ok {
		return translate(err)
	}
	defer s.sent.end(lost.number)
	return s.findOut(ctx, lost, answer)
}

// parts are what a call has marked; nil if it took no place.
type parts map[int64][]int64

// findOut finds out, on a connection of its own, whether a call took place. Then it calls answer.
// If it did not, the error is one of the connection; if that cannot be found out, or answer fails, an
// UnknownOutcomeError.
func (s *Store) findOut(ctx context.Context, lost *unanswered, answer func(context.Context, *pgx.Conn, parts) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findOutFor)
	defer cancel()
	unknown := func(err error) error {
		return &storage.UnknownOutcomeError{Err: errors.Join(lost.err, err)}
	}
	c, err := pgx.ConnectConfig(ctx, s.session)
	if err != nil {
		return unknown(err)
	}
	defer func() { _ = c.Close(ctx) }()
	var found parts
	b := &pgx.Batch{}
	b.Queue(sqlFence, s.sent.store, lost.number*callParts)
	each(b, func(row pgx.CollectableRow) error {
		var part int64
		var keys []int64
		err := row.Scan(&part, &keys)
		if found == nil {
			found = parts{}
		}
		found[part] = keys
		return err
	}, sqlMarked, s.sent.store, lost.number*callParts)
	b.Queue(sqlClock).QueryRow(s.clock.scan)
	if err := part(ctx, c, b); err != nil {
		return unknown(err)
	}
	if fence, ok := found[0]; ok && fence != nil && len(fence) == 0 {
		return fmt.Errorf("%w: nothing was written: %w", storage.ErrIO, lost.err)
	}
	if err := answer(ctx, c, found); err != nil {
		return unknown(err)
	}
	return nil
}

// resume answers an exchange whose answer was lost. done is false if it took no place.
func (s *Store) resume(ctx context.Context, e *exchange, lost *unanswered) (done bool, err error) {
	err = s.findOut(ctx, lost, e.recall)
	switch unknown, ok := errors.AsType[*storage.UnknownOutcomeError](err); {
	case ok:
		unknown.Call = lost.number
		s.sent.mu.Lock()
		s.sent.lost[lost.number] = e
		s.sent.mu.Unlock()
		return false, err
	case err != nil && e.durable: // only what was to be leased from new lanes took no place
		e.leasing.leased, err = nil, nil
	}
	s.sent.end(lost.number)
	return err == nil, err
}

// repeat is an Exchange that repeats a call that was lost.
func (s *Store) repeat(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if err := s.enter(context.WithoutCancel(ctx)); err != nil {
		return storage.ExchangeResult{}, err
	}
	defer s.leave()
	if err := ctx.Err(); err != nil { // what became of the call is as unknown as before
		return storage.ExchangeResult{}, &storage.UnknownOutcomeError{Call: x.Repeats, Err: err}
	}
	s.sent.mu.Lock()
	e := s.sent.lost[x.Repeats]
	delete(s.sent.lost, x.Repeats)
	s.sent.mu.Unlock()
	if e == nil {
		return storage.ExchangeResult{}, fmt.Errorf("%w: no call %d was lost", storage.ErrNotFound, x.Repeats)
	}
	e.now, *e.x = now, x // whose slices were the caller's meanwhile
	done, err := s.resume(ctx, e, &unanswered{x.Repeats, errLostBefore})
	switch {
	case done:
		return e.told(), nil
	case errors.Is(err, storage.ErrUnknownOutcome):
		return storage.ExchangeResult{}, err
	}
	x.Repeats = 0
	return s.exchange(ctx, now, x)
}

var errLostBefore = errors.New("the answer was lost before")

// recall reads what is missing of the answer to an exchange that took place.
func (e *exchange) recall(ctx context.Context, c *pgx.Conn, found parts) error {
	if e.finish.simple && !e.durable {
		e.recallItems(found)
	}
	e.leasing.leased, e.leasing.missed = nil, true // so that the next exchange comes soon
	b := &pgx.Batch{}
	e.s.readNew(b)
	b.Queue(sqlLeasedBy, e.s.self.number(), ofRow(e.number)).Query(e.leasing.rows(func() {}))
	return part(ctx, c, b)
}

// recallItems recalls what became of the items of a simple exchange.
func (e *exchange) recallItems(found parts) {
	e.extended, e.started, e.finish.ended = map[storage.Lease]bool{}, map[storage.Lease]bool{}, map[storage.Lease]bool{}
	recall := func(into map[storage.Lease]bool, part int64, l storage.Lease, as int64) {
		if tokens, unusual := found[part]; !unusual || slices.Contains(tokens, as*l.Token) {
			into[l] = as < 0 || part != partExtended
		}
	}
	for _, l := range e.x.Extend {
		recall(e.extended, partExtended, l, 1)
		if _, ok := e.extended[l]; !ok {
			recall(e.extended, partExtended, l, -1)
		}
	}
	for _, l := range e.x.Start {
		recall(e.started, partStarted, l, 1)
	}
	for i := range e.x.Finish {
		recall(e.finish.ended, partEnded, e.x.Finish[i].Lease, 1)
	}
}

// recall finds the keys of jobs that were inserted. The mark has the last one. The others
// are found by what else is known of them; it is not known of those that have ended
// meanwhile and were not kept.
func (e *entering) recall(ctx context.Context, c *pgx.Conn, found parts) error {
	mark := found[0]
	n := len(e.lane)
	if len(mark) != 1 {
		return errUntold
	}
	if e.keys = []int64{mark[0]}; n == 1 {
		return nil
	}
	type job struct {
		salt    int32
		created int64
	}
	keys := map[job][]int64{}
	b := &pgx.Batch{}
	each(b, func(row pgx.CollectableRow) error {
		var key int64
		var j job
		err := row.Scan(&key, &j.salt, &j.created)
		keys[j] = append(keys[j], key)
		return err
	}, sqlInserted, mark[0]-int64(20*n+1000), mark[0])
	if err := part(ctx, c, b); err != nil {
		return err
	}
	e.keys = nil
	for i := range e.lane {
		found := keys[job{e.salt[i], e.created[i]}]
		if len(found) != 1 || i > 0 && found[0] <= e.keys[i-1] {
			return errUntold
		}
		e.keys = append(e.keys, found[0])
	}
	return nil
}

// keep notes what Reclaim is still to tell.
func (c *calls) keep(all ...untold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.untold = append(all, c.untold...)
}

// takeUntold returns what Reclaim is still to tell, once.
func (c *calls) takeUntold() []untold {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.untold
	c.untold = nil
	return all
}

// tell returns at most limit of the leases that this instance has taken without telling, and
// that are still held.
func (s *Store) tell(ctx context.Context, limit int) (told []storage.Reclaimed, err error) {
	all := s.sent.takeUntold()
	for i := range all {
		u := &all[i]
		if u.known {
			continue
		}
		err := s.findOut(ctx, &unanswered{u.number, errLostBefore}, isTold)
		if errors.Is(err, storage.ErrUnknownOutcome) {
			s.sent.keep(all...)
			return nil, err
		}
		if u.known = true; err != nil {
			u.took = nil
		}
	}
	for len(all) > 0 && limit > 0 {
		u := &all[0]
		n := min(limit, len(u.took))
		held, err := s.stillHeld(ctx, u.took[:n])
		if err != nil {
			s.sent.keep(all...)
			return told, err
		}
		told, limit, u.took = append(told, held...), limit-n, u.took[n:]
		if len(u.took) == 0 {
			s.sent.end(u.number)
			all = all[1:]
		}
	}
	s.sent.keep(all...)
	return told, nil
}

// stillHeld returns those of leases that have not ended.
func (s *Store) stillHeld(ctx context.Context, took []storage.Reclaimed) (held []storage.Reclaimed, err error) {
	if len(took) == 0 {
		return nil, nil
	}
	var keys, tokens []int64
	for _, r := range took {
		keys, tokens = append(keys, r.Key), append(tokens, r.Token)
	}
	is := map[int64]bool{}
	err = s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		each(b, func(row pgx.CollectableRow) error {
			var token int64
			err := row.Scan(&token)
			is[token] = true
			return err
		}, sqlHeldOf, keys, tokens)
		return part(ctx, c, b)
	})
	for _, r := range took {
		if is[r.Token] {
			held = append(held, r)
		}
	}
	return held, err
}

// disown gives up the leases of calls whose answers were lost.
func (s *Store) disown(ctx context.Context, c *pgx.Conn) error {
	s.sent.mu.Lock()
	var calls []int32
	var open []int64
	for number := range s.sent.lost {
		open, calls = append(open, number), append(calls, ofRow(number))
	}
	for _, u := range s.sent.untold {
		open, calls = append(open, u.number), append(calls, ofRow(u.number))
	}
	s.sent.mu.Unlock()
	if len(open) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	for _, number := range open { // none of them may take place after this
		b.Queue(sqlFence, s.sent.store, number*callParts)
	}
	b.Queue(sqlDisown, s.self.number(), calls)
	return part(ctx, c, b)
}
