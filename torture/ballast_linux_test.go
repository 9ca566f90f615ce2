package torture_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// fillUp takes all that is left of a disk, as another program would.
func fillUp(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1 << 20; n > 0; {
		if _, err := f.Write(make([]byte, n)); err != nil {
			n /= 2
		}
		if n == 512 {
			break
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// With the disk full everything that runs can be finished, however that is
// done, and nothing can be added until there is room again.
//
//errand:shows [ballast] | | 64 jobs end on a full disk, in three ways, on three disks
func TestBallast_FinishesWhatRuns(t *testing.T) {
	needsRoot(t, "a loop device")
	end := map[string]storage.Finish{
		"deleted": {Outcome: storage.OutcomeDone},
		"kept":    {Outcome: storage.OutcomeDone},
		"dead": {
			Outcome: storage.OutcomeDead, Reason: storage.ReasonExhausted, Error: string(bytes.Repeat([]byte("e"), 8<<10)),
			Failure: &storage.NewFailure{Phase: "backoff", Error: string(bytes.Repeat([]byte("e"), 8<<10)), Stack: string(bytes.Repeat([]byte("s"), 16<<10))},
		},
	}
	for _, full := range []string{"by jobs", "by others", "by others in a burst"} {
		for name, f := range end {
			t.Run(full+"/"+name, func(t *testing.T) {
				size := int64(48 << 20) // never far from full
				if full == "by others in a burst" {
					size = 192 << 20
				}
				d := newDisk(t, size)
				open := func() *sqlite.Store {
					s, err := sqlite.Open(filepath.Join(d.dir, "jobs.db"), nil)
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				s := open()
				fillAndFinish(t, d, s, full, f, map[string]time.Duration{"kept": 24 * time.Hour}[name])
				if err := s.Close(); err != nil {
					t.Fatal("Close: ", err)
				}
				s = open() // on a disk that is still full
				defer s.Close()
				if full != "by jobs" {
					recovers(t, d, s)
				}
			})
		}
	}
}

// recovers waits until jobs can be added again, once there is room.
func recovers(t *testing.T, d *disk, s *sqlite.Store) {
	t.Helper()
	if err := os.Remove(filepath.Join(d.dir, "filler")); err != nil {
		t.Fatal(err)
	}
	j := storage.NewJob{Queue: "default", Kind: "k", Args: []byte("1")}
	for limit := time.After(time.Minute); ; {
		_, err := s.Enqueue(context.Background(), time.Now(), []storage.NewJob{j})
		if err == nil {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-limit:
			t.Fatalf("Enqueue with room again: %v", err)
		}
	}
	if info, err := os.Stat(filepath.Join(d.dir, "jobs.db-ballast")); err != nil || info.Size() < 4<<20 {
		t.Errorf("the ballast is not back: %v, %v", info.Size(), err)
	}
}

const ballastRuns = 64 // leases held as the disk becomes full

func fillAndFinish(t *testing.T, d *disk, s *sqlite.Store, full string, f storage.Finish, keep time.Duration) {
	ctx, now := context.Background(), time.Now()
	j := storage.NewJob{Queue: "default", Kind: "k", Args: bytes.Repeat([]byte("1"), 500)}
	add := func(n int) error {
		jobs := make([]storage.NewJob, n)
		for i := range jobs {
			jobs[i] = j
		}
		_, err := s.Enqueue(ctx, now, jobs)
		return err
	}
	lease := func(n int) ([]storage.Leased, error) {
		r, err := s.Exchange(ctx, now, storage.Exchange{
			LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"default"}, Kinds: []string{"k"}, N: n}},
		})
		return r.Leased, err
	}
	if err := add(1000); err != nil {
		t.Fatal(err)
	}
	leased, err := lease(ballastRuns)
	if err != nil || len(leased) != ballastRuns {
		t.Fatalf("leased %d: %v", len(leased), err)
	}
	switch full {
	case "by jobs":
		for err == nil {
			err = add(200)
		}
	case "by others":
		<-time.After(1500 * time.Millisecond) // a pause, in which the log is moved
		fillUp(t, d.dir)
	case "by others in a burst":
		for range 20 {
			if err := add(200); err != nil {
				t.Fatal(err)
			}
		}
		fillUp(t, d.dir)
	}
	for err == nil {
		err = add(200)
	}
	if !errors.Is(err, storage.ErrFull) {
		t.Fatalf("Enqueue on a full disk: %v, want ErrFull", err)
	}
	for len(leased) > 0 {
		n := min(16, len(leased))
		x := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: keep}}
		for _, l := range leased[:n] {
			f.Lease = l.Lease
			x.Finish = append(x.Finish, f)
		}
		for _, l := range leased[n:] {
			x.Extend = append(x.Extend, l.Lease)
		}
		if _, err := s.Exchange(ctx, now, x); err != nil {
			t.Fatalf("finishing with %d left: %v", len(leased), err)
		}
		leased = leased[n:]
	}
	info, err := os.Stat(filepath.Join(d.dir, "jobs.db-ballast"))
	if err != nil {
		t.Fatal(err)
	}
	wal, _ := os.Stat(filepath.Join(d.dir, "jobs.db-wal"))
	db, _ := os.Stat(filepath.Join(d.dir, "jobs.db"))
	t.Logf("all were finished: database %d KiB, log %d KiB, ballast %d KiB", db.Size()>>10, wal.Size()>>10, info.Size()>>10)
}
