package dashboard_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// Who says no goes back to the page on which the action was chosen, also if it was asked twice.
func TestAct_no(t *testing.T) {
	q := open(t)
	dead := fillAll(t, q)
	form := url.Values{"do": {"redrive"}, "state": {"dead"}, "queue": {"default"}}
	for from, want := range map[string]string{
		"https://ops.example/errand/jobs?state=dead&queue=default": "jobs?queue=default&state=dead",
		"https://ops.example/errand/job/" + dead.String():          "job/" + dead.String(),
		"https://ops.example/errand/":                              "",
		"https://ops.example/errand/dead":                          "dead",
		"https://ops.example/job/lanes?page=2":                     "lanes?page=2", // all pages are below /job/
		"https://ops.example/job/job/" + dead.String():             "job/" + dead.String(),
		"https://ops.example/job/none":                             "jobs",
		"https://ops.example/none":                                 "jobs",
		"https://ops.example/errand/act":                           "jobs",
		"javascript:alert(1)":                                      "jobs",
		"":                                                         "jobs",
	} {
		came := func(r *http.Request) { r.Header.Set("Referer", from) }
		h := admin(q)
		a := send(h, form, came)
		again := formOf(a.text)
		again.Set("rate", "fast")
		for _, text := range []string{a.text, send(h, again, func(r *http.Request) { r.Header.Set("Referer", "https://ops.example/errand/act") }).text} {
			if !strings.Contains(html.UnescapeString(text), `<a href="./`+want+`" class="button safe" data-focus>Leave it dead</a>`) {
				t.Errorf("from %q: without %q: %s", from, want, text)
			}
		}
	}
	a := send(admin(q), url.Values{"do": {"change"}, "state": {"dead"}}, func(r *http.Request) { r.Header.Set("Referer", "/errand/jobs?state=dead") })
	says(t, a.text, `<a class="button" href="./jobs?state=dead">Back</a>`)
}

// A list offers what can be done to jobs of the states that it shows, and no more.
func TestJobs_offers(t *testing.T) {
	q := open(t)
	fillAll(t, q)
	marked, every := regexp.MustCompile(`<button name="do" value="([a-z]+)"`), regexp.MustCompile(`name="do" value="([a-z]+)"`)
	if _, err := q.Cancel(t.Context(), add(t, q, mail{"a"}, &errand.JobOptions{Group: "lane"})); err != nil {
		t.Fatal(err)
	}
	for state, want := range map[string][2]string{ // what an admin and an operator can choose
		"":              {"redrive run change cancel delete redrive", "redrive run change cancel redrive"},
		"queue=default": {"redrive run change cancel delete redrive run change cancel cancel delete", "redrive run change cancel redrive run change cancel cancel"},
		"state=ready":   {"run change cancel change cancel", "run change cancel change cancel"},
		"state=dead":    {"redrive change delete redrive delete", "redrive change redrive"},
		"state=running": {"cancel cancel", "cancel cancel"},
		"state=done":    {"delete delete", ""},
		"state=cancelled&queue=default&group=lane": {"delete delete", ""},
		"state=done&state=dead":                    {"redrive change delete redrive delete", "redrive change redrive"},
		"state=ready&state=dead":                   {"redrive run change cancel delete redrive change cancel delete", "redrive run change cancel redrive change cancel"},
	} {
		for i, role := range []dashboard.Role{dashboard.Admin, dashboard.Operator} {
			_, text := get(as(q, role), "/jobs?"+state)
			rows := strings.Contains(text, `<a class="id"`)
			list, rest, _ := strings.Cut(text, `<section aria-labelledby="all">`)
			var all []string
			for _, m := range append(marked.FindAllStringSubmatch(list, -1), every.FindAllStringSubmatch(rest, -1)...) {
				all = append(all, m[1])
			}
			if marks := strings.Contains(text, `aria-label="Mark `); strings.Contains(text, `id="marked"`) != (len(all) > 0) || marks != (len(all) > 0) || rows && strings.Join(all, " ") != want[i] {
				t.Errorf("%v, %q: %v, marks: %v, want %s", role, state, all, marks, want[i])
			}
			if needs := rows && i == 1 && want[i] == ""; strings.Contains(text, "It takes the role admin to act on") != needs {
				t.Errorf("%v, %q: %s, which asks for an admin: %v", role, state, text, !needs)
			}
		}
	}
	for _, f := range []url.Values{{"do": {"redrive"}, "state": {"ready"}}, {"do": {"change"}, "form": {"1"}, "of-state": {"dead"}, "priority": {"1"}}} {
		a := send(admin(q), f)
		if a.status != 400 || strings.Contains(a.text, "states[0]") {
			t.Errorf("%v: %d %s", f, a.status, a.text)
		}
		says(t, a.text, "cannot be", "choose these states alone")
	}
	_, text := get(admin(q), "/jobs?tag=red")                                                                                                                     // how many there are is not known
	if _, all, _ := strings.Cut(text, `<section aria-labelledby="all">`); strings.Count(all, "that wait or run<") != 1 || strings.Count(all, "that wait<") != 2 { // change, cancel
		t.Error(all)
	}
	asks(t, admin(q), url.Values{"do": {"hold"}, "queue": {"mail"}}, "letters, digits and . _ : / -, no spaces")
	a := send(admin(q), url.Values{"do": {"cancel"}, "state": {"ready"}, "rate": {"2/s"}})
	says(t, a.text, "must be a whole number from 0 to 100,000", "if empty or 0")
}
