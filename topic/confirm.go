package topic

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/webhook"
)

const (
	subscriptionConfirmation = "SubscriptionConfirmation"
	actionConfirm            = "ConfirmSubscription"
	actionUnsubscribe        = "Unsubscribe"
	// tokenFor is how long a subscription can be confirmed with a token.
	tokenFor = 48 * time.Hour
	// mostTokens is how many tokens of a subscription hold at a time: each attempt of its
	// confirmation has one of its own.
	mostTokens = 10
)

// tokensDoc has the tokens of a subscription in SNS mode.
type tokensDoc struct {
	// Unsubscribe is in each of its messages, and so kept as text.
	Unsubscribe string      `json:"unsubscribe"`
	Confirm     []tokenHash `json:"confirm,omitempty"` // the oldest first
}

// tokenHash is what is kept of a token by which a subscription is confirmed. It holds for Left from
// the UpdatedAt of the entry on, which moves if the clock is set back.
type tokenHash struct {
	Hash  string        `json:"hash"`
	Left  time.Duration `json:"left"`
	Until time.Time     `json:"until,omitzero"` // of older versions, without Left
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// equal compares secrets in constant time.
func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// tokens reads the tokens of a subscription.
func (t *Topics) tokens(ctx context.Context, id string) (d tokensDoc, e storage.Entry, err error) {
	if e, err = t.door.Entry(ctx, classTokens, id); err != nil {
		return d, e, about("tokens of subscription", id, err)
	}
	if json.Unmarshal(e.Doc, &d) != nil { // the error would show what is there
		err = unreadable(&e, errors.New("the tokens cannot be read"))
	}
	for i := range d.Confirm {
		if h := &d.Confirm[i]; !h.Until.IsZero() {
			h.Left, h.Until = h.Until.Sub(e.UpdatedAt), time.Time{}
		}
	}
	return d, e, err
}

// newToken returns a token by which a subscription can be confirmed from now on.
func (t *Topics) newToken(ctx context.Context, id string) (string, error) {
	token := id + "." + rand.Text()
	err := t.change(ctx, func() ([]storage.Entry, error) {
		d, e, err := t.tokens(ctx, id)
		if err != nil {
			return nil, err
		}
		passed := max(0, t.now().Sub(e.UpdatedAt))
		d.Confirm = slices.DeleteFunc(d.Confirm, func(h tokenHash) bool { return h.Left <= passed })
		for i := range d.Confirm {
			d.Confirm[i].Left -= passed
		}
		d.Confirm = append(d.Confirm, tokenHash{Hash: hashOf(token), Left: tokenFor})
		d.Confirm = d.Confirm[max(0, len(d.Confirm)-mostTokens):]
		e.Doc, err = json.Marshal(d)
		return []storage.Entry{e}, err
	})
	return token, err
}

// confirmation is the args of the job that asks the receiver to confirm a subscription.
type confirmation struct {
	Subscription string `json:"subscription"`
}

// Kind implements [errand.Args].
func (confirmation) Kind() string { return "topic.confirm" }

// confirm is the handler of confirmations.
func (t *Topics) confirm(ctx context.Context, job *errand.Job[confirmation]) error {
	s, top, err := t.read(ctx, job.Args.Subscription)
	if err != nil || s.State != Pending {
		return err
	}
	token, err := t.newToken(ctx, s.ID)
	if err != nil {
		return notRead(err)
	}
	id := job.ID.String()
	body, err := t.confirmationSNS(&s, id, token, wall())
	if err != nil {
		return err
	}
	d := effective(&top, &s, policy.SystemDefault())
	_, err = t.webhooks.Deliver(ctx, &webhook.Outgoing{
		Endpoint: s.Endpoint, Message: id, Attempt: job.Attempt, Body: body, Secrets: []string{token},
		Header: t.headerSNS(subscriptionConfirmation, id, s.Topic), Policy: &d, Rules: rulesSNS,
	})
	return err
}

// Confirm confirms a subscription in SNS mode with the token that was sent to its endpoint,
// and returns it. A token holds for two days, also if it was used. Confirm returns an
// [errand.FieldError] for a token that does not hold.
func (t *Topics) Confirm(ctx context.Context, token string) (Subscription, error) {
	id, d, entry, err := t.ofToken(ctx, token)
	if err != nil {
		return Subscription{}, noToken(err)
	}
	hash, holds := hashOf(token), false
	for _, h := range d.Confirm {
		holds = holds || equal(h.Hash, hash) && t.now().Before(entry.UpdatedAt.Add(h.Left))
	}
	if !holds {
		return Subscription{}, errToken
	}
	err = t.change(ctx, func() ([]storage.Entry, error) {
		s, _, err := t.subscription(ctx, id)
		if err != nil || s.State != Pending {
			return nil, err
		}
		s.State = Confirmed
		entry, err := s.entry(s.Revision, 0) // it joins now
		return []storage.Entry{entry}, err
	})
	if err != nil {
		return Subscription{}, err
	}
	return t.Subscription(ctx, id)
}

// errToken is returned for every token that does not hold, whatever the reason. It does not
// show the token.
var errToken error = &errand.FieldError{Field: "token", Value: "a token", Limit: "must be one that was sent, and not too old"}

// ofToken returns the ID in a token, and the tokens of that subscription with their entry.
func (t *Topics) ofToken(ctx context.Context, token string) (id string, d tokensDoc, e storage.Entry, err error) {
	at := strings.LastIndexByte(token, '.')
	if at < 0 || !isName(token[:at], maxID, "._-") {
		return "", d, e, errToken
	}
	d, e, err = t.tokens(ctx, token[:at])
	return token[:at], d, e, err
}

// noToken returns errToken in place of an error by which there is no subscription of a token.
func noToken(err error) error {
	if errors.Is(err, errand.ErrNotFound) {
		return errToken
	}
	return err
}

// unsubscribe deletes the subscription of a token that was in one of its messages. One that
// is there no more has ended: nobody can know any longer whether the token was its own.
func (t *Topics) unsubscribe(ctx context.Context, token string) error {
	id, d, _, err := t.ofToken(ctx, token)
	if errors.Is(err, errand.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if d.Unsubscribe == "" || !equal(id+"."+d.Unsubscribe, token) {
		return errToken
	}
	return gone(t.Unsubscribe(ctx, id))
}

// ConfirmHandler returns the handler of the URLs in messages of SNS mode, by which
// receivers confirm subscriptions and end them. The application mounts it where
// [Options].ConfirmURL says. It takes GET and POST, and answers in the XML of SNS.
func (t *Topics) ConfirmHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodPost {
			w.Header().Set("Allow", "GET, POST")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
		var answer any
		var err error
		switch action := r.FormValue("Action"); action {
		case actionConfirm:
			answer, err = t.confirmed(r.Context(), r.FormValue("TopicArn"), r.FormValue("Token"))
		case actionUnsubscribe:
			answer, err = unsubscribed{Space: spaceSNS, Request: newRequestID()}, t.unsubscribe(r.Context(), r.FormValue("Token"))
		default:
			err = &errand.FieldError{Field: "action", Value: action, Limit: "must be ConfirmSubscription or Unsubscribe"}
		}
		switch {
		case err == nil:
			writeXML(w, http.StatusOK, answer)
		case errors.Is(err, errand.ErrInvalid):
			writeXML(w, http.StatusBadRequest, refused{Space: spaceSNS, Request: newRequestID(), Type: "Sender", Code: "InvalidParameter", Message: "Invalid parameter"})
		default:
			writeXML(w, http.StatusServiceUnavailable, refused{Space: spaceSNS, Request: newRequestID(), Type: "Receiver", Code: "ServiceUnavailable", Message: "Try again"})
		}
	})
}

// confirmed confirms the subscription of a token and returns the answer.
func (t *Topics) confirmed(ctx context.Context, topicARN, token string) (any, error) {
	id, _, _, err := t.ofToken(ctx, token)
	if err != nil {
		return nil, noToken(err)
	}
	s, err := t.Subscription(ctx, id)
	if err != nil {
		return nil, err
	}
	if topicARN != t.opts.ARN("topic", s.Topic) {
		return nil, errToken
	}
	if s, err = t.Confirm(ctx, token); err != nil {
		return nil, err
	}
	return confirmed{Space: spaceSNS, Request: newRequestID(), ARN: t.opts.ARN("subscription", s.ID)}, nil
}

// spaceSNS is the namespace of answers of SNS.
const spaceSNS = "http://sns.amazonaws.com/doc/2010-03-31/"

type (
	confirmed struct {
		XMLName xml.Name `xml:"ConfirmSubscriptionResponse"`
		Space   string   `xml:"xmlns,attr"`
		ARN     string   `xml:"ConfirmSubscriptionResult>SubscriptionArn"`
		Request string   `xml:"ResponseMetadata>RequestId"`
	}
	unsubscribed struct {
		XMLName xml.Name `xml:"UnsubscribeResponse"`
		Space   string   `xml:"xmlns,attr"`
		Request string   `xml:"ResponseMetadata>RequestId"`
	}
	refused struct {
		XMLName xml.Name `xml:"ErrorResponse"`
		Space   string   `xml:"xmlns,attr"`
		Type    string   `xml:"Error>Type"`
		Code    string   `xml:"Error>Code"`
		Message string   `xml:"Error>Message"`
		Request string   `xml:"RequestId"`
	}
)

// newRequestID returns the ID of an answer, in the form of a UUID. Nothing is kept under it.
func newRequestID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // which never returns an error
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func writeXML(w http.ResponseWriter, status int, v any) {
	body, err := xml.Marshal(v)
	if err != nil {
		http.Error(w, "cannot answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the receiver may be gone
}
