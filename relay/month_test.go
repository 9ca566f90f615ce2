package relay

import (
	"bytes"
	"context"
	"errors"
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
)

// link is a network in a bubble: whose requests go to a handler, or as the weather is.
type link struct {
	to      http.Handler
	weather func() (*http.Response, error) // nil: fair
	rate    int                            // bytes a second; zero: any
	turn    chan struct{}                  // has room for one
	bytes   atomic.Int64
	n       atomic.Int64
}

func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	l.n.Add(1)
	if l.weather != nil {
		if w, err := l.weather(); w != nil || err != nil {
			return w, err
		}
	}
	l.take(r.Header, len(body))
	to := r.Clone(r.Context())
	to.Body = io.NopCloser(bytes.NewReader(body))
	w := httptest.NewRecorder()
	l.to.ServeHTTP(w, to)
	l.take(w.Header(), w.Body.Len())
	return w.Result(), nil
}

// take has bytes take their time.
func (l *link) take(h http.Header, n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + 4
		}
	}
	l.bytes.Add(int64(n))
	if l.rate > 0 {
		l.turn <- struct{}{}
		time.Sleep(time.Duration(n) * time.Second / time.Duration(l.rate))
		<-l.turn
	}
}

// A device is away for a month, in every way there is, and then has a thin link.
func TestForward_month(t *testing.T) {
	hubPath, devicePath := filepath.Join(t.TempDir(), "hub.db"), filepath.Join(t.TempDir(), "device.db")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
		quiet := slog.New(slog.DiscardHandler)
		hub := must(errand.Open(t.Context(), hubPath, &errand.Options{Logger: quiet}))
		serverKey, serverPublic := NewKey()
		private, public := NewKey()
		if err := PutDevice(t.Context(), hub, Device{Name: "pi-17", Key: public}); err != nil {
			t.Fatal(err)
		}
		l := &link{to: must(Handler(hub, &HandlerOptions{Server: "hub", Key: serverKey, Logger: quiet})), turn: make(chan struct{}, 1)}
		began := time.Now()
		unsigned := func(status int) (*http.Response, error) {
			w := httptest.NewRecorder()
			w.WriteHeader(status)
			_, _ = w.WriteString("<html>")
			return w.Result(), nil
		}
		signs := l.to // with the key of a device that is not known: a signed 401
		stranger := must(Handler(must(errand.Open(t.Context(), filepath.Join(filepath.Dir(hubPath), "other.db"), &errand.Options{Logger: quiet})), &HandlerOptions{Server: "hub", Key: serverKey, Logger: quiet}))
		l.weather = func() (*http.Response, error) {
			l.to = signs
			switch int(time.Since(began)/(6*time.Hour)) % 6 {
			case 0:
				return nil, errors.New("no route to host")
			case 1:
				return unsigned(http.StatusOK)
			case 2:
				return unsigned(http.StatusRequestEntityTooLarge)
			case 3:
				return unsigned(http.StatusTooManyRequests)
			case 4:
				l.to = stranger
			case 5:
				return unsigned(http.StatusBadGateway)
			}
			return nil, nil
		}
		d := &device{path: devicePath, options: Options{
			Queue: "up", URL: "https://hub.example/relay", Server: "hub", Device: "pi-17", ServerKey: serverPublic,
			Key: KeyText(private), Logger: quiet, Client: &http.Client{Transport: l},
		}}
		d.Queue = must(errand.Open(t.Context(), d.path, &errand.Options{Logger: quiet}))
		const jobs = 20_000
		d.add(t, jobs/2, none)
		d.add(t, jobs/2, func(i int) string { return []string{"a", "b", "c"}[i%3] })
		w := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}})
		if err := Forward(w, &d.options); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(30 * 24 * time.Hour)
		t.Logf("%d requests in a month", l.n.Load())
		if n := l.n.Load(); n > 30*24*60 {
			t.Errorf("%d requests in a month", n)
		}
		synctest.Wait()
		for _, c := range must(d.Counts(t.Context())) {
			if c.N > 0 && (c.State == errand.Dead || c.State == errand.Done) {
				t.Errorf("%+v", c)
			}
		}
		page := must(d.Jobs(t.Context(), errand.JobFilter{Queue: "up"}, &errand.ListOptions{Limit: 1000}))
		for _, j := range page.Jobs {
			if j.Retry > 0 || j.Snoozes > 0 {
				t.Fatalf("after a month: %+v", j)
			}
		}
		l.bytes.Store(0)
		l.to, l.weather, l.rate = signs, nil, 64<<10
		fair := time.Now()
		for d.count(t, errand.Done) < jobs {
			time.Sleep(100 * time.Millisecond)
			if time.Since(fair) > time.Hour {
				t.Fatal("not after an hour")
			}
		}
		took, needs := time.Since(fair), time.Duration(l.bytes.Load())*time.Second/time.Duration(l.rate)
		t.Logf("%d bytes, %v of the link, drained in %v", l.bytes.Load(), needs, took)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_, _ = d.Queue.Close(), hub.Close()
	})
}
