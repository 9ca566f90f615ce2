package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

func (d *db) workersFile(s *sqlite.Store) string {
	return fmt.Sprintf("%s-workers-%d", d.path, s.InstanceNumber())
}

// showing opens a store that is registered and shows a document.
func (d *db) showing(doc string) *sqlite.Store {
	d.t.Helper()
	s := d.open()
	enqueue(d.t, s, "a", 1)
	lease(d.t, s, 1, "a")
	if err := s.Publish([]byte(doc)); err != nil {
		d.t.Fatal(err)
	}
	return s
}

// shown returns the documents that s finds.
func shown(t *testing.T, s *sqlite.Store) (docs []string) {
	t.Helper()
	all, err := s.Published(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		docs = append(docs, string(p.Doc))
	}
	return docs
}

func (d *db) leftovers(want int) {
	d.t.Helper()
	if left, err := filepath.Glob(d.path + "-workers-*"); err != nil || len(left) != want {
		d.t.Errorf("files %v (%v), want %d", left, err, want)
	}
}

// What a store shows is seen by itself also while it is registered: by who has read the instances just
// before, too.
func TestPublish_WhileItIsRegistered(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	if err := s.Publish([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, s); len(got) != 1 || got[0] != "one" {
		t.Errorf("before it is registered it shows %q", got)
	}
	enqueue(t, s, "a", 1)
	lease(t, s, 1, "a")
	raw := d.raw()
	defer raw.Close()
	row := `DELETE FROM errand_instance RETURNING instance, name, boot, lease, since`
	var values [5]any
	if err := raw.QueryRow(row).Scan(&values[0], &values[1], &values[2], &values[3], &values[4]); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, s); len(got) != 1 || got[0] != "one" {
		t.Errorf("without its row it shows %q", got)
	}
	if _, err := raw.Exec(`INSERT INTO errand_instance (instance, name, boot, lease, since) VALUES (?, ?, ?, ?, ?)`, values[:]...); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, s); len(got) != 1 || got[0] != "one" {
		t.Errorf("with its row it shows %q", got)
	}
	restore := s.Registering()
	if got := shown(t, s); len(got) != 1 || got[0] != "one" {
		t.Errorf("with its row, and without its number, it shows %q", got)
	}
	restore()
}

// The file with the document goes with the instance: with its Close, also while a
// handler runs, and with who finds the process gone.
func TestPublish_Files(t *testing.T) {
	d := newDB(t, nil)
	a, b, c := d.showing("one"), d.showing("two"), d.showing("three")
	d.leftovers(3)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	d.leftovers(2)
	enqueue(t, b, "a", 1)
	start(t, b, lease(t, b, 1, "a")...)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	d.leftovers(1)
	other := d.open()
	if got := shown(t, other); len(got) != 2 || got[0] != "" || got[1] != "three" {
		t.Errorf("shown is %q, want nothing of the first that lives, and three", got)
	}
	c.Kill()
	d.leftovers(1)
	reclaimed(t, other, 0)
	reclaimed(t, other, 0) // of an instance that holds nothing any more
	d.leftovers(0)
}

// An instance that was registered anew shows what it showed before, in another file.
func TestPublish_RegistersAnew(t *testing.T) {
	d := newDB(t, nil)
	a := d.showing("one")
	was := a.InstanceNumber()
	d.exec("DELETE FROM errand_instance WHERE instance = ?1", was)
	d.exec("UPDATE errand_number SET n = n + 1 WHERE id = 4")
	enqueue(t, a, "a", 1)
	lease(t, a, 1, "a")
	if a.InstanceNumber() == was {
		t.Fatal("the instance has its old number")
	}
	d.leftovers(1)
	if got := shown(t, d.open()); len(got) != 1 || got[0] != "one" {
		t.Errorf("shown is %q", got)
	}
}

// A document that is half written is not read; one of another database that was here
// before is deleted when its number is used again.
func TestPublish_Torn(t *testing.T) {
	d := newDB(t, nil)
	if err := os.WriteFile(d.path+"-workers-1", []byte("errand 1 00000000 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := d.open(), d.open()
	enqueue(t, a, "a", 1)
	lease(t, a, 1, "a")
	d.leftovers(0)
	if err := a.Publish([]byte("the document")); err != nil {
		t.Fatal(err)
	}
	file := d.workersFile(a)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(t, b); len(got) != 1 || got[0] != "the document" {
		t.Errorf("shown is %q", got)
	}
	for _, torn := range []string{
		"", "errand", strings.Replace(string(whole), "the", "thy", 1), string(whole[:len(whole)-4]), "errand 1 0 99999999999999999999\n", "errand 1 0 -1\n",
		strings.Replace(string(whole), " 12\n", " 11\n", 1),
	} {
		if err := os.WriteFile(file, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := shown(t, b); len(got) != 1 || got[0] != "" {
			t.Errorf("of %q %q is shown", torn, got)
		}
	}
}

// Of a single process nobody else could read the file, so there is none.
func TestPublish_SingleProcess(t *testing.T) {
	d := newDB(t, &sqlite.Options{SingleProcess: true})
	a := d.showing("one")
	d.leftovers(0)
	if got := shown(t, a); len(got) != 1 || got[0] != "one" {
		t.Errorf("shown is %q", got)
	}
}

// The doctor knows the files: those of processes that are gone are left over.
func TestPublish_Examine(t *testing.T) {
	d := newDB(t, nil)
	a := d.showing("one")
	if err := os.WriteFile(d.path+"-workers-77", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d.workersFile(a), 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := sqlite.Examine(t.Context(), d.path, false, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var modes, left []string
	for _, f := range found {
		switch f.Check {
		case "modes":
			modes = append(modes, f.Text)
		case "leftovers":
			left = append(left, f.Remedy)
		}
	}
	if len(modes) != 1 || !strings.HasPrefix(modes[0], filepath.Base(d.workersFile(a))) {
		t.Errorf("modes: %q", modes)
	}
	if len(left) != 1 || left[0] != "rm jobs.db-workers-77" {
		t.Errorf("leftovers: %q", left)
	}
}

// Ahead passes over as many rows as it was told, however many there are.
func TestAhead_Many(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	s := d.open()
	ids := enqueue(t, s, "a", 20_000)
	got, err := s.Ahead(t.Context(), ids[len(ids)-1].ID, 1000)
	if want := (storage.Ahead{N: 1000, More: true}); err != nil || got != want {
		t.Errorf("Ahead returned %+v, %v, want %+v", got, err, want)
	}
}
