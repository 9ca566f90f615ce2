package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/internal/remember"
	"github.com/errandq/errand/policy"
)

// Queues is what [errand.WorkerOptions].Queues needs for deliveries: an endpoint is the
// queue "webhook/" followed by its ID.
const Queues = "webhook/*"

const (
	kindDelivery        = "webhook"
	kindTopic           = "topic" // of the deliveries of package topic
	defaultTimeout      = 15 * time.Second
	defaultDisableAfter = 5 * 24 * time.Hour
	// The handler has time to read its endpoint and message, and to say what became of
	// the request, beside that of the request.
	beside = 10 * time.Second
)

// Options configure [Webhooks]. Nil and the zero value mean defaults.
type Options struct {
	// Policy is the delivery policy of endpoints without one, and of the sections that
	// theirs lack. An endpoint gets its throttle, at most 10,000 a second, when it is
	// created. If nil, [policy.Webhook].
	Policy policy.Delivery
	// Timeout is how long a request may take, from the look-up of the name to the end of
	// the answer, at most 10 min. If zero, 15 s.
	Timeout time.Duration
	// AllowHTTP accepts URLs of scheme http too. If false, only https.
	AllowHTTP bool
	// AllowAddresses are the addresses that are connected to although they are not
	// public, such as those of receivers in the same network. None may be a prefix of
	// mapped addresses. If nil, none.
	AllowAddresses []netip.Prefix
	// RootCAs are the authorities that the certificates of endpoints must come from. If
	// nil, those of the system.
	RootCAs *x509.CertPool
	// Certificates are shown to endpoints that ask for one. If nil, none is.
	Certificates []tls.Certificate
	// Proxy returns the proxy for a request, as in [http.Transport]. The addresses of
	// endpoints cannot be judged then, only that of the proxy. If nil, no proxy.
	Proxy func(*http.Request) (*url.URL, error)
	// Transport sends the requests, in place of connections of this package: then
	// addresses, certificates and the proxy are its business. If nil, this package's.
	Transport http.RoundTripper
	// UserAgent is the header of this name. If empty, "errand-webhook".
	UserAgent string
	// Secrets returns the secrets that sign the messages for an endpoint, for programs
	// that keep them elsewhere. It is called for each attempt, and must be safe for
	// concurrent use. While it returns an error, none, or one that cannot sign, deliveries
	// wait, see [ErrNoSecret]. If nil, secrets are kept in the queue's file, as text.
	Secrets func(ctx context.Context, endpoint string) ([]Secret, error)
	// Unsigned is true if messages are sent without a signature to an endpoint for which
	// Secrets returns none and no error. If false, they wait.
	Unsigned bool
	// Keep is how long messages are kept for [Webhooks.Replay] after they were sent. A
	// message with deliveries that are live, dead, or finished and still listed, is kept
	// in any case. If zero, only these are.
	Keep time.Duration
	// DisableAfter is how long an endpoint may fail until it is disabled. Only time
	// counts in which another endpoint was reached, or Online was open. If zero, 5 days;
	// if negative, none is disabled for that.
	DisableAfter time.Duration
	// Online is a gate that is open while this machine has a network, as [gate.Dial] and
	// [gate.HTTP] find out. It need not be set: an endpoint that is reached shows the
	// same. A delivery that fails asks it, and waits a second at most; after that its
	// last answer counts, and before its first it counts as closed. If nil, only
	// endpoints that are reached count.
	Online errand.Gate
	// Logger receives a line when an endpoint is disabled, when [Webhooks.Declare] adds or changes
	// one, and when Online does not answer. If nil, slog.Default.
	Logger *slog.Logger
}

// Webhooks keeps the endpoints of a queue, and sends messages to them. It is safe for
// concurrent use.
//
// A message that was sent is a job for each endpoint, in a queue of the endpoint's own.
// What package errand has for queues therefore holds for endpoints: [errand.Queue.Hold],
// concurrency, caps, the list of jobs and the dead letters. An endpoint that is slow or
// gone keeps no other back, see [Webhooks.Handle]. A job has the IDs of message and
// endpoint as args. All else is looked up for each attempt, so a change reaches
// deliveries that wait.
type Webhooks struct {
	queue   *errand.Queue
	topics  door.Topics[errand.NewJob]
	opts    Options // with defaults
	client  *client
	failing failing
	slow    slow
	// What was read of endpoints last.
	endpointsRead remember.Entries[Endpoint]
	secretsRead   remember.Entries[[]lasting]
	clock         errand.Gate
	within        bool // all is inside of a transaction of the application
}

// New returns the webhooks of a queue. It starts nothing. It returns an
// [errand.FieldError] for each fault of the options, and [errand.ErrUnsupportedDB] if the
// queue's store keeps no messages.
func New(q *errand.Queue, o *Options) (*Webhooks, error) {
	if q == nil {
		return nil, &errand.FieldError{Field: "queue", Limit: "must not be nil"}
	}
	opts := *cmp.Or(o, &Options{})
	if err := opts.validate(); err != nil {
		return nil, err
	}
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		return nil, err
	}
	opts.Timeout = cmp.Or(opts.Timeout, defaultTimeout)
	opts.DisableAfter = cmp.Or(opts.DisableAfter, defaultDisableAfter)
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.Policy == nil {
		opts.Policy = policy.Webhook()
	}
	h := &Webhooks{queue: q, topics: topics, opts: opts, client: newClient(opts.client()), clock: gate.ClockPlausible(time.Time{})}
	h.failing.init(h)
	return h, nil
}

// now is the time that stored times are compared with. Receivers get the wall clock.
func (h *Webhooks) now() time.Time { return h.queue.Clock().Now }

// Close ends the connections that are kept for later requests. It waits for no delivery:
// stop the workers before.
func (h *Webhooks) Close() { h.client.close() }

const maxTimeout = 10 * time.Minute

func (o *Options) validate() error {
	var f faults
	if o.Policy != nil {
		f.policy("policy", o.Policy)
	}
	if o.Timeout > maxTimeout {
		f.field("timeout", o.Timeout, fmt.Sprintf("must be at most %v", maxTimeout))
	}
	c := o.client()
	if err := c.validate(); err != nil {
		f = append(f, err)
	}
	if !isHeaderValue(o.UserAgent) {
		f.field("user_agent", o.UserAgent, "must be without control characters, and without spaces around it")
	}
	if o.Keep < 0 {
		f.field("keep", o.Keep, "must not be negative")
	}
	return f.err()
}

// policy checks a delivery policy.
func (f *faults) policy(field string, d policy.Delivery) {
	for _, fault := range policy.Faults(d.Validate()) {
		f.field(field+"."+fault.Path, fault.Value, fault.Want)
	}
	f.checkThrottle(field+".Throttle.MaxReceivesPerSecond", d.Delivery().Throttle)
}

// client returns what the client needs.
func (o *Options) client() clientOptions {
	return clientOptions{
		allowed: o.AllowAddresses, allowHTTP: o.AllowHTTP, rootCAs: o.RootCAs, certificates: o.Certificates,
		proxy: o.Proxy, timeout: o.Timeout, transport: o.Transport, userAgent: o.UserAgent,
	}
}

// Handle registers the handler of deliveries on a worker, whose Queues must have
// [Queues] or those of the endpoints that it works for; without them no delivery is made.
// It panics as [errand.Handle] does.
//
// A delivery counts for [errand.WorkerOptions].Concurrency for 100 ms. After that it
// waits for the answer while others start, up to 1,000 in a worker.
// [errand.QueueOptions].Concurrency of [Queues] bounds those of each endpoint.
//
// While the wall clock cannot be right, see [gate.ClockPlausible], deliveries wait: the
// receivers would refuse their timestamps.
func (h *Webhooks) Handle(w *errand.Worker) {
	errand.Handle(w, h.deliver, h.HandlerOptions())
}

// DefaultPolicy returns the delivery policy of [Options], for endpoints without one and the
// sections that theirs lack.
func (h *Webhooks) DefaultPolicy() policy.Document { return h.opts.Policy.Delivery().Document }

// HandlerOptions returns the options for the handler of a kind that calls
// [Webhooks.Deliver].
func (h *Webhooks) HandlerOptions() errand.HandlerOptions {
	// A throttle would be that of all endpoints together.
	d := h.DefaultPolicy()
	return errand.HandlerOptions{
		Policy:  policy.Document{Retry: d.Retry, ThrottledRetry: d.ThrottledRetry},
		Timeout: h.opts.Timeout + beside, CountsFor: countsFor,
		Gate: h.clock,
	}
}
