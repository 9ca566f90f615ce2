package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// The headers of errand, beside those of Standard Webhooks.
const (
	// HeaderEndpoint is the ID of the endpoint that a message is delivered to.
	HeaderEndpoint = "Errand-Endpoint"
	// HeaderAttempt is the number of the attempt to deliver a message to an endpoint, from 1.
	HeaderAttempt = "Errand-Attempt"
)

const (
	maxMessage = 256 << 10 // bytes of a body
	// maxRequest is how many bytes a body of Deliver has: that of a message in an envelope of
	// JSON, which has up to six bytes for one.
	maxRequest = 2 << 20
	maxURL     = 2 << 10 // bytes of a URL
	maxHeaders = 8 << 10 // bytes of the names and values of headers

	defaultContentType = "application/json"
	userAgent          = "errand-webhook"
)

// message is what is delivered: the same for all endpoints.
type message struct {
	id   string
	body []byte
	// contentType is that of body. If empty, that of JSON.
	contentType string
	// header is sent beside that of the endpoint, which goes before it.
	header map[string]string
	// own are headers of the sender, which go before all others.
	own http.Header
}

// target is where a message is delivered.
type target struct {
	id  string
	url string
	// contentType goes before that of the message. If empty, that of the message holds.
	contentType string
	header      map[string]string
	// secrets sign the message. If nil, it is not signed.
	secrets []Secret
}

// faults are all that is wrong with the input of one call.
type faults []error

func (f *faults) field(name string, value any, limit string) {
	*f = append(*f, &errand.FieldError{Field: name, Value: value, Limit: limit})
}

func (f *faults) err() error { return errors.Join(*f...) }

// buildRequest returns the request for an attempt, of the attempts from 1, at a time.
// What cannot be sent is refused with an [errand.FieldError] for each fault.
func (c *client) buildRequest(ctx context.Context, m *message, to *target, attempt int, now time.Time) (*http.Request, error) {
	var f faults
	f.message("message.", m, maxRequest)
	f.target("endpoint.", to, c)
	if attempt < 1 {
		f.field("attempt", attempt, "must be at least 1")
	}
	if len(f) > 0 {
		return nil, f.err()
	}
	// A body of a type that net/http does not know has no GetBody, see [again].
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url, newBody(m.body))
	if err != nil {
		return nil, &errand.FieldError{Field: "endpoint.url", Value: len(to.url), Limit: "must be a URL"}
	}
	req.ContentLength = int64(len(m.body))
	req.Header.Set("User-Agent", c.userAgent)
	for _, header := range []map[string]string{m.header, to.header} {
		for name, value := range header {
			req.Header.Set(name, value)
		}
	}
	req.Header.Set("Content-Type", contentType(to, m))
	req.Header.Set(HeaderID, m.id)
	req.Header.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(HeaderEndpoint, to.id)
	req.Header.Set(HeaderAttempt, strconv.Itoa(attempt))
	maps.Copy(req.Header, m.own)
	if len(to.secrets) > 0 {
		signature, err := Sign(m.id, now, m.body, to.secrets...)
		if err != nil {
			return nil, err
		}
		req.Header.Set(HeaderSignature, signature)
	}
	return req, nil
}

// contentType returns the type in effect, in its usual form.
func contentType(to *target, m *message) string {
	for _, s := range []string{to.contentType, m.contentType} {
		if normal, ok := policy.ProfileQueue.ContentType(s); ok {
			return normal
		}
	}
	return defaultContentType
}

func (f *faults) message(place string, m *message, most int) {
	if !isID(m.id) {
		f.field(place+"id", m.id, "must match [A-Za-z0-9_-]{1,128}")
	}
	if len(m.body) > most {
		f.field(place+"body", len(m.body), fmt.Sprintf("must be at most %d bytes", most))
	}
	f.contentType(place+"content_type", m.contentType)
	f.headers(place+"headers", m.header)
}

func (f *faults) target(place string, to *target, c *client) {
	if !isID(to.id) {
		f.field(place+"id", to.id, "must match [A-Za-z0-9_-]{1,128}")
	}
	f.url(place+"url", to.url, c)
	f.contentType(place+"content_type", to.contentType)
	f.headers(place+"headers", to.header)
	f.secrets(place, to.secrets)
}

// secrets checks the secrets that are to sign.
func (f *faults) secrets(place string, secrets []Secret) {
	if len(secrets) > mostSignatures {
		f.field(place+"secrets", len(secrets), fmt.Sprintf("must be at most %d", mostSignatures))
	}
	for i, s := range secrets {
		if !s.signs() {
			f.field(fmt.Sprintf("%ssecrets[%d]", place, i), s.String(), cannotSign)
		}
	}
}

// contentType checks a content type, which may be any media type.
func (f *faults) contentType(field, s string) {
	if s == "" {
		return
	}
	d := policy.Document{Request: &policy.Request{ContentType: s}}
	for _, fault := range policy.Faults(d.Validate()) {
		f.field(field, s, fault.Want)
	}
}

// url checks the URL of an endpoint, as far as that is possible without a look-up. A fault
// does not show the user, the path, the query and the fragment, in which secrets may be. Of a text
// without a host it shows what may be one.
func (f *faults) url(field, s string, c *client) {
	if len(s) > maxURL {
		f.field(field, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("must be at most %d bytes", maxURL))
		return
	}
	u, err := url.Parse(s)
	if err != nil {
		f.field(field, fmt.Sprintf("%d bytes", len(s)), "must be a URL")
		return
	}
	value := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	if u.Host == "" {
		value = shownText(s)
	}
	fault := func(limit string) { f.field(field, value, limit) }
	switch ok := u.Scheme == "https" || u.Scheme == "http" && c.allowHTTP; {
	case (!ok || u.Opaque != "") && c.allowHTTP:
		fault("must begin with http:// or https://")
	case !ok || u.Opaque != "":
		fault("must begin with https://")
	case u.Hostname() == "":
		fault("must have a host")
	default:
		if limit := c.filter.checkHost(u.Hostname()); limit != "" {
			fault(limit)
		}
	}
	if u.User != nil {
		fault("must have no user and password: set a header")
	}
	if u.Fragment != "" || strings.Contains(s, "#") {
		fault("must have no fragment")
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }); i >= 0 {
		r, n := utf8.DecodeRuneInString(s[i:])
		fault(fmt.Sprintf("must have no blank and no invisible character: write %U, at byte %d, as %s", r, i, strings.ReplaceAll(url.QueryEscape(s[i:i+n]), "+", "%20")))
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			fault("must have a port between 1 and 65535")
		}
	}
}

// Headers that are net/http's or errand's: those that frame a message or are about a
// connection, and those that say who has sent what.
var (
	reserved = []string{
		"Connection", "Content-Length", "Content-Type", "Expect", "Host", "Http2-Settings", "Keep-Alive",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade",
	}
	reservedPrefixes = []string{"Errand-", "Proxy-", "Webhook-", "X-Amz-Sns-"}
)

// headers checks the headers of an application. A fault shows no value.
func (f *faults) headers(field string, header map[string]string) {
	size := 0
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		size += len(name) + len(header[name])
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		starts := func(prefix string) bool { return strings.HasPrefix(canonical, prefix) }
		switch {
		case !isToken(name):
			f.field(field, name, "must have names of letters, digits and !#$%&'*+-.^_`|~")
		case slices.Contains(reserved, canonical) || slices.ContainsFunc(reservedPrefixes, starts):
			f.field(field, name, "must not have a header that is set by the sender")
		case seen[canonical]:
			f.field(field, name, "must not have a header twice")
		case !isHeaderValue(header[name]):
			f.field(fmt.Sprintf("%s[%q]", field, name), fmt.Sprintf("%d bytes", len(header[name])),
				"must be without control characters, and without spaces around it")
		}
		seen[canonical] = true
	}
	if size > maxHeaders {
		f.field(field, size, fmt.Sprintf("must be at most %d bytes", maxHeaders))
	}
}

// isToken reports whether s can be the name of a header (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// isHeaderValue reports whether s can be the value of a header: of that, net/http refuses
// control characters, and a receiver drops spaces around it.
func isHeaderValue(s string) bool {
	return s == strings.TrimSpace(s) && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}
