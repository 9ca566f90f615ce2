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

// snsJSON is what a request in the form of Amazon SNS says.
type snsJSON struct {
	Type         string `json:"sns_type,omitempty"`
	Topic        string `json:"sns_topic,omitempty"`
	Subscription string `json:"sns_subscription,omitempty"`
	Message      string `json:"sns_message_id,omitempty"`
	Raw          bool   `json:"sns_raw,omitempty"`
	Subject      string `json:"sns_subject,omitempty"`
	SubscribeURL string `json:"subscribe_url,omitempty"`
	Confirmed    string `json:"confirmed,omitempty"` // what came of the visit to that
}

// snsOf returns the zero value for a request of another form.
func snsOf(h http.Header, body []byte) snsJSON {
	s := snsJSON{
		Type: h.Get("X-Amz-Sns-Message-Type"), Topic: h.Get("X-Amz-Sns-Topic-Arn"), Subscription: h.Get("X-Amz-Sns-Subscription-Arn"),
		Message: h.Get("X-Amz-Sns-Message-Id"), Raw: h.Get("X-Amz-Sns-Rawdelivery") == "true",
	}
	if s.Type == "" {
		return snsJSON{}
	}
	var envelope struct{ Type, Subject, SubscribeURL string }
	if !s.Raw && json.Unmarshal(body, &envelope) == nil {
		s.Subject, s.SubscribeURL = envelope.Subject, envelope.SubscribeURL
	}
	return s
}

// words are those of a line.
func (s *snsJSON) words() []string {
	out := []string{s.Type + " of " + orDash(s.Topic)}
	if s.Raw {
		out = append(out, "raw")
	}
	if s.Subject != "" {
		out = append(out, "subject "+s.Subject)
	}
	if s.SubscribeURL != "" {
		out = append(out, "confirmed by "+s.SubscribeURL)
	}
	if s.Confirmed != "" {
		out = append(out, "visited: "+s.Confirmed)
	}
	return out
}

const typeConfirmation = "SubscriptionConfirmation"

// visit visits the URL that confirms a subscription.
func (got *receivedJSON) visit(ctx context.Context) {
	s := &got.snsJSON
	if s.Type != typeConfirmation {
		return
	}
	if err := get(ctx, s.SubscribeURL); err != nil {
		s.Confirmed = err.Error()
		return
	}
	s.Confirmed = "ok"
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
