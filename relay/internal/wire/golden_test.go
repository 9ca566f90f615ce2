package wire_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

var update = flag.Bool("update", false, "write the golden vectors anew")

const goldenFile = "testdata/vectors.json"

// vectors are messages for who writes a device in another language.
type vectors struct {
	About    string            `json:"about"`
	Keys     map[string]string `json:"keys"`
	Requests []requestVector   `json:"requests"`
	Answers  []answerVector    `json:"answers"`
}

// vector is a message. Its body is as it is sent, in base64; its JSON is what the body unpacks to.
type vector struct {
	Name   string            `json:"name"`
	Key    string            `json:"key"` // the one that verifies; empty: there is none
	Header map[string]string `json:"headers"`
	Body   []byte            `json:"body"`
	JSON   string            `json:"json"`
}

type requestVector struct {
	vector
	Method string `json:"method"`
	Server string `json:"server"`
	Device string `json:"device"`
}

type answerVector struct {
	vector
	Request string `json:"request"` // its name
	Status  int    `json:"status"`
}

// golden is what the vectors mean: requests by their names, and answers to them.
func golden(t *testing.T) (keys map[string]string, pairs map[string]pair, heads map[string]wire.Head, sent map[string][]wire.Job, answers map[string]wire.Answer) {
	keys = map[string]string{
		"device-private": wire.FormatKey(wire.Ed25519Private, filled(1)), "server-private": wire.FormatKey(wire.Ed25519Private, filled(2)),
		"shared": wire.FormatKey(wire.HMACSHA256, filled(3)),
	}
	keys["device-public"], keys["server-public"] = must(t, wire.PublicKey, keys["device-private"]), must(t, wire.PublicKey, keys["server-private"])
	pairs, heads, sent, answers = map[string]pair{}, map[string]wire.Head{}, map[string][]wire.Job{}, map[string]wire.Answer{}
	for key, p := range map[string]pair{"ed25519": ed25519Pair(t, 1, 2), "hmac": hmacPair(t, 3), "mtls": {wire.Unkeyed, wire.Unkeyed, wire.Unkeyed, wire.Unkeyed}} {
		for _, c := range []struct {
			what string
			head wire.Head
			jobs []wire.Job
			a    wire.Answer
		}{
			{"check", head(ratchet.AskCheck, wire.Identity), nil, wire.Answer{Status: 200, Answer: ratchet.Answer{Status: ratchet.Checked, Check: ratchet.Token{0: 4}.Check()}}},
			{"ask", head(ratchet.Ask, wire.Gzip), nil, taken()},
			{"send", head(ratchet.Send, wire.Identity), someJobs(), taken()},
			{"send, gzip", head(ratchet.Send, wire.Gzip), someJobs(), taken()},
			{"send, empty", head(ratchet.Send, wire.Gzip), nil, wire.Answer{Status: 200, Answer: ratchet.Answer{Status: ratchet.Stale}}},
			{"send, too early", head(ratchet.Send, wire.Identity), manyJobs(2), wire.Answer{Status: 503, RetryAfter: 90, Error: "10,000 devices are here"}},
		} {
			name := key + ", " + c.what
			c.a.Answer.Request = ratchet.ID{}
			if c.a.Status == 200 {
				c.a.Answer.Request = c.head.ID
			}
			pairs[name], heads[name], sent[name], answers[name] = p, c.head, c.jobs, c.a
		}
	}
	return keys, pairs, heads, sent, answers
}

func toVector(t *testing.T, name, key string, m wire.Message) vector {
	v := vector{Name: name, Key: key, Header: map[string]string{}, Body: m.Body, JSON: string(m.Body)}
	for name, values := range m.Header {
		v.Header[name] = values[0]
	}
	if words := words(m); slices.Contains(words, "gzip") && len(m.Body) > 0 {
		r, err := gzip.NewReader(bytes.NewReader(m.Body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		v.JSON = string(text)
	}
	return v
}

func (v vector) message() wire.Message {
	m := wire.Message{Header: http.Header{}, Body: v.Body}
	for name, value := range v.Header {
		m.Header.Set(name, value)
	}
	return m
}

// The golden vectors are what this package writes and reads. What gzip makes of a text is not compared: another
// version of it may do better.
//
//	go test ./relay/internal/wire -run TestGolden -update
func TestGolden(t *testing.T) {
	keys, pairs, heads, sent, answers := golden(t)
	want := vectors{About: "Messages of package relay/internal/wire, whose comment says what they are.", Keys: keys}
	for _, name := range slices.Sorted(maps.Keys(heads)) {
		deviceKey, serverKey := "shared", "shared"
		switch name[0] {
		case 'e':
			deviceKey, serverKey = "device-public", "server-public"
		case 'm':
			deviceKey, serverKey = "", ""
		}
		h, m := sign(t, heads[name], sent[name], pairs[name].device)
		want.Requests = append(want.Requests, requestVector{toVector(t, name, deviceKey, m), "POST", h.Server, h.Device})
		want.Answers = append(want.Answers, answerVector{toVector(t, name, serverKey, signAnswer(t, h, answers[name], pairs[name].server)), name, answers[name].Status})
	}
	if *update {
		text, err := json.MarshalIndent(want, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(goldenFile, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var got vectors
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	equal(t, "keys", got.Keys, want.Keys)
	if len(got.Requests) != len(want.Requests) || len(got.Answers) != len(want.Answers) {
		t.Fatalf("%d requests and %d answers, want %d and %d", len(got.Requests), len(got.Answers), len(want.Requests), len(want.Answers))
	}
	opened := map[string]wire.Head{}
	for i, v := range got.Requests {
		same(t, v.vector, want.Requests[i].vector)
		p, m := pairs[v.Name], v.message()
		h, jobs, err := p.open(m, wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		opened[v.Name] = h
		equal(t, "request", h.Request, heads[v.Name].Request)
		equal(t, "jobs", jobs, sent[v.Name])
		equal(t, "signature", signedAnew(m, p.device).Header, m.Header)
	}
	for i, v := range got.Answers {
		same(t, v.vector, want.Answers[i].vector)
		p, m := pairs[v.Name], v.message()
		a, err := wire.OpenAnswer(opened[v.Request], v.Status, m.Header, bytes.NewReader(m.Body), p.fromServer, wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "answer", a, answers[v.Name])
		equal(t, "signature", signedAnew(m, p.server).Header, m.Header)
	}
}

func same(t *testing.T, got, want vector) {
	t.Helper()
	if _, signed := want.Header[wire.TextHeader]; got.JSON != want.JSON || got.Name != want.Name || !signed {
		t.Errorf("%s: %s, want %s: %s", got.Name, got.JSON, want.Name, want.JSON)
	}
	if got.JSON == string(got.Body) {
		equal(t, got.Name, got, want)
	}
}

// Python reads the vectors with its standard library alone.
func TestGolden_python(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3: ", err)
	}
	out, err := exec.CommandContext(t.Context(), python, "testdata/verify.py", goldenFile).CombinedOutput()
	if err != nil || string(out) != "12 requests and 12 answers\n" {
		t.Errorf("%v: %s", err, out)
	}
}
