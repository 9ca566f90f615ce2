package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
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
//
//errand:shows a file that has become large | | `Compact` makes it smaller, and changes no job
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

// What the file holds has to have room in the folder for temporary files once, and in that
// of the file once: each is asked for its own, and named if it has too little.
func TestCompact_Room(t *testing.T) {
	const used, plenty = 800_000, 1 << 40
	for name, c := range map[string]struct {
		here, temp int64
		same       bool
		lacks      string // empty: there is enough
	}{
		"enough in both":          {here: used, temp: used},
		"too little for the log":  {here: 10_000, temp: plenty, lacks: "here"},
		"too little for the file": {here: plenty, temp: 10_000, lacks: "temp"},
		"enough for both":         {here: 2 * used, same: true},
		"enough for one":          {here: used, same: true, lacks: "here"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, Ballast: -1})
			temp := t.TempDir()
			t.Setenv("SQLITE_TMPDIR", temp)
			s := d.open()
			big(t, s, 100)
			for range 20 { // what stays is in use
				big(t, s, 1)
			}
			if err := s.Close(); err != nil { // and with it the log
				t.Fatal(err)
			}
			s = d.open()
			inUse := (d.number("PRAGMA page_count") - d.number("PRAGMA freelist_count")) * 4096
			if inUse >= used || 2*inUse <= used {
				t.Fatalf("%d bytes are in use, want more than half of %d", inUse, used)
			}
			sqlite.FreeIn(t, filepath.Dir(d.path), c.here, c.temp, c.same)
			freed, err := s.Compact(context.Background())
			if c.lacks == "" {
				if err != nil || freed == 0 {
					t.Errorf("Compact returned %d, %v", freed, err)
				}
				return
			}
			dir := map[string]string{"here": filepath.Dir(d.path), "temp": temp}[c.lacks]
			if !errors.Is(err, storage.ErrFull) || !strings.Contains(err.Error(), dir+",") {
				t.Errorf("Compact returned %d, %v, want ErrFull that names %s", freed, err, dir)
			}
		})
	}
}
