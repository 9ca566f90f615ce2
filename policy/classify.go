package policy

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Class is the meaning of an error for the next attempt.
type Class uint8

// The classes.
const (
	Retryable   Class = iota // may succeed if tried again
	Throttled                // likewise, but only if tried less often
	Permanent                // would fail again
	Unavailable              // nothing is wrong with the work: the other side cannot be reached
)

var classNames = []string{"retryable", "throttled", "permanent", "unavailable"}

// String returns the name of the class in lower case.
func (c Class) String() string { return enumString("Class", classNames, c) }

// Rule returns the class of an error that it knows; it is not ok for other errors. A
// rule looks through wrapped errors.
type Rule func(err error) (class Class, ok bool)

// Rules is a list of rules. The first rule that knows an error decides. An error that
// no rule knows is Retryable: a superfluous attempt costs less than lost work. End
// the list with [Otherwise] to decide differently.
type Rules []Rule

// Classify returns the class of err. For a nil err it returns Retryable.
func (r Rules) Classify(err error) Class {
	if err != nil {
		for _, rule := range r {
			if class, ok := rule(err); ok {
				return class
			}
		}
	}
	return Retryable
}

// DefaultRules returns the rules of [Classify], which are those of [Device], in a new
// slice.
func DefaultRules() Rules { return Device() }

// Device returns the rules for work that must survive a device that is offline, behind
// a captive portal, or without a valid token: [ByMark], [ByCode], [ByHTTPStatus],
// [ByConnect], [ByContext], [ByNet] and [BySQLite], in a new slice. The code comes
// before the status, since services answer 400 to a request that they throttle.
//
// They differ from what Amazon SNS does. For that, put [BySNSStatus] in the place of
// ByHTTPStatus and leave out ByConnect.
func Device() Rules {
	return Rules{ByMark, ByCode, ByHTTPStatus, ByConnect, ByContext, ByNet, BySQLite}
}

var defaultRules = DefaultRules()

// Classify returns the class of err by [DefaultRules].
func Classify(err error) Class { return defaultRules.Classify(err) }

// Otherwise returns the rule by which every error is of this class.
func Otherwise(class Class) Rule {
	return func(error) (Class, bool) { return class, true }
}

// Mark wraps err so that it is of this class for [ByMark]. It returns nil for a nil
// err.
func Mark(err error, class Class) error {
	if err == nil {
		return nil
	}
	return &marked{err, class}
}

type marked struct {
	error
	class Class
}

func (m *marked) Unwrap() error     { return m.error }
func (m *marked) RetryClass() Class { return m.class }

// ByMark knows errors with a method RetryClass() Class, such as those of [Mark]. The
// outermost counts.
func ByMark(err error) (Class, bool) {
	type classified interface {
		error
		RetryClass() Class
	}
	if e, ok := errors.AsType[classified](err); ok {
		return e.RetryClass(), true
	}
	return 0, false
}

// ByContext knows the errors of contexts. Both are Retryable: a deadline that passed
// because the other side was slow, or a cancelled attempt, says nothing against another
// attempt. In the default rules [ByConnect] comes before it, and knows a deadline that
// passed while dialling.
func ByContext(err error) (Class, bool) {
	return Retryable, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// ByNet knows errors of connections: [net.Error] and those that it wraps,
// refused, reset and broken connections, and a stream that ended too early.
// All are Retryable, even a name that does not exist: a device that is offline
// gets that answer too. In the default rules [ByConnect] comes before it.
func ByNet(err error) (Class, bool) {
	if e, ok := errors.AsType[net.Error](err); ok {
		// A bare syscall.Errno is a net.Error too, whatever it is about.
		if _, errno := e.(syscall.Errno); !errno || e.Timeout() {
			return Retryable, true
		}
	}
	known := []error{
		io.ErrUnexpectedEOF, io.EOF, net.ErrClosed,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	}
	return Retryable, isAny(err, known)
}

// ByHTTPStatus knows errors with a method HTTPStatusCode() int or StatusCode() int,
// such as [StatusError]. It is errand's own table, for the default rules:
//
//	3xx, 401, 403, 407, 511    Unavailable
//	429                        Throttled
//	503                        Throttled with a RetryAfter, else Retryable
//	408, 421, 423, 425         Retryable
//	any other 4xx              Permanent
//	any other                  Retryable
//
// A redirect that was not followed, and 511, come from a captive portal; 401, 403 and 407
// from a token that has expired or is missing. None of them says anything against the
// work. ByHTTPStatus leaves two errors to other rules: one with a status of success,
// which is about something else, for example a body that broke off, and one with a number
// that is no HTTP status.
func ByHTTPStatus(err error) (Class, bool) {
	code, e := statusOf(err)
	if code < 100 || code/100 == 2 {
		return 0, false
	}
	switch code {
	case 401, 403, 407, 511:
		return Unavailable, true
	case 408, 421, 423, 425:
		return Retryable, true
	case 429:
		return Throttled, true
	case 503:
		if _, ok := RetryAfter(e); ok {
			return Throttled, true
		}
	}
	switch code / 100 {
	case 3:
		return Unavailable, true
	case 4:
		return Permanent, true
	default:
		return Retryable, true
	}
}

// BySNSStatus is the table of Amazon SNS for deliveries over HTTP, to be used in the
// place of [ByHTTPStatus]: 429 is Throttled, 500 and above Retryable, every other status
// Permanent. It knows the same errors.
func BySNSStatus(err error) (Class, bool) {
	code, _ := statusOf(err)
	switch {
	case code < 100 || code/100 == 2:
		return 0, false
	case code == 429:
		return Throttled, true
	case code >= 500:
		return Retryable, true
	default:
		return Permanent, true
	}
}

// ByWebhookStatus is the table of Standard Webhooks, in the place of [ByHTTPStatus] for
// deliveries to endpoints of others. Their owners may repair what they answer, so every
// status but 410 is tried again, as long as the policy lasts:
//
//	410                 Permanent: the endpoint wants no more messages
//	429, 502, 504       Throttled
//	503                 Throttled with a RetryAfter, else Retryable
//	407, 511            Unavailable: a proxy or a captive portal has answered
//	any other           Retryable, a redirect that was not followed too
//
// It knows the same errors as ByHTTPStatus.
//
// Source: "Delivery success and failure", Standard Webhooks 1.0.0.
func ByWebhookStatus(err error) (Class, bool) {
	code, e := statusOf(err)
	if code < 100 || code/100 == 2 {
		return 0, false
	}
	switch code {
	case 410:
		return Permanent, true
	case 429, 502, 504:
		return Throttled, true
	case 407, 511:
		return Unavailable, true
	case 503:
		if _, ok := RetryAfter(e); ok {
			return Throttled, true
		}
	}
	return Retryable, true
}

// statusOf returns the HTTP status that an error in err's tree has, and that error; 0
// if there is none.
func statusOf(err error) (int, error) {
	type httpStatus interface {
		error
		HTTPStatusCode() int
	}
	type status interface {
		error
		StatusCode() int
	}
	if e, ok := errors.AsType[httpStatus](err); ok {
		return e.HTTPStatusCode(), e
	}
	if e, ok := errors.AsType[status](err); ok {
		return e.StatusCode(), e
	}
	return 0, nil
}

// throttlingCodes are the throttling codes of the standard mode of the AWS SDKs.
var throttlingCodes = []string{
	"BandwidthLimitExceeded", "EC2ThrottledException", "LimitExceededException", "PriorRequestNotComplete",
	"ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled",
	"RequestThrottledException", "SlowDown", "ThrottledException", "Throttling", "ThrottlingException",
	"TooManyRequestsException", "TransactionInProgressException",
}

// transientCodes are the transient codes of the AWS SDKs, and those of the driver for
// QLDB that do not say that the client is too fast.
var transientCodes = []string{
	"CapacityExceededException", "InvalidSessionException", "OccConflictException", "RateExceededException",
	"RequestTimeout", "RequestTimeoutException",
}

// ByCode knows errors with a method ErrorCode() string, which returns a code of AWS.
// Codes for throttling are Throttled; codes for passing states of the service are
// Retryable. ByCode does not know other codes.
func ByCode(err error) (Class, bool) {
	type coded interface {
		error
		ErrorCode() string
	}
	e, ok := errors.AsType[coded](err)
	if !ok {
		return 0, false
	}
	// "Throttling" has forms such as "Throttling.User".
	code, _, _ := strings.Cut(e.ErrorCode(), ".")
	known := func(codes []string) bool {
		// Some services and pages leave out what others end a code with.
		return slices.Contains(codes, code) || slices.Contains(codes, code+"Exception")
	}
	switch {
	case known(throttlingCodes):
		return Throttled, true
	case known(transientCodes):
		return Retryable, true
	default:
		return 0, false
	}
}

// BySQLite knows errors with a method Code() int, which returns a result code of
// SQLite, as those of modernc.org/sqlite do. BUSY and LOCKED, in any extended form,
// are Retryable. BySQLite does not know other codes.
func BySQLite(err error) (Class, bool) {
	type coded interface {
		error
		Code() int
	}
	const busy, locked = 5, 6
	e, ok := errors.AsType[coded](err)
	return Retryable, ok && (e.Code()&0xff == busy || e.Code()&0xff == locked)
}

// RetryAfter returns how long the other side wants to be left alone. It is ok if err
// has a method RetryAfter() time.Duration, as [StatusError] does. Use it with
// [Floor].
func RetryAfter(err error) (time.Duration, bool) {
	type hinted interface {
		error
		RetryAfter() time.Duration
	}
	if e, ok := errors.AsType[hinted](err); ok && e.RetryAfter() > 0 {
		return e.RetryAfter(), true
	}
	return 0, false
}
