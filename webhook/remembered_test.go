package webhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/webhook"
)

// reads is a store that counts the entries of endpoints that are read.
type reads struct {
	*sqlite.Store
	n atomic.Int64
}

func (s *reads) Entry(ctx context.Context, class, name string) (storage.Entry, error) {
	if class != "webhook-failing" && class != "webhook-online" {
		s.n.Add(1)
	}
	return s.Store.Entry(ctx, class, name)
}

// An endpoint is read once, and again after it has changed, also by another process: the next
// attempt has its new URL and secret.
func TestDeliver_remembers(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "hooks.db")
	open := func() (*rig, *reads) {
		file, err := sqlite.Open(path, &sqlite.Options{Durability: sqlite.Relaxed, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		store := &reads{Store: file}
		q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet, Retention: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		r := &rig{T: t, q: q, world: &world{}}
		r.hooks = r.again(webhook.Options{})
		return r, store
	}
	r, store := open()
	other, _ := open()
	secret := r.endpoint("a")
	done := make(chan string, 100)
	for _, path := range []string{"a.example", "b.example", "c.example"} {
		r.world.answer(path, func(req *http.Request) (int, error) {
			done <- req.URL.Host
			return 200, nil
		})
	}
	stop := r.work()
	defer stop()
	sent := 0
	sends := func(host string, n int) {
		t.Helper()
		for range n {
			sent++
			r.send(webhook.Message{ID: fmt.Sprint("m", sent), Body: []byte("{}")}, "a")
			if got := <-done; got != host {
				t.Errorf("sent to %s, want %s", got, host)
			}
		}
		last := r.world.to(host)[len(r.world.to(host))-1]
		req, _ := http.NewRequest(http.MethodPost, "https://"+host, strings.NewReader(last.body))
		req.Header = last.header
		if _, err := webhook.Verify(req, []webhook.Secret{secret}, 0); err != nil {
			t.Errorf("the last to %s: %v", host, err)
		}
	}
	sends("a.example", 1)
	before := store.n.Load()
	sends("a.example", 20)
	if n := store.n.Load() - before; n != 20 { // Send reads its endpoint
		t.Errorf("%d entries read for 20 messages, want 20", n)
	}
	for i, by := range []*rig{r, other} {
		host := []string{"b.example", "c.example"}[i]
		if _, err := by.hooks.Update(t.Context(), webhook.Endpoint{ID: "a", URL: "https://" + host}); err != nil {
			t.Fatal(err)
		}
		sends(host, 2)
		var err error
		if secret, err = by.hooks.RotateSecret(t.Context(), "a", webhook.Secret{}, 0); err != nil {
			t.Fatal(err)
		}
		sends(host, 2)
	}
}
