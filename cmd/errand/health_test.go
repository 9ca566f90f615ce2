package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	queue "github.com/errandq/errand"
)

// A queue that was opened for reading alone says that it does not know whether it can be
// written. What else is wrong is not hidden.
func TestHealthOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	for _, readOnly := range []bool{false, true} {
		q, err := queue.Open(t.Context(), path, &queue.Options{
			SQLite: queue.SQLiteOptions{Ballast: -1, ReadOnly: readOnly}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		h := healthOf(t.Context(), q)
		if known := h.Ready != nil; known == readOnly || known && !*h.Ready || (h.Unknown == "") == readOnly || !h.Live || len(h.Reasons) > 0 {
			t.Errorf("read-only %v: %+v", readOnly, h)
		}
		want := `{"live":true,"ready":true}`
		if readOnly {
			want = `{"live":true,"unknown":"the file is only read here"}`
		}
		if b, err := json.Marshal(h); err != nil || string(b) != want {
			t.Errorf("read-only %v: %s, %v", readOnly, b, err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		h = healthOf(t.Context(), q)
		if h.Live || h.Ready == nil || *h.Ready || len(h.Reasons) != 1 || h.Reasons[0].Code != queue.HealthClosed {
			t.Errorf("read-only %v, closed: %+v", readOnly, h)
		}
		if b, err := json.Marshal(h); err != nil || !strings.HasPrefix(string(b), `{"live":false,"ready":false,"reasons":[{"code":"closed",`) {
			t.Errorf("read-only %v, closed: %s, %v", readOnly, b, err)
		}
		if _, err := lanes(t.Context(), q); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("read-only %v, closed: %v, want ErrClosed", readOnly, err)
		}
	}
}
