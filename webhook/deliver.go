package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// Outgoing is a request of an attempt, for [Webhooks.Deliver].
type Outgoing struct {
	// Endpoint is the ID of the endpoint.
	Endpoint string
	// Message is the ID of the message, which is signed with it.
	Message string
	// Type is the type of the message. If empty, the EventTypes of the endpoint do not count.
	Type string
	// typed is true if they count for an empty Type too.
	typed bool
	// Revisions are those of the entries that [EntriesOf] names, as they were read with the
	// message. While they are the same, what is remembered of the endpoint is not read again. If
	// nil, it is.
	Revisions []int64
	// Attempt is that of the job.
	Attempt int
	// ContentType is that of Body. If empty, that of the policy, else application/json.
	ContentType string
	// Header is sent in addition to the endpoint's headers. Its names may be those that
	// endpoints must not use. If nil, none.
	Header http.Header
	// Body has at most 2 MiB: a message in an envelope may be larger than one by itself.
	Body []byte
	// Secrets are values in Body that prove something, of at least six bytes. Where the answer
	// or an error repeats them there are dots in their place. If nil, none.
	Secrets []string
	// Policy goes before that of the endpoint, section by section. If nil, none does.
	Policy *policy.Document
	// Rules classify what failed, 410 too, which then disables nothing. If nil, those of
	// this package: an endpoint that is not reached is [policy.Unavailable], and all else
	// is retried.
	Rules policy.Rules
}

// Answer is what came back of a request. Status is zero if there was no answer.
type Answer struct {
	Status  int           `json:"status,omitempty"`
	Latency time.Duration `json:"latency_s"`
	Text    string        `json:"text,omitempty"` // the first KiB of the answer, if it is text
}

// EntriesOf names the entries that a request to an endpoint depends on: the endpoint and
// its secrets. MessageWith of the queue's door returns their revisions together with the
// message, which spares an attempt its other reads: see [Outgoing].Revisions.
func EntriesOf(endpoint string) []storage.EntryName {
	return []storage.EntryName{{Class: classEndpoint, Name: endpoint}, {Class: classSecrets, Name: endpoint}}
}

// revision returns one of Revisions. It is not ok if they are not known.
func (o *Outgoing) revision(i int) (revision int64, ok bool) {
	if len(o.Revisions) != len(EntriesOf("")) {
		return 0, false
	}
	return o.Revisions[i], true
}

// MarshalJSON writes durations in seconds.
func (a Answer) MarshalJSON() ([]byte, error) { return seconds.Marshal(a) }

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Answer) UnmarshalJSON(data []byte) error { return seconds.Unmarshal(data, a) }

// deliver is the handler of deliveries.
func (h *Webhooks) deliver(ctx context.Context, job *errand.Job[delivery]) error {
	id := job.Args.Endpoint
	kept, revisions, err := h.topics.MessageWith(ctx, job.Args.Message, EntriesOf(id)...)
	if err != nil {
		return notRead(about("message", job.Args.Message, err))
	}
	m, err := messageOf(&kept)
	if err != nil {
		return err
	}
	_, err = h.Deliver(ctx, &Outgoing{
		Endpoint: id, Message: m.ID, Type: m.Type, typed: true, Attempt: job.Attempt, ContentType: m.ContentType, Body: m.Body,
		Revisions: revisions,
	})
	return err
}

// notRead is the verdict on what could not be read from the file: what is not there never
// comes, and the rest is nothing that the receiver could help, and so costs nothing.
func notRead(err error) error {
	switch {
	case errors.Is(err, errand.ErrNotFound):
		return errand.Permanent(err)
	case errors.Is(err, errand.ErrCorrupt), errors.Is(err, errand.ErrInvalid):
		return err
	}
	return errand.Unavailable(err)
}

// Deliver sends one request to an endpoint, in a handler, and returns what the handler is
// to return:
//
//   - nil after a status from 200 to 299
//   - after 410, without Rules, [errand.Snooze]: the endpoint is disabled, so the job waits until it is
//     enabled again
//   - for an endpoint that was deleted, or does not take the type, [errand.Cancel]
//   - an error of class [policy.Unavailable] if the endpoint cannot be reached, or has no
//     secret that signs, see [ErrNoSecret]; it costs the job nothing, see [errand.Unavailable]
//   - [errand.HoldLane], without a request, for an endpoint that does not answer: while
//     16 requests have had no answer for a second, or, after three attempts in a row that
//     ran out of time, while one has no answer
//   - else an error that is retried by the endpoint's policy, not before the Retry-After
//     of the answer
//
// An endpoint that has failed for [Options].DisableAfter is disabled.
func (h *Webhooks) Deliver(ctx context.Context, o *Outgoing) (Answer, error) {
	e, err := h.endpointOf(ctx, o)
	if err != nil {
		return Answer{}, err
	}
	if (o.typed || o.Type != "") && !e.takes(o.Type) {
		return Answer{}, errand.Cancel(fmt.Errorf("endpoint %q does not take messages of type %q", e.ID, o.Type))
	}
	d := h.policyOf(&e, o)
	end, err := h.slow.begin(e.ID, h.opts.Timeout)
	if err != nil {
		return Answer{}, err
	}
	answer, err := func() (a Answer, err error) {
		defer func() { end(a.Status != 0, o.late(err)) }() // also if Secrets or Transport panic
		return h.attempt(ctx, &e, o, &d)
	}()
	if err == nil {
		return answer, h.wentWell(ctx, e.ID)
	}
	return answer, h.wentWrong(ctx, &e, o, &d, answer, err)
}

// endpointOf returns the endpoint of an attempt as it is now. Its error is a verdict.
func (h *Webhooks) endpointOf(ctx context.Context, o *Outgoing) (Endpoint, error) {
	if revision, ok := o.revision(0); ok {
		if e, ok := h.endpointsRead.At(o.Endpoint, revision); ok {
			return e, nil
		}
	}
	entry, err := h.topics.Entry(ctx, classEndpoint, o.Endpoint)
	if errors.Is(err, errand.ErrNotFound) {
		return Endpoint{}, errand.Cancel(about("endpoint", o.Endpoint, err))
	}
	if err != nil {
		return Endpoint{}, notRead(err)
	}
	e, err := endpointOf(&entry)
	if err == nil {
		h.endpointsRead.Put(e.ID, e.Revision, len(entry.Doc), e)
	}
	return e, err
}

// policyOf returns the delivery policy of an attempt.
func (h *Webhooks) policyOf(e *Endpoint, o *Outgoing) policy.Document {
	var d policy.Document
	if o.Policy != nil {
		d = *o.Policy
	}
	if e.Policy != nil {
		d = d.Or(*e.Policy)
	}
	return d.Or(h.opts.Policy.Delivery().Document)
}

// attempt makes the request.
func (h *Webhooks) attempt(ctx context.Context, e *Endpoint, o *Outgoing, d *policy.Document) (Answer, error) {
	secrets, err := h.signing(ctx, e.ID, o)
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	to := &target{id: e.ID, url: e.URL, header: e.Headers, secrets: secrets}
	m := &message{id: o.Message, body: o.Body, contentType: o.ContentType, own: o.Header}
	if d.Request != nil && m.contentType == "" {
		m.contentType = d.Request.ContentType
	}
	req, err := h.client.buildRequest(ctx, m, to, max(o.Attempt, 1), time.Now())
	if err != nil {
		return Answer{}, err
	}
	a, err := h.client.send(req, o.Secrets...)
	return Answer{a.status, a.latency, a.text}, err
}

// wentWell notes that an endpoint was reached. What fails here is no reason to send the
// message again.
func (h *Webhooks) wentWell(ctx context.Context, id string) error {
	if err := h.failing.succeeded(ctx, id); err != nil {
		h.opts.Logger.Warn("errand: cannot note that an endpoint was reached", "endpoint", id, "error", err)
	}
	return nil
}

// wentWrong returns the verdict on an attempt that failed.
func (h *Webhooks) wentWrong(ctx context.Context, e *Endpoint, o *Outgoing, d *policy.Document, a Answer, err error) error {
	if _, ok := errand.VerdictOf(err); ok {
		return err
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return err // of a stop, or a lost lease
	}
	if gone := h.isGone(ctx, e); gone != nil {
		return errand.Cancel(errors.Join(gone, err))
	}
	if o.Rules == nil && errors.Is(err, errGone) {
		if held := h.disable(ctx, e, "the endpoint answered 410 Gone"); held != nil {
			return errand.Snooze(time.Second, held)
		}
		return errand.Snooze(time.Second, err)
	}
	class := o.rules().Classify(err)
	down, noted := h.failing.failed(ctx, e.ID)
	switch most := h.opts.DisableAfter; {
	case noted != nil:
		h.opts.Logger.Warn("errand: cannot note that an endpoint fails", "endpoint", e.ID, "error", noted)
	case most > 0 && down >= most:
		if held := h.disable(ctx, e, fmt.Sprintf("failed for %s in which others were reached", span(down))); held != nil {
			h.opts.Logger.Warn("errand: cannot disable an endpoint", "endpoint", e.ID, "error", held)
		}
	}
	return errand.UnderPolicy(*d, policy.Mark(err, class))
}

// rules classify what failed.
func (o *Outgoing) rules() policy.Rules {
	if o.Rules != nil {
		return o.Rules
	}
	return webhookRules()
}

// late reports whether a request had no answer in time. Where the endpoint was not reached
// the worker holds its deliveries.
func (o *Outgoing) late(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout() && o.rules().Classify(err) != policy.Unavailable
}

// span writes a time in the largest unit of which it has at least two.
func span(d time.Duration) string {
	for _, unit := range []struct {
		name string
		time.Duration
	}{{"days", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}} {
		if d >= 2*unit.Duration {
			return fmt.Sprintf("%d %s", d/unit.Duration, unit.name)
		}
	}
	return d.Round(time.Millisecond).String()
}

// isGone returns an error if an endpoint was deleted since it was read, though another
// may have its ID: the result of a request to the old one must not count for the new one.
func (h *Webhooks) isGone(ctx context.Context, e *Endpoint) error {
	now, err := h.topics.Entry(ctx, classEndpoint, e.ID)
	switch {
	case errors.Is(err, errand.ErrNotFound):
		return about("endpoint", e.ID, errDeleted)
	case err == nil && !now.CreatedAt.Equal(e.CreatedAt):
		return about("endpoint", e.ID, fmt.Errorf("%w, and another has its ID", errDeleted))
	}
	return nil
}

var errDeleted = errors.New("was deleted while it was sent to")

// disable holds the queue of an endpoint.
func (h *Webhooks) disable(ctx context.Context, e *Endpoint, reason string) error {
	lane := errand.Lane{Queue: queueOf(e.ID)}
	if err := h.queue.Hold(ctx, lane, &errand.HoldOptions{Reason: HoldDisabled, By: reason}); err != nil {
		return err
	}
	if h.isGone(ctx, e) != nil {
		_, err := h.queue.Release(ctx, lane, HoldDisabled)
		return err
	}
	h.opts.Logger.Warn("errand: endpoint is disabled", "endpoint", e.ID, "reason", reason)
	return nil
}

// Test sends a message of type "webhook.test" to an endpoint at once, without a job and
// retries, and returns its answer. The error says what went wrong, and is nil after a
// status from 200 to 299. It changes nothing: a disabled endpoint stays disabled.
func (h *Webhooks) Test(ctx context.Context, id string) (Answer, error) {
	entry, err := h.topics.Entry(ctx, classEndpoint, id)
	if err != nil {
		return Answer{}, about("endpoint", id, err)
	}
	e, err := endpointOf(&entry)
	if err != nil {
		return Answer{}, err
	}
	o := &Outgoing{
		Endpoint: id, Message: newMessageID(), Type: testType, Attempt: 1,
		Body: []byte(`{"type":"` + testType + `","timestamp":"` + time.Now().UTC().Format(time.RFC3339) + `","data":{}}`),
	}
	d := h.policyOf(&e, o)
	return h.attempt(ctx, &e, o, &d)
}

const testType = "webhook.test"
