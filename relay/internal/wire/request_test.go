package wire_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

func TestRequest(t *testing.T) {
	each(t, func(t *testing.T, p pair, e wire.Encoding) {
		for kind, want := range map[ratchet.Kind][]wire.Job{ratchet.AskCheck: nil, ratchet.Ask: nil, ratchet.Send: someJobs()} {
			h, m := sign(t, head(kind, e), want, p.device)
			got, gotJobs, err := p.open(m, wire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "head", got, h)
			equal(t, "jobs", gotJobs, want)
		}
		// An empty send settles the one before it.
		_, m := sign(t, head(ratchet.Send, e), nil, p.device)
		if _, jobs, err := p.open(m, wire.Limits{}); err != nil || len(jobs) != 0 || len(m.Body) != 0 {
			t.Errorf("an empty send: %v, %v, body %q", jobs, err, m.Body)
		}
	})
}

// words are the text of a message, which can be changed and signed anew.
func words(m wire.Message) []string { return strings.Split(m.Header.Get(wire.TextHeader), " ") }

func withWords(m wire.Message, words []string) wire.Message {
	m.Header = m.Header.Clone()
	m.Header.Set(wire.TextHeader, strings.Join(words, " "))
	return m
}

func signedAnew(m wire.Message, by wire.Signer) wire.Message {
	m.Header = m.Header.Clone()
	m.Header.Set(wire.SignatureHeader, hex.EncodeToString(by.Sign([]byte(m.Header.Get(wire.TextHeader)))))
	return m
}

// Each word of a request is signed. Where another one is good, nothing but the signature speaks against it.
func TestRequest_eachWordIsSigned(t *testing.T) {
	sum := sha256.Sum256(nil)
	changes := []struct{ field, word, signed string }{ // signed: the field of the error if the device itself signs it
		{"version", "errand-relay/2", "version"},
		{"message", "answer", "message"},
		{"method", "PUT", "method"},
		{"server", "other.example.org", "server"},
		{"device", "pump-18", ""},
		{"stream", strings.Repeat("0", 31) + "2", ""},
		{"kind", "ask", "length"}, // an ask has no body
		{"id", strings.Repeat("0", 31) + "9", ""},
		{"n", "13", ""},
		{"token", strings.Repeat("0", 32), ""},
		{"check", strings.Repeat("1", 32), "check"},
		{"encoding", "identity", "body"},
		{"length", "1", "body"},
		{"sha256", hex.EncodeToString(sum[:]), "body"},
	}
	for _, p := range []pair{ed25519Pair(t, 1, 2), hmacPair(t, 3)} {
		_, m := sign(t, head(ratchet.Send, wire.Gzip), someJobs(), p.device)
		if len(words(m)) != len(changes) {
			t.Fatalf("a request has %d words: %v", len(words(m)), words(m))
		}
		for i, c := range changes {
			w := words(m)
			w[i] = c.word
			changed := withWords(m, w)
			_, _, err := p.open(changed, wire.Limits{})
			if i < 2 {
				isField(t, err, c.field, "must be")
			} else if !errors.Is(err, wire.ErrSignature) {
				t.Errorf("%s %s: %v", c.field, c.word, err)
			}
			h, err := wire.OpenRequest("POST", serverName, signedAnew(changed, p.device).Header, func(string) wire.Verifier { return p.fromDevice }, wire.Limits{})
			if err == nil {
				_, err = h.Jobs(bytes.NewReader(m.Body), wire.Limits{})
			}
			if c.signed != "" {
				isField(t, err, c.signed, "must ")
			} else if err != nil {
				t.Errorf("%s %s, signed: %v", c.field, c.word, err)
			}
		}
	}
}

func TestRequest_form(t *testing.T) {
	p := hmacPair(t, 3)
	_, m := sign(t, head(ratchet.Ask, wire.Gzip), nil, p.device)
	for _, c := range []struct {
		i            int
		word         string
		field, limit string
	}{
		{5, strings.Repeat("A", 32), "stream", "lower-case hex"},
		{5, "00", "stream", "16 bytes"},
		{5, strings.Repeat("x", 32), "stream", "lower-case hex"},
		{6, "", "kind", "one of check, ask, send"},
		{6, "poke", "kind", "one of"},
		{7, strings.Repeat("0", 32), "id", "not be zero"},
		{8, "012", "n", "a number"},
		{8, "+12", "n", "a number"},
		{8, "18446744073709551616", "n", "a number"},
		{11, "br", "encoding", "one of identity, gzip"},
		{12, "-1", "length", "a number"},
		{12, "1048577", "length", "at most 1048576"},
		{12, "1", "length", "0 but in a send"},
		{13, "00", "sha256", "32 bytes"},
		{13, "00 00", "words", "must be 14"},
	} {
		w := words(m)
		w[c.i] = c.word
		_, _, err := p.open(signedAnew(withWords(m, w), p.device), wire.Limits{})
		isField(t, err, c.field, c.limit)
		if tooLarge := errors.Is(err, wire.ErrTooLarge); tooLarge != (c.word == "1048577") {
			t.Errorf("%s %s is too large: %v", c.field, c.word, tooLarge)
		}
	}
	// The header itself.
	for name, change := range map[string]func(h http.Header){
		"no text":       func(h http.Header) { h.Del(wire.TextHeader) },
		"two texts":     func(h http.Header) { h.Add(wire.TextHeader, h.Get(wire.TextHeader)) },
		"long":          func(h http.Header) { h.Set(wire.TextHeader, strings.Repeat("x ", 600)) },
		"no signature":  func(h http.Header) { h.Del(wire.SignatureHeader) },
		"two":           func(h http.Header) { h.Add(wire.SignatureHeader, h.Get(wire.SignatureHeader)) },
		"short":         func(h http.Header) { h.Set(wire.SignatureHeader, "00") },
		"in upper case": func(h http.Header) { h.Set(wire.SignatureHeader, strings.ToUpper(h.Get(wire.SignatureHeader))) },
	} {
		h := m.Header.Clone()
		change(h)
		if _, err := wire.OpenRequest("POST", serverName, h, p.keyOf, wire.Limits{}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := wire.OpenRequest("PUT", serverName, m.Header, p.keyOf, wire.Limits{}); err == nil {
		t.Error("a PUT is taken")
	}
}

func TestRequest_others(t *testing.T) {
	p, other := ed25519Pair(t, 1, 2), ed25519Pair(t, 4, 2)
	_, m := sign(t, head(ratchet.Send, wire.Gzip), someJobs(), other.device)
	if _, _, err := p.open(m, wire.Limits{}); !errors.Is(err, wire.ErrSignature) {
		t.Errorf("the key of another device: %v", err)
	}
	_, m = sign(t, head(ratchet.Send, wire.Gzip), someJobs(), p.device)
	_, err := wire.OpenRequest("POST", "other.example.org", m.Header, p.keyOf, wire.Limits{})
	isField(t, err, "server", `must be "other.example.org"`)
	// The server can sign that it refuses.
	unknown := func(string) wire.Verifier { return nil }
	h, m := sign(t, head(ratchet.Send, wire.Gzip), someJobs(), p.device)
	refused, err := wire.OpenRequest("POST", serverName, m.Header, unknown, wire.Limits{})
	if !errors.Is(err, wire.ErrSignature) {
		t.Fatal(err)
	}
	answer := signAnswer(t, refused, wire.Answer{Status: 401, Error: "unknown device"}, p.server)
	a, err := wire.OpenAnswer(h, 401, answer.Header, strings.NewReader(string(answer.Body)), p.fromServer, wire.Limits{})
	if err != nil || a.Error != "unknown device" {
		t.Errorf("%+v, %v", a, err)
	}
}

// A request that comes twice is good twice, and has an effect once.
func TestRequest_replay(t *testing.T) {
	p := ed25519Pair(t, 1, 2)
	row := ratchet.Server{N: 12, T: ratchet.Token{0: 4}}
	_, m := sign(t, head(ratchet.Send, wire.Gzip), someJobs(), p.device)
	var got []ratchet.Status
	judged := 0
	for i := range 2 {
		h, _, err := p.open(m, wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		var a ratchet.Answer
		row, a = row.Answer(h.Request, ratchet.Token{0: 5, 1: byte(i)}, func() []ratchet.Verdict { judged++; return nil })
		got = append(got, a.Status)
	}
	equal(t, "answers", got, []ratchet.Status{ratchet.Taken, ratchet.Stale})
	equal(t, "judged", judged, 1)
}

func TestSignRequest_refuses(t *testing.T) {
	p := hmacPair(t, 3)
	for field, change := range map[string]func(h *wire.Head, jobs *[]wire.Job){
		"server":       func(h *wire.Head, _ *[]wire.Job) { h.Server = "a b" },
		"device":       func(h *wire.Head, _ *[]wire.Job) { h.Device = "" },
		"kind":         func(h *wire.Head, _ *[]wire.Job) { h.Kind = 4 },
		"encoding":     func(h *wire.Head, _ *[]wire.Job) { h.Encoding = 0 },
		"id":           func(h *wire.Head, _ *[]wire.Job) { h.ID = ratchet.ID{} },
		"check":        func(h *wire.Head, _ *[]wire.Job) { h.Check = ratchet.Check{1} },
		"token":        func(h *wire.Head, _ *[]wire.Job) { h.Kind = ratchet.AskCheck },
		"length":       func(h *wire.Head, _ *[]wire.Job) { h.Kind = ratchet.Ask },
		"jobs":         func(_ *wire.Head, jobs *[]wire.Job) { *jobs = manyJobs(1001) },
		"jobs[1].kind": func(_ *wire.Head, jobs *[]wire.Job) { (*jobs)[1].Kind = "a b" },
	} {
		h, jobs := head(ratchet.Send, wire.Gzip), someJobs()
		change(&h, &jobs)
		_, _, err := wire.SignRequest(h, jobs, p.device)
		isField(t, err, field, "must")
	}
}
