package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

func pause(t testing.TB, s storage.Store, h storage.Hold) {
	t.Helper()
	if err := s.Hold(context.Background(), t0, h); err != nil {
		t.Fatal(err)
	}
}

// What waits behind holds costs an exchange nothing, however many lanes it is in.
func TestHold_CostsOthersNothing(t *testing.T) {
	ctx := context.Background()
	work := func(held int) float64 {
		s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
		wanted := storage.Want{Queues: []string{"open"}, Kinds: []string{"a"}, N: 1}
		var jobs []storage.NewJob
		for i := range held {
			wanted.Queues = append(wanted.Queues, fmt.Sprintf("q%d", i))
			jobs = append(jobs, newJob(wanted.Queues[i+1], "a"), newJob(wanted.Queues[i+1], "a"))
			pause(t, s, storage.Hold{Lane: storage.Lane{Queue: wanted.Queues[i+1]}, Reason: "r", For: time.Duration(i+1) * time.Hour})
		}
		for range 100 {
			jobs = append(jobs, newJob("open", "a"))
		}
		if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
			t.Fatal(err)
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{wanted}}
		run := func() {
			r, err := s.Exchange(ctx, t0, x)
			if err != nil || len(r.Leased) != 1 || r.Leased[0].Queue != "open" {
				t.Fatal(r, err)
			}
			x.Finish = append(x.Finish[:0], storage.Finish{Lease: r.Leased[0].Lease, Outcome: storage.OutcomeDone})
		}
		run() // registers the instance, after which all is read again
		return testing.AllocsPerRun(50, run)
	}
	if one, many := work(0), work(200); many > one+10 {
		t.Errorf("beside 200 lanes that are held an exchange takes %.0f allocations, without them %.0f", many, one)
	}
}

// A lane that is ajar and has nothing to let through costs an exchange nothing, however
// many other lanes there are.
func TestHold_EmptyAjarLane(t *testing.T) {
	ctx := context.Background()
	work := func(lanes int, holds ...storage.Hold) float64 {
		s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
		wanted := storage.Want{Queues: []string{"default"}, Kinds: []string{"open", "a"}, N: 1}
		later := newJob("default", "a")
		later.DueAt = t0.Add(time.Hour)
		jobs := []storage.NewJob{later}
		for i := range lanes {
			later.Kind = fmt.Sprintf("k%d", i)
			wanted.Kinds, jobs = append(wanted.Kinds, later.Kind), append(jobs, later)
		}
		for range 100 {
			jobs = append(jobs, newJob("default", "open"))
		}
		if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
			t.Fatal(err)
		}
		for _, h := range holds {
			pause(t, s, h)
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{wanted}}
		run := func() {
			r, err := s.Exchange(ctx, t0.Add(time.Second), x)
			if err != nil || len(r.Leased) != 1 || r.Leased[0].Kind != "open" {
				t.Fatal(r, err)
			}
			x.Finish = append(x.Finish[:0], storage.Finish{Lease: r.Leased[0].Lease, Outcome: storage.OutcomeDone})
		}
		run() // registers the instance, after which all is read again
		return testing.AllocsPerRun(50, run)
	}
	if open, ajar := work(1000), work(1000, probe("a")); ajar > open+10 {
		t.Errorf("with a lane that is ajar beside 1,000 others an exchange takes %.0f allocations, without it %.0f", ajar, open)
	}
}

// A hold that is over costs no write of its own: its row is deleted with what an
// exchange writes anyway, with a date a day later.
func TestHold_ForgottenWithAWrite(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	h := storage.Hold{Lane: storage.Lane{Queue: "default"}, Reason: "r", For: time.Second}
	pause(t, s, h)
	h.Queue = "other"
	pause(t, s, h)
	end := t0.Add(time.Second)
	pause(t, s, storage.Hold{Lane: storage.Lane{Queue: "dated"}, Reason: "r", Until: end})
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: want(1, "a")}
	exchange := func(what string, now time.Time, begun, rows int64) {
		t.Helper()
		before := s.Begun()
		if _, err := s.Exchange(context.Background(), now, x); err != nil {
			t.Fatal(err)
		}
		if n := s.Begun() - before; n != begun {
			t.Errorf("%s: %d transactions, want %d", what, n, begun)
		}
		if n := d.number(`SELECT COUNT(*) FROM errand_hold`); n != rows {
			t.Errorf("%s: %d rows of holds, want %d", what, n, rows)
		}
	}
	exchange("without a job", end, 0, 3)
	enqueue(t, s, "a", 3)
	exchange("with a job", end, 1, 1)
	exchange("almost a day later", end.Add(24*time.Hour-time.Microsecond), 1, 1)
	exchange("a day later", end.Add(24*time.Hour), 1, 0)
}

// probe holds the lane of a kind, and lets jobs through after a second.
func probe(kind string) storage.Hold {
	return storage.Hold{Lane: storage.Lane{Queue: "default", Kind: kind}, Reason: "r", For: time.Second, Probe: true}
}

// leasedKinds are the kinds of the jobs that calls have leased, which return at the
// same time.
type leasedKinds struct {
	mu    sync.Mutex
	kinds string
}

// exchanging returns a call that has s lease at t0 plus a second, and adds to got what
// it leased.
func exchanging(s *sqlite.Store, x storage.Exchange, got *leasedKinds) func() error {
	return func() error {
		x.LeaseDuration = time.Minute
		r, err := s.Exchange(context.Background(), t0.Add(time.Second), x)
		got.mu.Lock()
		defer got.mu.Unlock()
		for _, l := range r.Leased {
			got.kinds += l.Kind
		}
		return err
	}
}

// A call leases by the holds as the calls before it in the same transaction have
// left them.
func TestHold_CallsInOneTransaction(t *testing.T) {
	anything, holds := want(9, "a", "b"), []storage.Hold{probe("a")}
	for _, c := range []struct {
		what  string
		calls []storage.Exchange
		want  string // of the calls, and of one more in a transaction of its own
	}{
		{"two", []storage.Exchange{{Wants: anything}, {Wants: anything}}, "abb|"},
		{"of other wants", []storage.Exchange{{Wants: want(1, "a")}, {Wants: anything}}, "abb|"},
		{"held again before", []storage.Exchange{{Hold: holds}, {Wants: anything}}, "bb|"},
		{"held again at first", []storage.Exchange{{Hold: holds, Wants: want(9, "b")}, {Wants: anything}}, "bb|"},
		{"released before", []storage.Exchange{{Release: holds}, {Wants: anything}}, "aaabb|"},
		{"released after one", []storage.Exchange{{Wants: want(1, "a")}, {Release: holds, Wants: want(1, "a")}}, "aa|abb"},
		{"held and released", []storage.Exchange{{Wants: want(1, "b")}, {Hold: holds, Release: holds, Wants: want(1, "b")}}, "bb|aaa"},
		{"held once more at once", []storage.Exchange{{Wants: anything}, {Hold: []storage.Hold{{Lane: holds[0].Lane, Reason: "r", Until: t0.Add(time.Second), Probe: true}}, Wants: want(1, "none")}}, "abb|a"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newDB(t, nil)
			s := d.open()
			pause(t, s, probe("a"))
			enqueue(t, s, "a", 3)
			enqueue(t, s, "b", 2)
			for range 2 { // lineups are known then
				lease(t, s, 1, "a")
				lease(t, s, 1, "a", "none")
			}
			var got, rest leasedKinds
			var calls []func() error
			for _, x := range c.calls {
				calls = append(calls, exchanging(s, x, &got))
			}
			s.Fault(func(bool) error { return storage.ErrBusy })
			if err := exchanging(s, storage.Exchange{Wants: anything}, &rest)(); !errors.Is(err, storage.ErrBusy) {
				t.Fatal(err)
			}
			s.Fault(nil)
			rest.kinds = "" // it came to nothing
			begun := s.Begun()
			together(t, s, calls...)
			if n := s.Begun() - begun; n != 2 { // that of the stall is one
				t.Fatalf("%d transactions, want 2", n)
			}
			if err := exchanging(s, storage.Exchange{Wants: anything}, &rest)(); err != nil {
				t.Fatal(err)
			}
			if got := inOrder(got.kinds) + "|" + rest.kinds; got != c.want {
				t.Errorf("leased %s, want %s", got, c.want)
			}
			d.Invariants(t)
		})
	}
}

// inOrder sorts the letters of s.
func inOrder(s string) string {
	letters := []byte(s)
	slices.Sort(letters)
	return string(letters)
}

// A lane that a transaction has created is not lost when holds change in it.
func TestHold_ChangeBesideANewLane(t *testing.T) {
	s := newDB(t, nil).open()
	enqueue(t, s, "a", 1)
	w := offer(t, s, 1, "n")
	var got leasedKinds
	together(t, s, adding(s, "nnn"),
		exchanging(s, storage.Exchange{Hold: []storage.Hold{probe("a")}}, &got), exchanging(s, storage.Exchange{Wants: want(1, "n")}, &got))
	w.took(t, "the room for one", "n")
	if got.kinds != "n" {
		t.Errorf("leased %q, want one of the two that were left", got.kinds)
	}
}
