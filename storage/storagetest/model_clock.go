package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// wrote notes that a write was given now, and returns it in whole microseconds.
func (m *Memory) wrote(now time.Time) time.Time {
	now = floor(now)
	if now.After(m.mark) {
		m.mark = now
	}
	m.sample(now)
	return now
}

// Server is a [Memory] with a clock of its own.
type Server struct{ *Memory }

var _ Setter = Server{}

// NewServer returns an empty database with a clock of its own.
func NewServer() Server { return Server{NewMemory()} }

// Open returns another instance, as [Memory.Open] does. It is a [storage.Clocked].
func (s Server) Open() storage.Store { return &clocked{s.Memory.Open().(*instance)} }

// SetAhead implements [Setter].
func (m *Memory) SetAhead(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead = by
}

// clocked is an instance whose answers come with the time.
type clocked struct{ *instance }

// StoreTime implements [storage.Clocked].
func (c *clocked) StoreTime() (now time.Time, known bool) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.shown.Add(time.Since(c.heard)), !c.heard.IsZero()
}

// Clock implements [storage.Timekeeper].
func (in *instance) Clock(ctx context.Context) (latest time.Time, shifting bool, err error) {
	if err := in.m.begin(ctx, in); err != nil {
		return time.Time{}, false, err
	}
	defer in.m.mu.Unlock()
	return in.m.mark, in.m.shifting, nil
}

// StepClock implements [storage.Timekeeper].
func (in *instance) StepClock(ctx context.Context, now time.Time, after int64) (next int64, err error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return 0, err
	}
	now = floor(now)
	if m.mark.After(now) {
		m.mark = now
	}
	step := m.where(func(j *job) bool { return j.Key > after }, byKey)
	if len(step) > bulkStep {
		step = step[:bulkStep]
		next = step[bulkStep-1].Key
	}
	m.shifting = next != 0
	m.shiftWindows(now)
	m.topics.shift(now)
	if after == 0 {
		m.samples.all = slices.DeleteFunc(m.samples.all, func(s storage.Sample) bool { return s.At.After(now) })
		m.sample(now)
		m.samples.keep()
	}
	for c := range m.dying() {
		c.first = noLater(c.first, now)
	}
	for _, l := range m.lasts {
		l.succeeded, l.failed = noLater(l.succeeded, now), noLater(l.failed, now)
	}
	var event *storage.Event
	for _, j := range step {
		if j.shift(now) {
			event = available(event, j)
		}
	}
	var holds []storage.Lane
	for _, h := range m.holds {
		if h.shift(now) {
			holds = append(holds, h.Lane)
			event = &storage.Event{Holds: holds}
		}
	}
	m.mu.Unlock()
	m.emit(in, now, event)
	return next, nil
}

// shift counts anew what was counted from a time after now. It reports whether j
// waits for another due time than before.
func (j *job) shift(now time.Time) bool {
	if w := &j.windows; !w.dated && w.from.After(now) {
		w.from = now
	}
	switch {
	case (j.State == storage.Scheduled || j.State == storage.Blocked && !j.due) && j.since.After(now):
		j.DueAt, j.since = now.Add(j.DueAt.Sub(j.since)), now
		return true
	case (j.State == storage.Ready || j.State == storage.Blocked && j.due) && j.DueAt.After(now):
		j.DueAt = now
	case j.State == storage.Dead:
		j.EndedAt = noLater(j.EndedAt, now)
	case j.finished() && j.EndedAt.After(now):
		j.keepUntil, j.EndedAt = now.Add(j.keepUntil.Sub(j.EndedAt)), now
	}
	return false
}

func noLater(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}
