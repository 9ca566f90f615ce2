package storagetest

import (
	"cmp"
	"context"
	"slices"

	"github.com/errandq/errand/storage"
)

// cause is what dead jobs have in common. It is there as long as one has it.
type cause struct {
	id     int64
	lane   storage.Lane
	reason storage.Reason
	text   string
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

// causeOf returns the cause that a death counts for.
func (m *Memory) causeOf(lane storage.Lane, reason storage.Reason, text string) *cause {
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
		return m.causeOf(lane, reason, storage.OtherCause)
	}
	m.lastCause++
	return &cause{m.lastCause, lane, reason, text}
}

// Causes implements [storage.Store].
func (in *instance) Causes(ctx context.Context, lane storage.Lane, limit int) ([]storage.Cause, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer in.m.mu.Unlock()
	var out []storage.Cause
	for c, jobs := range in.m.dying() {
		first, last := jobs[0], jobs[len(jobs)-1]
		if lane.Includes(c.lane.Queue, c.lane.Kind) {
			out = append(out, storage.Cause{
				ID: c.id, Lane: c.lane, Reason: c.reason, Text: c.text, N: int64(len(jobs)),
				First: first.EndedAt, Last: last.EndedAt, Job: last.ID,
			})
		}
	}
	slices.SortFunc(out, func(a, b storage.Cause) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.ID, b.ID)) })
	return out[:min(len(out), max(limit, 0))], nil
}
