package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
	"github.com/errandq/errand/storage/storagetest"
)

var _ storagetest.Loser = (*db)(nil)

// Lose implements [storagetest.Loser]: it cuts off the connection of the next commit.
func (d *db) Lose(s storage.Store, commits bool, calls int) {
	d.stores[s.(*postgres.Store)].lose(commits, calls)
}

// losing makes connections that are cut off once they are told to.
type losing struct {
	mu      sync.Mutex
	next    bool // the commit that comes is to be cut off
	commits bool // after it took place
	calls   int  // that are cut off then as they find out about it
	away    int
	passes  int // commits that go through before
}

// skip has commits go through before the one that is lost.
func (l *losing) skip(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passes = n
}

func (l *losing) lose(commits bool, calls int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next, l.commits, l.calls = true, commits, calls
}

func (l *losing) wrap(dial postgres.Dial) postgres.Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &frail{Conn: conn, of: l}, err
	}
}

// cuts says what becomes of the connection on which p is to be sent: it is cut off, and p
// arrives or not.
func (l *losing) cuts(p []byte) (cut, arrives bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.next && bytes.Contains(p, []byte(mark)) && !bytes.Contains(p, []byte("errand_call")): // which is not yet prepared
		if l.passes > 0 {
			l.passes--
			return false, false
		}
		l.next, l.away = false, l.calls
		return true, l.commits
	case l.away > 0 && bytes.Contains(p, []byte(postgres.Fence)):
		l.away--
		return true, false
	}
	return false, false
}

var mark = postgres.MarkName()

// frail is a connection that may be cut off.
type frail struct {
	net.Conn
	of   *losing
	deaf atomic.Bool
}

// Write sends p, or loses it on its way. Nobody notices yet.
func (c *frail) Write(p []byte) (int, error) {
	cut, arrives := c.of.cuts(p)
	if cut {
		c.deaf.Store(true)
		if !arrives {
			return len(p), c.Close()
		}
	}
	return c.Conn.Write(p)
}

// Read returns nothing from a connection that is cut off. It waits for the end of what the
// server answers: then that has done what it was asked for.
func (c *frail) Read(p []byte) (int, error) {
	if !c.deaf.Load() {
		return c.Conn.Read(p)
	}
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(c.Conn, head); err != nil {
			break
		}
		if _, err := io.CopyN(io.Discard, c.Conn, int64(binary.BigEndian.Uint32(head[1:]))-4); err != nil || head[0] == 'Z' {
			break
		}
	}
	_ = c.Close()
	return 0, io.ErrUnexpectedEOF
}

// lossy is a database with a Store that leases jobs, and may lose answers.
type lossy struct {
	*db
	s *postgres.Store
}

func newLossy(t *testing.T) lossy {
	d := newDB(t)
	l := lossy{d, d.open()}
	l.enqueue(1) // so that the lane is known
	l.end(l.lease(1)...)
	return l
}

func (l lossy) enqueue(n int) []storage.Enqueued {
	l.t.Helper()
	out, err := l.s.Enqueue(context.Background(), now, newJobs(n, "q", "k"))
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l lossy) exchange(x storage.Exchange) storage.ExchangeResult {
	l.t.Helper()
	x.LeaseDuration = time.Minute
	res, err := l.s.Exchange(context.Background(), now, x)
	if err != nil {
		l.t.Fatal(err)
	}
	return res
}

func (l lossy) lease(n int) []storage.Leased {
	l.t.Helper()
	w := usual[0]
	w.N = n
	got := l.exchange(storage.Exchange{Wants: []storage.Want{w}}).Leased
	if len(got) != n {
		l.t.Fatalf("%d jobs were leased, want %d", len(got), n)
	}
	return got
}

func (l lossy) end(all ...storage.Leased) {
	l.t.Helper()
	var x storage.Exchange
	for _, job := range all {
		x.Finish = append(x.Finish, storage.Finish{Lease: job.Lease, Outcome: storage.OutcomeDone})
	}
	l.exchange(x)
}

// An Enqueue whose answer is lost returns it all the same, or an error that says that
// nothing was written. It never inserts twice.
func TestStore_LostEnqueue(t *testing.T) {
	for _, n := range []int{1, 7} {
		l := newLossy(t)
		l.Lose(l.s, true, 0)
		for i, e := range l.enqueue(n) {
			if r, err := l.s.Job(t.Context(), e.ID); err != nil || r.State != storage.Ready {
				t.Errorf("of %d jobs the one at %d is %s, %v", n, i, r.State, err)
			}
		}
		l.end(l.lease(n)...)

		l.Lose(l.s, false, 0)
		if _, err := l.s.Enqueue(t.Context(), now, newJobs(n, "q", "k")); !errors.Is(err, storage.ErrIO) || errors.Is(err, storage.ErrUnknownOutcome) {
			t.Errorf("a lost request returned %v, want ErrIO", err)
		}
		for _, commits := range []bool{true, false} {
			l.Lose(l.s, commits, 1)
			_, err := l.s.Enqueue(t.Context(), now, newJobs(n, "q", "k"))
			if _, ok := errors.AsType[*storage.UnknownOutcomeError](err); !ok {
				t.Errorf("without a server Enqueue returned %v", err)
			}
		}
		l.end(l.lease(n)...)
		if counts, err := l.s.Counts(t.Context()); err != nil || len(counts) != 0 {
			t.Errorf("counts %v, %v; want none", counts, err)
		}
	}
}

// What is found out of an exchange in one round trip is the answer that was lost, also
// where it is not the usual one.
func TestStore_LostItems(t *testing.T) {
	l := newLossy(t)
	l.enqueue(8)
	jobs := l.lease(8)
	other := l.open()
	for _, job := range jobs[:2] {
		if _, err := l.s.Cancel(t.Context(), now, job.ID, storage.Retention{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, retention := range []time.Duration{0, time.Hour} {
		gone := l.enqueue(1)
		lost := l.lease(1)[0]
		l.end(lost)
		l.enqueue(2)
		ends := l.lease(2)
		next := l.enqueue(1)[0].ID
		x := storage.Exchange{
			Extend:    []storage.Lease{jobs[0].Lease, lost.Lease, jobs[2].Lease},
			Start:     []storage.Lease{jobs[3].Lease, lost.Lease, jobs[4].Lease},
			Wants:     usual,
			Retention: storage.Retention{Default: retention},
		}
		for _, job := range []storage.Leased{ends[0], lost, ends[1], ends[0]} {
			x.Finish = append(x.Finish, storage.Finish{Lease: job.Lease, Outcome: storage.OutcomeDone})
		}
		l.Lose(l.s, true, 0)
		res := l.exchange(x)
		if want := []storage.ItemResult{storage.Cancelling, storage.Lost, storage.Applied}; !slices.Equal(res.Extended, want) {
			t.Errorf("extending is answered by %d, want %d", res.Extended, want)
		}
		if want := []storage.ItemResult{storage.Applied, storage.Lost, storage.Applied}; !slices.Equal(res.Started, want) {
			t.Errorf("the starts are answered by %d, want %d", res.Started, want)
		}
		if want := []storage.ItemResult{storage.Applied, storage.Lost, storage.Applied, storage.Lost}; !slices.Equal(res.Finished, want) {
			t.Errorf("the ends of %v are answered by %d, want %d", gone, res.Finished, want)
		}
		if len(res.Leased) != 1 || res.Leased[0].ID != next || res.NextDue.After(now) {
			t.Errorf("leased %+v, next due %v; want %v, and an exchange soon", res.Leased, res.NextDue, next)
		}
		if got, err := other.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: usual}); err != nil || len(got.Leased) != 0 {
			t.Errorf("another one leases %v, %v", got.Leased, err)
		}
		l.end(res.Leased...)

		x.Wants, x.Finish = nil, nil // all usual
		x.Extend, x.Start = []storage.Lease{jobs[5].Lease}, []storage.Lease{jobs[6].Lease}
		l.Lose(l.s, true, 0)
		if res := l.exchange(x); res.Extended[0] != storage.Applied || res.Started[0] != storage.Applied {
			t.Errorf("what is usual is answered by %+v", res)
		}
	}
}

// A second transaction, which leases from lanes that others have added, may be lost too.
func TestStore_LostNewLanes(t *testing.T) {
	for _, commits := range []bool{true, false} {
		for calls := range 2 {
			l := newLossy(t)
			l.enqueue(1)
			x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"r"}, Kinds: []string{"k"}, N: 1}}}
			for _, job := range l.lease(1) {
				x.Finish = append(x.Finish, storage.Finish{Lease: job.Lease, Outcome: storage.OutcomeDone})
			}
			other := l.open()
			if _, err := other.Enqueue(t.Context(), now, newJobs(1, "r", "k")); err != nil {
				t.Fatal(err)
			}
			l.stores[l.s].skip(1)
			l.Lose(l.s, commits, calls)
			res, err := l.s.Exchange(t.Context(), now, x)
			if calls > 0 {
				lost, ok := errors.AsType[*storage.UnknownOutcomeError](err)
				if !ok {
					t.Fatalf("Exchange returned %v", err)
				}
				x.Repeats = lost.Call
				res, err = l.s.Exchange(t.Context(), now, x)
			}
			want := 0
			if commits {
				want = 1
			}
			if err != nil || len(res.Finished) != 1 || res.Finished[0] != storage.Applied || len(res.Leased) != want {
				t.Errorf("lost: %t, %d: the answer is %+v, %v; want the end applied, and %d leased", commits, calls, res, err, want)
			}
		}
	}
}

// Marks of calls that were answered are deleted, those of a call that was lost are not.
func TestStore_Marks(t *testing.T) {
	l := newLossy(t)
	first := l.enqueue(1)[0].ID
	l.Lose(l.s, true, 1)
	_, err := l.s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: usual})
	lost, ok := errors.AsType[*storage.UnknownOutcomeError](err)
	if !ok {
		t.Fatalf("Exchange returned %v", err)
	}
	marks := func(what string, least, most int) {
		t.Helper()
		for range postgres.UnmarkAfter {
			l.enqueue(1)
		}
		var n int
		if err := l.conn.QueryRow(t.Context(), `SELECT count(*) FROM errand_call`).Scan(&n); err != nil || n < least || n > most {
			t.Errorf("%s: %d marks are left, %v; want %d to %d", what, n, err, least, most)
		}
	}
	marks("while the answer to one is asked for", 2, postgres.UnmarkAfter-1)
	res := l.exchange(storage.Exchange{Wants: usual, Repeats: lost.Call})
	if len(res.Leased) != 1 || res.Leased[0].ID != first {
		t.Errorf("the lost answer has leased %+v, want %v", res.Leased, first)
	}
	marks("after it", 1, postgres.UnmarkAfter-1)
	for range 3 { // nothing is written
		l.exchange(storage.Exchange{Wants: []storage.Want{{Queues: []string{"none"}, Kinds: []string{"k"}, N: 1}}})
	}
	var idle int
	const ofIdle = `SELECT count(*) FROM errand_call WHERE call > (SELECT max(call) FROM errand_call WHERE keys IS NOT NULL)`
	if err := l.conn.QueryRow(t.Context(), ofIdle).Scan(&idle); err != nil || idle != 0 {
		t.Errorf("%d calls that wrote nothing were marked, %v", idle, err)
	}
}
