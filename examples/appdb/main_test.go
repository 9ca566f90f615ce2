package main

import (
	"context"
	"database/sql"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
)

// The program takes a sign-up, does its job, shows its pages to those who may see them, and leaves
// a file that is closed.
//
//errand:shows the program for one's own database | | it serves and works, shows dashboard and metrics, and closes worker, queue and database in that order; its user is there with the job done
func TestRun(t *testing.T) {
	lines, restore := kit.LogLines()
	defer restore()
	path := filepath.Join(t.TempDir(), "app.db")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, path, "127.0.0.1:0", "secret") }()
	at := "http://" + kit.After(lines, "listening addr=")

	answer, err := http.PostForm(at+"/users", url.Values{"email": {"ada@example.org"}})
	if err != nil || answer.StatusCode != http.StatusCreated || answer.Body.Close() != nil {
		t.Fatalf("the sign-up: %v, %v", answer, err)
	}
	if to := kit.After(lines, "welcome to "); to != "ada@example.org" {
		t.Errorf("the mail goes to %q", to)
	}
	for _, c := range []struct {
		page, password string
		status         int
		has            string
	}{
		{"/errand/", "secret", http.StatusOK, "ops, operator"},
		{"/errand/", "guess", http.StatusUnauthorized, ""},
		{"/metrics", "", http.StatusOK, "errand_up 1"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+c.page, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("ops", c.password)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != c.status || !strings.Contains(string(body), c.has) || answer.Body.Close() != nil {
			t.Errorf("%s: %d %s, %v", c.page, answer.StatusCode, body, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	if left, err := filepath.Glob(path + "-wal"); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v: want the log to be gone with the last connection", left, err)
	}
	q, err := errand.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var users int
	err = q.Tx(t.Context(), func(tx *sql.Tx) error { return tx.QueryRow(`SELECT count(*) FROM users`).Scan(&users) })
	if err != nil || users != 1 {
		t.Errorf("%d users, %v: want 1", users, err)
	}
	counts, err := q.Counts(t.Context())
	states := map[string]errand.State{}
	for _, c := range counts {
		states[c.Kind] = c.State
	}
	if err != nil || states["welcome"] != errand.Done || states["remind"] != errand.Scheduled {
		t.Errorf("Counts returned %v, %v: want welcome done, and remind scheduled", counts, err)
	}
}
