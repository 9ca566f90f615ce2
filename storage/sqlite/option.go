package sqlite

import (
	"database/sql"
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	sqlAddOption = `INSERT INTO main.errand_option (job, since, start_by, start_within, deadline, finish_within, epoch, flags, group_key, role)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)`
	sqlEndOption = `UPDATE main.errand_option SET since = 0, start_by = 0, deadline = 0, epoch = 0
WHERE job = ?1 AND (start_by <> 0 OR deadline <> 0 OR epoch <> 0)`
	sqlDropOption = `DELETE FROM main.errand_option WHERE job = ?1`

	optionValues = `since, start_by, start_within, deadline, finish_within, epoch, flags, COALESCE(group_key, '') AS group_key, role,
COALESCE((SELECT base FROM main.errand_epoch e WHERE e.epoch = o.epoch), 0) AS base`
	sqlOption    = `SELECT ` + optionValues + ` FROM main.errand_option o WHERE job = ?1`
	sqlOptionsOf = `SELECT o.job, ` + optionValues + ` FROM json_each(?1) k CROSS JOIN main.errand_option o ON o.job = k.value`
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
	o.begin(dueMicros(now), r.DueAt, r.Delay > 0, epoch)
	return o, nil
}

// windowsOf returns the StartWithin and the FinishWithin of a new job and its Flags, which
// are its own, or else those that are set for its lane.
func (t *tx) windowsOf(j *storage.NewJob) (start, finish, flags int64, err error) {
	start, finish, flags = upMicros(j.StartWithin), upMicros(j.FinishWithin), flagsOf(j)
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
	if f.Options&hasOption == 0 || to == 0 {
		return nil
	}
	_, err := t.exec(sqlEndOption, f.ID)
	return err
}

// option returns the row of a job, whose Options say that there is one.
func (t *tx) option(id int64) (*option, error) {
	o := &option{Job: id}
	err := t.row(sqlOption, []any{id}, o.dest()...)
	if errors.Is(err, sql.ErrNoRows) { // damage, which need not stop the others
		err = nil
	}
	return o, err
}

// upMicros returns d in whole microseconds, rounded up.
func upMicros(d time.Duration) int64 {
	us := d.Microseconds()
	if d > time.Duration(us)*time.Microsecond {
		us++
	}
	return us
}
