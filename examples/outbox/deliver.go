package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
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
			return err // no connection, or a timeout: by the policy
		}
		// Read to the end, so that the connection can be used again.
		text, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
		if err := errors.Join(err, res.Body.Close()); err != nil {
			return err
		}
		return verdict(res, strings.TrimSpace(string(text)), time.Now())
	}
}

// verdict turns an answer into what the handler returns.
func verdict(res *http.Response, text string, now time.Time) error {
	err := fmt.Errorf("%s: %s", res.Status, text)
	switch {
	case res.StatusCode/100 == 2:
		return nil
	case res.StatusCode/100 != 5 && res.StatusCode != http.StatusTooManyRequests:
		return errand.Permanent(err)
	}
	if d := retryAfter(res.Header.Get("Retry-After"), now); d > 0 {
		return errand.RetryAfter(d, err)
	}
	return err
}

// retryAfter reads the header: a number of seconds, or a date.
func retryAfter(header string, now time.Time) time.Duration {
	if s, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return at.Sub(now)
	}
	return 0
}

// newClient returns a client that keeps a connection for each concurrent
// attempt and takes a redirect for an answer, as following it would turn the
// POST into a GET.
func newClient(concurrency int) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: concurrency},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
