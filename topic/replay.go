package topic

import (
	"context"
	"errors"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic/filter"
)

// replayStep is how many messages a step of a replay looks at.
const replayStep = 200

// Replay delivers the messages again to a subscription that were published at since or
// later, and that its filter policy matches, also those that it has had, and those from
// before it was there. It returns how many that are. The messages have to be there still,
// see [Topic].Keep. Each has the ID that it has had, and they come in the order in which
// they were published.
//
// Replay works in steps. If it returns an error too, those that it counts are on their way.
func (t *Topics) Replay(ctx context.Context, subscription string, since time.Time) (n int, err error) {
	_, entry, err := t.subscription(ctx, subscription)
	if err != nil {
		return 0, err
	}
	to, err := memberOf(&entry)
	if err != nil {
		return 0, err
	}
	if to.State == Pending {
		return 0, &errand.FieldError{Field: "subscription", Value: subscription, Limit: "must be confirmed"}
	}
	top, err := t.topic(ctx, to.Topic)
	if err != nil {
		return 0, err
	}
	for after := ""; ; {
		kept, next, err := t.door.Messages(ctx, familyOf(to.Topic), since, after, replayStep)
		if err != nil {
			return n, err
		}
		var again []errand.Publication
		for i := range kept {
			if again, err = t.again(ctx, again, &kept[i], to, &top); err != nil {
				return n, err
			}
		}
		done, err := t.republish(ctx, again)
		if n += done; err != nil || next == "" {
			return n, err
		}
		after = next
	}
}

// again adds the publication of a message to a subscription that gets it.
func (t *Topics) again(ctx context.Context, all []errand.Publication, kept *errand.Message, to *member, top *Topic) ([]errand.Publication, error) {
	if to.FilterScope == filter.Body && len(to.Filter) > 0 || to.Kind != "" {
		full, err := t.door.Message(ctx, kept.ID)
		if errors.Is(err, errand.ErrNotFound) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		kept = &full
	}
	m, err := publishedOf(kept)
	if err != nil || !to.gets(m) {
		return all, err
	}
	job, err := to.delivery(top, m)
	return append(all, errand.Publication{Message: errand.Message{ID: m.id}, Existing: true, Jobs: []errand.NewJob{job}}), err
}

// republish publishes messages that were there, and passes over those that are there no
// more.
func (t *Topics) republish(ctx context.Context, all []errand.Publication) (n int, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	if _, err = t.door.Publish(ctx, all); err == nil || !errors.Is(err, errand.ErrNotFound) {
		if err == nil {
			n = len(all)
		}
		return n, err
	}
	for i := range all {
		_, err := t.door.Publish(ctx, all[i:i+1])
		if err == nil {
			n++
		} else if !errors.Is(err, errand.ErrNotFound) {
			return n, err
		}
	}
	return n, nil
}

// Redrive makes the dead deliveries of a subscription ready again, as
// [errand.DeadLetters.Redrive] does. It returns [errand.ErrNotFound] if there is no such
// subscription.
func (t *Topics) Redrive(ctx context.Context, subscription string) (errand.RedriveResult, error) {
	if _, err := t.Subscription(ctx, subscription); err != nil {
		return errand.RedriveResult{}, err
	}
	return t.queue.DeadLetters().Redrive(ctx, errand.JobFilter{Tag: Tag(subscription)}, nil)
}
