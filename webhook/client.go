package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/errandq/errand/policy/policyhttp"
)

// clientOptions are how requests are sent.
type clientOptions struct {
	// allowed are special addresses that may be dialled, such as those of an own network.
	// If nil, none.
	allowed []netip.Prefix
	// allowHTTP is true if URLs of http are allowed beside those of https.
	allowHTTP bool
	// rootCAs are the certificate authorities that certificates of endpoints have to come
	// from. If nil, those of the system.
	rootCAs *x509.CertPool
	// certificates are shown to endpoints that ask for one. If nil, there is none.
	certificates []tls.Certificate
	// proxy returns the proxy for a request. With one the address that is judged is that of
	// the proxy, and the proxy looks up the names of endpoints. If nil, no proxy is used,
	// whatever the environment says.
	proxy func(*http.Request) (*url.URL, error)
	// timeout is for a whole delivery, from the look-up to the end of the answer. If
	// zero, 15 s.
	timeout time.Duration
	// dialTimeout is for the look-up and the connection. If zero, 5 s.
	dialTimeout time.Duration
	// tlsTimeout is for the handshake. If zero, 5 s.
	tlsTimeout time.Duration
	// headerTimeout is from the end of the request to the header of the answer. If zero,
	// that of timeout.
	headerTimeout time.Duration
	// bodyTimeout is from the header of the answer to its end. If zero, 3 s.
	bodyTimeout time.Duration

	// userAgent is the header of this name. If empty, errand's.
	userAgent string
	// transport sends the requests in place of what the fields above say. If nil, that does.
	transport http.RoundTripper
	// resolver looks up names, in tests. If nil, that of the system.
	resolver *net.Resolver
	// dial makes connections, in tests without a network. If nil, a net.Dialer with the
	// filter does.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o clientOptions) withDefaults() clientOptions {
	o.timeout = cmp.Or(o.timeout, 15*time.Second)
	o.dialTimeout = cmp.Or(o.dialTimeout, 5*time.Second)
	o.tlsTimeout = cmp.Or(o.tlsTimeout, 5*time.Second)
	o.headerTimeout = cmp.Or(o.headerTimeout, o.timeout)
	o.bodyTimeout = cmp.Or(o.bodyTimeout, 3*time.Second)
	return o
}

// validate returns what is wrong with the options, as an [errand.FieldError] for each fault.
func (o *clientOptions) validate() error {
	var f faults
	for i, p := range o.allowed {
		// An address is judged without the part that maps it.
		if !p.IsValid() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
			f.field(fmt.Sprintf("allow_addresses[%d]", i), p.String(), "must be a prefix of IPv4 or IPv6, not one of mapped addresses")
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"timeout", o.timeout}, {"dial_timeout", o.dialTimeout}, {"tls_timeout", o.tlsTimeout},
		{"header_timeout", o.headerTimeout}, {"body_timeout", o.bodyTimeout},
	} {
		if d.value < 0 {
			f.field(d.field, d.value, "must not be negative")
		}
	}
	return f.err()
}

const (
	maxAnswerHeader = 64 << 10 // bytes of the header of an answer
	maxAnswer       = 64 << 10 // bytes of an answer that are read, so that its connection can be used again
	keptAnswer      = 1 << 10  // bytes of an answer that are kept

	// Connections that wait for the next request, to all endpoints together and to each
	// host. Servers close theirs after 5 s to some minutes; a request that meets the end of
	// its connection fails, unless the server cannot have taken it, see [again].
	maxIdle, maxIdlePerHost = 100, 16
	idleTimeout             = 30 * time.Second
)

// client sends requests.
type client struct {
	http        *http.Client
	transport   *http.Transport
	filter      filter
	allowHTTP   bool
	bodyTimeout time.Duration
	userAgent   string
}

// newClient returns a client for all endpoints, by options that are valid. It starts nothing; close ends the
// connections that it keeps for later.
func newClient(o clientOptions) *client {
	o = o.withDefaults()
	c := &client{filter: filter{o.allowed}, allowHTTP: o.allowHTTP, bodyTimeout: o.bodyTimeout, userAgent: cmp.Or(o.userAgent, userAgent)}
	c.http = policyhttp.NewClient()
	c.http.Timeout = o.timeout
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	dialer := &net.Dialer{Timeout: o.dialTimeout, Resolver: o.resolver, ControlContext: c.filter.control}
	t := &http.Transport{
		Proxy:                  o.proxy,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.rootCAs, Certificates: o.certificates},
		TLSHandshakeTimeout:    o.tlsTimeout,
		ResponseHeaderTimeout:  o.headerTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
	}
	if o.dial != nil {
		t.DialContext = o.dial
	}
	if own, ok := c.http.Transport.(*policyhttp.Transport); ok {
		t.HTTP2, t.OnProxyConnectResponse = own.HTTP2, own.OnProxyConnectResponse
	}
	c.transport = t
	c.http.Transport = &again{next: &policyhttp.Transport{Transport: t}}
	if o.transport != nil {
		c.http.Transport = o.transport
	}
	return c
}

// close ends the connections that no request uses.
func (c *client) close() { c.transport.CloseIdleConnections() }
