package errand

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

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

type (
	// Entry is a small document under a class and a name.
	Entry = storage.Entry
	// EntryName names an entry.
	EntryName = storage.EntryName
	// Message is what jobs deliver.
	Message = storage.Message
	// PublishResult is the answer to a [Publication].
	PublishResult = storage.PublishResult
)

// messageTag begins the tags of jobs that deliver messages.
var messageTag = MessageTag("")

// MessageTag returns the tag of the jobs that deliver a message, for [JobFilter].
func MessageTag(id string) string { return storage.MessageTag(id) }

// Topics is the door by which the packages topic and webhook keep what is theirs in the
// file of a queue: messages, which jobs deliver, and entries, which are small documents
// such as a subscription or an endpoint. It is narrow on purpose. It does not know what is
// in them, and applications use those packages instead. It is safe for concurrent use.
//
// A message stays while one of its jobs is there, live, finished or dead, and until its
// KeepUntil. Classes match [a-z][a-z0-9_-]{0,31}; names, families and topics match
// [A-Za-z0-9][A-Za-z0-9._:/-]{0,199}, the IDs of messages [A-Za-z0-9._:-]{1,128}. A body
// has at most 256 KiB, attributes 320 KiB and documents 64 KiB.
type Topics struct {
	queue *Queue
	store storage.Topics
}

// Topics returns the door to messages and entries. It returns [ErrUnsupportedDB] if the
// store keeps none.
func (q *Queue) Topics() (*Topics, error) {
	s, ok := q.store.(storage.Topics)
	if !ok {
		return nil, fmt.Errorf("%w: store %T keeps no messages", ErrUnsupportedDB, q.store)
	}
	return &Topics{q, s}, nil
}

// CheckQueue returns a [FieldError] for a field with the name of a queue that Publish would refuse in
// jobs: it is malformed, or [Options].Strict is set and Options.Queues does not list it.
func (t *Topics) CheckQueue(field, queue string) error {
	var f faults
	f.queue(field, queue, &t.queue.opts)
	return f.err()
}

// PutEntries writes entries in one transaction, or deletes those with Delete set, all of
// them or none. It takes at most 1,000. An entry with a Revision of zero must not be
// there; one with another Revision must be there with that one. Else PutEntries returns
// [ErrStale]. It returns the Revision that the entries and their families have then. It is
// higher than any before. An entry keeps the Family that it was first written with.
func (t *Topics) PutEntries(ctx context.Context, entries []Entry) (revision int64, err error) {
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
	return t.store.PutEntries(ctx, now, entries)
}

// Entry returns an entry, or [ErrNotFound].
func (t *Topics) Entry(ctx context.Context, class, name string) (Entry, error) {
	var f faults
	f.class("class", class)
	f.topicName("name", name)
	if err := f.err(); err != nil {
		return Entry{}, err
	}
	return t.store.Entry(ctx, class, name)
}

// Entries returns the entries of a class whose names are greater than after, at most limit
// of them, which is from 1 to 10,000, sorted by name. If family is not empty it returns
// those of the family, with the revision of that as of the same moment: zero if it has
// never had an entry.
func (t *Topics) Entries(ctx context.Context, class, family, after string, limit int) (entries []Entry, revision int64, err error) {
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
	return t.store.Entries(ctx, class, family, after, limit)
}

// Publication is a message with the jobs that deliver it.
type Publication struct {
	// Family, if not empty, must be at Revision, or Publish returns [ErrStale].
	Family   string
	Revision int64
	// Message is stored; its PublishedAt is the time of the call. If there is a message of
	// the same Topic with its ID, the publication is a duplicate of that one. With the ID of
	// a message of another Topic, Publish returns a [FieldError] that is [ErrMessageID].
	Message Message
	// Dedup, if not empty, makes the publication a duplicate of a message of the same Topic
	// that was published with the same Dedup less than its DedupFor ago. Such a message is
	// kept for that long. DedupFor is at least a second.
	Dedup    string
	DedupFor time.Duration
	// Existing says that the message must be there, or Publish returns [ErrNotFound]; of
	// Message only ID counts then. If From or To is set, the message's Cursor must be From,
	// or Publish returns [ErrStale], and becomes To.
	Existing bool
	From, To string
	// Jobs deliver the message. They get the tag that [MessageTag] returns. Their
	// OnConflict, if any, is Keep or Fail.
	Jobs []NewJob
}

// Publish stores messages and enqueues their jobs in one transaction, all or nothing. The
// jobs are checked, go through [Options].Middleware and are told of as events as those of
// [Queue.EnqueueMany] are. It takes at most 1,000 publications, with at most 10,000 jobs
// and 64 MiB together. A duplicate is a result, not an error.
func (t *Topics) Publish(ctx context.Context, publications []Publication) ([]PublishResult, error) {
	now, all, err := t.prepare(ctx, publications)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	out, err := t.store.PublishMessages(ctx, now, all)
	if err != nil {
		return nil, refusedID(err, publications)
	}
	for i := range out {
		t.queue.events.tellEnqueued(now, all[i].Jobs, out[i].Jobs)
	}
	return out, nil
}

// PublishTx is [Topics.Publish] inside a transaction of the application on the queue's
// file: what it writes exists if tx commits. See [Queue.EnqueueTx].
func (t *Topics) PublishTx(ctx context.Context, tx *sql.Tx, publications []Publication) ([]PublishResult, error) {
	if tx == nil {
		return nil, &FieldError{Field: "tx", Limit: "must not be nil"}
	}
	now, all, err := t.prepare(ctx, publications)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	out, err := t.store.PublishMessagesTx(ctx, tx, now, all)
	return out, refusedID(err, publications)
}

// refusedID names the field if a message of another topic has the ID of one.
func refusedID(err error, publications []Publication) error {
	if e, ok := errors.AsType[*storage.MessageIDError](err); ok {
		i := e.Publication
		return &FieldError{Field: fmt.Sprintf("publications[%d].message.id", i), Value: publications[i].Message.ID, Limit: "must be another one", Err: ErrMessageID}
	}
	return err
}

// prepare checks publications and returns them as the store takes them at now.
func (t *Topics) prepare(ctx context.Context, publications []Publication) (now time.Time, all []storage.Publication, err error) {
	if len(publications) == 0 {
		return now, nil, ctx.Err()
	}
	var f faults
	if len(publications) > mostPublished {
		return now, nil, &FieldError{Field: "publications", Value: len(publications), Limit: fmt.Sprintf("must be at most %d in one call", mostPublished)}
	}
	var jobs []NewJob
	var places []string // of publications, by job
	first := make([]int, len(publications)+1)
	all = make([]storage.Publication, len(publications))
	size := 0
	for i := range publications {
		p := &publications[i]
		place := fmt.Sprintf("publications[%d].", i)
		all[i] = p.record(&f, place)
		size += len(p.Message.Body) + len(p.Message.Attributes)
		for j := range p.Jobs {
			places = append(places, fmt.Sprintf("%sjobs[%d].", place, j))
		}
		jobs = append(jobs, p.Jobs...)
		first[i+1] = len(jobs)
	}
	if len(jobs) > maxEnqueue {
		return now, nil, &FieldError{Field: "publications", Value: len(jobs), Limit: fmt.Sprintf("must have at most %d jobs in one call", maxEnqueue)}
	}
	if len(publications) > 1 && size > maxMessageBytes {
		f.field("publications", fmt.Sprintf("%d bytes of messages", size), fmt.Sprintf("must be at most %d in one call", maxMessageBytes))
	}
	now, records, err := t.queue.newJobs(ctx, &f, jobs, func(i int) string { return places[i] }, func(records []storage.NewJob) {
		for i := range records {
			if c := records[i].Conflict; c.Replaces() {
				f.field(places[i]+"unique.on_conflict.mode", c.Mode, "must be Keep or Fail for a job that delivers a message")
			}
		}
	})
	if err != nil {
		return now, nil, err
	}
	for i := range all {
		all[i].Jobs = records[first[i]:first[i+1]:first[i+1]]
	}
	return now, all, nil
}

// record checks a publication and returns it as the store takes it, but for its jobs.
func (p *Publication) record(f *faults, place string) storage.Publication {
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

// Message returns a message, or [ErrNotFound].
func (t *Topics) Message(ctx context.Context, id string) (Message, error) {
	if !isMessageID(id) {
		return Message{}, &FieldError{Field: "id", Value: id, Limit: "must match [A-Za-z0-9._:-]{1,128}"}
	}
	return t.store.Message(ctx, id)
}

// MessageWith returns a message, or [ErrNotFound], and the revisions of up to four entries as
// of the same moment, in the order of their names: zero for one that is not there. So a
// caller that remembers entries reads only those again that have changed.
func (t *Topics) MessageWith(ctx context.Context, id string, entries ...EntryName) (Message, []int64, error) {
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
		return Message{}, nil, err
	}
	return t.store.MessageWith(ctx, id, entries...)
}

// Messages returns the messages of a topic that were published at since or later, without
// their bodies, in the order of their publication, at most limit of them, which is from 1
// to 1,000. after is the next of the page before, of the same topic and since, or empty.
// next is empty on the last page.
func (t *Topics) Messages(ctx context.Context, topic string, since time.Time, after string, limit int) (messages []Message, next string, err error) {
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
func (f *faults) message(place string, m *Message) {
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
