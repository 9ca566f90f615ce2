package dashboard_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

type mail struct{ To string }

func (mail) Kind() string { return "mail" }

func open(t *testing.T) *errand.Queue {
	t.Helper()
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// get returns the status and the page of a path.
func get(h http.Handler, path string, with ...func(*http.Request)) (int, string) {
	r := httptest.NewRequest("GET", path, nil)
	for _, f := range with {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// Nobody enters a dashboard without Auth, and its page says what to write.
func TestHandler_closed(t *testing.T) {
	h := dashboard.Handler(open(t), &dashboard.Options{Logger: quiet})
	for _, path := range []string{"/", "/jobs", "/job/1", "/?format=json"} {
		if status, text := get(h, path); status != 403 || !strings.Contains(text, "Options.Auth") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// The pages are served below any path, and what is unknown is said.
func TestHandler_prefix(t *testing.T) {
	h := dashboard.Handler(open(t), &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Logger: quiet})
	for path, want := range map[string]int{"/": 200, "/a/b/": 200, "/a": 404, "/a/none": 404, "/a/style.css": 200} {
		status, text := get(h, path)
		if status != want || want == 404 && !strings.Contains(text, `end in &#34;/&#34;`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// A path may end in the name of a page, also in that below which the pages of jobs are.
func TestHandler_prefixNames(t *testing.T) {
	q := open(t)
	e, err := q.Enqueue(t.Context(), mail{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Logger: quiet})
	for _, prefix := range []string{"/job/", "/lanes/", "/a/job/"} {
		for path, want := range map[string]string{"": ">Overview<", "lanes": ">Queues<", "jobs?state=ready": ">Jobs<", "job/" + e.ID.String(): e.ID.String()} {
			if status, text := get(h, prefix+path); status != 200 || !strings.Contains(text, want) {
				t.Errorf("%s%s: %d, without %q", prefix, path, status, want)
			}
		}
		if status, _ := get(h, prefix+"job/none"); status != 400 {
			t.Errorf("%sjob/none: %d", prefix, status)
		}
	}
}

// The first sentence says how the queue is.
func TestFront_sentence(t *testing.T) {
	q := open(t)
	says := func(want string) {
		t.Helper()
		h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Logger: quiet})
		if status, text := get(h, "/"); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%d, without %q: %s", status, want, text)
		}
	}
	says("Nothing was ever enqueued.")
	if _, err := q.Enqueue(t.Context(), mail{"a"}, nil); err != nil {
		t.Fatal(err)
	}
	says("No worker runs; 1 job is due, since")
	if _, err := q.Enqueue(t.Context(), mail{"b"}, nil); err != nil {
		t.Fatal(err)
	}
	says("No worker runs; 2 jobs are due, since")
	if err := q.Pause(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	says("1 thing holds up 2 jobs.")
	says("paused")
	if err := q.Hold(t.Context(), errand.Lane{Kind: "mail"}, nil); err != nil {
		t.Fatal(err)
	}
	says("2 things hold up 2 jobs.")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Logger: quiet})
	if status, text := get(h, "/"); status != 503 || !strings.Contains(text, "The queue is closed.") {
		t.Errorf("of a closed queue: %d %s", status, text)
	}
}

// Basic tells those who may enter from others.
func TestBasic(t *testing.T) {
	h := dashboard.Handler(open(t), &dashboard.Options{Auth: dashboard.Basic(map[string]dashboard.User{"ann": {Password: "secret", Role: dashboard.Operator}, "bob": {Role: dashboard.Admin}}), Logger: quiet})
	for _, c := range []struct {
		name, password string
		want           int
	}{{"ann", "secret", 200}, {"ann", "Secret", 401}, {"ann", "", 401}, {"bob", "", 401}, {"eve", "secret", 401}} {
		status, text := get(h, "/", func(r *http.Request) { r.SetBasicAuth(c.name, c.password) })
		if status != c.want || (status == 200) != strings.Contains(text, "ann, operator") {
			t.Errorf("%s %s: %d", c.name, c.password, status)
		}
	}
	failing := dashboard.Handler(open(t), &dashboard.Options{Logger: quiet, Auth: func(*http.Request) (dashboard.Identity, error) {
		return dashboard.Identity{Role: dashboard.Admin}, errors.New("no")
	}})
	if status, text := get(failing, "/"); status != 401 || strings.Contains(text, "no worker") {
		t.Errorf("%d %s", status, text)
	}
}
