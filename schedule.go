package errand

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/internal/schedule"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/storage"
)

// Schedule is a recurring job, as [Queue.Schedule] declares it. A tick is a moment
// at which it is due. Each tick becomes one job, however many processes and workers
// there are.
type Schedule struct {
	// Name names the schedule in the database, by the rule for names of kinds.
	Name string
	// Spec sets the ticks, in whole seconds: five cron fields (minute, hour, day of
	// month, month, day of week), six with the second first, @yearly, @monthly,
	// @weekly, @daily, @hourly, or @every with a duration from 1s to 87600h. At
	// most 256 bytes. The ticks of @every are the multiples of the duration since
	// 1970 UTC, whenever the program was started. If neither day field is * or ?, a day
	// matches if either of them does, also one with a step as in */2.
	//
	// The hour field decides about changes of the clock. With fixed hours, a tick
	// in the hour that is skipped comes right after it, and one in the hour that is
	// repeated comes once. Such a tick is known by its date and time in Zone, so that it is
	// fired once also by processes whose databases of time zones differ. With * or a step
	// in the hour field, no tick is lost and a repeated hour has its ticks twice.
	Spec string
	// Zone is the IANA time zone in which Spec is evaluated. "Local" is refused, as
	// it depends on the process. A program for machines without the time zone
	// database imports time/tzdata. If empty, UTC.
	Zone string
	// Args are the args of each job.
	Args Args
	// Options are the options of each job. DueAt, Delay and Origin must be zero. Two
	// headers are added: errand-schedule (the name) and errand-tick (RFC 3339, in
	// the zone). A tick is skipped if another job holds its unique key. If nil, the
	// defaults of jobs.
	Options *JobOptions
	// Missed decides about ticks that were missed. If empty, MissedOne.
	Missed Missed
	// Overlap decides about a tick while a job of the schedule is not over.
	// If zero, OverlapAllow.
	Overlap Overlap
	// Jitter delays each job by less than this, up to 24 h. The delay of a tick is
	// the same in every process; the delays of names and ticks are spread evenly.
	// If zero, jobs are due at the tick.
	Jitter time.Duration
	// RunOnStart fires one job more when [Queue.Schedule] declares the schedule, unless a
	// queue that is open, in whatever process, has declared it with RunOnStart before. So
	// there is a job when the schedule is first declared, and again each time that programs
	// start after all which had declared it have ended: one, however many processes start at a
	// time. A program that was killed has ended. What says that a program lives is its file
	// jobs.db-instance-N: if somebody deletes it, such a job may be missing or come twice. Who
	// removes a schedule and declares it again declares another one.
	//
	// The job is due at once, without Jitter, even while schedules wait for the clock. Its
	// errand-tick is the time of the declaration. It is skipped as that of a tick is: by
	// Overlap, by its unique key, and while the schedule is paused. It is not made up for
	// then, nor if the queue is full. The ticks of Spec stay as they are, so after a time
	// without a worker MissedOne may fire a job too. If false, only ticks are fired.
	RunOnStart bool
}

// Missed decides about missed ticks: those that came while no worker ran, or that a jump of
// the clock has passed over. A tick at most 10 s late is on time. A tick that comes at most
// 10 s after a missed tick is missed too.
type Missed string

const (
	// MissedOne fires one job for all missed ticks: that of the latest tick. It fires none if
	// another tick is on time. MissedOne is the default.
	MissedOne Missed = "one"
	// MissedSkip drops missed ticks.
	MissedSkip Missed = "skip"
)

// MissedAll fires the latest missed ticks, max at most, and drops the older ones.
// max must be between 1 and 1,000. The jobs are written in one transaction: their
// args and headers must not exceed 64 MiB together. It is "all(100)", for example.
func MissedAll(max int) Missed { return Missed(fmt.Sprintf("all(%d)", max)) }

// Overlap decides whether a schedule may have more than one job that is not over. A
// job is not over while it is scheduled, ready, blocked or running, so also while it
// waits for a retry. The jobs of a schedule are all that a schedule of its name has
// enqueued: also by [Schedules.Run], while Overlap was another, or before it was removed
// and declared again. A dead one counts again once it is redriven. One that is imported
// is another job, whatever its headers.
type Overlap string

const (
	// OverlapAllow fires each tick. It is the default.
	OverlapAllow Overlap = "allow"
	// OverlapSkip skips a tick while any job of the schedule is not over.
	OverlapSkip Overlap = "skip"
)

const maxJitter = 24 * time.Hour

// Schedule declares a schedule: it adds s, or changes the schedule of that name to
// s. Programs declare their schedules at each start; a declaration that changes
// nothing writes nothing. The workers of all processes on the database fire all its
// schedules, whatever queues they serve.
//
// A new schedule begins with the first tick after now. So does a schedule whose
// spec or zone has changed: its missed ticks are dropped. After other changes it
// goes on where it was. A paused schedule stays paused. With RunOnStart the first declaration
// of a Queue writes that there was one.
//
// For bad input Schedule returns a [FieldError] for each fault, joined, and writes
// nothing. It returns [ErrUnsupportedDB] if the store keeps no schedules.
func (q *Queue) Schedule(ctx context.Context, s Schedule) error {
	fresh, spec, err := q.newSchedule(ctx, s)
	if err != nil {
		return err
	}
	return q.Schedules().change(ctx, s.Name, func(store storage.Scheduler, now time.Time, old *storage.ScheduleRecord) (bool, error) {
		want := fresh
		switch {
		case old == nil:
			want.Plan = q.begin(storage.Plan{}, spec, now)
		case old.Spec != want.Spec || old.Zone != want.Zone:
			old.Wall = "" // of ticks of another spec
			want.Plan = q.begin(old.Plan, spec, now)
		default:
			want.Plan = old.Plan
		}
		if old == nil || !reflect.DeepEqual(want, old.Schedule) {
			var err error
			if want.Revision, err = store.PutSchedule(ctx, now, want); want.Revision == 0 || err != nil {
				return false, err
			}
		}
		return q.runOnStart(ctx, store, now, &s, &want, spec)
	})
}

// runOnStart fires a schedule that was declared, which is at its Revision, if it is RunOnStart and
// nobody has started it. done is false if it is at another Revision.
func (q *Queue) runOnStart(ctx context.Context, store storage.Scheduler, now time.Time, s *Schedule, declared *storage.Schedule, spec *schedule.Spec) (done bool, err error) {
	if !s.RunOnStart {
		return true, nil
	}
	tick := storage.NewTick{At: now, Taken: TickPaused}
	if !declared.Paused {
		job, err := engine.TickJob(declared, now.In(spec.Zone()), now)
		if err != nil {
			return false, fmt.Errorf("errand: %w", err)
		}
		_, believed := q.clock.read(ctx)
		job.DueAt, job.Delay, job.Doubtful = time.Time{}, 0, !believed // without the jitter
		tick.Taken, tick.Job = TickStart, &job
	}
	fired, err := store.Fire(ctx, now, []storage.Firing{{
		Name: declared.Name, Revision: declared.Revision, Next: declared.Next, Through: declared.Through, Wall: declared.Wall,
		Ticks: []storage.NewTick{tick}, Start: true,
	}})
	if err != nil {
		return false, err
	}
	if fired[0].Applied && fired[0].Ticks[0].Taken == TickStart {
		q.events.tellEnqueued(now, []storage.NewJob{*tick.Job}, []Enqueued{{ID: fired[0].Ticks[0].ID}})
	}
	return fired[0].Applied || fired[0].Plan.Revision == declared.Revision, nil
}

// newSchedule checks a schedule and returns it as the store takes it, without a
// plan. Times are cut to the microseconds that the store keeps, so that declaring
// the same again changes nothing.
func (q *Queue) newSchedule(ctx context.Context, s Schedule) (storage.Schedule, *schedule.Spec, error) {
	var f faults
	f.add(checkName("name", s.Name))
	spec, err := schedule.Parse(s.Spec, s.Zone)
	for _, fault := range schedule.Faults(err) {
		f.field(fault.Field, fault.Value, fault.Limit)
	}
	missed, err := schedule.ParseMissed(string(cmp.Or(s.Missed, MissedOne)))
	if err != nil {
		f.field("missed", string(s.Missed), fmt.Sprintf("must be MissedOne, MissedSkip or MissedAll of 1 to %d", schedule.MaxAll))
	}
	if overlap := cmp.Or(s.Overlap, OverlapAllow); overlap != OverlapAllow && overlap != OverlapSkip {
		f.field("overlap", string(s.Overlap), "must be OverlapAllow or OverlapSkip")
	}
	if s.Jitter < 0 || s.Jitter > maxJitter {
		f.field("jitter", s.Jitter, fmt.Sprintf("must be between 0 and %v", maxJitter))
	}
	unique := "options.unique."
	if d, ok := s.Args.(JobDefaulter); ok {
		s.Options, unique = q.tickDefaults(&f, d, s.Options)
	}
	r := storage.Schedule{
		Name: s.Name, Zone: cmp.Or(s.Zone, "UTC"), Missed: missed.String(), SkipOverlap: s.Overlap == OverlapSkip,
		Jitter: s.Jitter.Truncate(time.Microsecond), Job: q.scheduleJob(&f, s, unique),
	}
	if q.entry != nil && f.n() == 0 {
		f.add(q.enter(ctx, &entering{options: "options.", record: &r.Job}, s.Options))
	}
	if f.n() == 0 {
		// The text of a tick is longest with an offset from UTC.
		job, err := engine.TickJob(&r, time.Unix(0, 0).In(time.FixedZone("", 3600)), time.Time{})
		if err != nil {
			return r, nil, err
		}
		if n := len(job.Headers); n > q.opts.MaxHeaders {
			f.field("options.headers", n, fmt.Sprintf("must be at most %d bytes of JSON, with those that are added", q.opts.MaxHeaders))
		}
		n := len(job.Args) + len(job.Headers)
		if most := mostBytes / n; missed > 1 && int(missed) > most {
			f.field("missed", string(s.Missed), fmt.Sprintf("must be at most all(%d) with args and headers of %d bytes", max(most, 1), n))
		}
	}
	if err := f.err(); err != nil {
		return r, nil, err
	}
	r.Spec = spec.String()
	return r, spec, nil
}

// tickDefaults returns the options of a schedule's jobs with the defaults of their kind,
// and what goes before the names of the fields of their unique key.
func (q *Queue) tickDefaults(f *faults, args JobDefaulter, own *JobOptions) (o *JobOptions, unique string) {
	unique = "options.unique."
	if o = q.defaulted(f, "", args, own); o == own {
		return o, unique
	}
	own = cmp.Or(own, &JobOptions{})
	o.DueAt, o.Delay, o.Origin = own.DueAt, own.Delay, own.Origin // the spec says when
	if own.Unique == nil {
		unique = defaultsPlace("", args) + "unique."
	}
	return o, unique
}

func (q *Queue) scheduleJob(f *faults, s Schedule, unique string) storage.NewJob {
	o := *cmp.Or(s.Options, &JobOptions{})
	if !o.DueAt.IsZero() {
		f.field("options.due_at", o.DueAt, "must be zero: the spec says when")
	}
	if o.Delay != 0 {
		f.field("options.delay", o.Delay, "must be zero: the spec says when")
	}
	if o.Origin != (Origin{}) {
		f.field("options.origin.device", o.Origin.Device, "must be empty: the jobs come from the schedule")
	}
	o.DueAt, o.Delay, o.Origin = time.Time{}, 0, Origin{}
	for _, name := range []string{engine.HeaderSchedule, engine.HeaderTick} {
		if v, ok := o.Headers[name]; ok {
			f.field(fmt.Sprintf("options.headers[%q]", name), v, "must not be set: the schedule sets it")
		}
	}
	job := q.newJob(f, "options.", NewJob{s.Args, &o})
	f.noConflict(unique, o.Unique)
	job.Timeout = job.Timeout.Truncate(time.Microsecond)
	return job
}

// begin returns p changed to go on from now. While schedules wait for the clock,
// now is unknown; the engine plans when the clock is right.
func (q *Queue) begin(p storage.Plan, spec *schedule.Spec, now time.Time) storage.Plan {
	// It may have been set right since now was read.
	if q.opts.WaitForClock && (now.Before(clock.Built) || !q.clock.Plausible()) {
		p.Through, p.Next = time.Time{}, time.Time{}
	} else {
		p.Through, p.Next = now, spec.Next(spec.Decided(now, p.Wall))
	}
	return p
}

// ScheduleInfo is all that is known of a schedule.
type ScheduleInfo struct {
	Name    string        `json:"name"`
	Spec    string        `json:"spec"` // with single spaces
	Zone    string        `json:"zone"`
	Missed  Missed        `json:"missed"`
	Overlap Overlap       `json:"overlap"`
	Jitter  time.Duration `json:"jitter_s,omitempty"`
	// Kind, Args and Options are those of the jobs. DueAt and Delay are zero. Of Options
	// JSON has the queue, under this name.
	Kind    string          `json:"kind"`
	Args    json.RawMessage `json:"args,omitempty"`
	Options JobOptions      `json:"-"`
	Paused  bool            `json:"paused"`
	// Next are the next five ticks, in the zone, or as many as there are before the
	// year 10000. For a paused schedule they are the ticks if it were resumed now.
	Next []time.Time `json:"next"`
	// LastTick is the latest tick for which a job was enqueued, in the zone, and
	// LastJob is that job. Both are zero if there was none.
	LastTick time.Time `json:"last_tick,omitzero"`
	LastJob  ID        `json:"last_job,omitzero"`
}

// scheduleJSON is a schedule as JSON has it.
type scheduleJSON struct {
	ScheduleInfo
	Queue string `json:"queue"`
}

// MarshalJSON writes durations in seconds.
func (i ScheduleInfo) MarshalJSON() ([]byte, error) {
	return seconds.Marshal(scheduleJSON{i, i.Options.Queue})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (i *ScheduleInfo) UnmarshalJSON(data []byte) error {
	s := scheduleJSON{*i, i.Options.Queue}
	err := seconds.Unmarshal(data, &s)
	s.Options.Queue = s.Queue
	*i = s.ScheduleInfo
	return err
}

// listedTicks is the length of ScheduleInfo.Next.
const listedTicks = 5

// parseSchedule parses the spec of a stored schedule. It can fail: the schedule may
// come from a machine with other time zones, or from another release of errand.
func parseSchedule(s *storage.Schedule) (*schedule.Spec, error) {
	spec, err := schedule.Parse(s.Spec, s.Zone)
	if err != nil {
		return nil, fmt.Errorf("errand: schedule %q: %w", s.Name, err)
	}
	return spec, nil
}

// scheduleInfo returns a schedule as the public API shows it. f collects what does
// not decode.
func scheduleInfo(f *faults, s *storage.ScheduleRecord, now time.Time) ScheduleInfo {
	of := fmt.Sprintf("schedule %q", s.Name)
	info := ScheduleInfo{
		Name: s.Name, Spec: s.Spec, Zone: s.Zone, Jitter: s.Jitter, Kind: s.Job.Kind, Args: s.Job.Args,
		Options: JobOptions{Queue: s.Job.Queue, Priority: s.Job.Priority, Timeout: s.Job.Timeout, Headers: f.storedHeaders(of, s.Job.Headers),
			Tags: s.Job.Tags, Group: s.Job.Group, StartWithin: s.Job.StartWithin, FinishWithin: s.Job.FinishWithin, OnExpire: s.Job.OnExpire},
		Paused: s.Paused, LastTick: s.LastTick, LastJob: s.LastJob,
	}
	info.Overlap = OverlapAllow
	if s.SkipOverlap {
		info.Overlap = OverlapSkip
	}
	if p := f.storedPolicy(of, s.Job.Policy); p != nil {
		info.Options.Policy = *p
	}
	if s.Job.Unique != "" {
		info.Options.Unique = &Unique{
			Key:     ownKey(s.Job.Kind, s.Job.Unique),
			Forever: s.Job.UniqueScope == storage.UniqueForever,
		}
	}
	missed, err := schedule.ParseMissed(s.Missed)
	if err != nil {
		f.add(fmt.Errorf("errand: %s: %w", of, err))
	}
	info.Missed = Missed(missed.String())
	spec, err := parseSchedule(&s.Schedule)
	if err != nil {
		f.add(err)
		return info
	}
	if !s.LastTick.IsZero() {
		info.LastTick = s.LastTick.In(spec.Zone())
	}
	next := latest(decided(s.Plan, spec, now), now)
	for range listedTicks {
		if next = spec.Next(next); next.IsZero() {
			break
		}
		info.Next = append(info.Next, next)
	}
	return info
}
