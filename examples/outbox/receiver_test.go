package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	good      = `{"id":"evt_1","type":"order.shipped","at":"2026-03-01T08:00:00Z","order":"ORD-1"}`
	malformed = `{"id":"evt_3","type":"order.paid","at":"2026-03-01T08:00:00Z","order":"ORD-1"}`
)

func TestReceiver_RefusesConnectionsAtFirst(t *testing.T) {
	r, err := startReceiver(filepath.Join(t.TempDir(), "received"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post(r.URL(), "application/json", strings.NewReader(good))
	if err == nil {
		res.Body.Close()
		if age := time.Since(r.started); age < offlineFor {
			t.Errorf("answered %s after %v", res.Status, age)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestReceiver_TurnsMostAwayWhenOverloaded(t *testing.T) {
	r := newTestReceiver(t, -time.Hour)
	counts := make(map[int]int)
	for range 8 {
		res := receive(t.Context(), r, good)
		counts[res.Code]++
		if res.Code == 429 && res.Header().Get("Retry-After") != "1" {
			t.Error("429 without Retry-After")
		}
	}
	if counts[503] != 4 || counts[429] != 2 || counts[204] != 2 {
		t.Errorf("statuses %v, want 4 x 503, 2 x 429, 2 x 204", counts)
	}
	if n := ledgerAt(t, r.ledger.file.Name())["evt_1"]; n != 2 {
		t.Errorf("recorded %d times, want once for each 204", n)
	}
}

func TestReceiver_RefusesMalformedEventsUntilItIsCorrected(t *testing.T) {
	r := newTestReceiver(t, time.Hour)
	for _, body := range []string{malformed, "{", "{}"} {
		if res := receive(t.Context(), r, body); res.Code != 400 {
			t.Errorf("%s: status %d, want 400", body, res.Code)
		}
	}
	r.Correct()
	if res := receive(t.Context(), r, malformed); res.Code != 204 {
		t.Errorf("corrected: status %d, want 204", res.Code)
	}
	if got := ledgerAt(t, r.ledger.file.Name()); len(got) != 1 || got["evt_3"] != 1 {
		t.Errorf("recorded %v", got)
	}
}

func TestReceiver_RefusesEachRefundForAWhile(t *testing.T) {
	r := newTestReceiver(t, time.Hour)
	for _, id := range []string{"evt_1", "evt_2"} {
		body := `{"id":"` + id + `","type":"order.refunded","at":"2026-03-01T08:00:00Z","order":"ORD-1","amount":{"value":"1.00","currency":"EUR"}}`
		for i := range refundRefusals {
			if res := receive(t.Context(), r, body); res.Code != 503 || res.Header().Get("Retry-After") != "" {
				t.Errorf("%s, request %d: status %d, want 503", id, i+1, res.Code)
			}
		}
		if res := receive(t.Context(), r, body); res.Code != 204 {
			t.Errorf("%s, at last: status %d, want 204", id, res.Code)
		}
	}
}

// What it hangs on must not be recorded, or the retry would be a duplicate.
func TestReceiver_HangsOnceAndRecordsNothing(t *testing.T) {
	r := newTestReceiver(t, time.Hour)
	for _, o := range allOrders(t) {
		if !o.unlucky() || o.check() != nil || o.Type == "order.refunded" {
			continue
		}
		body, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		hungUp, hangUp := context.WithCancel(t.Context())
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			receive(hungUp, r, string(body))
		}()
		// Only the end of the context can end the request: if it ended by
		// itself the event would be recorded.
		hangUp()
		<-answered
		if n := ledgerAt(t, r.ledger.file.Name())[o.ID]; n != 0 {
			t.Errorf("recorded %d times", n)
		}
		if res := receive(t.Context(), r, string(body)); res.Code != 204 {
			t.Errorf("the second time: status %d, want 204", res.Code)
		}
		return
	}
	t.Error("no event that it hangs on")
}

// newTestReceiver returns a receiver of that age that is called, not served.
func newTestReceiver(t *testing.T, age time.Duration) *receiver {
	t.Helper()
	l, err := openLedger(filepath.Join(t.TempDir(), "received"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newReceiver(l)
	r.started = r.started.Add(-age)
	return r
}

func receive(ctx context.Context, r *receiver, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.receive(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", io.NopCloser(strings.NewReader(body))))
	return w
}
