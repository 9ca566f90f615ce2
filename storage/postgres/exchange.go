package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// The keys are sorted, and taken in this order: two transactions that are about the
	// same jobs wait for each other, not in a circle.
	// What is unusual is marked: $6 is how many are usual.
	sqlExtend = `WITH u AS (UPDATE errand_job j SET until = $3 FROM unnest($1::bigint[], $2::bigint[]) f(id, token)
  WHERE j.id = f.id AND j.token = f.token AND j.state = 3 RETURNING j.id, j.token, j.cancelling),
x AS (INSERT INTO errand_call (store, call, keys) SELECT $4::integer, $5::bigint + 1, coalesce(array_agg(CASE WHEN cancelling THEN -token ELSE token END), ARRAY[0])
  FROM u HAVING count(*) FILTER (WHERE NOT cancelling) < $6::integer)
SELECT id, token, cancelling FROM u`
	sqlStart = `WITH u AS (UPDATE errand_job j SET started_at = $3 FROM unnest($1::bigint[], $2::bigint[]) f(id, token)
  WHERE j.id = f.id AND j.token = f.token AND j.state = 3 RETURNING j.id, j.token),
x AS (INSERT INTO errand_call (store, call, keys) SELECT $4::integer, $5::bigint + 2, coalesce(array_agg(token), ARRAY[0]) FROM u HAVING count(*) < $6::integer)
SELECT id, token FROM u`
	sqlStop = `UPDATE errand_job j SET started_at = NULL FROM unnest($1::bigint[], $2::bigint[]) f(id, token)
WHERE j.id = f.id AND j.token = f.token AND j.state = 3 AND j.started_at IS NOT NULL`
	sqlLonger = `UPDATE errand_instance SET lease = $2 WHERE instance = $1 AND lease < $2`

	// It returns whether it has made as many jobs ready as it may, whether jobs are left that are
	// due, when the first scheduled job is due that is not, and the groups of members that are due
	// and have no place.
	sqlPromote = `WITH c AS MATERIALIZED (
  SELECT id FROM errand_job WHERE state = 1 AND due_at <= $1 AND coalesce(role, 2) <> 0 ORDER BY due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED),
u AS (UPDATE errand_job j SET state = 2 FROM c WHERE j.id = c.id RETURNING j.lane),
n AS (INSERT INTO errand_delta SELECT lane, 34, count(*) FROM u GROUP BY lane)
SELECT (SELECT count(*) FROM c) = $2, EXISTS (SELECT FROM errand_job WHERE state = 1 AND due_at <= $1 AND coalesce(role, 2) <> 0 ORDER BY due_at, id OFFSET (SELECT count(*) FROM c)),
  (SELECT min(due_at) FROM errand_job WHERE state = 1 AND due_at > $1),
  ARRAY(SELECT DISTINCT group_key FROM (SELECT group_key FROM errand_job WHERE state = 1 AND role = 0 AND due_at <= $1 ORDER BY due_at, id LIMIT $2) g)`
)

// promoteLimit is how many due jobs one exchange makes ready.
const promoteLimit = 1000

// passedDelay is how long after an exchange that has passed over jobs the next one comes.
// The calls that decide about these have mostly ended then. If one takes long, a worker asks
// 50 times a second meanwhile, and not without a pause.
const passedDelay = 20 * time.Millisecond

// exchange is an Exchange under way, and what a run of its transaction has found.
type exchange struct {
	s   *Store
	now time.Time
	x   *storage.Exchange

	res      storage.ExchangeResult
	extended map[storage.Lease]bool // whether the job was asked to stop
	started  map[storage.Lease]bool
	finish   *finishing
	over     bool // more jobs are due than one exchange makes ready
	passed   bool // others decide about jobs that are due
	next     *int64
	groups   []string  // of members that are due and have no place
	placed   bool      // these have found one, or wait
	placing  *deciding // of these
	leasing  leasing
	self     *registration
	trips    int // round trips so far

	number  int64 // of the transaction under way
	durable bool  // what was asked for is durable, and that was to lease from new lanes
}

// maxTrips is how many round trips an exchange may take.
const maxTrips = 4

// Exchange implements [storage.Store]. It promotes due jobs of all lanes.
func (s *Store) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	whole, err := able(&x)
	if err != nil {
		return storage.ExchangeResult{}, err
	}
	res, err := s.exchangeAble(ctx, now, x)
	if err == nil {
		whole(&res)
	}
	return res, err
}

// exchangeAble is an Exchange that asks only for what the Store does.
func (s *Store) exchangeAble(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if x.Repeats != 0 {
		return s.repeat(ctx, now, x)
	}
	if err := s.enter(ctx); err != nil {
		return storage.ExchangeResult{}, err
	}
	defer s.leave()
	return s.exchange(ctx, now, x)
}

// exchange is an Exchange that repeats none.
func (s *Store) exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	e := &exchange{s: s, now: now, x: &x}
	for i := range x.Finish {
		if err := s.know(ctx, x.Finish[i].Then); err != nil {
			return storage.ExchangeResult{}, err
		}
	}
	if x.Wanted() > 0 {
		if err := s.self.register(ctx, s, now); err != nil {
			return storage.ExchangeResult{}, err
		}
	}
	err := s.attempt(ctx, e.run)
	if lost, ok := errors.AsType[*unanswered](err); ok {
		_, err = s.resume(ctx, e, lost)
	} else if e.number != 0 {
		s.sent.end(e.number)
	}
	if err != nil {
		return storage.ExchangeResult{}, translate(err)
	}
	return e.told(), nil
}

// told returns the result of what is durable.
func (e *exchange) told() storage.ExchangeResult {
	if e.x.Wanted() > 0 || len(e.x.Extend) > 0 {
		e.self.promised(e.x.LeaseDuration)
	}
	e.tell()
	e.answer()
	return e.res
}

// tell tells workers of jobs that wait now and were not leased.
func (e *exchange) tell() {
	n := e.finish.deciding.news
	if e.placing != nil {
		n.merge(e.placing.news)
	}
	if c := &e.leasing; len(c.leased) < e.x.Wanted() && !c.chooses() && !c.passed && !c.missed && !c.outdated {
		n.without(c.lanes)
	}
	e.s.wake.committed(n)
}

// run is the exchange as one transaction, in as few round trips as may be: one if what
// becomes of its jobs does not depend on their rows, and one Want says all; else two, as
// the rows are locked and read first; one more if Go is to choose among ready jobs; and one
// more if others have added lanes.
func (e *exchange) run(ctx context.Context, c *pgx.Conn) error {
	e.res, e.extended, e.over, e.passed, e.next = storage.ExchangeResult{}, map[storage.Lease]bool{}, false, false, nil
	e.leasing, e.trips, e.started, e.groups = e.s.leasingFor(e.x), 0, map[storage.Lease]bool{}, nil
	e.finish = newFinishing(e.s, e.now, e.x)
	e.durable, e.placed, e.placing = false, false, nil
	if e.number == 0 { // that of a transaction that failed is free
		e.number = e.s.sent.begin()
	}
	e.finish.number = e.number
	if err := e.finish.learn(ctx, e, c); err != nil {
		return err
	}
	b, err := e.read(ctx, c)
	if err != nil {
		return err
	}
	if err := e.finish.write(b); err != nil {
		return err
	}
	e.promote(b)
	if e.leasing.chooses() {
		b, err = e.choose(ctx, c, b)
	} else {
		e.leasing.take(b, e)
	}
	if err != nil {
		return err
	}
	if e.begins() {
		b.Queue(sqlCommit)
	}
	if err := e.send(ctx, c, b, true); err != nil {
		return err
	}
	if len(e.groups) > 0 && len(e.leasing.leased) == 0 {
		return e.place(ctx, c)
	}
	return e.takeFromNew(ctx, c)
}

// begins reports whether the transaction takes several round trips.
func (e *exchange) begins() bool { return !e.finish.simple || e.leasing.chooses() }

// read queues what is about leases that go on. Unless the ends of all others depend on no rows, it sends
// that, and has the rows be locked and read. It returns the batch that follows.
func (e *exchange) read(ctx context.Context, c *pgx.Conn) (*pgx.Batch, error) {
	b := &pgx.Batch{}
	if e.begins() {
		b.Queue(sqlBegin)
	}
	if !e.finish.simple {
		e.finish.deciding.load(b)
	}
	e.extend(b)
	e.start(b)
	e.stop(b)
	if len(e.x.Extend) > 0 || e.x.Wanted() > 0 {
		e.self = e.s.self.now.Load()
		e.self.promise(b, e.x.LeaseDuration)
	}
	if e.finish.simple {
		return b, nil
	}
	e.s.readNew(b)
	return &pgx.Batch{}, e.send(ctx, c, b, false)
}

// choose sends b, and with it the reading of what is ready. It returns a batch that leases what Go
// chooses of that.
func (e *exchange) choose(ctx context.Context, c *pgx.Conn, b *pgx.Batch) (*pgx.Batch, error) {
	e.leasing.look(b)
	err := e.send(ctx, c, b, false)
	if err == nil && e.leasing.outdated && e.trips < maxTrips-1 {
		e.leasing = e.s.leasingFor(e.x)
		b = &pgx.Batch{}
		e.leasing.look(b)
		err = e.send(ctx, c, b, false)
	}
	b = &pgx.Batch{}
	if err == nil {
		e.leasing.lease(b, e)
	}
	return b, err
}

// send sends b, with the commit if it is the last part.
func (e *exchange) send(ctx context.Context, c *pgx.Conn, b *pgx.Batch, last bool) error {
	if last && b.Len() == 0 {
		return nil
	}
	e.trips++
	if last {
		return e.s.commitAs(ctx, c, b, e.number, false)
	}
	return part(ctx, c, b)
}

// place decides about members that are due and have no place, and leases, in a transaction of
// its own, as the first try has leased nothing. If Go has to choose, it leaves the leases to the
// next exchange. What was written before is durable, so an error only means that nothing is
// leased. The next exchange comes at once if it means that the locks of others were waited for, and
// else after a pause, as the error may stay.
func (e *exchange) place(ctx context.Context, c *pgx.Conn) error {
	if e.trips > maxTrips-2 {
		return nil
	}
	err := e.placeDue(ctx, c)
	if _, ok := errors.AsType[*unanswered](err); ok {
		return err
	}
	if err != nil {
		e.leasing.leased = nil
		if !errors.Is(translate(err), storage.ErrBusy) {
			e.groups, e.passed = nil, true
		}
		if c.PgConn().TxStatus() != 'I' && !c.IsClosed() {
			_, _ = c.Exec(ctx, sqlRollback) // if that fails the connection is of no use any more
		}
	}
	return nil
}

// placeDue is the transaction of place.
func (e *exchange) placeDue(ctx context.Context, c *pgx.Conn) error {
	dec := e.s.deciding(e.now, micros(e.now))
	e.placing = dec
	for _, name := range e.groups {
		dec.need.End("", name)
	}
	var due []rules.Job
	b := &pgx.Batch{}
	b.Queue(sqlBegin)
	e.s.readNew(b)
	dec.load(b)
	unplaced(b, micros(e.now), e.groups, &due)
	if err := e.send(ctx, c, b, false); err != nil {
		return err
	}
	if err := dec.tx.Place(due); err != nil {
		return err
	}
	e.again()
	b = &pgx.Batch{}
	dec.decided(b, dec.tx.Changes())
	if !e.leasing.chooses() {
		e.leasing.take(b, e)
	}
	b.Queue(sqlCommit)
	err := e.send(ctx, c, b, true)
	e.placed = err == nil && len(due) < promoteLimit && !e.leasing.chooses()
	return err
}

// again begins to lease a second time, in a transaction of its own.
func (e *exchange) again() {
	e.leasing = e.s.leasingFor(e.x)
	e.s.sent.end(e.number)
	e.number, e.durable = e.s.sent.begin(), true
}

// takeFromNew leases once more, in a transaction of its own, if the first try leased
// nothing because others had added lanes. What was written before is durable, so an error
// only means that nothing is leased.
func (e *exchange) takeFromNew(ctx context.Context, c *pgx.Conn) error {
	if e.leasing.chooses() || !e.leasing.outdated || len(e.leasing.leased) > 0 || e.trips >= maxTrips {
		return nil
	}
	e.again()
	b := &pgx.Batch{}
	e.leasing.take(b, e)
	err := e.send(ctx, c, b, true)
	if _, ok := errors.AsType[*unanswered](err); ok {
		return err
	}
	if err != nil {
		e.leasing.outdated, e.leasing.leased = true, nil
	}
	return nil
}

// extend queues the extension of leases.
func (e *exchange) extend(b *pgx.Batch) {
	if len(e.x.Extend) == 0 {
		return
	}
	keys, tokens := columns(e.x.Extend)
	each(b, func(row pgx.CollectableRow) error {
		var l storage.Lease
		var asked bool
		err := row.Scan(&l.Key, &l.Token, &asked)
		e.extended[l] = asked
		return err
	}, sqlExtend, append([]any{keys, tokens, micros(e.now.Add(e.x.LeaseDuration))}, e.finish.usual(len(keys))...)...)
}

// start queues the writing of starts.
func (e *exchange) start(b *pgx.Batch) {
	if len(e.x.Start) == 0 {
		return
	}
	keys, tokens := columns(e.x.Start)
	each(b, func(row pgx.CollectableRow) error {
		var l storage.Lease
		err := row.Scan(&l.Key, &l.Token)
		e.started[l] = true
		return err
	}, sqlStart, append([]any{keys, tokens, micros(e.now)}, e.finish.usual(len(keys))...)...)
}

// stop queues the taking back of starts.
func (e *exchange) stop(b *pgx.Batch) {
	if len(e.x.Stop) > 0 {
		keys, tokens := columns(e.x.Stop)
		b.Queue(sqlStop, keys, tokens)
	}
}

// columns returns the keys and tokens of leases, sorted and each once.
func columns(leases []storage.Lease) (keys, tokens []int64) {
	for _, l := range sorted(leases) {
		keys, tokens = append(keys, l.Key), append(tokens, l.Token)
	}
	return keys, tokens
}

// promote queues what makes due jobs ready.
func (e *exchange) promote(b *pgx.Batch) {
	if e.x.Wanted() == 0 {
		return
	}
	b.Queue(sqlPromote, micros(e.now), promoteLimit).QueryRow(func(row pgx.Row) error {
		var full, left bool
		err := row.Scan(&full, &left, &e.next, &e.groups)
		e.over, e.passed = left && full, left && !full
		return err
	})
}

// answer makes the result of what the transaction has found.
func (e *exchange) answer() {
	for _, l := range e.x.Extend {
		asked, ok := e.extended[l]
		switch {
		case !ok:
			e.res.Extended = append(e.res.Extended, storage.Lost)
		case asked:
			e.res.Extended = append(e.res.Extended, storage.Cancelling)
		default:
			e.res.Extended = append(e.res.Extended, storage.Applied)
		}
	}
	for _, l := range e.x.Start {
		result := storage.Lost
		if e.started[l] {
			result = storage.Applied
		}
		e.res.Started = append(e.res.Started, result)
	}
	for i, r := range e.res.Extended {
		if r == storage.Lost {
			e.s.besides.forget(e.x.Extend[i].Token)
		}
	}
	e.finish.answer(&e.res)
	for i, r := range e.res.Finished {
		if r != storage.Refused {
			e.s.besides.forget(e.x.Finish[i].Token)
		}
	}
	e.res.Leased = e.leasing.leased
	if e.x.Wanted() > 0 {
		e.res.NextDue = e.nextDue()
	}
}

// nextDue returns the NextDue of the result. It is now only if the next exchange gets further,
// whatever others do.
func (e *exchange) nextDue() (at time.Time) {
	c := &e.leasing
	if e.over || c.outdated || c.missed && len(c.leased) > 0 || len(e.groups) > 0 && !e.placed {
		return e.now
	}
	if e.next != nil {
		at = fromMicros(*e.next)
	}
	if soon := e.now.Add(passedDelay); (e.passed || c.passed || c.missed) && (at.IsZero() || soon.Before(at)) {
		at = soon
	}
	return at
}
