package relay

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

const (
	testSeed   = "ed25519-private:0101010101010101010101010101010101010101010101010101010101010101"
	serverSeed = "ed25519-private:0202020202020202020202020202020202020202020202020202020202020202"
)

// fake is a server in memory, which does as the test says.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	streams map[ratchet.ID]ratchet.Server
	jobs    []wire.Job
	sends   int
	judge   func(wire.Job) (ratchet.Outcome, string) // nil: all are enqueued
	// around is called for each request, with what answers it. If nil, it is answered.
	around func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter))
	// between sees each request before all else, and may lose it.
	between func(wire.Head, []wire.Job, http.ResponseWriter)
	said    func(wire.Head, []wire.Job, *wire.Answer) bool // returns true if it has answered instead
}

func newFake(t testing.TB) *fake {
	f := &fake{streams: map[ratchet.ID]ratchet.Server{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// change changes f between two requests. A request can come late: after who sent it has stopped.
func (f *fake) change(to func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := must(wire.ParseVerifier(must(wire.PublicKey(testSeed))))
	h, err := wire.OpenRequest(r.Method, "hub", r.Header, func(string) wire.Verifier { return key }, wire.Limits{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	jobs, err := h.Jobs(r.Body, wire.Limits{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	between, around := f.between, f.around
	f.mu.Unlock()
	if between != nil {
		seen := &seen{ResponseWriter: w}
		if between(h, jobs, seen); seen.written {
			return
		}
	}
	answer := func(w http.ResponseWriter) { f.answer(w, h, jobs) }
	if around != nil {
		around(h, w, answer)
		return
	}
	answer(w)
}

// seen notes whether something was written.
type seen struct {
	http.ResponseWriter
	written bool
}

func (s *seen) Write(p []byte) (int, error) { s.written = true; return s.ResponseWriter.Write(p) }

func (s *seen) WriteHeader(status int) { s.written = true; s.ResponseWriter.WriteHeader(status) }

func (f *fake) answer(w http.ResponseWriter, h wire.Head, jobs []wire.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := wire.Answer{Status: http.StatusOK}
	if f.said == nil || !f.said(h, jobs, &a) {
		var fresh ratchet.Token
		rand.Read(fresh[:])
		s, answer := f.streams[h.Stream].Answer(h.Request, fresh, func() []ratchet.Verdict {
			f.sends++
			all := make([]ratchet.Job, len(jobs))
			for i, j := range jobs {
				all[i] = ratchet.Job{ID: ratchet.ID(j.ID), Group: j.Group}
			}
			i := -1
			return ratchet.Judge(all, func(of ratchet.Job) (ratchet.Outcome, string) {
				for i++; ratchet.ID(jobs[i].ID) != of.ID; i++ {
				}
				outcome, reason := ratchet.Enqueued, ""
				if f.judge != nil {
					outcome, reason = f.judge(jobs[i])
				}
				if outcome == ratchet.Enqueued {
					f.jobs = append(f.jobs, jobs[i])
				}
				return outcome, reason
			})
		})
		f.streams[h.Stream] = s
		a.Answer = answer
	}
	m, err := wire.SignAnswer(h, a, must(wire.ParseSigner(serverSeed)))
	if err != nil {
		panic(err)
	}
	for k, v := range m.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(m.Body)
}

func (f *fake) taken() []wire.Job {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]wire.Job(nil), f.jobs...)
}

type reading struct {
	N int `json:"n"`
}

func (reading) Kind() string { return "reading" }

// device is a queue whose jobs go to a fake.
type device struct {
	*errand.Queue
	path    string
	opened  *errand.Options
	options Options
}

func newDevice(t testing.TB, f *fake) *device {
	d := &device{path: filepath.Join(t.TempDir(), "device.db"), options: Options{
		Queue: "up", URL: f.URL, Server: "hub", Device: "pi-17", ServerKey: must(wire.PublicKey(serverSeed)),
		Key:    func(context.Context) (string, error) { return testSeed, nil },
		Logger: slog.New(slog.DiscardHandler), backoff: 10 * time.Millisecond,
	}}
	d.open(t)
	return d
}

func (d *device) open(t testing.TB) {
	d.Queue = must(errand.Open(t.Context(), d.path, d.opened))
	t.Cleanup(func() { _ = d.Close() })
}

// run runs the worker until the test ends, or stop is called.
func (d *device) run(t testing.TB) (stop func()) {
	w := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}})
	if err := Forward(w, &d.options); err != nil {
		t.Fatal(err)
	}
	return d.start(t, w)
}

// start runs a worker until the test ends, or stop is called.
func (d *device) start(t testing.TB, w *errand.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func (d *device) add(t testing.TB, n int, group func(i int) string) {
	var jobs []errand.NewJob
	for i := range n {
		jobs = append(jobs, errand.NewJob{Args: reading{i}, Options: &errand.JobOptions{Queue: "up", Group: group(i), Tags: []string{"tag"}}})
	}
	must(d.EnqueueMany(t.Context(), jobs))
}

// until waits for a condition, which events bring about.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after 2 minutes: %s", what)
		}
	}
}

func (d *device) count(t testing.TB, state errand.State) int {
	n := 0
	for _, c := range must(d.Counts(context.WithoutCancel(t.Context()))) {
		if c.State == state {
			n += int(c.N)
		}
	}
	return n
}

func none(int) string { return "" }

func TestForward(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	d.add(t, 500, none)
	d.add(t, 500, func(i int) string { return fmt.Sprint("g", i%7) })
	d.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 1000 })
	seen, last := map[wire.ID]bool{}, map[string]int{}
	for _, j := range f.taken() {
		if seen[j.ID] {
			t.Fatalf("%v came twice", j.ID)
		}
		seen[j.ID] = true
		var r reading
		if err := json.Unmarshal(j.Args, &r); err != nil {
			t.Fatal(err)
		}
		if j.Group != "" && r.N < last[j.Group] {
			t.Fatalf("%d of group %s came after %d", r.N, j.Group, last[j.Group])
		}
		last[j.Group] = r.N
		if len(j.Tags) != 1 || j.Kind != "reading" {
			t.Fatalf("%+v", j)
		}
	}
	if len(seen) != 1000 {
		t.Fatalf("%d came, want 1000", len(seen))
	}
	t.Logf("%d sends", f.sends)
}

// lossy loses requests and answers by turns.
func lossy(request, answer int) func(wire.Head, http.ResponseWriter, func(http.ResponseWriter)) {
	var mu sync.Mutex
	n := 0
	return func(_ wire.Head, w http.ResponseWriter, do func(http.ResponseWriter)) {
		mu.Lock()
		n++
		i := n
		mu.Unlock()
		if i%request == 0 {
			panic(http.ErrAbortHandler)
		}
		if i%answer == 0 {
			do(httptest.NewRecorder())
			panic(http.ErrAbortHandler)
		}
		do(w)
	}
}

func (f *fake) wantOnce(t testing.TB, n int) {
	t.Helper()
	seen := map[wire.ID]bool{}
	for _, j := range f.taken() {
		if seen[j.ID] {
			t.Errorf("%x came twice", j.ID)
		}
		seen[j.ID] = true
	}
	if len(seen) != n {
		t.Errorf("%d came, want %d", len(seen), n)
	}
}

func TestForward_lossy(t *testing.T) {
	f := newFake(t)
	f.around = lossy(5, 7)
	d := newDevice(t, f)
	d.add(t, 3000, func(i int) string {
		if i%2 == 0 {
			return fmt.Sprint("g", i%11)
		}
		return ""
	})
	d.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 3000 })
	f.wantOnce(t, 3000)
}

func TestForward_restart(t *testing.T) {
	f := newFake(t)
	lost := make(chan struct{})
	var once sync.Once
	f.around = func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
		if h.Kind != ratchet.Send {
			answer(w)
			return
		}
		answer(httptest.NewRecorder())
		once.Do(func() { close(lost) })
		panic(http.ErrAbortHandler)
	}
	d := newDevice(t, f)
	d.options.Streams = 1
	d.add(t, 100, none)
	stop := d.run(t)
	<-lost
	stop()
	d.Close()
	f.change(func() { f.around = nil })
	d.open(t)
	d.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 100 })
	f.wantOnce(t, 100)
}

func TestForward_two(t *testing.T) {
	f := newFake(t)
	f.around = lossy(13, 17)
	d := newDevice(t, f)
	other := *d
	other.open(t)
	d.add(t, 2000, func(i int) string { return fmt.Sprint("g", i%5) })
	d.run(t)
	other.run(t)
	other.add(t, 2000, none)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 4000 })
	f.wantOnce(t, 4000)
}

func TestForward_refused(t *testing.T) {
	f := newFake(t)
	refuse := true
	f.judge = func(j wire.Job) (ratchet.Outcome, string) {
		var r reading
		_ = json.Unmarshal(j.Args, &r)
		if refuse && r.N == 3 {
			return ratchet.Refused, "kind reading is not allowed"
		}
		return ratchet.Enqueued, ""
	}
	d := newDevice(t, f)
	d.add(t, 10, func(int) string { return "g" })
	d.run(t)
	until(t, "the job is dead", func() bool { return d.count(t, errand.Dead) == 1 && d.count(t, errand.Done) == 3 })
	dead := must(d.DeadLetters().List(t.Context(), errand.JobFilter{}, nil)).Jobs[0]
	if dead.Reason != errand.ReasonPermanent || dead.Error != "errand: relay: the server has refused the job: kind reading is not allowed" {
		t.Errorf("dead: %s, %q", dead.Reason, dead.Error)
	}
	f.mu.Lock()
	refuse = false
	f.mu.Unlock()
	must(d.DeadLetters().Redrive(t.Context(), errand.JobFilter{All: true}, nil))
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 10 })
	f.wantOnce(t, 10)
}

func TestForward_later(t *testing.T) {
	f := newFake(t)
	room := 10
	f.judge = func(wire.Job) (ratchet.Outcome, string) {
		if room == 0 {
			return ratchet.Later, ""
		}
		room--
		return ratchet.Enqueued, ""
	}
	d := newDevice(t, f)
	d.add(t, 40, none)
	d.run(t)
	until(t, "the gate is closed", func() bool {
		for _, w := range must(d.Workers(t.Context())) {
			for _, l := range w.Limits {
				if l.Gate != nil && !l.Gate.Open && l.Gate.Reason == "the server has no room for more jobs" {
					return true
				}
			}
		}
		return false
	})
	f.mu.Lock()
	room = 30
	f.mu.Unlock()
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 40 })
	f.wantOnce(t, 40)
}

// Where a dead job passes, the jobs behind those that the server refuses stay in hand, and few are sent in vain.
func TestForward_refusedPass(t *testing.T) {
	f := newFake(t)
	f.judge = func(j wire.Job) (ratchet.Outcome, string) {
		var r reading
		if _ = json.Unmarshal(j.Args, &r); r.N%50 == 7 {
			return ratchet.Refused, "no sevens"
		}
		return ratchet.Enqueued, ""
	}
	sent := 0
	f.said = func(_ wire.Head, jobs []wire.Job, _ *wire.Answer) bool { sent += len(jobs); return false }
	d := newDevice(t, f)
	pass := errand.PassDead
	if err := d.Configure(t.Context(), errand.Lane{Queue: "up"}, errand.Settings{DeadHead: &pass}); err != nil {
		t.Fatal(err)
	}
	d.add(t, 1000, func(int) string { return "g" })
	stop := d.run(t)
	until(t, "all have ended", func() bool { return d.count(t, errand.Done) == 980 && d.count(t, errand.Dead) == 20 })
	stop()
	f.wantOnce(t, 980)
	f.wantInOrder(t)
	if sent > 3000 {
		t.Errorf("%d jobs were sent, of 1000; want at most three times as many", sent)
	}
}

// While the server is away for a moment, the jobs stay in hand, and no stop waits for it.
func TestForward_patience(t *testing.T) {
	f := newFake(t)
	var requests atomic.Int64
	away := make(chan struct{}, 100)
	f.around = func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
		if requests.Add(1) <= 2 { // both asks
			answer(w)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
		select {
		case away <- struct{}{}:
		default:
		}
	}
	d := newDevice(t, f)
	d.options.Streams, d.options.backoff, d.options.patience = 1, 200*time.Millisecond, time.Hour
	d.add(t, 200, none)
	w := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}, Grace: time.Hour})
	d.forward(t, w)
	stop := d.start(t, w)
	for range 5 { // a send, asks, and some behind the closed gate
		<-away
	}
	if n := d.count(t, errand.Running); n != 200 {
		t.Errorf("%d jobs are in hand, want 200", n)
	}
	ctx, endGrace := context.WithCancel(t.Context())
	defer endGrace()
	go func() { _ = w.Shutdown(ctx) }()
	until(t, "the jobs went back", func() bool { return d.count(t, errand.Ready) == 200 })
	stop()
	d.wantUnspent(t)
}

// Jobs that are cancelled while they are in hand behind a closed gate are not sent.
func TestForward_patienceCancelled(t *testing.T) {
	f := newFake(t)
	asked, opens := make(chan struct{}, 100), make(chan struct{})
	var requests atomic.Int64
	f.around = func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
		if requests.Add(1) <= 2 { // both asks
			answer(w)
			return
		}
		select {
		case <-opens:
			answer(w)
		default:
			w.WriteHeader(http.StatusBadGateway)
			asked <- struct{}{}
		}
	}
	d := newDevice(t, f)
	d.options.Streams, d.options.patience = 1, time.Hour
	d.add(t, 19, none)
	id := d.put(t, errand.JobOptions{})
	d.run(t)
	for range 5 { // a send, asks, and some behind the closed gate
		<-asked
	}
	must(d.Cancel(t.Context(), id))
	close(opens)
	d.wait(t, id, errand.Cancelled)
	until(t, "the others are done", func() bool { return d.count(t, errand.Done) == 19 })
	f.wantOnce(t, 19)
}

// While a server has no room, no stream keeps jobs in hand, so that people see why the queue stands still.
func TestAway_noRoom(t *testing.T) {
	g := newAway(time.Minute, func(context.Context) error { return errors.New("no") })
	_ = g.shut("no route", time.Millisecond)
	answer := make(chan bool)
	go func() { answer <- g.opensWithin(time.Hour, nil) }()
	_ = g.shut(noRoom, fullWait)
	if <-answer || g.opensWithin(time.Hour, nil) {
		t.Error("it has opened")
	}
}

// A server that answers asks, and takes no send, does not keep jobs in hand for ever.
func TestForward_patienceEnds(t *testing.T) {
	f := newFake(t)
	f.said = func(h wire.Head, _ []wire.Job, a *wire.Answer) bool {
		if h.Kind != ratchet.Send {
			return false
		}
		*a = wire.Answer{Status: http.StatusServiceUnavailable, Error: "not now"}
		return true
	}
	d := newDevice(t, f)
	d.options.Streams, d.options.patience = 1, time.Second
	d.add(t, 1, none)
	var leased atomic.Int64
	count := func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			leased.Add(1)
			return next(ctx, job)
		}
	}
	w := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}, Middleware: []errand.Middleware{count}})
	d.forward(t, w)
	d.start(t, w)
	until(t, "the job was given back twice", func() bool { return leased.Load() >= 3 })
	d.wantUnspent(t)
}

// No redirect is followed, whatever the client of the application does: jobs could go to a server without https.
func TestForward_redirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent on") }))
	defer elsewhere.Close()
	f := newFake(t)
	var redirects atomic.Int64
	f.around = func(_ wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
		if redirects.Add(1) > 2 {
			answer(w)
			return
		}
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	d := newDevice(t, f)
	d.options.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	d.add(t, 3, none)
	d.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 3 })
	f.wantOnce(t, 3)
}

// Whatever is between the device and the server, no retry is used up.
func TestForward_between(t *testing.T) {
	for what, between := range map[string]func(h wire.Head, w http.ResponseWriter) bool{
		"a portal": func(_ wire.Head, w http.ResponseWriter) bool {
			_, _ = fmt.Fprint(w, "<html>sign in</html>")
			return true
		},
		"a redirect": func(_ wire.Head, w http.ResponseWriter) bool {
			w.Header().Set("Location", "/x")
			w.WriteHeader(302)
			return true
		},
		"429": func(_ wire.Head, w http.ResponseWriter) bool {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
			return true
		},
		"a 502 for what is large": func(h wire.Head, w http.ResponseWriter) bool {
			if h.Kind == ratchet.Send {
				w.WriteHeader(502)
			}
			return h.Kind == ratchet.Send
		},
		"a 413 for what is large": func(h wire.Head, w http.ResponseWriter) bool {
			if h.Kind == ratchet.Send {
				w.WriteHeader(413)
			}
			return h.Kind == ratchet.Send
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var mu sync.Mutex
			left := 6
			f.around = func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
				mu.Lock()
				if left--; left < 0 || !between(h, w) {
					if left < 0 {
						left = 0
					} else {
						left++
					}
					mu.Unlock()
					answer(w)
					return
				}
				mu.Unlock()
			}
			d := newDevice(t, f)
			d.options.Streams = 1
			d.add(t, 100, none)
			d.run(t)
			until(t, "all are done", func() bool { return d.count(t, errand.Done) == 100 })
			f.wantOnce(t, 100)
			for _, j := range must(d.Jobs(t.Context(), errand.JobFilter{Queue: "up"}, &errand.ListOptions{Limit: 1000})).Jobs {
				if j.Retry != 0 {
					t.Fatalf("a retry is used up: %+v", j)
				}
			}
		})
	}
}
