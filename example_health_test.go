package errand_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/errandq/errand"
)

// healthz serves the health of a queue: 200 if it is ready, else 503.
func healthz(q *errand.Queue) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		health := q.Health(ctx, &errand.HealthOptions{MaxAge: 15 * time.Minute})
		w.Header().Set("Content-Type", "application/json")
		if !health.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(health) // the client has gone away
	}
}

func ExampleQueue_Health() {
	q, remove := tempQueue(nil)
	defer remove()
	server := httptest.NewServer(healthz(q))
	defer server.Close()

	ask := func() {
		resp, err := http.Get(server.URL)
		if err != nil {
			panic(err)
		}
		defer func() { _ = resp.Body.Close() }()
		fmt.Printf("%d %s", resp.StatusCode, must(io.ReadAll(resp.Body)))
	}
	ask()
	check(q.Close())
	ask()
	// Output:
	// 200 {"live":true,"ready":true}
	// 503 {"live":false,"ready":false,"reasons":[{"code":"closed","text":"errand: closed"}]}
}
