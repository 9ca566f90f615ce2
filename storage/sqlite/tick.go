package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"os"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const (
	sqlFire = `UPDATE main.errand_schedule SET revision = ?2, next_tick = ?3, through = ?4, last_tick = ?5, last_job = ?6, wall = ?7
WHERE schedule = ?1`
	// Of the jobs that schedules of a name have enqueued.
	sqlAddOrigin  = `INSERT INTO main.errand_origin (job, schedule) VALUES (?1, ?2)`
	sqlOverlaps   = `SELECT EXISTS (SELECT 1 FROM main.errand_origin WHERE schedule = ?1 AND live = 1)`
	sqlSetOrigin  = `UPDATE main.errand_origin SET live = ?2 WHERE job = ?1`
	sqlDropOrigin = `DELETE FROM main.errand_origin WHERE job = ?1`

	sqlLastTick = `SELECT COALESCE(MAX(n), 0) FROM main.errand_tick WHERE schedule = ?1`
	sqlAddTick  = `INSERT INTO main.errand_tick (schedule, n, at, until, ticks, taken, noted, job)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`
	sqlTrimTicks = `DELETE FROM main.errand_tick WHERE schedule = ?1 AND n <= ?2`
	sqlTicks     = `SELECT t.at, t.until, t.ticks, t.taken, t.noted, t.job FROM main.errand_schedule s
JOIN main.errand_tick t ON t.schedule = s.schedule WHERE s.name = ?1 ORDER BY t.n DESC`

	sqlStarted   = `SELECT EXISTS (SELECT 1 FROM main.errand_start WHERE schedule = ?1 AND instance = ?2)`
	sqlStartedBy = `SELECT s.instance, i.boot FROM main.errand_start s
LEFT JOIN main.errand_instance i ON i.instance = s.instance WHERE s.schedule = ?1`
	sqlAddStart   = `INSERT INTO main.errand_start (schedule, instance) VALUES (?1, ?2)`
	sqlDropStart  = `DELETE FROM main.errand_start WHERE schedule = ?1 AND instance = ?2`
	sqlDropStarts = `DELETE FROM main.errand_start WHERE schedule = ?1`
	sqlMoveStarts = `UPDATE main.errand_start SET instance = ?2 WHERE instance = ?1`
)

// Fire implements [storage.Scheduler].
func (s *Store) Fire(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	if len(firings) == 0 {
		return nil, s.idle(ctx)
	}
	var out []storage.Fired
	r := &request{
		// Of processes that wait for one tick all but one come too late.
		probe: func(t *tx) (found bool, err error) {
			plans, err := t.plans(firings)
			if err != nil {
				return false, err
			}
			for i := 0; i < len(firings) && !found; i++ {
				if found, err = t.mayFire(plans, &firings[i]); err != nil {
					return false, err
				}
			}
			out = plans.answers(firings)
			return found, nil
		},
		run: func(t *tx) (err error) {
			if out, err = t.fire(now, firings); err != nil {
				return err
			}
			return cmp.Or(t.handOver(now), t.didJobs(ctx, enqueuedBy(out)))
		},
	}
	if err := s.submit(ctx, r); err != nil {
		return nil, err
	}
	return out, nil
}

// enqueuedBy returns how many jobs firings have enqueued.
func enqueuedBy(all []storage.Fired) (n int) {
	for i := range all {
		for _, tick := range all[i].Ticks {
			if tick.Taken == storage.TickFired || tick.Taken == storage.TickManual || tick.Taken == storage.TickStart {
				n++
			}
		}
	}
	return n
}

// plans are those of the schedules that a call of Fire is about, by name.
type plans map[string]*planRow

func (t *tx) plans(firings []storage.Firing) (plans, error) {
	all := plans{}
	for i := range firings {
		name := firings[i].Name
		if all[name] != nil {
			continue
		}
		p, err := t.plan(name)
		if err != nil {
			return nil, err
		}
		all[name] = p
	}
	return all, nil
}

// current reports whether a firing takes effect.
func (p plans) current(f *storage.Firing) bool {
	have := p[f.Name].Revision
	return have != 0 && have == f.Revision
}

// answers returns the plans as they are now.
func (p plans) answers(firings []storage.Firing) []storage.Fired {
	out := make([]storage.Fired, len(firings))
	for i := range firings {
		out[i].Plan = p[firings[i].Name].plan()
	}
	return out
}

func (t *tx) fire(now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	t.seen(now)
	plans, err := t.plans(firings)
	if err != nil {
		return nil, err
	}
	taken := make([][]storage.Tick, len(firings))
	for i := range firings {
		f := &firings[i]
		if !plans.current(f) {
			continue
		}
		if f.Start {
			first, err := t.start(plans[f.Name].Schedule)
			if err != nil {
				return nil, err
			}
			if !first {
				continue
			}
		}
		t.fresh.schedule = f.Name
		taken[i], err = t.fireOne(now, plans[f.Name], f)
		t.fresh.schedule = ""
		if err != nil {
			return nil, err
		}
	}
	out := plans.answers(firings)
	for i := range out {
		out[i].Applied, out[i].Ticks = taken[i] != nil, taken[i]
	}
	return out, nil
}

// mayFire reports whether a firing writes something, as far as that can be said without a
// look at other instances.
func (t *tx) mayFire(plans plans, f *storage.Firing) (bool, error) {
	if !plans.current(f) || !f.Start {
		return plans.current(f), nil
	}
	started, err := t.started(plans[f.Name].Schedule, cmp.Or(t.registered, t.store.self.number()))
	return !started, err
}

// started reports whether an instance has started a schedule.
func (t *tx) started(schedule, instance int64) (started bool, err error) {
	if instance == 0 { // it is not registered
		return false, nil
	}
	err = t.row(sqlStarted, []any{schedule, instance}, &started)
	return started, err
}

// start notes that this instance has started a schedule. It reports whether no instance had
// that lives, this one included.
func (t *tx) start(schedule int64) (first bool, err error) {
	own, err := t.register(0) // it is not seen to live before
	if err != nil {
		return false, err
	}
	if started, err := t.started(schedule, own); started || err != nil {
		return false, err
	}
	var others []peer
	var p peer
	var boot sql.NullString
	err = t.each(sqlStartedBy, []any{schedule}, []any{&p.id, &boot}, func() {
		if p.boot = boot.String; !boot.Valid { // another process has dropped the registration
			p.boot = closedBoot
		}
		others = append(others, p)
	})
	if err != nil {
		return false, err
	}
	first = true
	for _, p := range others {
		lives := false
		if p.boot != closedBoot {
			if lives, err = t.store.lives(p); err != nil {
				return false, err
			}
		}
		if first = first && !lives; lives {
			continue
		}
		if _, err := t.exec(sqlDropStart, schedule, p.id); err != nil {
			return false, err
		}
	}
	_, err = t.exec(sqlAddStart, schedule, own)
	return first, err
}

// lives reports whether the process of an instance may live. It does not keep others from
// looking too, see [host.TryShared].
func (s *Store) lives(p peer) (bool, error) {
	dead, _, err := s.inspect(p)
	if errors.Is(err, os.ErrPermission) {
		return true, nil // of another user, who keeps the file closed
	}
	if dead == nil || err != nil {
		return true, err
	}
	dead.close()
	return dead.missing, nil
}

// fireOne takes the ticks of a firing, moves p on, and returns them as they are
// in the history, never nil.
func (t *tx) fireOne(now time.Time, p *planRow, f *storage.Firing) ([]storage.Tick, error) {
	taken := make([]storage.Tick, len(f.Ticks))
	for i := range f.Ticks {
		var err error
		if taken[i], err = t.take(now, p, &f.Ticks[i]); err != nil {
			return nil, err
		}
	}
	p.Revision = t.token()
	p.NextTick, p.Through, p.Wall = nullTime(f.Next), nullTime(f.Through), f.Wall
	if _, err := t.exec(sqlFire, p.Schedule, p.Revision, p.NextTick, p.Through, p.LastTick, p.LastJob, nullable(p.Wall)); err != nil {
		return nil, err
	}
	return taken, t.addTicks(p.Schedule, taken)
}

// take decides one tick, and enqueues its job.
func (t *tx) take(now time.Time, p *planRow, tick *storage.NewTick) (storage.Tick, error) {
	entry := storage.Tick{
		At: tick.At, Until: tick.Until, N: max(tick.N, 1), Taken: tick.Taken, Noted: now,
	}
	if entry.Until.IsZero() {
		entry.Until = entry.At
	}
	for _, at := range []*time.Time{&entry.At, &entry.Until, &entry.Noted} {
		*at = fromMicros(micros(*at))
	}
	if tick.Job == nil {
		return entry, nil
	}
	if p.SkipOverlap && tick.Taken != storage.TickManual {
		var overlaps bool
		if err := t.row(sqlOverlaps, []any{t.fresh.schedule}, &overlaps); err != nil {
			return entry, err
		}
		if overlaps {
			entry.Taken = storage.TickOverlap
			return entry, nil
		}
	}
	jobs, refused, err := t.enqueueOrRefuse(now, []storage.NewJob{*tick.Job})
	if err != nil {
		return entry, err
	}
	if refused != nil {
		entry.Taken = storage.TickFull
		return entry, err
	}
	entry.ID = jobs[0].ID
	if jobs[0].Duplicate {
		entry.Taken = storage.TickDuplicate
		return entry, nil
	}
	p.LastTick, p.LastJob = nullTime(entry.At), entry.ID[:]
	return entry, nil
}

// addOrigin notes which schedule has enqueued a job that is new in errand_job, if one has: of
// a job that was dead it is known.
func (t *tx) addOrigin(r *jobRow) (err error) {
	switch {
	case r.Options&hasOrigin == 0:
	case r.schedule != "":
		_, err = t.exec(sqlAddOrigin, r.ID, r.schedule)
	default:
		_, err = t.exec(sqlSetOrigin, r.ID, true)
	}
	return err
}

// endOrigin notes that a live job has come to a state in which it is kept. Only of a dead one,
// which may be redriven, it has to be known which schedule has enqueued it.
func (t *tx) endOrigin(f *facts, to stateCode) (err error) {
	switch {
	case f.Options&hasOrigin == 0 || to == 0:
	case to == dead:
		_, err = t.exec(sqlSetOrigin, f.ID, false)
	default:
		_, err = t.exec(sqlDropOrigin, f.ID)
	}
	return err
}

// addTicks appends to the history of a schedule, of which the last entries
// are kept.
func (t *tx) addTicks(schedule int64, ticks []storage.Tick) error {
	if len(ticks) == 0 {
		return nil
	}
	var last int64
	if err := t.row(sqlLastTick, []any{schedule}, &last); err != nil {
		return err
	}
	last += int64(len(ticks))
	keep := ticks[max(0, len(ticks)-storage.TickLimit):]
	for i := range keep {
		k := &keep[i]
		var job any
		if !k.ID.IsZero() {
			job = k.ID[:]
		}
		_, err := t.exec(sqlAddTick, schedule, last-int64(len(keep)-1-i),
			micros(k.At), micros(k.Until), k.N, string(k.Taken), micros(k.Noted), job)
		if err != nil {
			return err
		}
	}
	if last <= storage.TickLimit {
		return nil
	}
	_, err := t.exec(sqlTrimTicks, schedule, last-storage.TickLimit)
	return err
}

type tickRow struct {
	At    int64
	Until int64
	Ticks int64
	Taken storage.TickOutcome
	Noted int64
	Job   []byte
}

// Ticks implements [storage.Scheduler].
func (s *Store) Ticks(ctx context.Context, name string) ([]storage.Tick, error) {
	var rows []tickRow
	err := s.reading(ctx, s.read, func(tx *sqlx.Tx) error { return tx.Select(&rows, sqlTicks, name) })
	if err != nil {
		return nil, err
	}
	out := make([]storage.Tick, len(rows))
	for i, r := range rows {
		out[i] = storage.Tick{
			At: fromMicros(r.At), Until: fromMicros(r.Until), N: r.Ticks, Taken: r.Taken, Noted: fromMicros(r.Noted),
		}
		copy(out[i].ID[:], r.Job)
	}
	return out, nil
}
