package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// HandlerOptions configure a [Handler].
type HandlerOptions struct {
	// Server is the name of this server, in the form of names of queues. It is needed: a request
	// for another server is refused.
	Server string
	// Key is the line of the private half of this server's key, see [NewKey]. Devices have its
	// public half. If empty, requests of devices with keys of Ed25519 have answers that no device
	// takes; those with other keys, or none, do not need it.
	Key string
	// Queue is the queue in which jobs are enqueued, unless [Rights].Queue names another. If
	// empty, "default".
	Queue string
	// Authorize returns what a device may, for programs that keep that elsewhere. The device has been
	// verified by its key or certificate, and is not revoked. An error refuses the request with status 403, and is
	// logged. It must be safe for concurrent use. If nil, the rights that [PutDevice] has set.
	Authorize func(ctx context.Context, device string) (Rights, error)
	// MaxConcurrent is how many requests are in work at a time, from when their bodies are read.
	// Others are told when to come again, one after the other at the rate at which requests end. If
	// zero, 16.
	MaxConcurrent int
	// Logger receives what no device is told: why a request had the status 403 of Authorize, or 500.
	// If nil, slog.Default.
	Logger *slog.Logger
}

const (
	defaultQueue      = "default"
	defaultConcurrent = 16
	// retryFailed is after how many seconds a device is to try again if the queue is closed, busy or
	// full.
	retryFailed = 10
	// A body has bodyWithin to come, and a second more for each bodyRate bytes.
	bodyWithin = 10 * time.Second
	bodyRate   = 8 << 10
)

// Handler returns a handler that takes the requests of devices and enqueues their jobs in q, which must be
// on SQLite. Serve it by HTTPS: requests are signed, but their jobs can be read. It is safe for
// concurrent use.
//
// The answer to a request leaves after the commit of its jobs. So q must not be
// [errand.Relaxed]. Handler returns an [errand.FieldError] for each fault, and [errand.ErrUnsupportedDB] if
// the store of q keeps no entries.
func Handler(q *errand.Queue, o *HandlerOptions) (http.Handler, error) {
	c := *cmp.Or(o, &HandlerOptions{})
	c.Queue = cmp.Or(c.Queue, defaultQueue)
	c.MaxConcurrent = cmp.Or(c.MaxConcurrent, defaultConcurrent)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		return nil, err
	}
	if err := c.check(q); err != nil {
		return nil, err
	}
	h := &handler{queue: q, rows: rows{topics}, o: c, now: time.Now}
	h.crowd.most = c.MaxConcurrent
	if c.Key != "" {
		if h.key, err = wire.ParseSigner(c.Key); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (o *HandlerOptions) check(q *errand.Queue) error {
	var f faults
	f.add(checkName("server", o.Server))
	if o.Key != "" {
		if _, err := wire.PublicKey(o.Key); err != nil {
			f.key("key", err)
		}
	}
	f.queue(q, "queue", o.Queue)
	if o.MaxConcurrent < 0 {
		f.field("max_concurrent", o.MaxConcurrent, "must not be negative")
	}
	relaxed, err := door.Relaxed(q)
	if f.add(err); relaxed {
		f.field("durability", "Relaxed", "must be Full, since a device ends its jobs once they are acknowledged")
	}
	return f.err()
}

// handler is a [Handler].
type handler struct {
	queue *errand.Queue
	rows  rows
	o     HandlerOptions // with defaults
	key   wire.Signer    // nil: there is none
	crowd crowd
	now   func() time.Time // for crowds, and deadlines of bodies
}

// request is a request and whose it is.
type request struct {
	wire.Head
	key    string      // the line with which it was verified
	signer wire.Signer // of the answer; nil: it cannot be signed, or nobody was verified
}

// refusal is a status that has no effect.
type refusal struct {
	status int
	retry  int // seconds
	text   string
}

func (r *refusal) Error() string { return r.text }

// failed is the answer to a request that found a fault of the server.
var failed = wire.Answer{Status: http.StatusInternalServerError, Error: "errand: relay: the server failed, see its log"}

var errRevoked = &refusal{status: http.StatusForbidden, text: "errand: relay: the device is revoked"}

// refuse returns the refusal of a request whose device cannot be known.
func refuse(why string) *refusal {
	return &refusal{status: http.StatusUnauthorized, text: "errand: relay: " + why}
}

var (
	errNotMutual = refuse("no device of this name was added here with mtls: it sends with its key, if it has one")
	errMutual    = refuse("the device was added here with mtls: it sends without a key")
)

var errStreams = &refusal{status: http.StatusForbidden, text: fmt.Sprintf("errand: relay: the device has %d streams, and may begin no more: add it under another name", maxStreams)}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req request
	defer func() {
		// Middleware and Authorize may panic. Without an answer the device would take it for an outage,
		// and send the same jobs for ever.
		if p := recover(); p != nil {
			h.write(w, &req, failed)
			_ = http.NewResponseController(w).Flush()
			panic(p)
		}
	}()
	answer, err := h.serve(w, r, &req)
	if err != nil {
		answer = h.refused(&req, err)
	}
	h.write(w, &req, answer)
}

// write sends an answer.
func (h *handler) write(w http.ResponseWriter, req *request, a wire.Answer) {
	if req.signer == nil {
		if a.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(a.RetryAfter))
		}
		http.Error(w, a.Error, a.Status)
		return
	}
	m, err := wire.SignAnswer(req.Head, a, req.signer)
	if err != nil { // the request has no signature to answer to
		http.Error(w, a.Error, a.Status)
		return
	}
	for name, values := range m.Header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(m.Body)))
	w.WriteHeader(a.Status)
	_, _ = w.Write(m.Body) // the device asks again if it has no answer
}

// serve answers a request, and sets req as far as it is known. The order is that of what each step costs:
// nobody but a device can have a body read, or take a place in the crowd.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, req *request) (wire.Answer, error) {
	device, err := h.open(r, req)
	if err != nil {
		return wire.Answer{}, err
	}
	if !device.Revoked.IsZero() {
		return wire.Answer{}, errRevoked
	}
	if req.signer == nil {
		return wire.Answer{}, errors.New("errand: relay: HandlerOptions.Key is empty, so the answer to a device with a key of Ed25519 cannot be signed")
	}
	leave, retry := h.crowd.enter(h.now())
	if leave == nil {
		return wire.Answer{}, &refusal{status: http.StatusTooManyRequests, retry: retry, text: "errand: relay: too many requests are in work"}
	}
	defer func() { leave(h.now()) }()
	rights := (*Rights)(nil)
	if h.o.Authorize != nil && req.Kind != ratchet.AskCheck {
		own, err := h.o.Authorize(r.Context(), req.Device)
		if err != nil {
			h.o.Logger.Warn("errand: a device is not authorized", "error", about(req.Device, err))
			return wire.Answer{}, &refusal{status: http.StatusForbidden, text: "errand: relay: the device is not authorized"}
		}
		rights = &own
	}
	jobs, err := h.read(w, r, req)
	if err != nil {
		return wire.Answer{}, err
	}
	if req.Kind == ratchet.AskCheck {
		return h.check(r.Context(), req)
	}
	return h.act(r.Context(), req, rights, jobs)
}

// open verifies the header of a request, and returns the row of its device. It sets the signer once the signature
// was verified: whoever is in between could have other texts answered with the signature of a request,
// and the device would take that for what the server says of its request. Only that a signature is not that of
// the text is signed nevertheless, since a device reads its key again after that. It ends no job, and
// uses up nothing.
//
// A request without a key has an answer without one. Only who shows the certificate of a device is told that
// the device is to send in the other way.
func (h *handler) open(r *http.Request, req *request) (device deviceRow, err error) {
	signer, uncertified := h.key, ""
	var unread error
	keyOf := func(name string) wire.Verifier {
		uncertified = whyUncertified(r.TLS, name)
		if device, unread = h.rows.device(r.Context(), name); unread != nil {
			return nil
		}
		if device.Key == MutualTLS {
			if uncertified != "" {
				return nil
			}
			return wire.Unkeyed
		}
		if shared, err := wire.ParseSigner(device.Key); err == nil {
			signer = shared
		}
		verifier, _ := wire.ParseVerifier(device.Key) // never fails, as PutDevice has checked it
		return verifier
	}
	req.Head, err = wire.OpenRequest(r.Method, h.o.Server, r.Header, keyOf, wire.Limits{})
	if unread != nil && !errors.Is(unread, errand.ErrNotFound) {
		return device, unread
	}
	if req.IsUnkeyed() {
		signer = wire.Unkeyed
	}
	unsigned := errors.Is(err, wire.ErrSignature)
	if verified := req.Device != ""; verified || unsigned {
		req.signer = signer
	}
	req.key = device.Key
	switch {
	case !unsigned:
	case req.IsUnkeyed() && uncertified != "":
		err = refuse(uncertified)
	case req.IsUnkeyed() && device.Key != MutualTLS:
		err = errNotMutual
	case !req.IsUnkeyed() && uncertified == "" && device.Key == MutualTLS:
		err = errMutual
	}
	return device, err
}

// whyUncertified returns why a connection has no verified certificate of a device. It is empty if it has one.
func whyUncertified(c *tls.ConnectionState, device string) string {
	switch {
	case c == nil:
		return "the request has not come to the program of the server by TLS"
	case len(c.PeerCertificates) == 0:
		return "the client has sent no certificate: the server asks for none, or does not know the authority that has issued it"
	case len(c.VerifiedChains) == 0:
		return "the server does not verify the certificates of clients"
	}
	leaf := c.VerifiedChains[0][0]
	names := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
	if !slices.Contains(names, device) {
		return fmt.Sprintf("the certificate has the names %q, and not that of the device", names)
	}
	return ""
}

// read reads the jobs of a request.
func (h *handler) read(w http.ResponseWriter, r *http.Request, req *request) ([]wire.Job, error) {
	// A wrapper of a ResponseWriter may have no deadlines. Then those of the server count.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(h.now().Add(bodyWithin + time.Duration(req.Length()/bodyRate)*time.Second))
	jobs, err := req.Jobs(r.Body, wire.Limits{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &refusal{status: http.StatusRequestTimeout, text: "errand: relay: the body did not come in time"}
	}
	_ = control.SetReadDeadline(time.Time{}) // else it would end the context of the request
	return jobs, err
}

// check answers an AskCheck, which changes nothing.
func (h *handler) check(ctx context.Context, req *request) (wire.Answer, error) {
	s, err := h.rows.stream(ctx, streamName(req.Device, req.Stream))
	if err != nil {
		return wire.Answer{}, err
	}
	_, a := s.Answer(req.Request, ratchet.Token{}, nil)
	return wire.Answer{Status: http.StatusOK, Answer: a}, nil
}

// act answers an Ask or a Send, in one transaction. The rights are those of the device's row if they are nil.
func (h *handler) act(ctx context.Context, req *request, rights *Rights, jobs []wire.Job) (wire.Answer, error) {
	var out wire.Answer
	err := inTx(ctx, h.queue, func(tx *sql.Tx, in rows) error {
		device, err := in.device(ctx, req.Device)
		switch {
		case errors.Is(err, errand.ErrNotFound):
			return wire.ErrSignature
		case err != nil:
			return err
		case !device.Revoked.IsZero():
			return errRevoked
		case device.Key != req.key: // it was replaced meanwhile
			return wire.ErrSignature
		}
		name := streamName(req.Device, req.Stream)
		s, err := in.stream(ctx, name)
		if err != nil {
			return err
		}
		looks := device.Lookup
		if s.revision == 0 { // copies of a file from before its first request have other streams
			n, other, err := in.begun(ctx, req.Device, req.Stream)
			if err != nil {
				return err
			}
			if n >= maxStreams {
				return errStreams
			}
			device.Lookup = other || looks
		}
		out = wire.Answer{Status: http.StatusOK}
		j := judge{ctx: ctx, queue: h.queue, tx: tx, device: req.Device, lookup: device.Lookup, rights: *cmp.Or(rights, &device.Rights)}
		j.rights.Queue = cmp.Or(j.rights.Queue, h.o.Queue)
		// A queue that this process refuses is no fault of the jobs, which would be dead on the device.
		if err := in.CheckQueue("queue", j.rights.Queue); err != nil {
			return err
		}
		spent := false
		s.Server, out.Answer = s.Answer(req.Request, newToken(), func() (verdicts []ratchet.Verdict) {
			bytes := int64(req.Length())
			if out.RetryAfter = device.spend(j.rights.BytesADay, bytes, h.queue.Clock().Now); out.RetryAfter > 0 {
				verdicts = allLater(jobs)
			} else {
				verdicts, spent = j.judge(jobs), j.rights.BytesADay > 0 && bytes > 0
				out.RetryAfter = j.retry
			}
			s.count(verdicts, bytes)
			return verdicts
		})
		if j.err != nil {
			return j.err
		}
		if spent || device.Lookup != looks {
			if err := in.putDevice(ctx, req.Device, device); err != nil {
				return err
			}
		}
		return in.putStream(ctx, name, s)
	})
	return out, err
}

// refused returns the answer to a request that failed, and logs what the device is not told.
func (h *handler) refused(req *request, err error) wire.Answer {
	a := failed
	var known *refusal
	var field *wire.FieldError
	switch {
	case errors.As(err, &known):
		a = wire.Answer{Status: known.status, RetryAfter: known.retry, Error: known.text}
	case errors.Is(err, wire.ErrSignature):
		a = wire.Answer{Status: http.StatusUnauthorized, Error: err.Error()}
	case errors.Is(err, wire.ErrTooLarge):
		a = wire.Answer{Status: http.StatusRequestEntityTooLarge, Error: err.Error()}
	case errors.As(err, &field):
		a = wire.Answer{Status: http.StatusBadRequest, Error: err.Error()}
	case isAny(err, errand.ErrClosed, errand.ErrBusy, errand.ErrFull, context.Canceled, context.DeadlineExceeded):
		a = wire.Answer{Status: http.StatusServiceUnavailable, RetryAfter: retryFailed, Error: "errand: relay: the queue is closed, busy, or has no room"}
	default:
		h.o.Logger.Error("errand: a request of a device failed", "error", about(req.Device, err))
	}
	return a
}

func about(device string, err error) error { return fmt.Errorf("device %q: %w", device, err) }

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
