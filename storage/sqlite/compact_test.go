package sqlite_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// big enqueues jobs whose args take some 20 KB each, and cancels them, but for the last:
// its pages are at the end of the file.
func big(t testing.TB, s *sqlite.Store, n int) {
	t.Helper()
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = newJob("default", "a")
		jobs[i].Args = make([]byte, 20_000)
	}
	out, err := s.Enqueue(context.Background(), t0, jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range out[:n-1] {
		if _, err := s.Cancel(context.Background(), t0, e.ID, storage.Retention{}); err != nil {
			t.Fatal(err)
		}
	}
}

// bytes returns the size of the file.
func (d *db) bytes() int64 {
	d.t.Helper()
	info, err := os.Stat(d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	return info.Size()
}

// After a full disk the file shrinks again, other stores go on with it, and a Compact
// whose caller has gone leaves it as it was.
func TestCompact(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	s, other := d.open(), d.open()
	big(t, s, 400)
	raw := d.raw()
	defer raw.Close()
	if _, err := raw.Exec("PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
		t.Fatal(err)
	}
	full := d.bytes()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if freed, err := s.Compact(gone); freed != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("Compact without its caller returned %d, %v", freed, err)
	}
	if now := d.bytes(); now != full {
		t.Errorf("the file of %d bytes has %d", full, now)
	}
	freed, err := s.Compact(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if now := d.bytes(); full < 8_000_000 || now > full/10 || full-now != freed {
		t.Errorf("the file of %d bytes has %d after Compact has given %d back", full, now, freed)
	}
	if free := d.number("PRAGMA freelist_count"); free != 0 {
		t.Errorf("%d pages are free", free)
	}
	if freed, err := other.Compact(context.Background()); freed != 0 || err != nil {
		t.Errorf("Compact with nothing to give back returned %d, %v", freed, err)
	}
	for _, s := range []*sqlite.Store{other, s} {
		enqueue(t, s, "a", 1)
	}
	if c := counts(t, s); c[storage.Ready] != 3 || d.number("SELECT count(*) FROM errand_job") != 3 {
		t.Errorf("counts %v, want 3 jobs that are ready", c)
	}
	if got := lease(t, other, 3, "a"); len(got) != 3 || len(got[0].Args) != 20_000 {
		t.Errorf("%d jobs were leased, want 3, the first with its args", len(got))
	}
}
