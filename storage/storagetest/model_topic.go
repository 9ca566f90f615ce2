package storagetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// topics are the entries and messages of a Memory.
type topics struct {
	entries  map[[2]string]storage.Entry // by class and name
	families map[string]int64
	messages []message // in the order of their publication
}

// message is one that is stored.
type message struct {
	storage.Message
	n          int64 // rises with each
	dedup      string
	dedupUntil time.Time
}

func (t *topics) clone() topics {
	return topics{maps.Clone(t.entries), maps.Clone(t.families), slices.Clone(t.messages)}
}

// PutEntries implements [storage.Topics].
func (in *instance) PutEntries(ctx context.Context, now time.Time, entries []storage.Entry) (int64, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	return m.putEntries(ctx, now, entries)
}

// PutEntriesTx implements [storage.TxEnqueuer].
func (in *instance) PutEntriesTx(ctx context.Context, tx any, now time.Time, entries []storage.Entry) (revision int64, err error) {
	err = in.inside(ctx, tx, func(t *transaction, own *instance) error {
		revision, err = own.m.putEntries(ctx, now, entries)
		return err
	})
	return revision, err
}

func (m *Memory) putEntries(ctx context.Context, now time.Time, entries []storage.Entry) (int64, error) {
	if len(entries) == 0 {
		return 0, nil
	}
	for _, e := range entries {
		if m.topics.entries[[2]string{e.Class, e.Name}].Revision != e.Revision {
			return 0, storage.ErrStale
		}
	}
	now = m.wrote(now)
	m.did(ctx, 0, false)
	if m.topics.entries == nil {
		m.topics.entries, m.topics.families = map[[2]string]storage.Entry{}, map[string]int64{}
	}
	m.lastToken++
	for _, e := range entries {
		key := [2]string{e.Class, e.Name}
		e.CreatedAt = now
		if was, ok := m.topics.entries[key]; ok {
			e.Family, e.CreatedAt = was.Family, was.CreatedAt
		}
		e.Doc, e.Revision, e.UpdatedAt = append([]byte{}, e.Doc...), m.lastToken, now
		if m.topics.entries[key] = e; e.Delete {
			delete(m.topics.entries, key)
		}
		if e.Family != "" {
			m.topics.families[e.Family] = m.lastToken
		}
	}
	return m.lastToken, nil
}

// Entry implements [storage.Topics].
func (in *instance) Entry(ctx context.Context, class, name string) (storage.Entry, error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return storage.Entry{}, err
	}
	defer m.mu.Unlock()
	return m.entry(class, name)
}

// EntryTx implements [storage.TxEnqueuer].
func (in *instance) EntryTx(ctx context.Context, tx any, class, name string) (e storage.Entry, err error) {
	err = in.inside(ctx, tx, func(_ *transaction, own *instance) error {
		e, err = own.m.entry(class, name)
		return err
	})
	return e, err
}

func (m *Memory) entry(class, name string) (storage.Entry, error) {
	e, ok := m.topics.entries[[2]string{class, name}]
	if !ok {
		return storage.Entry{}, storage.ErrNotFound
	}
	e.Doc = bytes.Clone(e.Doc)
	return e, nil
}

// Entries implements [storage.Topics].
func (in *instance) Entries(ctx context.Context, class, family, after string, limit int) (out []storage.Entry, revision int64, err error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return nil, 0, err
	}
	defer m.mu.Unlock()
	out, revision = m.entriesOf(class, family, after, limit)
	return out, revision, nil
}

// EntriesTx implements [storage.TxEnqueuer].
func (in *instance) EntriesTx(ctx context.Context, tx any, class, family, after string, limit int) (out []storage.Entry, revision int64, err error) {
	err = in.inside(ctx, tx, func(_ *transaction, own *instance) error {
		out, revision = own.m.entriesOf(class, family, after, limit)
		return nil
	})
	return out, revision, err
}

func (m *Memory) entriesOf(class, family, after string, limit int) (out []storage.Entry, revision int64) {
	for _, e := range m.topics.entries {
		if e.Class == class && e.Name > after && (family == "" || e.Family == family) {
			e.Doc = bytes.Clone(e.Doc)
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b storage.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return out[:min(len(out), limit):min(len(out), limit)], m.topics.families[family]
}

// shift has what was published or written later than now be so now.
func (t *topics) shift(now time.Time) {
	for key, e := range t.entries {
		e.UpdatedAt = noLater(e.UpdatedAt, now)
		t.entries[key] = e
	}
	for i := range t.messages {
		s := &t.messages[i]
		by := s.PublishedAt.Sub(noLater(s.PublishedAt, now))
		s.PublishedAt = s.PublishedAt.Add(-by)
		if !s.KeepUntil.IsZero() {
			s.KeepUntil = s.KeepUntil.Add(-by)
		}
		if !s.dedupUntil.IsZero() {
			s.dedupUntil = s.dedupUntil.Add(-by)
		}
	}
}

// delivered reports whether a job of a message is there.
func (m *Memory) delivered(id string) bool {
	for _, j := range m.jobs {
		if slices.Contains(j.Tags, storage.MessageTag(id)) {
			return true
		}
	}
	return false
}

// forgetMessages deletes the messages that have gone with the last of their jobs.
func (m *Memory) forgetMessages() {
	m.topics.messages = slices.DeleteFunc(slices.Clone(m.topics.messages), func(s message) bool { return s.KeepUntil.IsZero() && !m.delivered(s.ID) })
}

// purgeMessages deletes those whose time is over, and returns when that of the next is.
func (m *Memory) purgeMessages(now time.Time) (next time.Time) {
	m.forgetMessages()
	m.topics.messages = slices.DeleteFunc(slices.Clone(m.topics.messages), func(s message) bool { return m.over(&s, now) })
	for _, s := range m.topics.messages {
		if !m.delivered(s.ID) {
			next = earlier(next, s.KeepUntil)
		}
	}
	return next
}

// over reports whether the time of a message is over.
func (m *Memory) over(s *message, now time.Time) bool {
	return !s.KeepUntil.After(now) && !m.delivered(s.ID)
}

// message returns the one with an ID, or nil.
func (m *Memory) message(id string) *message {
	for i := range m.topics.messages {
		if s := &m.topics.messages[i]; s.ID == id {
			return s
		}
	}
	return nil
}

// PublishMessages implements [storage.Topics].
func (in *instance) PublishMessages(ctx context.Context, now time.Time, publications []storage.Publication) ([]storage.PublishResult, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return nil, err
	}
	out, a, err := m.publishAll(now, publications)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	m.didPublish(ctx, out)
	in.end(a)
	return out, nil
}

// didPublish is did for a call that publishes messages.
func (m *Memory) didPublish(ctx context.Context, all []storage.PublishResult) {
	for _, r := range all {
		m.didAdd(ctx, r.Jobs)
	}
}

// publishAll publishes all of a call, or nothing.
func (m *Memory) publishAll(now time.Time, publications []storage.Publication) ([]storage.PublishResult, *admission, error) {
	m.wrote(now)
	m.forgetMessages()
	out := make([]storage.PublishResult, len(publications))
	a := &admission{m: m, now: now, evicted: m.newEvictions()}
	err := m.atomically(func() error {
		for i := range publications {
			p := &publications[i]
			if p.Family != "" && m.topics.families[p.Family] != p.Revision {
				return storage.ErrStale
			}
		}
		for i := range publications {
			var err error
			if out[i], err = m.publish(a, &publications[i]); err != nil {
				if errors.Is(err, storage.ErrMessageID) {
					err = &storage.MessageIDError{Publication: i}
				}
				return err
			}
		}
		m.purgeMessages(floor(now))
		return nil
	})
	return out, a, err
}

func (m *Memory) publish(a *admission, p *storage.Publication) (r storage.PublishResult, err error) {
	now := floor(a.now)
	s := m.message(p.Message.ID)
	if s != nil && !s.KeepUntil.IsZero() && m.over(s, now) {
		s = nil
	}
	r.ID = p.Message.ID
	steps := p.From != "" || p.To != ""
	switch {
	case p.Existing && s == nil:
		return r, storage.ErrNotFound
	case p.Existing && steps && s.Cursor != p.From:
		return r, storage.ErrStale
	case p.Existing && steps:
		s.Cursor = p.To
	case !p.Existing && s != nil && s.Topic != p.Message.Topic:
		return r, storage.ErrMessageID
	case !p.Existing && s != nil:
		r.Duplicate = true
		return r, nil
	case !p.Existing:
		if first := m.deduped(p, now); first != nil {
			r.ID, r.Duplicate = first.ID, true
			return r, nil
		}
		m.topics.messages = slices.DeleteFunc(m.topics.messages, func(s message) bool { return s.ID == p.Message.ID })
		m.store(p, now)
	}
	jobs := slices.Clone(p.Jobs)
	for i := range jobs {
		jobs[i].Tags = append(slices.Clone(jobs[i].Tags), storage.MessageTag(r.ID))
	}
	if len(jobs) > 0 {
		r.Jobs, err = a.all(jobs)
	}
	return r, err
}

// deduped returns the message that p is a duplicate of by its Dedup, or nil.
func (m *Memory) deduped(p *storage.Publication, now time.Time) *message {
	for i := len(m.topics.messages) - 1; i >= 0; i-- {
		s := &m.topics.messages[i]
		if p.Dedup == "" || s.Topic != p.Message.Topic || s.dedup != p.Dedup {
			continue
		}
		if now.Before(s.dedupUntil) && now.After(s.PublishedAt.Add(-s.dedupUntil.Sub(s.PublishedAt))) {
			return s
		}
		s.dedup = "" // the next has it
		return nil
	}
	return nil
}

// store stores the message of p.
func (m *Memory) store(p *storage.Publication, now time.Time) {
	s := message{Message: p.Message, dedup: p.Dedup}
	s.PublishedAt, s.Body, s.Attributes = now, append([]byte{}, s.Body...), bytes.Clone(s.Attributes)
	if !s.KeepUntil.IsZero() {
		s.KeepUntil = ceil(s.KeepUntil)
	}
	if p.Dedup != "" {
		s.dedupUntil = now.Add(ceilDuration(p.DedupFor))
		s.KeepUntil = later(s.KeepUntil, s.dedupUntil)
	}
	m.lastToken++
	s.n = m.lastToken
	m.topics.messages = append(m.topics.messages, s)
}

// Message implements [storage.Topics].
func (in *instance) Message(ctx context.Context, id string) (storage.Message, error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return storage.Message{}, err
	}
	defer m.mu.Unlock()
	m.forgetMessages()
	s := m.message(id)
	if s == nil {
		return storage.Message{}, storage.ErrNotFound
	}
	out := s.Message
	out.Body, out.Attributes = bytes.Clone(out.Body), bytes.Clone(out.Attributes)
	return out, nil
}

// MessageWith implements [storage.Topics].
func (in *instance) MessageWith(ctx context.Context, id string, entries ...storage.EntryName) (storage.Message, []int64, error) {
	m, err := in.Message(ctx, id)
	if err != nil {
		return storage.Message{}, nil, err
	}
	revisions := make([]int64, len(entries))
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	for i, e := range entries {
		revisions[i] = in.m.topics.entries[[2]string{e.Class, e.Name}].Revision
	}
	return m, revisions, nil
}

// Messages implements [storage.Topics].
func (in *instance) Messages(ctx context.Context, topic string, since time.Time, after string, limit int) (out []storage.Message, next string, err error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return nil, "", err
	}
	defer m.mu.Unlock()
	m.forgetMessages()
	all := slices.DeleteFunc(slices.Clone(m.topics.messages), func(s message) bool {
		return s.Topic != topic || s.PublishedAt.Before(since) || after != "" && s.place() <= after
	})
	slices.SortStableFunc(all, func(a, b message) int { return strings.Compare(a.place(), b.place()) })
	for i, s := range all {
		if i == limit {
			return out, all[i-1].place(), nil
		}
		s.Body, s.Attributes = nil, bytes.Clone(s.Attributes)
		out = append(out, s.Message)
	}
	return out, "", nil
}

// place returns the place of a message in the list, in whose order places are.
func (s *message) place() string {
	return s.PublishedAt.UTC().Format("20060102150405.000000") + " " + fmt.Sprintf("%020s", strconv.FormatInt(s.n, 10))
}
