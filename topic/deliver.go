package topic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/webhook"
)

// delivery is the args of the job that delivers a message to an endpoint.
type delivery struct {
	Topic        string `json:"topic"`
	Subscription string `json:"subscription"`
	Message      string `json:"message"`
}

// Kind implements [errand.Args].
func (delivery) Kind() string { return "topic" }

// deliver is the handler of deliveries. All but the IDs is as of each attempt, so a change
// reaches deliveries that wait.
func (t *Topics) deliver(ctx context.Context, job *errand.Job[delivery]) error {
	in, err := t.inputs(ctx, &job.Args, job.Queue)
	if err != nil {
		return err
	}
	s := &in.subscription
	if s.State == Paused {
		return whilePaused(s.ID, job.Snoozes)
	}
	if in.gone != nil {
		return errand.Permanent(about("message", job.Args.Message, in.gone))
	}
	m, err := publishedOf(&in.message)
	if err != nil {
		return err
	}
	o, err := t.outgoing(ctx, s, &in.topic, m)
	if err != nil {
		return notRead(err)
	}
	o.Attempt, o.Revisions = job.Attempt, in.revisions
	began := t.now()
	answer, err := t.webhooks.Deliver(ctx, o)
	t.status(ctx, &attempt{s: s, m: m, job: job.ID, n: job.Attempt, began: began, answer: answer, err: err})
	return err
}

// inputs are what an attempt goes by.
type inputs struct {
	subscription Subscription
	topic        Topic
	message      storage.Message
	gone         error   // why there is no message; nil: there is one
	revisions    []int64 // of the entries of the endpoint; nil: not known
}

// inputs reads what an attempt goes by: the message with the revisions of all else, and what has
// changed since it was read last. queue is that of the job, which names the endpoint. The error
// is a verdict.
func (t *Topics) inputs(ctx context.Context, d *delivery, queue string) (in inputs, err error) {
	names := []storage.EntryName{{Class: classSubscription, Name: d.Subscription}, {Class: classTopic, Name: d.Topic}}
	endpoint, _ := strings.CutPrefix(queue, webhook.QueueOf(""))
	if isName(endpoint, maxEndpoint, "_-") { // else somebody has moved the job
		names = append(names, webhook.EntriesOf(endpoint)...)
	}
	var revisions []int64
	in.message, revisions, err = t.door.MessageWith(ctx, d.Message, names...)
	switch {
	case errors.Is(err, errand.ErrNotFound):
		in.gone = err
		in.subscription, in.topic, err = t.read(ctx, d.Subscription)
		return in, err
	case err != nil:
		return in, notRead(err)
	}
	s, ok := t.subscriptionsRead.At(d.Subscription, revisions[0])
	top, known := t.topicsRead.At(d.Topic, revisions[1])
	if ok && known && s.Topic == d.Topic {
		in.subscription, in.topic = s, top
	} else if in.subscription, in.topic, err = t.read(ctx, d.Subscription); err != nil {
		return in, err
	}
	if in.subscription.Endpoint == endpoint {
		in.revisions = revisions[2:]
	}
	return in, nil
}

// read returns a subscription and its topic for an attempt, and remembers them, or the verdict if
// they are not there.
func (t *Topics) read(ctx context.Context, id string) (s Subscription, top Topic, err error) {
	s, entry, err := t.subscription(ctx, id)
	if err == nil {
		t.subscriptionsRead.Put(id, s.Revision, len(entry.Doc), s)
		if entry, err = t.door.Entry(ctx, classTopic, s.Topic); err == nil {
			top, err = topicOf(&entry)
		}
		if err = about("topic", s.Topic, err); err == nil {
			t.topicsRead.Put(top.Name, top.Revision, len(entry.Doc), top)
		}
	}
	switch {
	case errors.Is(err, errand.ErrNotFound):
		err = errand.Cancel(err)
	case err != nil:
		err = notRead(err)
	}
	return s, top, err
}

// notRead is the verdict on what could not be read from the file, which is nothing that the
// receiver could help, and so costs nothing.
func notRead(err error) error {
	if errors.Is(err, errand.ErrCorrupt) || errors.Is(err, errand.ErrInvalid) {
		return err
	}
	return errand.Unavailable(err)
}

// outgoing returns the request of a delivery.
func (t *Topics) outgoing(ctx context.Context, s *Subscription, top *Topic, m *published) (*webhook.Outgoing, error) {
	o := &webhook.Outgoing{Endpoint: s.Endpoint, Message: m.id}
	if s.SNS {
		o.Rules = rulesSNS
		d := effective(top, s, policy.SystemDefault())
		o.Policy = &d
		o.Header = t.headerSNS(notification, m.id, s.Topic)
		o.Header.Set(headerSubscription, t.opts.ARN("subscription", s.ID))
		if s.Raw {
			o.Header.Set(headerRaw, "true")
		}
	} else {
		d := effective(top, s, policy.Document{})
		o.Policy = &d
	}
	var err error
	switch {
	case s.Raw:
		o.Body = m.body
	case s.SNS:
		o.Body, o.Secrets, err = t.notificationSNS(ctx, s, m)
	default:
		o.Body, err = m.enveloped(s.Topic)
	}
	return o, err
}

// effective returns the delivery policy of a subscription: each section is that of the
// subscription, else of the topic, else of system.
func effective(top *Topic, s *Subscription, system policy.Document) policy.Document {
	var of policy.Topic
	if top.Policy != nil {
		of = *top.Policy
	}
	var own policy.Document
	if s.Policy != nil {
		own = *s.Policy
	}
	return of.Effective(own, system)
}

// rulesSNS is the table of SNS, by which all failures of connections are retried too.
var rulesSNS = policy.Rules{policy.BySNSStatus, policy.Otherwise(policy.Retryable)}

// The headers of SNS.
const (
	headerType         = "X-Amz-Sns-Message-Type"
	headerMessage      = "X-Amz-Sns-Message-Id"
	headerTopic        = "X-Amz-Sns-Topic-Arn"
	headerSubscription = "X-Amz-Sns-Subscription-Arn"
	headerRaw          = "X-Amz-Sns-Rawdelivery"
)

func (t *Topics) headerSNS(typ, message, topic string) http.Header {
	h := http.Header{}
	h.Set(headerType, typ)
	h.Set(headerMessage, message)
	h.Set(headerTopic, t.opts.ARN("topic", topic))
	return h
}

// Effective is a delivery policy with where its sections come from.
type Effective struct {
	// Document is the policy. A section that is absent is that of the kind of the jobs,
	// their queue or [errand.Options].
	Document policy.Document `json:"document"`
	// Retry, Throttle and Request say where the sections come from: "subscription",
	// "topic", "endpoint", "webhooks" for [webhook.Options].Policy, or "sns" for the default
	// of SNS. It is empty for a section that is absent.
	Retry    string `json:"retry"`
	Throttle string `json:"throttle"`
	Request  string `json:"request"`
}

// EffectivePolicy returns the delivery policy that holds for a subscription, or
// [errand.ErrNotFound]. For one to an endpoint it needs the webhooks of [New], see there.
func (t *Topics) EffectivePolicy(ctx context.Context, subscription string) (Effective, error) {
	s, err := t.Subscription(ctx, subscription)
	if err != nil {
		return Effective{}, err
	}
	top, err := t.topic(ctx, s.Topic)
	if err != nil {
		return Effective{}, err
	}
	levels, err := t.levels(ctx, &s, &top)
	if err != nil {
		return Effective{}, err
	}
	var e Effective
	for i := len(levels) - 1; i >= 0; i-- {
		d := levels[i].Document
		e.Document = d.Or(e.Document)
		if d.Retry != nil {
			e.Retry = levels[i].name
		}
		if d.Throttle != nil {
			e.Throttle = levels[i].name
		}
		if d.Request != nil {
			e.Request = levels[i].name
		}
	}
	return e, nil
}

// level is a policy that comes before others.
type level struct {
	name string
	policy.Document
}

// levels returns the policies that may hold for a subscription, that which comes before all
// others first.
func (t *Topics) levels(ctx context.Context, s *Subscription, top *Topic) (all []level, err error) {
	if s.Policy != nil && (top.Policy == nil || !top.Policy.DisableSubscriptionOverrides) {
		all = append(all, level{"subscription", *s.Policy})
	}
	if top.Policy != nil {
		all = append(all, level{"topic", top.Policy.Document})
	}
	switch {
	case s.SNS:
		all = append(all, level{"sns", policy.SystemDefault()})
	case s.Endpoint != "" && t.webhooks == nil:
		return nil, noWebhooks(s)
	case s.Endpoint != "":
		e, err := t.webhooks.Endpoint(ctx, s.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("subscription %q: %w", s.ID, err)
		}
		if e.Policy != nil {
			all = append(all, level{"endpoint", *e.Policy})
		}
		all = append(all, level{"webhooks", t.webhooks.DefaultPolicy()})
	default:
		for i := range all {
			all[i].Document = policy.Document{Retry: all[i].Retry, ThrottledRetry: all[i].ThrottledRetry}
		}
	}
	return all, nil
}
