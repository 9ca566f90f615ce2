package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/selector"
)

const (
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

// Change implements [storage.Store].
func (s *Store) Change(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
	c, err := s.choose(ctx, &sel, chooser{walk: selector.StepLive, last: sqlLastJob})
	if err != nil {
		return storage.Step{}, err
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
	if e.Queue != "" {
		if err := t.toQueue(r, e.Queue); err != nil {
			return err
		}
	}
	if e.Args != nil && r.Beside {
		if err := t.row(sqlPayload, []any{r.ID}, &r.Headers, &r.Args); err != nil {
			return err
		}
	}
	rest := rewrite{}
	if rest.was, err = t.membership(&was); err != nil {
		return err
	}
	as, err := t.editAs(now, r, &was, rest.was, e)
	if err != nil {
		return err
	}
	rest.is, rest.args, r.State, r.Priority = membership{as.Is.Group, as.Is.Role}, as.Edits, codeOf(as.Is.State), as.Is.Priority
	switch {
	case again:
		r.DueAt, r.Delay = as.Is.Due, delayOf(&as.Is)
		rest.due, rest.delay = r.DueAt, r.Delay
	case as.Is.WasDue && was.State != blocked:
		rest.delay = dueBlocked
	}
	t.deciding.tx.forget()
	if e.Policy != nil {
		if r.Policy, err = t.policy(e.Policy); err != nil {
			return err
		}
	}
	if rest.args {
		if err := t.editArgs(now, r, e.Args); err != nil {
			return err
		}
	}
	if again && r.Options&hasOption != 0 {
		if err := t.beginAnew(now, r, sel.Doubtful); err != nil {
			return err
		}
	}
	d := delta{change: setPlace, was: &was, row: r, rest: &rest, tell: nobody}
	if again || e.Queue != "" {
		d.tell, rest.moves = everybody, rest.was.GroupKey != ""
	}
	_, err = t.apply(&d)
	return err
}

// editAs decides what becomes of a job that goes to the lane of r. Nothing is settled.
func (t *tx) editAs(now time.Time, r *jobRow, was *facts, m membership, e *storage.Edit) (*rules.Row, error) {
	how := rules.Edit{
		Edit: e, Lane: func(int64) int64 { return r.Lane },
		Had: func(int64) (int64, bool) { return int64(len(r.Args)), bytes.Equal(r.Args, e.Args) },
	}
	j := rules.Job{
		ID: r.ID, Lane: was.Lane, Created: r.CreatedAt, Salt: r.Salt, Due: r.DueAt, State: stateNames[was.State], Group: m.GroupKey, Role: m.Role, Priority: r.Priority,
	}
	if err := t.know(rules.Need{Jobs: []int64{r.ID}}, now); err != nil {
		return nil, err
	}
	to := m.GroupKey
	if e.Queue != "" {
		to = rules.GroupName(e.Queue, m.group())
	}
	err := t.tellRules(m.GroupKey, to)
	switch {
	case err != nil:
	case was.State == dead:
		err = t.deciding.tx.EditDead(j, &how)
	default:
		t.deciding.tx.ReadLive(j)
		t.deciding.tx.ReadLives()
		_, err = t.deciding.tx.Edit(r.id(), &how)
	}
	return t.deciding.tx.Row(r.ID), err
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

// editArgs replaces the args of a row, and notes those that the job had.
func (t *tx) editArgs(now time.Time, r *jobRow, args []byte) error {
	if r.Args == nil { // as read from a BLOB of no bytes
		r.Args = []byte{}
	}
	if _, err := t.exec(sqlAddEdit, r.ID, r.Attempt, micros(now), cmp.Or(t.store.self.title(), processName()), r.Args); err != nil {
		return err
	}
	for _, text := range []string{sqlTrimEdits, sqlTrimHistory} {
		if _, err := t.exec(text, r.ID); err != nil {
			return err
		}
	}
	if err := t.forgetKept(&r.facts); err != nil {
		return err
	}
	r.Args = args
	return nil
}

// Delete implements [storage.Store].
func (s *Store) Delete(ctx context.Context, sel storage.Selection) (storage.Step, error) {
	by := chooser{walk: selector.StepDead}
	if states := sel.Filter.States; len(states) > 0 && !slices.Contains(states, storage.Dead) {
		by = chooser{walk: selector.StepFinished, last: sqlLastFinished}
	}
	c, err := s.choose(ctx, &sel, by)
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
