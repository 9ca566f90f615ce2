//go:build unix

package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand/storage/sqlite"
)

// Names come from others: none of them reaches a terminal, or a shell, as more
// than a name.
//
//errand:shows names of others in the doctor's output | | names that cannot be printed are quoted, and commands for copying are quoted for a shell
func TestExamine_NamesOfOthers(t *testing.T) {
	d := &db{t, filepath.Join(t.TempDir(), "it's $(mine).db"), nil}
	if err := d.open().Close(); err != nil {
		t.Fatal(err)
	}
	const evil = "\x1b]0;owned\a\x1b[2J\nok integrity"
	d.exec("INSERT INTO errand_instance VALUES (3, ?1, 'boot', 1, 1)", evil)
	for _, suffix := range []string{"-instance-8", "-instance-7;touch owned", "-instance-6" + evil, "-instance-09", "-instance-+9"} {
		if err := os.WriteFile(d.path+suffix, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d.path+suffix, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	found, err := sqlite.Examine(context.Background(), d.path, false, t0)
	if err != nil {
		t.Fatal(err)
	}
	name, remedies := false, []string{}
	for _, f := range found {
		if strings.ContainsAny(f.Text+f.Remedy, "\x1b\a\n") || strings.Contains(f.Text+f.Remedy, "touch") {
			t.Errorf("%q, %q", f.Text, f.Remedy)
		}
		name = name || strings.Contains(f.Text, `"\x1b]0;owned\a\x1b[2J\nok integrity" is gone`)
		if strings.HasPrefix(f.Remedy, "chmod") || strings.HasPrefix(f.Remedy, "rm") {
			remedies = append(remedies, f.Remedy)
		}
	}
	if !name {
		t.Errorf("%+v: want the name of the instance, quoted", found)
	}
	const quoted = `'it'\''s $(mine).db-instance-8'`
	if len(remedies) != 2 || remedies[0] != "chmod 600 "+quoted || remedies[1] != "rm "+quoted {
		t.Errorf("remedies %q, want those of instance 8, quoted for a shell", remedies)
	}
}

// What errand and SQLite cannot have made is an error of its own. Nothing is read by it, and
// no command that would follow a link, such as chmod, is proposed for it.
func TestExamine_FilesOfOthers(t *testing.T) {
	sqlites := []string{"-wal", "-shm", "-journal"}
	for _, end := range append(sqlites, "-turn", "-wake", "-ballast", "-room", "-check", "-instance-7", "-workers-7") {
		for what, put := range map[string]func(victim, path string) error{
			"is a symbolic link": os.Symlink, "has 2 names (hard links)": os.Link,
			"is a directory": func(_, path string) error { return os.Mkdir(path, 0o700) },
		} {
			d := newDB(t, nil)
			victim := filepath.Join(t.TempDir(), "victim")
			err := errors.Join(d.open().Close(), os.RemoveAll(d.path+end), os.WriteFile(victim, []byte("of others"), 0o400), put(victim, d.path+end))
			if err != nil {
				t.Fatal(err)
			}
			found, err := sqlite.Examine(context.Background(), d.path, true, t0)
			want := sqlite.Finding{
				Check: "files", Severity: sqlite.SeverityError, Remedy: "move it away",
				Text: filepath.Base(d.path) + end + " " + what + ": must be a regular file of one name, that errand has made",
			}
			if strings.HasPrefix(what, "has") && slices.Contains(sqlites, end) { // it may be the log
				want.Remedy = "remove all its names but this one"
			}
			if err != nil || !slices.Contains(found, want) || has(found, "modes", sqlite.SeverityWarning) || has(found, "reading", sqlite.SeverityError) {
				t.Errorf("the doctor says %+v (%v), want %+v and nothing of its mode", found, err, want)
			}
		}
	}
}

// Advice on modes is for file systems that have them.
func TestExamine_Modes(t *testing.T) {
	for name, want := range map[string]bool{"ext4": true, "vfat": false} {
		sqlite.FileSystem(t, name)
		d := newDB(t, nil)
		if err := d.open().Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d.path+"-turn", 0o640); err != nil {
			t.Fatal(err)
		}
		found, err := sqlite.Examine(context.Background(), d.path, false, t0)
		if err != nil || has(found, "modes", sqlite.SeverityWarning) != want {
			t.Errorf("%s: the doctor says %v (%v): about modes %t", name, found, err, want)
		}
	}
}
