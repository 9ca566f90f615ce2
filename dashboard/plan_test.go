package dashboard_test

import (
	"net/url"
	"strings"
	"testing"
)

// What nothing matches is said without a word about how it was before.
func TestPlan_none(t *testing.T) {
	h := admin(open(t))
	for want, form := range map[string]url.Values{
		"No job of all queues can be cancelled.":  {"do": {"cancel"}},
		"No job with queue mail can be redriven.": {"do": {"redrive"}, "queue": {"mail"}},
	} {
		if a := send(h, form); a.status != 200 || strings.Contains(a.text, "any more") {
			t.Errorf("%d %s", a.status, a.text)
		} else {
			says(t, a.text, want)
		}
	}
}
