package wire_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

func openAnswer(p pair, of wire.Head, status int, m wire.Message) (wire.Answer, error) {
	return wire.OpenAnswer(of, status, m.Header, bytes.NewReader(m.Body), p.fromServer, wire.Limits{})
}

// asked returns the head of a request as its device has it, and as its server does.
func asked(t testing.TB, p pair, e wire.Encoding) (device, server wire.Head) {
	device, m := sign(t, head(ratchet.Send, e), someJobs(), p.device)
	server, _, err := p.open(m, wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return device, server
}

func TestAnswer(t *testing.T) {
	id := head(ratchet.Send, wire.Gzip).ID
	each(t, func(t *testing.T, p pair, e wire.Encoding) {
		device, server := asked(t, p, e)
		for _, want := range []wire.Answer{
			taken(),
			{Status: 200, Answer: ratchet.Answer{Request: id, Status: ratchet.Checked, Check: ratchet.Check{1}}},
			{Status: 200, Answer: ratchet.Answer{Request: id, Status: ratchet.Stale}},
			{Status: 200, Answer: ratchet.Answer{Request: id, Status: ratchet.Held}},
			{Status: 200, Answer: ratchet.Answer{Request: id, Status: ratchet.Renewed}},
			{Status: 200, Answer: ratchet.Answer{Request: id, Status: ratchet.Forked, N: 1<<64 - 1, S: ratchet.Taking{N: 4}}},
			{Status: 200, Answer: ratchet.Answer{Request: id, Status: ratchet.Resumed, N: 9, T: ratchet.Token{8}}},
			{Status: 500, Error: "the disk of the server is full"},
			{Status: 503, RetryAfter: 90},
		} {
			m := signAnswer(t, server, want, p.server)
			got, err := openAnswer(p, device, want.Status, m)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "answer", got, want)
		}
	})
}

// Each word of an answer is signed, and is compared with what has come beside it.
func TestAnswer_eachWordIsSigned(t *testing.T) {
	for _, p := range []pair{ed25519Pair(t, 1, 2), hmacPair(t, 3)} {
		device, server := asked(t, p, wire.Gzip)
		m := signAnswer(t, server, taken(), p.server)
		changes := []struct{ field, word, signed string }{
			{"version", "errand-relay/2", "version"},
			{"message", "request", "message"},
			{"request", strings.Repeat("0", len(words(m)[2])), "request"},
			{"status", "503", "status"},
			{"retry", "1", "retry"},
			{"encoding", "identity", "body"},
			{"length", "1", "body"},
			{"sha256", strings.Repeat("0", 64), "body"},
		}
		if len(words(m)) != len(changes) {
			t.Fatalf("an answer has %d words: %v", len(words(m)), words(m))
		}
		for i, c := range changes {
			w := words(m)
			w[i] = c.word
			changed := withWords(m, w)
			_, err := openAnswer(p, device, 200, changed)
			if i < 2 {
				isField(t, err, c.field, "must be")
			} else {
				isField(t, err, wire.SignatureHeader, "that of the server")
			}
			isUnsigned(t, err, 200)
			_, err = openAnswer(p, device, 200, signedAnew(changed, p.server))
			isField(t, err, c.signed, "must ")
		}
	}
}

func isUnsigned(t *testing.T, err error, status int) {
	t.Helper()
	if e, ok := errors.AsType[*wire.UnsignedError](err); !ok || e.Status != status {
		t.Errorf("error %v: want an UnsignedError of status %d", err, status)
	}
}

// What the server has not signed as the answer to this request is no answer.
func TestAnswer_unsigned(t *testing.T) {
	p := ed25519Pair(t, 1, 2)
	device, server := asked(t, p, wire.Gzip)
	m := signAnswer(t, server, taken(), p.server)
	later := signAnswer(t, server, wire.Answer{Status: 503, RetryAfter: 90}, p.server)
	h := head(ratchet.Send, wire.Gzip)
	h.ID[3]++
	other, _ := sign(t, h, someJobs(), p.device)
	if _, err := openAnswer(p, device, 200, m); err != nil {
		t.Fatal(err)
	}
	if _, err := openAnswer(p, device, 503, later); err != nil {
		t.Fatal(err)
	}
	edit := func(m wire.Message, name, value string) wire.Message {
		m.Header = maps.Clone(m.Header)
		m.Header.Set(name, value)
		return m
	}
	body := func(b []byte) wire.Message { return wire.Message{Header: m.Header, Body: b} }
	for name, c := range map[string]struct {
		of     wire.Head
		status int
		m      wire.Message
	}{
		"a portal":                    {device, 200, wire.Message{Body: []byte("<html>Welcome")}},
		"a proxy":                     {device, 502, wire.Message{Body: []byte("<html>Bad gateway")}},
		"to another request":          {other, 200, m},
		"another status":              {device, 500, m},
		"with a Retry-After":          {device, 200, edit(m, "Retry-After", "90")},
		"another Retry-After":         {device, 503, edit(later, "Retry-After", "9000")},
		"a Retry-After in other form": {device, 503, edit(later, "Retry-After", "090")},
		"cut":                         {device, 200, body(m.Body[:len(m.Body)-1])},
		"longer":                      {device, 200, body(append(bytes.Clone(m.Body), 0))},
		"another body":                {device, 200, body(bytes.Repeat([]byte{0}, len(m.Body)))},
		"by another server":           {device, 200, signAnswer(t, server, taken(), ed25519Pair(t, 1, 4).server)},
		"by the device":               {device, 200, signAnswer(t, server, taken(), p.device)},
	} {
		a, err := openAnswer(p, c.of, c.status, c.m)
		isUnsigned(t, err, c.status)
		if a.Status != 0 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	broken := errors.New("connection reset")
	_, err := wire.OpenAnswer(device, 200, m.Header, io.MultiReader(bytes.NewReader(m.Body[:9]), errorReader{broken}), p.fromServer, wire.Limits{})
	isUnsigned(t, err, 200)
	if !errors.Is(err, broken) {
		t.Error(err)
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// A request is no answer, though the key is the same.
func TestAnswer_reflected(t *testing.T) {
	p := hmacPair(t, 3)
	device, m := sign(t, head(ratchet.Send, wire.Gzip), someJobs(), p.device)
	_, err := openAnswer(p, device, 200, m)
	isField(t, err, "message", `must be "answer"`)
	_, server := asked(t, p, wire.Gzip)
	_, _, err = p.open(signAnswer(t, server, taken(), p.server), wire.Limits{})
	isField(t, err, "message", `must be "request"`)
}

func TestSignAnswer_refuses(t *testing.T) {
	p := hmacPair(t, 3)
	_, server := asked(t, p, wire.Gzip)
	bad := func(status ratchet.Status, verdicts ...ratchet.Verdict) wire.Answer {
		return wire.Answer{Status: 200, Answer: ratchet.Answer{Status: status, S: ratchet.Taking{N: 1, Verdicts: verdicts}}}
	}
	for _, c := range []struct {
		of    wire.Head
		a     wire.Answer
		field string
	}{
		{server, wire.Answer{Status: 199}, "status"},
		{server, wire.Answer{Status: 600}, "status"},
		{server, wire.Answer{Status: 503, RetryAfter: -1}, "retry"},
		{server, wire.Answer{Status: 200}, "answer.status"},
		{server, bad(ratchet.Taken, ratchet.Verdict{}), "s.verdicts[0]"},
		{server, bad(ratchet.Taken, ratchet.Verdict{Outcome: 6}), "s.verdicts[0]"},
		{server, bad(ratchet.Taken, enqueued(1001)...), "s.verdicts[1000]"},
		{head(ratchet.Send, wire.Gzip), taken(), "request"},
	} {
		_, err := wire.SignAnswer(c.of, c.a, p.server)
		isField(t, err, c.field, "must")
	}
}

func enqueued(n int) []ratchet.Verdict {
	all := make([]ratchet.Verdict, n)
	for i := range all {
		all[i] = ratchet.Verdict{Job: ratchet.ID{0: 1, 14: byte(i >> 8), 15: byte(i)}, Outcome: ratchet.Enqueued}
	}
	return all
}

// A reason is cut to 200 bytes, between two characters.
func TestSignAnswer_cutsReasons(t *testing.T) {
	p := hmacPair(t, 3)
	device, server := asked(t, p, wire.Identity)
	a := taken()
	a.Answer.S.Verdicts = []ratchet.Verdict{{Job: ratchet.ID{1}, Outcome: ratchet.Refused, Reason: strings.Repeat("x", 199) + "é"}}
	got, err := openAnswer(p, device, 200, signAnswer(t, server, a, p.server))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "reason", got.Answer.S.Verdicts[0].Reason, strings.Repeat("x", 199))
}

// A server that signs what it should not is told apart from one that has not signed.
func TestOpenAnswer_body(t *testing.T) {
	p := hmacPair(t, 3)
	device, server := asked(t, p, wire.Identity)
	ids := strings.Repeat("A", 21) + "E=" // not padded to 16 bytes
	for _, c := range []struct{ body, field, limit string }{
		{``, "answer", "JSON"},
		{`[]`, "answer", "JSON"},
		{`{"status":"taken"} {}`, "answer", "one JSON document"},
		{`{"status":"taken","later":1}`, "answer", "of this version"},
		{`{"status":"done"}`, "status", "one of checked"},
		{`{"status":"taken","token":"00"}`, "answer", "of this version"},
		{`{"status":"taken","s":{"n":1,"outcomes":"e"}}`, "s.jobs", "16 bytes for each of 1"},
		{`{"status":"taken","s":{"n":1,"outcomes":"e","jobs":"` + ids + `"}}`, "answer", "of this version"},
		{`{"status":"taken","s":{"n":1,"outcomes":"x","jobs":"` + strings.Repeat("A", 22) + `=="}}`, "s.outcomes", "begin with one of"},
		{`{"status":"taken","s":{"n":1,"outcomes":"r","jobs":"` + strings.Repeat("A", 22) + `=="}}`, "s.reasons", "must be 1"},
		{`{"status":"taken","s":{"n":1,"outcomes":"e","jobs":"` + strings.Repeat("A", 22) + `==","reasons":["a"]}}`, "s.reasons", "at most 0"},
		{`{"status":"taken","s":{"n":1,"outcomes":"` + strings.Repeat("e", 1001) + `"}}`, "s.outcomes", "at most 1000"},
	} {
		m := withBody(signAnswer(t, server, taken(), p.server), []byte(c.body), p.server)
		_, err := openAnswer(p, device, 200, m)
		isField(t, err, c.field, c.limit)
		if _, ok := errors.AsType[*wire.UnsignedError](err); ok {
			t.Errorf("%s: %v", c.body, err)
		}
	}
}
