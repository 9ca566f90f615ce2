package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// OpenNarrow returns another instance on the database whose exchanges make due, and end late,
// the jobs of the lanes that they lease from. It is a [storage.Promoter] for the others.
func (m *Memory) OpenNarrow() storage.Store {
	in := m.Open().(*instance)
	in.narrow = true
	return narrow{in}
}

// narrow is an instance that is a [storage.Promoter].
type narrow struct{ *instance }

var _ storage.Promoter = narrow{}

// all matches all jobs.
func all(*job) bool { return true }

// reach returns which jobs an exchange with these wants makes due and ends.
func (in *instance) reach(wants []storage.Want) func(*job) bool {
	if !in.narrow {
		return all
	}
	return func(j *job) bool { return slices.ContainsFunc(wants, j.in) }
}

// nextChange returns when the first job that matches is due or too late, zero if none will be.
func (m *Memory) nextChange(match func(*job) bool) time.Time {
	next := m.nextEnd(match)
	for j := range m.live() {
		if j.State == storage.Scheduled && match(j) {
			next = earlier(next, j.DueAt)
		}
	}
	return next
}

// Promote implements [storage.Promoter].
func (n narrow) Promote(ctx context.Context, now time.Time, p storage.Promotion) (storage.Promoted, error) {
	in, m := n.instance, n.m
	if err := m.beginWrite(ctx, in); err != nil {
		return storage.Promoted{}, err
	}
	given := now
	now = m.wrote(now)
	m.regroups.turn, m.graves.died = now, nil
	if !p.Doubtful {
		m.settleWindows(given, all)
	}
	m.promote(now, all)
	last := m.lastKey
	var out storage.Promoted
	out.Expired = m.sweep(now, &storage.Exchange{Retention: p.Retention, Follow: p.Follow}, all)
	var event *storage.Event
	for key := last + 1; key <= m.lastKey; key++ { // what follows jobs that have died
		event = available(event, m.jobs[key])
	}
	if out.Next = m.nextChange(all); !out.Next.IsZero() {
		out.Next = later(out.Next, now)
	}
	m.regroups.turn = time.Time{}
	evicted := m.evictDead()
	m.mu.Unlock()
	in.tellEvicted(given, evicted)
	m.emit(in, now, event)
	return out, nil
}
