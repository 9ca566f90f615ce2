package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// Live and finished jobs are passed by key, outside of the writer: an index by lane
	// would cost every job, see the schema. ?1 and ?2 are bounds of the key, ?3 has a bit
	// for each state, ?4 is the queue, ?5 the kind, ?6 part of the last error, ?7 and ?8
	// bounds of the time of creation, ?9 a tag, ?10 the limit, ?11 and ?12 bounds of the
	// due time or of that of the end.
	keyMatch = ` ?3 >> state & 1 AND (?4 = '' OR queue = ?4) AND (?5 = '' OR kind = ?5)
AND (?4 <> '' OR ?5 <> '' OR ` + notBulk + `) AND created_at >= ?7 AND created_at < ?8 AND (?9 = '' OR EXISTS (SELECT 1 FROM main.errand_tag t WHERE t.tag = ?9 AND t.job = j.id))`
	sqlLiveByKey     = `SELECT id, salt, created_at FROM main.errand_job j NOT INDEXED LEFT JOIN main.errand_lane l USING (lane) WHERE id > ?1 AND id <= ?2 AND` + liveMatch + ` ORDER BY id LIMIT ?10`
	liveMatch        = keyMatch + ` AND (?6 = '' OR instr(lower(` + lastError + `), lower(?6)) > 0) AND due_at >= ?11 AND due_at < ?12`
	sqlFinishedByKey = `SELECT id, salt, created_at FROM main.errand_finished j NOT INDEXED LEFT JOIN main.errand_lane l USING (lane) WHERE id > ?1 AND id <= ?2 AND` + finishedMatch + ` ORDER BY id LIMIT ?10`
	finishedMatch    = keyMatch + ` AND (?6 = '' OR instr(lower(` + endedError + `), lower(?6)) > 0) AND ended_at >= ?11 AND ended_at < ?12`
	// The members of a group have indexes by role, each in the order of keys. Roles are left
	// out that no job has which is in one of the states.
	memberFrom     = ` j ON j.id = o.job LEFT JOIN main.errand_lane l USING (lane) WHERE true`
	memberKeys     = ` AND o.job > ?1 AND o.job <= ?2`
	liveMember     = `SELECT o.job AS id, salt, created_at FROM main.errand_option o CROSS JOIN main.errand_job` + memberFrom + ` AND`
	liveOf         = liveMember + liveMatch + memberKeys + ` AND o.group_key = ?13`
	sqlLiveOfGroup = liveOf + ` AND o.role = 0 AND ?3 >> 1 & 1 UNION ALL ` + liveOf + ` AND o.role = 1 AND ?3 >> 7 & 1 UNION ALL ` +
		liveOf + ` AND o.role = 2 AND o.role >= 2 AND ?3 & 14 ORDER BY 1 LIMIT ?10`
	sqlFinishedOfGroup = `SELECT o.job AS id, salt, created_at FROM main.errand_option o CROSS JOIN main.errand_finished` + memberFrom + ` AND` + finishedMatch + memberKeys +
		` AND o.group_key = ?13 AND o.role = 0 ORDER BY o.job LIMIT ?10`
	sqlLastFinished = `SELECT COALESCE(MAX(id), 0) FROM main.errand_finished`

	sqlDeadCause = `SELECT d.cause, d.reason, d.ended_at, c.text FROM main.errand_dead d JOIN main.errand_cause c USING (cause) WHERE d.id = ?1`
	sqlSetCause  = `UPDATE main.errand_dead SET cause = ?2 WHERE id = ?1`
	sqlAddEdit   = `INSERT INTO main.errand_history (job, n, attempt, at, phase, error, stack, duration, instance, args)
SELECT ?1, COALESCE(MAX(n), 0) + 1, ?2, ?3, '` + storage.PhaseEdited + `', '', '', 0, ?4, ?5 FROM main.errand_history WHERE job = ?1`
	// The offset is storage.EditLimit.
	sqlTrimEdits = `DELETE FROM main.errand_history WHERE job = ?1 AND args IS NOT NULL
AND n <= (SELECT n FROM main.errand_history WHERE job = ?1 AND args IS NOT NULL ORDER BY n DESC LIMIT 1 OFFSET 10)`
	sqlErrorToken = `SELECT token FROM main.errand_error WHERE job = ?1`

	// What delete needs of a job.
	sqlEndedFinished = `SELECT id, lane, state, attempt, args IS NULL, policy, options, salt, created_at, 0 FROM main.errand_finished WHERE id = ?1`
	sqlEndedDead     = `SELECT id, lane, 6, attempt, args IS NULL, policy, options, salt, created_at, in_effect FROM main.errand_dead WHERE id = ?1`
	sqlNotEnded      = `SELECT id, lane, state, attempt, args IS NULL, policy, options, salt, created_at, 0 FROM main.errand_job WHERE id = ?1`
	sqlDropFinished  = `DELETE FROM main.errand_finished WHERE id = ?1`
)

// chooseByKey is choose for live or finished jobs, given the statements that find
// them, those of a group and the last of them, and bounds of the time that is theirs.
func (s *Store) chooseByKey(ctx context.Context, sel *storage.Selection, find, ofGroup, last string, states []stateCode, from, before time.Time) (c choice, err error) {
	f, limit, mask := &sel.Filter, runNowLimit, 0
	for _, state := range states {
		if f.Has(stateNames[state]) {
			mask |= 1 << state
		}
	}
	if sel.Limit > 0 {
		limit = min(limit, sel.Limit)
	}
	var rows []chosen
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		if c.through = sel.Through; c.through == 0 {
			if err := tx.Get(&c.through, last); err != nil {
				return err
			}
		}
		if mask == 0 {
			return nil
		}
		created, till := bounds(f.CreatedFrom, f.CreatedBefore)
		low, high := bounds(from, before)
		args := []any{sel.After.Key, c.through, mask, f.Queue, f.Kind, f.Error, created, till, f.Tag, limit + 1, low, high}
		if f.Group != "" {
			find, args = ofGroup, append(args, rules.GroupName(f.Queue, f.Group))
		}
		return tx.SelectContext(ctx, &rows, find, args...)
	})
	c.more = len(rows) > limit
	c.add(rows[:min(len(rows), limit)])
	return c, err
}

// Change implements [storage.Store].
func (s *Store) Change(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
	c := named(sel)
	if len(sel.IDs) == 0 {
		var err error
		live := []stateCode{scheduled, ready, running, blocked}
		c, err = s.chooseByKey(ctx, &sel, sqlLiveByKey, sqlLiveOfGroup, sqlLastJob, live, sel.Filter.DueFrom, sel.Filter.DueBefore)
		if err != nil {
			return storage.Step{}, err
		}
	}
	return s.step(ctx, e.Cancel != nil, sel, c, func(t *tx, id storage.ID, step *storage.Step) error {
		return t.change(now, id, &sel, &e, step)
	})
}

func (t *tx) change(now time.Time, id storage.ID, sel *storage.Selection, e *storage.Edit, step *storage.Step) error {
	at, named := t.seen(now), len(sel.IDs) > 0
	var r jobRow
	err := t.row(sqlJob, []any{id.Key()}, r.dest(&r.State)...)
	switch {
	case errors.Is(err, sql.ErrNoRows) && named && e.Cancel == nil && !e.Reschedules():
		var ok bool
		if r, _, ok, err = t.dead(id, step); !ok || err != nil {
			return err
		}
	case errors.Is(err, sql.ErrNoRows) || err == nil && r.id() != id:
		step.NotFound = append(step.NotFound, id)
		return nil
	case err != nil:
		return err
	}
	if !named && !sel.Filter.Has(stateNames[r.State]) {
		return nil // it has moved on since it was chosen
	}
	if r.State == running {
		step.Live = append(step.Live, id)
		if e.Cancel == nil {
			return nil
		}
		t.fresh.others++
		return t.askToStop(r.ID)
	}
	step.N++
	if e.Cancel != nil {
		return t.cancelWaiting(at, &r.facts, e.Cancel)
	}
	return t.edit(now, &r, sel, e)
}

// edit changes a job that does not run.
func (t *tx) edit(now time.Time, r *jobRow, sel *storage.Selection, e *storage.Edit) (err error) {
	was, again := r.facts, e.Reschedules()
	rest := rewrite{queue: e.Queue}
	d := delta{change: setPlace, was: &was, row: r, rest: &rest, tell: nobody}
	if again {
		r.State, r.DueAt, r.Delay = dueTime(now, &storage.NewJob{DueAt: e.DueAt, Delay: e.Delay})
		rest.due, rest.delay = r.DueAt, r.Delay
	}
	if e.Priority != nil {
		r.Priority = *e.Priority
	}
	if e.Queue != "" {
		if err := t.toQueue(r, e.Queue); err != nil {
			return err
		}
	}
	if rest.member, err = t.membership(&was); err != nil {
		return err
	}
	if rest.as, err = t.place(&was, r, rest.member, e.Queue, again, &rest.delay); err != nil {
		return err
	}
	if e.Policy != nil {
		if r.Policy, err = t.policy(e.Policy); err != nil {
			return err
		}
	}
	if rest.args, err = t.editArgs(now, r, e.Args); err != nil {
		return err
	}
	if again && r.Options&hasOption != 0 {
		if err := t.beginAnew(now, r, sel.Doubtful); err != nil {
			return err
		}
	}
	if again || e.Queue != "" {
		d.tell, rest.moves = everybody, rest.member.GroupKey != ""
	}
	_, err = t.apply(&d)
	return err
}

// toQueue has a job go to the lane of its kind in a queue. The error of its last
// attempt goes with it, if that is its last error.
func (t *tx) toQueue(r *jobRow, queue string) error {
	name, err := t.laneName(r.Lane)
	if err != nil {
		return err
	}
	was := r.Lane
	if r.Lane, err = t.lane(queue, name.Kind); err != nil || r.Lane == was {
		return err
	}
	if r.State == dead {
		if err := t.moveCause(r); err != nil {
			return err
		}
	}
	if !t.watches(was) {
		return nil
	}
	var token int64
	switch err := t.row(sqlErrorToken, []any{r.ID}, &token); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case token == r.Token: // the lane has to be watched, or the row would outlive the job
		_, err = t.success(r.Lane)
		return err
	}
	_, err = t.exec(sqlDeleteError, r.ID)
	return err
}

// moveCause counts a dead job for the cause of its lane that has the text of its cause.
func (t *tx) moveCause(r *jobRow) error {
	var cause, at int64
	var reason, text string
	err := t.row(sqlDeadCause, []any{r.ID}, &cause, &reason, &at, &text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	t.deaths.leave(cause)
	if cause, err = t.cause(r.Lane, reason, text); err != nil {
		return err
	}
	t.deaths.come(cause, at)
	_, err = t.exec(sqlSetCause, r.ID, cause)
	return err
}

// editArgs replaces the args of a row, and notes those that the job had, unless args is nil or
// the same. It reports whether they are others.
func (t *tx) editArgs(now time.Time, r *jobRow, args []byte) (bool, error) {
	if args == nil {
		return false, nil
	}
	if r.Beside {
		if err := t.row(sqlPayload, []any{r.ID}, &r.Headers, &r.Args); err != nil {
			return false, err
		}
	}
	if bytes.Equal(r.Args, args) {
		return false, nil
	}
	if r.Args == nil { // as read from a BLOB of no bytes
		r.Args = []byte{}
	}
	if _, err := t.exec(sqlAddEdit, r.ID, r.Attempt, micros(now), cmp.Or(t.store.self.title(), processName()), r.Args); err != nil {
		return false, err
	}
	for _, text := range []string{sqlTrimEdits, sqlTrimHistory} {
		if _, err := t.exec(text, r.ID); err != nil {
			return false, err
		}
	}
	if err := t.forgetKept(&r.facts); err != nil {
		return false, err
	}
	r.Args = args
	return true, nil
}

// Delete implements [storage.Store].
func (s *Store) Delete(ctx context.Context, sel storage.Selection) (storage.Step, error) {
	f, c := &sel.Filter, choice{ids: sel.IDs}
	var err error
	switch {
	case len(sel.IDs) > 0:
	case len(f.States) == 0 || slices.Contains(f.States, storage.Dead):
		c, err = s.choose(ctx, sel)
	default:
		c, err = s.chooseByKey(ctx, &sel, sqlFinishedByKey, sqlFinishedOfGroup, sqlLastFinished, []stateCode{done, cancelled, expired}, f.EndedFrom, f.EndedBefore)
	}
	if err != nil {
		return storage.Step{}, err
	}
	return s.step(ctx, true, sel, c, func(t *tx, id storage.ID, step *storage.Step) error {
		return t.delete(id, &sel, step)
	})
}

func (t *tx) delete(id storage.ID, sel *storage.Selection, step *storage.Step) error {
	r, inEffect, err := t.ended(id)
	states := sel.Filter.States
	switch {
	case err != nil:
		return err
	case r.State != 0 && r.State.live():
		if len(sel.IDs) > 0 {
			step.Live = append(step.Live, id)
		}
		return nil
	case r.State == 0 || len(states) > 0 && !slices.Contains(states, stateNames[r.State]):
		step.NotFound = append(step.NotFound, id)
		return nil
	case r.State != dead:
		if _, err := t.exec(sqlDropFinished, r.ID); err != nil {
			return err
		}
	}
	t.tidy = true
	step.N++
	_, err = t.leave(&r.facts, &departure{inEffect: inEffect})
	return err
}

// ended returns what has to be known of a job that is to be deleted. Its state is 0 if
// there is no such job.
func (t *tx) ended(id storage.ID) (r jobRow, inEffect int64, err error) {
	for _, text := range []string{sqlEndedFinished, sqlEndedDead, sqlNotEnded} {
		err = t.row(text, []any{id.Key()}, &r.ID, &r.Lane, &r.State, &r.Attempt, &r.Beside, &r.Policy, &r.Options,
			&r.Salt, &r.CreatedAt, &inEffect)
		if !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	if errors.Is(err, sql.ErrNoRows) || err == nil && r.id() != id {
		return jobRow{}, 0, nil
	}
	return r, inEffect, err
}
