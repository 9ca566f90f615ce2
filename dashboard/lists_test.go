package dashboard_test

import (
	"net/url"
	"testing"
)

// Times are read alike wherever one is typed.
func TestTimes(t *testing.T) {
	q := open(t)
	fillAll(t, q)
	h := admin(q)
	for _, at := range []string{"2026-03-01", "2026-03-01 15:04", "2026-03-01T15:04", "2026-03-01T15:04:05", "2026-03-01T15:04:05.5+01:00"} {
		if status, text := get(h, "/jobs?"+url.Values{"created_from": {at}}.Encode()); status != 200 {
			t.Errorf("jobs from %s: %d %s", at, status, text)
		}
		if a := send(h, url.Values{"do": {"replay"}, "endpoint": {"billing"}, "since": {at}}); a.status != 200 {
			t.Errorf("messages since %s: %d %s", at, a.status, a.text)
		}
	}
}
