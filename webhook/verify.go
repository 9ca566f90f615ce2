package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Why a request is not verified. Errors are matched with [errors.Is].
var (
	// ErrHeaders: a header of Standard Webhooks is missing, is there twice or is malformed.
	ErrHeaders = errors.New("webhook: headers missing or malformed")
	// ErrTooOld: the request was signed before the tolerance began. It is a copy of an
	// old request, or one of the two clocks is wrong.
	ErrTooOld = errors.New("webhook: timestamp too old")
	// ErrTooNew: the request was signed after the tolerance ends. One of the two clocks is
	// wrong.
	ErrTooNew = errors.New("webhook: timestamp too new")
	// ErrTooLarge: the body is larger than MaxBody, or than a limit that was set for it by
	// [http.MaxBytesReader].
	ErrTooLarge = errors.New("webhook: body too large")
	// ErrSignature: no signature is by one of the secrets.
	ErrSignature = errors.New("webhook: no signature matches")
)

const (
	// MaxBody is how many bytes of a body [Verify] reads: 2 MiB, since the envelope of
	// a message may be larger than the message.
	MaxBody = 2 << 20
	// DefaultTolerance is how far the time of a request may be from the receiver's, in
	// both directions: 5 min.
	DefaultTolerance = 5 * time.Minute
)

// Verify returns the body of a request if one of its signatures is by one of the secrets,
// and its timestamp is within the tolerance of now, before or after. A tolerance of
// zero is [DefaultTolerance]. It reads at most [MaxBody] bytes of the body, and nothing of it
// if a header is wrong already; r.Body has nothing left to read after that.
//
// The secrets are the whsec_ and whpk_ that the receiver knows of this sender, several
// while one is replaced by another; a whsk_ counts as its public key. Signatures of versions
// that are not known are passed over, as the specification demands.
//
// A request that is not verified returns one of [ErrHeaders], [ErrTooOld], [ErrTooNew],
// [ErrTooLarge] and [ErrSignature]. If the body cannot be read, Verify returns the error of
// that. If there are no secrets, one is zero, or the tolerance is negative, Verify
// returns an [errand.FieldError]: the receiver has to be repaired.
//
// A message may come more than once, see [HeaderID]. The time for comparing signatures
// says nothing about the right one.
func Verify(r *http.Request, secrets []Secret, tolerance time.Duration) (body []byte, err error) {
	if err := checkVerify(secrets, tolerance); err != nil {
		return nil, err
	}
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	h, err := readHeaders(r.Header)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if age := now.Sub(h.at); age > tolerance {
		return nil, fmt.Errorf("%w: signed %v ago", ErrTooOld, age.Round(time.Millisecond))
	}
	if ahead := h.at.Sub(now); ahead > tolerance {
		return nil, fmt.Errorf("%w: signed in %v", ErrTooNew, ahead.Round(time.Millisecond))
	}
	if body, err = readBody(r); err != nil {
		return nil, err
	}
	content := signed(h.id, h.timestamp, body)
	for _, s := range secrets {
		if s.key().matches(content, h.signatures) {
			return body, nil
		}
	}
	return nil, ErrSignature
}

func checkVerify(secrets []Secret, tolerance time.Duration) error {
	var f faults
	if len(secrets) == 0 {
		f.field("secrets", 0, "must be at least one")
	}
	for i, s := range secrets {
		if s.get == nil {
			f.field(fmt.Sprintf("secrets[%d]", i), s.String(), "must be a secret")
		}
	}
	if tolerance < 0 {
		f.field("tolerance", tolerance, "must not be negative")
	}
	return f.err()
}

// headers are those of Standard Webhooks.
type headers struct {
	id, timestamp string
	at            time.Time
	signatures    []string
}

// lastSecond is the last second that a timestamp may be, in the year 9999.
const lastSecond = 253402300799

func readHeaders(header http.Header) (h headers, err error) {
	one := func(name string) string {
		values := header.Values(name)
		switch {
		case err != nil:
		case len(values) == 0 || values[0] == "":
			err = fmt.Errorf("%w: no %s", ErrHeaders, strings.ToLower(name))
		case len(values) > 1:
			err = fmt.Errorf("%w: %s is there %d times", ErrHeaders, strings.ToLower(name), len(values))
		default:
			return values[0]
		}
		return ""
	}
	h.id, h.timestamp = one(HeaderID), one(HeaderTimestamp)
	h.signatures = strings.Fields(one(HeaderSignature))
	if err != nil {
		return headers{}, err
	}
	// With a dot in it, the ID could end where the timestamp or the body begin.
	if strings.Contains(h.id, ".") {
		return headers{}, fmt.Errorf("%w: webhook-id has a dot", ErrHeaders)
	}
	seconds, err := strconv.ParseInt(h.timestamp, 10, 64)
	if err != nil || seconds < 0 || seconds > lastSecond || strconv.FormatInt(seconds, 10) != h.timestamp {
		return headers{}, fmt.Errorf("%w: webhook-timestamp is no number of seconds", ErrHeaders)
	}
	if len(h.signatures) > mostSignatures {
		return headers{}, fmt.Errorf("%w: more than %d signatures", ErrHeaders, mostSignatures)
	}
	h.at = time.Unix(seconds, 0)
	return h, nil
}

func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > MaxBody {
		return nil, ErrTooLarge
	}
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if _, limited := errors.AsType[*http.MaxBytesError](err); limited || err == nil && len(body) > MaxBody {
		return nil, ErrTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("webhook: body: %w", err)
	}
	return body, nil
}

// matches reports whether one of the signatures is by k. Only those of the version that
// belongs to k count.
func (k *key) matches(content []byte, signatures []string) bool {
	var want []byte
	version := versionEd25519
	if k.prefix == prefixHMAC {
		version, want = versionHMAC, k.sum(content)
	}
	for _, s := range signatures {
		v, encoded, _ := strings.Cut(s, ",")
		if v != version {
			continue
		}
		got, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			continue
		}
		if want != nil && hmac.Equal(got, want) || want == nil && ed25519.Verify(k.public, content, got) {
			return true
		}
	}
	return false
}
