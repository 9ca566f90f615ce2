package topic

import (
	"context"
	"errors"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
)

const (
	// fanOutStep is how many subscriptions a step of a publication looks at: most machines
	// write so many jobs in less than 10 ms. Where a transaction takes longer than slowStep, as
	// on a slow or busy machine, the next ones have fewer jobs, so that others wait no longer.
	fanOutStep = 200
	leastStep  = 10
	slowStep   = 40 * time.Millisecond
	quickStep  = slowStep / 4
	// mostStep is how many bytes of args the jobs of a transaction have, but for a single one.
	mostStep = 1 << 20
	// fannedOut is the cursor of a message all of whose deliveries are there. It comes after
	// every ID.
	fannedOut = "~"
)

// fanOut is the args of the job that makes the deliveries of a message to many
// subscriptions: those of Topic at Revision, or Only the one whose queue was full.
type fanOut struct {
	Topic    string `json:"topic"`
	Message  string `json:"message"`
	Revision int64  `json:"revision"`
	Only     string `json:"only,omitempty"`
}

// job returns the job.
func (a fanOut) job() errand.NewJob {
	return errand.NewJob{Args: a, Options: &errand.JobOptions{Queue: queueOf(a.Topic)}}
}

// again returns the job that tries the delivery of m to a subscription again, as err has refused
// it. One that dies of that has a kind of its own: the brake, which looks at the jobs of one kind
// in a queue, then holds none that has deliveries to make.
func (a fanOut) again(subscription string, m *published, err error) errand.NewJob {
	a.Only = subscription
	job := a.job()
	job.Options.Tags = append([]string{Tag(subscription)}, m.Tags...)
	if !errors.Is(err, errand.ErrQueueFull) {
		job.Args = refusal(a)
	}
	return job
}

// Kind implements [errand.Args].
func (fanOut) Kind() string { return "topic.fanout" }

// refusal is the args of the job that makes a single delivery: one that was refused, and will
// be until its subscription or the options have changed.
type refusal fanOut

// Kind implements [errand.Args].
func (refusal) Kind() string { return "topic.refused" }

// fanOut is the handler of publications to many subscriptions. It goes through them by ID.
// Each step is a transaction, which also writes how far it has come to the message, so a
// step that is repeated after a crash is refused. A step has few subscriptions in memory,
// whatever their number.
func (t *Topics) fanOut(ctx context.Context, job *errand.Job[fanOut]) error {
	a := &job.Args
	for {
		m, from, err := t.kept(ctx, a.Message)
		if err != nil {
			return err
		}
		if a.Only != "" {
			err = t.fanOutOnly(ctx, a, m)
			if errors.Is(err, errand.ErrInvalid) {
				return t.deliverAt(ctx, a.Message, "", "", []errand.NewJob{a.again(a.Only, m, err)})
			}
			return err
		}
		if err = t.fanOutFrom(ctx, a, m, from); !errors.Is(err, errand.ErrStale) {
			return err
		}
	}
}

// kept returns a message, and how far its deliveries have come. The error is a verdict.
func (t *Topics) kept(ctx context.Context, id string) (m *published, from string, err error) {
	kept, err := t.door.Message(ctx, id)
	if errors.Is(err, errand.ErrNotFound) {
		return nil, "", errand.Permanent(about("message", id, err))
	}
	if err != nil {
		return nil, "", err
	}
	m, err = publishedOf(&kept)
	return m, kept.Cursor, err
}

// deliverRefused is the handler of deliveries that were refused.
func (t *Topics) deliverRefused(ctx context.Context, job *errand.Job[refusal]) error {
	a := fanOut(job.Args)
	m, _, err := t.kept(ctx, a.Message)
	if err != nil {
		return err
	}
	if err = t.fanOutOnly(ctx, &a, m); errors.Is(err, errand.ErrInvalid) {
		return errand.Permanent(err) // as with args that are too large
	}
	return err
}

// fanOutFrom makes the deliveries from a place on.
func (t *Topics) fanOutFrom(ctx context.Context, a *fanOut, m *published, from string) error {
	top, err := t.topic(ctx, a.Topic)
	if errors.Is(err, errand.ErrNotFound) {
		return nil // and so are its subscriptions
	}
	most := fanOutStep
	for after := from; err == nil && from != fannedOut; {
		var entries []storage.Entry
		entries, _, err = t.door.Entries(ctx, classSubscription, familyOf(a.Topic), after, fanOutStep)
		if err != nil {
			return err
		}
		last := fannedOut
		if len(entries) == fanOutStep {
			last = entries[len(entries)-1].Name
		}
		parts, err := deliveries(entries, a, &top, m, last, most)
		if err != nil {
			return err
		}
		after = last
		if len(parts) == 0 && last == fannedOut {
			parts = []part{{to: last}}
		}
		for _, p := range parts {
			began := time.Now()
			if from, err = t.deliverPart(ctx, a, m, &p, from); err != nil {
				return err
			}
			most = nextStep(most, time.Since(began))
		}
	}
	return err
}

// nextStep returns how many jobs the next transaction may have, after one that had at most n
// and took this time.
func nextStep(n int, took time.Duration) int {
	switch {
	case took > slowStep:
		return max(n/2, leastStep)
	case took < quickStep:
		return min(2*n, fanOutStep)
	}
	return n
}

// part is what a transaction writes.
type part struct {
	jobs []errand.NewJob
	ids  []string // of their subscriptions
	to   string   // the place that is reached then
	size int      // of the args of jobs
}

// deliverPart makes the deliveries of a part, and returns the place that is reached. If one of
// them is refused, each is made by itself, and a job of its own tries that one again.
func (t *Topics) deliverPart(ctx context.Context, a *fanOut, m *published, p *part, from string) (string, error) {
	err := t.deliverAt(ctx, a.Message, from, p.to, p.jobs)
	if !isRefused(err) || len(p.jobs) == 0 {
		return p.to, err
	}
	for i, id := range p.ids {
		to := id
		if i == len(p.ids)-1 {
			to = p.to
		}
		if err = t.deliverAt(ctx, a.Message, from, to, p.jobs[i:i+1]); isRefused(err) {
			why := err
			if err = t.deliverAt(ctx, a.Message, from, to, []errand.NewJob{a.again(id, m, why)}); err == nil {
				t.refused(a.Topic, id, a.Message, why)
			}
		}
		if err != nil {
			return from, err
		}
		from = to
	}
	return from, nil
}

// refused logs that a delivery is refused, for which there is a job of its own now.
func (t *Topics) refused(topic, subscription, message string, err error) {
	attrs := []any{"topic", topic, "subscription", subscription, "message", message, "error", ofDelivery(err, 0, 0)}
	if errors.Is(err, errand.ErrQueueFull) {
		t.opts.Logger.Warn("errand: delivery to a subscription is refused, and tried again by itself", attrs...)
		return
	}
	t.opts.Logger.Warn("errand: delivery to a subscription is refused, and dead until it is redriven", attrs...)
}

// isRefused reports whether an error may be about one delivery only.
func isRefused(err error) bool {
	return errors.Is(err, errand.ErrQueueFull) || errors.Is(err, errand.ErrInvalid)
}

func (t *Topics) deliverAt(ctx context.Context, message, from, to string, jobs []errand.NewJob) error {
	_, err := t.door.Publish(ctx, []door.Publication[errand.NewJob]{{Message: storage.Message{ID: message}, Existing: true, From: from, To: to, Jobs: jobs}})
	return err
}

// fanOutOnly makes a delivery that was refused. The error names the subscription.
func (t *Topics) fanOutOnly(ctx context.Context, a *fanOut, m *published) error {
	top, err := t.topic(ctx, a.Topic)
	if err != nil {
		return gone(err)
	}
	entry, err := t.door.Entry(ctx, classSubscription, a.Only)
	if err != nil {
		return gone(err)
	}
	parts, err := deliveries([]storage.Entry{entry}, a, &top, m, fannedOut, 1)
	if err != nil || len(parts) == 0 {
		return err
	}
	if err = t.deliverAt(ctx, a.Message, "", "", parts[0].jobs); err == nil {
		return nil
	}
	return about("subscription", a.Only, ofDelivery(err, 0, 0))
}

// gone returns nil for what is there no more, and so gets nothing.
func gone(err error) error {
	if errors.Is(err, errand.ErrNotFound) {
		return nil
	}
	return err
}

// deliveries returns the jobs of the subscriptions that get a message, in parts of at most
// most jobs. Subscriptions that came after its publication get none. The last part reaches
// the place last.
func deliveries(entries []storage.Entry, a *fanOut, top *Topic, m *published, last string, most int) (parts []part, err error) {
	for i := range entries {
		member, err := memberOf(&entries[i])
		if err != nil {
			return nil, err
		}
		if member.Topic != a.Topic || member.joined > a.Revision || !member.gets(m) {
			continue
		}
		job, err := member.delivery(top, m)
		if err != nil {
			return nil, err
		}
		size := member.size(m)
		if n := len(parts); n == 0 || parts[n-1].size+size > mostStep || len(parts[n-1].jobs) >= most {
			parts = append(parts, part{})
		}
		p := &parts[len(parts)-1]
		p.jobs, p.ids, p.to, p.size = append(p.jobs, job), append(p.ids, member.ID), member.ID, p.size+size
	}
	if n := len(parts); n > 0 {
		parts[n-1].to = last
	}
	return parts, nil
}
