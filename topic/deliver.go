package topic

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
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

// deliver is the handler of deliveries. It reads all but the IDs for each attempt, so a
// change reaches deliveries that wait.
func (t *Topics) deliver(ctx context.Context, job *errand.Job[delivery]) error {
	s, top, err := t.read(ctx, job.Args.Subscription)
	if err != nil {
		return err
	}
	if s.State == Paused {
		return whilePaused(s.ID, job.Snoozes)
	}
	kept, err := t.door.Message(ctx, job.Args.Message)
	if errors.Is(err, errand.ErrNotFound) {
		return errand.Permanent(about("message", job.Args.Message, err))
	}
	if err != nil {
		return notRead(err)
	}
	m, err := publishedOf(&kept)
	if err != nil {
		return err
	}
	o, err := t.outgoing(ctx, &s, &top, m)
	if err != nil {
		return notRead(err)
	}
	o.Attempt = job.Attempt
	began := t.now()
	answer, err := t.webhooks.Deliver(ctx, o)
	t.status(ctx, &attempt{s: &s, m: m, job: job.ID, n: job.Attempt, began: began, answer: answer, err: err})
	return err
}

// read returns a subscription and its topic for an attempt, or the verdict if they are not
// there.
func (t *Topics) read(ctx context.Context, id string) (s Subscription, top Topic, err error) {
	if s, err = t.Subscription(ctx, id); err == nil {
		top, err = t.topic(ctx, s.Topic)
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
// [errand.ErrNotFound].
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
