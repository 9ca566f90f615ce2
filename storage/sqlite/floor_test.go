package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	driver "modernc.org/sqlite"

	"github.com/errandq/errand/storage"
)

// restore replaces what is in the database by what is in another one, as
// .restore of the sqlite3 command does.
func (d *db) restore(from string) {
	d.t.Helper()
	raw := d.raw()
	defer raw.Close()
	conn, err := raw.Conn(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Raw(func(c any) error {
		b, err := c.(interface {
			NewRestore(from string) (*driver.Backup, error)
		}).NewRestore(from)
		if err != nil {
			return err
		}
		if _, err := b.Step(-1); err != nil {
			return err
		}
		return b.Finish()
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// A database that was restored in place has other lanes than the Store knows:
// a job would go into another queue.
func TestFloor_RestoredInPlace(t *testing.T) {
	ctx := context.Background()
	for name, look := range map[string]func(s storage.Store) error{
		"enqueue": func(s storage.Store) error {
			_, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("payments", "a")})
			return err
		},
		"look": func(s storage.Store) error {
			_, err := s.Reclaim(ctx, t0, 0, time.Second, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			s := d.open()
			enqueue(t, s, "a", 1)
			old := filepath.Join(t.TempDir(), "old.db")
			d.exec("VACUUM INTO ?", old)
			if _, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("payments", "a")}); err != nil {
				t.Fatal(err)
			}
			d.restore(old)
			for range 2 {
				if err := look(s); !errors.Is(err, storage.ErrClosed) {
					t.Errorf("%v, want ErrClosed", err)
				}
			}
			again := d.open()
			if _, err := again.Enqueue(ctx, t0, []storage.NewJob{newJob("other", "a")}); err != nil {
				t.Fatal(err)
			}
			counts, err := again.Counts(ctx)
			if err != nil || len(counts) != 2 || counts[1].Queue != "other" {
				t.Errorf("counts %v, %v", counts, err)
			}
		})
	}
}

// A Store that has ended says so once, whatever others then do to the file.
func TestFloor_LooksNoMore(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 1)
	old := filepath.Join(t.TempDir(), "old.db")
	d.exec("VACUUM INTO ?", old)
	enqueue(t, s, "b", 1)
	defer s.Notify(func(storage.Event) {})()
	defer d.Kill(s) // Close would say it again
	d.restore(old)
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		_, err := s.Reclaim(t.Context(), t0, 0, time.Second, 1)
		if errors.Is(err, storage.ErrClosed) && !s.Watching() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it still watches the file; reading it gave %v", err)
		}
	}
}
