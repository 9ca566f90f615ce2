package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/policy/policyhttp"
)

// delivery is how failed deliveries are tried again. Real ones take minutes and
// hours; this one is made for a receiver that recovers within seconds, and so
// that all four phases are seen.
var delivery = policy.Policy{
	Retries:        19,
	NoDelayRetries: 1, // immediate: a connection that was cut in a bad moment
	// Pre-backoff: a restart of the receiver.
	MinDelay: 100 * time.Millisecond, MinDelayRetries: 2,
	// Backoff, what is left: 4 retries that grow from MinDelay to MaxDelay.
	Backoff: policy.Exponential,
	// Post-backoff: an outage.
	MaxDelay: time.Second, MaxDelayRetries: 12,
}

// attemptTimeout bounds one attempt. An attempt that ends by it may have been
// received all the same, so a longer one means fewer duplicates.
const attemptTimeout = 2 * time.Second

// deliverer returns the handler. It is called again after a crash, and in rare
// cases for an event that was delivered: handlers must bear that. Here the
// Idempotency-Key tells the receiver.
func deliverer(client *http.Client, target func() string) func(context.Context, *errand.Job[OrderEvent]) error {
	return func(ctx context.Context, job *errand.Job[OrderEvent]) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, target(), bytes.NewReader(job.Args.Body))
		if err != nil {
			return errand.Permanent(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", job.Args.ID)
		res, err := client.Do(req)
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the URL is a secret, and errors are kept
		}
		if err != nil {
			return err // no connection, or a timeout
		}
		defer func() { _ = res.Body.Close() }()
		err = policyhttp.Error(res)
		if e, ok := errors.AsType[*policy.StatusError](err); ok {
			e.URL = "" // its path is the secret, which the error would name
		}
		return err // the default rules know what it means
	}
}

// newClient returns a client that follows no redirect to another host, and keeps a
// connection for each concurrent attempt.
func newClient(concurrency int) *http.Client {
	client := policyhttp.NewClient()
	client.Transport.(*policyhttp.Transport).MaxIdleConnsPerHost = concurrency
	return client
}
