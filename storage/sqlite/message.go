package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/selector"
)

const (
	sqlAddMessage = `INSERT INTO main.errand_message (message, id, topic, published_at, keep_until, dedup, dedup_until, cursor)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`
	sqlAddBody     = `INSERT INTO main.errand_body (message, attributes, body) VALUES (?1, ?2, ?3)`
	sqlFindMessage = `SELECT message, COALESCE(purge_at, -1), cursor, topic FROM main.errand_message WHERE id = ?1`
	// The bounds of the time keep it from being one for ever if the clock was wrong.
	sqlFindDedup = `SELECT message, id, dedup_until > ?3 AND 2 * published_at - dedup_until < ?3 FROM main.errand_message
WHERE topic = ?1 AND dedup = ?2 AND dedup IS NOT NULL`
	sqlEndDedup  = `UPDATE main.errand_message SET dedup = NULL WHERE message = ?1`
	sqlSetCursor = `UPDATE main.errand_message SET cursor = ?2 WHERE message = ?1`
	sqlStays     = `UPDATE main.errand_message SET purge_at = NULL WHERE message = ?1`

	// A tag that is there is that of a job which is there.
	noJobs         = `NOT EXISTS (SELECT 1 FROM main.errand_tag WHERE tag = ?2)`
	sqlLastGone    = `UPDATE main.errand_message SET purge_at = keep_until WHERE id = ?1 AND ` + noJobs + ` RETURNING message, keep_until`
	sqlRests       = `UPDATE main.errand_message SET purge_at = keep_until WHERE id = ?1 AND keep_until > 0 AND ` + noJobs
	sqlDropBody    = `DELETE FROM main.errand_body WHERE message = ?1`
	sqlDropMessage = `DELETE FROM main.errand_message WHERE message = ?1`
	sqlNextOver    = `SELECT purge_at FROM main.errand_message WHERE purge_at IS NOT NULL ORDER BY purge_at LIMIT 1`
	sqlOver        = `SELECT message FROM main.errand_message WHERE purge_at <= ?1 AND purge_at IS NOT NULL ORDER BY purge_at LIMIT 100`

	messageColumns = `m.message, id, topic, published_at, keep_until, cursor, attributes`
	sqlMessage     = `SELECT ` + messageColumns + `, body FROM main.errand_message m CROSS JOIN main.errand_body b ON b.message = m.message WHERE id = ?1`
	sqlMessages    = `SELECT ` + messageColumns + ` FROM main.errand_message m CROSS JOIN main.errand_body b ON b.message = m.message
WHERE topic = ?1 AND published_at >= ?2 AND (published_at, m.message) > (?2, ?3) ORDER BY published_at, m.message LIMIT ?4`
)

var _ storage.Topics = (*Store)(nil)

// messageTag begins the tags of jobs that deliver messages.
var messageTag = storage.MessageTag("")

// messagePlace begins a place in the list of messages.
const messagePlace = 'm'

// PublishMessages implements [storage.Topics].
func (s *Store) PublishMessages(ctx context.Context, now time.Time, publications []storage.Publication) ([]storage.PublishResult, error) {
	if len(publications) == 0 {
		return nil, s.idle(ctx)
	}
	jobs, work := workOfPublications(publications)
	var answer struct { // one of them, on the heap
		out     []storage.PublishResult
		refused error
	}
	err := s.submit(ctx, &request{work: work, run: func(t *tx) (err error) {
		t.fresh.single = jobs == 1
		answer.out, answer.refused, err = t.publish(now, publications)
		t.fresh.single = false
		if err != nil || answer.refused != nil {
			return err
		}
		return cmp.Or(t.handOver(now), t.didJobs(ctx, published(answer.out)))
	}})
	if err == nil {
		err = answer.refused
	}
	if err != nil {
		return nil, err
	}
	return answer.out, nil
}

// PublishMessagesTx implements [storage.TxEnqueuer].
func (s *Store) PublishMessagesTx(ctx context.Context, in any, now time.Time, publications []storage.Publication) (out []storage.PublishResult, err error) {
	if len(publications) == 0 {
		return nil, s.idle(ctx)
	}
	if err := s.intake(); err != nil {
		return nil, s.oursIn(in, err)
	}
	jobs, work := workOfPublications(publications)
	var refused error
	err = s.inside(ctx, in, jobs > 0, true, func(t *tx) (err error) {
		if refused, err = s.reserveInTx(t, work); refused != nil || err != nil {
			return err
		}
		out, refused, err = t.publish(now, publications)
		return cmp.Or(err, t.didJobs(ctx, published(out)))
	})
	if err == nil {
		err = s.oursIn(in, refused)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// published returns how many jobs were enqueued, or took the place of others.
func published(all []storage.PublishResult) (n int) {
	for i := range all {
		n += newOf(all[i].Jobs)
	}
	return n
}

// workOfPublications returns how many jobs publications have, and how much work it is to
// write them.
func workOfPublications(publications []storage.Publication) (jobs, work int) {
	for i := range publications {
		p := &publications[i]
		jobs += len(p.Jobs)
		work += 1 + len(p.Jobs) + workOf(p.Jobs) + (len(p.Message.Body)+len(p.Message.Attributes))/jobBytes
	}
	return jobs, work
}

// publisher is a call of PublishMessages.
type publisher struct {
	*tx
	now   time.Time
	at    int64
	room  *room
	wrote bool
}

// publish stores messages with their jobs. refused is as that of enqueueOrRefuse.
func (t *tx) publish(now time.Time, publications []storage.Publication) (out []storage.PublishResult, refused, err error) {
	for i := range publications {
		p := &publications[i]
		if p.Family == "" {
			continue
		}
		var revision int64
		if err := t.row(sqlRevision, []any{p.Family}, &revision); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, nil, err
		}
		if revision != p.Revision {
			return nil, storage.ErrStale, nil
		}
	}
	p := publisher{tx: t, now: now, at: t.seen(now)}
	if p.room, err = t.newRoom(now); err != nil {
		return nil, nil, err
	}
	out = make([]storage.PublishResult, len(publications))
	for i := range publications {
		if out[i], err = p.one(&publications[i]); err == nil {
			continue
		}
		if errors.Is(err, storage.ErrMessageID) {
			err = &storage.MessageIDError{Publication: i}
		}
		if isAnswer(err) && !p.wrote {
			return nil, err, nil
		}
		return nil, nil, err
	}
	if err := t.flushMessages(); err != nil { // of which the last job has gone
		return nil, nil, err
	}
	return out, nil, t.purgeMessages(p.at, stepLimit) // or where nothing is purged they would stay
}

func (p *publisher) one(pub *storage.Publication) (r storage.PublishResult, err error) {
	m, there, err := p.find(pub)
	if err != nil {
		return r, err
	}
	r.ID = pub.Message.ID
	switch steps := pub.From != "" || pub.To != ""; {
	case pub.Existing && !there:
		return r, storage.ErrNotFound
	case pub.Existing && steps && m.cursor != pub.From:
		return r, storage.ErrStale
	case pub.Existing:
		if r.Jobs, err = p.deliver(pub); err != nil {
			return r, err
		}
		if steps {
			err = p.write(sqlSetCursor, m.message, pub.To)
		}
		if err == nil && m.purgeAt >= 0 && slices.ContainsFunc(r.Jobs, func(e storage.Enqueued) bool { return !e.Duplicate }) {
			err = p.write(sqlStays, m.message)
		}
		return r, err
	case there && m.topic != pub.Message.Topic:
		return r, storage.ErrMessageID
	case there:
		r.Duplicate = true
		return r, nil
	}
	if pub.Dedup != "" {
		if r.ID, r.Duplicate, err = p.dedup(pub); err != nil || r.Duplicate {
			return r, err
		}
	}
	if r.Jobs, err = p.deliver(pub); err != nil {
		return r, err
	}
	return r, p.store(pub)
}

// write executes what changes something.
func (p *publisher) write(text string, args ...any) error {
	p.wrote = true
	_, err := p.exec(text, args...)
	return err
}

// foundMessage is what a publication has to know of its message.
type foundMessage struct {
	message, purgeAt int64 // purgeAt is below zero while there are jobs
	cursor, topic    string
}

// find looks for the message of a publication. One whose time is over goes before its ID
// is used again.
func (p *publisher) find(pub *storage.Publication) (m foundMessage, there bool, err error) {
	if id := pub.Message.ID; p.leaving[id] { // by what this transaction has done
		if _, err := p.exec(sqlRests, id, storage.MessageTag(id)); err != nil {
			return m, false, err
		}
	}
	err = p.row(sqlFindMessage, []any{pub.Message.ID}, &m.message, &m.purgeAt, &m.cursor, &m.topic)
	if errors.Is(err, sql.ErrNoRows) {
		return m, false, nil
	}
	if err != nil || m.purgeAt < 0 || m.purgeAt > p.at {
		return m, err == nil, err
	}
	if !pub.Existing {
		p.wrote = true
		err = p.dropMessage(m.message)
	}
	return m, false, err
}

// dedup returns the message that a publication is a duplicate of, or else its own ID.
func (p *publisher) dedup(pub *storage.Publication) (id string, duplicate bool, err error) {
	var message int64
	err = p.row(sqlFindDedup, []any{pub.Message.Topic, pub.Dedup, p.at}, &message, &id, &duplicate)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return pub.Message.ID, false, nil
	case err != nil || duplicate:
		return id, duplicate, err
	}
	return pub.Message.ID, false, p.write(sqlEndDedup, message)
}

// deliver inserts the jobs of a publication.
func (p *publisher) deliver(pub *storage.Publication) ([]storage.Enqueued, error) {
	if len(pub.Jobs) == 0 {
		return nil, nil
	}
	next, evicted, keys := p.meta.nextJob, len(p.evicted), p.keysWritten
	jobs, tag := slices.Clone(pub.Jobs), storage.MessageTag(pub.Message.ID)
	for i := range jobs {
		jobs[i].Tags = append(slices.Clip(jobs[i].Tags), tag)
	}
	out, err := p.enqueue(p.now, jobs, p.room)
	p.wrote = p.wrote || p.meta.nextJob != next || len(p.evicted) != evicted || p.keysWritten != keys
	return out, err
}

// store writes the message of a publication.
func (p *publisher) store(pub *storage.Publication) error {
	m := &pub.Message
	var until, dedupUntil int64
	if !m.KeepUntil.IsZero() {
		until = max(rules.Due(m.KeepUntil), 0)
	}
	if pub.Dedup != "" {
		dedupUntil = p.at + rules.Ceil(pub.DedupFor)
		until = max(until, dedupUntil)
	}
	message := p.token()
	if err := p.write(sqlAddMessage, message, m.ID, m.Topic, p.at, until, nullable(pub.Dedup), dedupUntil, m.Cursor); err != nil {
		return err
	}
	var attributes any
	if m.Attributes != nil {
		attributes = m.Attributes
	}
	p.mayGo(m.ID) // it may have no jobs
	return p.write(sqlAddBody, message, attributes, notNil(m.Body))
}

// tagsTogether is how many tags one statement writes.
const tagsTogether = 4

// sqlInsertTags are by the number of tags. Without OR FAIL SQLite would keep a copy of each page until the end of
// the statement: in a Tx that takes more time than a statement for each tag. An error ends the whole call anyway. The tags
// of several jobs are not written together: a later job of a call may delete an earlier one.
var sqlInsertTags = func() (texts [tagsTogether + 1]string) {
	for n := range texts {
		texts[n] = `INSERT OR FAIL INTO main.errand_tag (tag, job) VALUES (?, ?)` + strings.Repeat(`, (?, ?)`, max(n-1, 0))
	}
	return texts
}()

// insertTags writes the tags of a new job.
func (t *tx) insertTags(id int64, tags []string) error {
	for some := range slices.Chunk(tags, tagsTogether) {
		values := make([]any, 0, 2*tagsTogether)
		for _, tag := range some {
			values = append(values, tag, id)
		}
		if _, err := t.exec(sqlInsertTags[len(some)], values...); err != nil {
			return err
		}
		if t.stmts != nil {
			t.stmts.wrote += len(some) - 1
		}
	}
	return nil
}

// deleteTags deletes the tags of a job that is gone.
func (t *tx) deleteTags(job int64) error {
	var tag string
	return t.each(sqlDeleteTags, []any{job}, []any{&tag}, func() {
		if id, ok := strings.CutPrefix(tag, messageTag); ok {
			t.mayGo(id)
		}
	})
}

// mayGo has the end of the transaction look whether a message has any jobs.
func (l *ledger) mayGo(id string) {
	if l.leaving == nil {
		l.leaving = map[string]bool{}
	}
	l.leaving[id] = true
}

// flushMessages deletes the messages without jobs, or notes until when they are kept.
func (t *tx) flushMessages() error {
	for id := range t.leaving {
		var message, until int64
		err := t.row(sqlLastGone, []any{id, storage.MessageTag(id)}, &message, &until)
		if err == nil && until == 0 {
			err = t.dropMessage(message)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	clear(t.leaving)
	return nil
}

func (t *tx) dropMessage(message int64) error {
	if _, err := t.exec(sqlDropBody, message); err != nil {
		return err
	}
	_, err := t.exec(sqlDropMessage, message)
	return err
}

// purgeMessages deletes messages whose time is over.
func (t *tx) purgeMessages(at int64, step int) error {
	var over []int64
	var message int64
	err := t.each(sqlOver, []any{at}, []any{&message}, func() { over = append(over, message) })
	for i := 0; err == nil && i < min(len(over), step); i++ {
		err = t.dropMessage(over[i])
	}
	return err
}

type messageRow struct {
	Message           int64
	ID, Topic, Cursor string
	PublishedAt       int64 `db:"published_at"`
	KeepUntil         int64 `db:"keep_until"`
	Attributes, Body  []byte
}

func (r *messageRow) message() storage.Message {
	return storage.Message{
		ID: r.ID, Topic: r.Topic, PublishedAt: fromMicros(r.PublishedAt), KeepUntil: timeOrZero(r.KeepUntil),
		Attributes: r.Attributes, Body: r.Body, Cursor: r.Cursor,
	}
}

// Message implements [storage.Topics].
func (s *Store) Message(ctx context.Context, id string) (storage.Message, error) {
	var row messageRow
	err := s.readOne(ctx, row.dest(), sqlMessage, id)
	if errors.Is(err, sql.ErrNoRows) {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.Message{}, err
	}
	row.Body = notNil(row.Body)
	return row.message(), nil
}

// Messages implements [storage.Topics].
func (s *Store) Messages(ctx context.Context, topic string, since time.Time, after string, limit int) (messages []storage.Message, next string, err error) {
	if limit <= 0 {
		return nil, "", s.idle(ctx)
	}
	at, err := selector.ReadPlace(after, messagePlace, 2)
	if err != nil {
		return nil, "", err
	}
	from, key := selector.Bound(since), int64(0)
	if at != nil {
		from, key = at[0], at[1]
	}
	var rows []messageRow
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		return tx.SelectContext(ctx, &rows, sqlMessages, topic, from, key, limit+1)
	})
	if err != nil {
		return nil, "", err
	}
	if len(rows) > limit {
		rows = rows[:limit]
		next = selector.Mark(messagePlace, rows[limit-1].PublishedAt, rows[limit-1].Message)
	}
	for i := range rows {
		messages = append(messages, rows[i].message())
	}
	return messages, next, nil
}
