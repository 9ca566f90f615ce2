package sqlite

import (
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// Not by the view errand_meta, which would be a query in a query.
	sqlMeta = `SELECT (SELECT n FROM main.errand_number WHERE id = 0), (` + sqlNextJob + `),
(SELECT n FROM main.errand_number WHERE id = 2), (SELECT n FROM main.errand_number WHERE id = 3), (SELECT n FROM main.errand_number WHERE id = 4),
(SELECT ` + clock + ` FROM main.errand_number WHERE id = 5), (SELECT n FROM main.errand_number WHERE id = 6), (SELECT n FROM main.errand_number WHERE id = 7)`
	sqlFindLane = `SELECT lane FROM main.errand_lane WHERE queue = ?1 AND kind = ?2`
	sqlAddLane  = `INSERT INTO main.errand_lane (queue, kind) VALUES (?1, ?2)`
)

// The states as the tables have them. SQL texts that use a partial index have
// the numbers as literals.
const (
	scheduled stateCode = 1
	ready     stateCode = 2
	running   stateCode = 3
	done      stateCode = 4
	cancelled stateCode = 5
	dead      stateCode = 6
	blocked   stateCode = 7
	expired   stateCode = 8
)

// live reports whether jobs in a state are in errand_job.
func (s stateCode) live() bool { return s <= running || s == blocked }

// waits reports whether a job in a state counts for the caps of its queue.
func (s stateCode) waits() bool { return s == scheduled || s == ready || s == blocked }

// laneNumbers is how many ids of errand_number each lane has.
const laneNumbers = 32

var stateNames = [...]storage.State{
	scheduled: storage.Scheduled, ready: storage.Ready, running: storage.Running,
	done: storage.Done, cancelled: storage.Cancelled, dead: storage.Dead, blocked: storage.Blocked, expired: storage.Expired,
}

// codeOf returns the code of a state.
func codeOf(s storage.State) stateCode { return stateCode(slices.Index(stateNames[:], s)) }

// execer runs SQL inside a transaction: prepared on the writer's connection,
// or plainly in a transaction of the application.
type execer interface {
	exec(text string, args ...any) (sql.Result, error)
	asker
}

// asker runs SQL that only reads.
type asker interface {
	row(text string, args []any, dest ...any) error
	each(text string, args, dest []any, f func()) error
}

type meta struct {
	minWriter                             int
	nextJob, nextToken, nextInstance, gen int64

	clock    int64
	shifting int64
	asked    int64
}

func (m *meta) dest() []any {
	return []any{&m.minWriter, &m.nextJob, &m.nextToken, &m.nextInstance, &m.gen, &m.clock, &m.shifting, &m.asked}
}

// numbers returns the rows of errand_number, by id.
func (m *meta) numbers() [8]int64 {
	return [...]int64{int64(m.minWriter), m.nextJob, m.nextToken, m.nextInstance, m.gen, m.clock, m.shifting, m.asked}
}

type laneState struct {
	lane  int64
	state stateCode
}

// tx is one write transaction: the counters it began with and what it adds to
// them, written once at its end.
type tx struct {
	execer
	store      *Store
	stmts      *statements // nil in a transaction of the application's own connection
	inTx       bool        // false in a probe, which runs outside a transaction
	was        meta
	meta       meta
	at         int64                  // the latest time that its calls were given
	ledger                            // what it adds to numbers beside the counters
	lanes      map[storage.Lane]int64 // created in this transaction, or found by it
	created    int64                  // of them, those that were created
	registered int64                  // this instance, if it was registered in this transaction
	fresh      fresh                  // of the call under way
	handoffs   []*handoff             // what is handed to workers after the commit
	obeyed                            // settings and caps
	deciding   deciding
	news       *snapshot      // what it changes of what the cache has; nil: nothing, or lanes alone
	event      *storage.Event // for the workers, after the commit
	others     bool           // event is for the workers of other processes too
	after      []func()       // run after the commit
	undo       []func()       // run after a rollback
}

func (w *writer) newTx() *tx {
	w.stmts.changed = false
	clear(w.stmts.leased)
	w.stmts.leased = w.stmts.leased[:0]
	return &tx{execer: w.stmts, store: w.Store, stmts: w.stmts, obeyed: obeyed{scopes: w.stmts.scopes}, ledger: newLedger()}
}

// counters reads the counters, and refuses a database that has become too new.
func (t *tx) counters() (recalled bool, err error) {
	m := &t.meta
	if recalled = t.inTx && t.stmts.recall(t); !recalled {
		if err := t.store.readMeta(t, m); err != nil {
			return false, err
		}
		if err := t.countRest(); err != nil {
			return false, err
		}
	}
	t.was = *m
	return recalled, tooNew(m.minWriter)
}

// load reads the counters, and brings the cache up to date if another process
// has changed what it holds. It must not be called in a transaction of the
// application, which may have created lanes that are never committed.
func (t *tx) load() error {
	recalled, err := t.counters()
	if err != nil {
		return err
	}
	if !recalled { // else nobody has written
		t.stmts.checkLineups()
		clear(t.stmts.succeeded)
		clear(t.scopes)
	}
	t.store.floor.raise(&t.meta)
	return t.store.catchUp(t, &t.meta) // with what is committed, whatever becomes of this one
}

// flush writes what the transaction has changed in counters and counts.
func (t *tx) flush() error {
	if err := errors.Join(t.flushPolicies(), t.flushSuccesses(), t.flushDeaths(), t.flushLasts(), t.flushMessages()); err != nil {
		return err
	}
	if err := t.keepClock(); err != nil { // and the sample, before counts
		return err
	}
	if t.meta.clock != t.was.clock {
		t.store.wake.clock.Store(t.meta.clock) // before others can see it
	}
	if err := t.flushNumbers(); err != nil {
		return err
	}
	if err := t.flushCaps(); err != nil {
		return err
	}
	return t.readNews()
}

// readNews reads what the transaction leaves of what the cache has, as it is the only one
// who can tell what it has changed. Else the next transaction would read it and tell the
// workers of the change again.
func (t *tx) readNews() (err error) {
	if t.inTx && t.meta.gen != t.was.gen+t.created {
		t.news, err = t.store.cache.read(t, t.meta.gen)
		t.store.listeners.telling.Store(t.meta.gen) // before others can see it
	}
	return err
}

// rolledBack undoes what was done outside of the database.
func (t *tx) rolledBack() {
	t.store.listeners.telling.Store(0)
	t.stmts.lineups.forget()
	clear(t.scopes)
	for _, f := range t.undo {
		f()
	}
}

// committed does what had to wait for the commit.
func (t *tx) committed() {
	left := t.left()
	t.stmts.remember(left)
	t.store.floor.raise(&t.meta)
	if t.news != nil {
		t.store.cache.take(t.news)
	} else if t.created > 0 {
		t.store.cache.follow(t.was.gen, t.meta.gen, t.lanes)
	}
	if left.counts == nil {
		for _, s := range t.scopes {
			s.base = t.use(s)
		}
	}
	for _, f := range t.after {
		f()
	}
	t.store.self.hold(t.stmts.leased)
	t.store.listeners.asked(t.meta.asked) // t.event says so
	t.passOn()
	if t.event == nil {
		return
	}
	t.store.listeners.notify(*t.event)
	if t.others {
		t.store.wake.others()
	}
}

// notify tells the workers of this process of e after the commit. Of several
// events the earliest due time counts.
func (t *tx) notify(e storage.Event) {
	if t.event == nil {
		t.event = new(e) // e itself would be on the heap in each call
		return
	}
	t.event.Cancel, t.event.Urgent = t.event.Cancel || e.Cancel, t.event.Urgent || e.Urgent
	t.event.Schedules, t.event.Holds = t.event.Schedules || e.Schedules, append(t.event.Holds, e.Holds...)
	if e.Due.Before(t.event.Due) {
		t.event.Due = e.Due
	}
}

// notifyAll tells the workers of all processes.
func (t *tx) notifyAll(e storage.Event) {
	t.notify(e)
	t.others = true
}

// move counts a job from a lane and state to others; 0 stands for nowhere. Running jobs
// are counted when they are asked for, see errand_count: there are few, and each
// would be counted twice for once that anybody asks.
func (t *tx) move(was int64, from stateCode, lane int64, to stateCode) {
	if from != 0 && from != running {
		t.counts[laneState{was, from}]--
		t.gone(was, from)
	}
	if to != 0 && to != running {
		t.counts[laneState{lane, to}]++
	}
	if t.stmts == nil {
		return
	}
	if from == ready && to != running {
		t.stmts.lineups.stir(was)
	}
	if to == ready { // also of one that was: its place may be another
		t.stmts.lineups.stir(lane)
		t.stmts.lineups.eldests.stir(t, lane)
	}
}

func (t *tx) token() int64 {
	t.meta.nextToken++
	return t.meta.nextToken - 1
}

// lane returns the number of a lane, creating it if need be.
func (t *tx) lane(queue, kind string) (int64, error) {
	name := storage.Lane{Queue: queue, Kind: kind}
	if lane, ok := t.store.cache.lane(name); ok {
		return lane, nil
	}
	if lane, ok := t.lanes[name]; ok {
		return lane, nil
	}
	var lane int64
	err := t.row(sqlFindLane, []any{queue, kind}, &lane)
	if errors.Is(err, sql.ErrNoRows) {
		var res sql.Result
		if res, err = t.exec(sqlAddLane, queue, kind); err == nil {
			lane, err = res.LastInsertId()
			t.meta.gen++
			t.created++
		}
	}
	if err != nil {
		return 0, err
	}
	if t.lanes == nil {
		t.lanes = map[storage.Lane]int64{}
	}
	t.lanes[name] = lane
	return lane, nil
}

// micros returns t in whole microseconds, rounded down.
func micros(t time.Time) int64 { return t.UnixMicro() }

// ceilMicros returns d in microseconds, rounded up, except for the last one of the largest
// Duration.
func ceilMicros(d time.Duration) int64 {
	return (min(d, math.MaxInt64-time.Microsecond) + time.Microsecond - 1).Microseconds()
}

// fromMicros returns a time as it is shown. One outside of the years 1970 to 9999, of a clock that
// was wrong, is the nearest one in them: no JSON takes it. IDs and places are of the exact time.
func fromMicros(us int64) time.Time {
	return time.UnixMicro(min(max(us, 0), lastMicro)).UTC()
}

// idOf returns the ID of a job, which is of the exact time.
func idOf(created int64, salt uint32, key int64) storage.ID {
	return storage.NewID(time.UnixMicro(created), salt, key)
}

// lastMicro is the last microsecond of the year 9999.
const lastMicro = 253_402_300_800_000_000 - 1
