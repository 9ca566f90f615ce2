package wire_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// fuzzed bounds what a request or answer brings to decode: more is found in no other way.
var fuzzed = wire.Limits{Sent: 64 << 10, Unpacked: 256 << 10, Headers: 1 << 10}

// header returns that of a text which the key has signed.
func header(text string, by wire.Signer) http.Header {
	return signedAnew(wire.Message{Header: http.Header{wire.TextHeader: {text}}}, by).Header
}

// Whatever comes to a server, it does not panic, and what it reads it would also send.
func FuzzRequest(f *testing.F) {
	p := hmacPair(f, 3)
	for _, h := range []wire.Head{head(ratchet.AskCheck, wire.Gzip), head(ratchet.Ask, wire.Identity), head(ratchet.Send, wire.Gzip), head(ratchet.Send, wire.Identity)} {
		var jobs []wire.Job
		if h.Kind == ratchet.Send {
			jobs = someJobs()
		}
		_, m := sign(f, h, jobs, p.device)
		f.Add(m.Header.Get(wire.TextHeader), m.Header.Get(wire.SignatureHeader), m.Body)
	}
	f.Add("", "", []byte("[]"))
	f.Add("", "", []byte(one+`1,"made":"9999-12-31T23:59:59-01:00","priority":1e2,"finish_within_s":0.5e3,"tags":[],"headers":{}}]`))
	f.Fuzz(func(t *testing.T, text, signature string, body []byte) {
		_, _ = wire.OpenRequest("POST", serverName, http.Header{wire.TextHeader: {text}, wire.SignatureHeader: {signature}}, p.keyOf, fuzzed)
		_, _, _ = p.open(wire.Message{Header: header(text, p.device), Body: body}, fuzzed)
		for _, e := range []wire.Encoding{wire.Identity, wire.Gzip} {
			_, m := sign(t, head(ratchet.Send, e), nil, p.device)
			_, got, err := p.open(withBody(m, body, p.device), fuzzed)
			if err != nil {
				continue
			}
			size := 0
			for i := range got {
				size += len(got[i].Args) + len(got[i].Kind) + len(got[i].Group)
				got[i].Args = compact(t, got[i].Args)
			}
			if len(got) > wire.MaxJobs || size > fuzzed.Unpacked {
				t.Errorf("%d jobs of %d bytes", len(got), size)
			}
			_, m = sign(t, head(ratchet.Send, e), got, p.device)
			_, again, err := p.open(m, wire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "jobs", again, got)
		}
	})
}

func compact(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Whatever comes to a device, it does not panic, and what it reads a server would also send.
func FuzzAnswer(f *testing.F) {
	p := hmacPair(f, 3)
	for _, e := range []wire.Encoding{wire.Identity, wire.Gzip} {
		_, server := asked(f, p, e)
		for _, a := range []wire.Answer{taken(), {Status: 503, RetryAfter: 90, Error: "later"}} {
			m := signAnswer(f, server, a, p.server)
			f.Add(m.Header.Get(wire.TextHeader), m.Header.Get(wire.SignatureHeader), m.Header.Get("Retry-After"), a.Status, m.Body)
		}
	}
	f.Fuzz(func(t *testing.T, text, signature, retryAfter string, status int, body []byte) {
		for _, e := range []wire.Encoding{wire.Identity, wire.Gzip} {
			device, server := asked(t, p, e)
			open := func(m wire.Message, status int) (wire.Answer, error) {
				return wire.OpenAnswer(device, status, m.Header, bytes.NewReader(m.Body), p.fromServer, fuzzed)
			}
			_, _ = open(wire.Message{Header: http.Header{wire.TextHeader: {text}, wire.SignatureHeader: {signature}}, Body: body}, status)
			h := header(text, p.server)
			h.Set("Retry-After", retryAfter)
			_, _ = open(wire.Message{Header: h, Body: body}, status)
			for _, like := range []wire.Answer{taken(), {Status: 500}} {
				got, err := open(withBody(signAnswer(t, server, like, p.server), body, p.server), like.Status)
				if err != nil {
					continue
				}
				again, err := open(signAnswer(t, server, got, p.server), like.Status)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "answer", again, got)
			}
		}
	})
}
