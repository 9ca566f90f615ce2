package topic

import (
	"context"
	"errors"
	"time"

	"github.com/errandq/errand"
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
// subscriptions: those of Topic at Revision, or Only the one whose delivery was refused.
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
		if a.Only != "" {
			return t.fanOutOnly(ctx, a, m)
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
	most := fanOutStep
	for after := from; err == nil && from != fannedOut; {
		var entries []errand.Entry
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
			if from, err = t.deliverPart(ctx, a, &p, from); err != nil {
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
func (t *Topics) deliverPart(ctx context.Context, a *fanOut, p *part, from string) (string, error) {
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
			t.opts.Logger.Warn("errand: delivery to a subscription is refused, and tried again by itself",
				"topic", a.Topic, "subscription", id, "message", a.Message, "error", err)
			again := *a
			again.Only = id
			err = t.deliverAt(ctx, a.Message, from, to, []errand.NewJob{again.job()})
		}
		if err != nil {
			return from, err
		}
		from = to
	}
	return from, nil
}

// isRefused reports whether an error may be about one delivery only.
func isRefused(err error) bool {
	return errors.Is(err, errand.ErrQueueFull) || errors.Is(err, errand.ErrInvalid)
}

func (t *Topics) deliverAt(ctx context.Context, message, from, to string, jobs []errand.NewJob) error {
	_, err := t.door.Publish(ctx, []errand.Publication{{Message: errand.Message{ID: message}, Existing: true, From: from, To: to, Jobs: jobs}})
	return err
}

// fanOutOnly makes the delivery that was refused. The error names the subscription.
func (t *Topics) fanOutOnly(ctx context.Context, a *fanOut, m *published) error {
	top, err := t.topic(ctx, a.Topic)
	if err != nil {
		return gone(err)
	}
	entry, err := t.door.Entry(ctx, classSubscription, a.Only)
	if err != nil {
		return gone(err)
	}
	parts, err := deliveries([]errand.Entry{entry}, a, &top, m, fannedOut, 1)
	if err != nil || len(parts) == 0 {
		return err
	}
	err = about("subscription", a.Only, t.deliverAt(ctx, a.Message, "", "", parts[0].jobs))
	if errors.Is(err, errand.ErrInvalid) {
		return errand.Permanent(err) // as with args that are too large
	}
	return err
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
func deliveries(entries []errand.Entry, a *fanOut, top *Topic, m *published, last string, most int) (parts []part, err error) {
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
