package topic

import (
	"context"
	"errors"

	"github.com/errandq/errand"
)

const (
	// fanOutStep is how many subscriptions a step of a publication looks at: so many jobs
	// are written in less than 50 ms.
	fanOutStep = 200
	// fannedOut is the cursor of a message all of whose deliveries are there. It comes after
	// every ID.
	fannedOut = "~"
)

// fanOut is the args of the job that makes the deliveries of a message to many
// subscriptions: those of Topic at Revision.
type fanOut struct {
	Topic    string `json:"topic"`
	Message  string `json:"message"`
	Revision int64  `json:"revision"`
}

// Kind implements [errand.Args].
func (fanOut) Kind() string { return "topic.fanout" }

// fanOut is the handler of publications to many subscriptions. It goes through them by ID.
// Each step is a transaction, which also writes how far it has come to the message, so a
// step that is repeated after a crash is refused. A step has few subscriptions in memory,
// whatever their number.
func (t *Topics) fanOut(ctx context.Context, job *errand.Job[fanOut]) error {
	a := &job.Args
	for {
		kept, err := t.door.Message(ctx, a.Message)
		if errors.Is(err, errand.ErrNotFound) {
			return errand.Permanent(about("message", a.Message, err))
		}
		if err != nil {
			return err
		}
		m, err := publishedOf(&kept)
		if err != nil {
			return err
		}
		if err = t.fanOutFrom(ctx, a, m, kept.Cursor); !errors.Is(err, errand.ErrStale) {
			return err
		}
	}
}

// fanOutFrom makes the deliveries from a place on.
func (t *Topics) fanOutFrom(ctx context.Context, a *fanOut, m *published, from string) error {
	top, err := t.topic(ctx, a.Topic)
	if errors.Is(err, errand.ErrNotFound) {
		return nil // and so are its subscriptions
	}
	for after := from; err == nil && from != fannedOut; {
		var entries []errand.Entry
		entries, _, err = t.door.Entries(ctx, classSubscription, familyOf(a.Topic), after, fanOutStep)
		if err != nil {
			return err
		}
		jobs, err := deliveries(entries, a, &top, m)
		if err != nil {
			return err
		}
		if after = fannedOut; len(entries) == fanOutStep {
			after = entries[len(entries)-1].Name
		}
		if len(jobs) == 0 && after != fannedOut {
			continue
		}
		step := []errand.Publication{{Message: errand.Message{ID: a.Message}, Existing: true, From: from, To: after, Jobs: jobs}}
		_, err = t.door.Publish(ctx, step)
		if errors.Is(err, errand.ErrInvalid) {
			return errand.Permanent(named(step, err)) // as with args that are too large; a redrive goes on here
		}
		if err != nil {
			return err
		}
		from = after
	}
	return err
}

// deliveries returns the jobs of the subscriptions that get a message. Those that came
// after its publication do not.
func deliveries(entries []errand.Entry, a *fanOut, top *Topic, m *published) (jobs []errand.NewJob, err error) {
	for i := range entries {
		member, err := memberOf(&entries[i])
		if err != nil {
			return nil, err
		}
		if member.joined > a.Revision || !member.gets(m) {
			continue
		}
		job, err := member.delivery(top, m)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}
