package errand

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/storage"
)

// Settings are what all processes obey for a queue, a kind, a lane or the whole file,
// also processes that only enqueue: settings are kept in the file. A nil field leaves
// what is set as it is; a pointer to zero takes it back. new(100) makes a pointer.
type Settings struct {
	// MaxJobs is how many jobs may wait, scheduled, ready or blocked, in a queue or in the whole
	// file. docs/limits.md says what happens when there are as many. If zero, any number.
	MaxJobs *int `json:"max_jobs,omitempty"`
	// MaxBytes is how many bytes the jobs that wait in a queue or in the whole file may
	// count for: their args and headers, and 128 bytes each. If zero, any number.
	MaxBytes *int64 `json:"max_bytes,omitempty"`
	// WhenFull says what becomes of a job that has no room below MaxJobs and MaxBytes of
	// the same queue or file. If zero, Refuse.
	WhenFull *WhenFull `json:"when_full,omitempty"`
	// MinFree is how many bytes of the file system must be free. While fewer are, jobs of
	// the queue or of the whole file are refused with a [QueueFullError] if their priority
	// is at most the MinFreePriority set for the same, whatever WhenFull is. If zero, jobs
	// come in until the disk is full.
	MinFree *int64 `json:"min_free,omitempty"`
	// MinFreePriority is from -100 to 100. If zero, jobs with a priority above 0 come in
	// when there is less than MinFree.
	MinFreePriority *int `json:"min_free_priority,omitempty"`
	// MaxDead is how many dead letters a kind in a queue, a queue or the whole file may
	// have, and WhenDeadFull what becomes of further ones there. If zero, any number, and
	// KeepDead. docs/limits.md says more.
	MaxDead      *int          `json:"max_dead,omitempty"`
	WhenDeadFull *WhenDeadFull `json:"when_dead_full,omitempty"`
	// GroupLimit is how many jobs of a group of a queue are ready or run at a time, in all
	// processes together, at most 1,000. Above 1 the jobs have no order, and one that is
	// dead or waits for its retry keeps nobody back. If zero, 1.
	GroupLimit *int `json:"group_limit,omitempty"`
	// DeadHead says whether a dead job keeps back the others of its group in a queue. If
	// zero, BlockDead.
	DeadHead *DeadHead `json:"dead_head,omitempty"`
	// Order says which ready job of a queue starts first among those of the same priority.
	// If zero, Oldest.
	Order *Order `json:"order,omitempty"`
	// Aging is how much waiting makes up for a step of priority among the ready jobs of a
	// queue, from a second to 365 days: a job that has been due for n times Aging longer
	// than another goes before it, though its priority is n lower. It is not for Newest. If
	// zero, only priority counts.
	Aging *time.Duration `json:"aging_s,omitempty"`
	// Starts is how many attempts of a queue, or of a kind in all queues, start in
	// StartsPer, at most 10,000 a second: a throttle that all processes on the file share. A
	// worker leases no more jobs than may start. It is an average; StartsBurst says how many
	// may start at once after a pause. If both a kind and its queue have Starts, a job needs
	// a token of each. Throttles of policies apply too. Jobs that [Queue.RunNow] names alone
	// start whatever Starts is. If zero, any number.
	Starts *int `json:"starts,omitempty"`
	// StartsPer is from 1 ms to 24 h, and at least 100 µs for each of Starts. If zero, 1 s.
	StartsPer *time.Duration `json:"starts_per_s,omitempty"`
	// StartsBurst is how many may start at once. If zero, a tenth of a second's worth, and
	// at least 2.
	StartsBurst *int `json:"starts_burst,omitempty"`
	// Retention is how long finished jobs are kept; if negative, they are deleted at once.
	// The setting of a kind in a queue goes before that of the kind, this before that of the
	// queue, and this before that of the whole file. If zero, Options.Retention.
	Retention *time.Duration `json:"retention_s,omitempty"`
	// StartWithin, FinishWithin and OnExpire each apply to new jobs that have none of their
	// own: see [JobOptions]. Which setting goes first is as with Retention. If zero or
	// empty, none is set.
	StartWithin  *time.Duration `json:"start_within_s,omitempty"`
	FinishWithin *time.Duration `json:"finish_within_s,omitempty"`
	OnExpire     *State         `json:"on_expire,omitempty"`
}

// MarshalJSON writes durations in seconds.
func (s Settings) MarshalJSON() ([]byte, error) { return seconds.Marshal(s) }

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Settings) UnmarshalJSON(data []byte) error { return seconds.Unmarshal(data, s) }

// LaneSettings are the settings of a queue, of a kind, of both, or, if both are empty,
// of the whole file.
type LaneSettings struct {
	Lane
	Settings
}

// MarshalJSON writes durations in seconds.
func (s LaneSettings) MarshalJSON() ([]byte, error) { return seconds.Marshal(s) }

// UnmarshalJSON reads what MarshalJSON writes.
func (s *LaneSettings) UnmarshalJSON(data []byte) error { return seconds.Unmarshal(data, s) }

// setting is one of the settings.
type setting struct {
	name  storage.Setting
	field string
	of    scope
	check func(value int64) (limit string) // "": it may be set so
	get   func(*Settings) (value int64, set bool)
	put   func(*Settings, int64)
	raw   func(*Settings) any // as the caller has it, nil: as it is stored
}

// scope says of what a setting can be.
type scope uint8

const (
	ofFile scope = 1 << iota
	ofQueue
	ofKind // in all queues
	ofLane
)

// settings are all of them.
var settings = []setting{
	whole(storage.SettingMaxJobs, "max_jobs", ofFile|ofQueue, notNegative, func(s *Settings) **int { return &s.MaxJobs }),
	whole(storage.SettingMaxBytes, "max_bytes", ofFile|ofQueue, notNegative, func(s *Settings) **int64 { return &s.MaxBytes }),
	whole(storage.SettingWhenFull, "when_full", ofFile|ofQueue, aWhenFull, func(s *Settings) **WhenFull { return &s.WhenFull }),
	whole(storage.SettingMinFree, "min_free", ofFile|ofQueue, notNegative, func(s *Settings) **int64 { return &s.MinFree }),
	whole(storage.SettingMinFreePriority, "min_free_priority", ofFile|ofQueue, aPriority, func(s *Settings) **int { return &s.MinFreePriority }),
	whole(storage.SettingMaxDead, "max_dead", ofFile|ofQueue|ofLane, notNegative, func(s *Settings) **int { return &s.MaxDead }),
	whole(storage.SettingWhenDeadFull, "when_dead_full", ofFile|ofQueue|ofLane, aWhenDeadFull, func(s *Settings) **WhenDeadFull { return &s.WhenDeadFull }),
	whole(storage.SettingGroupLimit, "group_limit", ofQueue, aGroupLimit, func(s *Settings) **int { return &s.GroupLimit }),
	whole(storage.SettingDeadHead, "dead_head", ofQueue, aDeadHead, func(s *Settings) **DeadHead { return &s.DeadHead }),
	whole(storage.SettingOrder, "order", ofQueue, anOrder, func(s *Settings) **Order { return &s.Order }),
	span(storage.SettingAging, "aging", ofQueue, anAging, func(s *Settings) **time.Duration { return &s.Aging }),
	whole(storage.SettingStarts, "starts", ofQueue|ofKind, upTo(mostStarts), func(s *Settings) **int { return &s.Starts }),
	span(storage.SettingStartsPer, "starts_per", ofQueue|ofKind, aStartsPer, func(s *Settings) **time.Duration { return &s.StartsPer }),
	whole(storage.SettingStartsBurst, "starts_burst", ofQueue|ofKind, upTo(mostStarts), func(s *Settings) **int { return &s.StartsBurst }),
	span(storage.SettingRetention, "retention", ofFile|ofQueue|ofKind|ofLane, anyNumber, func(s *Settings) **time.Duration { return &s.Retention }),
	span(storage.SettingStartWithin, "start_within", ofFile|ofQueue|ofKind|ofLane, aWindow, func(s *Settings) **time.Duration { return &s.StartWithin }),
	span(storage.SettingFinishWithin, "finish_within", ofFile|ofQueue|ofKind|ofLane, aWindow, func(s *Settings) **time.Duration { return &s.FinishWithin }),
	{
		name: storage.SettingOnExpire, field: "on_expire", of: ofFile | ofQueue | ofKind | ofLane, check: anOnExpire,
		get: func(s *Settings) (int64, bool) {
			if s.OnExpire == nil {
				return 0, false
			}
			return int64(slices.Index(onExpires, *s.OnExpire)), true
		},
		put: func(s *Settings, value int64) { s.OnExpire = new(onExpires[max(0, min(value, storage.ExpireDead))]) },
		raw: func(s *Settings) any { return string(*s.OnExpire) },
	},
}

// onExpires are the values of OnExpire as they are stored.
var onExpires = []State{0: "", storage.ExpireFinished: Expired, storage.ExpireDead: Dead}

// whole is a setting that is a whole number.
func whole[T ~int | ~int64 | ~uint8](name storage.Setting, field string, of scope, check func(int64) string, at func(*Settings) **T) setting {
	return setting{
		name: name, field: field, of: of, check: check,
		get: func(s *Settings) (int64, bool) {
			if p := *at(s); p != nil {
				return int64(*p), true
			}
			return 0, false
		},
		put: func(s *Settings, value int64) {
			v := T(value)
			if int64(v) != value { // of a machine with larger ones
				v = T(min(value, math.MaxInt32))
			}
			*at(s) = &v
		},
	}
}

// span is a setting that is a time, which is stored in microseconds, rounded away from
// zero.
func span(name storage.Setting, field string, of scope, check func(int64) string, at func(*Settings) **time.Duration) setting {
	return setting{
		name: name, field: field, of: of, check: check,
		get: func(s *Settings) (int64, bool) {
			p := *at(s)
			if p == nil {
				return 0, false
			}
			us := p.Microseconds()
			if us == 0 && *p != 0 {
				us = int64(*p / p.Abs())
			}
			return us, true
		},
		put: func(s *Settings, value int64) { *at(s) = new(time.Duration(value) * time.Microsecond) },
		raw: func(s *Settings) any { return **at(s) },
	}
}

func anOnExpire(value int64) string {
	if value < 0 {
		return "must be empty, expired or dead"
	}
	return ""
}

// aWindow checks the length of a window in microseconds.
func aWindow(us int64) string {
	if us != 0 && (us < minWindow.Microseconds() || us > maxWindow.Microseconds()) {
		return "must be zero or " + windowLimit
	}
	return ""
}

func anyNumber(int64) string { return "" }

func notNegative(value int64) string {
	if value < 0 {
		return "must not be negative"
	}
	return ""
}

// scopeOf returns the scope that a lane is of.
func scopeOf(l Lane) scope {
	switch {
	case l.Queue != "" && l.Kind != "":
		return ofLane
	case l.Queue != "":
		return ofQueue
	case l.Kind != "":
		return ofKind
	}
	return ofFile
}

// String returns what settings of a scope can be set for.
func (s scope) String() string {
	text := ""
	for i, name := range []string{"the whole file", "a queue", "a kind", "a kind in a queue"} {
		if s&(1<<i) == 0 {
			continue
		}
		if text != "" {
			text += " or "
		}
		text += name
	}
	return text
}

// settings checks the settings of a lane, and returns them as the store takes them.
// place goes before the names of their fields.
func (f *faults) settings(place string, lane Lane, s *Settings) storage.Settings {
	out := storage.Settings{}
	for i := range settings {
		of := &settings[i]
		value, set := of.get(s)
		if !set {
			continue
		}
		limit := of.check(value)
		if of.of&scopeOf(lane) == 0 {
			limit = fmt.Sprintf("must be set for %v, not for %v", of.of, scopeOf(lane))
		}
		if limit != "" {
			shown := any(value)
			if of.raw != nil {
				shown = of.raw(s)
			}
			f.field(place+of.field, shown, limit)
		}
		out[of.name] = value
	}
	if out[storage.SettingOrder] == int64(Newest) && out[storage.SettingAging] != 0 {
		f.field(place+"aging", *s.Aging, "must not be set with the order Newest")
	}
	if n := out[storage.SettingStarts]; n > 0 {
		per := time.Duration(out[storage.SettingStartsPer]) * time.Microsecond
		if n > int64(cmp.Or(per, time.Second)/minStartEvery) {
			f.field(place+"starts", n, fmt.Sprintf("must be at most one in %v", minStartEvery))
		}
	}
	return out
}

const (
	mostStarts    = 10_000 * 24 * 60 * 60
	minStartsPer  = time.Millisecond
	mostStartsPer = 24 * time.Hour
	minStartEvery = 100 * time.Microsecond
)

// upTo returns the check of a number from 0 on.
func upTo(most int64) func(int64) string {
	return func(value int64) string {
		if value < 0 || value > most {
			return fmt.Sprintf("must be between 0 and %d", most)
		}
		return ""
	}
}

func aStartsPer(us int64) string {
	if d := time.Duration(us) * time.Microsecond; us != 0 && (d < minStartsPer || d > mostStartsPer) {
		return fmt.Sprintf("must be zero or between %v and %v", minStartsPer, mostStartsPer)
	}
	return ""
}

// clone returns a copy that shares nothing with s.
func (s *Settings) clone() (c Settings) {
	for i := range settings {
		if value, set := settings[i].get(s); set {
			settings[i].put(&c, value)
		}
	}
	return c
}

// Configure sets the settings of a queue, of a kind in all queues, of a kind in a queue,
// or, if lane is zero, of the whole file. Settings that s leaves nil stay as they are.
// All processes obey them from then on. A limit below what is there applies to what
// comes.
//
// Configure returns a [FieldError] for each fault of lane and s, joined, and writes
// nothing then.
func (q *Queue) Configure(ctx context.Context, lane Lane, s Settings) error {
	f := checkLane(lane)
	if lane.Queue != "" {
		f.listed("lane.queue", lane.Queue, &q.opts)
	}
	set := f.settings("", lane, &s)
	if len(set) == 0 {
		f.field("settings", nil, "must set at least one")
	}
	if err := f.err(); err != nil {
		return err
	}
	if err := q.store.Configure(ctx, lane, set); err != nil {
		return err
	}
	return engine.Regroup(ctx, q.store, lane.Queue, set)
}

// checkLane checks the names of a lane, each of which may be empty.
func checkLane(lane Lane) (f faults) {
	if lane.Queue != "" {
		f.add(checkName("lane.queue", lane.Queue))
	}
	if lane.Kind != "" {
		f.add(checkName("lane.kind", lane.Kind))
	}
	return f
}

// Settings returns all settings, sorted by queue and kind: first those of the whole
// file, then those of kinds in all queues. Fields that are not set are nil.
func (q *Queue) Settings(ctx context.Context) ([]LaneSettings, error) {
	all, err := q.store.Settings(ctx)
	if err != nil {
		return nil, err
	}
	var out []LaneSettings
	for _, l := range all {
		s := LaneSettings{Lane: l.Lane}
		known := false
		for i := range settings {
			if value, ok := l.Settings[settings[i].name]; ok {
				settings[i].put(&s.Settings, value)
				known = true
			}
		}
		if known {
			out = append(out, s)
		}
	}
	return out, nil
}

// lasting returns the settings that a worker writes when it runs.
func (w *Worker) lasting(queues []string) (all []storage.LaneSettings) {
	add := func(lane Lane, s *Settings) {
		var f faults // which were found before
		if set := f.settings("", lane, s); len(set) > 0 {
			all = append(all, storage.LaneSettings{Lane: lane, Settings: set})
		}
	}
	add(Lane{}, &w.queue.opts.Settings)
	for _, name := range queues {
		o := w.queue.opts.Queues[name]
		add(Lane{Queue: name}, &o.Settings)
	}
	return all
}

// mostAging bounds Aging, so that 200 steps of priority are a time.
const mostAging = 365 * 24 * time.Hour

// Order says which ready job of a queue starts first among those of the same priority:
// see [Settings].
type Order = storage.Order

const (
	// Oldest starts first what has been due for longest.
	Oldest = storage.Oldest
	// Newest starts first what became due last: for data of which the latest matters most.
	Newest = storage.Newest
	// Turns starts jobs as Oldest does, but a job that waited in its group is due only from
	// when the group lets it run: it goes behind the jobs that are ready then. So a group
	// with many jobs does not go before one with few that came later.
	Turns = storage.Turns
)

func anOrder(value int64) string {
	if value < 0 || value > int64(Turns) {
		return fmt.Sprintf("must be Oldest (%d), Newest (%d) or Turns (%d)", Oldest, Newest, Turns)
	}
	return ""
}

// anAging checks an Aging in microseconds.
func anAging(value int64) string {
	if value != 0 && (value < time.Second.Microseconds() || value > mostAging.Microseconds()) {
		return fmt.Sprintf("must be 0, or from %v to %v", time.Second, mostAging)
	}
	return ""
}
