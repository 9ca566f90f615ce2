package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/errandq/errand/storage"
)

// rowCount counts the rows that are read of settings.
type rowCount struct {
	asker
	rows int
}

func (c *rowCount) each(text string, args, dest []any, f func()) error {
	return c.asker.each(text, args, dest, func() { c.rows++; f() })
}

// Of settings that are known only those are read that have changed since; all are if one
// was deleted.
func TestSettings_ReadSince(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "jobs.db")
	var stores [2]*Store
	for i := range stores {
		s, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores[i] = s
	}
	set := func(queue string, n int64) {
		t.Helper()
		if err := stores[0].Configure(ctx, storage.Lane{Queue: queue}, storage.Settings{storage.SettingStarts: n, storage.SettingOrder: n % 2}); err != nil {
			t.Fatal(err)
		}
	}
	// look has the other store know the settings, and compares what it knows.
	look := func() {
		t.Helper()
		err := stores[1].submit(ctx, &request{run: func(tx *tx) error {
			whole, err := readSettings(tx)
			if err != nil {
				return err
			}
			c := &tx.store.cache
			if fmt.Sprint(c.settings) != fmt.Sprint(whole) || fmt.Sprint(c.orders) != fmt.Sprint(whole.orders()) || fmt.Sprint(c.starts) != fmt.Sprint(whole.starts()) {
				t.Errorf("known are %v, %v and %v, of %v", c.settings, c.orders, c.starts, whole)
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	// reads returns how many rows have to be read until the other store knows them.
	reads := func() int {
		t.Helper()
		known, since := stores[1].cache.knownSettings()
		n := 0
		err := stores[0].submit(ctx, &request{run: func(tx *tx) error {
			c := &rowCount{asker: tx}
			_, _, _, err := followSettings(c, known, since)
			n = c.rows
			return err
		}})
		if err != nil {
			t.Fatal(err)
		}
		look()
		return n
	}
	for i := range 50 {
		set(fmt.Sprint("q", i), int64(i+1))
	}
	reads()
	set("q8", 11)
	set("q52", 3)
	if n := reads(); n != 4 {
		t.Errorf("after two queues were set %d rows are read, want 4", n)
	}
	if n := reads(); n != 0 {
		t.Errorf("after nothing was set %d rows are read", n)
	}
	set("q9", 0)
	if n := reads(); n < 50 {
		t.Errorf("after one was taken back only %d rows are read", n)
	}
	set("q9", 5)
	set("q53", 6) // without an order, which takes nothing back
	if n := reads(); n != 3 {
		t.Errorf("after two queues were set %d rows are read, want 3", n)
	}
}
