package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
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
)

// records returns the jobs that were found, in their order, with their tags.
func (l *lister) records() ([]storage.Record, error) {
	keys := map[string][]int64{}
	at := map[int64]int{}
	for i, g := range l.found {
		text := sqlLiveOf
		switch {
		case g.State == dead:
			text = sqlDeadOf
		case !g.State.live():
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
	found := make([]glance, len(ids))
	for i, id := range ids {
		found[i] = glance{ID: id.Key(), State: running}
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

func first(at []int64, otherwise int64) int64 {
	if at == nil {
		return otherwise
	}
	return at[0]
}

// mark returns a place in a list as text.
func mark(section byte, numbers ...int64) string {
	b := []byte{section}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(b)
}

// readPlace reads what mark has written, and returns nil for the beginning.
func readPlace(text string, section byte, n int) ([]int64, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text[1:], ".")
	if text[0] != section || len(parts) != n {
		return nil, badPlace(text)
	}
	at := make([]int64, n)
	for i, p := range parts {
		var err error
		if at[i], err = strconv.ParseInt(p, 10, 64); err != nil {
			return nil, badPlace(text)
		}
	}
	return at, nil
}

func badPlace(text string) error {
	return fmt.Errorf("errand: place %q in a list: must be the Next of a page of the same list", text)
}
