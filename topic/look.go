package topic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/webhook"
)

// Delivery is what a delivery is about.
type Delivery struct {
	// Topic is the name of the topic, and Subscription the ID of the subscription.
	Topic        string `json:"topic"`
	Subscription string `json:"subscription"`
	// Endpoint is the ID of the endpoint, and URL where it goes now, see
	// [webhook.Endpoint.PublicURL]. URL is empty if the endpoint was deleted, and without the
	// webhooks of [New]. Both are empty for a job of a kind, and for a delivery that was refused.
	Endpoint string `json:"endpoint,omitempty"`
	URL      string `json:"url,omitempty"`
	// Message is the message, with body and attributes. What is sent is its body, or an envelope
	// that has all of it. DedupID is empty: it is not kept.
	Message Message `json:"message"`
	// PublishedAt is when it was published.
	PublishedAt time.Time `json:"published_at"`
}

// Delivery returns what the delivery with the ID of a job is about, live, finished or dead, to an
// endpoint or of a kind: for those who look into it. It returns [errand.ErrNotFound] if the job is
// not there any more, and an [errand.FieldError] if it is no delivery of a topic.
func (t *Topics) Delivery(ctx context.Context, job errand.ID) (Delivery, error) {
	info, err := t.queue.Job(ctx, job)
	if err != nil {
		return Delivery{}, about("job", job.String(), err)
	}
	var d Delivery
	message := ""
	for _, tag := range info.Tags {
		if id, ok := strings.CutPrefix(tag, storage.MessageTag("")); ok {
			message = id
		}
		if id, ok := strings.CutPrefix(tag, Tag("")); ok {
			d.Subscription = id
		}
	}
	if message == "" || d.Subscription == "" {
		return Delivery{}, &errand.FieldError{Field: "job", Value: job.String(), Limit: fmt.Sprintf("must be a delivery to a subscription, is of kind %q", info.Kind)}
	}
	if info.Kind == (delivery{}).Kind() {
		if d.Endpoint, err = t.endpointOf(ctx, d.Subscription, info.Queue); err != nil {
			return Delivery{}, err
		}
	}
	if d.Endpoint != "" && t.webhooks != nil {
		e, err := t.webhooks.Endpoint(ctx, d.Endpoint)
		if err == nil {
			d.URL = e.PublicURL()
		} else if !errors.Is(err, errand.ErrNotFound) {
			return Delivery{}, err
		}
	}
	kept, err := t.door.Message(ctx, message)
	if err != nil {
		return Delivery{}, about("message", message, err)
	}
	m, err := publishedOf(&kept)
	if err != nil {
		return Delivery{}, err
	}
	d.Topic = strings.TrimPrefix(kept.Topic, familyOf(""))
	d.Message = Message{ID: m.id, Subject: m.Subject, Attributes: m.Attributes, Body: m.body, Group: m.Group, Tags: m.Tags}
	d.PublishedAt = m.at
	return d, nil
}

// endpointOf returns the endpoint of a subscription, to which its deliveries go from whatever queue.
// Where the subscription is gone, the queue of the job says it, unless somebody has moved the job.
func (t *Topics) endpointOf(ctx context.Context, subscription, queue string) (string, error) {
	s, err := t.Subscription(ctx, subscription)
	if err == nil || !errors.Is(err, errand.ErrNotFound) {
		return s.Endpoint, err
	}
	if endpoint, ok := strings.CutPrefix(queue, webhook.QueueOf("")); ok {
		return endpoint, nil
	}
	return "", nil
}
