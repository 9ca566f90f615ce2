package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	listed        = recordFrom + ` id IN (SELECT value FROM json_each(?1))`
	sqlLiveOf     = `SELECT ` + narrowColumns + ownPolicy + `, state, cancelling, ` + liveError + ` AS error, ` + isUnreached + ` AS unreached FROM main.errand_job` + listed
	sqlFinishedOf = `SELECT ` + narrowColumns + ownPolicy + `, state, ended_at, ` + endedError + ` AS error FROM main.errand_finished` + listed
	sqlDeadOf     = `SELECT ` + narrowColumns + lastPolicy + `, 6 AS state, ended_at, reason, ` + endedError + ` AS error FROM main.errand_dead` + listed
	sqlTagsOf     = `SELECT t.job, t.tag FROM json_each(?1) k CROSS JOIN main.errand_tag t ON t.job = k.value`

	sqlIsMember = `SELECT EXISTS (SELECT 1 FROM main.errand_option WHERE job = ?1 AND group_key = ?2)`
	// Those of a group: they have places of it, so there are few, and they are sorted.
	sqlListReadyOf = lookMember + ` WHERE o.group_key = ?3 AND o.role >= 2 AND o.role < 3 AND state = 2 AND lane = ?2
AND (-priority, due_at, j.id) > (?4, ?5, ?6) ORDER BY priority DESC, due_at, j.id`
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
			out[at[rows[i].ID]] = rows[i].record()
			if rows[i].Options&hasTags != 0 {
				tagged = append(tagged, rows[i].ID)
			}
			if rows[i].Options&hasOption != 0 {
				optional = append(optional, rows[i].ID)
			}
		}
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

// isMember reports whether a job is a member of the group that is asked for.
func (l *lister) isMember(job int64) (is bool, err error) {
	st, err := l.stmt(sqlIsMember)
	if err == nil {
		err = st.QueryRowContext(l.ctx, job, rules.GroupName(l.f.Queue, l.f.Group)).Scan(&is)
	}
	return is, err
}

// readyOf is ready for the members of a group.
func (l *lister) readyOf(at []int64) error {
	from := 0
	if at != nil {
		if from = slices.Index(l.lanes, at[0]); from < 0 {
			return badPlace(fmt.Sprint(at))
		}
	}
	mark := func(g *glance) string { return mark('w', g.Lane, g.Priority, g.DueAt, g.ID) }
	for _, lane := range l.lanes[from:] {
		priority, due, key := int64(math.MinInt64), int64(math.MinInt64), int64(0)
		if at != nil && lane == at[0] {
			priority, due, key = -at[1], at[2], at[3]
		}
		if err := l.look(mark, sqlListReadyOf, lane, rules.GroupName(l.f.Queue, l.f.Group), priority, due, key); err != nil {
			return err
		}
	}
	return nil
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
