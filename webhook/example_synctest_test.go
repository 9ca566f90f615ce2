package webhook_test

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

// receivers answers requests without a network.
type receivers func(*http.Request) int

func (f receivers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: f(r), Body: http.NoBody, Request: r}, nil
}

// In a bubble of testing/synctest the retries of hours take no time. It cannot be an Example, as a
// bubble needs a test.
func TestExample_synctest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
		q, err := errand.Open(t.Context(), path, &errand.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		up, got := time.Now().Add(2*time.Hour), make(chan time.Time, 1)
		hooks, err := webhook.New(q, &webhook.Options{Transport: receivers(func(*http.Request) int {
			if time.Now().Before(up) {
				return http.StatusServiceUnavailable
			}
			got <- time.Now()
			return http.StatusOK
		})})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := hooks.Create(t.Context(), webhook.Endpoint{ID: "ada", URL: "https://ada.example/in"}, webhook.Secret{}); err != nil {
			t.Fatal(err)
		}
		if _, err := hooks.Send(t.Context(), webhook.Message{Body: []byte("{}")}, "ada"); err != nil {
			t.Fatal(err)
		}
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{webhook.Queues}})
		hooks.Handle(w)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()

		time.Sleep(24 * time.Hour)
		synctest.Wait()
		select {
		case at := <-got:
			if at.Before(up) {
				t.Errorf("delivered at %v", at)
			}
		default:
			t.Error("not delivered in a day")
		}

		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		hooks.Close()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
