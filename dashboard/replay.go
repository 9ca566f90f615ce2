package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// hooks are the webhooks and topics of a queue. They send nothing.
func (b *board) hooks(q *errand.Queue) (*webhook.Webhooks, *topic.Topics, error) {
	h, err := webhook.New(q, &webhook.Options{
		AllowHTTP: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, Logger: b.o.Logger,
	})
	if err != nil {
		return nil, nil, err
	}
	t, err := topic.New(q, h, &topic.Options{ConfirmURL: "https://errand.invalid/", Logger: b.o.Logger}) // subscriptions in SNS mode are refused without one
	return h, t, err
}

func replay(x *request, f url.Values) (*plan, error) {
	endpoint, subscription := f.Get("endpoint"), f.Get("subscription")
	if (endpoint == "") == (subscription == "") {
		return nil, &errand.FieldError{Field: "endpoint", Value: endpoint, Limit: "must be set, or subscription, and not both"}
	}
	since := input{Name: "since", Label: "Since", Value: cmp.Or(strings.TrimSpace(f.Get("since")), "1h"), Hint: "how long ago, as 2h, or a time, as 2026-03-01T06:00:00Z"}
	now := x.b.q.Clock().Now
	from, err := readTime(since.Value, now)
	if err != nil || from.After(now) {
		since.Err = "since " + strconv.Quote(since.Value) + ": must be how long ago, as 2h, or a time that is over, as 2026-03-01T06:00:00Z"
	}
	h, topics, err := x.b.hooks(x.b.q)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	p := &plan{at: "topics", inputs: []input{since}, note: "Messages that have arrived are sent again too, with the IDs that they had. How many there are is not known before."}
	if endpoint != "" {
		_, err = h.Endpoint(x.Context(), endpoint)
		p.text = "the messages of endpoint " + endpoint
	} else {
		_, err = topics.Subscription(x.Context(), subscription)
		p.text = "the messages of subscription " + subscription
	}
	switch {
	case errors.Is(err, errand.ErrNotFound):
		p.idle = "It is not there any more: " + strings.TrimPrefix(p.text, "the messages of ") + "."
		return p, nil
	case err != nil:
		return nil, err
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		h, topics, err := x.b.hooks(q)
		if err != nil {
			return err
		}
		defer h.Close()
		var n int
		if endpoint != "" {
			n, err = h.Replay(ctx, endpoint, from)
		} else {
			n, err = topics.Replay(ctx, subscription, from)
		}
		if out.n = int64(n); n > 0 || err == nil {
			out.Told = "Sent again: " + plural(out.n, "message") + "."
		}
		if err == nil {
			out.Told += " They are all since " + from.UTC().Format(time.RFC3339) + "."
		}
		return err
	}
	return p, nil
}

// readTime reads a time, or how long ago it is.
func readTime(s string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	return timeOf(s)
}
