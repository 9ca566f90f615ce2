package topic

import (
	"context"
	"database/sql"
	"errors"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/remember"
)

// Declare ensures that a topic is as p says, for a program that calls it each time it
// starts. It adds a topic that is not there, as [Topics.Create] does. It writes nothing
// if the topic is the same, and else updates it, as [Topics.Update] does. At level Info
// the log has a line for a topic that is added, and one with the names of the fields that
// change. In p the fields that the queue sets are ignored, also Revision: of two programs
// that declare a topic differently the last one counts.
//
// It returns the topic, or an [errand.FieldError] for each fault of p, also if Ordered is not
// that of the topic.
func (t *Topics) Declare(ctx context.Context, p Topic) (Topic, error) {
	if err := t.checkNew(&p); err != nil {
		return Topic{}, err
	}
	p.Revision = 0
	var err error
	for range mostTries {
		var is Topic
		if is, err = t.declare(ctx, p); !errors.Is(err, errand.ErrStale) && !errors.Is(err, errand.ErrNotFound) {
			return is, err
		} // another has added, changed or deleted it meanwhile
	}
	return Topic{}, err
}

// DeclareTx is [Topics.Declare] inside a transaction of the application on the queue's file, see
// [errand.Queue.EnqueueTx] and [Topics.CreateTx]: the topic is as p says if tx commits, and so
// are the throttles of the endpoints that its policy changes. The log has its line at once.
func (t *Topics) DeclareTx(ctx context.Context, tx *sql.Tx, p Topic) (Topic, error) {
	in, err := t.inside(tx)
	if err != nil {
		return Topic{}, err
	}
	return in.Declare(ctx, p)
}

func (t *Topics) declare(ctx context.Context, p Topic) (Topic, error) {
	was, err := t.Topic(ctx, p.Name)
	if errors.Is(err, errand.ErrNotFound) {
		is, err := t.Create(ctx, p)
		if err == nil {
			t.opts.Logger.Info("errand: a topic is added because the program declares it", "topic", p.Name)
		}
		return is, err
	}
	if err != nil {
		return Topic{}, err
	}
	fields, err := p.changes(&was)
	if err != nil {
		return Topic{}, err
	}
	if len(fields) == 0 {
		return t.throttled(ctx, &was)
	}
	p.Revision = was.Revision
	is, err := t.Update(ctx, p)
	if err == nil {
		t.opts.Logger.Info("errand: a topic is changed to what the program declares", "topic", p.Name, "fields", fields)
	}
	return is, err
}

// throttled returns a topic that is as it is declared, once its endpoints obey it: a change may have
// been cut short.
func (t *Topics) throttled(ctx context.Context, p *Topic) (Topic, error) {
	entry, err := t.door.Entry(ctx, classTopic, p.Name)
	if err != nil || !isUnthrottled(&entry) || t.webhooks == nil { // who has webhooks does it
		return *p, err
	}
	if err := t.throttleAll(ctx, p.Name); err != nil {
		return Topic{}, about("topic", p.Name, err)
	}
	return t.Topic(ctx, p.Name)
}

// changes returns the names of the fields in which p is not as a topic that is there.
func (p *Topic) changes(was *Topic) ([]string, error) {
	given, err := p.entry(0)
	if err != nil {
		return nil, err
	}
	read, err := topicOf(&given) // a policy has several forms
	if err != nil {
		return nil, err
	}
	now, err := read.entry(0)
	if err != nil {
		return nil, err
	}
	before, err := was.entry(0)
	if err != nil {
		return nil, err
	}
	return remember.Differing(now.Doc, before.Doc)
}
