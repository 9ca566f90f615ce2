package webhook

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/policy/policyhttp"
)

// errGone: the endpoint has answered with 410, since it wants no more messages. The
// [*policy.StatusError] is wrapped with it.
var errGone = errors.New("webhook: endpoint is gone")

// webhookRules returns the rules for what endpoints answer.
func webhookRules() policy.Rules {
	return policy.Rules{policy.ByMark, policy.ByWebhookStatus, policy.ByConnect, policy.ByContext, policy.ByNet}
}

// answer is what an endpoint has answered.
type answer struct {
	// status is that of the answer. If zero, there was none.
	status int
	// latency is the time from the request to the header of the answer, or to the
	// error.
	latency time.Duration
	// text is how the body begins, up to a KiB, if it is text. Where it repeats what was
	// sent to prove who sends, it has dots.
	text string
}

// send sends a request once, and returns the answer. The error is nil for a status of 2xx. It
// wraps a [*policy.StatusError] for any other status, and else says why there was no
// answer. It names the URL as shown returns it, and no header, since these may have secrets. The
// answer is never nil.
//
// The status alone decides: a body that is longer than what is read, breaks off, or
// takes too long is cut, and its connection closed.
//
// secrets are values of the body that prove something.
func (c *client) send(req *http.Request, secrets ...string) (*answer, error) {
	began := time.Now()
	resp, err := c.http.Do(req) //nolint:bodyclose // read closes it
	a := &answer{latency: time.Since(began)}
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL
		}
		return a, &sendError{err, shown(req.URL), text([]byte(err.Error()), req, secrets)}
	}
	a.status = resp.StatusCode
	a.text = text(c.read(resp.Body), req, secrets)
	resp.Body = io.NopCloser(strings.NewReader(a.text))
	err = policyhttp.Error(resp)
	if e, ok := errors.AsType[*policy.StatusError](err); ok {
		e.Method, e.URL = req.Method, shown(req.URL)
		if to, err := resp.Location(); err == nil && e.Location != "" {
			e.Location = text([]byte(shown(to)), req, secrets)
		}
	}
	if a.status == http.StatusGone {
		err = fmt.Errorf("%w: %w", errGone, err)
	}
	return a, err
}

// sendError is the error of a request without an answer. Some quote what the endpoint has
// sent instead of one, so their text is treated like that of an answer.
type sendError struct {
	err  error
	url  string
	text string
}

func (e *sendError) Error() string { return "webhook: no answer from " + e.url + ": " + e.text }
func (e *sendError) Unwrap() error { return e.err }

// shown returns a URL for errors, without its user, query and fragment. Long segments of the path
// are dots, as they may be a secret.
func shown(u *url.URL) string { return u.Scheme + "://" + u.Host + shownPath(u.EscapedPath()) }

func shownPath(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if len(segment) >= minPathProof {
			segments[i] = "..."
		}
	}
	return strings.Join(segments, "/")
}

// shownText returns what is no URL with a host as shown does. It may begin with the name of one.
func shownText(s string) string {
	s, _, _ = strings.Cut(s, "#")
	s, _, _ = strings.Cut(s, "?")
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		s = "..." + s[at:]
	}
	if first, rest, ok := strings.Cut(s, "/"); strings.Contains(first, ".") && len(first) <= maxLabel {
		if ok {
			rest = "/" + shownPath(rest)
		}
		return first + rest
	}
	return shownPath(s)
}

// read reads what an answer may have, and closes it.
func (c *client) read(body io.ReadCloser) []byte {
	timer := time.AfterFunc(c.bodyTimeout, func() { _ = body.Close() })
	defer timer.Stop()
	defer func() { _ = body.Close() }() // nothing was written
	// A byte more than there may be, since the transport uses a connection again only if
	// the end of the answer was read.
	all, _ := io.ReadAll(io.LimitReader(body, maxAnswer+1)) // of a body that breaks off: what has come
	return all
}

// text returns how an answer begins, without the secrets of its request, or nothing if
// it is not text.
func text(body []byte, req *http.Request, secrets []string) string {
	if len(body) == 0 {
		return ""
	}
	s := strings.ToValidUTF8(string(body), "")
	// The limit may have cut the last character.
	if len(body)-len(s) >= utf8.UTFMax || bytes.IndexByte(body, 0) >= 0 {
		return ""
	}
	for _, secret := range proofs(req, secrets) {
		s = strings.ReplaceAll(s, secret, "...")
	}
	return strings.ToValidUTF8(s[:min(len(s), keptAnswer)], "")
}

// Values of at least minProof bytes are looked for in an answer, and segments of the path of
// at least minPathProof bytes, as shorter ones are words and not secrets.
const minProof, minPathProof = 6, 16

// proofs returns the values of a request that may prove who sends: those of the query and
// of all headers but the harmless ones, the long segments of the path, and
// secrets, longest first.
func proofs(req *http.Request, secrets []string) (all []string) {
	all = append(all, secrets...)
	for _, path := range []string{req.URL.Path, req.URL.EscapedPath()} {
		for segment := range strings.SplitSeq(path, "/") {
			if len(segment) >= minPathProof {
				all = append(all, segment)
			}
		}
	}
	for _, values := range req.URL.Query() {
		for _, v := range values {
			all = append(all, v, url.QueryEscape(v))
		}
	}
	for name, values := range req.Header {
		if slices.Contains(harmless, name) {
			continue
		}
		for _, v := range values {
			_, credentials, _ := strings.Cut(v, " ") // after the scheme of an Authorization
			all = append(all, v, credentials)
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < minProof })
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return all
}

// harmless are the headers of a request that prove nothing.
var harmless = []string{"Content-Type", "User-Agent", HeaderID, HeaderTimestamp, HeaderEndpoint, HeaderAttempt}
