package webhook

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
)

// again is a transport that sends a request once more if the server cannot have taken it:
//
//   - the server has ended the connection by a GOAWAY of HTTP/2, whose last stream is before
//     that of the request
//   - it has refused the stream, by REFUSED_STREAM
//   - the connection of HTTP/1 was dead before a byte of the request was written to it, and
//     net/http says so: not of one whose end it reads at that moment
//
// Each other error may mean that the server has taken the request, and so is an attempt.
//
// net/http does so by itself for requests with a GetBody. It sends others again too, after an
// error of HTTP/2 that says nothing of the kind, and as often as it likes.
type again struct {
	next http.RoundTripper

	mu    sync.Mutex
	plain map[string]bool // hosts whose last connection was of HTTP/1
}

// maxPlain bounds what is remembered of hosts.
const maxPlain = 10_000

var (
	errSentAgain = errors.New("webhook: the connection was dead before the request was written, twice")
	errChanged   = errors.New("webhook: the server ended the request, on a connection of HTTP/2 where it had those of HTTP/1")
)

// RoundTrip implements [http.RoundTripper]. The body must be one of [newBody].
func (a *again) RoundTrip(req *http.Request) (*http.Response, error) {
	body, ok := req.Body.(*rewound)
	if !ok {
		return a.next.RoundTrip(req)
	}
	resp, err := a.once(req, body, true)
	if err == nil || !refused(err) || req.Context().Err() != nil {
		return resp, err
	}
	return a.once(req, body, false)
}

// once sends the request. Only a connection that was used before can be dead before a byte is
// written to it, so the protocol of the host is known then.
func (a *again) once(req *http.Request, body *rewound, first bool) (*http.Response, error) {
	var got, h1 atomic.Bool
	req = req.Clone(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			c, ok := info.Conn.(*tls.Conn)
			h1.Store(!ok || c.ConnectionState().NegotiatedProtocol != "h2")
			got.Store(true)
		},
	}))
	req.Body = body.again()
	// With such a header, even an empty one, net/http would send a request again that may have
	// been taken.
	_, named := req.Header["Idempotency-Key"]
	_, too := req.Header["X-Idempotency-Key"]
	if first && !named && !too && a.isPlain(req.URL.Host) {
		var sent atomic.Bool
		req.GetBody = func() (io.ReadCloser, error) {
			switch {
			case !h1.Load():
				return nil, errChanged
			case sent.Swap(true):
				return nil, errSentAgain
			}
			return body.again(), nil
		}
	}
	resp, err := a.next.RoundTrip(req)
	if got.Load() {
		a.remember(req.URL.Host, h1.Load())
	}
	return resp, err
}

func (a *again) isPlain(host string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.plain[host]
}

func (a *again) remember(host string, h1 bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !h1:
		delete(a.plain, host)
	case a.plain == nil || len(a.plain) >= maxPlain:
		a.plain = map[string]bool{host: true}
	default:
		a.plain[host] = true
	}
}

// refused reports whether net/http says that a server of HTTP/2 has not taken the request. It
// says so by text alone, of an error that it does not send again for want of a GetBody. A
// version of Go that says it otherwise makes an attempt of it.
func refused(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "http2: Transport: cannot retry err [") &&
		(strings.Contains(text, "Server's graceful shutdown GOAWAY]") || strings.Contains(text, "; REFUSED_STREAM"))
}

// rewound is a body that can be sent again.
type rewound struct {
	io.Reader
	whole []byte
}

func newBody(b []byte) *rewound { return &rewound{bytes.NewReader(b), b} }

// again returns the body as net/http knows it to be in memory: it is written with the header.
func (b *rewound) again() io.ReadCloser { return io.NopCloser(bytes.NewReader(b.whole)) }

// Close implements [io.Closer].
func (*rewound) Close() error { return nil }
