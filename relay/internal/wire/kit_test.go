package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

const serverName, deviceName = "jobs.example.org/relay", "pump-17"

// pair is the keys of a device and of its server.
type pair struct {
	device, server         wire.Signer
	fromDevice, fromServer wire.Verifier
}

// filled returns 32 bytes that are all the same.
func filled(c byte) (b [32]byte) { return [32]byte(bytes.Repeat([]byte{c}, 32)) }

func ed25519Pair(t testing.TB, device, server byte) pair {
	a, b := wire.FormatKey(wire.Ed25519Private, filled(device)), wire.FormatKey(wire.Ed25519Private, filled(server))
	return pair{
		must(t, wire.ParseSigner, a), must(t, wire.ParseSigner, b),
		must(t, wire.ParseVerifier, must(t, wire.PublicKey, a)), must(t, wire.ParseVerifier, must(t, wire.PublicKey, b)),
	}
}

func hmacPair(t testing.TB, key byte) pair {
	k := wire.FormatKey(wire.HMACSHA256, filled(key))
	s, v := must(t, wire.ParseSigner, k), must(t, wire.ParseVerifier, k)
	return pair{s, s, v, v}
}

func must[A, B any](t testing.TB, f func(A) (B, error), a A) B {
	t.Helper()
	b, err := f(a)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (p pair) keyOf(device string) wire.Verifier {
	if device != deviceName {
		return nil
	}
	return p.fromDevice
}

// open is what a server does with a message.
func (p pair) open(m wire.Message, l wire.Limits) (wire.Head, []wire.Job, error) {
	h, err := wire.OpenRequest("POST", serverName, m.Header, p.keyOf, l)
	if err != nil {
		return h, nil, err
	}
	jobs, err := h.Jobs(bytes.NewReader(m.Body), l)
	return h, jobs, err
}

func head(kind ratchet.Kind, e wire.Encoding) wire.Head {
	h := wire.Head{
		Server: serverName, Device: deviceName, Stream: ratchet.ID{15: 1}, Encoding: e,
		Request: ratchet.Request{ID: ratchet.ID{0: 2, 15: 3}, Kind: kind, N: 12},
	}
	if kind != ratchet.AskCheck {
		h.Token = ratchet.Token{0: 4}
	}
	if kind == ratchet.Ask {
		h.Check = h.Token.Check()
	}
	return h
}

// someJobs returns a job with all that a job can have, and one with nothing more than it must have.
func someJobs() []wire.Job {
	return []wire.Job{
		{
			ID: wire.ID{0: 1, 1: 0x9a, 15: 7}, Kind: "measure/v2", Args: json.RawMessage(`{"at":"<π>","list":[1,2.50,null]}`),
			Headers:  map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "é": "\n"},
			Priority: -100, Tags: []string{"a", "site:7"}, Group: "pump 17 é",
			Unique: &wire.Unique{
				Key: "17/2026", For: seconds.Duration(1500 * time.Millisecond), OnConflict: "debounce", Quiet: seconds.Duration(time.Second),
				MaxWait: seconds.Duration(time.Minute), Fresh: true,
			},
			Made: time.Date(1970, 1, 1, 0, 0, 1, 250_000_000, time.UTC), StartWithin: seconds.Duration(time.Hour),
			FinishWithin: seconds.Duration(90*time.Minute + time.Microsecond), OnExpire: "dead",
		},
		{ID: wire.ID{15: 8}, Kind: "ping", Args: json.RawMessage(`null`)},
	}
}

// manyJobs returns n small jobs.
func manyJobs(n int) []wire.Job {
	all := make([]wire.Job, n)
	for i := range all {
		all[i] = wire.Job{ID: wire.ID{0: 1, 14: byte(i >> 8), 15: byte(i)}, Kind: "k", Args: fmt.Append(nil, i)}
	}
	return all
}

// taken is an answer with a verdict of each outcome.
func taken() wire.Answer {
	a := ratchet.Answer{
		Request: head(ratchet.Send, wire.Gzip).ID, Status: ratchet.Taken, N: 13, T: ratchet.Token{3: 9}, S: ratchet.Taking{N: 12},
	}
	for o := ratchet.Enqueued; o <= ratchet.Later; o++ {
		v := ratchet.Verdict{Job: ratchet.ID{0: byte(o), 15: 5}, Outcome: o}
		if o == ratchet.Refused {
			v.Reason = `no kind "measure" <here>`
		}
		a.S.Verdicts = append(a.S.Verdicts, v)
	}
	return wire.Answer{Status: 200, Answer: a}
}

func sign(t testing.TB, h wire.Head, jobs []wire.Job, by wire.Signer) (wire.Head, wire.Message) {
	t.Helper()
	h, m, err := wire.SignRequest(h, jobs, by)
	if err != nil {
		t.Fatal(err)
	}
	return h, m
}

func signAnswer(t testing.TB, of wire.Head, a wire.Answer, by wire.Signer) wire.Message {
	t.Helper()
	m, err := wire.SignAnswer(of, a, by)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// isField fails unless err is a FieldError of a field that says limit.
func isField(t testing.TB, err error, field, limit string) {
	t.Helper()
	e, ok := errors.AsType[*wire.FieldError](err)
	if !ok || e.Field != field || !strings.Contains(e.Limit, limit) {
		t.Errorf("error %v: want one of %s: %s", err, field, limit)
	}
}

// each calls f for both kinds of keys and both encodings.
func each(t *testing.T, f func(t *testing.T, p pair, e wire.Encoding)) {
	for name, p := range map[string]pair{"ed25519": ed25519Pair(t, 1, 2), "hmac": hmacPair(t, 3)} {
		for _, e := range []wire.Encoding{wire.Identity, wire.Gzip} {
			t.Run(fmt.Sprint(name, " ", e), func(t *testing.T) { f(t, p, e) })
		}
	}
}

// Jobs that are measured.

var start = time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)

func random(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 1)) }

// timeOf returns when job i is made: some 400 ms after the one before it.
func timeOf(i int) time.Duration {
	return time.Duration(i)*400*time.Millisecond + time.Duration(i*i%977)*time.Microsecond
}

func windowOf(us int) seconds.Duration {
	return seconds.Duration(time.Hour + time.Duration(us)*time.Microsecond)
}

// uuid returns a UUID of version 7.
func uuid(r *rand.Rand, at time.Time) (id [16]byte) {
	binary.BigEndian.PutUint64(id[8:], r.Uint64())
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16|uint64(r.Uint32()&0x0fff|0x7000))
	id[8] = id[8]&0x3f | 0x80
	return id
}
