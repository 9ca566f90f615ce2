package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

const (
	// answerWithin is how long an answer may take, and leastRate how many bytes of a request go in a second
	// at least.
	answerWithin = time.Minute
	leastRate    = 4 << 10
)

// exchange makes a request, and returns the answer of the server. What is not signed by the server is an
// error, such as a [wire.UnsignedError]. If the device has no key, what counts is that the certificate of the server
// was verified.
func (f *forwarder) exchange(ctx context.Context, stream ratchet.ID, r ratchet.Request, jobs []wire.Job) (wire.Answer, error) {
	keyCtx, stop := context.WithTimeout(ctx, answerWithin) // Key is the application's
	defer stop()
	signer, from, err := f.sign(keyCtx)
	if err != nil {
		return wire.Answer{}, &keyError{err}
	}
	head := wire.Head{Server: f.options.Server, Device: f.options.Device, Stream: stream, Request: r, Encoding: wire.Identity}
	if len(jobs) > 0 {
		head.Encoding = wire.Gzip
	}
	head, m, err := wire.SignRequest(head, jobs, signer)
	if err != nil {
		return wire.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin+time.Duration(len(m.Body)/leastRate)*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.options.URL, bytes.NewReader(m.Body))
	if err != nil {
		return wire.Answer{}, err
	}
	request.Header = m.Header
	answer, err := f.options.Client.Do(request)
	if err != nil {
		return wire.Answer{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	if f.options.Key == nil && (answer.TLS == nil || len(answer.TLS.VerifiedChains) == 0) {
		return wire.Answer{}, &wire.UnsignedError{Status: answer.StatusCode, Err: errUnverified}
	}
	a, err := wire.OpenAnswer(head, answer.StatusCode, answer.Header, answer.Body, from, wire.Limits{})
	_, _ = io.CopyN(io.Discard, answer.Body, 1<<10) // so that the connection is used again
	if unsigned, ok := errors.AsType[*wire.UnsignedError](err); ok {
		return wire.Answer{RetryAfter: secondsOf(answer.Header.Get("Retry-After"))}, unsigned
	}
	return a, err
}

func secondsOf(header string) int {
	n, err := strconv.Atoi(header)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// statusOf returns the status of an answer, signed or not; zero if there was none.
func statusOf(a wire.Answer, err error) int {
	if unsigned, ok := errors.AsType[*wire.UnsignedError](err); ok {
		return unsigned.Status
	}
	return a.Status
}

// failureOf names the kind of a failure.
func failureOf(a wire.Answer, err error) string {
	status := statusOf(a, err)
	switch {
	case err == nil:
		return fmt.Sprint("signed ", status)
	case status == 0:
		return noAnswer
	}
	return fmt.Sprint(status)
}

// errUnverified is why what has come by a connection is no answer if the device has no key.
var errUnverified = errors.New("errand: relay: the connection has no verified certificate of the server")

const noAnswer = "no answer"

// unsignedText says in few words what is wrong with an answer that the server has not signed.
func unsignedText(e *wire.UnsignedError) string {
	signed := false
	if fault, ok := errors.AsType[*wire.FieldError](e.Err); ok && fault.Field == wire.SignatureHeader {
		_, signed = fault.Value.(string)
	}
	switch {
	case errors.Is(e.Err, errUnverified):
		return fmt.Sprintf("status %d has come without a verified certificate of the server", e.Status)
	case signed:
		return fmt.Sprintf("status %d is signed with another key than the server's", e.Status)
	case e.Status == http.StatusNotFound:
		return "status 404, which is not the server's: is the path of the URL right?"
	}
	return fmt.Sprintf("status %d is not signed by the server", e.Status)
}

// closeFor closes the gate for a failure, and returns why.
func (f *forwarder) closeFor(a wire.Answer, err error) error {
	wait := time.Duration(min(a.RetryAfter, int(mostHeeded/time.Second))) * time.Second
	own, isKey := errors.AsType[*keyError](err)
	unsigned, isUnsigned := errors.AsType[*wire.UnsignedError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return err // the worker stops
	case isUnsigned:
		if unsigned.Status == http.StatusUnauthorized || unsigned.Status == http.StatusForbidden {
			f.forgetKey() // a server whose key is that of the device signs with another by now
		}
		return f.away.shut(fmt.Sprintf("no answer from %s: %s", f.options.Server, unsignedText(unsigned)), wait)
	case isKey:
		return f.away.shut("the key of this device: "+own.err.Error(), 0)
	case err != nil:
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err // the URL would leave no room for why, where little is shown
		}
		return f.away.shut(fmt.Sprintf("no answer from %s: %v", f.options.Server, err), 0)
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		f.forgetKey()
	}
	return f.away.shut(fmt.Sprintf("%s has answered with status %d: %s", f.options.Server, a.Status, a.Error), wait)
}

// probe finds out whether the server can be sent jobs: by a stream that is held, or else by the first.
func (f *forwarder) probe(ctx context.Context) error {
	s := f.streams[0]
	for _, x := range f.streams[1:] {
		if x.isHeld() {
			s = x
		}
	}
	return s.probe(ctx)
}

// keyError is of a key that cannot be had.
type keyError struct{ err error }

func (e *keyError) Error() string { return e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }
