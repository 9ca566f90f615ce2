package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
	"github.com/errandq/errand/storage"
)

// Two processes on one file get on, also if a request takes longer than one needs to take a stream.
func TestForward_twoSlow(t *testing.T) {
	f := newFake(t)
	f.around = func(_ wire.Head, w http.ResponseWriter, do func(http.ResponseWriter)) {
		time.Sleep(20 * time.Millisecond) // the network
		do(w)
	}
	d := newDevice(t, f)
	d.options.Streams = 1
	other := *d
	other.open(t)
	d.add(t, 500, none)
	d.run(t)
	other.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 500 })
	f.wantOnce(t, 500)
}

// A verdict that another process has deleted is known here for a while.
func TestForward_staleKept(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	d.options.Streams = 1
	w := d.worker()
	of := d.forward(t, w)
	d.add(t, 1, none)
	d.start(t, w)
	until(t, "the first is done", func() bool { return d.count(t, errand.Done) == 1 })
	id := d.put(t, errand.JobOptions{Delay: time.Hour})
	kept := keptVerdict{keptDoc: keptDoc{Outcome: ratchet.Refused, Reason: "no", Queue: "up"}}
	e := storage.Entry{Class: keptClass, Name: id.String(), Doc: docOf(kept.keptDoc)}
	e.Revision = must(of.rows.PutEntries(t.Context(), []storage.Entry{e}))
	kept.revision = e.Revision
	of.mu.Lock()
	of.kept[id] = kept
	of.mu.Unlock()
	e.Delete = true
	must(of.rows.PutEntries(t.Context(), []storage.Entry{e}))
	must(d.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, errand.JobChange{DueAt: time.Now().Add(-time.Second)}))
	until(t, "the second is done", func() bool { return d.count(t, errand.Done) == 2 })
}

// A server signs with the new key of a device that has the old one yet.
func TestForward_otherSharedKey(t *testing.T) {
	h, _, _ := newHub(t)
	one, two := NewSharedKey(), NewSharedKey()
	if err := PutDevice(t.Context(), h.Queue, Device{Name: "pi-17", Key: one}); err != nil {
		t.Fatal(err)
	}
	d := h.device(t, one, "")
	var key atomic.Value
	key.Store(one)
	d.options.Key = func(context.Context) (string, error) { return key.Load().(string), nil }
	d.add(t, 5, none)
	d.run(t)
	until(t, "the first are done", func() bool { return d.count(t, errand.Done) == 5 })
	key.Store(two)
	if err := PutDevice(t.Context(), h.Queue, Device{Name: "pi-17", Key: two}); err != nil {
		t.Fatal(err)
	}
	d.add(t, 5, none)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 10 })
}

// What another stream has been told while the server was asked counts.
func TestAway_toldMeanwhile(t *testing.T) {
	var g *away
	g = newAway(time.Nanosecond, func(context.Context) error {
		_ = g.shut("told to come later", 30*time.Minute)
		return nil
	})
	_ = g.shut("no answer", 0)
	for left := time.Until(g.until); left > 0; left = time.Until(g.until) {
	}
	g.try()
	if open, reason := g.is(); open || reason != "told to come later" {
		t.Errorf("open %v, %q", open, reason)
	}
}

// A job that comes while its verdict is committed waits for what was kept, and all behind it wait too.
func TestStream_late(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	of := d.forward(t, d.worker())
	s := of.streams[0]
	c := &call{errs: errand.BatchError{}, left: 2, done: make(chan struct{})}
	for i := range 2 {
		s.waiting = append(s.waiting, &parcel{Job: &errand.Job[errand.RawArgs]{ID: errand.ID{byte(i + 1)}, Group: "g"}, call: c})
	}
	x := ratchet.Settlement{Verdicts: []ratchet.Verdict{{Job: ratchet.ID{1}, Outcome: ratchet.Enqueued}}}
	s.settled(&settlement{Settlement: x, kept: map[errand.ID]keptVerdict{{1}: {keptDoc: keptDoc{Outcome: ratchet.Enqueued}}}}, map[ratchet.ID]*parcel{})
	if len(s.waiting) != 2 || c.left != 2 {
		t.Errorf("%d jobs wait, want 2", len(s.waiting))
	}
}

// The time of a job does not end the request that it is in, and a stop does.
func TestForward_ownTimeout(t *testing.T) {
	f := newFake(t)
	hangs, over := make(chan struct{}, 10), make(chan struct{})
	t.Cleanup(func() { close(over) })
	f.around = func(h wire.Head, w http.ResponseWriter, do func(http.ResponseWriter)) {
		if h.Kind == ratchet.Send {
			hangs <- struct{}{}
			<-over
		}
		do(w)
	}
	d := newDevice(t, f)
	d.options.Streams = 1
	id := d.put(t, errand.JobOptions{Timeout: time.Millisecond, FinishWithin: time.Hour})
	w := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}, Grace: -1})
	if err := Forward(w, &d.options); err != nil {
		t.Fatal(err)
	}
	stop := d.start(t, w)
	<-hangs
	stop()
	if j := must(d.Job(context.WithoutCancel(t.Context()), id)); j.State != errand.Ready || j.Retry != 0 {
		t.Errorf("%+v", j)
	}
}

// thin is a link that others share: who has ended a request has sent bytes for nothing.
type thin struct {
	to          http.Handler
	rate        int // bytes a second
	turn        chan struct{}
	bytes, lost atomic.Int64
}

func (l *thin) RoundTrip(r *http.Request) (*http.Response, error) {
	const piece = 1 << 10
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	for left := len(body) + 600; left > 0; left -= piece {
		l.turn <- struct{}{}
		time.Sleep(piece * time.Second / time.Duration(l.rate))
		l.bytes.Add(piece)
		<-l.turn
		if err := r.Context().Err(); err != nil {
			l.lost.Add(1)
			return nil, err
		}
	}
	to := r.Clone(context.WithoutCancel(r.Context()))
	to.Body = io.NopCloser(bytes.NewReader(body))
	w := httptest.NewRecorder()
	l.to.ServeHTTP(w, to)
	return w.Result(), nil
}

// Large jobs go over a thin link in about the time that it needs.
func TestForward_thin(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		quiet := slog.New(slog.DiscardHandler)
		hub := must(errand.Open(t.Context(), filepath.Join(dir, "hub.db"), &errand.Options{Logger: quiet}))
		serverKey, serverPublic := NewKey()
		private, public := NewKey()
		if err := PutDevice(t.Context(), hub, Device{Name: "pi-17", Key: public}); err != nil {
			t.Fatal(err)
		}
		l := &thin{turn: make(chan struct{}, 1), rate: 12 << 10, to: must(Handler(hub, &HandlerOptions{Server: "hub", Key: serverKey, Logger: quiet}))}
		d := &device{path: filepath.Join(dir, "device.db"), options: Options{
			Queue: "up", URL: "https://hub.example/relay", Server: "hub", Device: "pi-17", ServerKey: serverPublic,
			Key: KeyText(private), Logger: quiet, Client: &http.Client{Transport: l},
		}}
		d.Queue = must(errand.Open(t.Context(), d.path, &errand.Options{Logger: quiet}))
		const jobs, size = 300, 6 << 10
		var all []errand.NewJob
		for range jobs {
			b := make([]byte, size)
			_, _ = rand.Read(b)
			all = append(all, errand.NewJob{Args: text{base64.StdEncoding.EncodeToString(b)}, Options: &errand.JobOptions{Queue: "up"}})
		}
		must(d.EnqueueMany(t.Context(), all))
		w := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}})
		if err := Forward(w, &d.options); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		began, needs := time.Now(), jobs*size*time.Second/time.Duration(l.rate)
		for d.count(t, errand.Done) < jobs && time.Since(began) < 10*needs {
			time.Sleep(time.Second)
		}
		t.Logf("%v for %v of the link, %d requests lost, %d KiB sent", time.Since(began), needs, l.lost.Load(), l.bytes.Load()>>10)
		if took := time.Since(began); took > needs+needs/5 {
			t.Errorf("took %v, and the link needs %v", took, needs)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, q := range []*errand.Queue{d.Queue, hub} {
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Jobs that were sent again before the device went on are not missing a second time.
func TestBoth_resentEarly(t *testing.T) {
	h, private, public := newHub(t)
	d := h.device(t, private, public)
	d.options.Streams = 1
	d.add(t, 10, none)
	stop := d.run(t)
	until(t, "10 are done", func() bool { return d.count(t, errand.Done) == 10 })
	stop()
	h.close(t)
	old := filepath.Join(t.TempDir(), "old.db")
	copyFile(t, h.path, old)
	h.open(t)
	for range 3 { // a copy that is one request behind is no fork
		stop = d.run(t)
		d.add(t, 10, none)
		until(t, "more are done", func() bool { return d.count(t, errand.Ready)+d.count(t, errand.Running) == 0 })
		stop()
	}
	h.close(t)
	copyFile(t, old, h.path)
	h.open(t)
	d.add(t, 1, none)
	d.run(t)
	until(t, "the stream is held", func() bool { return d.held(t) })
	n := must(Resend(t.Context(), d.Queue))
	if n == 0 {
		t.Fatal("nothing was missing")
	}
	must(Accept(t.Context(), h.Queue, "pi-17"))
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 41+n })
	if lacks := must(Missing(t.Context(), d.Queue)); len(lacks) != 0 {
		t.Errorf("%+v is missing", lacks)
	}
	h.wantOnce(t, 11+n)
}

// A send of which a few jobs were behind a refused one makes the next no larger than a request may be.
func TestStream_mostBehind(t *testing.T) {
	d := newDevice(t, newFake(t))
	s := d.forward(t, d.worker()).streams[0]
	for behind, want := range map[int]int{999: 2, 700: 600, 1: wire.MaxJobs} {
		var a wire.Answer
		for i := range wire.MaxJobs {
			v := ratchet.Verdict{Outcome: ratchet.Enqueued}
			if i >= wire.MaxJobs-behind {
				v.Outcome = ratchet.Behind
			}
			a.Answer.S.Verdicts = append(a.Answer.S.Verdicts, v)
		}
		if err := s.full(a, 0); err != nil || s.most != want {
			t.Errorf("after %d behind a refused one, the next send has up to %d jobs, %v; want %d", behind, s.most, err, want)
		}
	}
}
