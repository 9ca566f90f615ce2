package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
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

// link is a network in a bubble. Its weather says where a request goes, or what comes of it.
type link struct {
	weather func() (http.Handler, *http.Response, error)
	rate    atomic.Int64  // bytes a second; zero: any
	turn    chan struct{} // has room for one
	bytes   atomic.Int64
	n       atomic.Int64
}

func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	l.n.Add(1)
	handler, answer, err := l.weather()
	if handler == nil {
		return answer, err
	}
	l.take(r.Header, len(body))
	to := r.Clone(r.Context())
	to.Body = io.NopCloser(bytes.NewReader(body))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, to)
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
	if rate := l.rate.Load(); rate > 0 {
		l.turn <- struct{}{}
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
		<-l.turn
	}
}

var full = flag.Bool("full", false, "have the device of TestForward_month be away for a month, and not for two hours")

// A device is away for a month, in every way there is, and then has a thin link.
func TestForward_month(t *testing.T) {
	dir := t.TempDir()
	hubPath, otherPath, devicePath := filepath.Join(dir, "hub.db"), filepath.Join(dir, "other.db"), filepath.Join(dir, "device.db")
	away := 2 * time.Hour
	if *full {
		away = 30 * 24 * time.Hour
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
		quiet := slog.New(slog.DiscardHandler)
		hub := must(errand.Open(t.Context(), hubPath, &errand.Options{Logger: quiet}))
		serverKey, serverPublic := NewKey()
		private, public := NewKey()
		if err := PutDevice(t.Context(), hub, Device{Name: "pi-17", Key: public}); err != nil {
			t.Fatal(err)
		}
		server := must(Handler(hub, &HandlerOptions{Server: "hub", Key: serverKey, Logger: quiet}))
		l := &link{turn: make(chan struct{}, 1)}
		began := time.Now()
		unsigned := func(status int) (http.Handler, *http.Response, error) {
			w := httptest.NewRecorder()
			w.WriteHeader(status)
			_, _ = w.WriteString("<html>")
			return nil, w.Result(), nil
		}
		other := must(errand.Open(t.Context(), otherPath, &errand.Options{Logger: quiet}))
		stranger := must(Handler(other, &HandlerOptions{Server: "hub", Key: serverKey, Logger: quiet}))
		var fair atomic.Pointer[time.Time] // the first request that gets through
		l.weather = func() (http.Handler, *http.Response, error) {
			now := time.Now()
			if now.Sub(began) >= away {
				if fair.CompareAndSwap(nil, &now) {
					l.rate.Store(64 << 10)
					l.bytes.Store(0)
				}
				return server, nil, nil
			}
			switch int(now.Sub(began)/(away/24)) % 6 {
			case 0:
				return nil, nil, errors.New("no route to host")
			case 1:
				return unsigned(http.StatusOK)
			case 2:
				return unsigned(http.StatusRequestEntityTooLarge)
			case 3:
				return unsigned(http.StatusTooManyRequests)
			case 4:
				return stranger, nil, nil
			}
			return unsigned(http.StatusBadGateway)
		}
		d := &device{path: devicePath, options: Options{
			Queue: "up", URL: "https://hub.example/relay", Server: "hub", Device: "pi-17", ServerKey: serverPublic,
			Key: KeyText(private), Logger: quiet, Client: &http.Client{Transport: l},
		}}
		d.Queue = must(errand.Open(t.Context(), d.path, &errand.Options{Logger: quiet}))
		const jobs = 10_000
		d.addRandom(t, jobs/2, "")
		d.addRandom(t, jobs/2, "g")
		w := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}})
		if err := Forward(w, &d.options); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(away)
		if n := l.n.Load(); n == 0 || n > int64(away/time.Minute) {
			t.Errorf("%d requests in %v", n, away)
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
				t.Fatalf("used up while the device was away: %+v", j)
			}
		}
		for d.count(t, errand.Done) < jobs {
			time.Sleep(100 * time.Millisecond)
			if time.Since(began) > away+time.Hour {
				t.Fatal("not after an hour")
			}
		}
		took, needs := time.Since(*fair.Load()), time.Duration(l.bytes.Load())*time.Second/time.Duration(l.rate.Load())
		t.Logf("%d bytes, %v of the link, drained in %v", l.bytes.Load(), needs, took)
		if took > needs+needs/5 {
			t.Errorf("drained in %v, though the link needs %v", took, needs)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, q := range []*errand.Queue{d.Queue, hub, other} {
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// addRandom adds jobs whose args do not compress.
func (d *device) addRandom(t testing.TB, n int, group string) {
	var jobs []errand.NewJob
	for i := range n {
		o := &errand.JobOptions{Queue: "up"}
		if group != "" {
			o.Group = fmt.Sprint(group, i%3)
		}
		jobs = append(jobs, errand.NewJob{Args: text{rand.Text() + rand.Text() + rand.Text() + rand.Text()}, Options: o})
	}
	must(d.EnqueueMany(t.Context(), jobs))
}

type text struct {
	Text string `json:"text"`
}

func (text) Kind() string { return "text" }
