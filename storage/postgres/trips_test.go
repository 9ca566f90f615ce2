package postgres_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// trips counts round trips of all connections: the answers that end with the server's
// message that it is ready for the next request.
type trips struct {
	mu sync.Mutex
	n  int
}

// take returns how many there were since the last call.
func (c *trips) take() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.n = c.n, 0
	return n
}

func (c *trips) wrap(dial postgres.Dial) postgres.Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &counted{Conn: conn, trips: c}, err
	}
}

// counted reads along: each message is its type, its length without the type in four
// bytes, and the rest.
type counted struct {
	net.Conn
	trips *trips
	head  []byte
	left  int // of the message under way
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for b := p[:n]; len(b) > 0; {
		if skip := min(c.left, len(b)); skip > 0 {
			b, c.left = b[skip:], c.left-skip
			continue
		}
		c.head, b = append(c.head, b[0]), b[1:]
		if len(c.head) < 5 {
			continue
		}
		if c.head[0] == 'Z' {
			c.trips.mu.Lock()
			c.trips.n++
			c.trips.mu.Unlock()
		}
		c.left = int(binary.BigEndian.Uint32(c.head[1:])) - 4
		c.head = c.head[:0]
	}
	return n, err
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newJobs(n int, queue, kind string) []storage.NewJob {
	all := make([]storage.NewJob, n)
	for i := range all {
		all[i] = storage.NewJob{Queue: queue, Kind: kind, Args: []byte("{}")}
	}
	return all
}

func TestStore_RoundTrips(t *testing.T) {
	d := newDB(t)
	var c trips
	s, err := postgres.OpenBy(t.Context(), pgtest.Server(t), &postgres.Options{Schema: d.schema, MaxConns: 1}, c.wrap)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.kill(s) })
	other := d.open()
	took := func(what string, want int) {
		t.Helper()
		if n := c.take(); n != want {
			t.Errorf("%s takes %d round trips, want %d", what, n, want)
		}
	}
	enqueue := func(s *postgres.Store, jobs []storage.NewJob) {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
			t.Fatal(err)
		}
	}
	exchange := func(x storage.Exchange) storage.ExchangeResult {
		t.Helper()
		x.LeaseDuration = time.Minute
		res, err := s.Exchange(t.Context(), now, x)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	want := func(n int, queue string) storage.Want {
		return storage.Want{Queues: []string{queue}, Kinds: []string{"k", "l"}, N: n}
	}
	enqueue(s, newJobs(1, "a", "k"))
	exchange(storage.Exchange{Wants: []storage.Want{want(1, "a")}}) // connects, and registers the instance

	for _, n := range []int{1, 300} {
		c.take()
		enqueue(s, newJobs(4*n, "a", "k"))
		took("Enqueue", 1)
		leased := exchange(storage.Exchange{Wants: []storage.Want{want(3*n, "a")}}).Leased
		took("leasing", 1)
		if len(leased) != 3*n {
			t.Fatalf("%d were leased, want %d", len(leased), 3*n)
		}
		var x storage.Exchange
		for _, l := range leased[:n] {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
		for _, l := range leased[n:] {
			x.Extend = append(x.Extend, l.Lease)
		}
		x.Wants = []storage.Want{want(n, "a")}
		if res := exchange(x); len(res.Leased) != n {
			t.Errorf("%d were leased, want %d", len(res.Leased), n)
		}
		took("success of some, extension of others, and leasing", 1)

		x = storage.Exchange{Retention: storage.Retention{Default: time.Hour, Lanes: map[storage.Lane]time.Duration{{Queue: "a", Kind: "k"}: time.Minute}}}
		for i, l := range leased[n:] {
			fin := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, Failure: &storage.NewFailure{Error: "x"}, DueAt: now.Add(time.Hour)}
			if i%2 == 1 {
				fin.Outcome, fin.Reason, fin.Then = storage.OutcomeDead, storage.ReasonPermanent, newJobs(1, "a", "k")
			}
			x.Finish = append(x.Finish, fin)
		}
		x.Wants = []storage.Want{want(n, "a")}
		if res := exchange(x); len(res.Leased) != min(n, len(res.Then)) {
			t.Errorf("%d were leased of %d that were enqueued", len(res.Leased), len(res.Then))
		}
		took("failures that other jobs follow, and leasing", 3)
		exchange(storage.Exchange{Finish: []storage.Finish{{Lease: leased[0].Lease, Outcome: storage.OutcomeRetry}}, Wants: []storage.Want{want(1, "b")}})
		took("a failure, and leasing", 2)

		// Others add a lane, and jobs that go first.
		enqueue(other, newJobs(1, "a", string(rune('k'+n%2))))
		x.Finish = nil
		if res := exchange(x); n == 1 && len(res.Leased) != 1 {
			t.Errorf("%d were leased, want that of the lane which others have added", len(res.Leased))
		}
		if n == 1 {
			took("leasing from a new lane", 2)
		}
		c.take()
		x.Wants = []storage.Want{want(n, "a"), want(n, "b")}
		x.Finish = []storage.Finish{{Lease: leased[0].Lease, Outcome: storage.OutcomeRetry}}
		exchange(x)
		if n := c.take(); n > 4 {
			t.Errorf("an exchange with several wants takes %d round trips, want at most 4", n)
		}
	}
}
