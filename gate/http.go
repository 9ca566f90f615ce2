package gate

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// HTTPOptions are the options of [HTTP]: what to send, and what answer to demand.
type HTTPOptions struct {
	CheckOptions
	// Status is the status of the right answer. A status other than 204 needs Body
	// or Nonce too, for a captive portal may answer any request with its own page.
	// If zero, 204, or 200 with Body or Nonce.
	Status int
	// Body is how the body of the right answer begins. No more of it is read. If
	// empty, the body is not looked at. At most 64 KiB.
	Body string
	// Nonce is the name of a header. Each request has a random value in it, and the
	// right answer has the same value in it: so it is neither from a cache nor from
	// a portal. If empty, there is none.
	Nonce string
	// Header is sent with each request. It must not be changed any more. If nil,
	// nothing is added.
	Header http.Header
	// Proxy returns the proxy for a request, such as [http.ProxyFromEnvironment]. If
	// nil, no proxy is used, whatever the environment says.
	Proxy func(*http.Request) (*url.URL, error)
	// Transport makes the requests; Proxy must be nil then. If nil, a transport
	// that makes a new connection for each request.
	Transport http.RoundTripper
}

const (
	maxBody   = 64 << 10
	maxHeader = 64 << 10 // bytes of the header of an answer
)

// HTTP returns a gate that is open while GET of a URL is answered as the options demand,
// by default with status 204. No redirect is followed. So the login page of a captive
// portal, and the redirect to it, keep the gate closed.
//
// Ask a server whose answer matters to the jobs behind the gate, at best the one that
// they send to. With http instead of https in the URL the reason tells a portal from
// a failure of TLS.
//
// HTTP returns an [errand.FieldError] for a URL that is not one of http or https, with a
// host and without a user, for a demand that the page of a portal might meet, and for
// options out of the bounds that [NewCheck] names.
func HTTP(address string, o *HTTPOptions) (*Check, error) {
	var f faults
	h := httpCheck{}
	if o != nil {
		h.HTTPOptions = *o
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		shown := address
		if u != nil && u.User != nil {
			shown = u.Redacted()
		}
		f.field("url", shown, "must be a URL of http or https with a host and without a user")
		u = &url.URL{}
	}
	h.url, h.host = u.String(), u.Host
	f.demand(&h.HTTPOptions)
	if h.Transport == nil {
		h.Transport = &http.Transport{
			Proxy: h.Proxy, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		}
	}
	return f.check(h.host, h.ask, h.withDefaults(time.Minute, 5*time.Minute))
}

// demand checks what answer is demanded, and sets the status if it is zero.
func (f *faults) demand(o *HTTPOptions) {
	proof := o.Body != "" || o.Nonce != ""
	switch {
	case o.Status == 0 && proof:
		o.Status = http.StatusOK
	case o.Status == 0:
		o.Status = http.StatusNoContent
	case o.Status < 200 || o.Status > 599:
		f.field("status", o.Status, "must be zero or between 200 and 599")
	case o.Status != http.StatusNoContent && !proof:
		f.field("status", o.Status, "must be 204 unless body or nonce is set: a captive portal may answer with any other")
	}
	switch {
	case len(o.Body) > maxBody:
		f.field("body", len(o.Body), fmt.Sprintf("must be at most %d bytes", maxBody))
	case o.Body != "" && (o.Status == http.StatusNoContent || o.Status == http.StatusNotModified):
		f.field("body", o.Body, fmt.Sprintf("must be empty: an answer with status %d has none", o.Status))
	}
	if strings.ContainsFunc(o.Nonce, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}) {
		f.field("nonce", o.Nonce, "must be the name of a header: letters, digits and hyphens")
	}
	if o.Proxy != nil && o.Transport != nil {
		f.field("proxy", "a function", "must be nil if transport is set")
	}
}

type httpCheck struct {
	HTTPOptions
	url, host string
}

func (h *httpCheck) ask(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return err
	}
	for name, values := range h.Header {
		req.Header[name] = values
	}
	req.Header.Set("Cache-Control", "no-cache")
	nonce := rand.Text()
	if h.Nonce != "" {
		req.Header.Set(h.Nonce, nonce)
	}
	client := http.Client{
		Transport:     h.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return noAnswer(h.host, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written
	if resp.StatusCode != h.Status {
		return h.wrongStatus(resp.StatusCode)
	}
	if h.Nonce != "" && resp.Header.Get(h.Nonce) != nonce {
		return fmt.Errorf("captive portal or cache: an answer without the %s of the request", h.Nonce)
	}
	start := make([]byte, len(h.Body))
	switch _, err := io.ReadFull(resp.Body, start); {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return noAnswer(h.host, err)
	case !bytes.Equal(start, []byte(h.Body)):
		return errors.New("captive portal: an answer with another body")
	}
	return nil
}

// wrongStatus returns the reason for another status than the right one. A status
// below 400 means success, and it does not come from the server that is meant. 511
// is there for portals (RFC 6585, section 6).
func (h *httpCheck) wrongStatus(got int) error {
	if got < 400 || got == http.StatusNetworkAuthenticationRequired {
		return fmt.Errorf("captive portal: status %d instead of %d", got, h.Status)
	}
	return fmt.Errorf("status %d from %s instead of %d", got, h.host, h.Status)
}
