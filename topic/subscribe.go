package topic

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

// Subscribe adds a subscription. It gets the messages that are published later; in SNS
// mode those after its confirmation.
//
// The topic may have a subscription to the same endpoint, or to the same kind in the same
// queue. Subscribe returns that one if s is the same, or sets only where messages go. In
// the second case the log has the names of the fields that differ, at level Info. Else
// Subscribe returns an [errand.FieldError] for each field that differs. An empty OnDead
// is the same as any. The settings of the endpoint's queue stay as they are. A
// subscription that is not confirmed is sent its confirmation again.
//
// Subscribe returns an [errand.FieldError] for each fault of the subscription, also if
// [errand.Options].Strict refuses its queue, or if its topic or its endpoint is not
// there, which is [errand.ErrNotFound] too.
func (t *Topics) Subscribe(ctx context.Context, s Subscription) (Subscription, error) {
	given := s.ID != ""
	if !given {
		s.ID = "sub_" + strings.ToLower(rand.Text())
	}
	s.State = Confirmed
	if s.SNS {
		s.State = Pending
	}
	if err := t.check(&s); err != nil {
		return Subscription{}, err
	}
	if s.Endpoint != "" {
		if _, err := t.door.Entry(ctx, webhook.EntriesOf(s.Endpoint)[0].Class, s.Endpoint); errors.Is(err, errand.ErrNotFound) {
			return Subscription{}, notThere("endpoint", s.Endpoint, "an endpoint that is there")
		} else if err != nil {
			return Subscription{}, err
		}
	}
	settled, of := false, int64(0)
	err := t.change(ctx, func() ([]storage.Entry, error) {
		of = 0
		entries, err := t.join(ctx, &s, given)
		if err == nil && len(entries) > 0 {
			settled = true
			of, err = t.settle(ctx, &s) // first, so that a Subscribe which is cut short can be done again
		}
		return entries, err
	})
	if err == nil && settled {
		err = t.settleAgain(ctx, &s, of)
	}
	if err == nil && s.State == Pending {
		err = t.askConfirmation(ctx, &s)
	}
	if err != nil {
		return Subscription{}, err
	}
	return t.Subscription(ctx, s.ID)
}

// SubscribeTx is [Topics.Subscribe] inside a transaction of the application on the queue's file,
// see [errand.Queue.EnqueueTx]: the subscription is there if tx commits, and so are what its
// endpoint's queue is to obey and, in SNS mode, its confirmation. tx may have created the topic and the
// endpoint. From the call on until tx has ended nobody else writes to the file. After an error
// roll tx back.
//
// It returns a [errand.FieldError] for an OnDead of Pass if deliveries to the endpoint wait behind
// a dead one: Subscribe lets them go.
func (t *Topics) SubscribeTx(ctx context.Context, tx *sql.Tx, s Subscription) (Subscription, error) {
	in, err := t.inside(tx)
	if err != nil {
		return Subscription{}, err
	}
	return in.Subscribe(ctx, s)
}

// join returns the entries of a new subscription, or none if s is there already, and then
// with the ID that it has.
func (t *Topics) join(ctx context.Context, s *Subscription, given bool) ([]storage.Entry, error) {
	n, revision, err := t.count(ctx, s.Topic)
	if errors.Is(err, errand.ErrNotFound) {
		return nil, notThere("topic", s.Topic, "a topic that is there")
	}
	if err != nil {
		return nil, err
	}
	there, err := t.there(ctx, s, given)
	if there || err != nil {
		return nil, err
	}
	p, err := t.topic(ctx, s.Topic)
	if err != nil {
		return nil, err
	}
	if p.Ordered && n >= mostOrdered {
		return nil, &errand.FieldError{Field: "topic", Value: s.Topic, Limit: fmt.Sprintf("is ordered, and must have at most %d subscriptions", mostOrdered)}
	}
	return t.entriesOf(s, n, revision)
}

// isBare reports whether a subscription says nothing but where messages are sent.
func (s *Subscription) isBare() bool {
	return s.Policy == nil && !s.Raw && !s.SNS && len(s.Filter) == 0 && s.FilterScope == filter.Attributes && s.OnDead == ""
}

// there reports whether the topic has the subscription, and gives s the ID of that one.
func (t *Topics) there(ctx context.Context, s *Subscription, given bool) (bool, error) {
	entry, err := t.door.Entry(ctx, classTarget, s.target())
	switch {
	case err == nil:
		var id string
		if err := json.Unmarshal(entry.Doc, &id); err != nil {
			return false, unreadable(&entry, err)
		}
		was, _, err := t.subscription(ctx, id)
		if errors.Is(err, errand.ErrNotFound) { // both went meanwhile
			return false, nil
		}
		if err != nil {
			return false, err
		}
		faults, err := s.differs(&was, given)
		if err != nil {
			return false, err
		}
		if s.isBare() && (!given || s.ID == was.ID) {
			if names := faults.names(); len(names) > 0 {
				t.opts.Logger.Info("errand: a subscription keeps the fields that the call leaves out", "topic", s.Topic, "subscription", was.ID, "fields", names)
			}
			*s = was
			return true, nil
		}
		if err := faults.err(); err != nil {
			return false, err
		}
		s.ID, s.State = was.ID, was.State
		return true, nil
	case !errors.Is(err, errand.ErrNotFound):
		return false, err
	case !given:
		return false, nil
	}
	if _, _, err = t.subscription(ctx, s.ID); err == nil {
		return false, &errand.FieldError{Field: "id", Value: s.ID, Limit: "must not be that of another subscription"}
	}
	if errors.Is(err, errand.ErrNotFound) {
		err = nil
	}
	return false, err
}

// differs returns a fault for each field that is not that of was, which is a subscription
// to the same.
func (s *Subscription) differs(was *Subscription, given bool) (f faults, err error) {
	limit := func(value string) string {
		if len(value) > 100 {
			value = value[:100] + "..."
		}
		return fmt.Sprintf("must be %s, as that of subscription %q, which is to the same; update that one", cmp.Or(value, "empty"), was.ID)
	}
	if given && s.ID != was.ID {
		f.field("id", s.ID, limit(was.ID))
	}
	mine, err := s.entry(0, 0)
	if err != nil {
		return f, err
	}
	theirs, err := was.entry(0, 0)
	if err != nil {
		return f, err
	}
	var a, b map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(mine.Doc, &a), json.Unmarshal(theirs.Doc, &b)); err != nil {
		return f, err
	}
	escaped := func(value json.RawMessage) string { // < is kept as it was given
		var b bytes.Buffer
		json.HTMLEscape(&b, value)
		return b.String()
	}
	for _, field := range []string{"policy", "raw", "sns", "filter", "filter_scope", "on_dead"} {
		if escaped(a[field]) != escaped(b[field]) && (field != "on_dead" || s.OnDead != "") {
			f.field(field, string(a[field]), limit(string(b[field])))
		}
	}
	return f, nil
}

// entriesOf returns the entries of a new subscription of a topic that has n others.
func (t *Topics) entriesOf(s *Subscription, n int, revision int64) ([]storage.Entry, error) {
	entry, err := s.entry(0, 0)
	if err != nil {
		return nil, err
	}
	count, err := countEntry(s.Topic, n+1, revision)
	if err != nil {
		return nil, err
	}
	id, err := json.Marshal(s.ID)
	if err != nil {
		return nil, err
	}
	entries := []storage.Entry{entry, count, {Class: classTarget, Name: s.target(), Family: familyOf(s.Topic), Doc: id}}
	if s.SNS {
		doc, err := json.Marshal(tokensDoc{Unsubscribe: rand.Text()})
		if err != nil {
			return nil, err
		}
		entries = append(entries, storage.Entry{Class: classTokens, Name: s.ID, Doc: doc})
	}
	return entries, nil
}

// settle has the queue of a subscription's endpoint obey the subscription and its topic, whose
// revision it returns. A Subscribe that finds the subscription leaves the queue as it is: somebody
// may have set it otherwise.
func (t *Topics) settle(ctx context.Context, s *Subscription) (revision int64, err error) {
	if s.OnDead != "" {
		head := storage.BlockDead
		if s.OnDead == Pass {
			head = storage.PassDead
		}
		err := t.door.Configure(ctx, webhook.QueueOf(s.Endpoint), storage.Settings{storage.SettingDeadHead: int64(head)})
		if err != nil {
			return 0, err
		}
	}
	top, err := t.topic(ctx, s.Topic)
	if err != nil {
		return 0, err
	}
	return top.Revision, t.throttle(ctx, s, &top)
}

// settleAgain is for a topic that another call may have changed since the revision that is obeyed.
func (t *Topics) settleAgain(ctx context.Context, s *Subscription, revision int64) error {
	for {
		top, err := t.topic(ctx, s.Topic)
		if err != nil || top.Revision == revision {
			return gone(err)
		}
		revision = top.Revision
		if err := t.throttle(ctx, s, &top); err != nil {
			return gone(err)
		}
	}
}

// askConfirmation sends a subscription its confirmation.
func (t *Topics) askConfirmation(ctx context.Context, s *Subscription) error {
	o := &errand.JobOptions{Queue: webhook.QueueOf(s.Endpoint), Tags: []string{Tag(s.ID)}, Unique: &errand.Unique{Key: s.ID}}
	if t.tx != nil {
		_, err := t.queue.EnqueueTx(ctx, t.tx, confirmation{s.ID}, o)
		return err
	}
	_, err := t.queue.Enqueue(ctx, confirmation{s.ID}, o)
	return err
}
