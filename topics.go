package errand

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

const (
	maxTopicName    = 200
	maxClass        = 32
	maxMessageID    = 128
	maxBody         = 256 << 10
	maxAttributes   = 320 << 10
	maxDoc          = 64 << 10
	maxCursor       = 1024
	maxEntryPage    = 10_000
	mostPublished   = 1000
	maxMessageBytes = 64 << 20 // of one call
)

// messageTag begins the tags of jobs that deliver messages.
var messageTag = storage.MessageTag("")

// publication is a message with the jobs that deliver it.
type publication = door.Publication[NewJob]

func init() {
	door.Install(func(queue any) (any, error) {
		q, ok := queue.(*Queue)
		if w, is := queue.(*Worker); is && w != nil {
			q, ok = w.queue, true
		}
		if !ok || q == nil {
			return nil, fmt.Errorf("errand: %T is no queue that is open", queue)
		}
		return q.topics(nil)
	}, func(of, tx any) (any, error) {
		o, ok := of.(interface{ inside(tx any) (*inside, error) })
		if !ok || isNil(of) {
			return nil, fmt.Errorf("errand: %T is no queue that is open, and no job", of)
		}
		return o.inside(tx)
	})
}

// topics is [door.Topics] of a queue.
type topics struct {
	queue *Queue
	store storage.Topics
	in    *inside // nil: each call is a transaction of its own
}

// topics returns the door of q, inside of in unless that is nil.
func (q *Queue) topics(in *inside) (door.Topics[NewJob], error) {
	s, ok := q.store.(storage.Topics)
	if !ok {
		return nil, fmt.Errorf("%w: store %T keeps no messages", ErrUnsupportedDB, q.store)
	}
	return &topics{q, s, in}, nil
}

// Queue returns the queue, for [door.QueueOf].
func (t *topics) Queue() *Queue { return t.queue }

// Live is [door.Live].
func (t *topics) Live(ctx context.Context, ids []ID) (all []JobInfo, err error) {
	s, ok := t.queue.store.(storage.Glancer)
	if !ok {
		page, err := t.queue.listIDs(ctx, ids, &ListOptions{}, []State{Ready, Scheduled, Running, Blocked})
		return page.Jobs, err
	}
	records, err := s.Glance(ctx, ids)
	for i := range records {
		j, e := jobInfo(&records[i])
		all, err = append(all, j), errors.Join(err, e)
	}
	return all, err
}

// Relaxed is [door.Relaxed].
func (t *topics) Relaxed() bool {
	s, ok := t.queue.store.(interface{ Durability() Durability })
	return ok && s.Durability() == Relaxed
}

// Configure implements [door.Topics].
func (t *topics) Configure(ctx context.Context, queue string, set storage.Settings) error {
	lane := Lane{Queue: queue}
	if t.in != nil {
		if err := t.nobodyWaits(ctx, queue, set); err != nil {
			return err
		}
		return t.in.store.ConfigureTx(ctx, t.in.tx, lane, set)
	}
	if err := t.queue.store.Configure(ctx, lane, set); err != nil {
		return err
	}
	return engine.Regroup(ctx, t.queue.store, queue, set)
}

// nobodyWaits refuses a setting that would have to let jobs go that wait behind a dead one: only
// Regroup does that, which is a transaction of its own.
func (t *topics) nobodyWaits(ctx context.Context, queue string, set storage.Settings) error {
	if set[storage.SettingDeadHead] != int64(storage.PassDead) {
		return nil
	}
	page, err := t.queue.Groups(ctx, &GroupOptions{Queue: queue, Limit: 1})
	if err != nil || len(page.Groups) == 0 {
		return err
	}
	return &FieldError{Field: "on_dead", Value: "pass", Limit: fmt.Sprintf(
		"must not be set in a transaction while jobs of queue %q wait behind a dead one: subscribe without a transaction", queue)}
}

// CheckQueue implements [door.Topics].
func (t *topics) CheckQueue(field, queue string) error {
	var f faults
	f.queue(field, queue, &t.queue.opts)
	return f.err()
}

// PutEntries implements [door.Topics].
func (t *topics) PutEntries(ctx context.Context, entries []storage.Entry) (revision int64, err error) {
	var f faults
	if len(entries) > mostPublished {
		f.field("entries", len(entries), fmt.Sprintf("must be at most %d in one call", mostPublished))
	}
	named := map[string]bool{}
	for i := range entries {
		e, place := &entries[i], fmt.Sprintf("entries[%d].", i)
		f.class(place+"class", e.Class)
		f.topicName(place+"name", e.Name)
		if e.Family != "" {
			f.topicName(place+"family", e.Family)
		}
		if e.Revision < 0 {
			f.field(place+"revision", e.Revision, "must not be negative")
		}
		if len(e.Doc) > maxDoc {
			f.field(place+"doc", len(e.Doc), fmt.Sprintf("must be at most %d bytes", maxDoc))
		}
		key := e.Class + " " + e.Name
		if named[key] {
			f.field(place+"name", e.Name, "must be there once in a call")
		}
		named[key] = true
	}
	if err := f.err(); err != nil {
		return 0, err
	}
	now, _ := t.queue.clock.read(ctx)
	if t.in != nil {
		return t.in.store.PutEntriesTx(ctx, t.in.tx, now, entries)
	}
	return t.store.PutEntries(ctx, now, entries)
}

// Entry implements [door.Topics].
func (t *topics) Entry(ctx context.Context, class, name string) (storage.Entry, error) {
	var f faults
	f.class("class", class)
	f.topicName("name", name)
	if err := f.err(); err != nil {
		return storage.Entry{}, err
	}
	if t.in != nil {
		return t.in.store.EntryTx(ctx, t.in.tx, class, name)
	}
	return t.store.Entry(ctx, class, name)
}

// Entries implements [door.Topics].
func (t *topics) Entries(ctx context.Context, class, family, after string, limit int) (entries []storage.Entry, revision int64, err error) {
	var f faults
	f.class("class", class)
	if family != "" {
		f.topicName("family", family)
	}
	if after != "" {
		f.topicName("after", after)
	}
	f.page("limit", limit, maxEntryPage)
	if err := f.err(); err != nil {
		return nil, 0, err
	}
	if t.in != nil {
		return t.in.store.EntriesTx(ctx, t.in.tx, class, family, after, limit)
	}
	return t.store.Entries(ctx, class, family, after, limit)
}

// Publish implements [door.Topics].
func (t *topics) Publish(ctx context.Context, publications []publication) ([]storage.PublishResult, error) {
	now, all, told, err := t.prepare(ctx, publications)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var out []storage.PublishResult
	if t.in != nil {
		out, err = t.in.store.PublishMessagesTx(ctx, t.in.tx, now, all)
	} else {
		out, err = t.store.PublishMessages(ctx, now, all)
	}
	told.published(all, out, err)
	if err != nil {
		return nil, refusedID(err, publications)
	}
	if t.in != nil {
		return out, nil // which may not commit
	}
	for i := range out {
		t.queue.events.tellEnqueued(now, all[i].Jobs, out[i].Jobs)
	}
	return out, nil
}

// refusedID names the field if a message of another topic has the ID of one.
func refusedID(err error, publications []publication) error {
	if e, ok := errors.AsType[*storage.MessageIDError](err); ok {
		i := e.Publication
		return &FieldError{Field: fmt.Sprintf("publications[%d].message.id", i), Value: publications[i].Message.ID, Limit: "must be another one", Err: e}
	}
	return err
}

// published tells what has become of the jobs of publications.
func (a afters) published(all []storage.Publication, out []storage.PublishResult, err error) {
	if len(a) == 0 {
		return
	}
	var added []Enqueued // as many as jobs, also for a message that was there
	for i := range out {
		added = append(added, out[i].Jobs...)
		added = append(added, make([]Enqueued, len(all[i].Jobs)-len(out[i].Jobs))...)
	}
	a.tell(added, err)
}

// prepare checks publications and returns them as the store takes them at now, and who is to
// be told of the result.
func (t *topics) prepare(ctx context.Context, publications []publication) (now time.Time, all []storage.Publication, told afters, err error) {
	if len(publications) == 0 {
		return now, nil, nil, ctx.Err()
	}
	var f faults
	if len(publications) > mostPublished {
		return now, nil, nil, &FieldError{Field: "publications", Value: len(publications), Limit: fmt.Sprintf("must be at most %d in one call", mostPublished)}
	}
	var jobs []NewJob
	var places []string // of publications, by job
	first := make([]int, len(publications)+1)
	all = make([]storage.Publication, len(publications))
	size := 0
	for i := range publications {
		p := &publications[i]
		place := fmt.Sprintf("publications[%d].", i)
		all[i] = record(p, &f, place)
		size += len(p.Message.Body) + len(p.Message.Attributes)
		for j := range p.Jobs {
			places = append(places, door.Place(i, j))
		}
		jobs = append(jobs, p.Jobs...)
		first[i+1] = len(jobs)
	}
	if len(jobs) > maxEnqueue {
		return now, nil, nil, &FieldError{Field: "publications", Value: len(jobs), Limit: fmt.Sprintf("must have at most %d jobs in one call", maxEnqueue)}
	}
	if len(publications) > 1 && size > maxMessageBytes {
		f.field("publications", fmt.Sprintf("%d bytes of messages", size), fmt.Sprintf("must be at most %d in one call", maxMessageBytes))
	}
	now, records, told, err := t.queue.newJobs(ctx, &f, jobs, func(i int) string { return places[i] }, func(records []storage.NewJob) {
		for i := range records {
			if c := records[i].Conflict; c.Replaces() {
				f.add(&FieldError{Field: places[i] + "unique.on_conflict.mode", Value: c.Mode, Limit: "must be Keep or Fail for a job that delivers a message", Job: i + 1})
			}
		}
	})
	if err != nil {
		return now, nil, nil, err
	}
	for i := range all {
		all[i].Jobs = records[first[i]:first[i+1]:first[i+1]]
	}
	return now, all, told, nil
}

// record checks a publication and returns it as the store takes it, but for its jobs.
func record(p *publication, f *faults, place string) storage.Publication {
	m := p.Message
	if !isMessageID(m.ID) {
		f.field(place+"message.id", m.ID, "must match [A-Za-z0-9._:-]{1,128}")
	}
	if p.Family != "" {
		f.topicName(place+"family", p.Family)
	}
	if !p.Existing {
		f.topicName(place+"message.topic", m.Topic)
		f.message(place+"message.", &m)
		f.dedup(place, p.Dedup, p.DedupFor)
	} else if p.Dedup != "" {
		f.field(place+"dedup", p.Dedup, "must be empty for a message that is there")
	}
	for _, c := range []struct{ name, text string }{{"message.cursor", m.Cursor}, {"from", p.From}, {"to", p.To}} {
		switch {
		case len(c.text) > maxCursor || !isText(c.text):
			f.field(place+c.name, c.text, fmt.Sprintf("must be at most %d bytes of valid UTF-8 without NUL", maxCursor))
		case c.text != "" && !p.Existing && c.name != "message.cursor":
			f.field(place+c.name, c.text, "must be empty for a new message")
		}
	}
	if len(m.Attributes) == 0 {
		m.Attributes = nil
	}
	if m.Body == nil {
		m.Body = []byte{}
	}
	return storage.Publication{
		Family: p.Family, Revision: p.Revision, Message: m, Dedup: p.Dedup, DedupFor: p.DedupFor,
		Existing: p.Existing, From: p.From, To: p.To,
	}
}

// Message implements [door.Topics].
func (t *topics) Message(ctx context.Context, id string) (storage.Message, error) {
	if !isMessageID(id) {
		return storage.Message{}, &FieldError{Field: "id", Value: id, Limit: "must match [A-Za-z0-9._:-]{1,128}"}
	}
	return t.store.Message(ctx, id)
}

// MessageWith implements [door.Topics].
func (t *topics) MessageWith(ctx context.Context, id string, entries ...storage.EntryName) (storage.Message, []int64, error) {
	var f faults
	if !isMessageID(id) {
		f.field("id", id, "must match [A-Za-z0-9._:-]{1,128}")
	}
	if len(entries) > storage.MostEntries {
		f.field("entries", len(entries), fmt.Sprintf("must be at most %d", storage.MostEntries))
	}
	for i, e := range entries {
		f.class(fmt.Sprintf("entries[%d].class", i), e.Class)
		f.topicName(fmt.Sprintf("entries[%d].name", i), e.Name)
	}
	if err := f.err(); err != nil {
		return storage.Message{}, nil, err
	}
	return t.store.MessageWith(ctx, id, entries...)
}

// Messages implements [door.Topics].
func (t *topics) Messages(ctx context.Context, topic string, since time.Time, after string, limit int) (messages []storage.Message, next string, err error) {
	var f faults
	f.topicName("topic", topic)
	f.page("limit", limit, maxPage)
	of := JobFilter{Queue: topic, CreatedFrom: since}.hash(nil) + 2 // which is of no other list
	place := readCursor(&f, "after", after, of)
	if err := f.err(); err != nil {
		return nil, "", err
	}
	messages, next, err = t.store.Messages(ctx, topic, since, place, limit)
	return messages, cursor(next, of), err
}

// message checks what is in a message.
func (f *faults) message(place string, m *storage.Message) {
	if len(m.Body) > maxBody {
		f.field(place+"body", len(m.Body), fmt.Sprintf("must be at most %d bytes", maxBody))
	}
	if len(m.Attributes) > maxAttributes {
		f.field(place+"attributes", len(m.Attributes), fmt.Sprintf("must be at most %d bytes", maxAttributes))
	}
	if y := m.KeepUntil.UTC().Year(); !m.KeepUntil.IsZero() && (y < 1970 || y > 9999) {
		f.field(place+"keep_until", m.KeepUntil, "must be in the years 1970 to 9999")
	}
}

func (f *faults) dedup(place, dedup string, d time.Duration) {
	if len(dedup) > maxTopicName || !isText(dedup) {
		f.field(place+"dedup", dedup, fmt.Sprintf("must be at most %d bytes of valid UTF-8 without NUL", maxTopicName))
	}
	switch {
	case dedup == "" && d != 0:
		f.field(place+"dedup_for", d, "must be zero without dedup")
	case dedup != "" && (d < minWindow || d > maxWindow):
		f.field(place+"dedup_for", d, "must be "+windowLimit)
	}
}

// page checks how many a page may have.
func (f *faults) page(field string, n, most int) {
	if n < 1 || n > most {
		f.field(field, n, fmt.Sprintf("must be between 1 and %d", most))
	}
}

// topicName checks the name of an entry, a family or a topic.
func (f *faults) topicName(field, name string) {
	if !isName(name, maxTopicName) {
		f.field(field, name, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,199}")
	}
}

func (f *faults) class(field, class string) {
	ok := class != "" && len(class) <= maxClass && 'a' <= class[0] && class[0] <= 'z'
	for i := 0; ok && i < len(class); i++ {
		c := class[i]
		ok = 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-'
	}
	if !ok {
		f.field(field, class, "must match [a-z][a-z0-9_-]{0,31}")
	}
}

func isMessageID(id string) bool {
	ok := id != "" && len(id) <= maxMessageID
	for i := 0; ok && i < len(id); i++ {
		ok = isAlnum(id[i]) || strings.IndexByte("._:-", id[i]) >= 0
	}
	return ok
}
