package sqlite_test

import (
	"context"
	"fmt"
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
		return testing.AllocsPerRun(50, func() {
			r, err := s.Exchange(ctx, t0, x)
			if err != nil || len(r.Leased) != 1 || r.Leased[0].Queue != "open" {
				t.Fatal(r, err)
			}
			x.Finish = append(x.Finish[:0], storage.Finish{Lease: r.Leased[0].Lease, Outcome: storage.OutcomeDone})
		})
	}
	if one, many := work(0), work(200); many > one+20 {
		t.Errorf("beside 200 lanes that are held an exchange takes %.0f allocations, without them %.0f", many, one)
	}
}

// A hold that is over costs no write of its own: its row is deleted with what an
// exchange writes anyway.
func TestHold_ForgottenWithAWrite(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	h := storage.Hold{Lane: storage.Lane{Queue: "default"}, Reason: "r", For: time.Second}
	pause(t, s, h)
	h.Queue = "other"
	pause(t, s, h)
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: want(1, "a")}
	exchange := func(what string, begun, rows int64) {
		t.Helper()
		before := s.Begun()
		if _, err := s.Exchange(context.Background(), t0.Add(time.Second), x); err != nil {
			t.Fatal(err)
		}
		if n := s.Begun() - before; n != begun {
			t.Errorf("%s: %d transactions, want %d", what, n, begun)
		}
		if n := d.number(`SELECT COUNT(*) FROM errand_hold`); n != rows {
			t.Errorf("%s: %d rows of holds, want %d", what, n, rows)
		}
	}
	exchange("without a job", 0, 2)
	enqueue(t, s, "a", 1)
	exchange("with a job", 1, 0)
}
