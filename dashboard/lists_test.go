package dashboard_test

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// A list says how many jobs were looked at if most of them did not match, and nothing of an index
// if those that were looked at are those that it shows.
func TestJobs_looked(t *testing.T) {
	q := open(t)
	fillAll(t, q)
	var other []errand.NewJob
	for range 100 {
		other = append(other, errand.NewJob{Args: mail{"a"}, Options: &errand.JobOptions{Queue: "crowd"}})
	}
	if _, err := q.EnqueueMany(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	causes, err := q.DeadLetters().Causes(t.Context(), nil)
	if err != nil || len(causes) == 0 {
		t.Fatal(causes, err)
	}
	h := as(q, dashboard.Viewer)
	cause := "/jobs?" + url.Values{"state": {"dead"}, "queue": {causes[0].Queue}, "kind": {causes[0].Kind}, "cause": {strconv.FormatInt(causes[0].ID, 10)}}.Encode()
	for path, slow := range map[string]bool{
		cause: false, "/jobs": false, "/jobs?queue=crowd": false, "/jobs?state=ready&queue=crowd": false, "/jobs?error=none": true,
	} {
		status, text := get(h, path)
		if status != 200 || strings.Contains(text, "jobs that could match were looked at.") != slow || strings.Contains(text, "No index") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

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

// A list that has become shorter shows its last page to who was on a page behind it.
func TestPages_last(t *testing.T) {
	q := open(t)
	fillAll(t, q)
	h := as(q, dashboard.Viewer)
	for _, path := range []string{"/lanes", "/schedules", "/workers"} {
		_, first := get(h, path)
		if status, text := get(h, path+"?page=3"); status != 200 || strings.Count(text, "<tr") != strings.Count(first, "<tr") {
			t.Errorf("%s: %d %s, want %s", path, status, text, first)
		}
		for _, page := range []string{"0", "-1", "x", "1.5"} {
			if status, text := get(h, path+"?page="+page); status != 400 || !strings.Contains(text, "must be a number from 1 on") {
				t.Errorf("%s, page %s: %d %s", path, page, status, text)
			}
		}
	}
}
