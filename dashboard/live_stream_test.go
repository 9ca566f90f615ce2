package dashboard_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/dashboard"
)

// A stream ends when the queue is closed, when its viewer may no longer enter, and when the viewer
// goes. There are 256 at most, and one viewer leaves room for others.
func TestLive_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := counted(t)
		var role, name atomic.Int64
		role.Store(int64(dashboard.Operator))
		h := viewers(q, func(*http.Request) (dashboard.Identity, error) {
			return dashboard.Identity{Name: fmt.Sprint(name.Load()), Role: dashboard.Role(role.Load())}, nil
		})
		ends := func(s *stream, what string, after time.Duration) {
			t.Helper()
			late := time.NewTimer(after + time.Second)
			defer late.Stop()
			began := time.Now()
			select {
			case <-s.ended:
			case <-late.C:
				s.stop()
			}
			if took := time.Since(began); took > after {
				t.Errorf("%s: the stream has not ended after %v", what, after)
			}
		}
		gone := look(t, h, "", nil)
		time.Sleep(time.Second)
		gone.stop()
		ends(gone, "the viewer goes", 0)
		demoted := look(t, h, "", nil)
		time.Sleep(time.Second)
		role.Store(int64(dashboard.Viewer))
		ends(demoted, "the viewer loses a role", time.Minute)
		var all []*stream
		refused := func(what string) {
			t.Helper()
			synctest.Wait()
			more := look(t, h, "", nil)
			ends(more, what, 0)
			if more.status != 503 {
				t.Errorf("%s got %d", what, more.status)
			}
		}
		enter := func(n int) {
			for range n {
				all = append(all, look(t, h, "lanes", nil))
			}
		}
		enter(128)
		refused("one who has half of all")
		for range 8 {
			name.Add(1)
			synctest.Wait()
			enter(16)
			if len(all) < 256 {
				refused("one who has 16")
			}
		}
		name.Add(1)
		refused("stream 257")
		synctest.Wait()
		for i, s := range all {
			if s.status != 200 {
				t.Errorf("stream %d got %d", i, s.status)
			}
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			ends(s, "the queue is closed", 0)
		}
		if last := look(t, h, "", nil); true {
			ends(last, "after the close", 0)
			if last.status != 503 {
				t.Errorf("a stream of a closed queue got %d", last.status)
			}
		}
	})
}

// A viewer who reads nothing is dropped after 10 s, and holds up nobody.
func TestLive_deaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		h := viewers(q, nil)
		other := look(t, h, "", nil)
		ended := make(chan time.Time, 1)
		l := make(pipes)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			ended <- time.Now()
		})}
		go func() { _ = server.Serve(l) }() // until Close
		here, there := net.Pipe()
		l <- there
		if _, err := fmt.Fprint(here, "GET /live?page= HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.Sleep(500 * time.Millisecond) // between two turns
		for range 5 {
			store.commit(t, q)
			time.Sleep(time.Second)
		}
		if n := other.changed.Load(); n < 5 {
			t.Errorf("another viewer was told %d times of 5 changes", n)
		}
		if took := (<-ended).Sub(began); took != 10*time.Second {
			t.Errorf("it was dropped after %v", took)
		}
		here.Close()
		server.Close()
		other.stop()
		<-other.ended
	})
}

// Events come over a real connection, also long after the time that the server has for an answer.
func TestLive_server(t *testing.T) {
	q := open(t)
	server := httptest.NewUnstartedServer(viewers(q, nil))
	server.Config.WriteTimeout, server.Config.ReadTimeout = time.Second, time.Second
	server.Start()
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/live?page=lanes", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" || answer.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("the stream is %s", kind)
	}
	lines := bufio.NewScanner(answer.Body)
	await := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("the stream ended before %q: %v", want, lines.Err())
	}
	await("retry: 2000")
	await("event: changed") // the address says nothing of what is seen
	for range 2 {
		if _, err := q.Enqueue(t.Context(), mail{"a"}, nil); err != nil {
			t.Fatal(err)
		}
		await("event: changed")
	}
}

// What is wrong in the address of a stream is said.
func TestLive_wrong(t *testing.T) {
	h := viewers(open(t), nil)
	for query, want := range map[string]string{"page=none": "page", "page=act": "page", "page=live": "page", "page=job/x": "id", "page=&seen=x": "seen"} {
		if status, text := get(h, "/live?"+query); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
}
