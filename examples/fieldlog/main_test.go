package main

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// The program goes through all that its network does, says why readings wait, and
// loses none.
func TestProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fieldlog.db")
	var out bytes.Buffer
	if err := run(t.Context(), path, &out); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^online: +0 wait, last sync 0 s ago
the modem has no carrier: +5 wait, last sync \d+ s ago, held: no carrier
a carrier, but no route: +7 wait, last sync \d+ s ago, held: network is unreachable
a captive portal answers: +9 wait, last sync \d+ s ago, held: log in to this network
the token has expired: +12 wait, last sync \d+ s ago, held: token expired
there is a new token: +0 wait, last sync \d+ s ago
the server is overloaded: +1 wait, last sync \d+ s ago
online: +0 wait, last sync \d+ s ago
16 readings written, 16 received
$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("the program says\n%s", out.String())
	}

	q, err := errand.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	counts, err := q.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[0].State != errand.Done || counts[0].N != 16 {
		t.Errorf("the jobs are %v, %v: want 16 done", counts, err)
	}
	err = q.Tx(t.Context(), func(tx *sql.Tx) error {
		var n int
		err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM readings WHERE sent IS NOT NULL`).Scan(&n)
		if n != 16 {
			t.Errorf("%d readings are marked as sent, want 16", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// What holds other jobs is not shown, and of what holds uploads that of their own lane.
func TestDevice_held(t *testing.T) {
	ctx := t.Context()
	login := func(context.Context) (string, error) { return "token", nil }
	d, err := open(ctx, filepath.Join(t.TempDir(), "fieldlog.db"), http.DefaultClient, "", login, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.close() }()
	for _, c := range []struct {
		queue, kind, reason, want string
	}{
		{"default", "download", "full", ""},
		{"other", "", "paused", ""},
		{"other", "upload", "offline", ""},
		{"default", "", "paused", "paused"},
		{"default", "upload", "roaming", "roaming"},
	} {
		err := d.queue.Hold(ctx, errand.Lane{Queue: c.queue, Kind: c.kind}, &errand.HoldOptions{Reason: c.reason})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.held(ctx); got != c.want || err != nil {
			t.Errorf("with a hold of %q, %q: held for %q, %v, want %q", c.queue, c.kind, got, err, c.want)
		}
	}
}

func TestStatus_String(t *testing.T) {
	for want, s := range map[string]status{
		"12 wait, last sync 3 h ago, held: token expired": {12, 3*time.Hour + time.Minute, "token expired"},
		"0 wait, last sync 59 s ago":                      {0, time.Minute - 1, ""},
		"7 wait, last sync 59 min ago":                    {7, time.Hour - 1, ""},
		"7 wait, last sync 47 h ago":                      {7, 48*time.Hour - 1, ""},
		"7 wait, last sync 2 d ago":                       {7, 48 * time.Hour, ""},
		"1 wait, never synced, held: no carrier":          {1, -1, "no carrier"},
	} {
		if got := s.String(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}
