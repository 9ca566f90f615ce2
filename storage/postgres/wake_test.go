package postgres_test

import (
	"bytes"
	"context"
	"net"
	"slices"
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

// begun waits until a Store can hear notices. It tells of that by an event with Schedules.
func (e ears) begun() {
	e.t.Helper()
	e.next("that it hears notices", func(of storage.Event) bool { return of.Schedules })
}

// next waits for an event.
func (e ears) next(what string, match func(storage.Event) bool) {
	e.t.Helper()
	end := time.After(time.Minute)
	for {
		select {
		case of := <-e.events:
			if match(of) {
				return
			}
		case <-end:
			e.t.Fatalf("nobody was told %s", what)
		}
	}
}

// An exchange tells of jobs that it has left, and not of those that it has leased itself.
func TestNotify_Left(t *testing.T) {
	d := newDB(t)
	s := d.open()
	s.SetTimes(time.Hour, time.Hour, time.Minute) // nothing is told but of commits
	e := listen(t, s)
	e.begun()
	jobs := newJobs(6, "q", "k")
	for i := range jobs {
		jobs[i].Group = string(rune('a' + i/2))
	}
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	leased := leases(t, s, 3)
	for _, c := range []struct {
		what  string
		ends  storage.Finish
		wants int
		told  []time.Time // Due of the events
	}{
		{"it lets one in, and leases it", storage.Finish{Lease: leased[0].Lease, Outcome: storage.OutcomeDone}, 2, nil},
		{"it lets one in, and leases none", storage.Finish{Lease: leased[1].Lease, Outcome: storage.OutcomeDone}, 0, []time.Time{{}}},
		{"it puts one back", storage.Finish{Lease: leased[2].Lease, Outcome: storage.OutcomeRetry, DueAt: now.Add(time.Hour)}, 2, []time.Time{now.Add(time.Hour)}},
	} {
		for len(e.events) > 0 {
			<-e.events
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{c.ends}}
		if c.wants > 0 {
			x.Wants = []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: c.wants}}
		}
		if _, err := s.Exchange(t.Context(), now, x); err != nil {
			t.Fatal(err)
		}
		var told []time.Time
		for len(e.events) > 0 {
			told = append(told, (<-e.events).Due)
		}
		if !slices.EqualFunc(told, c.told, time.Time.Equal) {
			t.Errorf("%s: workers are told that jobs are due at %v, want %v", c.what, told, c.told)
		}
	}
}

// Another Store hears a notice, also once its session was cut off and there is another one.
func TestNotify_Notice(t *testing.T) {
	d := newDB(t)
	s, other := d.openAs("errand"), d.openAs("listens")
	e := listen(t, other)
	for _, due := range []time.Time{now.Add(time.Hour), now.Add(2 * time.Hour)} {
		e.begun()
		enqueueAt(t, s, due)
		e.next("when a job is due", func(of storage.Event) bool { return of.Due.Equal(due) })
		d.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listens' AND query LIKE 'LISTEN%'`)
	}
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
	last.SendNothing() // until it is closed
	enqueueAt(t, last, now.Add(2*time.Hour))
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	n, err := ears.WaitForNotification(t.Context())
	if want := strconv.FormatInt(now.Add(2*time.Hour).UnixMicro(), 10); err != nil || !strings.Contains(n.Payload, want) {
		t.Errorf("heard %+v, %v: want only of the job due at %s", n, err, want)
	}
}
