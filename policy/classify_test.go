package policy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand/policy"
)

type codeError string // as the AWS SDK's API errors are

func (e codeError) Error() string     { return string(e) }
func (e codeError) ErrorCode() string { return string(e) }

type sqliteError int // as those of modernc.org/sqlite are

func (e sqliteError) Error() string { return "sqlite" }
func (e sqliteError) Code() int     { return int(e) }

type statusCodeError int

func (e statusCodeError) Error() string   { return "status" }
func (e statusCodeError) StatusCode() int { return int(e) }

func status(code int) error { return policy.HTTPError(code, nil, time.Time{}) }

func TestClassify(t *testing.T) {
	plain := errors.New("plain")
	for _, test := range []struct {
		err  error
		want policy.Class
	}{
		{nil, policy.Retryable},
		{plain, policy.Retryable},
		{policy.Mark(plain, policy.Permanent), policy.Permanent},
		{policy.Mark(policy.Mark(plain, policy.Permanent), policy.Throttled), policy.Throttled},
		{policy.Mark(status(500), policy.Permanent), policy.Permanent},
		{status(500), policy.Retryable},
		{status(501), policy.Retryable},
		{status(503), policy.Retryable},
		{status(429), policy.Throttled},
		{status(400), policy.Permanent},
		{status(404), policy.Permanent},
		{status(408), policy.Retryable},
		{status(301), policy.Unavailable},
		{policy.HTTPError(503, http.Header{"Retry-After": {"1"}}, time.Time{}), policy.Throttled},
		{errors.Join(statusCodeError(503), policy.HTTPError(500, http.Header{"Retry-After": {"1"}}, time.Time{})), policy.Retryable},
		{errors.Join(status(401), codeError("ThrottlingException")), policy.Throttled},
		{policy.Mark(status(401), policy.Permanent), policy.Permanent},
		{statusCodeError(429), policy.Throttled},
		{statusCodeError(0), policy.Retryable},
		{statusCodeError(7), policy.Retryable},
		{statusCodeError(200), policy.Retryable},
		{errors.Join(statusCodeError(200), io.ErrUnexpectedEOF), policy.Retryable},
		{codeError("ThrottlingException"), policy.Throttled},
		{codeError("Throttling.User"), policy.Throttled},
		{codeError("SlowDown"), policy.Throttled},
		{errors.Join(status(400), codeError("LimitExceeded")), policy.Throttled},
		{errors.Join(status(400), codeError("RateExceeded")), policy.Retryable},
		{errors.Join(status(400), codeError("RateExceededException")), policy.Retryable},
		{errors.Join(status(400), codeError("Exception")), policy.Permanent},
		{errors.Join(status(400), codeError("")), policy.Permanent},
		{codeError("OccConflictException"), policy.Retryable},
		{codeError("Unheard"), policy.Retryable},
		{errors.Join(codeError("Unheard"), status(400)), policy.Permanent},
		{errors.Join(status(400), codeError("TooManyRequestsException")), policy.Throttled},
		{context.DeadlineExceeded, policy.Retryable},
		{&url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, policy.Unavailable},
		{&url.Error{Op: "Post", Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}, policy.Retryable},
		{errors.Join(status(404), syscall.ECONNREFUSED), policy.Permanent},
		{sqliteError(5 | 2<<8), policy.Retryable},
	} {
		if got := policy.Classify(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
		if test.err == nil {
			continue
		}
		if got := policy.Classify(fmt.Errorf("wrapped: %w", test.err)); got != test.want {
			t.Errorf("wrapped %v: %v, want %v", test.err, got, test.want)
		}
	}
	if got := policy.Classify(policy.Mark(plain, policy.Unavailable)); got != policy.Unavailable || got.String() != "unavailable" {
		t.Errorf("what is marked as unavailable is %v", got)
	}
	if policy.Mark(nil, policy.Permanent) != nil {
		t.Error("no error was marked")
	}
}

// With another end of the list it shows which errors the rules know.
func TestRules_Otherwise(t *testing.T) {
	rules := append(policy.DefaultRules(), policy.Otherwise(policy.Permanent))
	for _, err := range []error{
		context.Canceled, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET,
		sqliteError(5), sqliteError(6), codeError("RequestTimeout"), status(500),
	} {
		if got := rules.Classify(fmt.Errorf("wrapped: %w", err)); got != policy.Retryable {
			t.Errorf("%v: %v", err, got)
		}
	}
	for _, err := range []error{errors.New("plain"), sqliteError(11), codeError("AccessDenied"), syscall.ENOENT} {
		if got := rules.Classify(err); got != policy.Permanent {
			t.Errorf("%v: %v", err, got)
		}
	}
	if got := rules.Classify(&net.DNSError{IsNotFound: true}); got != policy.Unavailable {
		t.Errorf("a name that does not exist: %v", got)
	}
	if len(policy.DefaultRules()) != len(rules)-1 {
		t.Error("the default rules were changed through a copy")
	}
}

// The tables over every status. A rule that does not know an error leaves it to what
// comes after it.
func TestStatusTables(t *testing.T) {
	const (
		retry    = policy.Retryable
		throttle = policy.Throttled
		dead     = policy.Permanent
		away     = policy.Unavailable
		unknown  = policy.Class(99)
	)
	in := func(from, to int, class policy.Class) func(int) policy.Class {
		return func(code int) policy.Class {
			if code >= from && code <= to {
				return class
			}
			return unknown
		}
	}
	for _, test := range []struct {
		name  string
		rule  policy.Rule
		after time.Duration
		want  []func(code int) policy.Class // the last that is about a status decides
	}{
		{"SNS", policy.BySNSStatus, 0, []func(int) policy.Class{
			in(100, 499, dead), in(429, 429, throttle), in(500, 999, retry),
		}},
		{"SNS with Retry-After", policy.BySNSStatus, time.Second, []func(int) policy.Class{
			in(100, 499, dead), in(429, 429, throttle), in(500, 999, retry),
		}},
		{"webhook", policy.ByWebhookStatus, 0, []func(int) policy.Class{
			in(100, 999, retry), in(410, 410, dead), in(429, 429, throttle), in(502, 502, throttle), in(504, 504, throttle),
			in(407, 407, away), in(511, 511, away),
		}},
		{"webhook with Retry-After", policy.ByWebhookStatus, time.Second, []func(int) policy.Class{
			in(100, 999, retry), in(410, 410, dead), in(429, 429, throttle), in(502, 504, throttle),
			in(407, 407, away), in(511, 511, away),
		}},
		{"errand", policy.ByHTTPStatus, 0, []func(int) policy.Class{
			in(100, 199, retry), in(300, 399, away), in(400, 499, dead), in(500, 999, retry),
			in(401, 401, away), in(403, 403, away), in(407, 407, away), in(511, 511, away),
			in(408, 408, retry), in(421, 421, retry), in(423, 423, retry), in(425, 425, retry), in(429, 429, throttle),
		}},
		{"errand with Retry-After", policy.ByHTTPStatus, time.Second, []func(int) policy.Class{
			in(100, 199, retry), in(300, 399, away), in(400, 499, dead), in(500, 999, retry),
			in(401, 401, away), in(403, 403, away), in(407, 407, away), in(511, 511, away),
			in(408, 408, retry), in(421, 421, retry), in(423, 423, retry), in(425, 425, retry), in(429, 429, throttle),
			in(503, 503, throttle),
		}},
	} {
		for code := -1; code <= 1000; code++ {
			want := unknown
			for _, f := range test.want {
				if class := f(code); class != unknown {
					want = class
				}
			}
			if code/100 == 2 {
				want = unknown
			}
			got, ok := test.rule(fmt.Errorf("send: %w", &policy.StatusError{Status: code, After: test.after}))
			if !ok {
				got = unknown
			}
			if code <= 999 && got != want {
				t.Errorf("%s: %d is %v, want %v", test.name, code, got, want)
			}
		}
	}
}

func TestHTTPError(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	if err := policy.HTTPError(204, nil, now); err != nil {
		t.Errorf("success gives %v", err)
	}
	if policy.HTTPError(300, nil, now) == nil || policy.HTTPError(199, nil, now) == nil {
		t.Error("no success is taken for one")
	}
	err := policy.HTTPError(503, http.Header{"Retry-After": {"120"}}, now)
	if d, ok := policy.RetryAfter(fmt.Errorf("wrapped: %w", err)); !ok || d != 2*time.Minute {
		t.Errorf("hint %v %v", d, ok)
	}
	if d, ok := policy.RetryAfter(status(503)); ok {
		t.Errorf("hint %v out of nothing", d)
	}
}

func TestStatusError_Error(t *testing.T) {
	long := strings.Repeat("é", 1000)
	for _, test := range []struct {
		err  policy.StatusError
		want string
	}{
		{policy.StatusError{Status: 404}, "http status 404"},
		{policy.StatusError{Status: 404, Method: "POST"}, "http status 404"},
		{policy.StatusError{Status: 404, URL: "http://host/"}, "http://host/: http status 404"},
		{policy.StatusError{Status: 503, After: time.Minute, Method: "POST", URL: "https://host/mail", Text: "no upstream"},
			"POST https://host/mail: http status 503, retry after 1m0s: no upstream"},
		{policy.StatusError{Status: 400, Text: " two\r\n\tlines\x00\x1b[31m\u202e \xff\u2028end\n"}, "http status 400: two lines [31m end"},
		{policy.StatusError{Status: 400, Text: "\n"}, "http status 400"},
		{policy.StatusError{Status: 400, Text: long}, "http status 400: " + strings.Repeat("é", 256) + "..."},
		{policy.StatusError{Status: 400, Method: "A\nB", URL: "http://h/\n" + long}, "A B http://h/ " + strings.Repeat("é", 145) + "...: http status 400"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	worst := policy.StatusError{Status: math.MinInt, After: math.MaxInt64, Method: long, URL: long, Text: long}
	if n := len(worst.Error()); n >= 1024 {
		t.Errorf("%d bytes", n)
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name, value string
		want        time.Duration
		ok          bool
	}{
		{"Retry-After", "0", 0, true},
		{"Retry-After", " 7 ", 7 * time.Second, true},
		{"Retry-After", "Fri, 20 Nov 2026 12:01:00 GMT", time.Minute, true},
		{"Retry-After", "Friday, 20-Nov-26 12:00:05 GMT", 5 * time.Second, true},
		{"Retry-After", "Fri Nov 20 12:00:09 2026", 9 * time.Second, true},
		{"Retry-After", "Fri, 20 Nov 2026 11:00:00 GMT", 0, true},
		{"Retry-After", "99999999999999999999", math.MaxInt64, true},
		{"Retry-After", "-1", 0, false},
		{"Retry-After", "1.5", 0, false},
		{"Retry-After", "soon", 0, false},
		{"Retry-After", "", 0, false},
		{"X-Amz-Retry-After", "1500", 1500 * time.Millisecond, true},
		{"X-Amz-Retry-After", "1.5", 0, false},
	} {
		header := http.Header{}
		header.Set(test.name, test.value)
		if d, ok := policy.ParseRetryAfter(header, now); d != test.want || ok != test.ok {
			t.Errorf("%s %q: %v %v, want %v %v", test.name, test.value, d, ok, test.want, test.ok)
		}
	}
	both := http.Header{"Retry-After": {"9"}, "X-Amz-Retry-After": {"100"}}
	if d, _ := policy.ParseRetryAfter(both, now); d != 100*time.Millisecond {
		t.Errorf("with both headers %v", d)
	}
}
