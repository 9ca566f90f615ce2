package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// What waits behind dead jobs is on the front, with its number in the sentence too, and all of it
// is redriven or skipped at once.
func TestHeads(t *testing.T) {
	q := open(t)
	heads := map[string]errand.ID{}
	for _, g := range []string{"a", "b", "c"} {
		add(t, q, letter{"first", ""}, &errand.JobOptions{Group: g})
		heads[g] = die(t, q, g)
	}
	for _, g := range []string{"a", "b", "b"} { // nobody waits behind that of c
		add(t, q, letter{"second", ""}, &errand.JobOptions{Group: g})
	}
	as := func(role dashboard.Role) http.Handler {
		return dashboard.Handler(q, &dashboard.Options{Auth: who("ann", role), Logger: quiet})
	}
	h := as(dashboard.Operator)
	front := func(h http.Handler, want ...string) string {
		t.Helper()
		status, text := get(h, "/")
		if status != 200 {
			t.Fatal(status, text)
		}
		says(t, plain(text), want...)
		return text
	}
	row := []string{"1 thing holds up 3 jobs.", "default , behind dead jobs", "They wait in 2 groups whose first job is dead, until somebody redrives or skips that job."}
	has := func(page string, want bool, deeds ...string) {
		t.Helper()
		for _, do := range deeds {
			if got := strings.Contains(page, `name="do" value="`+do+`"`); got != want {
				t.Errorf("the page has a button for %s: %t, want %t", do, got, want)
			}
		}
	}
	has(front(h, row...), true, "redrive-heads", "skip-heads")
	has(front(as(dashboard.Viewer), append(row, "An operator may redrive or skip the dead jobs.")...), false, "redrive-heads", "skip-heads")
	job := func(h http.Handler, g string) string {
		t.Helper()
		_, text := get(h, "/job/"+heads[g].String())
		return text
	}
	says(t, plain(job(h, "b")), "2 jobs wait behind it")
	has(job(h, "b"), true, "redrive", "skip")
	says(t, plain(job(as(dashboard.Viewer), "a")), "1 job waits behind it")
	has(job(as(dashboard.Viewer), "b"), false, "redrive", "skip")
	if alone := job(h, "c"); strings.Contains(alone, "behind it") {
		t.Errorf("the page of a dead job with nobody behind it: %s", alone)
	}
	has(job(h, "c"), false, "skip")
	// A second thing that holds up no job is counted as one row, too.
	if err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{MaxDead: new(3)}); err != nil {
		t.Fatal(err)
	}
	if text := front(as(dashboard.Operator), "2 things to look at; 1 holds up 3 jobs."); strings.Count(text, `<tr class="dead worst" data-key="behind dead jobs`) != 1 || strings.Count(text, `data-key="many dead letters`) != 1 {
		t.Error(text)
	}

	redrive := url.Values{"do": {"redrive-heads"}, "queue": {"default"}}
	f := asks(t, h, redrive, "2 jobs in default that others of their groups wait for?", heads["a"].String(), heads["b"].String())
	add(t, q, letter{"second", ""}, &errand.JobOptions{Group: "c"})
	f = asks(t, h, f, "3 jobs in default that", heads["c"].String()) // one has come since
	confirm(t, h, f, "A bulk job was started for 3 jobs in default that others of their groups wait for.")

	f = asks(t, h, url.Values{"do": {"skip-heads"}, "queue": {"default"}}, "3 dead jobs in default that others of their groups wait for?", heads["a"].String(), "Each stays dead.")
	if id, err := q.SkipHead(t.Context(), "default", "a"); err != nil || id != heads["a"] {
		t.Fatal(id, err)
	}
	confirm(t, h, f, "2 groups go on.")
	if text := plain(front(h)); strings.Contains(text, "behind dead jobs") {
		t.Errorf("jobs wait behind dead ones still: %s", text)
	}
	for _, do := range []string{"redrive-heads", "skip-heads"} {
		says(t, send(h, url.Values{"do": {do}, "queue": {"default"}}).text, "No job of default waits behind a dead one of its group.")
	}
	for g, id := range heads {
		if got := state(t, q, id); got != errand.Dead {
			t.Errorf("the head of %s is %s", g, got)
		}
	}
	if page, err := q.Jobs(t.Context(), errand.JobFilter{States: []errand.State{errand.Ready}, Queue: "default"}, nil); err != nil || len(page.Jobs) != 3 {
		t.Errorf("%d jobs are ready, %v", len(page.Jobs), err)
	}
}

// A job that was redriven, and waits before the dead head of its group, does not wait behind that:
// the buttons of the front are about as many as the front counts.
func TestHeads_BeforeTheHead(t *testing.T) {
	q := open(t)
	var all []errand.ID
	for range 3 {
		add(t, q, letter{"x", ""}, &errand.JobOptions{Group: "g"})
	}
	for range 3 {
		id := die(t, q, "g")
		if all = append(all, id); len(all) < 3 {
			if _, err := q.SkipHead(t.Context(), "default", "g"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r, err := q.DeadLetters().Redrive(t.Context(), errand.JobFilter{IDs: all[:2]}, nil); err != nil || r.Redriven != 2 {
		t.Fatal(r, err)
	}
	if got := state(t, q, all[1]); got != errand.Blocked {
		t.Fatalf("the second one is %s, want it to wait before the dead one", got)
	}
	h := dashboard.Handler(q, &dashboard.Options{Auth: who("ann", dashboard.Operator), Logger: quiet})
	for _, do := range []string{"redrive-heads", "skip-heads"} {
		says(t, send(h, url.Values{"do": {do}, "queue": {"default"}}).text, "No job of default waits behind a dead one of its group.")
	}
	if _, text := get(h, "/job/"+all[2].String()); strings.Contains(plain(text), "behind it") {
		t.Errorf("the page of the dead one says that others are kept back: %s", plain(text))
	}
	add(t, q, letter{"x", ""}, &errand.JobOptions{Group: "g"})
	asks(t, h, url.Values{"do": {"redrive-heads"}, "queue": {"default"}}, "1 job in default that others of their groups wait for?", all[2].String())
}
