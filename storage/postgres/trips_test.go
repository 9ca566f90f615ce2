package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// trips counts round trips of all connections: the answers that end with the server's
// message that it is ready for the next request. What asks for nothing is not counted: the
// pool does so before it hands out a connection that nobody has used for a second.
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
	left  int  // of the message under way
	empty bool // the answer under way is to an empty request
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
		switch c.head[0] {
		case 'I':
			c.empty = true
		case 'Z':
			if !c.empty {
				c.trips.mu.Lock()
				c.trips.n++
				c.trips.mu.Unlock()
			}
			c.empty = false
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
	s.SendNothing() // notices come beside calls
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
		took("failures that other jobs follow, and leasing", 2)
		exchange(storage.Exchange{Finish: []storage.Finish{{Lease: leased[0].Lease, Outcome: storage.OutcomeRetry}}, Wants: []storage.Want{want(1, "b")}})
		took("a failure under a lease that the Store does not know, and leasing", 3)

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
	scopedTrips(t, s, &c, took)
}

// scopedTrips counts the round trips of calls about unique keys and groups.
func scopedTrips(t *testing.T, s *postgres.Store, c *trips, took func(what string, want int)) {
	lane := func(queue string) []storage.Want {
		return []storage.Want{{Queues: []string{queue}, Kinds: []string{"k"}, N: 300}}
	}
	jobs := func(n int, queue string, change func(i int, j *storage.NewJob)) []storage.NewJob {
		all := newJobs(n, queue, "k")
		for i := range all {
			change(i, &all[i])
		}
		return all
	}
	enqueue := func(what string, all []storage.NewJob) []storage.Enqueued {
		t.Helper()
		out, err := s.Enqueue(t.Context(), now, all)
		if err != nil {
			t.Fatal(err)
		}
		took(what, 2)
		return out
	}
	exchange := func(what string, want int, at time.Time, x storage.Exchange, leased int) []storage.Leased {
		t.Helper()
		x.LeaseDuration = time.Minute
		res, err := s.Exchange(t.Context(), at, x)
		if err != nil || len(res.Leased) != leased {
			t.Fatalf("%s: %d were leased, want %d: %v", what, len(res.Leased), leased, err)
		}
		took(what, want)
		return res.Leased
	}
	end := func(all []storage.Leased, as storage.Outcome) (x storage.Exchange) {
		for _, l := range all {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: as, Reason: storage.ReasonPermanent})
		}
		return x
	}
	if err := s.Configure(t.Context(), storage.Lane{Queue: "pairs"}, storage.Settings{storage.SettingGroupLimit: 2}); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"pairs", "keys", "ones"} {
		if _, err := s.Enqueue(t.Context(), now, newJobs(1, queue, "k")); err != nil { // so that the lane is known
			t.Fatal(err)
		}
	}
	for _, n := range []int{1, 100} {
		c.take()
		keyed := func(i int, j *storage.NewJob) {
			j.Unique, j.Conflict = fmt.Sprint("key ", n, i), &storage.Conflict{Mode: storage.Replace}
		}
		enqueue("Enqueue with keys", jobs(n, "keys", keyed))
		out := enqueue("Enqueue with keys that others have", jobs(n, "keys", keyed))
		if !out[n-1].Replaced {
			t.Errorf("a job with a key was not replaced: %+v", out[n-1])
		}
		wants := storage.Exchange{Wants: lane("keys")}
		leased := exchange("leasing jobs with keys", 1, now, wants, n+n%2)
		x := end(leased, storage.OutcomeDone)
		if n > 1 {
			x.Finish[0].Then = jobs(2, "keys", keyed)
		}
		exchange("ending jobs with keys", 2, now, x, 0)

		members := func(_ int, j *storage.NewJob) { j.Group = fmt.Sprint("group ", n) }
		enqueue("Enqueue with a group", jobs(3, "ones", members))
		x = end(exchange("leasing a member", 1, now, storage.Exchange{Wants: lane("ones")}, 1+n%2), storage.OutcomeDone)
		x.Wants = lane("ones")
		x = end(exchange("ending a member, and leasing the next", 2, now, x, 1), storage.OutcomeRetry)
		x.Wants = lane("ones")
		x = end(exchange("putting a member back, and leasing it again", 2, now, x, 1), storage.OutcomeDead)
		exchange("a member dies", 2, now, x, 0)

		later := jobs(3, "pairs", func(_ int, j *storage.NewJob) { j.Group, j.Delay = fmt.Sprint("group ", n), time.Second })
		enqueue("Enqueue of members that are due later", later)
		if _, err := s.Enqueue(t.Context(), now, newJobs(1, "plain", "k")); err != nil {
			t.Fatal(err)
		}
		c.take()
		exchange("leasing beside members of another queue that are due", 1, now.Add(time.Second), storage.Exchange{Wants: lane("plain")}, 1)
		x = end(exchange("members are due", 3, now.Add(time.Second), storage.Exchange{Wants: lane("pairs")}, 3), storage.OutcomeDone)
		exchange("members end", 2, now.Add(time.Second), x, 0)
		if _, err := s.Cancel(t.Context(), now, out[0].ID, storage.Retention{}); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("cancelling a job that is gone returned %v", err)
		}
		c.take()
		out = enqueue("Enqueue of one", jobs(1, "keys", func(_ int, j *storage.NewJob) { j.Unique = "one" }))
		c.take()
		if _, err := s.Cancel(t.Context(), now, out[0].ID, storage.Retention{}); err != nil {
			t.Error(err)
		}
		took("cancelling a job with a key", 4)
	}
}
