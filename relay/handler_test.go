package relay_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// A job is in the server's queue with all that travels, and says where it came from.
func TestHandler_job(t *testing.T) {
	s := serve(t, nil, &relay.HandlerOptions{Queue: "in"})
	d := s.device(deviceName, relay.Rights{})
	j := job("measure", inGroup("site 7"), withPriority(9), func(j *wire.Job) {
		j.Headers, j.Tags, j.Made = map[string]string{"traceparent": "00-1-2-3"}, []string{"a"}, time.Date(1970, 1, 1, 0, 0, 5, 0, time.UTC)
		j.Unique = &wire.Unique{Key: "k", OnConflict: "fail"}
	})
	if got := outcomes(d.send(j)); got != "e" {
		t.Fatalf("outcomes %q", got)
	}
	all := jobsOf(t, s.q)
	if len(all) != 1 {
		t.Fatalf("%d jobs", len(all))
	}
	got := must(s.q.Job(t.Context(), all[0].ID))(t)
	want := errand.JobInfo{
		ID: got.ID, Queue: "in", Kind: "measure", State: errand.Ready, Priority: 9, CreatedAt: got.CreatedAt, DueAt: got.DueAt,
		Unique: "pump-17,k", Group: "pump-17,site 7", Args: []byte(j.Args), Tags: []string{"a"},
		Headers: map[string]string{"traceparent": "00-1-2-3", relay.MadeHeader: "1970-01-01T00:00:05Z"},
		Origin:  errand.Origin{Device: deviceName, ID: hexID(j.ID)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("job %+v\nwant %+v", got, want)
	}
}

// Windows are what is left of them, counted from when the job comes.
func TestHandler_windows(t *testing.T) {
	s := serve(t, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	d.send(job("k", func(j *wire.Job) { j.StartWithin, j.FinishWithin, j.OnExpire = 60e9, 120e9, "dead" }))
	got := jobsOf(t, s.q)[0]
	left := func(end time.Time) time.Duration { return end.Sub(got.DueAt).Round(time.Millisecond) }
	if left(got.StartBy) != time.Minute || left(got.Deadline) != 2*time.Minute || got.OnExpire != errand.Dead {
		t.Errorf("start by %v, deadline %v, due %v, on expire %q", got.StartBy, got.Deadline, got.DueAt, got.OnExpire)
	}
}

// By a server of net/http, with both kinds of keys and both encodings.
func TestHandler_overHTTP(t *testing.T) {
	s := serve(t, nil, nil)
	web := httptest.NewServer(s.h)
	defer web.Close()
	for _, d := range []*device{s.device("a", relay.Rights{}), s.shared("b")} {
		for _, d.enc = range []wire.Encoding{wire.Identity, wire.Gzip} {
			d.stream, d.owner = newID(), ratchet.Owner{}
			d.ask()
			var r ratchet.Request
			d.owner, r = d.owner.Send(newID())
			h, m, err := wire.SignRequest(d.head(r), []wire.Job{job("k"), job("k")}, d.signer)
			if err != nil {
				t.Fatal(err)
			}
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, bytes.NewReader(m.Body)))(t)
			req.Header = m.Header
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			a, err := wire.OpenAnswer(h, res.StatusCode, res.Header, res.Body, d.from, wire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if got := outcomes(d.step(a).Verdicts); got != "ee" {
				t.Errorf("%s, encoding %d: outcomes %q", d.name, d.enc, got)
			}
			res.Body.Close()
		}
	}
	s.wantJobs(8)
}

// shared adds a device whose key both sides have.
func (s *server) shared(name string) *device {
	s.t.Helper()
	key := relay.NewSharedKey()
	if err := relay.PutDevice(s.t.Context(), s.q, relay.Device{Name: name, Key: key}); err != nil {
		s.t.Fatal(err)
	}
	return &device{t: s.t, s: s, name: name, stream: newID(), enc: wire.Gzip, signer: must(wire.ParseSigner(key))(s.t), from: must(wire.ParseVerifier(key))(s.t)}
}

// A handler without a key serves devices whose keys it has too, and no others.
func TestHandler_noKey(t *testing.T) {
	s := serve(t, nil, nil)
	s.h = must(relay.Handler(s.q, &relay.HandlerOptions{Server: serverName, Logger: quiet(nil).Logger}))(t)
	if got := outcomes(s.shared("a").send(job("k"))); got != "e" {
		t.Errorf("outcomes %q", got)
	}
	d := s.device("b", relay.Rights{})
	_, m, err := wire.SignRequest(d.head(ratchet.Request{ID: newID(), Kind: ratchet.Send}), []wire.Job{job("k")}, d.signer)
	if err != nil {
		t.Fatal(err)
	}
	if w := d.deliver(m); w.Code != http.StatusInternalServerError || w.Header().Get(wire.TextHeader) != "" {
		t.Errorf("status %d, header %q", w.Code, w.Header().Get(wire.TextHeader))
	}
	s.wantJobs(1)
}

// A request that comes again has no effect, nor has a send that comes after an ask.
//
//errand:shows copies and late requests | | A request of a device that comes twice, or late, enqueues nothing
func TestHandler_once(t *testing.T) {
	s := serve(t, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	again := func(t *testing.T, m wire.Message, jobs int) {
		t.Helper()
		var before, after relay.StreamInfo
		before = s.info(deviceName).Streams[0]
		for range 3 {
			if w := d.deliver(m); w.Code != http.StatusOK {
				t.Errorf("status %d", w.Code)
			}
		}
		if after = s.info(deviceName).Streams[0]; after != before {
			t.Errorf("the stream was %+v and is %+v", before, after)
		}
		s.wantJobs(jobs)
	}
	t.Run("a send again", func(t *testing.T) {
		if got := outcomes(d.send(job("k"), job("k"))); got != "ee" {
			t.Errorf("outcomes %q", got)
		}
		again(t, d.sent, 2)
	})
	var lost wire.Message
	t.Run("an ask again", func(t *testing.T) {
		_, r := d.owner.Send(newID())
		var err error
		if _, lost, err = wire.SignRequest(d.head(r), []wire.Job{job("k")}, d.signer); err != nil {
			t.Fatal(err)
		}
		if status, set := d.ask(); status != ratchet.Taken || len(set.Verdicts) != 0 {
			t.Errorf("status %d, verdicts %v", status, set.Verdicts)
		}
		again(t, d.sent, 2)
	})
	t.Run("a send after an ask", func(t *testing.T) { again(t, lost, 2) })
	if got := outcomes(d.send(job("k"))); got != "e" {
		t.Errorf("outcomes %q after all", got)
	}
	s.wantJobs(3)
}

// Who has lost the answer to a send learns by asking what became of the jobs.
func TestHandler_lostAnswer(t *testing.T) {
	s := serve(t, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	d.send(job("k", withKey("a")))
	var r ratchet.Request
	d.owner, r = d.owner.Send(newID())
	d.request(r, job("k", withKey("a")), job("k"), job("errand.x")) // the answer is not taken
	d.owner = d.owner.Lost()
	_, set := d.ask()
	if got := outcomes(set.Verdicts); got != "der" || !strings.Contains(set.Verdicts[2].Reason, "kind") {
		t.Errorf("verdicts %+v", set.Verdicts)
	}
	if c := s.info(deviceName).Counts; c.Enqueued != 2 || c.Duplicates != 1 || c.Refused != 1 || c.Later != 0 || c.Bytes == 0 {
		t.Errorf("counts %+v", c)
	}
}

// Only what the device has signed for this server is taken, while the device may send.
//
//errand:shows who is not the device | | Nothing is enqueued of who is revoked, has another key, or changes or replays a request elsewhere
func TestHandler_strangers(t *testing.T) {
	s := serve(t, nil, nil)
	d, other := s.device(deviceName, relay.Rights{}), s.device("pump-18", relay.Rights{})
	d.ask()
	_, send := d.owner.Send(newID())
	sign := func(t *testing.T, change func(*wire.Head), by wire.Signer) (wire.Head, wire.Message) {
		t.Helper()
		h := d.head(send)
		h.Encoding = wire.Identity
		change(&h)
		h, m, err := wire.SignRequest(h, []wire.Job{job("k")}, by)
		if err != nil {
			t.Fatal(err)
		}
		return h, m
	}
	for _, c := range []struct {
		name   string
		change func(*wire.Head)
		by     wire.Signer
		text   [2]string // a word of the text, and what it becomes after it was signed
		during func()    // while the body is read
		status int
		error  string
	}{
		{name: "the key of another device", by: other.signer, status: 401, error: "not signed"},
		{name: "the name of another device", change: func(h *wire.Head) { h.Device = "pump-18" }, status: 401},
		{name: "a device that is not known", change: func(h *wire.Head) { h.Device = "pump-19" }, status: 401},
		{name: "for another server", change: func(h *wire.Head) { h.Server = "other.example.org" }, status: 400, error: "server"},
		{name: "sent to another server", text: [2]string{serverName, "other.example.org"}, status: 401},
		{name: "in another stream", text: [2]string{hexID(wire.ID(d.stream)), strings.Repeat("1", 32)}, status: 401},
		{name: "in another encoding", text: [2]string{"identity", "gzip"}, status: 401},
		{name: "as another kind of request", text: [2]string{" send ", " check "}, status: 401},
		{name: "revoked meanwhile", during: func() { _ = relay.Revoke(t.Context(), s.q, deviceName) }, status: 403, error: "revoked"},
		{name: "revoked", status: 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			by := c.by
			if by == nil {
				by = d.signer
			}
			if c.change == nil {
				c.change = func(*wire.Head) {}
			}
			h, m := sign(t, c.change, by)
			if c.text[0] != "" {
				m.Header.Set(wire.TextHeader, strings.Replace(m.Header.Get(wire.TextHeader), c.text[0], c.text[1], 1))
			}
			w := httptest.NewRecorder()
			s.h.ServeHTTP(w, httpRequest(m, &during{bytes.NewReader(m.Body), c.during}))
			if a := d.open(h, w); a.Status != c.status || !strings.Contains(a.Error, c.error) {
				t.Errorf("status %d %q: want %d %q", a.Status, a.Error, c.status, c.error)
			}
			s.wantJobs(0)
		})
	}
	_, public := relay.NewKey()
	for _, key := range []string{public, must(wire.PublicKey(s.key))(t)} { // comes back with another key
		if err := relay.PutDevice(t.Context(), s.q, relay.Device{Name: deviceName, Key: key}); err != nil {
			t.Fatal(err)
		}
		h, m := sign(t, func(*wire.Head) {}, d.signer)
		if a := d.open(h, d.deliver(m)); a.Status != 401 {
			t.Errorf("status %d with the key before", a.Status)
		}
	}
	s.wantJobs(0)
}

// What is answered to a text that nobody has signed is not signed itself, whatever signature comes with it, but for the
// word that it is not signed.
func TestHandler_notVerified(t *testing.T) {
	s := serve(t, nil, nil)
	for _, d := range []*device{s.device(deviceName, relay.Rights{}), s.shared("a")} {
		_, send := d.owner.Send(newID())
		head, m, err := wire.SignRequest(d.head(send), []wire.Job{job("k")}, d.signer)
		if err != nil {
			t.Fatal(err)
		}
		text := m.Header.Get(wire.TextHeader)
		for _, c := range []struct {
			name, method string
			texts        []string
			status       int
			signed       bool
		}{
			{"no text", "POST", nil, 400, false},
			{"nonsense", "POST", []string{"nonsense"}, 400, false},
			{"two texts", "POST", []string{text, text}, 400, false},
			{"too long", "POST", []string{strings.Repeat("n", 2000)}, 413, false},
			{"another version", "POST", []string{strings.Replace(text, "/1", "/2", 1)}, 400, false},
			{"an answer", "POST", []string{strings.Replace(text, "request", "answer", 1)}, 400, false},
			{"another method", "GET", []string{text}, 400, false},
			{"another kind", "POST", []string{strings.Replace(text, " send ", " ask ", 1)}, 401, true},
		} {
			forged := m
			forged.Header = m.Header.Clone()
			forged.Header[wire.TextHeader] = c.texts
			r := httpRequest(forged, bytes.NewReader(m.Body))
			r.Method = c.method
			w := httptest.NewRecorder()
			s.h.ServeHTTP(w, r)
			_, err := wire.OpenAnswer(head, w.Code, w.Header(), w.Body, d.from, wire.Limits{})
			if w.Code != c.status || (err == nil) != c.signed {
				t.Errorf("%s: status %d, as an answer %v: want %d, signed %t", c.name, w.Code, err, c.status, c.signed)
			}
		}
	}
	s.wantJobs(0)
}

// during is a body that does something when it is first read.
type during struct {
	r  io.Reader
	do func()
}

func (d *during) Read(p []byte) (int, error) {
	if d.do != nil {
		d.do()
		d.do = nil
	}
	return d.r.Read(p)
}

// The key of a device is replaced while its request is read: then that has no effect.
func TestHandler_keyReplaced(t *testing.T) {
	s := serve(t, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	_, r := d.owner.Send(newID())
	h, m, err := wire.SignRequest(d.head(r), []wire.Job{job("k")}, d.signer)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, httpRequest(m, &during{bytes.NewReader(m.Body), func() { s.device(deviceName, relay.Rights{}) }}))
	if a := d.open(h, w); a.Status != http.StatusUnauthorized {
		t.Errorf("status %d %s", a.Status, a.Error)
	}
	s.wantJobs(0)
}

// The server says what it cannot do now, and takes nothing. It cannot know by then whose the request is.
func TestHandler_closed(t *testing.T) {
	s := serve(t, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	if err := s.q.Close(); err != nil {
		t.Fatal(err)
	}
	w := d.deliver(must2(wire.SignRequest(d.head(ratchet.Request{ID: newID(), Kind: ratchet.AskCheck}), nil, d.signer)))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "10" || w.Header().Get(wire.SignatureHeader) != "" {
		t.Errorf("status %d, header %v", w.Code, w.Header())
	}
}

func must2(_ wire.Head, m wire.Message, err error) wire.Message {
	if err != nil {
		panic(err)
	}
	return m
}
