package postgres_test

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// ears has what a Store tells of.
type ears struct {
	t      testing.TB
	events chan storage.Event
}

func listen(t testing.TB, s *postgres.Store) ears {
	e := ears{t, make(chan storage.Event, 10_000)}
	t.Cleanup(s.Notify(func(of storage.Event) {
		select {
		case e.events <- of:
		default:
		}
	}))
	return e
}

// has reports whether it was told that a job is due then.
func (e ears) has(due time.Time) bool {
	for {
		select {
		case of := <-e.events:
			if of.Due.Equal(due) {
				return true
			}
		default:
			return false
		}
	}
}

func enqueueAt(t testing.TB, s *postgres.Store, due time.Time) {
	t.Helper()
	jobs := newJobs(1, "q", "k")
	jobs[0].DueAt = due
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
}

// A Store tells its own workers before the call returns, whatever the server does.
func TestNotify_OwnAtOnce(t *testing.T) {
	d := newDB(t)
	s := d.open()
	e := listen(t, s)
	enqueueAt(t, s, now.Add(time.Hour))
	if !e.has(now.Add(time.Hour)) {
		t.Error("of a job")
	}
	jobs := newJobs(1, "q", "k")
	jobs[0].DueAt, jobs[0].Unique, jobs[0].Group = now.Add(2*time.Hour), "u", "g"
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	if !e.has(now.Add(2 * time.Hour)) {
		t.Error("of a job with a key and a group")
	}
}

// An exchange tells nobody of jobs that it has leased itself, but of those that it has left.
func TestNotify_Left(t *testing.T) {
	d := newDB(t)
	s := d.open()
	s.SetTimes(time.Hour, time.Hour, time.Minute) // nothing is told but of commits
	jobs := newJobs(6, "q", "k")
	for i := range jobs {
		jobs[i].Group = string(rune('a' + i/2))
	}
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 4}}}
	res, err := s.Exchange(t.Context(), now, x)
	if err != nil || len(res.Leased) != 3 {
		t.Fatalf("leased %v, %v", res.Leased, err)
	}
	// Only the first event of the session of notices may come between.
	told := 0
	defer s.Notify(func(e storage.Event) {
		if !e.Due.IsZero() {
			told++
		}
	})()
	finish := func(l storage.Leased, n int) int {
		x.Wants[0].N = n
		x.Finish = []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: now.Add(time.Hour)}}
		res, err := s.Exchange(t.Context(), now, x)
		if err != nil {
			t.Fatal(err)
		}
		return len(res.Leased)
	}
	if n := finish(res.Leased[0], 2); n != 0 || told != 1 {
		t.Errorf("leased %d, told %d times: want 0 and 1, of the job that is put back", n, told)
	}
}

// Another Store hears a notice. It goes on to hear them once its session was cut off.
func TestNotify_Notice(t *testing.T) {
	d := newDB(t)
	s, other := d.openAs("errand"), d.openAs("listens")
	e := listen(t, other)
	// It is sent to an instance only.
	if _, err := other.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"x"}, Kinds: []string{"k"}, N: 1}}}); err != nil {
		t.Fatal(err)
	}
	heard := func(what string, from time.Duration) {
		t.Helper()
		end := time.Now().Add(time.Minute)
		for i := time.Duration(0); ; i++ { // what is sent before the session has begun is not heard
			due := now.Add(from + i*time.Second)
			enqueueAt(t, s, due)
			select {
			case of := <-e.events:
				if !of.Due.IsZero() {
					return
				}
			case <-time.After(10 * time.Millisecond):
			}
			if time.Now().After(end) {
				t.Fatalf("%s: nothing was told", what)
			}
		}
	}
	heard("at first", time.Hour)
	d.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listens' AND query LIKE 'LISTEN%'`)
	for len(e.events) > 0 {
		<-e.events
	}
	heard("after it was cut off", 1000*time.Hour)
}

// silent is a connection from which nothing more is heard once it is deaf.
type silent struct {
	net.Conn
	listens chan<- *silent // it, once it listens
	deaf    atomic.Bool
}

func (c *silent) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("LISTEN ")) {
		c.listens <- c
	}
	return c.Conn.Write(p)
}

func (c *silent) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

// A session of notices from which nothing comes is replaced.
func TestNotify_Silent(t *testing.T) {
	d := newDB(t)
	sessions := make(chan *silent, 100)
	s, err := postgres.OpenBy(t.Context(), pgtest.Server(t), &postgres.Options{Schema: d.schema}, func(dial postgres.Dial) postgres.Dial {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return &silent{Conn: c, listens: sessions}, err
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.SetTimes(10*time.Millisecond, 10*time.Millisecond, time.Second)
	listen(t, s)
	(<-sessions).deaf.Store(true)
	<-sessions
}

// A Store that is alone sends no notices, and one that is closed sends what it has to say before.
func TestNotify_OnlyToOthers(t *testing.T) {
	d := newDB(t)
	s, other := d.open(), d.open()
	ears := pgtest.Connect(t)
	defer ears.Close(context.Background())
	if _, err := ears.Exec(t.Context(), "LISTEN "+s.Channel()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: usual}); err != nil {
		t.Fatal(err)
	}
	enqueueAt(t, s, now.Add(time.Hour))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: usual}); err != nil {
		t.Fatal(err)
	}
	last := d.open()
	enqueueAt(t, last, now.Add(2*time.Hour))
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	n, err := ears.WaitForNotification(t.Context())
	if want := strconv.FormatInt(now.Add(2*time.Hour).UnixMicro(), 10); err != nil || !strings.Contains(n.Payload, want) {
		t.Errorf("heard %+v, %v: want only of the job due at %s", n, err, want)
	}
}
