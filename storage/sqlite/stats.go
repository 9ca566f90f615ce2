package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/packed"
)

// The numbers of a lane beside those of its states.
const (
	bytesNumber     = 16
	succeededNumber = 18
	failureNumber   = 19
	failedNumber    = 20

	// How many jobs were enqueued, and how many of those that are cancelled, expired or dead
	// are no longer in the table of their state. arrivedNumber is how many jobs have come to
	// the lane otherwise than by their enqueue, less those that have gone so. How many are done
	// follows from these: the end of a job that is not kept need not change the numbers of its
	// lane, whose page a commit would write.
	enqueuedNumber = 23
	cancelledGone  = 24
	expiredGone    = 25
	deadGone       = 26
	arrivedNumber  = 27

	// failuresNumber is how many attempts have failed.
	failuresNumber = 28
)

// goneNumbers are the numbers of jobs that have left the table of a state.
var goneNumbers = [...]stateCode{cancelled: cancelledGone, dead: deadGone, expired: expiredGone}

// gone counts a job that has ended in a state and is not in its table, or not any more.
func (t *tx) gone(lane int64, state stateCode) {
	if int(state) < len(goneNumbers) && goneNumbers[state] != 0 {
		t.counts[laneState{lane, goneNumbers[state]}]++
	}
}

// transferred counts that a job has come to a lane: by its enqueue, by a redrive, or from
// another lane.
func (t *tx) transferred(was *facts, r *jobRow) {
	switch {
	case was.State == 0 && r.Options&wasRedriven != 0:
		t.counts[laneState{r.Lane, arrivedNumber}]++
	case was.State == 0:
		t.counts[laneState{r.Lane, enqueuedNumber}]++
	case r.State == dead: // it has not ended anew
		t.counts[laneState{r.Lane, deadGone}]--
	case r.Lane != was.Lane:
		t.counts[laneState{was.Lane, arrivedNumber}]--
		t.counts[laneState{r.Lane, arrivedNumber}]++
	}
}

const (
	sqlAddNumber = sqlAdd + `(?, ?)` + sqlAdded
	sqlAdd       = `INSERT INTO main.errand_number (id, n) VALUES `
	sqlAdded     = `
ON CONFLICT DO UPDATE SET n = n + excluded.n`
	sqlAllLanes    = `SELECT lane, queue, kind FROM main.errand_lane`
	sqlLaneNumbers = `SELECT id, n FROM main.errand_number WHERE id >= 32
UNION ALL SELECT lane * 32 + state, 1` + fromUncounted + ` UNION ALL SELECT lane * 32 + 23, 1` + fromUncounted + `
UNION ALL SELECT lane * 32 + 16, ` + inlineSize + fromUncounted
	sqlRunning = `SELECT lane, COUNT(*) AS n, SUM(COALESCE(length(args) + COALESCE(length(headers), 0),
(SELECT length(args) + COALESCE(length(headers), 0) FROM main.errand_payload WHERE job = id), 0)) AS bytes
FROM main.errand_job WHERE state = 3 GROUP BY lane`
	// From one priority to the next lower one, of which there are 201, by the index of
	// ready jobs: the jobs between are not looked at.
	sqlOldest   = oldestBegin + oldestEnd
	oldestBegin = `WITH RECURSIVE top(lane, priority) AS (
SELECT f.id / 32, (SELECT priority FROM main.errand_job WHERE state = 2 AND lane = f.id / 32 ORDER BY priority DESC LIMIT 1)
FROM main.errand_number f WHERE f.id >= 32 AND f.id % 32 = 2 AND n > 0`
	oldestEnd = `
UNION ALL SELECT lane, MAX(priority)` + fromUncounted + ` AND state = 2 GROUP BY lane
UNION ALL SELECT lane, (SELECT priority FROM main.errand_job j WHERE state = 2 AND j.lane = top.lane AND j.priority < top.priority
ORDER BY priority DESC LIMIT 1) FROM top WHERE priority IS NOT NULL)
SELECT lane, MIN((SELECT due_at FROM main.errand_job j WHERE state = 2 AND j.lane = top.lane AND j.priority = top.priority ORDER BY due_at LIMIT 1)) AS n
FROM top WHERE priority IS NOT NULL GROUP BY lane`
	// A job is in one of the three tables, or gone.
	sqlFailures = `SELECT f.id / 32 AS lane, f.n AS job, COALESCE(j.salt, e.salt, d.salt) AS salt,
COALESCE(j.created_at, e.created_at, d.created_at) AS created_at,
COALESCE(e.error, NULLIF(d.error, ''),
(SELECT NULLIF(error, '') FROM main.errand_error x WHERE x.job = f.n AND x.token = COALESCE(j.token, e.token, d.token)),
(SELECT error FROM main.errand_history h WHERE h.job = f.n AND h.args IS NULL ORDER BY n DESC LIMIT 1), '') AS error
FROM main.errand_number f LEFT JOIN main.errand_job j ON j.id = f.n LEFT JOIN main.errand_finished e ON e.id = f.n LEFT JOIN main.errand_dead d ON d.id = f.n
WHERE f.id >= 32 AND f.id % 32 = 19 AND COALESCE(j.id, e.id, d.id) IS NOT NULL`

	// A time that is almost right stays: it would be written with each commit.
	sqlSucceeded = `INSERT INTO main.errand_number (id, n) VALUES (?1, ?2)
ON CONFLICT DO UPDATE SET n = excluded.n WHERE ABS(excluded.n - n) >= 1000000`
	sqlFailed = `INSERT INTO main.errand_number (id, n) VALUES (?, ?), (?, ?)
ON CONFLICT DO UPDATE SET n = excluded.n`
	sqlPayloadSize = `SELECT COALESCE(length(args), 0) + COALESCE(length(headers), 0) FROM main.errand_payload WHERE job = ?1`
)

// succeededPace is how far the time of a lane's last success may be off, in
// microseconds. It is 1000000 in the SQL.
const succeededPace = 1_000_000

// mostSucceeded is of how many lanes a connection remembers when they last succeeded: it is of
// use for a second, and a file may have very many lanes.
const mostSucceeded = 4096

// ledger is what a transaction adds to numbers that are not in meta.
type ledger struct {
	counts      map[laneState]int64
	refs        map[int64]int64 // references to policies
	tidy        bool            // policies without references are deleted at the end
	successes   map[int64]int64 // tokens of the last successes of lanes that are watched
	deaths      deaths
	lasts       lasts
	leaving     map[string]bool // messages that may have lost their last job
	keysWritten int             // rows of unique keys
	sampling    sampling
	uncounted
}

func newLedger() ledger { return ledger{counts: map[laneState]int64{}} }

// lasts are the last attempts of lanes that a transaction has ended.
type lasts struct {
	succeeded []laneTime // each lane once
	failed    map[int64]jobTime
}

type laneTime struct{ lane, at int64 }

type jobTime struct{ job, at int64 }

// success notes that an attempt ended well.
func (l *lasts) success(lane, at int64) {
	for i := range l.succeeded { // mostly one
		if l.succeeded[i].lane == lane {
			l.succeeded[i].at = at
			return
		}
	}
	l.succeeded = append(l.succeeded, laneTime{lane, at})
}

// failure notes that an attempt failed.
func (l *lasts) failure(lane, job, at int64) {
	if l.failed == nil {
		l.failed = map[int64]jobTime{}
	}
	l.failed[lane] = jobTime{job, at}
}

// flushLasts writes when attempts of lanes have ended. It writes no success within a
// second of the one before, so that a busy lane pays nothing for it.
func (t *tx) flushLasts() error {
	for _, s := range t.lasts.succeeded {
		was, known := int64(0), false
		if t.stmts != nil { // else any application may do it, which each time costs a page
			was, known = t.stmts.succeeded[s.lane]
		}
		if off := s.at - was; known && off < succeededPace && off > -succeededPace {
			continue
		}
		n, err := t.execCount(sqlSucceeded, s.lane*laneNumbers+succeededNumber, s.at)
		if err != nil {
			return err
		}
		if n > 0 && t.stmts != nil {
			t.after = append(t.after, func() { t.stmts.keepSuccess(s) })
		}
	}
	for lane, f := range t.lasts.failed {
		first := lane * laneNumbers
		if _, err := t.exec(sqlFailed, first+failureNumber, f.job, first+failedNumber, f.at); err != nil {
			return err
		}
	}
	return nil
}

// keepSuccess remembers when a lane last succeeded, as it is stored.
func (s *statements) keepSuccess(l laneTime) {
	if len(s.succeeded) >= mostSucceeded {
		clear(s.succeeded)
	}
	s.succeeded[l.lane] = l.at
}

// weigh adds the args and headers of a job that waits to the bytes of its lane, sign
// times. Of other jobs it does nothing: a job that is handed over and ends, and is not
// kept, need not change the numbers of its lane, whose page a commit would write.
func (t *tx) weigh(f *facts, sign int64) error {
	if !f.State.waits() {
		return nil
	}
	size := f.Size
	if f.Beside && size == 0 {
		var stored int64 // size itself would escape to the heap
		err := t.row(sqlPayloadSize, []any{f.ID}, &stored)
		if err != nil && !errors.Is(err, sql.ErrNoRows) { // damage, which need not stop the others
			return err
		}
		size = stored
	}
	if size != 0 {
		t.counts[laneState{f.Lane, bytesNumber}] += sign * size
	}
	return nil
}

const (
	sqlNextJob = `SELECT ` + nextJob + ` FROM main.errand_number WHERE id = 1`
	nextJob    = `MAX(n, COALESCE((SELECT MAX(id) FROM main.errand_job WHERE id < n + 64), 0) + 1)`

	// The jobs that the numbers do not count, see [uncounted]. A key that is higher is damage, which
	// is not to spread.
	fromUncounted = ` FROM main.errand_job NOT INDEXED WHERE id BETWEEN (SELECT n FROM main.errand_number WHERE id = 1)
AND (SELECT n + 63 FROM main.errand_number WHERE id = 1)`
	clock        = `MAX(n, COALESCE((SELECT MAX(created_at)` + fromUncounted + `), 0))`
	sqlUncounted = `SELECT lane, state, ` + inlineSize + `, (SELECT n FROM main.errand_number WHERE id = 1),
(SELECT n FROM main.errand_number WHERE id = 5)` + fromUncounted
	inlineSize = `COALESCE(length(args), 0) + COALESCE(length(headers), 0)`
)

// mostUncounted is how many jobs the numbers do not count at most: 64 in nextJob, fromUncounted and
// the views.
const mostUncounted = 64

// uncounted is what a transaction knows of the jobs that were enqueued last. Whoever adds a job that
// waits, and does nothing else, leaves the numbers as they are, whose page a commit would write:
// such jobs are counted from their rows, which hold all that the numbers would say of them. They
// are those from the next key on that is stored, so nothing marks them. A transaction that does
// anything else to any job writes all numbers, and so does one by which there are too many.
type uncounted struct {
	stored  meta  // the counters as they are stored
	settles bool  // the transaction has done more than to add jobs that wait
	latest  int64 // when the last of those was enqueued
}

// changes notes a change of errand_job.
func (u *uncounted) changes(d *delta) {
	if r := d.row; d.change == setRow && r.State.waits() && !r.Beside && r.ID >= u.stored.nextJob {
		u.latest = max(u.latest, r.CreatedAt)
	} else {
		u.settles = true
	}
}

// settled reports whether the transaction writes the numbers. A clock that no new job has would be
// lost otherwise.
func (t *tx) settled() bool {
	m := t.meta
	m.nextJob, m.clock = t.stored.nextJob, t.stored.clock
	return t.settles || m != t.stored || t.meta.nextJob-t.stored.nextJob > mostUncounted ||
		t.meta.clock != t.was.clock && t.meta.clock != t.latest
}

// flushNumbers writes the counters and the counts, unless they are left to the rows of jobs.
func (t *tx) flushNumbers() error {
	if !t.settled() {
		return nil
	}
	a := adder{execer: t.execer}
	was, now := t.stored.numbers(), t.meta.numbers()
	for id, n := range now {
		a.add(int64(id), n-was[id])
	}
	for k, n := range t.counts {
		a.add(k.lane*laneNumbers+int64(k.state), n)
	}
	t.stored = t.meta
	return a.flush()
}

// countRest adds the jobs that the numbers do not count to what the transaction is to add, once
// the counters have been read.
func (t *tx) countRest() error {
	t.stored = t.meta
	var lane, size int64
	var state stateCode
	return t.each(sqlUncounted, nil, []any{&lane, &state, &size, &t.stored.nextJob, &t.stored.clock}, func() {
		t.counts[laneState{lane, state}]++
		t.counts[laneState{lane, enqueuedNumber}]++
		t.counts[laneState{lane, bytesNumber}] += size
	})
}

// left is what the transaction leaves to the next one.
func (t *tx) left() known {
	k := known{meta: t.meta, stored: t.stored}
	if t.stored.nextJob < t.meta.nextJob {
		k.counts = t.counts
	}
	return k
}

// Stats implements [storage.Store].
func (s *Store) Stats(ctx context.Context) (out []storage.LaneStats, err error) {
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		out, err = stats(tx)
		return err
	})
	return out, err
}

func stats(tx *sqlx.Tx) ([]storage.LaneStats, error) {
	var names []struct {
		Lane        int64
		Queue, Kind string
	}
	var numbers []struct{ ID, N int64 }
	var running []struct{ Lane, N, Bytes int64 }
	var oldest []struct{ Lane, N int64 }
	var failures []struct {
		Lane, Job int64
		Salt      uint32
		CreatedAt int64 `db:"created_at"`
		Error     string
	}
	err := errors.Join(tx.Select(&names, sqlAllLanes), tx.Select(&numbers, sqlLaneNumbers), tx.Select(&running, sqlRunning),
		tx.Select(&oldest, sqlOldest), tx.Select(&failures, sqlFailures))
	if err != nil {
		return nil, err
	}
	lanes := map[int64]*storage.LaneStats{}
	of := func(lane int64) *storage.LaneStats {
		if lanes[lane] == nil {
			lanes[lane] = &storage.LaneStats{}
		}
		return lanes[lane]
	}
	for _, n := range numbers {
		if n.N != 0 {
			setNumber(of(n.ID/laneNumbers), n.ID%laneNumbers, n.N)
		}
	}
	for _, n := range running {
		l := of(n.Lane)
		l.Running = n.N
		l.Bytes += n.Bytes
		l.RunningBytes = n.Bytes
	}
	for _, n := range oldest {
		of(n.Lane).OldestDue = fromMicros(n.N)
	}
	for _, f := range failures {
		l := of(f.Lane)
		l.FailedJob, l.Error = idOf(f.CreatedAt, f.Salt, f.Job), f.Error
	}
	var out []storage.LaneStats
	for _, n := range names {
		l := of(n.Lane)
		l.Lane, l.Number = storage.Lane{Queue: n.Queue, Kind: n.Kind}, n.Lane
		addUp(l)
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b storage.LaneStats) int { return a.Compare(b.Lane) })
	return out, nil
}

// setNumber sets a number of a lane; one that has uncounted jobs comes in parts.
func setNumber(l *storage.LaneStats, id, n int64) {
	switch id {
	case int64(scheduled):
		l.Scheduled += n
	case int64(blocked):
		l.Blocked += n
	case int64(ready):
		l.Ready += n
	case int64(done):
		l.Done = n
	case int64(cancelled):
		l.Cancelled = n
	case int64(expired):
		l.Expired = n
	case int64(dead):
		l.Dead = n
	case bytesNumber:
		l.Bytes += n
	case evictedNumber:
		l.Evicted = n
	case droppedNumber:
		l.EvictedDead = n
	case succeededNumber:
		l.Succeeded = fromMicros(n)
	case failedNumber:
		l.Failed = fromMicros(n)
	case enqueuedNumber:
		l.Total.Enqueued += n
	case cancelledGone:
		l.Total.Cancelled = n
	case expiredGone:
		l.Total.Expired = n
	case deadGone:
		l.Total.Dead = n
	case failuresNumber:
		l.Total.Failed = n
	case arrivedNumber:
		l.Total.Done = n // see addUp
	}
}

// addUp completes the totals of a lane by the jobs that there are, given how many have arrived
// as its Done.
func addUp(l *storage.LaneStats) {
	t := &l.Total
	t.Cancelled, t.Expired, t.Dead = t.Cancelled+l.Cancelled, t.Expired+l.Expired, t.Dead+l.Dead
	t.Done += t.Enqueued - l.Scheduled - l.Ready - l.Blocked - l.Running - t.Cancelled - t.Expired - t.Dead - l.Evicted
}

// sqlAddNumbers adds to so many numbers at a time. To run a statement takes longer than
// to change a number.
var sqlAddNumbers = [...]string{
	1: sqlAddNumber,
	2: sqlAdd + `(?, ?), (?, ?)` + sqlAdded,
	3: sqlAdd + `(?, ?), (?, ?), (?, ?)` + sqlAdded,
	4: sqlAdd + `(?, ?), (?, ?), (?, ?), (?, ?)` + sqlAdded,
}

// adder adds to numbers.
type adder struct {
	execer
	n    int
	args [2 * (len(sqlAddNumbers) - 1)]any
	err  error
}

// add adds delta to a number.
func (a *adder) add(id, delta int64) {
	if delta == 0 {
		return
	}
	a.args[2*a.n], a.args[2*a.n+1] = id, delta
	if a.n++; 2*a.n == len(a.args) {
		_ = a.flush()
	}
}

// flush writes what was added. It returns the first error of all.
func (a *adder) flush() error {
	if a.n > 0 && a.err == nil {
		_, a.err = a.exec(sqlAddNumbers[a.n], a.args[:2*a.n]...)
	}
	a.n = 0
	return a.err
}

const (
	// The lanes beyond the first 200 are one, 201. Times are left out: their sum is none.
	sqlSampled        = `SELECT id / 32, id % 32, n FROM main.errand_number WHERE id >= 32 AND id < 201 * 32 AND id % 32 NOT BETWEEN 16 AND 20`
	sqlSampledRest    = `SELECT 201, id % 32 AS number, SUM(n) FROM main.errand_number WHERE id >= 201 * 32 AND id % 32 NOT BETWEEN 16 AND 20 GROUP BY number`
	sqlSampledRunning = `SELECT MIN(lane, 201) AS of, COUNT(*) FROM main.errand_job WHERE state = 3 GROUP BY of`
	sqlSampledOldest  = `SELECT o.lane, n FROM (` + oldestBegin + ` AND f.id < 201 * 32` + oldestEnd + `) o JOIN main.errand_lane l ON l.lane = o.lane
WHERE o.lane < 201 AND NOT EXISTS (SELECT 1 FROM main.errand_hold h WHERE h.queue IN ('', l.queue) AND h.kind IN ('', l.kind)
AND (h.probe <> 0 OR h.until IS NULL OR h.until > ?1))`
	sqlHasSample = `SELECT EXISTS (SELECT 1 FROM main.errand_sample WHERE at = ?1)`
	sqlPutSample = `INSERT INTO main.errand_sample (at, numbers) VALUES (?1, ?2)`
	// A sample that is not the first of its hour is deleted after a day; one without numbers counts
	// as first only among those. The last one before the week stays: it tells what changed until the
	// first one in it. A clock that was far ahead once costs no more than is deleted at a time.
	sqlOldSamples = `SELECT at FROM main.errand_sample AS s WHERE
(at < ?1 OR at < ?2 AND EXISTS (SELECT 1 FROM main.errand_sample e
WHERE e.at < s.at AND e.at >= s.at - s.at % 3600000000 AND (e.numbers <> x'' OR s.numbers = x'')))
AND at <> COALESCE((SELECT MAX(at) FROM main.errand_sample WHERE at < ?1), 0) ORDER BY at LIMIT 24`
	sqlDropSample   = `DELETE FROM main.errand_sample WHERE at = ?1`
	sqlShiftSamples = `DELETE FROM main.errand_sample WHERE at > ?1`
	// What was done while the clock was ahead belongs to no time.
	sqlBreakSamples = `INSERT OR IGNORE INTO main.errand_sample (at, numbers) SELECT MAX(at) + ?2, x'' FROM main.errand_sample HAVING MAX(at) + ?2 < ?1`
	sqlSamples      = `SELECT at, numbers FROM main.errand_sample WHERE at >=
COALESCE((SELECT MAX(at) FROM main.errand_sample WHERE at < ?1), ?1) ORDER BY at`
	sqlSampledLanes = sqlAllLanes + ` WHERE lane <= 200`
	sqlLastWrite    = `SELECT clock FROM main.errand_meta`
)

// sampleEach is [storage.SampleEach] in microseconds, as hour is.
const (
	sampleEach = int64(storage.SampleEach / time.Microsecond)
	hour       = int64(time.Hour / time.Microsecond)
)

// sampling is a sample that a transaction writes if it raises the clock to the time of it.
type sampling struct {
	at      int64  // 0: there is none to be written
	numbers []byte // empty: they are not known
	err     error
}

// beginSample reads the numbers before a call that is given at changes any, if nobody has written
// yet in the SampleEach of at.
func (t *tx) beginSample(at int64) {
	of := at
	if at -= at % sampleEach; at <= t.meta.clock || at <= t.sampling.at || t.probes() || t.store.floor.samples.Load() != takesSamples {
		return
	}
	if t.sampling.at == 0 { // else a call before it in the transaction has read them
		t.readSample(of)
	}
	t.sampling.at = at
}

// probes reports whether the transaction is none, and only looks whether there is something to do.
func (t *tx) probes() bool { return !t.inTx && t.stmts != nil && t.stmts != t.store.app }

// readSample reads the numbers as calls before this one in the transaction have left them.
func (t *tx) readSample(now int64) {
	s := &t.sampling
	if s.numbers, s.err = []byte{}, nil; !t.store.marks.low.Load() {
		s.numbers, s.err = t.sampleNow(now)
		t.store.floor.samples.met(s.err)
	}
}

// flushSample writes the sample.
func (t *tx) flushSample() error {
	s := &t.sampling
	if s.at == 0 || s.at > t.meta.clock {
		return nil
	}
	if s.err != nil {
		return s.err
	}
	var has bool
	var old []int64
	err := t.row(sqlHasSample, []any{s.at}, &has)
	if err == nil && t.was.clock < s.at-s.at%hour { // more often would write another page each time
		var at int64
		args := []any{s.at - storage.SamplesFor.Microseconds(), s.at - storage.SamplesEachFor.Microseconds()}
		err = t.each(sqlOldSamples, args, []any{&at}, func() { old = append(old, at) })
	}
	if err == nil && !has {
		_, err = t.exec(sqlPutSample, s.at, s.numbers)
	}
	for i := 0; err == nil && i < len(old); i++ {
		_, err = t.exec(sqlDropSample, old[i])
	}
	t.store.floor.samples.met(err)
	return err
}

// sampler says whether a Store takes samples. It stops if it meets damage: what can be written without
// that is to go on.
type sampler struct{ atomic.Int32 }

const (
	takesSamples = iota // it does
	sampleFailed        // it does no more, and what met the damage has failed: SQLite writes nothing after it
	takesNone
)

// met takes notice of an error of a sample.
func (s *sampler) met(err error) {
	if err != nil && errors.Is(translate(err), storage.ErrCorrupt) {
		s.CompareAndSwap(takesSamples, sampleFailed)
	}
}

// without runs a transaction, and if its sample has met damage, runs it again without one.
func (s *sampler) without(transact func() (culprit int, err error)) (culprit int, err error) {
	if culprit, err = transact(); err != nil && s.CompareAndSwap(sampleFailed, takesNone) {
		return transact()
	}
	return culprit, err
}

// shiftSamples deletes the samples that are later than now, and takes one.
func (t *tx) shiftSamples(now int64) error {
	if t.store.floor.samples.Load() != takesSamples {
		return nil
	}
	at := now - now%sampleEach
	_, err := t.exec(sqlShiftSamples, now)
	if err == nil {
		_, err = t.exec(sqlBreakSamples, at, sampleEach)
	}
	t.readSample(now)
	t.sampling.at = at
	t.store.floor.samples.met(err)
	return err
}

// sampleNow returns the numbers of a sample, as they are.
func (t *tx) sampleNow(at int64) ([]byte, error) {
	type key struct{ lane, number int64 }
	numbers := map[key]int64{}
	lanes := map[int64]*storage.LaneStats{}
	of := func(lane int64) *storage.LaneStats {
		if lanes[lane] == nil {
			lanes[lane] = &storage.LaneStats{}
		}
		return lanes[lane]
	}
	var k key
	var lane, n int64
	for _, text := range []string{sqlSampled, sqlSampledRest} {
		if err := t.each(text, nil, []any{&k.lane, &k.number, &n}, func() { numbers[k] = n }); err != nil {
			return nil, err
		}
	}
	for c, n := range t.counts { // of calls before this one, which are not written yet
		numbers[key{min(c.lane, storage.SampledLanes+1), int64(c.state)}] += n
	}
	for k, n := range numbers {
		setNumber(of(k.lane), k.number, n)
	}
	if err := t.each(sqlSampledRunning, nil, []any{&lane, &n}, func() { of(lane).Running = n }); err != nil {
		return nil, err
	}
	if err := t.each(sqlSampledOldest, []any{at}, []any{&lane, &n}, func() { of(lane).OldestDue = fromMicros(n) }); err != nil {
		return nil, err
	}
	out := packed.New()
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		s := lanes[lane]
		addUp(s)
		out = packed.Append(out, lane, &storage.SampledLane{
			Total: s.Total, Scheduled: s.Scheduled, Ready: s.Ready, Running: s.Running, Blocked: s.Blocked, Dead: s.Dead, OldestDue: s.OldestDue,
		})
	}
	return out, nil
}

// History implements [storage.Historian].
func (s *Store) History(ctx context.Context, since time.Time) (out []storage.Sample, err error) {
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		var names []struct {
			Lane        int64
			Queue, Kind string
		}
		var rows []struct {
			At      int64
			Numbers []byte
		}
		var clock int64
		if err := errors.Join(tx.Select(&names, sqlSampledLanes), tx.Select(&rows, sqlSamples, micros(since)), tx.Get(&clock, sqlLastWrite)); err != nil {
			return err
		}
		of := map[int64]storage.Lane{}
		for _, n := range names {
			of[n.Lane] = storage.Lane{Queue: n.Queue, Kind: n.Kind}
		}
		out = make([]storage.Sample, len(rows))
		for i, r := range rows {
			s := &out[i]
			s.At = fromMicros(r.At)
			if s.Unknown = len(r.Numbers) == 0 || !packed.Read(r.Numbers, func(lane int64, l *storage.SampledLane) {
				l.Lane = of[lane]
				s.Lanes = append(s.Lanes, *l)
			}); s.Unknown { // or it is of a later build
				s.Lanes = nil
			}
		}
		if n := len(rows); n > 0 && clock >= rows[n-1].At+sampleEach { // a build that takes no samples has written since
			out = append(out, storage.Sample{At: fromMicros(rows[n-1].At + sampleEach), Unknown: true})
		}
		return nil
	})
	return out, err
}
