package sqlite_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

func (d *db) ballast() int64 {
	d.t.Helper()
	info, err := os.Stat(d.path + "-ballast")
	if err != nil {
		d.t.Fatal(err)
	}
	return info.Size()
}

func one() []storage.NewJob { return []storage.NewJob{newJob("default", "a")} }

// Without room what ends work goes through, at the cost of the ballast, and
// what adds work waits until the ballast is back.
//
//errand:shows [given-up]
func TestBallast_GivenUpToFinish(t *testing.T) {
	path := t.TempDir() + "/jobs.db"
	synctest.Test(t, func(t *testing.T) {
		d := &db{t, path, &sqlite.Options{SingleProcess: true, Ballast: 1 << 16}}
		s, ctx := d.open(), context.Background()
		ids := enqueue(t, s, "a", 20)
		leased := lease(t, s, 10, "a")
		if n := d.ballast(); n != 1<<16 {
			t.Fatalf("ballast of %d bytes", n)
		}
		s.Fault(func(bool) error {
			if d.ballast() > 0 {
				return storage.ErrFull
			}
			return nil
		})
		if _, err := s.Enqueue(ctx, t0, one()); !errors.Is(err, storage.ErrFull) {
			t.Fatalf("Enqueue without room: %v, want ErrFull", err)
		}
		if d.ballast() == 0 {
			t.Fatal("the ballast was given up for more work")
		}
		for _, r := range finish(t, s, leased[:5]...) {
			if r != storage.Applied {
				t.Errorf("finishing without room: %v", r)
			}
		}
		if d.ballast() != 0 {
			t.Fatal("the ballast is still there")
		}
		// There is room now, but that is not for more work.
		refused := map[string]error{}
		_, refused["enqueue"] = s.Enqueue(ctx, t0, one())
		_, refused["redrive"] = s.Redrive(ctx, t0, storage.Selection{}, "")
		_, refused["run now"] = s.RunNow(ctx, t0, storage.Selection{}, storage.Waiting{First: true})
		_, refused["schedule"] = s.PutSchedule(ctx, t0, storage.Schedule{Name: "s"})
		for name, err := range refused {
			if !errors.Is(err, storage.ErrFull) {
				t.Errorf("%s: %v, want ErrFull", name, err)
			}
		}
		finish(t, s, append(leased[5:], lease(t, s, 1, "a")...)...)
		if _, err := s.Cancel(ctx, t0, ids[15].ID, storage.Retention{}); err != nil {
			t.Errorf("Cancel: %v", err)
		}
		time.Sleep(3 * time.Second)
		s.Fault(nil)
		enqueue(t, s, "a", 1)
		if n := d.ballast(); n != 1<<16 {
			t.Errorf("ballast of %d bytes once there is room again", n)
		}
		if c := counts(t, s); c[storage.Ready] != 9 || c[storage.Running] != 0 {
			t.Errorf("counts %v, want 9 ready", c)
		}
		d.Invariants(t)
	})
}

// A batch in which something adds work is run again without that, before the
// ballast is touched.
func TestBallast_KeptWhileSomethingCanBeLeftOut(t *testing.T) {
	d := newDB(t, &sqlite.Options{Ballast: 1 << 16})
	s, ctx := d.open(), context.Background()
	enqueue(t, s, "a", 10)
	leased := lease(t, s, 10, "a")
	release := s.Stall()
	s.Fault(func(adds bool) error {
		if adds {
			return storage.ErrFull
		}
		return nil
	})
	added, finished := make(chan error), make(chan error)
	go func() { _, err := s.Enqueue(ctx, t0, one()); added <- err }()
	go func() {
		x := storage.Exchange{LeaseDuration: time.Second}
		for _, l := range leased {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
		_, err := s.Exchange(ctx, t0, x)
		finished <- err
	}()
	for s.Waiting() < 2 {
		runtime.Gosched()
	}
	release()
	if err := <-added; !errors.Is(err, storage.ErrFull) {
		t.Errorf("Enqueue: %v, want ErrFull", err)
	}
	if err := <-finished; err != nil {
		t.Errorf("finishing: %v", err)
	}
	if d.ballast() == 0 {
		t.Error("the ballast was given up without need")
	}
}

// A process learns from the file that another has given the ballast up.
//
//errand:shows [given-up] | | another process has needed the ballast
func TestBallast_GivenUpByAnother(t *testing.T) {
	d := newDB(t, &sqlite.Options{Ballast: 1 << 16})
	a, b := d.open(), d.open()
	for _, s := range []*sqlite.Store{a, b} {
		enqueue(t, s, "a", 1)
		lease(t, s, 1, "a")
	}
	enqueue(t, a, "b", 1)                                     // by which it learns of b
	if err := os.Truncate(d.path+"-ballast", 0); err != nil { // as b would
		t.Fatal(err)
	}
	if _, err := a.Enqueue(context.Background(), t0, one()); !errors.Is(err, storage.ErrFull) {
		t.Errorf("Enqueue: %v, want ErrFull", err)
	}
}

func TestBallast_None(t *testing.T) {
	d := newDB(t, &sqlite.Options{Ballast: -1})
	enqueue(t, d.open(), "a", 1)
	if _, err := os.Stat(d.path + "-ballast"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is one: %v", err)
	}
}
