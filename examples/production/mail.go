package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy/policyhttp"
)

// SendEmail is what a job is about. Its JSON is in the file, and outlives a
// release: add fields, never rename them.
type SendEmail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
}

// Kind names the type of job.
func (SendEmail) Kind() string { return "send_email" }

// mailer posts emails to a provider.
type mailer struct {
	url    string
	client *http.Client
}

// send is the handler. It may run twice for one job, so the provider is told
// the job's ID.
func (m *mailer) send(ctx context.Context, job *errand.Job[SendEmail]) error {
	body, err := json.Marshal(job.Args)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", job.ID.String())
	resp, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	// 404 is permanent, 429 and 503 are retried, not before their Retry-After.
	return policyhttp.Error(resp)
}

func newWorker(q *errand.Queue, m *mailer) *errand.Worker {
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 8, Timeout: time.Minute})
	errand.Handle(w, m.send)
	return w
}

// routes is the API.
func routes(q *errand.Queue) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /emails", func(w http.ResponseWriter, r *http.Request) {
		var email SendEmail
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&email); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		o := &errand.JobOptions{}
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			o.Unique = &errand.Unique{Key: key, Forever: true} // a client may post again
		}
		e, err := q.Enqueue(r.Context(), email, o)
		if err != nil {
			http.Error(w, err.Error(), httpStatus(err))
			return
		}
		w.WriteHeader(http.StatusAccepted) // it survives a power cut from here on
		_ = json.NewEncoder(w).Encode(e)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		health := q.Health(ctx, &errand.HealthOptions{MaxAge: 15 * time.Minute})
		w.Header().Set("Content-Type", "application/json")
		if !health.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(health) // the client has gone away
	})
	return mux
}

// httpStatus says whose fault an error is, and whether to try again.
func httpStatus(err error) int {
	switch {
	case errors.As(err, new(*errand.MergeError)):
		return http.StatusServiceUnavailable // until the waiting job has begun
	case errors.Is(err, errand.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, errand.ErrFull), errors.Is(err, errand.ErrQueueFull), errors.Is(err, errand.ErrBusy):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
