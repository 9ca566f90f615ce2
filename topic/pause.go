package topic

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/webhook"
)

const (
	// A delivery of a paused subscription looks again after this time, and then each time after
	// twice as long as before, up to mostPaused: Resume makes all due, but for those whose look
	// is under way.
	leastPaused = time.Minute
	mostPaused  = 4 * time.Hour
)

// Pause keeps the deliveries of a subscription to an endpoint back until [Topics.Resume].
// The subscription still gets messages, whose deliveries wait. Each looks from time to
// time whether the pause is over, which counts as a snooze and uses up no retry. Other
// subscriptions to the endpoint go on, and so do deliveries under way. The state is
// durable, and all processes obey it. Pause does nothing if the subscription is paused.
//
// It returns [errand.ErrNotFound] if there is no such subscription, and an [errand.FieldError]
// for one that is not confirmed, or is to a kind: [errand.Queue.Hold] holds the jobs of a kind.
func (t *Topics) Pause(ctx context.Context, id string) error {
	_, err := t.pause(ctx, id, Paused)
	return err
}

// Resume ends a pause, and makes the waiting deliveries of the subscription at once, as
// [errand.Queue.RunNow] does. A delivery that looks at that moment is made at its next
// look, up to 4 h later, or at once by another call of Resume. Resume reports whether the
// subscription was paused. If it was cut short, another call does it again. It returns
// the errors of [Topics.Pause].
func (t *Topics) Resume(ctx context.Context, id string) (bool, error) {
	s, err := t.pause(ctx, id, Confirmed)
	if err != nil {
		return false, err
	}
	_, err = t.queue.RunNow(ctx, errand.JobFilter{Queue: webhook.QueueOf(s.Endpoint), Tag: Tag(id)}, nil)
	return s.State == Paused, err
}

// pause sets the state of a subscription, and returns it as it was.
func (t *Topics) pause(ctx context.Context, id string, state State) (was Subscription, err error) {
	err = t.change(ctx, func() ([]storage.Entry, error) {
		var entry storage.Entry
		if was, entry, err = t.subscription(ctx, id); err != nil {
			return nil, err
		}
		switch {
		case was.Kind != "":
			return nil, &errand.FieldError{Field: "subscription", Value: id, Limit: "must be to an endpoint; for one to a kind hold the lane of its jobs"}
		case was.State == Pending:
			return nil, &errand.FieldError{Field: "subscription", Value: id, Limit: "must be confirmed"}
		case was.State == state:
			return nil, nil
		}
		_, joined, err := subscriptionOf(&entry)
		if err != nil {
			return nil, err
		}
		now := was
		now.State = state
		changed, err := now.entry(was.Revision, joined)
		return []storage.Entry{changed}, err
	})
	return was, err
}

// whilePaused returns the verdict on a delivery of a paused subscription, by its number of snoozes.
func whilePaused(id string, snoozes int) error {
	return errand.Snooze(min(leastPaused<<min(snoozes, 16), mostPaused), fmt.Errorf("subscription %q is paused", id))
}
