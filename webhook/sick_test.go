package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

// many are endpoints of which some are sick.
type many struct{ well, refuse, hang int }

// ids returns the IDs of the endpoints, the sick among the others.
func (m many) ids() (ids []string) {
	for i := range max(m.well, m.refuse, m.hang) {
		for _, kind := range []struct {
			name string
			n    int
		}{{"hang", m.hang}, {"refuse", m.refuse}, {"well", m.well}} {
			if i < kind.n {
				ids = append(ids, fmt.Sprintf("%s-%d", kind.name, i))
			}
		}
	}
	return ids
}

// crowds returns 900 endpoints that are well, and the same with 100 sick ones; with the race
// detector, which is slow, a tenth of each.
func crowds() (well, all many) {
	n := 10
	if raced {
		n = 1
	}
	return many{well: 90 * n}, many{90 * n, 5 * n, 5 * n}
}

// crowd answers requests by the name of their host, each after a time.
type crowd struct {
	takes time.Duration
	want  int // requests to the well

	mu   sync.Mutex
	n    int           // so far
	done chan struct{} // closed when there were as many
}

// RoundTrip implements [http.RoundTripper].
func (c *crowd) RoundTrip(r *http.Request) (*http.Response, error) {
	switch kind, _, _ := strings.Cut(r.URL.Host, "-"); kind {
	case "refuse":
		return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	case "hang":
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	time.Sleep(c.takes)
	c.note()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// note counts a request to the well.
func (c *crowd) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.n == c.want {
		close(c.done)
	}
}

// took returns how long it takes until the well have all of some messages.
func (m many) took(t *testing.T, messages int) (took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))) // in the year 2000 deliveries wait for the right time
		q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "hooks.db"), &errand.Options{
			SQLite: errand.SQLiteOptions{Durability: errand.Relaxed, SingleProcess: true},
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		world := &crowd{takes: 100 * time.Millisecond, want: m.well * messages, done: make(chan struct{})}
		hooks, err := webhook.New(q, &webhook.Options{Transport: world, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range m.ids() {
			if _, _, err := hooks.Create(t.Context(), webhook.Endpoint{ID: id, URL: "https://" + id + ".example/"}, webhook.Secret{}); err != nil {
				t.Fatal(err)
			}
		}
		for range messages {
			if _, err := hooks.SendAll(t.Context(), webhook.Message{Body: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{webhook.Queues}, Grace: -1})
		hooks.Handle(w)
		ctx, stop := context.WithCancel(t.Context())
		begun, ended := time.Now(), make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		select {
		case <-world.done:
		case <-time.After(time.Hour):
			t.Errorf("of %d deliveries to %+v %d were made in an hour", world.want, m, world.n)
		}
		took = time.Since(begun)
		stop()
		if err := errors.Join(<-ended, q.Close()); err != nil {
			t.Error(err)
		}
	})
	return took
}

// Endpoints that refuse or never answer do not keep the others back, in a worker without
// options for that.
func TestSick_KeepNobodyBack(t *testing.T) {
	well, all := crowds()
	const messages = 3
	without, with := well.took(t, messages), all.took(t, messages)
	t.Logf("%v without, %v with: %.3f of the rate", without, with, float64(without)/float64(with))
	if float64(without) < 0.9*float64(with) {
		t.Errorf("the others take %v, and without the sick %v", with, without)
	}
}

// open counts the goroutines and the sockets of this process; no sockets where the system
// does not show them.
func open() (goroutines, sockets int) {
	files, _ := filepath.Glob("/proc/self/fd/*") // none if there is no such folder
	for _, f := range files {
		if to, _ := os.Readlink(f); strings.HasPrefix(to, "socket:") { // it may be closed by now
			sockets++
		}
	}
	return runtime.NumGoroutine(), sockets
}

// Deliveries over sockets to many endpoints, some of them sick, leave nothing behind.
func TestSick_LeaveNothing(t *testing.T) {
	_, all := crowds()
	world := &crowd{want: all.well * 2, done: make(chan struct{})}
	var hung atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not seen
		if strings.HasPrefix(r.URL.Path, "/hang") {
			hung.Add(1)
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		world.note()
	}))
	defer s.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "hooks.db"), &errand.Options{
		SQLite: errand.SQLiteOptions{Durability: errand.Relaxed}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	hooks, err := webhook.New(q, &webhook.Options{
		AllowHTTP: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Timeout: 500 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range all.ids() {
		to := s.URL
		if strings.HasPrefix(id, "refuse") {
			to = closed.URL
		}
		if _, _, err := hooks.Create(t.Context(), webhook.Endpoint{ID: id, URL: to + "/" + id}, webhook.Secret{}); err != nil {
			t.Fatal(err)
		}
	}
	goroutines, sockets := open()
	for range 2 {
		if _, err := hooks.SendAll(t.Context(), webhook.Message{Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{webhook.Queues}, Grace: -1})
	hooks.Handle(w)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	slow := time.NewTicker(10 * time.Second)
	defer slow.Stop()
	for waits := true; waits; { // the others are not kept back
		select {
		case <-world.done:
			waits = false
		case <-slow.C:
			g, n := open()
			t.Logf("messages are on their way: %d goroutines and %d sockets, %d requests hang", g, n, hung.Load())
		}
	}
	busy, connected := open()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	hooks.Close()
	was := hung.Load()
	for { // for as long as the tests may take: who leaks is in what go test writes then
		g, n := open()
		if g <= goroutines+10 && n <= sockets+10 {
			t.Logf("%d goroutines and %d sockets at the start, %d and %d with %d that hang, %d and %d after the end", goroutines, sockets, busy, connected, was, g, n)
			break
		}
		select {
		case <-slow.C:
			t.Logf("%d goroutines and %d sockets are left, of %d and %d at the start", g, n, goroutines, sockets)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if was < int64(all.hang) {
		t.Errorf("%d requests were not answered: want one at least to each of %d endpoints", was, all.hang)
	}
}
