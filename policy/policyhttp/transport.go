package policyhttp

import (
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/policy"
)

// leastConnect is how long a request has looked for a connection at least before the
// lack of one says something about the other side.
const leastConnect = time.Second

// Transport is an [http.Transport] that tells a request whose time is over before it
// has a connection from one that was sent and not answered in time: the error of the
// first is of class [policy.Unavailable]. An [http.Transport] returns the same
// [context.DeadlineExceeded] for both.
//
// The time may be that of the request's context, such as the Timeout of a handler, or the
// Timeout of the client. The error stays as it is in two cases: the request has looked
// for a connection for less than a second, as at the end of a handler's time; or it waits
// for one of MaxConnsPerHost connections.
//
// The http.Transport must not be nil.
type Transport struct{ *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var dials, has atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn:      func(string) { has.Store(false) }, // again if the first was dead
		DNSStart:     func(httptrace.DNSStartInfo) { dials.Store(true) },
		ConnectStart: func(string, string) { dials.Store(true) },
		GotConn:      func(httptrace.GotConnInfo) { has.Store(true) },
	})
	began := time.Now()
	resp, err := t.Transport.RoundTrip(req.WithContext(ctx))
	if err == nil || has.Load() || !dials.Load() || time.Since(began) < leastConnect {
		return resp, err
	}
	// The Timeout of a client is in the context too, but may end the request a moment
	// before the context ends.
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 0 {
		return resp, err
	}
	return nil, &notConnected{err}
}

// notConnected is the error of a request that ended without a connection. A client
// whose own Timeout has passed keeps only the text of an error, so [policy.ByConnect]
// knows the error by the beginning of its text too.
type notConnected struct{ err error }

func (e *notConnected) Error() string { return "policyhttp: not connected in time: " + e.err.Error() }
func (e *notConnected) Unwrap() error { return e.err }

// Timeout is for [net.Error].
func (*notConnected) Timeout() bool { return true }

// RetryClass is for [policy.ByMark].
func (*notConnected) RetryClass() policy.Class { return policy.Unavailable }
