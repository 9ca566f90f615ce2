package storagetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

var conflictFaults = []fault{
	{"conflicts are not looked at", "conflict_replaces", adding(func(_ *Memory, n *storage.NewJob) { n.Conflict = nil })},
	{"what is replaced keeps its priority", "conflict_place", adding(func(m *Memory, n *storage.NewJob) {
		if j := m.find(m.unique[n.Unique]); j != nil && n.Conflict != nil {
			n.Priority = j.Priority
		}
	})},
	{"what is replaced goes to the queue of the new job", "conflict_replaces", adding(func(m *Memory, n *storage.NewJob) {
		if j := m.find(m.unique[n.Unique]); j != nil && n.Conflict.Replaces() {
			j.Queue = n.Queue
		}
	})},
	{"what is replaced by a job of its call keeps its args", "conflict_one_call", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			for i := range out {
				if out[i].Replaced && i > 0 {
					in.m.locked(func() { in.m.find(out[i].ID).Args = jobs[0].Args })
				}
			}
			return out, err
		}
		return h
	}},
	{"a follower is made of nothing", "conflict_one_call", after(func(_ *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for _, then := range res.Then {
			for i := range then {
				if then[i].Unmerged != nil {
					then[i].Unmerged = &storage.Unmerged{Found: []byte{}}
				}
			}
		}
	})},
	{"what is leased is replaced", "conflict_behind", adding(func(m *Memory, n *storage.NewJob) {
		if j := m.find(m.unique[n.Unique]); j != nil && n.Conflict.Replaces() && j.State == storage.Running {
			j.Args = n.Args
		}
	})},
	{"what is behind starts beside the holder", "conflict_behind", before(func(m *Memory, _ *storage.Exchange) {
		for _, id := range m.behind {
			m.find(id).State = storage.Ready
		}
	})},
	{"what is behind is not let in", "conflict_behind", after(func(m *Memory, _ time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && !j.live() && !m.unique[j.Unique].IsZero() {
				m.find(m.unique[j.Unique]).State = storage.Blocked
			}
		}
	})},
	{"what is put back is passed", "conflict_behind", after(func(m *Memory, now time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && j.live() && !m.behind[j.Unique].IsZero() {
				m.releaseKey(now, j)
			}
		}
	})},
	{"a window does not put off what is behind", "conflict_behind_ends", adding(func(m *Memory, n *storage.NewJob) {
		if n.Conflict.Replaces() {
			clear(m.windows)
		}
	})},
	{"after what has begun is before", "conflict_after", conflicting(func(c *storage.Conflict) {
		if c.Mode == storage.After {
			c.Mode = storage.Replace
		}
	})},
	{"nothing is fresh", "conflict_fresh", conflicting(func(c *storage.Conflict) { c.Fresh = false })},
	{"all is fresh", "conflict_fresh", conflicting(func(c *storage.Conflict) { c.Fresh = true })},
	{"put off without end", "conflict_debounce", conflicting(func(c *storage.Conflict) { c.MaxWait = 0 })},
	{"not put off", "conflict_debounce", conflicting(func(c *storage.Conflict) {
		if c.Mode == storage.Debounce {
			c.MaxWait = c.Quiet
		}
	})},
	{"a job that must not be there is found", "conflict_fail", conflicting(func(c *storage.Conflict) {
		if c.Mode == storage.Fail {
			c.Mode = storage.Keep
		}
	})},
	{"a call that is refused begins a time anew", "conflict_fail", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			if errors.Is(err, storage.ErrDuplicate) {
				in.m.locked(func() { in.m.renew(now, jobs[0].Unique) })
			}
			return out, err
		}
		return h
	}},
	{"replaced whatever it was made of", "conflict_merge", conflicting(func(c *storage.Conflict) { c.Merge = nil })},
	{"what the args are to be made of is changed in the request", "conflict_merge", merging(func(old *storage.Merge, e *storage.Enqueued) { old.Old = e.Unmerged.Found })},
	{"not said that the args are to be made anew", "conflict_merge", merging(func(_ *storage.Merge, e *storage.Enqueued) { e.Unmerged = nil })},
	{"not said of what the args are to be made", "conflict_merge_large", merging(func(_ *storage.Merge, e *storage.Enqueued) { e.Unmerged.Found = nil })},
	{"a time ends with its job", "conflict_for", adding(func(_ *Memory, n *storage.NewJob) { n.UniqueFor = 0 })},
	{"a time lasts for ever", "conflict_for", adding(func(_ *Memory, n *storage.NewJob) {
		if n.UniqueFor > 0 {
			n.UniqueFor *= 1000
		}
	})},
	{"a time is not begun anew", "conflict_for_back", adding(func(m *Memory, _ *storage.NewJob) {
		for key, w := range m.windows {
			m.windows[key] = window{until: w.until}
		}
	})},
	{"due within the time of the one before", "conflict_for_due", adding(func(m *Memory, n *storage.NewJob) {
		if j := m.find(m.unique[n.Unique]); n.Conflict.Replaces() && (j == nil || !j.live()) {
			delete(m.unique, n.Unique)
			delete(m.windows, n.Unique)
		}
	})},
	{"times that are over are not forgotten", "conflict_forgets", func(in *instance) storage.Store { return &remembering{sound(in)} }},
	{"the time of what was behind is not begun anew", "conflict_for_follower_back", after(func(m *Memory, now time.Time, _ storage.Exchange, _ *storage.ExchangeResult) {
		for key, id := range m.unique {
			if j := m.find(id); j != nil && j.CreatedAt.After(now) {
				m.windows[key] = window{j.CreatedAt, j.keyUntil}
			}
		}
	})},
	{"the time of what is behind ends", "conflict_for_follower", func(in *instance) storage.Store { return &hasty{sound(in)} }},
}

// remembering forgets no window.
type remembering struct{ *hooks }

func (s *remembering) PurgeFinished(ctx context.Context, now time.Time) (int, time.Time, error) {
	var windows map[string]window
	s.m.locked(func() { windows, s.m.windows = s.m.windows, map[string]window{} })
	defer s.m.locked(func() { s.m.windows = windows })
	return s.hooks.PurgeFinished(ctx, now)
}

// hasty goes by the times of jobs that wait behind the holders of their keys too.
type hasty struct{ *hooks }

func (s *hasty) PurgeFinished(ctx context.Context, now time.Time) (n int, next time.Time, err error) {
	n, next, err = s.hooks.PurgeFinished(ctx, now)
	s.m.locked(func() {
		for key, id := range s.m.behind {
			if until := s.m.find(id).keyUntil; !until.IsZero() {
				next = earlier(until, next)
				if !until.After(now) {
					delete(s.m.windows, key)
				}
			}
		}
	})
	return n, next, err
}

// adding has f change each job of a call, or the database, before it is enqueued.
func adding(f func(m *Memory, n *storage.NewJob)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			jobs = slices.Clone(jobs)
			in.m.locked(func() {
				for i := range jobs {
					f(in.m, &jobs[i])
				}
			})
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}
}

// merging has f change a Merge, or the answer to it, if the args are to be made anew.
func merging(f func(*storage.Merge, *storage.Enqueued)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			for i := range out {
				if out[i].Unmerged != nil {
					f(jobs[i].Conflict.Merge, &out[i])
				}
			}
			return out, err
		}
		return h
	}
}

// conflicting has f change each Conflict of a call.
func conflicting(f func(c *storage.Conflict)) func(in *instance) storage.Store {
	return adding(func(_ *Memory, n *storage.NewJob) {
		if n.Conflict != nil {
			c := *n.Conflict
			f(&c)
			n.Conflict = &c
		}
	})
}
