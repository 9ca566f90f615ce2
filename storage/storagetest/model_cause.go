package storagetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// cause is what dead jobs have in common. It is there as long as one has it.
type cause struct {
	id     int64
	lane   storage.Lane
	reason storage.Reason
	text   string
	first  time.Time // when the first job died that it has counted
}

// dying returns the dead jobs by their causes, those of each in the order of their
// deaths.
func (m *Memory) dying() map[*cause][]*job {
	out := map[*cause][]*job{}
	for _, j := range m.where(func(j *job) bool { return j.State == storage.Dead }, byEnd) {
		out[j.cause] = append(out[j.cause], j)
	}
	return out
}

// causeOf returns the cause that a death at a time counts for.
func (m *Memory) causeOf(at time.Time, lane storage.Lane, reason storage.Reason, text string) *cause {
	c := m.findCause(lane, reason, text)
	if at = at.Truncate(time.Microsecond); c.first.IsZero() || at.Before(c.first) {
		c.first = at
	}
	return c
}

// findCause returns a cause, or a new one.
func (m *Memory) findCause(lane storage.Lane, reason storage.Reason, text string) *cause {
	others := map[*cause]bool{}
	for _, j := range m.jobs {
		if j.State != storage.Dead || j.cause.lane != lane {
			continue
		}
		if j.cause.reason == reason && j.cause.text == text {
			return j.cause
		}
		if j.cause.text != storage.OtherCause {
			others[j.cause] = true
		}
	}
	if len(others) >= storage.CauseLimit && text != storage.OtherCause {
		return m.findCause(lane, reason, storage.OtherCause)
	}
	m.lastCause++
	return &cause{id: m.lastCause, lane: lane, reason: reason, text: text}
}

// Causes implements [storage.Store].
func (in *instance) Causes(ctx context.Context, lane storage.Lane, limit int) ([]storage.Cause, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer in.m.mu.Unlock()
	var out []storage.Cause
	for c, jobs := range in.m.dying() {
		last := jobs[len(jobs)-1]
		if lane.Includes(c.lane.Queue, c.lane.Kind) {
			out = append(out, storage.Cause{
				ID: c.id, Lane: c.lane, Reason: c.reason, Text: c.text, N: int64(len(jobs)),
				First: c.first, Last: last.EndedAt, Job: last.ID,
			})
		}
	}
	slices.SortFunc(out, func(a, b storage.Cause) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.ID, b.ID)) })
	return out[:min(len(out), max(limit, 0))], nil
}

// Deaths implements [storage.Store].
func (in *instance) Deaths(ctx context.Context, causes []int64, from time.Time, each time.Duration, n, most int) ([][]int, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer in.m.mu.Unlock()
	all := make([][]int, len(causes))
	for i, cause := range causes {
		out := make([]int, max(n, 0))
		for c, jobs := range in.m.dying() {
			for _, j := range jobs {
				if at := j.EndedAt.Sub(from); c.id == cause && at >= 0 && int(at/each) < n && out[at/each] < most {
					out[at/each]++
				}
			}
		}
		all[i] = out
	}
	return all, nil
}
