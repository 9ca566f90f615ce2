package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlPlan = `SELECT schedule, revision, paused, next_tick, through, last_tick, last_job, skip_overlap, COALESCE(wall, '') AS wall
FROM main.errand_schedule WHERE name = ?1`
	sqlAddSchedule = `INSERT INTO main.errand_schedule
(name, revision, paused, next_tick, through, spec, zone, missed, skip_overlap, jitter, wall)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)`
	sqlSetSchedule = `UPDATE main.errand_schedule SET revision = ?2, paused = ?3, next_tick = ?4, through = ?5,
spec = ?6, zone = ?7, missed = ?8, skip_overlap = ?9, jitter = ?10, wall = ?11 WHERE schedule = ?1`
	sqlPutScheduleJob = `INSERT OR REPLACE INTO main.errand_schedule_job
(schedule, queue, kind, priority, timeout, policy, unique_key, unique_scope, headers, args, tags,
start_within, finish_within, flags, group_name)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)`
	sqlDropSchedule    = `DELETE FROM main.errand_schedule WHERE name = ?1 RETURNING schedule`
	sqlDropScheduleJob = `DELETE FROM main.errand_schedule_job WHERE schedule = ?1`
	sqlDropTicks       = `DELETE FROM main.errand_tick WHERE schedule = ?1`
	sqlSchedules       = scheduleSelect + ` ORDER BY s.name`
	sqlSchedule        = scheduleSelect + ` WHERE s.name = ?1`
	scheduleSelect     = `SELECT s.schedule, s.revision, s.paused, s.next_tick, s.through, s.last_tick, s.last_job,
s.skip_overlap, COALESCE(s.wall, '') AS wall, s.name, s.spec, s.zone, s.missed, s.jitter, j.queue, j.kind, j.priority, j.timeout, j.policy,
COALESCE(j.unique_key, '') AS unique_key, j.unique_scope, j.headers, j.args, COALESCE(j.tags, '') AS tags,
j.start_within, j.finish_within, j.flags, COALESCE(j.group_name, '') AS group_name
FROM main.errand_schedule s JOIN main.errand_schedule_job j ON j.schedule = s.schedule`
)

var _ storage.Scheduler = (*Store)(nil)

// planRow is how far a schedule has come; its revision is 0 if there is none.
type planRow struct {
	Schedule    int64
	Revision    int64
	Paused      bool
	NextTick    sql.NullInt64 `db:"next_tick"`
	Through     sql.NullInt64
	LastTick    sql.NullInt64 `db:"last_tick"`
	LastJob     []byte        `db:"last_job"`
	SkipOverlap bool          `db:"skip_overlap"`
	Wall        string
}

func (r *planRow) plan() storage.Plan {
	return storage.Plan{
		Revision: r.Revision, Paused: r.Paused,
		Next: timeOf(r.NextTick), Through: timeOf(r.Through), Wall: r.Wall,
	}
}

func (r *planRow) lastJob() (id storage.ID) {
	copy(id[:], r.LastJob)
	return id
}

// nullTime returns t in microseconds, or NULL if it is zero.
func nullTime(t time.Time) sql.NullInt64 {
	if t.IsZero() {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: micros(t), Valid: true}
}

// timeOf is the reverse of nullTime.
func timeOf(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return fromMicros(n.Int64)
}

// plan reads the plan of the schedule of this name.
func (t *tx) plan(name string) (*planRow, error) {
	r := &planRow{}
	err := t.row(sqlPlan, []any{name},
		&r.Schedule, &r.Revision, &r.Paused, &r.NextTick, &r.Through, &r.LastTick, &r.LastJob, &r.SkipOverlap, &r.Wall)
	if errors.Is(err, sql.ErrNoRows) {
		return r, nil
	}
	return r, err
}

// PutSchedule implements [storage.Scheduler].
func (s *Store) PutSchedule(ctx context.Context, now time.Time, sched storage.Schedule) (revision int64, err error) {
	err = s.submit(ctx, &request{run: func(t *tx) (err error) {
		t.seen(now)
		if revision, err = t.putSchedule(&sched); revision != 0 && err == nil {
			err = t.did(ctx, 0)
		}
		return err
	}})
	if err != nil {
		return 0, err
	}
	return revision, nil
}

func (t *tx) putSchedule(s *storage.Schedule) (revision int64, err error) {
	p, err := t.plan(s.Name)
	if err != nil || p.Revision != s.Revision {
		return 0, err
	}
	revision = t.token()
	values := []any{
		any(p.Schedule), revision, s.Paused, nullTime(s.Next), nullTime(s.Through),
		s.Spec, s.Zone, s.Missed, s.SkipOverlap, s.Jitter.Microseconds(), nullable(s.Wall),
	}
	if s.Revision == 0 {
		values[0] = s.Name
		res, err := t.exec(sqlAddSchedule, values...)
		if err != nil {
			return 0, err
		}
		if p.Schedule, err = res.LastInsertId(); err != nil {
			return 0, err
		}
	} else if _, err := t.exec(sqlSetSchedule, values...); err != nil {
		return 0, err
	}
	j := &s.Job
	var headers any
	if j.Headers != nil {
		headers = j.Headers
	}
	_, err = t.exec(sqlPutScheduleJob, p.Schedule, j.Queue, j.Kind, j.Priority, j.Timeout.Microseconds(),
		nullable(string(j.Policy)), nullable(j.Unique), j.UniqueScope, headers, j.Args, nullable(strings.Join(j.Tags, " ")),
		rules.Ceil(j.StartWithin), rules.Ceil(j.FinishWithin), flagsOf(j), nullable(j.Group))
	t.meta.gen++
	t.notifyAll(storage.Event{Schedules: true})
	return revision, err
}

// DropSchedule implements [storage.Scheduler].
func (s *Store) DropSchedule(ctx context.Context, now time.Time, name string) error {
	found := false
	err := s.submit(ctx, &request{run: func(t *tx) (err error) {
		t.seen(now)
		if found, err = t.dropSchedule(name); found && err == nil {
			err = t.did(ctx, 0)
		}
		return err
	}})
	if err == nil && !found {
		err = storage.ErrNotFound
	}
	return err
}

func (t *tx) dropSchedule(name string) (found bool, err error) {
	var schedule int64
	err = t.row(sqlDropSchedule, []any{name}, &schedule)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, text := range []string{sqlDropScheduleJob, sqlDropTicks, sqlDropStarts} {
		if _, err := t.exec(text, schedule); err != nil {
			return false, err
		}
	}
	t.meta.gen++
	t.notifyAll(storage.Event{Schedules: true})
	return true, nil
}

type scheduleRow struct {
	planRow
	Name        string
	Spec        string
	Zone        string
	Missed      string
	Jitter      int64
	Queue       string
	Kind        string
	Priority    int
	Timeout     int64
	Policy      []byte
	UniqueKey   string              `db:"unique_key"`
	UniqueScope storage.UniqueScope `db:"unique_scope"`
	Headers     []byte
	Args        []byte
	Tags        string

	StartWithin  int64 `db:"start_within"`
	FinishWithin int64 `db:"finish_within"`
	Flags        int64
	GroupName    string `db:"group_name"`
}

func (r *scheduleRow) schedule() storage.ScheduleRecord {
	if r.Args == nil { // what the driver makes of a BLOB of no bytes
		r.Args = []byte{}
	}
	var tags []string
	if r.Tags != "" {
		tags = strings.Split(r.Tags, " ")
	}
	return storage.ScheduleRecord{LastTick: timeOf(r.LastTick), LastJob: r.lastJob(), Schedule: storage.Schedule{
		Name: r.Name, Spec: r.Spec, Zone: r.Zone, Missed: r.Missed, SkipOverlap: r.SkipOverlap,
		Jitter: time.Duration(r.Jitter) * time.Microsecond,
		Job: storage.NewJob{
			Queue: r.Queue, Kind: r.Kind, Priority: r.Priority, Timeout: time.Duration(r.Timeout) * time.Microsecond,
			Policy: r.Policy, Unique: r.UniqueKey, UniqueScope: r.UniqueScope, Headers: r.Headers, Args: r.Args,
			Tags: tags, OnExpire: onExpire(r.Flags), Group: r.GroupName,
			StartWithin: time.Duration(r.StartWithin) * time.Microsecond, FinishWithin: time.Duration(r.FinishWithin) * time.Microsecond,
		},
		Plan: r.plan(),
	}}
}

// Schedule implements [storage.Scheduler].
func (s *Store) Schedule(ctx context.Context, name string) (storage.ScheduleRecord, error) {
	var row scheduleRow
	err := s.reading(ctx, s.read, func(tx *sqlx.Tx) error { return tx.Get(&row, sqlSchedule, name) })
	if errors.Is(err, sql.ErrNoRows) {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.ScheduleRecord{}, err
	}
	return row.schedule(), nil
}

// Schedules implements [storage.Scheduler].
func (s *Store) Schedules(ctx context.Context) ([]storage.ScheduleRecord, error) {
	var rows []scheduleRow
	err := s.reading(ctx, s.inner, func(tx *sqlx.Tx) error { return tx.Select(&rows, sqlSchedules) })
	if err != nil {
		return nil, err
	}
	out := make([]storage.ScheduleRecord, len(rows))
	for i := range rows {
		out[i] = rows[i].schedule()
	}
	return out, nil
}
