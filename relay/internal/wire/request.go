package wire

import (
	"cmp"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"

	"github.com/errandq/errand/relay/internal/ratchet"
)

// Head is a request without its jobs. The caller of [SignRequest] sets the exported fields.
type Head struct {
	Server, Device string
	Stream         ratchet.ID
	ratchet.Request
	Encoding  Encoding // of the jobs, and of the answer
	signature string
	unkeyed   bool // the signature is that of Unkeyed
	body      sealed
}

// IsUnkeyed reports whether a request that [OpenRequest] has returned is signed by [Unkeyed].
func (h Head) IsUnkeyed() bool { return h.unkeyed }

// Length returns how many bytes the body has as it is sent.
func (h Head) Length() int { return h.body.length }

var kinds = []string{"", "check", "ask", "send"}

const requestWords, deviceWord = 14, 4

func (h Head) words() []string {
	return append([]string{
		version, "request", http.MethodPost, h.Server, h.Device, hex.EncodeToString(h.Stream[:]), kinds[h.Kind],
		hex.EncodeToString(h.ID[:]), strconv.FormatUint(h.N, 10), hex.EncodeToString(h.Token[:]), hex.EncodeToString(h.Check[:]),
	}, h.body.words()...)
}

// SignRequest returns a request with its jobs, which only a Send has, and the head with which its answer is read.
func SignRequest(h Head, jobs []Job, by Signer) (Head, Message, error) {
	var body []byte
	err := check(jobs)
	if err == nil && len(jobs) > 0 {
		body, err = pack(h.Encoding, jobs)
	}
	h.body = seal(h.Encoding, body)
	if err = cmp.Or(err, h.validate()); err != nil {
		return h, Message{}, err
	}
	header, signature := sign(h.words(), by)
	h.signature = signature
	return h, Message{header, body}, nil
}

// validate checks what the form of the words leaves open.
func (h Head) validate() error {
	switch {
	case !IsName(h.Server):
		return wrong("server", h.Server, NameForm)
	case !IsName(h.Device):
		return wrong("device", h.Device, NameForm)
	case h.Kind < ratchet.AskCheck || h.Kind > ratchet.Send:
		return wrong("kind", int(h.Kind), "must be AskCheck, Ask or Send")
	case h.Encoding != Identity && h.Encoding != Gzip:
		return wrong("encoding", int(h.Encoding), "must be Identity or Gzip")
	case h.ID == ratchet.ID{}:
		return wrong("id", 0, "must not be zero")
	case h.Kind == ratchet.AskCheck && h.Token != ratchet.Token{}:
		return wrong("token", "of a check", "must be zero")
	case h.Kind != ratchet.Ask && h.Check != ratchet.Check{}:
		return wrong("check", "of a "+kinds[h.Kind], "must be zero")
	case h.Kind != ratchet.Send && h.body.length > 0:
		return wrong("length", h.body.length, "must be 0 but in a send")
	}
	return nil
}

// OpenRequest verifies the header of a request that has come to a server, with the key that keyOf returns for
// the name of a device, or nil. If the error is [ErrSignature], the head is good for an answer to it
// by [SignAnswer], and for nothing else. If it is another one, and nothing was verified, the head is zero, and good
// for no answer. The body is read by [Head.Jobs].
func OpenRequest(method, server string, header http.Header, keyOf func(device string) Verifier, l Limits) (Head, error) {
	if method != http.MethodPost {
		return Head{}, wrong("method", method, "must be POST")
	}
	t, signature, bytes, err := open(header, "request", requestWords)
	if err != nil {
		return Head{}, err
	}
	h := Head{signature: signature, unkeyed: Unkeyed.Verify([]byte(t.line), bytes), Encoding: Identity}
	device := t.words[deviceWord]
	if !IsName(device) {
		return h, ErrSignature
	}
	if key := keyOf(device); key == nil || !key.Verify([]byte(t.line), bytes) {
		return h, ErrSignature
	}
	t.is("method", http.MethodPost)
	t.is("server", server)
	h.Server, h.Device = server, t.next()
	t.bytes("stream", h.Stream[:])
	h.Kind = ratchet.Kind(t.one("kind", kinds))
	t.bytes("id", h.ID[:])
	h.N = t.number("n")
	t.bytes("token", h.Token[:])
	t.bytes("check", h.Check[:])
	h.body = t.sealed(l.withDefaults())
	if t.err != nil {
		return h, t.err // in an answer that has the encoding Identity
	}
	h.Encoding = h.body.encoding
	return h, h.validate()
}

// Jobs reads the body of a request that OpenRequest has returned.
func (h Head) Jobs(body io.Reader, l Limits) ([]Job, error) {
	l = l.withDefaults()
	sent, err := h.body.read(body)
	if err != nil {
		return nil, err
	}
	text, err := h.body.unpack(sent, l)
	if err != nil {
		return nil, err
	}
	return decodeJobs(text, l)
}
