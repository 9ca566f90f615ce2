// Package wire is how the requests and answers of package ratchet travel by HTTP: their
// bytes, and who has signed them. It has pure functions over headers and bodies. Whoever
// uses it has the network, the keys, and the store.
//
// # A message
//
// A request is a POST. A request and its answer each have two headers of errand, and a body:
//
//	Errand-Relay            the text: words with one space between them
//	Errand-Relay-Signature  the signature of the bytes of the text
//
// What is signed is the value of the header as it is sent. Nothing is put together again
// before it is verified, so there is one form of it. The text has a fixed number of words in a
// fixed order. No word is empty, and each is of visible ASCII characters without a space. So two different
// lists of words never make the same text. A space separates the words, and not a newline, since a header
// cannot have a newline in it.
//
// The words are:
//
//   - A number is decimal, without a sign and without zeros before it, and less than 2^64.
//   - Bytes are lower-case hex: an ID, a token and a check have 16 bytes, and so 32 characters; a SHA-256
//     has 32 bytes; a signature has 64 bytes with Ed25519, and 32 with HMAC-SHA-256 or without a key. What
//     there is none of is zeros, such as the token of a check.
//   - A name has the form of names of queues: [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}.
//
// The text of a request has 14 words:
//
//	errand-relay/1   the version of the protocol
//	request
//	POST             the method
//	SERVER           the name of the server that the request is for
//	DEVICE           the name of the device that signs it
//	STREAM           the ID of the stream
//	check|ask|send   the kind: AskCheck, Ask or Send
//	ID               random, and another one for each request
//	N                a number
//	TOKEN            zeros in a check
//	CHECK            zeros but in an ask
//	identity|gzip    the encoding of the body
//	LENGTH           the number of bytes of the body as it is sent
//	SHA256           of the body as it is sent
//
// The text of an answer has 8 words:
//
//	errand-relay/1
//	answer
//	SIGNATURE        that of the request
//	STATUS           the status of HTTP, 200 to 599
//	RETRY            the value of the header Retry-After, in seconds; 0 if there is none
//	identity|gzip    the encoding of the body
//	LENGTH           as above
//	SHA256           as above
//
// The receiver of a request verifies the text with the key of DEVICE before it reads the body, and
// compares POST and SERVER. It reads LENGTH bytes and compares SHA256, and only then unpacks
// them. The receiver of an answer also compares SIGNATURE, STATUS and RETRY. What is not signed so is no
// answer, whatever its status is: it is from a portal, a proxy, or somebody else.
//
// The second word keeps a request from being taken for an answer, since both ends have the same key with
// HMAC. A request that comes twice is good twice: what it may do then is the business of package ratchet.
//
// # A body
//
// A body is one JSON document in UTF-8. It is compressed as in a gzip file if the encoding is gzip. The
// answer has the encoding of the request, or identity if the text of that is wrong, so a
// device without gzip needs none. A body of
// length 0 has no jobs, in both encodings; a check and an ask have that one. A message has no header
// Content-Encoding, since a proxy may unpack such a body; its Content-Type is application/octet-stream.
//
// The body of a send is an array of up to 1,000 objects, the jobs in order. An object has these members,
// and may lack those that are zero, but for the first three:
//
//	id               the ID of the job on the device, as in a text
//	kind             a name
//	args             any JSON
//	headers          an object of strings, without errand's own; the trace is in it
//	priority         a number
//	tags             an array of up to 8 strings, each up to 64 bytes
//	group            a string up to 256 bytes
//	unique           an object, see below
//	made             when the job was made, as in RFC 3339; a device without a clock leaves it out
//	start_within_s   seconds that are left for the first attempt to begin
//	finish_within_s  seconds that are left for any attempt to begin
//	on_expire        "dead" or "expired"
//
// The object unique has:
//
//	key              a string, 1 to 1,024 bytes
//	forever          true if the key is held until it is released
//	for_s            seconds for which the key is held
//	on_conflict      "replace", "debounce", "after" or "fail"
//	quiet_s          seconds, of debounce
//	max_wait_s       seconds, of debounce
//	fresh            true if a changed job begins its retries anew
//
// The body of an answer is an object. If the status is 200 it has these members, but for those that are zero:
//
//	status           "checked", "taken", "stale", "held", "forked", "resumed" or "renewed"
//	check            as in a text
//	n                a number
//	token            as in a text
//	s                an object, see below
//
// The object s has:
//
//	n                a number: that of the send
//	outcomes         a string of one letter for each job: e enqueued, d duplicate, r refused, b behind, l later
//	jobs             the IDs of the jobs in the same order, 16 bytes each, together in base64 with padding
//	reasons          an array of a string for each r, each up to 200 bytes
//
// Otherwise it has one member, error: a string up to 200 bytes that says what is wrong.
//
// A member with another name is an error, as the receiver would lose what it says.
//
// # A key
//
// A key is a line of a file: its kind, a colon, and 32 bytes in lower-case hex. The kinds are:
//
//	ed25519-private  the seed of RFC 8032; signs
//	ed25519-public   the public half of it; verifies
//	hmac-sha256      both; the device and the server keep it
//
// Over TLS in which both sides have verified the certificate of the other, a device may have no key.
// The signatures of its requests, and of the answers to them, are the SHA-256 of the text, which shows that a
// message is whole. Who has sent the message is what the connection says.
package wire

import (
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"
)

// The two headers of a message.
const (
	TextHeader      = "Errand-Relay"
	SignatureHeader = "Errand-Relay-Signature"
)

const (
	// MaxJobs is how many jobs a send has at most.
	MaxJobs = 1000
	// MaxReason is how many bytes the reason of a refusal has at most.
	MaxReason = 200
)

const (
	version   = "errand-relay/1"
	maxText   = 1024 // bytes of the text of a message
	maxName   = 128
	maxTags   = 8
	maxTag    = 64
	maxGroup  = 256
	maxUnique = 1024
	maxLevels = 1002 // an array of objects whose args have 1,000
)

// ErrSignature is the error of a request that is not signed with the key of its device, or
// whose device is unknown.
var ErrSignature = errors.New("errand: relay: the request is not signed by a device that is known here")

// ErrTooLarge is what a [FieldError] about something that is too large unwraps to.
var ErrTooLarge = errors.New("errand: relay: too large")

// FieldError is the error of a message that is wrong: Field says where.
type FieldError struct {
	Field string // "length", "jobs[3].kind"
	Value any
	Limit string // "must be at most 1000"
	Err   error  // ErrTooLarge, the error of another package, or nil
}

// Error returns field, value and limit in one line.
func (e *FieldError) Error() string {
	value := fmt.Sprint(e.Value)
	if s, ok := e.Value.(string); ok {
		value = fmt.Sprintf("%q", Cut(s, 64))
	}
	s := fmt.Sprintf("errand: relay: %s %s: %s", e.Field, value, e.Limit)
	if e.Err != nil && !errors.Is(e.Err, ErrTooLarge) {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

func wrong(field string, value any, limit string, args ...any) *FieldError {
	return &FieldError{Field: field, Value: value, Limit: fmt.Sprintf(limit, args...)}
}

func because(err error, field string, value any, limit string) error {
	return &FieldError{Field: field, Value: value, Limit: limit, Err: err}
}

func atMost(field string, n, most int) error {
	if n > most {
		return because(ErrTooLarge, field, n, fmt.Sprintf("must be at most %d", most))
	}
	return nil
}

// Cut returns the beginning of s, of at most n bytes.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Message is a request or an answer as HTTP carries it. Its header has all that the message
// needs but for Content-Length.
type Message struct {
	Header http.Header
	Body   []byte
}

// Limits bound what is read. The zero value has the defaults.
type Limits struct {
	// Sent is how many bytes a body has as it is sent. If zero, 1 MiB.
	Sent int
	// Unpacked is how many bytes a body unpacks to. If zero, 16 MiB.
	Unpacked int
	// Headers is how many bytes of JSON the headers of a job have. If zero, 16 KiB.
	Headers int
}
