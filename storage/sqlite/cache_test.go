package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// openTwo gives two Stores on one file.
func openTwo(t *testing.T) (stores [2]*Store) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	for i := range stores {
		s, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		stores[i] = s
	}
	return stores
}

func jobIn(queue string) []storage.NewJob {
	return []storage.NewJob{{Queue: queue, Kind: "a", Args: []byte("{}")}}
}

// counter counts the rows that are read.
type counter struct {
	asker
	rows int
}

func (c *counter) each(text string, args, dest []any, f func()) error {
	return c.asker.each(text, args, dest, func() {
		c.rows++
		f()
	})
}

// What a new queue costs must not grow with those that there are: of the lanes
// of others a process reads those that it does not know yet.
//
//errand:shows queues made at run time | | the first job of a new queue costs the same however many queues there are, and a queue of a transaction that was rolled back is not remembered
func TestCache_ReadsWhatIsNew(t *testing.T) {
	stores := openTwo(t)
	ctx := context.Background()
	for round, lanes := range []int{100, 1} {
		jobs := make([]storage.NewJob, lanes)
		for i := range jobs {
			jobs[i] = storage.NewJob{Queue: fmt.Sprintf("q%d-%d", round, i), Kind: "a", Args: []byte("{}")}
		}
		if _, err := stores[0].Enqueue(ctx, time.Now(), jobs); err != nil {
			t.Fatal(err)
		}
		db := &counter{asker: plain{ctx, stores[1].read.DB}}
		var m meta
		if err := db.row(sqlMeta, nil, m.dest()...); err != nil {
			t.Fatal(err)
		}
		n, err := stores[1].cache.read(db, m.gen)
		if err != nil || db.rows != lanes {
			t.Errorf("%d rows were read, %v: want those of the %d new lanes", db.rows, err, lanes)
		}
		stores[1].cache.take(n)
		if stores[0].cache.stale(m.gen) {
			t.Error("who has created lanes has to read them again")
		}
	}
	a, b := stores[0].cache.names, stores[1].cache.names
	if len(a) != 101 || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("the one knows %d lanes, the other %d: want the same 101", len(a), len(b))
	}
}

// A lane that was created in a transaction of the application which was rolled
// back must not be remembered: its number goes to another.
//
//errand:shows queues made at run time
func TestCache_NoLaneOfARollback(t *testing.T) {
	stores := openTwo(t)
	ctx := context.Background()
	no := errors.New("no")
	err := stores[0].Tx(ctx, func(in any) error {
		tx := in.(*sql.Tx)
		for _, s := range []*Store{stores[1], stores[0]} { // to the second it is a transaction like any other
			if _, err := s.EnqueueTx(ctx, tx, time.Now(), jobIn("rolled back")); err != nil {
				return err
			}
		}
		return no
	})
	if !errors.Is(err, no) {
		t.Fatal(err)
	}
	for _, queue := range []string{"first", "rolled back"} {
		out, err := stores[0].Enqueue(ctx, time.Now(), jobIn(queue))
		if err != nil {
			t.Fatal(err)
		}
		if job, err := stores[0].Job(ctx, out[0].ID); err != nil || job.Queue != queue {
			t.Errorf("a job for queue %q is in queue %q, %v", queue, job.Queue, err)
		}
	}
}

// That a job was asked to stop is told once to the workers of another process,
// however much else has changed before they look.
//
//errand:shows heartbeats that are not needed | | a new queue, a hold or a schedule does not extend leases; a cancellation among them is told once
func TestCache_WishAmongOthers(t *testing.T) {
	stores := openTwo(t)
	holder, other := stores[0], stores[1]
	ctx, now := context.Background(), time.Now()
	enqueue := func(queue string) storage.ID {
		t.Helper()
		out, err := other.Enqueue(ctx, now, jobIn(queue))
		if err != nil {
			t.Fatal(err)
		}
		return out[0].ID
	}
	id := enqueue("q")
	wants := []storage.Want{{Queues: []string{"q"}, Kinds: []string{"a"}, N: 1}}
	got, err := holder.Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Minute, Wants: wants})
	if err != nil || len(got.Leased) != 1 {
		t.Fatal(got, err)
	}
	told := 0
	holder.listeners.all = map[int]func(storage.Event){0: func(e storage.Event) { // and nobody watches
		if e.Cancel {
			told++
		}
	}}
	look := func(want int) {
		t.Helper()
		for range 2 {
			if _, err := holder.refresh(ctx); err != nil || told != want {
				t.Errorf("told %d times, %v: want %d", told, err, want)
			}
		}
	}
	enqueue("new")
	look(0)
	enqueue("newer")
	if _, err := other.Cancel(ctx, now, id, storage.Retention{}); err != nil {
		t.Fatal(err)
	}
	if err := other.Hold(ctx, now, storage.Hold{Lane: storage.Lane{Queue: "new"}, Reason: storage.HoldPaused}); err != nil {
		t.Fatal(err)
	}
	enqueue("newest")
	look(1)
	x, err := holder.Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Minute, Extend: []storage.Lease{got.Leased[0].Lease}})
	if err != nil || x.Extended[0] != storage.Cancelling || told != 1 {
		t.Errorf("extended with %v, %v, told %d times: want that it was asked to stop, told once", x.Extended, err, told)
	}
}

// Where nobody else is registered nobody is woken.
//
//errand:shows watching other processes
func TestCache_NobodyToWake(t *testing.T) {
	ctx := context.Background()
	stores := openTwo(t)
	s, worker := stores[0], stores[1]
	woke := func(want bool) {
		t.Helper()
		if _, err := s.Enqueue(ctx, time.Now(), []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(s.wake.path()); (err == nil) != want {
			t.Errorf("the file to wake others by: %v", err)
		}
	}
	woke(false)
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}}}
	if _, err := worker.Exchange(ctx, time.Now(), x); err != nil {
		t.Fatal(err)
	}
	woke(true)
}
