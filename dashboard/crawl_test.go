package dashboard_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/policy"
)

// hostile is what a producer may write anywhere.
const hostile = `<script>alert(1)</script>"'&` + "\u202e"

type letter struct {
	To       string `json:"to"`
	Password string `json:"password"`
}

func (letter) Kind() string { return "letter" }

// fill fills a queue with jobs in all states, and returns one that is dead.
func fill(t *testing.T, q *errand.Queue) (dead errand.ID) {
	t.Helper()
	add := func(to string, o *errand.JobOptions) errand.ID {
		e, err := q.Enqueue(t.Context(), letter{to, "hunter2"}, o)
		if err != nil {
			t.Fatal(err)
		}
		return e.ID
	}
	headers := map[string]string{"authorization": "Bearer xyz", "note": hostile}
	dead = add(hostile, &errand.JobOptions{Headers: headers, Tags: []string{"red"}, Group: "g <b>"})
	add("blocked", &errand.JobOptions{Group: "g <b>"})
	add("done", nil)
	add("scheduled", &errand.JobOptions{Delay: time.Hour})
	ctx, stop := context.WithCancel(t.Context())
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
	n := 0
	errand.Handle(w, func(_ context.Context, job *errand.Job[letter]) error {
		if n++; n == 2 {
			defer stop()
		}
		if job.Args.To == hostile {
			return errand.Permanent(errors.New(hostile))
		}
		return job.SetResult(map[string]string{"secret_answer": "42"})
	}, errand.HandlerOptions{Concurrency: 1, Policy: &policy.Policy{Retries: 1, NoDelayRetries: 1}})
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := q.Schedule(t.Context(), errand.Schedule{Name: "night", Spec: "0 3 * * *", Args: letter{"x", "hunter2"}}); err != nil {
		t.Fatal(err)
	}
	if err := q.Hold(t.Context(), errand.Lane{Queue: "default"}, &errand.HoldOptions{By: hostile}); err != nil {
		t.Fatal(err)
	}
	return dead
}

var link = regexp.MustCompile(`href="([^"]*)"`)

// crawl follows all links from the front, and returns the pages by their addresses.
func crawl(t *testing.T, h http.Handler, root string) map[string]string {
	t.Helper()
	seen, todo := map[string]string{}, []string{root}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		if _, ok := seen[at]; ok || len(seen) > 300 {
			continue
		}
		status, text := get(h, at)
		meanwhile := status == http.StatusConflict && strings.Contains(at, "/change?") // a probe runs just now
		if status != 200 && !meanwhile {
			t.Errorf("%s: %d", at, status)
		}
		seen[at] = text
		base, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to, err := base.Parse(html.UnescapeString(m[1]))
			if err != nil {
				t.Errorf("%s: a link to %q: %v", at, m[1], err)
				continue
			}
			if to.Scheme == "data" || strings.HasSuffix(to.Path, ".css") {
				continue
			}
			to.Fragment = ""
			if to.Host != "" || !strings.HasPrefix(to.Path, root) {
				t.Errorf("%s: a link to %s leaves the dashboard", at, m[1])
				continue
			}
			todo = append(todo, to.String())
		}
	}
	return seen
}

// checkJSON checks the JSON of a page: it is there, and has nothing that the role may not see.
func checkJSON(t *testing.T, h http.Handler, at string, role dashboard.Role) {
	t.Helper()
	joint := "?"
	if strings.Contains(at, "?") {
		joint = "&"
	}
	status, text := get(h, at+joint+"format=json")
	secret := strings.Contains(text, "hunter2") || strings.Contains(text, "Bearer xyz")
	args := strings.Contains(text, `"args":`) || strings.Contains(text, `"checkpoint":`) || strings.Contains(text, `"headers":{"auth`)
	if strings.Contains(at, "/change") || strings.Contains(at, "/enqueue") { // forms
		if status != 404 && status != http.StatusConflict || strings.Contains(text, "hunter2") {
			t.Errorf("%s as JSON: %d %s", at, status, text)
		}
		return
	}
	if status != 200 || !json.Valid([]byte(text)) || strings.Contains(text, token) ||
		secret && role < dashboard.Admin || args && role < dashboard.Operator {
		t.Errorf("%s as JSON: %d %s", at, status, text)
	}
	if name := twice(json.NewDecoder(strings.NewReader(text))); name != "" {
		t.Errorf("%s as JSON: an object has %q twice: %s", at, name, text)
	}
}

// twice returns a name that an object in the next value has twice, or "".
func twice(d *json.Decoder) (name string) {
	begin, _ := d.Token() // of what is known to be valid
	if begin != json.Delim('{') && begin != json.Delim('[') {
		return ""
	}
	seen := map[json.Token]bool{}
	for d.More() {
		if begin == json.Delim('{') {
			is, _ := d.Token()
			if seen[is] {
				name, _ = is.(string)
			}
			seen[is] = true
		}
		name = cmp.Or(name, twice(d))
	}
	_, _ = d.Token()
	return name
}

// All pages that can be reached are there, under any path, and none has what a producer wrote as
// markup, nor what a role may not see.
func TestPages(t *testing.T) {
	q := open(t)
	dead := fill(t, q)
	fillMore(t, q)
	for _, role := range []dashboard.Role{dashboard.Viewer, dashboard.Operator, dashboard.Admin} {
		t.Run(role.String(), func(t *testing.T) {
			h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(role), Logger: quiet})
			all := crawl(t, h, "/a/b/")
			if len(all) < 20 || all["/a/b/job/"+dead.String()] == "" || all["/a/b/device?name=pump-17"] == "" {
				t.Errorf("%d pages", len(all))
			}
			args, secrets := 0, 0
			for at, text := range all {
				checkJSON(t, h, at, role)
				if strings.Contains(text, token) {
					t.Errorf("%s has the token of an endpoint: %s", at, text)
				}
				if strings.Contains(text, "<script>alert") || strings.Contains(text, "g <b>") {
					t.Errorf("%s has markup of a producer: %s", at, text)
				}
				if strings.Contains(text, "&#34;to&#34;") {
					args++
				}
				if strings.Contains(text, "hunter2") || strings.Contains(text, "Bearer xyz") || strings.Contains(text, `: &#34;42&#34;`) {
					secrets++
					if role < dashboard.Admin {
						t.Errorf("%s has a secret: %s", at, text)
					}
				}
			}
			if (args > 0) != (role >= dashboard.Operator) || (secrets > 0) != (role == dashboard.Admin) {
				t.Errorf("%d pages have args, %d secrets", args, secrets)
			}
			for _, page := range []string{"", "lanes", "jobs", "job/" + dead.String(), "dead", "groups", "schedules", "bulk", "workers", "health", "audit", "devices"} {
				status, text := get(h, "/"+page+"?format=json")
				if status != 200 || strings.Contains(text, "hunter2") != (role == dashboard.Admin && (strings.HasPrefix(page, "job/") || page == "schedules")) {
					t.Errorf("%s as JSON: %d %s", page, status, text)
				}
			}
		})
	}
}

// What is wrong in an address is said, and what is there no longer too.
func TestPages_wrong(t *testing.T) {
	h := dashboard.Handler(open(t), &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Logger: quiet})
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/jobs?state=waiting":                        {400, "state"},
		"/jobs?cause=x":                              {400, "cause"},
		"/jobs?after=zzz":                            {400, "after"},
		"/jobs?tag=" + strings.Repeat("a", 1001):     {400, "longer than 1000 bytes"},
		"/jobs?queue=%ff":                            {400, "is no text"},
		"/jobs?" + strings.Repeat("state=dead&", 41): {400, "more than 40"},
		"/lanes?page=0":                              {400, "page"},
		"/job/x":                                     {400, "id"},
		"/job/01a217bb-5cbb-711c-a5f6-0000000f4a5c":  {404, "no such job"},
		"/schedule?name=none":                        {404, "There is no"},
		"/jobs?nosuchfilter=1":                       {400, "nosuchfilter"},
		"/jobs?quue=mail&state=dead":                 {400, "It takes after, state, queue,"},
		"/?queue=mail":                               {400, "takes no parameter"},
		"/job/01a217bb-5cbb-711c-a5f6-0000000f4a5c?state=dead": {400, "takes no parameter"},
		"/lanes?pag=1":     {400, "It takes search, page."},
		"/jobs?format=xml": {400, "must be json"},
		"/none":            {404, "no such page"},
	} {
		if status, text := get(h, path); status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%.60s: %d %s", path, status, text)
		}
	}
}
