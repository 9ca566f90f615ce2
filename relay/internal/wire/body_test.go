package wire_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// withBody returns a message with another body, signed.
func withBody(m wire.Message, body []byte, by wire.Signer) wire.Message {
	w, sum := words(m), sha256.Sum256(body)
	copy(w[len(w)-2:], []string{strconv.Itoa(len(body)), hex.EncodeToString(sum[:])})
	m = signedAnew(withWords(m, w), by)
	m.Body = body
	return m
}

func zip(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const one = `[{"id":"01000000000000000000000000000000","kind":"k","args":`

// A body is refused for what is too much in it, and takes little memory until then.
func TestJobs_limits(t *testing.T) {
	p := hmacPair(t, 3)
	l := wire.Limits{Sent: 64 << 10, Unpacked: 256 << 10, Headers: 100}
	with := func(more string) string { return one + "1," + more + "}]" }
	for name, c := range map[string]struct {
		body, field, limit string
		tooLarge           bool
	}{
		"1,001 jobs":          {"[" + strings.Repeat("{},", 1000) + "{}]", "jobs", "at most 1000", true},
		"zeros":               {strings.Repeat("\x00", 1<<20), "body", "must be JSON", false},
		"spaces":              {strings.Repeat(" ", 1<<20), "unpacked", "at most 262144", true},
		"a long text":         {one + `"` + strings.Repeat("x", 1<<20), "unpacked", "at most 262144", true},
		"10,000 levels":       {one + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}]", "levels", "at most 1002", true},
		"10,000 objects":      {one + strings.Repeat(`{"a":`, 10_000), "levels", "at most 1002", true},
		"1,001 levels":        {one + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + "}]", "levels", "at most 1002", true},
		"tags of nothing":     {with(`"tags":[` + strings.Repeat(`"",`, 80_000) + `""]`), "jobs[0].tags", "at most 8", true},
		"headers of nothing":  {with(`"headers":{` + strings.Repeat(`"":"",`, 20) + `"":""}`), "jobs[0].headers", "at most 100", true},
		"kind":                {strings.Replace(with(`"priority":1`), `"k"`, `"`+strings.Repeat("k", 129)+`"`, 1), "jobs[0].kind", "{0,127}", false},
		"group":               {with(`"group":"` + strings.Repeat("g", 257) + `"`), "jobs[0].group", "at most 256", false},
		"tag":                 {with(`"tags":["a","` + strings.Repeat("t", 65) + `"]`), "jobs[0].tags[1]", "1 to 64", false},
		"unique key":          {with(`"unique":{"key":"` + strings.Repeat("u", 1025) + `"}`), "jobs[0].unique.key", "1 to 1024", false},
		"no unique key":       {with(`"unique":{}`), "jobs[0].unique.key", "1 to 1024", false},
		"a negative window":   {with(`"start_within_s":-1`), "jobs[0].start_within_s, finish_within_s", "not be negative", false},
		"no args":             {`[{"id":"01000000000000000000000000000000","kind":"k"}]`, "jobs[0].args", "be there", false},
		"no ID":               {`[{"kind":"k","args":1}]`, "jobs[0].id", "be there", false},
		"an ID twice":         {with(`"priority":1`)[:len(with(`"priority":1`))-1] + "," + with(`"priority":1`)[1:], "jobs[1].id", "twice", false},
		"an ID in upper case": {strings.Replace(with(`"priority":1`), `"01`, `"0A`, 1), "jobs[0]", "of this version", false},
		"another member":      {with(`"queue":"q"`), "jobs[0]", "of this version", false},
		"a job of null":       {"[null]", "jobs[0].id", "be there", false},
		"an object":           {"{}", "jobs", "JSON array", false},
		"two documents":       {"[][]", "jobs", "one JSON document", false},
		"no end":              {with(`"priority":1`)[:20], "jobs[0]", "JSON", false},
		"no comma":            {with(`"priority":1`)[:len(with(`"priority":1`))-1] + "{}]", "jobs[1]", "JSON", false},
		"not UTF-8":           {with("\"group\":\"\xff\""), "body", "UTF-8", false},
	} {
		_, m := sign(t, head(ratchet.Send, wire.Gzip), someJobs(), p.device)
		m = withBody(m, zip(t, []byte(c.body)), p.device)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := p.open(m, l)
		runtime.ReadMemStats(&after)
		isField(t, err, c.field, c.limit)
		if got := errors.Is(err, wire.ErrTooLarge); got != c.tooLarge {
			t.Errorf("%s: too large is %v", name, got)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: took %d bytes", name, n)
		}
	}
	// As much as may be there is taken.
	_, m := sign(t, head(ratchet.Send, wire.Gzip), someJobs(), p.device)
	for name, body := range map[string]string{
		"1,000 levels":      one + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}]",
		"brackets in texts": one + `"` + strings.Repeat(`[\"{`, 2000) + `"}]`,
		"no jobs":           "[]",
	} {
		if _, _, err := p.open(withBody(m, zip(t, []byte(body)), p.device), l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, m = sign(t, head(ratchet.Send, wire.Gzip), manyJobs(1000), p.device)
	if _, jobs, err := p.open(m, l); err != nil || len(jobs) != 1000 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
}

// endless counts how much is read of a body that never ends.
type endless struct{ n int }

func (r *endless) Read(p []byte) (int, error) {
	r.n += len(p)
	return len(p), nil
}

// A body is read up to the length that is signed, and nothing of another body is unpacked.
func TestJobs_body(t *testing.T) {
	p := hmacPair(t, 3)
	h, m := sign(t, head(ratchet.Send, wire.Gzip), someJobs(), p.device)
	var body endless
	_, err := h.Jobs(&body, wire.Limits{})
	isField(t, err, "body", fmt.Sprintf("must have %d bytes", len(m.Body)))
	if body.n > len(m.Body)+512 { // which is what io.ReadAll asks for first
		t.Errorf("%d bytes were read of a body that has %d", body.n, len(m.Body))
	}
	_, err = h.Jobs(bytes.NewReader(m.Body[1:]), wire.Limits{})
	isField(t, err, "body", "bytes, as is signed")
	_, err = h.Jobs(io.MultiReader(bytes.NewReader(m.Body[1:]), errorReader{io.ErrUnexpectedEOF}), wire.Limits{})
	isField(t, err, "body", "bytes, as is signed")
	_, err = h.Jobs(bytes.NewReader(make([]byte, len(m.Body))), wire.Limits{})
	isField(t, err, "body", "SHA-256")
	for _, notGzip := range [][]byte{[]byte("[]"), m.Body[:len(m.Body)-3], append(bytes.Clone(m.Body), 'x')} {
		_, _, err := p.open(withBody(m, notGzip, p.device), wire.Limits{})
		isField(t, err, "body", "must be gzip")
	}
}

// The protocol costs at most 150 bytes a job beside the compressed args, and 17 in the answer.
func TestSizes(t *testing.T) {
	const n = 200
	p := ed25519Pair(t, 1, 2)
	for _, rich := range []bool{false, true} {
		jobs, args, verdicts := measured(t, n, rich)
		device, m := sign(t, head(ratchet.Send, wire.Gzip), jobs, p.device)
		alone := len(zip(t, args))
		sent := len(m.Body)
		for name, values := range m.Header {
			sent += len(name) + len(values[0]) + len(": \r\n")
		}
		a := taken()
		a.Answer.S.Verdicts = verdicts
		answer := signAnswer(t, device, a, p.server)
		t.Logf("rich %v: %d bytes of args, compressed %d; sent %d: %.1f bytes a job beside them; body of the answer: %.2f bytes a job",
			rich, len(args), alone, sent, float64(sent-alone)/n, float64(len(answer.Body))/n)
		if sent-alone > 150*n {
			t.Errorf("%d bytes beside compressed args: want at most 150 a job", sent-alone)
		}
		if len(answer.Body) > 18*n { // 17 a job, and what an answer has once
			t.Errorf("the body of the answer has %d bytes", len(answer.Body))
		}
	}
}

// measured returns n jobs as a device may have, their args alone, and verdicts that all are enqueued.
func measured(t testing.TB, n int, rich bool) (jobs []wire.Job, args []byte, verdicts []ratchet.Verdict) {
	random := random(n)
	for i := range n {
		made := start.Add(timeOf(i))
		j := wire.Job{
			ID: wire.ID(uuid(random, made)), Kind: "measure", Made: made,
			Args: fmt.Appendf(nil, `{"sensor":"pump-%d","celsius":%.2f,"rpm":%d,"at":%q}`, i%7, 20+10*random.Float64(), random.IntN(3000), made.Format("2006-01-02T15:04:05.000Z")),
		}
		if rich {
			j.Headers = map[string]string{"traceparent": fmt.Sprintf("00-%016x%016x-%016x-01", random.Uint64(), random.Uint64(), random.Uint64())}
			j.Priority, j.Tags, j.Group = i%3, []string{"site:7", "line:" + strconv.Itoa(i%4)}, fmt.Sprint("pump-", i%7)
			j.Unique = &wire.Unique{Key: fmt.Sprintf("pump-%d/%d", i%7, made.UnixMilli()), Forever: true}
			j.StartWithin = windowOf(random.IntN(1e9))
		}
		jobs, args = append(jobs, j), append(append(args, j.Args...), ',')
		verdicts = append(verdicts, ratchet.Verdict{Job: ratchet.ID(j.ID), Outcome: ratchet.Enqueued})
	}
	return jobs, args, verdicts
}
