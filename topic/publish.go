package topic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
)

const (
	// mostDirect is how many deliveries are made in the transaction that publishes a
	// message. If there are more, a job makes them.
	mostDirect = 1000
	// mostInCall is how many a call makes, for all its messages together.
	mostInCall = 10_000
	// mostArgs is how many bytes of args these have together: half of what the queue takes in a
	// call, since middleware may add to it.
	mostArgs = 32 << 20
	// mostMessages is how many messages a call publishes.
	mostMessages = 1000
)

// Published is what Publish has done.
type Published struct {
	// ID is that of the message; of a duplicate, that of the first one.
	ID string `json:"id"`
	// Duplicate is true if a message with its ID or its DedupID was published before. All
	// that follows is zero then.
	Duplicate bool `json:"duplicate,omitempty"`
	// Subscriptions are the IDs of those that get the message, and Jobs their deliveries,
	// in the same order. The job of a delivery that is refused, as with args that would be too
	// large, is one of kind "topic.refused": see [Topics.Publish].
	Subscriptions []string          `json:"subscriptions"`
	Jobs          []errand.Enqueued `json:"jobs"`
	// FanOut is true if one job, the only one of Jobs, makes the deliveries, in steps;
	// Subscriptions is nil then. That is so if more than 1,000 subscriptions get the
	// message, or may get it, if the args of jobs of kinds, which are copies of it, would
	// be more than 32 MiB, or if the queue of a delivery is full.
	FanOut bool `json:"fan_out,omitempty"`
}

// Publish publishes a message to the subscriptions of a topic. When it returns nil the
// message and its deliveries are durable. They are made in one transaction: one for each
// subscription whose filter policy matches, or, if these are more than 1,000, a job that
// makes the deliveries for the subscriptions of this moment. A message that nobody gets is
// kept only as the topic's Keep says.
//
// One subscription does not keep a message from the others. A delivery that is refused,
// as the args of its job would be too large, becomes a job of kind "topic.refused" with
// the tags of the delivery. It is dead at once with the reason, and can be redriven. In
// an ordered topic it has no place in its group: later ones do not wait for it, and it is
// late if it is redriven. If the queue of a subscription is full, a job makes all
// deliveries, and tries again those that find no room. In an ordered topic Publish
// returns [errand.ErrQueueFull] instead, since a later delivery would be out of order. If
// [errand.Options].Middleware returns an error about one delivery, Publish returns it and
// publishes nothing: the error may be gone the next time.
//
// Publish returns an [errand.FieldError] for each fault of the message, also if the topic
// is not there, or if the ID is that of a message of another topic or of package webhook, which
// is [errand.ErrMessageID]. It also returns what [errand.Queue.EnqueueMany] returns.
func (t *Topics) Publish(ctx context.Context, topic string, m Message) (Published, error) {
	return first(t.publish(ctx, nil, topic, []Message{m}, only, t.door.Publish))
}

// PublishTx is [Topics.Publish] inside a transaction of the application on the queue's
// file, see [errand.Queue.EnqueueTx]: the message is published if tx commits. It goes by
// the subscriptions that were committed before, and those that tx has made.
func (t *Topics) PublishTx(ctx context.Context, tx *sql.Tx, topic string, m Message) (Published, error) {
	return first(t.publish(ctx, tx, topic, []Message{m}, only, func(ctx context.Context, p []door.Publication[errand.NewJob]) ([]storage.PublishResult, error) {
		in, err := door.TopicsTx[errand.NewJob](t.queue, tx)
		if err != nil {
			return nil, err
		}
		return in.Publish(ctx, p)
	}))
}

// PublishMany publishes up to 1,000 messages to a topic in one transaction, all or none of
// them, in their order. Together they have at most 64 MiB, and at most 10,000 deliveries in
// an ordered topic; in others, deliveries above that are made by jobs.
func (t *Topics) PublishMany(ctx context.Context, topic string, messages []Message) ([]Published, error) {
	if len(messages) == 0 {
		return nil, ctx.Err()
	}
	if len(messages) > mostMessages {
		return nil, &errand.FieldError{Field: "messages", Value: len(messages), Limit: fmt.Sprintf("must be at most %d in one call", mostMessages)}
	}
	return t.publish(ctx, nil, topic, messages, indexed, t.door.Publish)
}

// only and indexed return the text before the names of a message's fields in faults.
func only(int) string      { return "" }
func indexed(i int) string { return fmt.Sprintf("messages[%d].", i) }

func first(all []Published, err error) (Published, error) {
	if err != nil {
		return Published{}, err
	}
	return all[0], nil
}

type publishFunc func(context.Context, []door.Publication[errand.NewJob]) ([]storage.PublishResult, error)

// mostMatches is how often a call matches its messages anew, as subscriptions have changed
// meanwhile. After that it leaves it to jobs.
const mostMatches = 3

// publish publishes messages, inside of tx unless that is nil, which write does too.
func (t *Topics) publish(ctx context.Context, tx *sql.Tx, topic string, messages []Message, place func(int) string, write publishFunc) ([]Published, error) {
	var f faults
	if f.name("topic", topic); f.err() != nil {
		return nil, f.err()
	}
	own := make([]Message, len(messages))
	for i := range messages {
		own[i] = messages[i]
		own[i].normal()
	}
	// There is no limit to the tries: for each that fails a change of others has succeeded.
	// The first try of PublishTx takes the write lock, and the next one finds no change.
	p := publisher{t: t}
	from, was := t, int64(-1)
	// What only tx sees has a revision that nobody else finds.
	within := func() (is bool, err error) {
		if tx == nil || from != t {
			return false, nil
		}
		was = -1
		from, err = t.inside(tx)
		return true, err
	}
	for try := 0; ; try++ {
		s, err := from.snapshotFor(ctx, topic, try)
		if errors.Is(err, errand.ErrNotFound) {
			if is, failed := within(); failed != nil || is {
				if failed != nil {
					return nil, failed
				}
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		p.s = s
		done, err := p.write(ctx, own, place, write)
		if err == nil {
			p.warn(done)
			return p.results(done), nil
		}
		if !errors.Is(err, errand.ErrStale) {
			return nil, named(p.publications, place, err)
		}
		if s.revision != was {
			was = s.revision
			continue
		}
		switch is, failed := within(); { // nobody has changed it, unless tx has
		case failed != nil:
			return nil, failed
		case !is: // the store is at fault, and might be for ever
			return nil, about("topic", topic, err)
		}
	}
}

// named says in the words of the caller which message and which delivery an error is about.
func named(all []door.Publication[errand.NewJob], place func(int) string, err error) error {
	if e, ok := errors.AsType[*door.JobError](err); ok { // of middleware
		if i, j, ok := at(e.Job, all); ok {
			return ofMessage(place(i), &all[i].Jobs[j], e.Err)
		}
		return err
	}
	f, ok := errors.AsType[*errand.FieldError](err)
	if !ok {
		return err
	}
	if i, j, ok := at(f.Job-1, all); ok {
		return ofMessage(place(i), &all[i].Jobs[j], ofDelivery(err, i, j))
	}
	own := *f
	if id, ok := errors.AsType[*storage.MessageIDError](err); ok {
		own.Field, own.Err = place(id.Publication)+"id", errand.ErrMessageID
		return &own
	}
	if f.Field == "publications" || f.Field == "jobs" {
		own.Field = "messages"
		return &own
	}
	return err
}

// at returns the publication and the job of it that is job n of all of them, if there is one.
func at(n int, all []door.Publication[errand.NewJob]) (i, j int, ok bool) {
	for i := range all {
		if n < len(all[i].Jobs) {
			return i, n, n >= 0
		}
		n -= len(all[i].Jobs)
	}
	return 0, 0, false
}

// ofMessage returns an error about the job of a message, whose fields have names that begin with place.
func ofMessage(place string, job *errand.NewJob, err error) error {
	if o := job.Options; o != nil && len(o.Tags) > 0 { // else it makes the deliveries to all
		err = about("subscription", strings.TrimPrefix(o.Tags[0], Tag("")), err)
	}
	if place == "" {
		return err
	}
	return fmt.Errorf("%s: %w", strings.TrimSuffix(place, "."), err)
}

// snapshotFor returns the snapshot for a try. Where many subscribe at the same time those of
// a topic cannot be read as quickly as they change, and a job goes through them.
func (t *Topics) snapshotFor(ctx context.Context, topic string, try int) (*snapshot, error) {
	if try > mostMatches {
		s, _, err := t.look(ctx, topic, 1)
		if err != nil {
			return nil, err
		}
		if s.many = !s.Ordered; s.many {
			return s, nil
		}
	}
	return t.snapshot(ctx, topic, try > 0)
}

// publisher plans what a call writes.
type publisher struct {
	t            *Topics
	s            *snapshot
	publications []door.Publication[errand.NewJob]
	ids          [][]string // of subscriptions, by publication; nil: a job makes the deliveries
	n            int        // deliveries
	size         int        // of their args
	// apart are the deliveries that were refused, by message and subscription, with the reason.
	apart map[apart]error
	// full is true if a queue of theirs is: a job makes all of them.
	full bool
}

// apart names a delivery of a call.
type apart struct {
	message      int
	subscription string
}

// write plans and writes, and again without the deliveries that are refused.
func (p *publisher) write(ctx context.Context, messages []Message, place func(int) string, write publishFunc) ([]storage.PublishResult, error) {
	for {
		p.publications, p.ids, p.n, p.size = nil, nil, 0, 0
		if err := p.plan(messages, place); err != nil {
			return nil, err
		}
		done, err := write(ctx, p.publications)
		if err == nil || !p.without(err) {
			return done, err
		}
	}
}

// without reports whether an error is about single deliveries, which are then left to jobs of
// their own.
func (p *publisher) without(err error) bool {
	if full, ok := errors.AsType[*errand.QueueFullError](err); ok {
		if p.full || p.s.Ordered || full.Queue == "" || p.s.many {
			return false
		}
		p.full = true
		return true
	}
	found := map[apart]error{}
	for _, fault := range flat(err) {
		f, ok := errors.AsType[*errand.FieldError](fault)
		if _, foreign := errors.AsType[*door.JobError](fault); !ok || foreign {
			return false
		}
		i, j, ok := at(f.Job-1, p.publications)
		if !ok || p.ids[i] == nil {
			return false
		}
		a := apart{i, p.ids[i][j]}
		if p.apart[a] != nil { // it is by itself already
			return false
		}
		found[a] = ofDelivery(fault, i, j)
	}
	if p.apart == nil {
		p.apart = map[apart]error{}
	}
	maps.Copy(p.apart, found)
	return true
}

// flat returns the errors that err joins.
func flat(err error) (all []error) {
	if _, ok := err.(*errand.FieldError); !ok { //nolint:errorlint // what joins or wraps one is taken apart
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				all = append(all, flat(e)...)
			}
			return all
		}
	}
	return []error{err}
}

// ofDelivery returns an error about job j of publication i with the name of the field alone.
func ofDelivery(err error, i, j int) error {
	f, ok := errors.AsType[*errand.FieldError](err)
	if !ok || f.Job == 0 {
		return err
	}
	own := *f
	own.Job, own.Field = 0, strings.TrimPrefix(f.Field, door.Place(i, j))
	return &own
}

// warn logs the deliveries that were refused. Those of a duplicate were logged with the first one.
func (p *publisher) warn(done []storage.PublishResult) {
	for a, err := range p.apart {
		if i := a.message; !done[i].Duplicate && p.ids[i] != nil && slices.Contains(p.ids[i], a.subscription) {
			p.t.refused(p.s.Name, a.subscription, p.publications[i].Message.ID, err)
		}
	}
}

// plan checks messages, and matches them.
func (p *publisher) plan(messages []Message, place func(int) string) error {
	var errs []error
	for i := range messages {
		errs = append(errs, messages[i].check(place(i), &p.s.Topic))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range messages {
		if err := p.add(i, &messages[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *publisher) add(i int, m *Message) error {
	now, at := p.t.now(), wall()
	pub, err := m.publication(&p.s.Topic, now, at)
	if err != nil {
		return err
	}
	pub.Family, pub.Revision = familyOf(p.s.Name), p.s.revision
	seen := m.published(at)
	to := p.receivers(seen)
	switch {
	case to == nil && p.s.Ordered:
		return &errand.FieldError{
			Field: "messages", Value: fmt.Sprintf("more than %d deliveries", mostInCall), Limit: fmt.Sprintf("must have at most %d in one call in an ordered topic", mostInCall),
		}
	case to == nil:
		pub.Jobs = []errand.NewJob{fanOut{Topic: p.s.Name, Message: m.ID, Revision: p.s.revision}.job()}
		p.ids = append(p.ids, nil)
	default:
		ids := make([]string, len(to))
		for n, member := range to {
			job, err := member.delivery(&p.s.Topic, seen)
			if err != nil {
				return err
			}
			if err := p.apart[apart{i, member.ID}]; err != nil {
				job = fanOut{Topic: p.s.Name, Message: m.ID, Revision: p.s.revision}.again(member.ID, seen, err)
			}
			pub.Jobs, ids[n] = append(pub.Jobs, job), member.ID
		}
		p.ids = append(p.ids, ids)
	}
	p.n += len(pub.Jobs)
	p.publications = append(p.publications, pub)
	return nil
}

// receivers returns the subscriptions that get a message, or nil if there are too many.
func (p *publisher) receivers(m *published) []*member {
	if p.s.many || p.full {
		return nil
	}
	to, size := []*member{}, p.size
	for _, member := range p.s.members {
		if !member.gets(m) {
			continue
		}
		if n := p.n + len(to); len(to) == mostDirect || n >= mostInCall || n >= mostInCall-mostMessages && !p.s.Ordered {
			return nil
		}
		if size += member.size(m); size > mostArgs && !p.s.Ordered {
			return nil
		}
		to = append(to, member)
	}
	p.size = size
	return to
}

func (p *publisher) results(done []storage.PublishResult) []Published {
	all := make([]Published, len(done))
	for i, r := range done {
		all[i] = Published{ID: r.ID, Duplicate: r.Duplicate}
		if !r.Duplicate {
			all[i].Subscriptions, all[i].Jobs, all[i].FanOut = p.ids[i], r.Jobs, p.ids[i] == nil
		}
	}
	return all
}
