package errand

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/internal/schedule"
	"github.com/errandq/errand/storage"
)

// Schedules lists and controls the recurring jobs of a queue's database. Its methods
// return [ErrNotFound] if there is no schedule of a name, and [ErrUnsupportedDB] if
// the store keeps no schedules. It is safe for concurrent use.
type Schedules struct{ q *Queue }

// Schedules returns the schedules of the database.
func (q *Queue) Schedules() *Schedules { return &Schedules{q} }

// Tick is an entry in the history of a schedule: a tick that was fired, or ticks in a
// row that were skipped for the same reason.
type Tick struct {
	// At is the first tick of the entry, and Until the last, in the zone.
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	// N is the number of ticks.
	N int64 `json:"n"`
	// Taken is what became of the ticks.
	Taken TickOutcome `json:"taken"`
	// Noted is when the entry was made.
	Noted time.Time `json:"noted"`
	// Job is the job that was enqueued. For a duplicate it is the job that holds
	// the unique key. Otherwise it is zero.
	Job ID `json:"job,omitzero"`
}

// TickOutcome is what became of a tick.
type TickOutcome = storage.TickOutcome

// The outcomes of ticks.
const (
	TickFired     = storage.TickFired
	TickManual    = storage.TickManual    // fired by Schedules.Run
	TickStart     = storage.TickStart     // fired because of Schedule.RunOnStart
	TickMissed    = storage.TickMissed    // skipped: no worker ran in time
	TickPaused    = storage.TickPaused    // skipped: the schedule was paused
	TickOverlap   = storage.TickOverlap   // skipped: a job of the schedule is not over
	TickDuplicate = storage.TickDuplicate // skipped: another job holds the unique key
	TickFull      = storage.TickFull      // skipped: the queue is full, see Settings
)

// maxTries is how often a change is tried. A try fails if another process, or a
// worker that fires, changes the schedule between the read and the write.
const maxTries = 20

// List returns all schedules, sorted by name. If a schedule cannot be read on this
// machine, for example because its zone is missing, the list has the rest of it,
// and List returns an error with the list.
func (s *Schedules) List(ctx context.Context) ([]ScheduleInfo, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	all, err := store.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	var f faults
	now := s.q.clock.current(ctx)
	infos := make([]ScheduleInfo, len(all))
	for i := range all {
		infos[i] = scheduleInfo(&f, &all[i], now)
	}
	return infos, f.err()
}

// Get returns one schedule.
func (s *Schedules) Get(ctx context.Context, name string) (ScheduleInfo, error) {
	_, found, err := s.find(ctx, name)
	if err != nil {
		return ScheduleInfo{}, err
	}
	var f faults
	info := scheduleInfo(&f, found, s.q.clock.current(ctx))
	return info, f.err()
}

// Pause stops a schedule from firing until it is resumed, also over a restart. Jobs
// that it has enqueued go on. Pausing twice is the same as once.
func (s *Schedules) Pause(ctx context.Context, name string) error {
	return s.change(ctx, name, func(store storage.Scheduler, now time.Time, found *storage.ScheduleRecord) (bool, error) {
		if found == nil {
			return false, noSchedule(name)
		}
		if found.Paused {
			return true, nil
		}
		found.Paused = true
		revision, err := store.PutSchedule(ctx, now, found.Schedule)
		return revision != 0, err
	})
}

// Resume ends a pause. Ticks of the time of the pause are not fired; the history has
// one entry for them.
func (s *Schedules) Resume(ctx context.Context, name string) error {
	return s.change(ctx, name, func(store storage.Scheduler, now time.Time, found *storage.ScheduleRecord) (bool, error) {
		if found == nil {
			return false, noSchedule(name)
		}
		if !found.Paused {
			return true, nil
		}
		spec, err := parseSchedule(&found.Schedule)
		if err != nil {
			return false, err
		}
		// The history comes first: if the pause ended without this entry, the
		// ticks would count as missed, and fire.
		found.Plan = known(found.Plan, now)
		if tick, ok := paused(spec, decided(found.Plan, spec, now), now); ok {
			fired, err := store.Fire(ctx, now, []storage.Firing{{
				Name: name, Revision: found.Revision, Next: spec.Next(now), Through: now, Wall: spec.Wall(now),
				Ticks: []storage.NewTick{tick},
			}})
			if err != nil || !fired[0].Applied {
				return false, err
			}
			found.Plan = fired[0].Plan
		}
		found.Plan, found.Paused = s.q.begin(found.Plan, spec, latest(found.Through, now)), false
		revision, err := store.PutSchedule(ctx, now, found.Schedule)
		return revision != 0, err
	})
}

// Run fires a schedule once more, now: also if it is paused, if a job of it is not
// over, or if schedules wait for the clock. Its ticks stay as they are. If another
// job holds the unique key, Run returns its ID with Enqueued.Duplicate set.
func (s *Schedules) Run(ctx context.Context, name string) (e Enqueued, err error) {
	err = s.change(ctx, name, func(store storage.Scheduler, now time.Time, found *storage.ScheduleRecord) (bool, error) {
		if found == nil {
			return false, noSchedule(name)
		}
		spec, err := parseSchedule(&found.Schedule)
		if err != nil {
			return false, err
		}
		job, err := engine.TickJob(&found.Schedule, now.In(spec.Zone()), now)
		if err != nil {
			return false, fmt.Errorf("errand: %w", err)
		}
		job.DueAt, job.Delay = time.Time{}, 0 // without the jitter
		fired, err := store.Fire(ctx, now, []storage.Firing{{
			Name: name, Revision: found.Revision, Next: found.Next, Through: found.Through, Wall: found.Wall,
			Ticks: []storage.NewTick{{At: now, Taken: TickManual, Job: &job}},
		}})
		if err != nil || !fired[0].Applied {
			return false, err
		}
		tick := fired[0].Ticks[0]
		e = Enqueued{ID: tick.ID, Duplicate: tick.Taken == TickDuplicate, Key: ownKey(job.Kind, job.Unique)}
		return true, nil
	})
	return e, err
}

// Remove deletes a schedule with its history. Jobs that it has enqueued go on.
func (s *Schedules) Remove(ctx context.Context, name string) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	if err := checkName("name", name); err != nil {
		return err
	}
	err = store.DropSchedule(ctx, s.q.clock.current(ctx), name)
	if errors.Is(err, ErrNotFound) {
		return noSchedule(name)
	}
	return err
}

// Keep removes all schedules except those named, and returns the names of the
// removed ones. A program that has declared all its schedules calls Keep with their
// names, to remove schedules of its earlier releases. Do not call it if programs
// with different schedules share the database. Without names it removes all
// schedules. With an error it returns the names of those removed before.
func (s *Schedules) Keep(ctx context.Context, names ...string) ([]string, error) {
	var f faults
	for i, name := range names {
		f.add(checkName(fmt.Sprintf("names[%d]", i), name))
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	all, err := store.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, other := range all {
		if slices.Contains(names, other.Name) {
			continue
		}
		switch err := store.DropSchedule(ctx, s.q.clock.current(ctx), other.Name); {
		case err == nil:
			removed = append(removed, other.Name)
		case !errors.Is(err, ErrNotFound): // another process may do the same
			return removed, err
		}
	}
	return removed, nil
}

// History returns what became of the ticks of a schedule: at most 50 entries, the
// latest first.
func (s *Schedules) History(ctx context.Context, name string) ([]Tick, error) {
	store, found, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	stored, err := store.Ticks(ctx, name)
	if err != nil {
		return nil, err
	}
	zone := time.UTC
	spec, err := parseSchedule(&found.Schedule)
	if err == nil {
		zone = spec.Zone()
	}
	ticks := make([]Tick, len(stored))
	for i, t := range stored {
		ticks[i] = Tick{At: t.At.In(zone), Until: t.Until.In(zone), N: t.N, Taken: t.Taken, Noted: t.Noted, Job: t.ID}
	}
	return ticks, err
}

func (s *Schedules) store() (storage.Scheduler, error) {
	store, ok := s.q.store.(storage.Scheduler)
	if !ok {
		return nil, fmt.Errorf("%w: store %T keeps no schedules", ErrUnsupportedDB, s.q.store)
	}
	return store, nil
}

func noSchedule(name string) error { return fmt.Errorf("%w: schedule %q", ErrNotFound, name) }

// find returns the schedule of this name, or an error if there is none.
func (s *Schedules) find(ctx context.Context, name string) (storage.Scheduler, *storage.ScheduleRecord, error) {
	store, err := s.store()
	if err != nil {
		return nil, nil, err
	}
	found, err := findSchedule(ctx, store, name)
	if err == nil && found == nil {
		err = noSchedule(name)
	}
	return store, found, err
}

func findSchedule(ctx context.Context, store storage.Scheduler, name string) (*storage.ScheduleRecord, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	found, err := store.Schedule(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &found, nil
}

// change calls try with the schedule of this name, or nil if there is none, until
// try is done. It is not done if another change came first.
func (s *Schedules) change(ctx context.Context, name string,
	try func(store storage.Scheduler, now time.Time, found *storage.ScheduleRecord) (done bool, err error),
) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	select {
	case s.q.changing <- struct{}{}:
		defer func() { <-s.q.changing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for range maxTries {
		found, err := findSchedule(ctx, store, name)
		if err != nil {
			return err
		}
		if done, err := try(store, s.q.clock.current(ctx), found); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("errand: schedule %q: others have changed it during each of %d tries", name, maxTries)
}

// known returns p, but as made now if nothing was decided or a wrong clock has made it.
func known(p storage.Plan, now time.Time) storage.Plan {
	if engine.Lost(&p, now) {
		p.Through, p.Wall = now, ""
	}
	return p
}

// decided returns the time up to which a plan has decided about all ticks.
func decided(p storage.Plan, spec *schedule.Spec, now time.Time) time.Time {
	p = known(p, now)
	return spec.Decided(p.Through, p.Wall)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// paused returns the entry of the history for the ticks of a pause.
func paused(spec *schedule.Spec, from, now time.Time) (storage.NewTick, bool) {
	d := spec.Due(from, now, schedule.Skip, 0)
	t := storage.NewTick{At: d.FirstSkipped, Until: d.LastSkipped, N: d.Skipped, Taken: TickPaused}
	for _, tick := range d.Fire { // a tick that is due right now
		if t.N++; t.N == 1 {
			t.At = tick
		}
		t.Until = tick
	}
	return t, t.N > 0
}
