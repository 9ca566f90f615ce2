package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlAddOption = `INSERT INTO main.errand_option (job, since, start_by, start_within, deadline, finish_within, epoch, flags, group_key, role)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	sqlEndOption = `UPDATE main.errand_option SET since = 0, start_by = 0, deadline = 0, epoch = 0
WHERE job = ? AND (start_by <> 0 OR deadline <> 0 OR epoch <> 0)`
	sqlDropOption = `DELETE FROM main.errand_option WHERE job = ?`

	optionValues = `since, start_by, start_within, deadline, finish_within, epoch, flags, COALESCE(group_key, '') AS group_key, role,
COALESCE((SELECT base FROM main.errand_epoch e WHERE e.epoch = o.epoch), 0) AS base`
	sqlOption = `SELECT ` + optionValues + ` FROM main.errand_option o WHERE job = ?`
	// Most have a group and no window: to read the rest takes as long again.
	sqlShortOption = `SELECT COALESCE(group_key, ''), role, ` + moreOption + ` FROM main.errand_option WHERE job = ?`
	moreOption     = `((since | start_by | start_within | deadline | finish_within | epoch | flags) <> 0)`
	sqlOptionsOf   = `SELECT o.job, ` + optionValues + ` FROM json_each(?1) k CROSS JOIN main.errand_option o ON o.job = k.value`

	// What attempts have kept: see errand_kept.
	sqlKept       = `SELECT instance, options, crashes, COALESCE(resets, 0), checkpoint FROM main.errand_job LEFT JOIN main.errand_kept ON job = id WHERE id = ?1`
	sqlAllKept    = `SELECT at, done, total, note, result, checkpoint FROM main.errand_kept WHERE job = ?1`
	sqlResumeFrom = `SELECT checkpoint FROM main.errand_kept WHERE job = ?1`

	sqlKeepCheckpoint = `INSERT INTO main.errand_kept (job, checkpoint, resets) VALUES (?1, ?2, ?3)
ON CONFLICT DO UPDATE SET checkpoint = ?2, resets = ?3`
	sqlKeepProgress = `INSERT INTO main.errand_kept (job, at, done, total, note) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO UPDATE SET at = ?2, done = ?3, total = ?4, note = ?5`
	sqlKeepResult     = `INSERT INTO main.errand_kept (job, result) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET result = ?2`
	sqlDropCheckpoint = `UPDATE main.errand_kept SET checkpoint = NULL WHERE job = ?1`
	sqlForgetKept     = `UPDATE main.errand_kept SET checkpoint = NULL, at = 0, done = 0, total = 0, note = '' WHERE job = ?1`
	sqlDropKept       = `DELETE FROM main.errand_kept WHERE job = ?1`

	sqlAnyState = `SELECT state, salt, created_at FROM main.errand_job WHERE id = ?1 UNION ALL ` + sqlEndedState
)

// The bits of option.Flags: whether the job dies or is finished if no attempt has begun
// in time. Without both it is finished, unless its lane is set otherwise.
const (
	diesUnstarted = 1 << iota
	endsUnstarted
)

// option is a row of errand_option, and the base of its epoch. Each part of it is in
// the file of its own noun; what they have in common is here.
type option struct {
	Job   int64
	Flags int64
	membership
	windows
}

// newOption returns what a new job has in errand_option, nil if nothing.
func (t *tx) newOption(now time.Time, r *jobRow, j *storage.NewJob) (*option, error) {
	start, finish, flags, err := t.windowsOf(j)
	if err != nil || start <= 0 && finish <= 0 && j.Group == "" {
		return nil, err
	}
	o := &option{membership: membershipOf(j), windows: windows{StartWithin: start, FinishWithin: finish}}
	if start <= 0 && finish <= 0 {
		return o, nil
	}
	o.Flags = flags
	var epoch int64
	if j.Doubtful {
		if epoch, err = t.epoch(); err != nil {
			return nil, err
		}
	}
	o.begin(rules.Due(now), r.DueAt, r.Delay > 0, epoch)
	return o, nil
}

// windowsOf returns the StartWithin and the FinishWithin of a new job and its Flags, which
// are its own, or else those that are set for its lane.
func (t *tx) windowsOf(j *storage.NewJob) (start, finish, flags int64, err error) {
	start, finish, flags = rules.Ceil(j.StartWithin), rules.Ceil(j.FinishWithin), flagsOf(j)
	all, err := t.settings()
	if err != nil || len(all) == 0 {
		return start, finish, flags, err
	}
	lane := storage.Lane{Queue: j.Queue, Kind: j.Kind}
	if start <= 0 {
		start = all.of(lane, storage.SettingStartWithin)
	}
	if finish <= 0 {
		finish = all.of(lane, storage.SettingFinishWithin)
	}
	if flags == 0 {
		switch all.of(lane, storage.SettingOnExpire) {
		case storage.ExpireFinished:
			flags = endsUnstarted
		case storage.ExpireDead:
			flags = diesUnstarted
		}
	}
	return start, finish, flags, nil
}

// flagsOf returns the Flags of a new job.
func flagsOf(j *storage.NewJob) int64 {
	switch j.OnExpire {
	case storage.Dead:
		return diesUnstarted
	case storage.Expired:
		return endsUnstarted
	}
	return 0
}

// onExpire returns the OnExpire of a job with these Flags.
func onExpire(flags int64) storage.State {
	switch {
	case flags&diesUnstarted != 0:
		return storage.Dead
	case flags&endsUnstarted != 0:
		return storage.Expired
	}
	return ""
}

// dest returns where the values of optionValues go.
func (o *option) dest() []any {
	return []any{&o.Since, &o.StartBy, &o.StartWithin, &o.Deadline, &o.FinishWithin, &o.Epoch, &o.Flags, &o.GroupKey, &o.Role, &o.Base}
}

// addOption writes the row of a job that is new in errand_job, and may run already.
func (t *tx) addOption(id int64, o *option, runs bool) error {
	if o.StartBy|o.Deadline != 0 {
		if err := t.hasWindows(); err != nil {
			return err
		}
	}
	if runs {
		o.StartBy, o.Deadline = -o.StartBy, -o.Deadline
	}
	_, err := t.exec(sqlAddOption, id, o.Since, o.StartBy, o.StartWithin, o.Deadline, o.FinishWithin, o.Epoch, o.Flags, nullable(o.GroupKey), o.Role)
	return err
}

// endOption notes that a live job has come to a state in which it is kept.
func (t *tx) endOption(f *facts, to stateCode) error {
	if f.Options&hasKept != 0 && to != 0 && to != dead {
		if _, err := t.exec(sqlDropCheckpoint, f.ID); err != nil {
			return err
		}
	}
	if err := t.endOrigin(f, to); err != nil {
		return err
	}
	if f.Options&hasOption == 0 || to == 0 || f.State == running && f.option != nil && !f.option.windowed() {
		return nil
	}
	_, err := t.exec(sqlEndOption, f.ID)
	return err
}

// dropOption deletes what few jobs have of one that is gone. inRun: what is in errand_option goes
// with the run.
func (t *tx) dropOption(f *facts, inRun bool) error {
	if f.Options&hasOption != 0 && !inRun {
		if _, err := t.exec(sqlDropOption, f.ID); err != nil {
			return err
		}
	}
	if f.Options&hasKept != 0 {
		if _, err := t.exec(sqlDropKept, f.ID); err != nil {
			return err
		}
	}
	if f.Options&hasOrigin != 0 {
		if _, err := t.exec(sqlDropOrigin, f.ID); err != nil {
			return err
		}
	}
	if f.Options&hasTags != 0 {
		return t.deleteTags(f.ID)
	}
	return nil
}

// option returns the row of a job, whose Options say that there is one.
func (t *tx) option(id int64) (*option, error) {
	o := &option{Job: id}
	var more bool
	err := t.row(sqlShortOption, []any{id}, &o.GroupKey, &o.Role, &more)
	if err == nil && more {
		err = t.row(sqlOption, []any{id}, o.dest()...)
	}
	if errors.Is(err, sql.ErrNoRows) { // damage, which need not stop the others
		err = nil
	}
	return o, err
}

// originOf returns where a job came from that is marked as passed on. The tags of a new one may
// not be written yet.
func (t *tx) originOf(r *jobRow) (storage.Origin, error) {
	if r.origin != (storage.Origin{}) {
		return r.origin, nil
	}
	var tag string
	var tags []string
	err := t.each(sqlTags, []any{r.ID}, []any{&tag}, func() { tags = append(tags, tag) })
	o, _ := storage.OriginOf(tags)
	return o, err
}

// Checkpoint implements [storage.Checkpointer].
func (s *Store) Checkpoint(ctx context.Context, c storage.Checkpoint) (r storage.ItemResult, err error) {
	// Also from the ballast: a job that runs needs it to get on, and one row is all it can have.
	err = s.submit(ctx, &request{ends: true, urgent: true, work: 1 + len(c.Data)/jobBytes, run: func(t *tx) (err error) {
		r, err = t.checkpoint(&c)
		return err
	}})
	return r, err
}

// CheckpointTx implements [storage.TxEnqueuer].
func (s *Store) CheckpointTx(ctx context.Context, in any, c storage.Checkpoint) (r storage.ItemResult, err error) {
	err = s.inside(ctx, in, false, false, func(t *tx) error {
		if err := s.endInTx(t, in, c.Lease, len(c.Data)); err != nil {
			return err
		}
		if r, err = t.checkpoint(&c); err == nil && r != storage.Applied {
			err = errNotEnded
		}
		return err
	})
	return s.refused(in, r, err)
}

// checkpoint keeps where a job has got to, if this Store holds the lease: another one that
// holds it knows by heart what its job has, see [facts].
func (t *tx) checkpoint(c *storage.Checkpoint) (storage.ItemResult, error) {
	var was checkpointed
	if r, err := t.standing(c.Lease, &was); err != nil || r != storage.Applied {
		return r, err
	}
	if err := t.bringing(c.Lease, len(c.Data)); err != nil {
		return 0, err
	}
	keep, resets := was.crashes == 0 || was.resets >= storage.CheckpointResets || bytes.Equal(was.data, c.Data), was.resets
	if !keep {
		resets++
	}
	if !keep || was.options&hasKept == 0 {
		if _, err := t.markKept(c.Lease, keep); err != nil {
			return 0, err
		}
	}
	if _, err := t.exec(sqlKeepCheckpoint, c.Key, c.Data, resets); err != nil {
		return 0, err
	}
	return storage.Applied, t.keepProgress(c.Key, c.Progress)
}

// checkpointed is what a checkpoint has to know of its job.
type checkpointed struct {
	holder, options, crashes, resets int64
	data                             []byte // of the checkpoint before
}

// standing reads what a checkpoint has to know of the job of a lease, and returns whether this Store
// holds that, and the job is not cancelled.
func (t *tx) standing(l storage.Lease, c *checkpointed) (storage.ItemResult, error) {
	r, err := t.look(l)
	if err != nil || r != storage.Applied && r != storage.Cancelling {
		return r, err
	}
	err = t.row(sqlKept, []any{l.Key}, &c.holder, &c.options, &c.crashes, &c.resets, &c.data)
	if err == nil && c.holder != cmp.Or(t.registered, t.store.self.number()) {
		return storage.Lost, nil
	}
	return r, err
}

// markKept notes in the row of a leased job that errand_kept has one of it. Without
// keepCrashes its crashes become zero. It reports whether the lease is held.
func (t *tx) markKept(l storage.Lease, keepCrashes bool) (bool, error) {
	return t.apply(&delta{change: setKept, was: &facts{ID: l.Key, Token: l.Token, State: running}, clears: !keepCrashes})
}

// keepProgress keeps how far a job has got, if that is known.
func (t *tx) keepProgress(id int64, p *storage.Progress) error {
	if p == nil {
		return nil
	}
	_, err := t.exec(sqlKeepProgress, id, micros(p.At), p.Done, p.Total, p.Note)
	return err
}

// keepEnd keeps what a leased job that ends has brought. It reports whether the lease is held.
func (t *tx) keepEnd(gone *facts, f *storage.Finish, e *departure) (bool, error) {
	result := f.Result
	if e.state != done {
		result = nil
	}
	if result == nil && f.Progress == nil {
		return true, nil
	}
	if e.keep != nil {
		if kept, err := t.kept(gone.Lane, e.keep); kept <= 0 || err != nil {
			return true, err // it would go with the job
		}
	}
	if held, err := t.markKept(f.Lease, true); !held || err != nil {
		return false, err
	}
	gone.Options, gone.plain = gone.Options|hasKept, false
	if result != nil {
		if _, err := t.exec(sqlKeepResult, f.Key, result); err != nil {
			return false, err
		}
	}
	return true, t.keepProgress(f.Key, f.Progress)
}

// forgetKept forgets where a job has got to that is to begin from the start.
func (t *tx) forgetKept(f *facts) error {
	if f.Options&hasKept == 0 {
		return nil
	}
	_, err := t.exec(sqlForgetKept, f.ID)
	return err
}

// readKept reads what attempts have kept of a job.
func readKept(tx *sqlx.Tx, rec *storage.Record) error {
	var k struct {
		At, Done, Total    int64
		Note               string
		Result, Checkpoint []byte
	}
	err := tx.Get(&k, sqlAllKept, rec.Key)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	rec.Checkpoint, rec.Result = k.Checkpoint, k.Result
	if k.At != 0 {
		rec.Progress = &storage.Progress{Done: k.Done, Total: k.Total, Note: k.Note, At: fromMicros(k.At)}
	}
	return err
}

// States implements [storage.Checkpointer].
func (s *Store) States(ctx context.Context, ids []storage.ID) (all []storage.State, err error) {
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		all = make([]storage.State, len(ids))
		find, err := tx.PreparexContext(ctx, sqlAnyState)
		if err != nil {
			return err
		}
		defer func() { _ = find.Close() }()
		for i, id := range ids {
			r := jobRow{facts: facts{ID: id.Key()}}
			switch err := find.QueryRowxContext(ctx, r.ID).Scan(&r.State, &r.Salt, &r.CreatedAt); {
			case errors.Is(err, sql.ErrNoRows):
			case err != nil:
				return err
			case r.id() == id:
				all[i] = stateNames[r.State]
			}
		}
		return nil
	})
	return all, err
}
