package dashboard

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// enable returns the plan of a deed that ends the state disabled of an endpoint. The release of its
// hold alone would keep the failures, of which the next one would disable it again.
func enable(x *request, f url.Values) (*plan, error) {
	id := f.Get("endpoint")
	var e webhook.Endpoint
	err := x.hooks(func(h *webhook.Webhooks) (err error) {
		e, err = h.Endpoint(x.Context(), id)
		return err
	})
	p := &plan{text: "endpoint " + id, at: "endpoint" + string(query("id", id))}
	switch {
	case errors.Is(err, errand.ErrNotFound):
		p.idle, p.at = "There is no endpoint "+id+" any more.", "endpoints"
		return p, nil
	case err != nil:
		return nil, noMessages(err)
	case e.State != webhook.Disabled:
		p.idle = "The endpoint is " + string(e.State) + ", not disabled."
		return p, nil
	}
	p.text += ", disabled"
	if !e.Since.IsZero() {
		p.text += " since " + e.Since.UTC().Format(time.RFC3339)
	}
	why := "" // not in the text, which is logged
	if e.Reason != "" {
		why = ": " + x.text(e.Reason)
	}
	p.question = "Enable endpoint " + id + "?"
	p.note = strings.ToUpper(p.text[:1]) + p.text[1:] + why + ".\nWhat waits for it is sent, and its failures are forgotten. Dead deliveries stay dead."
	p.facts = []fact{{"disabled since", e.Since.UTC().Format(time.RFC3339Nano), ""}, {"reason", x.text(e.Reason), ""}, {"URL", x.b.secretWas("URL of endpoint "+e.ID, []byte(e.URL)), "changed"}}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		h, _, err := x.b.hooks(q)
		if err != nil {
			return err
		}
		defer h.Close()
		was, err := h.Enable(ctx, id)
		if err == nil && !was {
			err = declined("It was enabled already.")
		}
		if err == nil {
			out.Told = "Endpoint " + id + " is enabled."
		}
		return err
	}
	return p, nil
}

// ofSubscription returns the plan of a deed on a subscription: its pause, or the end of that.
func ofSubscription(pause bool) func(*request, url.Values) (*plan, error) {
	return func(x *request, f url.Values) (*plan, error) {
		id := f.Get("subscription")
		var s topic.Subscription
		err := x.topics(func(t *topic.Topics) (err error) {
			s, err = t.Subscription(x.Context(), id)
			return err
		})
		p := &plan{text: "subscription " + id + " of " + s.Topic, at: "subscription" + string(query("id", id))}
		from, done := topic.Confirmed, "paused"
		if !pause {
			from, done = topic.Paused, "resumed"
		}
		switch {
		case errors.Is(err, errand.ErrNotFound):
			p.idle, p.at = "There is no subscription "+id+" any more.", "topics"
			return p, nil
		case err != nil:
			return nil, noMessages(err)
		case s.State != from || s.Endpoint == "":
			p.idle = "Only a subscription to an endpoint that is " + string(from) + " can be " + done + ". This one is " + string(s.State) + "."
			return p, nil
		}
		p.facts = []fact{{"state", string(s.State), ""}, {"topic", s.Topic, ""}}
		p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
			h, topics, err := x.b.hooks(q)
			if err != nil {
				return err
			}
			defer h.Close()
			if pause {
				err = topics.Pause(ctx, id)
			} else {
				_, err = topics.Resume(ctx, id)
			}
			if err == nil {
				out.Told = "Subscription " + id + " is " + done + "."
			}
			return err
		}
		return p, nil
	}
}

// endpointOf returns the endpoint whose queue it is, empty for another queue.
func endpointOf(queue string) string {
	id, ok := strings.CutPrefix(queue, webhook.QueueOf(""))
	if !ok {
		return ""
	}
	return id
}
