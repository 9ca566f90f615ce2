package relay

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay/internal/wire"
)

// hub is a server with a queue, which can be stopped and put back to a copy of its file.
type hub struct {
	*errand.Queue
	path    string
	key     string
	server  *httptest.Server
	mu      sync.Mutex
	handler http.Handler // nil: it does not answer
}

func newHub(t testing.TB) (h *hub, private, serverPublic string) {
	h = &hub{path: filepath.Join(t.TempDir(), "hub.db")}
	h.key, serverPublic = NewKey()
	h.open(t)
	private, public := NewKey()
	if err := PutDevice(t.Context(), h.Queue, Device{Name: "pi-17", Key: public}); err != nil {
		t.Fatal(err)
	}
	h.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		handler := h.handler
		h.mu.Unlock()
		if handler == nil {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(h.server.Close)
	return h, private, serverPublic
}

func (h *hub) open(t testing.TB) {
	t.Helper()
	h.Queue = must(errand.Open(t.Context(), h.path, nil))
	q := h.Queue
	t.Cleanup(func() { _ = q.Close() })
	handler := must(Handler(h.Queue, &HandlerOptions{Server: "hub", Key: h.key, Logger: slog.New(slog.DiscardHandler)}))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handler = handler
}

func (h *hub) close(t testing.TB) {
	h.mu.Lock()
	h.handler = nil
	h.mu.Unlock()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

// copyFile copies the file of a queue that is closed.
func copyFile(t testing.TB, from, to string) {
	for _, end := range []string{"", "-wal", "-shm"} {
		b, err := os.ReadFile(from + end)
		if err != nil {
			_ = os.Remove(to + end)
			continue
		}
		if err := os.WriteFile(to+end, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// origins returns how many jobs of the server have each origin.
func (h *hub) origins(t testing.TB) map[string]int {
	all := map[string]int{}
	o := &errand.ListOptions{Limit: 1000}
	for {
		page := must(h.Jobs(context.WithoutCancel(t.Context()), errand.JobFilter{Queue: "default"}, o))
		for _, j := range page.Jobs {
			all[j.Origin.ID]++
		}
		if o.After = page.Next; o.After == "" {
			return all
		}
	}
}

func (h *hub) wantOnce(t testing.TB, n int) {
	t.Helper()
	all := h.origins(t)
	for id, times := range all {
		if times != 1 {
			t.Errorf("job %s of the device is there %d times", id, times)
		}
	}
	if len(all) != n {
		t.Errorf("%d jobs of the device are there, want %d", len(all), n)
	}
}

func (h *hub) device(t testing.TB, private, serverPublic string) *device {
	d := &device{path: filepath.Join(t.TempDir(), "device.db"), options: Options{
		Queue: "up", URL: h.server.URL, Server: "hub", Device: "pi-17", ServerKey: serverPublic,
		Key: KeyText(private), Logger: slog.New(slog.DiscardHandler), backoff: 10 * time.Millisecond,
	}}
	d.open(t)
	return d
}

// TestBoth has a device and a server do what each does with a fake.
func TestBoth(t *testing.T) {
	h, private, public := newHub(t)
	d := h.device(t, private, public)
	d.add(t, 1000, none)
	d.add(t, 1000, func(i int) string { return fmt.Sprint("g", i%7) })
	d.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 2000 })
	h.wantOnce(t, 2000)
}

func (d *device) held(t testing.TB) bool {
	for _, q := range must(Queues(context.WithoutCancel(t.Context()), d.Queue)) {
		for _, s := range q.Streams {
			if s.Held {
				return true
			}
		}
	}
	return false
}

func TestBoth_serverPutBack(t *testing.T) {
	h, private, public := newHub(t)
	d := h.device(t, private, public)
	d.options.backoff = time.Millisecond
	d.add(t, 300, none)
	stop := d.run(t)
	until(t, "300 are done", func() bool { return d.count(t, errand.Done) == 300 })
	stop()
	h.close(t)
	old := filepath.Join(t.TempDir(), "old.db")
	copyFile(t, h.path, old)
	h.open(t)
	stop = d.run(t)
	d.add(t, 200, none)
	until(t, "500 are done", func() bool { return d.count(t, errand.Done) == 500 })
	stop()
	h.close(t)
	copyFile(t, old, h.path)
	h.open(t)
	d.run(t)
	d.add(t, 100, none)
	until(t, "a stream is held", func() bool { return d.held(t) })
	lacks := must(Missing(t.Context(), d.Queue))
	n := 0
	for _, l := range lacks {
		n += len(l.Jobs)
		if l.From != 0 || l.To != 0 {
			t.Errorf("%+v", l)
		}
	}
	if n == 0 {
		t.Fatal("nothing is missing")
	}
	until(t, "all is accepted, and all are done", func() bool {
		must(Accept(t.Context(), h.Queue, "pi-17"))
		d.options.Logger.Info("again")
		return d.count(t, errand.Done) == 600
	})
	h.wantOnce(t, 400)
	lacks = must(Missing(t.Context(), d.Queue))
	n = 0
	for _, l := range lacks {
		n += len(l.Jobs)
	}
	if n != 200 {
		t.Errorf("%d are missing, want 200", n)
	}
	if again := must(Resend(t.Context(), d.Queue)); again != 200 {
		t.Errorf("%d were sent again, want 200", again)
	}
	until(t, "the missing ones are there", func() bool { return len(h.origins(t)) == 600 })
}

func TestBoth_devicePutBack(t *testing.T) {
	h, private, public := newHub(t)
	d := h.device(t, private, public)
	d.add(t, 300, none)
	d.Close()
	old := filepath.Join(t.TempDir(), "old.db")
	copyFile(t, d.path, old)
	d.open(t)
	stop := d.run(t)
	until(t, "300 are done", func() bool { return d.count(t, errand.Done) == 300 })
	stop()
	d.Close()
	copyFile(t, old, d.path)
	d.open(t)
	d.add(t, 100, none)
	d.run(t)
	until(t, "all is accepted, and all are done", func() bool {
		must(Accept(t.Context(), h.Queue, ""))
		return d.count(t, errand.Done) == 400
	})
	h.wantOnce(t, 400)
}

// Whoever is in between has the server answer other texts with the signatures of the device. That uses up nothing.
func TestBoth_forgedFailure(t *testing.T) {
	h, private, public := newHub(t)
	h.mu.Lock()
	real := h.handler
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get(wire.TextHeader), " send ") {
			r.Header.Set(wire.TextHeader, "nonsense")
		}
		real.ServeHTTP(w, r)
	})
	h.mu.Unlock()
	d := h.device(t, private, public)
	id := d.put(t, errand.JobOptions{})
	d.run(t)
	until(t, "the job is kept back", func() bool {
		j := d.info(t, id)
		return j.Snoozes > 0 || j.Retry > 0
	})
	d.wantUnspent(t)
	h.wantOnce(t, 0)
}
