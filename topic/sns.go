package topic

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

// envelopeSNS is a message as SNS sends it, its members in the order of SNS. It has no
// signature: see docs/topics.md.
type envelopeSNS struct {
	Type              string                      `json:"Type"`
	MessageID         string                      `json:"MessageId"`
	Token             string                      `json:"Token,omitempty"`
	TopicARN          string                      `json:"TopicArn"`
	Subject           string                      `json:"Subject,omitempty"`
	Message           string                      `json:"Message"`
	SubscribeURL      string                      `json:"SubscribeURL,omitempty"`
	Timestamp         string                      `json:"Timestamp"`
	UnsubscribeURL    string                      `json:"UnsubscribeURL,omitempty"`
	MessageAttributes map[string]filter.Attribute `json:"MessageAttributes,omitempty"`
}

// notificationSNS returns the envelope of a message, and the tokens in it.
func (t *Topics) notificationSNS(ctx context.Context, s *Subscription, m *published) (body []byte, secrets []string, err error) {
	e := envelopeSNS{
		Type: notification, MessageID: m.id, TopicARN: t.opts.ARN("topic", s.Topic), Subject: m.Subject,
		Message: string(m.body), Timestamp: timestamp(m.at), MessageAttributes: m.Attributes,
	}
	if t.opts.ConfirmURL != "" {
		token, err := t.unsubscribeToken(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		secrets = []string{token}
		e.UnsubscribeURL = t.actionURL(actionUnsubscribe, "SubscriptionArn", t.opts.ARN("subscription", s.ID), token)
	}
	body, err = marshal(e)
	return body, secrets, err
}

// unsubscribeToken returns the token that ends a subscription. It is made with the subscription,
// and stays.
func (t *Topics) unsubscribeToken(ctx context.Context, s *Subscription) (string, error) {
	// No two subscriptions of an ID have the same revision, and if the clock stands still they have
	// the same time.
	if token, ok := t.unsubscribes.At(s.ID, s.Revision); ok {
		return token, nil
	}
	tokens, _, err := t.tokens(ctx, s.ID)
	if err != nil {
		return "", err
	}
	token := s.ID + "." + tokens.Unsubscribe
	t.unsubscribes.Put(s.ID, s.Revision, len(token), token)
	return token, nil
}

// confirmationSNS returns the envelope of the request for a confirmation.
func (t *Topics) confirmationSNS(s *Subscription, id, token string, at time.Time) ([]byte, error) {
	arn := t.opts.ARN("topic", s.Topic)
	return marshal(envelopeSNS{
		Type: subscriptionConfirmation, MessageID: id, Token: token, TopicARN: arn, Timestamp: timestamp(at),
		Message:      "You have chosen to subscribe to the topic " + arn + ".\nTo confirm the subscription, visit the SubscribeURL included in this message.",
		SubscribeURL: t.actionURL(actionConfirm, "TopicArn", arn, token),
	})
}

// actionURL returns a URL that the handler of confirmations acts on.
func (t *Topics) actionURL(action, resource, arn, token string) string {
	u, err := url.Parse(t.opts.ConfirmURL)
	if err != nil {
		return "" // New has checked it
	}
	q := u.Query()
	q.Set("Action", action)
	q.Set(resource, arn)
	q.Set("Token", token)
	u.RawQuery = q.Encode()
	return u.String()
}

// attempt is an attempt of a delivery, for the log.
type attempt struct {
	s      *Subscription
	m      *published
	job    errand.ID
	n      int
	began  time.Time
	answer webhook.Answer
	err    error
}

// status writes the line of an attempt, with the fields of SNS.
func (t *Topics) status(ctx context.Context, a *attempt) {
	log := t.opts.StatusLog
	if v, ok := errand.VerdictOf(a.err); log == nil || ok && v.Kind == errand.VerdictCancel {
		return
	}
	level, status, response := slog.LevelInfo, "SUCCESS", a.answer.Text
	if a.err != nil {
		level, status = slog.LevelWarn, "FAILURE"
		if a.answer.Status == 0 {
			response = a.err.Error()
		}
	}
	sum := md5.Sum(a.m.body) // as SNS does; it protects nothing
	delivery := []any{
		slog.String("deliveryId", a.job.String()),
		slog.String("destination", a.s.Endpoint),
		slog.String("providerResponse", strings.ToValidUTF8(response, "\uFFFD")),
		slog.Int64("dwellTimeMs", max(0, a.began.Sub(a.m.kept)).Milliseconds()),
		slog.Int("attempts", a.n),
	}
	if a.answer.Status != 0 {
		delivery = append(delivery, slog.Int("statusCode", a.answer.Status))
	}
	log.Log(ctx, level, "errand: delivery of a message",
		slog.Group("notification",
			slog.String("messageMD5Sum", hex.EncodeToString(sum[:])),
			slog.String("messageId", a.m.id),
			slog.String("topicArn", t.opts.ARN("topic", a.s.Topic)),
			slog.String("timestamp", a.m.at.UTC().Format("2006-01-02 15:04:05.000")),
		),
		slog.Group("delivery", delivery...),
		slog.String("status", status),
	)
}
