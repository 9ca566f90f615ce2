package relay_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// recording is a ResponseWriter that has deadlines.
type recording struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func newRecording() *recording { return &recording{ResponseRecorder: httptest.NewRecorder()} }

func (r *recording) SetReadDeadline(at time.Time) error {
	r.deadlines = append(r.deadlines, at)
	return nil
}

// raw signs a body that no device makes, as a send.
func (d *device) raw(e wire.Encoding, body []byte) wire.Message {
	d.t.Helper()
	_, r := d.owner.Send(newID())
	h := d.head(r)
	h.Encoding = e
	_, m, err := wire.SignRequest(h, []wire.Job{job("k")}, d.signer)
	if err != nil {
		d.t.Fatal(err)
	}
	words := strings.Split(m.Header.Get(wire.TextHeader), " ")
	sum := sha256.Sum256(body)
	words[len(words)-2], words[len(words)-1] = fmt.Sprint(len(body)), hex.EncodeToString(sum[:])
	text := strings.Join(words, " ")
	m.Header.Set(wire.TextHeader, text)
	m.Header.Set(wire.SignatureHeader, hex.EncodeToString(d.signer.Sign([]byte(text))))
	m.Body = body
	return m
}

func gzipped(t testing.TB, text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Bodies that a device with a good key should not send are refused before they do harm.
//
//errand:shows bodies that do harm | | A body that is too large, too deep or no JSON is refused, and nothing of it is enqueued
func TestHandler_badBodies(t *testing.T) {
	s := serve(t, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	d.ask()
	one := fmt.Sprintf(`{"id":%q,"kind":"k","args":`, hexID(wire.ID(newID())))
	for _, c := range []struct {
		name   string
		e      wire.Encoding
		body   []byte
		status int
		error  string
	}{
		{"a bomb of zeros", wire.Gzip, gzipped(t, strings.Repeat("0", 17<<20)), 413, "unpacked"},
		{"a bomb of spaces", wire.Gzip, gzipped(t, "["+strings.Repeat(" ", 17<<20)+"]"), 413, "unpacked"},
		{"10,000 levels", wire.Identity, []byte("[" + one + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}]"), 413, "levels"},
		{"1,001 jobs", wire.Gzip, gzipped(t, "["+strings.Repeat(one+"1},", 1000)+one+"1}]"), 413, "jobs"},
		{"a body over 1 MiB", wire.Identity, bytes.Repeat([]byte(" "), 1<<20+1), 413, "length"},
		{"no gzip", wire.Gzip, []byte("[]"), 400, "gzip"},
		{"no JSON", wire.Identity, []byte("[}"), 400, "JSON"},
		{"no UTF-8", wire.Identity, []byte("[\"\xff\"]"), 400, "UTF-8"},
		{"a member that is not known", wire.Identity, []byte("[" + one + `1,"more":2}]`), 400, "more"},
		{"a job twice", wire.Identity, []byte("[" + one + "1}," + one + "1}]"), 400, "jobs[1].id"},
		{"a job that is wrong", wire.Identity, []byte(`[{"id":"00","kind":"k"}]`), 400, "jobs[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := d.deliver(d.raw(c.e, c.body))
			text := unsignedText(t, w)
			if w.Code != c.status || !strings.Contains(text, c.error) {
				t.Errorf("status %d %q: want %d %q", w.Code, text, c.status, c.error)
			}
		})
	}
	s.wantJobs(0)
	if got := outcomes(d.send(job("k"))); got != "e" {
		t.Errorf("outcomes %q of a good send after all that", got)
	}
}

// A word that the server does not know is answered, also in the place of the encoding, which the answer has otherwise.
func TestHandler_unknownWords(t *testing.T) {
	s := serve(t, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	for _, c := range []struct{ word, other, field string }{{" identity ", " zstd ", "encoding"}, {" send ", " take ", "kind"}, {" 2 ", " 1.5 ", "length"}} {
		m := d.raw(wire.Identity, []byte("[]"))
		text := strings.Replace(m.Header.Get(wire.TextHeader), c.word, c.other, 1)
		m.Header.Set(wire.TextHeader, text)
		m.Header.Set(wire.SignatureHeader, hex.EncodeToString(d.signer.Sign([]byte(text))))
		w := d.deliver(m)
		if text := unsignedText(t, w); w.Code != http.StatusBadRequest || !strings.Contains(text, c.field) {
			t.Errorf("%s: status %d %q", c.field, w.Code, text)
		}
	}
}

// unsignedText returns the body of an answer without looking at its signature, which must be there.
func unsignedText(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	if w.Header().Get(wire.SignatureHeader) == "" {
		t.Error("the answer is not signed")
	}
	if !strings.Contains(w.Header().Get(wire.TextHeader), " gzip ") {
		return w.Body.String()
	}
	return string(must(io.ReadAll(must(gzip.NewReader(w.Body))(t)))(t))
}

// endless is a body that never ends: it returns what it has, and nothing more until the deadline of its connection.
type endless struct {
	io.Reader
	conn *recording
}

func (e *endless) Read(p []byte) (int, error) {
	if n, err := e.Reader.Read(p); err == nil {
		return n, nil
	}
	if len(e.conn.deadlines) == 0 {
		return 0, errors.New("it would be read for ever")
	}
	return 0, os.ErrDeadlineExceeded
}

// A body that does not end is given up at its deadline, which goes by its length.
func TestHandler_endlessBody(t *testing.T) {
	s := serve(t, nil, nil)
	now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	relay.SetNow(s.h, func() time.Time { return now })
	d := s.device(deviceName, relay.Rights{})
	m := d.raw(wire.Identity, bytes.Repeat([]byte(" "), 80<<10))
	w := newRecording()
	s.h.ServeHTTP(w, httpRequest(m, &endless{bytes.NewReader(m.Body[:100]), w}))
	if want := now.Add(20 * time.Second); len(w.deadlines) != 1 || !w.deadlines[0].Equal(want) {
		t.Errorf("deadlines %v: want %v", w.deadlines, want)
	}
	if text := unsignedText(t, w.ResponseRecorder); w.Code != http.StatusRequestTimeout || !strings.Contains(text, "in time") {
		t.Errorf("status %d %q", w.Code, text)
	}
	// One that comes in time has its deadline taken away, which would end the request.
	w = newRecording()
	s.h.ServeHTTP(w, httpRequest(m, bytes.NewReader(m.Body)))
	if len(w.deadlines) != 2 || w.deadlines[0].IsZero() || !w.deadlines[1].IsZero() {
		t.Errorf("deadlines %v", w.deadlines)
	}
	// One that is longer than it says, or shorter, is malformed.
	for _, body := range [][]byte{append(bytes.Clone(m.Body), ' '), m.Body[:len(m.Body)-1]} {
		w := httptest.NewRecorder()
		if s.h.ServeHTTP(w, httpRequest(m, bytes.NewReader(body))); w.Code != http.StatusBadRequest {
			t.Errorf("status %d of %d bytes", w.Code, len(body))
		}
	}
}

// More requests than are to be in work are told when to come, and their bodies are not read.
func TestHandler_crowd(t *testing.T) {
	s := serve(t, nil, &relay.HandlerOptions{MaxConcurrent: 1})
	now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	relay.SetNow(s.h, func() time.Time { return now })
	a, b := s.device("a", relay.Rights{}), s.device("b", relay.Rights{})
	for _, d := range []*device{a, b} {
		d.ask()
	}
	m := must2(wire.SignRequest(a.head(ratchet.Request{ID: newID(), Kind: ratchet.Send, N: a.owner.Row.N, Token: a.owner.Row.Token}), []wire.Job{job("k")}, a.signer))
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, httpRequest(m, &during{bytes.NewReader(m.Body), func() { // the request of a is in work
		_, r := b.owner.Send(newID())
		h, m, err := wire.SignRequest(b.head(r), []wire.Job{job("k")}, b.signer)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.h.ServeHTTP(w, httpRequest(m, &during{bytes.NewReader(m.Body), func() { t.Error("the body was read") }}))
		if answer := b.open(h, w); answer.Status != http.StatusTooManyRequests || answer.RetryAfter != 1 {
			t.Errorf("status %d, retry after %d", answer.Status, answer.RetryAfter)
		}
	}}))
	if w.Code != http.StatusOK {
		t.Errorf("status %d", w.Code)
	}
	if got := outcomes(b.send(job("k"))); got != "e" {
		t.Errorf("outcomes %q", got)
	}
}
