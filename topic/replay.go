package topic

import (
	"context"
	"errors"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic/filter"
)

// replayStep is how many messages a step of a replay looks at.
const replayStep = 200

// Replay delivers again to a subscription the messages that were published at since or
// later and that its filter policy matches, also those that it has had, and those from
// before it was there. It returns how many. The messages must still be there, see
// [Topic].Keep. Each has the ID that it has had, and they come in the order in which they
// were published.
//
// A delivery that is refused becomes a job of its own, as with [Topics.Publish], and
// counts. In an ordered topic Replay stops if the queue of the subscription is full, and
// names the message.
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
		var again []replay
		for i := range kept {
			if again, err = t.again(ctx, again, &kept[i], to, &top); err != nil {
				return n, err
			}
		}
		done, err := t.republish(ctx, to, &top, again)
		if n += done; err != nil || next == "" {
			return n, err
		}
		after = next
	}
}

// replay is a message that is delivered again, with the job.
type replay struct {
	m   *published // its ID and tags: the job has the rest, if it needs that
	job errand.NewJob
}

func (r *replay) publication() door.Publication[errand.NewJob] {
	return door.Publication[errand.NewJob]{Message: storage.Message{ID: r.m.id}, Existing: true, Jobs: []errand.NewJob{r.job}}
}

// again adds a message that a subscription gets.
func (t *Topics) again(ctx context.Context, all []replay, kept *storage.Message, to *member, top *Topic) ([]replay, error) {
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
	return append(all, replay{&published{messageDoc: messageDoc{Tags: m.Tags}, id: m.id}, job}), err
}

// republish publishes messages that were there, and passes over those that are there no more. If
// one of them is refused, each is published by itself.
func (t *Topics) republish(ctx context.Context, to *member, top *Topic, all []replay) (n int, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	publications := make([]door.Publication[errand.NewJob], len(all))
	for i := range all {
		publications[i] = all[i].publication()
	}
	if _, err = t.door.Publish(ctx, publications); err == nil {
		return len(all), nil
	}
	if !errors.Is(err, errand.ErrNotFound) && !isRefused(err) {
		return 0, err
	}
	for i := range all {
		err := t.republishOne(ctx, to, top, &all[i])
		if err == nil {
			n++
		} else if !errors.Is(err, errand.ErrNotFound) {
			return n, about("subscription", to.ID, about("message", all[i].m.id, ofDelivery(err, 0, 0)))
		}
	}
	return n, nil
}

// republishOne publishes a message, or the job that tries it again if its delivery is refused. In an
// ordered topic such a job would be late where a full queue has room again.
func (t *Topics) republishOne(ctx context.Context, to *member, top *Topic, r *replay) error {
	_, err := t.door.Publish(ctx, []door.Publication[errand.NewJob]{r.publication()})
	if !isRefused(err) || top.Ordered && errors.Is(err, errand.ErrQueueFull) {
		return err
	}
	why := err
	// The message may be from before the subscription was there.
	r.job = fanOut{Topic: top.Name, Message: r.m.id, Revision: to.joined}.again(to.ID, r.m, why)
	if _, err = t.door.Publish(ctx, []door.Publication[errand.NewJob]{r.publication()}); err == nil {
		t.refused(top.Name, to.ID, r.m.id, why)
	}
	return err
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
