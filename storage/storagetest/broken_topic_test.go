package storagetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// topical is an instance of which what is about messages and entries has a fault.
type topical struct {
	*hooks
	putEntries  func(context.Context, time.Time, []storage.Entry) (int64, error)
	entries     func(ctx context.Context, class, family, after string, limit int) ([]storage.Entry, int64, error)
	publish     func(context.Context, time.Time, []storage.Publication) ([]storage.PublishResult, error)
	message     func(context.Context, string) (storage.Message, error)
	messageWith func(context.Context, string, ...storage.EntryName) (storage.Message, []int64, error)
	messages    func(ctx context.Context, topic string, since time.Time, after string, limit int) ([]storage.Message, string, error)
	purge       func(context.Context, time.Time) (int, time.Time, error)
}

func (b *topical) PutEntries(ctx context.Context, now time.Time, all []storage.Entry) (int64, error) {
	return b.putEntries(ctx, now, all)
}

func (b *topical) Entries(ctx context.Context, class, family, after string, limit int) ([]storage.Entry, int64, error) {
	return b.entries(ctx, class, family, after, limit)
}

func (b *topical) PublishMessages(ctx context.Context, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
	return b.publish(ctx, now, all)
}

func (b *topical) Message(ctx context.Context, id string) (storage.Message, error) {
	return b.message(ctx, id)
}

func (b *topical) MessageWith(ctx context.Context, id string, entries ...storage.EntryName) (storage.Message, []int64, error) {
	return b.messageWith(ctx, id, entries...)
}

func (b *topical) Messages(ctx context.Context, topic string, since time.Time, after string, limit int) ([]storage.Message, string, error) {
	return b.messages(ctx, topic, since, after, limit)
}

func (b *topical) PurgeFinished(ctx context.Context, now time.Time) (int, time.Time, error) {
	return b.purge(ctx, now)
}

func topicFault(f func(in *instance, b *topical)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		b := &topical{hooks: sound(in), putEntries: in.PutEntries, entries: in.Entries, publish: in.PublishMessages,
			message: in.Message, messageWith: in.MessageWith, messages: in.Messages, purge: in.PurgeFinished}
		f(in, b)
		return b
	}
}

// writing has f change the entries before they are written, and the database after.
func writing(before func(m *Memory, all []storage.Entry), after func(m *Memory, all []storage.Entry)) func(in *instance) storage.Store {
	return topicFault(func(in *instance, b *topical) {
		b.putEntries = func(ctx context.Context, now time.Time, all []storage.Entry) (int64, error) {
			all = slices.Clone(all)
			in.m.locked(func() { before(in.m, all) })
			r, err := in.PutEntries(ctx, now, all)
			if err == nil {
				in.m.locked(func() { after(in.m, all) })
			}
			return r, err
		}
	})
}

func noEntries(*Memory, []storage.Entry) {}

// publishing has f change publications before they are written, and the database and the answers after.
func publishing(before func(m *Memory, all []storage.Publication), after func(m *Memory, all []storage.Publication, out []storage.PublishResult)) func(in *instance) storage.Store {
	return topicFault(func(in *instance, b *topical) {
		b.publish = func(ctx context.Context, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
			all = slices.Clone(all)
			in.m.locked(func() { before(in.m, all) })
			out, err := in.PublishMessages(ctx, now, all)
			if err == nil {
				in.m.locked(func() { after(in.m, all, out) })
			}
			return out, err
		}
	})
}

func asPublished(*Memory, []storage.Publication) {}

func asAnswered(*Memory, []storage.Publication, []storage.PublishResult) {}

// untagged takes the tags of messages from the jobs that keep says nothing of, so that they do not keep their message.
func untagged(in *instance, of func(j *job) bool) {
	in.m.locked(func() {
		for _, j := range in.m.jobs {
			if of(j) {
				j.Tags = nil
			}
		}
	})
}

var topicFaults = []fault{
	{"a new entry takes the place of one", "entry_stale", writing(func(m *Memory, all []storage.Entry) {
		for i := range all {
			if all[i].Revision == 0 {
				all[i].Revision = m.topics.entries[[2]string{all[i].Class, all[i].Name}].Revision
			}
		}
	}, noEntries)},
	{"entries are written whatever their revision", "entry_stale", writing(func(m *Memory, all []storage.Entry) {
		for i := range all {
			all[i].Revision = m.topics.entries[[2]string{all[i].Class, all[i].Name}].Revision
		}
	}, noEntries)},
	{"what is before a stale entry is written", "entry_stale", topicFault(func(in *instance, b *topical) {
		b.putEntries = func(ctx context.Context, now time.Time, all []storage.Entry) (r int64, err error) {
			for i := range all {
				if r, err = in.PutEntries(ctx, now, all[i:i+1]); err != nil {
					return 0, err
				}
			}
			return r, nil
		}
	})},
	{"an entry is read before it is written over", "entry_race", topicFault(func(in *instance, b *topical) {
		b.putEntries = func(ctx context.Context, now time.Time, all []storage.Entry) (int64, error) {
			all = slices.Clone(all)
			for i := range all {
				e, err := in.Entry(ctx, all[i].Class, all[i].Name)
				if err == nil && e.Revision < all[i].Revision || all[i].Revision == 0 && err == nil {
					return 0, storage.ErrStale
				}
				all[i].Revision = e.Revision
			}
			return in.PutEntries(ctx, now, all)
		}
	})},
	{"a deletion leaves the family where it was", "entry_revision", func(in *instance) storage.Store {
		var was map[string]int64
		return writing(func(m *Memory, _ []storage.Entry) { was = m.topics.clone().families }, func(m *Memory, all []storage.Entry) {
			for _, e := range all {
				if e.Delete {
					m.topics.families[e.Family] = was[e.Family]
				}
			}
		})(in)
	}},
	{"a revision begins anew with an entry", "entry_revision", writing(noEntries, func(m *Memory, all []storage.Entry) {
		if all[0].Delete {
			m.lastToken = 0
		}
	})},
	{"an entry changes its family", "entry_keeps", writing(noEntries, func(m *Memory, all []storage.Entry) {
		for _, e := range all {
			key := [2]string{e.Class, e.Name}
			if is, ok := m.topics.entries[key]; ok {
				is.Family = e.Family
				m.topics.entries[key] = is
			}
		}
	})},
	{"an entry is as old as its last write", "entry_keeps", writing(noEntries, func(m *Memory, all []storage.Entry) {
		for key, e := range m.topics.entries {
			e.CreatedAt = e.UpdatedAt
			m.topics.entries[key] = e
		}
	})},
	{"the family of a list does not matter", "entry_list", topicFault(func(in *instance, b *topical) {
		b.entries = func(ctx context.Context, class, family, after string, limit int) ([]storage.Entry, int64, error) {
			_, r, err := in.Entries(ctx, class, family, after, limit)
			all, _, _ := in.Entries(ctx, class, "", after, limit)
			return all, r, err
		}
	})},
	{"a list begins with after", "entry_list", topicFault(func(in *instance, b *topical) {
		b.entries = func(ctx context.Context, class, family, after string, limit int) ([]storage.Entry, int64, error) {
			all, r, err := in.Entries(ctx, class, family, "", 1000)
			all = slices.DeleteFunc(all, func(e storage.Entry) bool { return e.Name < after })
			return all[:min(limit, len(all))], r, err
		}
	})},

	{"jobs get no tag", "message_publish", publishing(asPublished, func(m *Memory, all []storage.Publication, out []storage.PublishResult) {
		for _, r := range out {
			for _, e := range r.Jobs {
				m.jobs[e.ID.Key()].Tags = slices.DeleteFunc(m.jobs[e.ID.Key()].Tags, func(tag string) bool { return tag == storage.MessageTag(r.ID) })
			}
		}
	})},
	{"jobs lose their own tags", "message_publish", publishing(asPublished, func(m *Memory, all []storage.Publication, out []storage.PublishResult) {
		for _, r := range out {
			for _, e := range r.Jobs {
				m.jobs[e.ID.Key()].Tags = []string{storage.MessageTag(r.ID)}
			}
		}
	})},
	{"attributes are lost", "message_publish", publishing(func(_ *Memory, all []storage.Publication) {
		for i := range all {
			all[i].Message.Attributes = nil
		}
	}, asAnswered)},
	{"a body is that of the caller", "message_publish", topicFault(func(in *instance, b *topical) {
		b.message = func(_ context.Context, id string) (storage.Message, error) {
			in.m.mu.Lock()
			defer in.m.mu.Unlock()
			if s := in.m.message(id); s != nil {
				return s.Message, nil
			}
			return storage.Message{}, storage.ErrNotFound
		}
	})},
	{"a duplicate brings its jobs", "message_duplicate", publishing(asPublished, func(m *Memory, all []storage.Publication, out []storage.PublishResult) {
		for i, r := range out {
			if r.Duplicate {
				m.enqueue(m.mark, all[i].Jobs[0])
			}
		}
	})},
	{"a duplicate by its dedup has its own ID", "message_duplicate", publishing(asPublished, func(_ *Memory, all []storage.Publication, out []storage.PublishResult) {
		for i := range out {
			out[i].ID = all[i].Message.ID
		}
	})},
	{"a dedup holds over topics", "message_duplicate", publishing(func(m *Memory, all []storage.Publication) {
		for i := range all {
			for _, s := range m.topics.messages {
				if s.dedup != "" && s.dedup == all[i].Dedup {
					all[i].Message.Topic = s.Topic
				}
			}
		}
	}, asAnswered)},
	{"an ID is that of all topics", "message_other_topic", publishing(func(m *Memory, all []storage.Publication) {
		for i := range all {
			if s := m.message(all[i].Message.ID); s != nil && !all[i].Existing {
				all[i].Message.Topic = s.Topic
			}
		}
	}, asAnswered)},
	{"a dedup holds for ever", "message_duplicate", publishing(asPublished, func(m *Memory, _ []storage.Publication, _ []storage.PublishResult) {
		for i := range m.topics.messages {
			if s := &m.topics.messages[i]; s.dedup != "" {
				s.dedupUntil = s.PublishedAt.Add(100 * time.Hour)
			}
		}
	})},
	{"a message takes the place of one", "message_duplicate", publishing(func(m *Memory, all []storage.Publication) {
		for _, p := range all {
			if !p.Existing {
				m.topics.messages = slices.DeleteFunc(m.topics.messages, func(s message) bool { return s.ID == p.Message.ID })
			}
		}
	}, asAnswered)},
	{"only live jobs keep a message", "message_goes", topicFault(func(in *instance, b *topical) {
		b.message = func(ctx context.Context, id string) (storage.Message, error) {
			untagged(in, func(j *job) bool { return !j.live() })
			return in.Message(ctx, id)
		}
	})},
	{"a dead job keeps no message", "message_goes", topicFault(func(in *instance, b *topical) {
		b.message = func(ctx context.Context, id string) (storage.Message, error) {
			untagged(in, func(j *job) bool { return j.State == storage.Dead })
			return in.Message(ctx, id)
		}
	})},
	{"a finished job keeps no message", "message_goes", topicFault(func(in *instance, b *topical) {
		b.message = func(ctx context.Context, id string) (storage.Message, error) {
			untagged(in, (*job).finished)
			return in.Message(ctx, id)
		}
	})},
	{"a message stays without jobs", "message_goes", publishing(asPublished, func(m *Memory, all []storage.Publication, _ []storage.PublishResult) {
		for i := range m.topics.messages {
			if s := &m.topics.messages[i]; s.KeepUntil.IsZero() {
				s.KeepUntil = m.mark.Add(1000 * time.Hour)
			}
		}
	})},
	{"a message is not kept", "message_keep", publishing(func(_ *Memory, all []storage.Publication) {
		for i := range all {
			all[i].Message.KeepUntil = time.Time{}
		}
	}, asAnswered)},
	{"messages are never purged", "message_keep", topicFault(func(in *instance, b *topical) {
		b.purge = func(ctx context.Context, now time.Time) (int, time.Time, error) {
			var was topics
			in.m.locked(func() { was = in.m.topics.clone() })
			n, next, err := in.PurgeFinished(ctx, now)
			in.m.locked(func() { in.m.topics = was })
			return n, next, err
		}
	})},
	{"a publication purges no messages", "message_keep", topicFault(func(in *instance, b *topical) {
		b.publish = func(ctx context.Context, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
			var over []message
			in.m.locked(func() {
				for _, s := range in.m.topics.messages {
					if in.m.over(&s, now) {
						over = append(over, s)
					}
				}
			})
			out, err := in.PublishMessages(ctx, now, all)
			in.m.locked(func() {
				for _, s := range over {
					if in.m.message(s.ID) == nil {
						in.m.topics.messages = append(in.m.topics.messages, s)
					}
				}
			})
			return out, err
		}
	})},
	{"nobody says when to purge messages", "message_keep", topicFault(func(in *instance, b *topical) {
		b.purge = func(ctx context.Context, now time.Time) (int, time.Time, error) {
			n, _, err := in.PurgeFinished(ctx, now)
			return n, time.Time{}, err
		}
	})},
	{"a message whose time is over is there", "message_keep", publishing(func(m *Memory, _ []storage.Publication) {
		for i := range m.topics.messages {
			if s := &m.topics.messages[i]; !s.KeepUntil.IsZero() {
				s.KeepUntil = s.KeepUntil.Add(time.Minute)
			}
		}
	}, asAnswered)},
	{"a message whose time is over is there for its own call", "message_keep", publishing(func(_ *Memory, all []storage.Publication) {
		for i := range all {
			if m := &all[i].Message; !m.KeepUntil.IsZero() {
				m.KeepUntil = m.KeepUntil.Add(time.Minute)
			}
		}
	}, func(m *Memory, all []storage.Publication, _ []storage.PublishResult) {
		for _, p := range all {
			if s := m.message(p.Message.ID); s != nil && !p.Message.KeepUntil.IsZero() {
				s.KeepUntil = p.Message.KeepUntil.Add(-time.Minute)
			}
		}
	})},
	{"a dedup keeps no message", "message_dedup_keeps", publishing(asPublished, func(m *Memory, all []storage.Publication, _ []storage.PublishResult) {
		for _, p := range all {
			if s := m.message(p.Message.ID); s != nil {
				s.KeepUntil = p.Message.KeepUntil
			}
		}
	})},
	{"a step is taken from anywhere", "message_existing", publishing(func(m *Memory, all []storage.Publication) {
		for i := range all {
			if s := m.message(all[i].Message.ID); s != nil && all[i].Existing && all[i].From != all[i].To && len(all) == 1 {
				all[i].From = s.Cursor
			}
		}
	}, asAnswered)},
	{"a message that must be there is made", "message_existing", publishing(func(m *Memory, all []storage.Publication) {
		for i := range all {
			all[i].Existing = all[i].Existing && m.message(all[i].Message.ID) != nil
		}
	}, asAnswered)},
	{"what must be there may change", "message_existing", publishing(asPublished, func(m *Memory, all []storage.Publication, _ []storage.PublishResult) {
		for _, p := range all {
			if s := m.message(p.Message.ID); s != nil && p.Existing {
				s.Body = p.Message.Body
			}
		}
	})},
	{"what is before a refused publication is written", "message_existing", topicFault(func(in *instance, b *topical) {
		b.publish = func(ctx context.Context, now time.Time, all []storage.Publication) (out []storage.PublishResult, err error) {
			for i := range all {
				r, err := in.PublishMessages(ctx, now, all[i:i+1])
				if err != nil {
					return nil, err
				}
				out = append(out, r...)
			}
			return out, nil
		}
	})},
	{"a family may be at any revision", "message_family", publishing(func(_ *Memory, all []storage.Publication) {
		for i := range all {
			all[i].Family = ""
		}
	}, asAnswered)},
	{"what Enqueue refuses is left out", "message_refused", topicFault(func(in *instance, b *topical) {
		b.publish = func(ctx context.Context, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
			out, err := in.PublishMessages(ctx, now, all)
			if !errors.Is(err, storage.ErrDuplicate) {
				return out, err
			}
			all = slices.Clone(all)
			for i := range all {
				all[i].Jobs = nil
			}
			return in.PublishMessages(ctx, now, all)
		}
	})},
	{"entries beside a message are in another order", "message_with", topicFault(func(in *instance, b *topical) {
		b.messageWith = func(ctx context.Context, id string, entries ...storage.EntryName) (storage.Message, []int64, error) {
			m, revisions, err := in.MessageWith(ctx, id, entries...)
			slices.Sort(revisions)
			return m, revisions, err
		}
	})},
	{"what is not there has a revision", "message_with", topicFault(func(in *instance, b *topical) {
		b.messageWith = func(ctx context.Context, id string, entries ...storage.EntryName) (storage.Message, []int64, error) {
			m, revisions, err := in.MessageWith(ctx, id, entries...)
			for i := range revisions {
				revisions[i] = max(revisions[i], 1)
			}
			return m, revisions, err
		}
	})},
	{"a list has bodies", "message_list", topicFault(func(in *instance, b *topical) {
		b.messages = func(ctx context.Context, topic string, since time.Time, after string, limit int) ([]storage.Message, string, error) {
			all, next, err := in.Messages(ctx, topic, since, after, limit)
			for i := range all {
				all[i].Body = []byte{}
			}
			return all, next, err
		}
	})},
	{"a list has what was published before", "message_list", topicFault(func(in *instance, b *topical) {
		b.messages = func(ctx context.Context, topic string, since time.Time, after string, limit int) ([]storage.Message, string, error) {
			return in.Messages(ctx, topic, time.Time{}, after, limit)
		}
	})},
	{"the last page has a next", "message_list", topicFault(func(in *instance, b *topical) {
		b.messages = func(ctx context.Context, topic string, since time.Time, after string, limit int) ([]storage.Message, string, error) {
			all, next, err := in.Messages(ctx, topic, since, after, limit)
			if next == "" && len(all) > 0 && len(all) < limit {
				next = "3"
			}
			return all, next, err
		}
	})},
	{"a publication hands nothing over", "message_handoff", topicFault(func(in *instance, b *topical) {
		b.publish = func(ctx context.Context, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
			offers := in.offers
			in.offers = nil
			defer func() { in.offers = offers }()
			return in.PublishMessages(ctx, now, all)
		}
	})},
	{"a closed store has messages", "topics_closed", topicFault(func(in *instance, b *topical) {
		b.message = func(context.Context, string) (storage.Message, error) { return storage.Message{}, storage.ErrNotFound }
	})},
}
