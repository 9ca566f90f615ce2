package relay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

const serverName, deviceName = "jobs.example.org", "pump-17"

// server is a queue with a handler.
type server struct {
	t      testing.TB
	q      *errand.Queue
	h      http.Handler
	key    string // its private half
	public string
}

func quiet(o *errand.Options) *errand.Options {
	if o == nil {
		o = &errand.Options{}
	}
	o.Logger = slog.New(slog.DiscardHandler)
	return o
}

func openQueue(t testing.TB, path string, o *errand.Options) *errand.Queue {
	t.Helper()
	q, err := errand.Open(t.Context(), path, quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// serve returns a server on a new file. Its options get a name, a key and a logger.
func serve(t testing.TB, qo *errand.Options, o *relay.HandlerOptions) *server {
	t.Helper()
	s := &server{t: t, q: openQueue(t, filepath.Join(t.TempDir(), "jobs.db"), qo)}
	s.key, s.public = relay.NewKey()
	s.h = s.handler(s.q, o)
	return s
}

func (s *server) handler(q *errand.Queue, o *relay.HandlerOptions) http.Handler {
	s.t.Helper()
	c := relay.HandlerOptions{}
	if o != nil {
		c = *o
	}
	c.Server, c.Key, c.Logger = serverName, s.key, slog.New(slog.DiscardHandler)
	return must(relay.Handler(q, &c))(s.t)
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// device is a device with one stream.
type device struct {
	t      testing.TB
	s      *server
	name   string
	signer wire.Signer
	from   wire.Verifier // of answers
	stream ratchet.ID
	enc    wire.Encoding
	owner  ratchet.Owner
	sent   wire.Message // the last request
	retry  int          // of the last answer
}

// device adds a device to the server.
func (s *server) device(name string, rights relay.Rights) *device {
	s.t.Helper()
	private, public := relay.NewKey()
	if err := relay.PutDevice(s.t.Context(), s.q, relay.Device{Name: name, Key: public, Rights: rights}); err != nil {
		s.t.Fatal(err)
	}
	return &device{
		t: s.t, s: s, name: name, stream: newID(), enc: wire.Gzip,
		signer: must(wire.ParseSigner(private))(s.t), from: must(wire.ParseVerifier(s.public))(s.t),
	}
}

func newID() (id ratchet.ID) {
	_, _ = rand.Read(id[:])
	return id
}

func (d *device) head(r ratchet.Request) wire.Head {
	return wire.Head{Server: serverName, Device: d.name, Stream: d.stream, Encoding: d.enc, Request: r}
}

// httpRequest returns a request for a handler.
func httpRequest(m wire.Message, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/relay", body)
	r.Header = m.Header.Clone()
	return r
}

// deliver has the handler answer a message.
func (d *device) deliver(m wire.Message) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.s.h.ServeHTTP(w, httpRequest(m, bytes.NewReader(m.Body)))
	return w
}

// request sends a request and returns the answer, which must be signed.
func (d *device) request(r ratchet.Request, jobs ...wire.Job) wire.Answer {
	d.t.Helper()
	h, m, err := wire.SignRequest(d.head(r), jobs, d.signer)
	if err != nil {
		d.t.Fatal(err)
	}
	d.sent = m
	return d.open(h, d.deliver(m))
}

func (d *device) open(h wire.Head, w *httptest.ResponseRecorder) wire.Answer {
	d.t.Helper()
	a, err := wire.OpenAnswer(h, w.Code, w.Header(), w.Body, d.from, wire.Limits{})
	if err != nil {
		d.t.Fatal(err)
	}
	d.retry = a.RetryAfter
	return a
}

// step has the owner take an answer, and returns what it settles.
func (d *device) step(a wire.Answer) ratchet.Settlement {
	d.t.Helper()
	if a.Status != http.StatusOK {
		d.t.Fatalf("status %d: %s", a.Status, a.Error)
	}
	var set ratchet.Settlement
	if d.owner, set = d.owner.Receive(a.Answer); d.owner.Phase == ratchet.Settling {
		d.owner = d.owner.Settled(set)
		if set.Renew {
			d.stream = newID()
		}
	}
	return set
}

// ask asks in two requests, and returns the status of the second one, and what it settles.
func (d *device) ask() (ratchet.Status, ratchet.Settlement) {
	d.t.Helper()
	var r ratchet.Request
	d.owner, r = d.owner.AskCheck(newID())
	d.step(d.request(r))
	d.owner, r = d.owner.Ask(newID())
	a := d.request(r)
	return a.Answer.Status, d.step(a)
}

// send sends jobs on a stream that is ready, or asks before.
func (d *device) send(jobs ...wire.Job) []ratchet.Verdict {
	d.t.Helper()
	if d.owner.Phase != ratchet.Ready {
		if status, _ := d.ask(); status != ratchet.Taken && status != ratchet.Resumed {
			d.t.Fatalf("status %d of an ask", status)
		}
	}
	var r ratchet.Request
	d.owner, r = d.owner.Send(newID())
	a := d.request(r, jobs...)
	if a.Answer.Status != ratchet.Taken {
		d.t.Fatalf("status %d %s, %d of a send", a.Status, a.Error, a.Answer.Status)
	}
	return d.step(a).Verdicts
}

// outcomes returns verdicts as letters, as answers have them.
func outcomes(all []ratchet.Verdict) string {
	s := ""
	for _, v := range all {
		s += string(" edrbl"[v.Outcome])
	}
	return s
}

var jobNumber int

// job returns a job of a kind with a new ID.
func job(kind string, more ...func(*wire.Job)) wire.Job {
	jobNumber++
	j := wire.Job{ID: wire.ID(newID()), Kind: kind, Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, jobNumber))}
	for _, f := range more {
		f(&j)
	}
	return j
}

func inGroup(name string) func(*wire.Job) { return func(j *wire.Job) { j.Group = name } }
func withKey(key string) func(*wire.Job) {
	return func(j *wire.Job) { j.Unique = &wire.Unique{Key: key} }
}
func withPriority(n int) func(*wire.Job) { return func(j *wire.Job) { j.Priority = n } }

// jobs returns the jobs of a queue in the order in which they were enqueued.
func jobsOf(t testing.TB, q *errand.Queue) []errand.JobInfo {
	t.Helper()
	all := errand.JobFilter{CreatedFrom: time.Unix(0, 0)} // a list by it has the last one first
	page := must(q.Jobs(t.Context(), all, &errand.ListOptions{Limit: 1000, Args: true}))(t)
	slices.Reverse(page.Jobs)
	return page.Jobs
}

func (s *server) wantJobs(n int) {
	s.t.Helper()
	if got := jobsOf(s.t, s.q); len(got) != n {
		s.t.Errorf("%d jobs in the queue: want %d", len(got), n)
	}
}

func (s *server) info(name string) relay.DeviceInfo {
	s.t.Helper()
	for _, d := range must(relay.Devices(context.WithoutCancel(s.t.Context()), s.q))(s.t) {
		if d.Name == name {
			return d
		}
	}
	s.t.Fatalf("there is no device %s", name)
	return relay.DeviceInfo{}
}

func hexID(id wire.ID) string { return hex.EncodeToString(id[:]) }
