package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// readSNS reads what a request says if it is in the form of Amazon SNS.
func (got *received) readSNS(h http.Header, body []byte) {
	if got.Type = h.Get("X-Amz-Sns-Message-Type"); got.Type == "" {
		return
	}
	got.Topic, got.Subscription = h.Get("X-Amz-Sns-Topic-Arn"), h.Get("X-Amz-Sns-Subscription-Arn")
	got.Message, got.Raw = h.Get("X-Amz-Sns-Message-Id"), h.Get("X-Amz-Sns-Rawdelivery") == "true"
	var envelope struct{ Type, Subject, SubscribeURL string }
	if !got.Raw && json.Unmarshal(body, &envelope) == nil {
		got.Subject, got.SubscribeURL = envelope.Subject, envelope.SubscribeURL
	}
}

// words are those of a line about a request in the form of Amazon SNS.
func (got *received) words() []string {
	out := []string{got.Type + " of " + orDash(got.Topic)}
	if got.Raw {
		out = append(out, "raw")
	}
	if got.Subject != "" {
		out = append(out, "subject "+got.Subject)
	}
	if got.SubscribeURL != "" {
		out = append(out, "confirmed by "+got.SubscribeURL)
	}
	if got.Confirmed != "" {
		out = append(out, "visited: "+got.Confirmed)
	}
	return out
}

const typeConfirmation = "SubscriptionConfirmation"

// visit visits the URL that confirms a subscription.
func (got *received) visit(ctx context.Context) {
	if got.Type != typeConfirmation {
		return
	}
	if err := get(ctx, got.SubscribeURL); err != nil {
		got.Confirmed = err.Error()
		return
	}
	got.Confirmed = "ok"
}

// get makes a request, and returns an error for a status that is not 2xx.
func get(ctx context.Context, to string) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("SubscribeURL is no URL of http or https")
	}
	ctx, end := context.WithTimeout(ctx, 10*time.Second)
	defer end()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return errors.Join(err, resp.Body.Close())
}
