package dashboard_test

import (
	"net/url"
	"testing"

	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// An endpoint is enabled with its failures forgotten, and a subscription is paused and resumed, if
// they are in a state for that.
func TestAct_topics(t *testing.T) {
	q := open(t)
	fill(t, q)
	made := fillMore(t, q)
	h := dashboard.Handler(q, &dashboard.Options{Auth: who("ann", dashboard.Operator), Logger: quiet})
	hooks, err := webhook.New(q, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hooks.Close)
	topics, err := topic.New(q, hooks, nil)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, subscription := url.Values{"do": {"enable"}, "endpoint": {made.endpoint}}, url.Values{"do": {"pause-subscription"}, "subscription": {made.subscription}}
	confirm(t, h, asks(t, h, endpoint, "Enable endpoint shop?", "Endpoint shop, disabled since", hostile[:20]), "Endpoint shop is enabled.")
	if e, err := hooks.Endpoint(t.Context(), made.endpoint); err != nil || e.State != webhook.Enabled {
		t.Errorf("%+v, %v", e, err)
	}
	says(t, send(h, endpoint).text, "The endpoint is enabled, not disabled. Nothing was done.")
	confirm(t, h, asks(t, h, subscription, "of orders"), "is paused.")
	if s, err := topics.Subscription(t.Context(), made.subscription); err != nil || s.State != topic.Paused {
		t.Errorf("%+v, %v", s, err)
	}
	says(t, send(h, subscription).text, "This one is paused.")
	subscription.Set("do", "resume-subscription")
	confirm(t, h, asks(t, h, subscription), "is resumed.")
	if s, err := topics.Subscription(t.Context(), made.subscription); err != nil || s.State != topic.Confirmed {
		t.Errorf("%+v, %v", s, err)
	}
	says(t, send(h, url.Values{"do": {"enable"}, "endpoint": {"none"}}).text, "There is no endpoint none any more.")
	says(t, send(h, url.Values{"do": {"pause-subscription"}, "subscription": {"none"}}).text, "There is no subscription none any more.")
}
