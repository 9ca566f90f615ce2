package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// A list looks at jobs one by one in the order of an index, until it has enough that
// match or has looked at lookLimit. The columns are those of glance. ?1 is part of
// the last error.
const (
	liveError  = `COALESCE(` + lastError + `, '')`
	endedError = `COALESCE(NULLIF(j.error, ''), ` + lastError + `, '')`

	lookLive = `SELECT j.id, state, lane, priority, due_at, created_at, 0, '', 0, ?1 = '' OR instr(lower(` + liveError + `), lower(?1)) > 0
FROM main.errand_job j`
	// With the group in the place of the reason, which a live job has not.
	lookMember = `SELECT j.id, state, lane, priority, due_at, created_at, 0, o.group_key, 0, ?1 = '' OR instr(lower(` + liveError + `), lower(?1)) > 0
FROM main.errand_option o CROSS JOIN main.errand_job j ON j.id = o.job`
	lookFollower = `SELECT j.id, state, lane, priority, due_at, j.created_at, 0, '', 0, ?1 = '' OR instr(lower(` + liveError + `), lower(?1)) > 0
FROM main.errand_unique u CROSS JOIN main.errand_job j ON j.id = u.job`
	lookFinished = `SELECT j.id, state, lane, priority, due_at, created_at, ended_at, '', 0, ?1 = '' OR instr(lower(` + endedError + `), lower(?1)) > 0
FROM main.errand_finished j`
	lookDead = `SELECT j.id, 6, lane, priority, due_at, created_at, ended_at, reason, cause, ?1 = '' OR instr(lower(` + endedError + `), lower(?1)) > 0
FROM main.errand_dead j`

	// All that is running is read and sorted: it is little.
	sqlListRunning = lookLive + ` INDEXED BY errand_job_running WHERE state = 3 AND j.id < ?2 ORDER BY j.id DESC`
	sqlListReady   = lookLive + ` WHERE state = 2 AND lane = ?2 AND priority < ?3 ORDER BY priority DESC, due_at, j.id`
	// A position may be among many jobs of one time. By (due_at, id) > (?, ?) all of these
	// would be read up to it, so they are asked for apart, here and below. Of two bounds of
	// one column the index is entered with one alone, so they are made one.
	sqlListReadyRest = lookLive + ` WHERE state = 2 AND lane = ?2 AND priority = ?3 AND due_at = ?4 AND j.id > ?5
UNION ALL ` + lookLive + ` WHERE state = 2 AND lane = ?2 AND priority = ?3 AND due_at > ?4 ORDER BY 5, 1`
	sqlListScheduled = lookLive + ` WHERE state = 1 AND due_at >= ?2 AND due_at < ?3 AND due_at = ?4 AND j.id > ?5
UNION ALL ` + lookLive + ` WHERE state = 1 AND due_at > MAX(?2 - 1, ?4) AND due_at < ?3 ORDER BY 5, 1`
	sqlListBlocked = lookMember + ` WHERE o.role = 1 AND o.group_key < ?4 AND (o.group_key, o.job) > (?2, ?3) ORDER BY o.group_key, o.job`
	sqlListBehind  = lookFollower + ` WHERE u.slot = 1 AND u.job > ?2 ORDER BY u.job`
	sqlListDead    = lookDead + ` WHERE ended_at >= ?2 AND ended_at < ?3 AND ended_at = ?4 AND j.id < ?5
UNION ALL ` + lookDead + ` WHERE ended_at >= ?2 AND ended_at < MIN(?3, ?4) ORDER BY 7 DESC, 1 DESC`
	sqlListCause = lookDead + ` WHERE cause = ?6 AND cause <> 0 AND ended_at >= ?2 AND ended_at < ?3 AND ended_at = ?4 AND j.id < ?5
UNION ALL ` + lookDead + ` WHERE cause = ?6 AND cause <> 0 AND ended_at >= ?2 AND ended_at < MIN(?3, ?4) ORDER BY 7 DESC, 1 DESC`
	sqlListFinished = lookFinished + ` WHERE j.id < ?2 ORDER BY j.id DESC`
	sqlListKeys     = lookLive + ` WHERE j.id >= ?2 AND j.id < ?3 UNION ALL ` + lookFinished + ` WHERE j.id >= ?2 AND j.id < ?3 UNION ALL ` +
		lookDead + ` WHERE j.id >= ?2 AND j.id < ?3 ORDER BY 1 DESC`
	// lookAny has the jobs of a table of keys, named t, whatever they are.
	lookAny = `SELECT t.job, COALESCE(j.state, f.state, 6), COALESCE(j.lane, f.lane, d.lane, 0), COALESCE(j.priority, f.priority, d.priority, 0),
COALESCE(j.due_at, f.due_at, d.due_at, 0), COALESCE(j.created_at, f.created_at, d.created_at, 0), COALESCE(f.ended_at, d.ended_at, 0),
COALESCE(d.reason, ''), COALESCE(d.cause, 0), (?1 = '' OR instr(lower(COALESCE(NULLIF(f.error, ''), NULLIF(d.error, ''),
(SELECT NULLIF(error, '') FROM main.errand_error e WHERE e.job = t.job AND e.token = COALESCE(j.token, f.token, d.token)),
(SELECT error FROM main.errand_history h WHERE h.job = t.job AND h.args IS NULL ORDER BY n DESC LIMIT 1), '')), lower(?1)) > 0)`
	joinAny    = ` LEFT JOIN main.errand_job j ON j.id = t.job LEFT JOIN main.errand_finished f ON f.id = t.job LEFT JOIN main.errand_dead d ON d.id = t.job`
	sqlListTag = lookAny + ` FROM main.errand_tag t` + joinAny + ` WHERE tag = ?4 AND job >= ?2 AND job < ?3 ORDER BY job DESC`
	// The members of a group have indexes by role. ?5 has a bit for each role to be looked at.
	lookGroup    = lookAny + ` AND (?6 = '' OR EXISTS (SELECT 1 FROM main.errand_tag g WHERE g.tag = ?6 AND g.job = t.job)) FROM main.errand_option t` + joinAny + ` WHERE group_key = ?4 AND t.job >= ?2 AND t.job < ?3`
	sqlListGroup = lookGroup + ` AND role = 0 AND ?5 & 1 UNION ALL ` + lookGroup + ` AND role = 1 AND ?5 & 2 UNION ALL ` +
		lookGroup + ` AND role = 2 AND role >= 2 AND ?5 & 4 UNION ALL ` + lookGroup + ` AND role = 3 AND ?5 & 8 ORDER BY 1 DESC`

	sqlKeyFrom = `SELECT id, created_at FROM main.errand_job WHERE id >= ?1 UNION ALL SELECT id, created_at FROM main.errand_finished WHERE id >= ?1
UNION ALL SELECT id, created_at FROM main.errand_dead WHERE id >= ?1 ORDER BY id LIMIT 1`
	laneCounts = `SELECT l.lane, queue, kind, COALESCE(c.id, 0) % 32 AS state, COALESCE(c.n, 0) AS n FROM main.errand_lane l
LEFT JOIN main.errand_number c ON c.id >= l.lane * 32 AND c.id < l.lane * 32 + 16`
	sqlLaneCounts   = laneCounts + ` ORDER BY queue, kind`
	sqlLaneCountsOf = laneCounts + ` WHERE queue = ?1 ORDER BY queue, kind`
	sqlRestCounts   = `SELECT lane, state, 1 AS n` + fromUncounted
)

// lookLimit is how many jobs a page looks at: 5 to 60 ms on two busy cores, the more
// the farther apart their rows are (BenchmarkJobs). It holds up nobody but one of the
// connections for callers.
const lookLimit = 2000

// glance is what a list sees of a job.
type glance struct {
	ID, Lane, Priority, DueAt, CreatedAt, EndedAt int64
	State                                         stateCode
	Reason                                        string
	Cause                                         int64
	Hit                                           bool // the error has what is asked for
}

// period is from one time to before another, in microseconds.
type period struct{ from, before int64 }

func (p period) has(at int64) bool { return p.from <= at && at < p.before }

// laneCount is how many jobs of a lane are in a state. A lane has a row with n zero if
// it has no counts.
type laneCount struct {
	Lane        int64
	Queue, Kind string
	State       int64
	N           int64
}

// lister makes one page.
type lister struct {
	ctx    context.Context
	tx     *sqlx.Tx
	begins *begins
	f      *storage.Filter
	limit  int
	// lanes are those that match, by queue and kind, and counts how many jobs they
	// have in each state. narrow is true if there are others.
	lanes  []int64
	counts map[laneState]int64
	narrow bool
	bulk   []int64 // the lanes that are left out, see [storage.BulkQueue]

	created, due, ended period

	stmts  map[string]*sql.Stmt // until the transaction ends
	found  []glance
	looked int
	next   string // after the last one looked at
	from   string // a place that is a text
	over   bool   // there may be more
}

// Jobs implements [storage.Store].
func (s *Store) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (page storage.Page, err error) {
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		page, err = jobs(ctx, tx, s.begins(tx), f, after, limit)
		return err
	})
	if err != nil {
		return storage.Page{}, err
	}
	return page, nil
}

// JobsTx returns the jobs that match as tx sees them, with all that is known of each, in the
// order of Jobs. It is for tests: tx is a [*sql.Tx], from which nobody else may read
// meanwhile. JobsTx returns [storage.ErrWrongDatabase] for a transaction on another database.
func (s *Store) JobsTx(ctx context.Context, in any, f storage.Filter) (all []storage.Record, err error) {
	if err := s.inside(ctx, in, false, false, func(*tx) error { return nil }); err != nil {
		return nil, err
	}
	tx := &sqlx.Tx{Tx: in.(*sql.Tx), Mapper: s.read.Mapper}
	begins := s.begins(tx)
	var page storage.Page
	for after := ""; ; after = page.Next {
		if page, err = jobs(ctx, tx, begins, f, after, lookLimit); err != nil {
			return nil, translate(misfit(unread(err)))
		}
		for _, found := range page.Jobs {
			r, err := job(tx, found.ID, begins)
			if err != nil {
				return nil, translate(misfit(unread(err)))
			}
			all = append(all, r)
		}
		if page.Next == "" {
			return all, nil
		}
	}
}

const sqlTagged = `SELECT job FROM main.errand_tag WHERE tag = ?1 LIMIT 1`

// TaggedTx reports of each tag whether a job has it, in whatever state, as tx sees it. TaggedTx
// returns [storage.ErrWrongDatabase] for a transaction on another database.
func (s *Store) TaggedTx(ctx context.Context, in any, tags []string) (there []bool, err error) {
	there = make([]bool, len(tags))
	err = s.inside(ctx, in, false, false, func(t *tx) error {
		for i, tag := range tags {
			var job int64
			err := t.row(sqlTagged, []any{tag}, &job)
			if there[i] = err == nil; err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		return nil
	})
	return there, err
}

// jobs makes a page in a transaction.
func jobs(ctx context.Context, tx *sqlx.Tx, begins *begins, f storage.Filter, after string, limit int) (page storage.Page, err error) {
	l := lister{ctx: ctx, tx: tx, begins: begins, f: &f, limit: limit, stmts: map[string]*sql.Stmt{}}
	l.created.from, l.created.before = bounds(f.CreatedFrom, f.CreatedBefore)
	l.due.from, l.due.before = bounds(f.DueFrom, f.DueBefore)
	l.ended.from, l.ended.before = bounds(f.EndedFrom, f.EndedBefore)
	if limit > 0 {
		if err := l.list(after); err != nil {
			return storage.Page{}, err
		}
	}
	page.Looked = l.looked
	if l.over {
		page.Next = l.next
	}
	page.Jobs, err = l.records()
	return page, err
}

// list finds the jobs of the page.
func (l *lister) list(after string) error {
	if err := l.readLanes(); err != nil {
		return err
	}
	if l.f.ByKey() {
		at, err := readPlace(after, 'k', 1)
		if err != nil {
			return err
		}
		return l.byKey(at)
	}
	sections := []struct {
		name    byte
		numbers int // of a place in it; 0 for a text
		states  []stateCode
		list    func(at []int64) error
	}{
		{'r', 1, []stateCode{running}, l.running},
		{'w', 4, []stateCode{ready}, l.ready},
		{'s', 2, []stateCode{scheduled}, l.scheduled},
		{'b', 0, []stateCode{blocked}, l.blocked},
		{'u', 1, []stateCode{blocked}, l.behind},
		{'d', 2, []stateCode{dead}, l.dead},
		{'f', 1, []stateCode{done, cancelled, expired}, l.finished},
	}
	begun := after == ""
	for _, s := range sections {
		var at []int64
		if !begun {
			if after[0] != s.name {
				continue
			}
			var err error
			if s.numbers == 0 {
				l.from = after[1:]
			} else if at, err = readPlace(after, s.name, s.numbers); err != nil {
				return err
			}
			begun = true
		}
		if !l.any(s.states) {
			continue
		}
		if err := s.list(at); err != nil || l.over {
			return err
		}
	}
	if !begun {
		return badPlace(after)
	}
	return nil
}

// readLanes reads which lanes match, and how many jobs they have.
func (l *lister) readLanes() error {
	var rows, rest []laneCount
	text, args := sqlLaneCounts, []any{}
	if l.f.Queue != "" {
		text, args = sqlLaneCountsOf, []any{l.f.Queue}
	}
	if err := errors.Join(l.tx.SelectContext(l.ctx, &rows, text, args...), l.tx.SelectContext(l.ctx, &rest, sqlRestCounts)); err != nil {
		return err
	}
	l.narrow = l.f.Queue != "" || l.f.Kind != ""
	l.counts = map[laneState]int64{}
	for _, r := range rows {
		if l.f.Queue != "" && l.f.Queue != r.Queue || l.f.Kind != "" && l.f.Kind != r.Kind {
			continue
		}
		if !l.f.Reaches(r.Queue) {
			l.bulk = append(l.bulk, r.Lane)
			continue
		}
		if n := len(l.lanes); n == 0 || l.lanes[n-1] != r.Lane {
			l.lanes = append(l.lanes, r.Lane)
		}
		l.counts[laneState{r.Lane, stateCode(r.State)}] = r.N
	}
	for _, r := range rest {
		l.counts[laneState{r.Lane, stateCode(r.State)}] += r.N
	}
	return nil
}

// any reports whether a job in one of the states can match. Running jobs are not
// counted.
func (l *lister) any(states []stateCode) bool {
	for _, s := range states {
		if !l.f.Has(stateNames[s]) {
			continue
		}
		for _, lane := range l.lanes {
			if s == running || l.counts[laneState{lane, s}] > 0 {
				return true
			}
		}
	}
	return false
}

func (l *lister) matches(g *glance) bool {
	if g.State <= 0 || int(g.State) >= len(stateNames) || !l.f.Has(stateNames[g.State]) || !g.Hit {
		return false
	}
	if l.narrow && !slices.Contains(l.lanes, g.Lane) || slices.Contains(l.bulk, g.Lane) {
		return false
	}
	return l.created.has(g.CreatedAt) && l.due.has(g.DueAt) && l.ended.has(g.EndedAt) && (l.f.Reason == "" || string(l.f.Reason) == g.Reason) &&
		(l.f.Cause == 0 || l.f.Cause == g.Cause)
}

// stmt returns a statement that may be used often: for each of many lanes, or jobs.
func (l *lister) stmt(text string) (st *sql.Stmt, err error) {
	if st = l.stmts[text]; st == nil {
		if st, err = l.tx.PrepareContext(l.ctx, text); err == nil {
			l.stmts[text] = st
		}
	}
	return st, err
}

// look looks at the jobs of a query. The place after each is what mark returns.
func (l *lister) look(mark func(g *glance) string, text string, args ...any) error {
	if l.over {
		return nil
	}
	st, err := l.stmt(text)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(l.ctx, append([]any{l.f.Error}, args...)...)
	if err != nil {
		return misfit(err)
	}
	defer rows.Close()
	for rows.Next() {
		if l.looked == lookLimit {
			l.over = true
			return nil
		}
		var g glance
		if err := rows.Scan(&g.ID, &g.State, &g.Lane, &g.Priority, &g.DueAt, &g.CreatedAt, &g.EndedAt, &g.Reason, &g.Cause, &g.Hit); err != nil {
			return scanError(rows, err)
		}
		l.looked++
		if l.matches(&g) {
			if len(l.found) == l.limit {
				l.over = true
				return nil
			}
			l.found = append(l.found, g)
		}
		l.next = mark(&g)
	}
	return rows.Err()
}

func (l *lister) running(at []int64) error {
	return l.look(func(g *glance) string { return mark('r', g.ID) }, sqlListRunning, first(at, math.MaxInt64))
}

// ready lists lane by lane.
func (l *lister) ready(at []int64) error {
	lanes := l.lanes
	mark := func(g *glance) string { return mark('w', g.Lane, g.Priority, g.DueAt, g.ID) }
	if at != nil {
		i := slices.Index(lanes, at[0])
		if i < 0 {
			return badPlace(fmt.Sprint(at))
		}
		lanes = lanes[i+1:]
		if err := l.look(mark, sqlListReadyRest, at[0], at[1], at[2], at[3]); err != nil {
			return err
		}
		if err := l.look(mark, sqlListReady, at[0], at[1]); err != nil {
			return err
		}
	}
	for _, lane := range lanes {
		if l.counts[laneState{lane, ready}] == 0 {
			continue
		}
		if err := l.look(mark, sqlListReady, lane, int64(math.MaxInt64)); err != nil {
			return err
		}
	}
	return nil
}

// The position is also put into the bounds of the time, which are what the index is
// entered with.
func (l *lister) scheduled(at []int64) error {
	from, key := l.due.from, int64(-1)
	due := from
	if at != nil {
		due, key = at[0], at[1]
		from = max(from, due)
	}
	return l.look(func(g *glance) string { return mark('s', g.DueAt, g.ID) }, sqlListScheduled, from, l.due.before, due, key)
}

// blocked lists group by group.
func (l *lister) blocked([]int64) error {
	low, high, job := "", "\x7f", int64(-1)
	if l.f.Queue != "" {
		low, high = l.f.Queue+" ", l.f.Queue+"!"
	}
	if l.from != "" {
		number, key, _ := strings.Cut(l.from, ".")
		var err error
		if job, err = strconv.ParseInt(number, 10, 64); err != nil {
			return badPlace(l.from)
		}
		low = key
	}
	return l.look(func(g *glance) string { return mark('b', g.ID) + "." + g.Reason }, sqlListBlocked, low, job, high)
}

// behind lists those that wait behind the holder of their unique key.
func (l *lister) behind(at []int64) error {
	return l.look(func(g *glance) string { return mark('u', g.ID) }, sqlListBehind, first(at, -1))
}

func (l *lister) dead(at []int64) error {
	before, ended, key := l.ended.before, int64(math.MaxInt64), int64(math.MaxInt64)
	if at != nil {
		ended, key = at[0], at[1]
		before = min(before, ended+1)
	}
	mark := func(g *glance) string { return mark('d', g.EndedAt, g.ID) }
	if l.f.Cause != 0 {
		return l.look(mark, sqlListCause, l.ended.from, before, ended, key, l.f.Cause)
	}
	return l.look(mark, sqlListDead, l.ended.from, before, ended, key)
}

func (l *lister) finished(at []int64) error {
	return l.look(func(g *glance) string { return mark('f', g.ID) }, sqlListFinished, first(at, math.MaxInt64))
}

func (l *lister) byKey(at []int64) error {
	low, high := int64(0), int64(math.MaxInt64)
	for _, b := range []struct {
		at  int64
		key *int64
	}{{l.created.from, &low}, {l.created.before, &high}} {
		if b.at == math.MinInt64 || b.at == math.MaxInt64 {
			continue
		}
		var err error
		if *b.key, err = l.keyFrom(b.at); err != nil {
			return err
		}
	}
	if at != nil {
		high = min(high, at[0])
	}
	mark := func(g *glance) string { return mark('k', g.ID) }
	switch {
	case l.f.Group != "":
		return l.look(mark, sqlListGroup, low, high, rules.GroupName(l.f.Queue, l.f.Group), l.roles(), l.f.Tag)
	case l.f.Tag != "":
		return l.look(mark, sqlListTag, low, high, l.f.Tag)
	}
	return l.look(mark, sqlListKeys, low, high)
}

// roles has a bit for each role in a group that a job which matches may have.
func (l *lister) roles() (mask int) {
	for state, roles := range map[storage.State]int{
		storage.Running: 4, storage.Ready: 4, storage.Scheduled: 1 | 4, storage.Blocked: 2, storage.Dead: 1 | 8,
		storage.Done: 1, storage.Cancelled: 1, storage.Expired: 1,
	} {
		if l.f.Has(state) {
			mask |= roles
		}
	}
	return mask
}

// keyFrom returns the key of the first job that was enqueued at a time or later, as if
// the times rose with the keys.
func (l *lister) keyFrom(at int64) (int64, error) {
	low, high := int64(1), int64(0)
	if err := l.tx.GetContext(l.ctx, &high, sqlNextJob); err != nil {
		return 0, err
	}
	for low < high {
		middle := low + (high-low)/2
		var rows []struct {
			ID        int64
			CreatedAt int64 `db:"created_at"`
		}
		if err := l.tx.SelectContext(l.ctx, &rows, sqlKeyFrom, middle); err != nil {
			return 0, err
		}
		if len(rows) == 0 || rows[0].CreatedAt >= at {
			high = middle
		} else {
			low = rows[0].ID + 1
		}
	}
	return low, nil
}
