package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/selector"
)

const (
	listed        = recordFrom + ` id IN (SELECT value FROM json_each(?1))`
	sqlLiveOf     = `SELECT ` + narrowColumns + ownPolicy + `, state, cancelling, instance, ` + liveError + ` AS error, ` + isUnreached + ` AS unreached FROM main.errand_job` + listed
	sqlFinishedOf = `SELECT ` + narrowColumns + ownPolicy + `, state, ended_at, ` + endedError + ` AS error FROM main.errand_finished` + listed
	sqlDeadOf     = `SELECT ` + narrowColumns + lastPolicy + `, 6 AS state, ended_at, reason, ` + endedError + ` AS error FROM main.errand_dead` + listed
	// The length of a BLOB is known without it: those of errand_payload that are too large are not read.
	sqlArgsOf = `SELECT k.value AS job, COALESCE(j.args, f.args, d.args, CASE WHEN length(p.args) <= ?2 THEN p.args END) AS args,
COALESCE(length(p.args), 0) AS bytes FROM json_each(?1) k LEFT JOIN main.errand_job j ON j.id = k.value
LEFT JOIN main.errand_finished f ON f.id = k.value LEFT JOIN main.errand_dead d ON d.id = k.value LEFT JOIN main.errand_payload p ON p.job = k.value`
	sqlTagsOf = `SELECT t.job, t.tag FROM json_each(?1) k CROSS JOIN main.errand_tag t ON t.job = k.value`

	laneCounts = `SELECT l.lane, queue, kind, COALESCE(c.id, 0) % 32 AS state, COALESCE(c.n, 0) AS n FROM main.errand_lane l
LEFT JOIN main.errand_number c ON c.id >= l.lane * 32 AND c.id < l.lane * 32 + 16`
	sqlLaneCounts   = laneCounts + ` ORDER BY queue, kind`
	sqlLaneCountsOf = laneCounts + ` WHERE queue = ?1 ORDER BY queue, kind`
	sqlRestCounts   = `SELECT lane, state, 1 AS n` + fromUncounted
)

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
		if page, err = jobs(ctx, tx, begins, f, after, selector.LookLimit); err != nil {
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

// lister makes one page.
type lister struct {
	ctx    context.Context
	tx     *sqlx.Tx
	begins *begins
	f      *storage.Filter
	stmts  map[string]*sql.Stmt // until the transaction ends
	found  []selector.Glance
}

// jobs makes a page in a transaction.
func jobs(ctx context.Context, tx *sqlx.Tx, begins *begins, f storage.Filter, after string, limit int) (page storage.Page, err error) {
	l := lister{ctx: ctx, tx: tx, begins: begins, f: &f, stmts: map[string]*sql.Stmt{}}
	found, err := selects().List(&l, &f, after, limit)
	if err != nil {
		return storage.Page{}, err
	}
	l.found, page.Next, page.Looked = found.Jobs, found.Next, found.Looked
	page.Jobs, err = l.records()
	return page, err
}

// Look implements [selector.Reader]. It may read one walk often: for each of many lanes.
func (l *lister) Look(q selector.Query, fn func(*selector.Glance) bool) error {
	st, err := l.stmt(q.Text)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(l.ctx, q.Args...)
	if err != nil {
		return misfit(err)
	}
	defer rows.Close()
	var g selector.Glance
	var state stateCode
	into := []any{&g.ID, &state, &g.Lane, &g.Priority, &g.DueAt, &g.CreatedAt, &g.EndedAt, &g.Mark, &g.Hit}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return scanError(rows, err)
		}
		if g.State = int64(state); !fn(&g) {
			return nil
		}
	}
	return rows.Err()
}

func (l *lister) stmt(text string) (st *sql.Stmt, err error) {
	if st = l.stmts[text]; st == nil {
		if st, err = l.tx.PrepareContext(l.ctx, text); err == nil {
			l.stmts[text] = st
		}
	}
	return st, err
}

// Lanes implements [selector.Reader].
func (l *lister) Lanes(queue string) (all, rest []selector.LaneCount, err error) {
	text, args := sqlLaneCounts, []any{}
	if queue != "" {
		text, args = sqlLaneCountsOf, []any{queue}
	}
	err = errors.Join(l.tx.SelectContext(l.ctx, &all, text, args...), l.tx.SelectContext(l.ctx, &rest, sqlRestCounts))
	return all, rest, err
}

// NextKey implements [selector.Reader].
func (l *lister) NextKey() (key int64, err error) {
	err = l.tx.GetContext(l.ctx, &key, sqlNextJob)
	return key, err
}

// records returns the jobs that were found, in their order, with their tags.
func (l *lister) records() ([]storage.Record, error) {
	keys := map[string][]int64{}
	at := map[int64]int{}
	for i, g := range l.found {
		text := sqlLiveOf
		switch {
		case stateCode(g.State) == dead:
			text = sqlDeadOf
		case !stateCode(g.State).live():
			text = sqlFinishedOf
		}
		keys[text] = append(keys[text], g.ID)
		at[g.ID] = i
	}
	out := make([]storage.Record, len(l.found))
	var tagged, optional []int64
	for text, keys := range keys {
		var rows []recordRow
		if err := l.tx.SelectContext(l.ctx, &rows, text, jsonKeys(keys)); err != nil {
			return nil, err
		}
		for i := range rows {
			r := &out[at[rows[i].ID]]
			*r = rows[i].record()
			var err error
			if l.begins != nil {
				if r.StartedAt, err = l.begins.of(&rows[i].jobRow); err != nil {
					return nil, err
				}
			}
			if rows[i].Options&hasTags != 0 {
				tagged = append(tagged, rows[i].ID)
			}
			if rows[i].Options&hasOption != 0 {
				optional = append(optional, rows[i].ID)
			}
		}
	}
	if err := l.args(out, at); err != nil {
		return nil, err
	}
	if err := l.options(optional, func(job int64) *storage.Record { return &out[at[job]] }); err != nil || len(tagged) == 0 {
		return out, err
	}
	var tags []struct {
		Job int64
		Tag string
	}
	err := l.tx.SelectContext(l.ctx, &tags, sqlTagsOf, jsonKeys(tagged))
	for _, t := range tags {
		r := &out[at[t.Job]]
		r.Tags = append(r.Tags, t.Tag)
	}
	for i := range out {
		slices.Sort(out[i].Tags)
	}
	return out, err
}

// Glance implements [storage.Glancer].
func (s *Store) Glance(ctx context.Context, ids []storage.ID) (all []storage.Record, err error) {
	found := make([]selector.Glance, len(ids))
	for i, id := range ids {
		found[i] = selector.Glance{ID: id.Key(), State: int64(running)}
	}
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		all, err = (&lister{ctx: ctx, tx: tx, f: &storage.Filter{}, found: found}).records()
		return err
	})
	if err != nil {
		return nil, err
	}
	live := all[:0]
	for i, r := range all {
		if r.ID == ids[i] {
			live = append(live, r)
		}
	}
	return live, nil
}

// args fills in the args of records, if they are asked for. at says where that of a job is.
func (l *lister) args(out []storage.Record, at map[int64]int) error {
	if !l.f.Args || len(out) == 0 {
		return nil
	}
	var rows []struct {
		Job   int64
		Args  []byte
		Bytes int64
	}
	most := cmp.Or(l.f.MaxArgs, math.MaxInt64)
	err := l.tx.SelectContext(l.ctx, &rows, sqlArgsOf, jsonKeys(slices.Collect(maps.Keys(at))), most)
	for i := range rows {
		r := &out[at[rows[i].Job]]
		if n := max(int64(len(rows[i].Args)), rows[i].Bytes); n > most {
			r.ArgsBytes = n
		} else {
			r.Args = rows[i].Args
		}
	}
	return err
}

// options fills in what the records of jobs have of errand_option.
func (l *lister) options(jobs []int64, of func(job int64) *storage.Record) error {
	if len(jobs) == 0 {
		return nil
	}
	var rows []option
	err := l.tx.SelectContext(l.ctx, &rows, sqlOptionsOf, jsonKeys(jobs))
	for i := range rows {
		rows[i].show(of(rows[i].Job))
	}
	return err
}

func jsonKeys(keys []int64) string {
	b, _ := json.Marshal(keys) // of numbers, which cannot fail
	return string(b)
}
