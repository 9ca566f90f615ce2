package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/selector"
)

const (
	// Those that wait have an index by due time, whatever their lane. It is read as
	// a whole if they are few; else all live jobs are passed by key.
	sqlManyWait     = `SELECT due_at FROM main.errand_job WHERE state = 1 ORDER BY due_at LIMIT 1 OFFSET 2000`
	sqlLastJob      = `SELECT COALESCE(MAX(id), 0) FROM main.errand_job`
	sqlLastFinished = `SELECT COALESCE(MAX(id), 0) FROM main.errand_finished`
	sqlWaits        = `SELECT lane, state, salt, created_at, options, ?4 OR CASE WHEN attempt = 0 THEN ?2 ELSE NOT ?3 OR ` + hasFailed + ` END
FROM main.errand_job j WHERE id = ?1`

	sqlUrgent    = `SELECT job, lane FROM main.errand_urgent u CROSS JOIN main.errand_job j NOT INDEXED WHERE job > 0 AND id = job AND state = 2 ORDER BY job`
	sqlAnyUrgent = `SELECT EXISTS (SELECT 1 FROM main.errand_urgent)`
	sqlHurry     = `INSERT INTO main.errand_urgent (job) VALUES (?1) ON CONFLICT DO NOTHING`
	sqlCalm      = `DELETE FROM main.errand_urgent WHERE job = ?1 AND NOT EXISTS (SELECT 1 FROM main.errand_job WHERE id = ?1 AND state = 2)`

	// The limit is stepLimit; why it is no parameter see sqlPromote.
	sqlNextPurge = `SELECT MIN(COALESCE((SELECT purge_at FROM main.errand_finished ORDER BY purge_at LIMIT 1), 9223372036854775807),
COALESCE((` + sqlNextWindow + `), 9223372036854775807), COALESCE((` + sqlNextOver + `), 9223372036854775807))`
	sqlPurgeFinished = sqlPurge + `500)` + sqlPurged
	sqlPurgeFew      = sqlPurge + `?2 + 0)` + sqlPurged
	sqlPurge         = `DELETE FROM main.errand_finished WHERE id IN
(SELECT id FROM main.errand_finished WHERE purge_at <= ?1 ORDER BY purge_at LIMIT `
	sqlPurged = `
RETURNING id, lane, state, attempt, args IS NULL, policy, options`
)

// stepLimit is how many jobs one step of a bulk operation moves, so that it
// holds the writer for some milliseconds only.
const stepLimit = 500

// changeLimit is stepLimit for jobs that are not dead. RunNow changes a row and two indexes for
// each: 5 ms for so many on two busy cores, and about 10 ms for 500, while 100,000 of
// a million were made ready (BenchmarkRunNow).
const changeLimit = 250

// chooser is how the jobs are found that a step is about.
type chooser struct {
	walk  selector.Walk
	last  string // the statement for the last key that they may have; empty for dead ones
	which storage.Waiting
}

// choose returns the jobs that one step is about. Those of a filter are found without the writer.
func (s *Store) choose(ctx context.Context, sel *storage.Selection, by chooser) (selector.Choice, error) {
	if c, ok := selector.Named(sel); ok {
		return c, nil
	}
	limit := changeLimit
	if by.walk == selector.StepDead {
		limit = stepLimit
	}
	if sel.Limit > 0 {
		limit = min(limit, sel.Limit)
	}
	through := sel.Through
	var rows []selector.Chosen
	err := s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		if through == 0 && by.last != "" {
			if err := tx.Get(&through, by.last); err != nil {
				return err
			}
		}
		if by.walk == selector.StepWaiting && sel.Filter.Group == "" {
			var due int64
			if err := tx.Get(&due, sqlManyWait); errors.Is(err, sql.ErrNoRows) {
				by.walk = selector.StepFew
			} else if err != nil {
				return err
			}
		}
		q, ok := selects().Step(by.walk, sel, by.which, through, limit+1)
		if !ok {
			return nil
		}
		return tx.SelectContext(ctx, &rows, q.Text, q.Args...)
	})
	if by.walk == selector.StepFew {
		slices.SortFunc(rows, func(a, b selector.Chosen) int { return cmp.Compare(a.ID, b.ID) })
	}
	return selector.Choose(by.walk, sel, rows, through, limit), err
}

// Redrive implements [storage.Store].
func (s *Store) Redrive(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
	c, err := s.choose(ctx, &sel, chooser{walk: selector.StepDead})
	if err != nil {
		return storage.Step{}, err
	}
	return s.step(ctx, false, sel, c, func(t *tx, id storage.ID, step *storage.Step) error {
		return t.redrive(now, id, queue, &sel, step)
	})
}

// step calls one for each of the jobs that sel has chosen, and returns what that has done: in one
// transaction, or in several if there is no room for so many.
func (s *Store) step(ctx context.Context, ends bool, sel storage.Selection, c selector.Choice, one func(*tx, storage.ID, *storage.Step) error) (storage.Step, error) {
	whole, most := storage.Step{Through: c.Through}, len(c.IDs)
	for first := true; first || whole.Taken < len(c.IDs); first = false {
		var step storage.Step
		r := &request{ends: ends, work: most, step: most}
		r.run = func(t *tx) (err error) {
			step, t.fresh.others = whole, 0
			step.Duplicates, step.Live, step.NotFound = slices.Clip(whole.Duplicates), slices.Clip(whole.Live), slices.Clip(whole.NotFound)
			if step.Refused, err = t.under(sel.Under); err != nil || step.Refused != storage.Applied {
				return err
			}
			rest := c.IDs[whole.Taken:]
			for _, id := range rest[:min(len(rest), r.step)] {
				if err := one(t, id, &step); err != nil {
					return err
				}
				step.Taken++
			}
			t.announce()
			step.Next = c.Next(step.Taken)
			if len(sel.IDs) == 0 { // one that has just gone did not match any more
				step.NotFound = nil
			}
			return cmp.Or(t.keepPlace(sel.Under, &step), t.didJobs(ctx, step.N-whole.N+t.fresh.others))
		}
		if err := s.submit(ctx, r); err != nil {
			return whole, err
		}
		if whole = step; whole.Refused != storage.Applied {
			break
		}
		most = r.step
	}
	return whole, nil
}

// under returns what has become of the lease that a step is tied to, if it is.
func (t *tx) under(u *storage.Under) (storage.ItemResult, error) {
	if u == nil {
		return storage.Applied, nil
	}
	return t.standing(u.Lease, &checkpointed{})
}

// keepPlace keeps where the job has got to that a step is a part of.
func (t *tx) keepPlace(u *storage.Under, step *storage.Step) error {
	if u == nil || u.Place == nil {
		return nil
	}
	c := u.Place(step)
	if c.Lease = u.Lease; c.Data == nil {
		return nil
	}
	_, err := t.checkpoint(&c) // in the transaction in which under has looked
	return err
}

// dead reads a dead job, and the number of the policy in effect at its end;
// false if it is not dead.
func (t *tx) dead(id storage.ID, step *storage.Step) (r jobRow, inEffect int64, ok bool, err error) {
	err = t.row(sqlDead, []any{id.Key()}, r.dest(&r.State, &inEffect)...)
	if errors.Is(err, sql.ErrNoRows) || err == nil && r.id() != id {
		step.NotFound = append(step.NotFound, id)
		return r, 0, false, nil
	}
	return r, inEffect, err == nil, err
}

func (t *tx) redrive(now time.Time, id storage.ID, queue string, sel *storage.Selection, step *storage.Step) error {
	r, inEffect, ok, err := t.dead(id, step)
	if err != nil || !ok {
		return err
	}
	was := r.facts
	name, err := t.laneName(r.Lane)
	if err != nil {
		return err
	}
	r.Queue, r.Kind, r.State, r.DueAt = cmp.Or(queue, name.Queue), name.Kind, ready, t.seen(now)
	r.Retry, r.Crashes, r.Snoozes, r.Options = 0, 0, 0, r.Options|wasRedriven
	m, err := t.membership(&was)
	if err != nil {
		return err
	}
	if m.GroupKey != "" {
		r.block()
	}
	claim, err := t.enter(now, &r, &storage.NewJob{Unique: r.UniqueKey.String})
	if err != nil {
		return err
	}
	if claim.Admission < rules.Follow {
		step.Duplicates = append(step.Duplicates, id)
		return nil
	}
	step.N++
	if sel.FromStart {
		if err := t.forgetKept(&r.facts); err != nil {
			return err
		}
	}
	if r.Options&hasOption != 0 {
		if err := t.beginAnew(now, &r, sel.Doubtful); err != nil {
			return err
		}
	}
	if t.watches(was.Lane) { // the lane that it goes to may not be watched
		if _, err := t.exec(sqlDeleteError, was.ID); err != nil {
			return err
		}
	}
	if _, err = t.leave(&was, &departure{state: ready, inEffect: inEffect}); err != nil {
		return err
	}
	if m.GroupKey != "" {
		if err := t.placed(r.ID, m, membership{rules.GroupName(r.Queue, m.group()), rules.Waits}); err != nil {
			return err
		}
	}
	if sel.Edit == nil {
		return nil
	}
	r = jobRow{} // as it is in its group by now
	if err := t.row(sqlJob, []any{id.Key()}, r.dest(&r.State)...); err != nil {
		return err
	}
	return t.edit(now, &r, sel, sel.Edit)
}

// RunNow implements [storage.Store].
func (s *Store) RunNow(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
	c, err := s.choose(ctx, &sel, chooser{selector.StepWaiting, sqlLastJob, which})
	if err != nil {
		return storage.Step{}, err
	}
	return s.step(ctx, false, sel, c, func(t *tx, id storage.ID, step *storage.Step) error {
		return t.runNow(now, id, len(sel.IDs), which, step)
	})
}

func (t *tx) runNow(now time.Time, id storage.ID, named int, which storage.Waiting, step *storage.Step) error {
	var r jobRow
	var meant bool
	err := t.row(sqlWaits, []any{id.Key(), which.First, which.Failed, named > 0}, &r.Lane, &r.State, &r.Salt, &r.CreatedAt, &r.Options, &meant)
	r.ID = id.Key()
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && r.id() != id:
		step.NotFound = append(step.NotFound, id)
		return nil
	case err != nil || r.State != scheduled && r.State != ready:
		return err
	}
	if named == 1 {
		if err := t.hurry(r.ID); err != nil {
			return err
		}
	}
	if r.State != scheduled || !meant {
		if named == 1 {
			t.fresh.others++
		}
		return nil
	}
	step.N++
	was := r.facts
	r.State = ready
	if _, err = t.apply(&delta{change: setRunNow, was: &was, row: &r, at: t.seen(now)}); err != nil {
		return err
	}
	return t.findPlaces([]facts{r.facts})
}

// hurry makes a job urgent.
func (t *tx) hurry(id int64) error {
	n, err := t.execCount(sqlHurry, id)
	if n > 0 {
		t.meta.gen++ // for all caches
		t.notifyAll(storage.Event{Urgent: true})
	}
	return err
}

// mayHurry reports whether a job may be urgent. Transactions of the application do
// not bring the cache up to date.
func (t *tx) mayHurry() bool {
	return t.meta.gen != t.was.gen || t.stmts == nil || t.store.cache.mayHurry(t.was.gen)
}

// calm notes that a job that was ready is not urgent, unless it is ready still.
func (t *tx) calm(id int64) error {
	if !t.mayHurry() {
		return nil
	}
	n, err := t.execCount(sqlCalm, id)
	if n > 0 {
		t.meta.gen++
	}
	return err
}

// leaseUrgent takes the urgent jobs that are wanted.
func (t *tx) leaseUrgent(x *storage.Exchange, at, until int64, late *tooLate) (out []storage.Leased, bytes int, err error) {
	var id, lane int64
	var ids, lanes []int64
	err = t.each(sqlUrgent, nil, []any{&id, &lane}, func() { ids, lanes = append(ids, id), append(lanes, lane) })
	for i := 0; err == nil && i < len(ids) && len(out) < x.Urgent && bytes < storage.LeaseBytes; i++ {
		var name storage.Lane
		if name, err = t.laneName(lanes[i]); err != nil {
			break
		}
		if !slices.ContainsFunc(x.Wants, func(w storage.Want) bool { return w.Matches(name.Queue, name.Kind) }) {
			continue
		}
		var r jobRow
		if err = t.row(sqlJob, []any{ids[i]}, r.dest(&r.State)...); err != nil {
			break
		}
		if r.State != ready { // one that has ended had it blocked
			continue
		}
		var over bool
		if over, err = t.endIfOver(&r, x, at, late); err != nil || over {
			if err == nil {
				continue
			}
			break
		}
		var holder int64
		if holder, err = t.register(x.LeaseDuration); err != nil {
			break
		}
		var l storage.Leased
		if err = t.leaseRow(&l, &r, &grant{holder, until}, true); err != nil {
			break
		}
		l.Urgent = true
		out, bytes = append(out, l), bytes+l.Bytes()
	}
	return out, bytes, err
}

// PurgeFinished implements [storage.Store].
func (s *Store) PurgeFinished(ctx context.Context, now time.Time) (n int, next time.Time, err error) {
	var us int64
	var r *request
	r = &request{
		ends: true,
		work: stepLimit,
		step: stepLimit,
		probe: func(t *tx) (bool, error) {
			us, err = t.nextPurge()
			return us != 0 && us <= micros(now), err
		},
		run: func(t *tx) error {
			at := t.seen(now)
			if n, err = t.purgeFinished(at, r.step); err == nil {
				err = t.forgetWindows(at, r.step)
			}
			if err == nil {
				err = t.flushMessages() // of which the last job has gone
			}
			if err == nil {
				err = t.purgeMessages(at, r.step)
			}
			if err == nil {
				us, err = t.nextPurge()
			}
			return err
		},
	}
	if err := s.submit(ctx, r); err != nil {
		return 0, time.Time{}, err
	}
	if us != 0 && us <= micros(now) {
		return n, now, nil
	}
	return n, timeOrZero(us), nil
}

func (t *tx) nextPurge() (us int64, err error) {
	if err = t.row(sqlNextPurge, nil, &us); us == math.MaxInt64 {
		us = 0
	}
	return us, err
}

func (t *tx) purgeFinished(at int64, step int) (int, error) {
	var all []facts
	var f facts
	text, args := sqlPurgeFinished, []any{at}
	if step < stepLimit {
		text, args = sqlPurgeFew, append(args, step)
	}
	err := t.each(text, args, []any{&f.ID, &f.Lane, &f.State, &f.Attempt, &f.Beside, &f.Policy, &f.Options}, func() {
		all = append(all, f)
	})
	if err != nil {
		return 0, err
	}
	for i := range all {
		if _, err := t.leave(&all[i], &departure{}); err != nil {
			return 0, err
		}
	}
	t.tidy = t.tidy || len(all) > 0
	return len(all), nil
}
