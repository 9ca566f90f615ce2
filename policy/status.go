package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// StatusError is an answer over HTTP that is not a success.
type StatusError struct {
	// Status is the status code of the answer.
	Status int
	// After is how long the server wants to be left alone. If zero, it did not say.
	After time.Duration
	// Method and URL are those of the request, the URL without userinfo, query and
	// fragment, in which secrets may be. If URL is empty, Error does not name the
	// request.
	Method, URL string
	// Location is where a redirect leads to, shown as URL is. If empty, it does not say.
	Location string
	// Text is how the body of the answer begins. If empty, the answer has no text.
	Text string
}

// HTTPError returns the error of a delivery that was answered over HTTP: nil for a
// status from 200 to 299, else a [*StatusError] with the Retry-After of the header.
// now is the time of the answer. The header is an http.Header of net/http, which this
// package does not import. Package policyhttp does, and has a function that also
// keeps the request and the text of the answer.
//
//	return policy.HTTPError(resp.StatusCode, resp.Header, time.Now())
func HTTPError(status int, header map[string][]string, now time.Time) error {
	if status >= 200 && status <= 299 {
		return nil
	}
	e := &StatusError{Status: status}
	e.After, _ = ParseRetryAfter(header, now)
	return e
}

// Limits for what Error shows, in bytes.
const (
	maxMethod   = 20
	maxURL      = 300
	maxLocation = 100
	maxText     = 512
)

// Error returns request, status and text on one line of less than 1 KiB. Characters
// that cannot be printed are left out, and longer parts are cut.
func (e *StatusError) Error() string {
	var b strings.Builder
	if e.URL != "" {
		b.WriteString(strings.TrimSpace(oneLine(e.Method, maxMethod)+" "+oneLine(e.URL, maxURL)) + ": ")
	}
	fmt.Fprintf(&b, "http status %d", e.Status)
	if to := oneLine(e.Location, maxLocation); to != "" {
		b.WriteString(" to " + to)
	}
	if e.After > 0 {
		fmt.Fprintf(&b, ", retry after %v", e.After)
	}
	if text := oneLine(e.Text, maxText); text != "" {
		b.WriteString(": " + text)
	}
	return b.String()
}

// oneLine returns the printable characters of s with single spaces between words, at
// most so many bytes of them.
func oneLine(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != utf8.RuneError {
			return r
		}
		return ' '
	}, s)
	return cut(strings.Join(strings.Fields(s), " "), most)
}

// HTTPStatusCode returns Status, for [ByHTTPStatus].
func (e *StatusError) HTTPStatusCode() int { return e.Status }

// RetryAfter returns After, for the function [RetryAfter].
func (e *StatusError) RetryAfter() time.Duration { return e.After }

// ParseRetryAfter returns how long a server wants to be left alone. It reads
// x-amz-retry-after (milliseconds), else Retry-After (seconds or a date, RFC 9110,
// section 10.2.3). A date that is past counts as 0. It is not ok if the header has
// neither, or if its value cannot be read.
func ParseRetryAfter(header map[string][]string, now time.Time) (time.Duration, bool) {
	if s := headerValue(header, "X-Amz-Retry-After"); s != "" {
		if d, ok := units(s, time.Millisecond); ok {
			return d, true
		}
	}
	s := headerValue(header, "Retry-After")
	if d, ok := units(s, time.Second); ok {
		return d, true
	}
	// The forms of a date that RFC 9110, section 5.6.7, wants accepted.
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		if t, err := time.Parse(layout, s); err == nil {
			return max(0, t.Sub(now)), true
		}
	}
	return 0, false
}

// headerValue returns a header's value by its name in canonical form.
func headerValue(header map[string][]string, name string) string {
	if v := header[name]; len(v) > 0 {
		return strings.TrimSpace(v[0])
	}
	return ""
}

// units reads a number that consists of digits. One that is too large for a Duration
// becomes the largest.
func units(s string, unit time.Duration) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > int64(math.MaxInt64/unit) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, true
}
