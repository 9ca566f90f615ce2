package sqlite_test

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage/sqlite"
)

// The versions that are written down are those of the module graph.
func TestLibraries_Known(t *testing.T) {
	list := func(format, module string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", format, module).Output()
		if err != nil {
			t.Fatalf("go list -m %s: %v", module, err)
		}
		return strings.TrimSpace(string(out))
	}
	version, file, _ := strings.Cut(list("{{.Version}} {{.GoMod}}", "modernc.org/sqlite"), " ")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?m)^\s*modernc\.org/libc (v\S+)`).FindSubmatch(text)
	if named == nil {
		t.Fatalf("%s names no modernc.org/libc", file)
	}
	libc := string(named[1])
	if sqlite.KnownSQLite != version || sqlite.KnownLibc != libc {
		t.Errorf("conn.go knows modernc.org/sqlite %s with modernc.org/libc %s, want %s with %s", sqlite.KnownSQLite, sqlite.KnownLibc, version, libc)
	}
	if built := list("{{.Version}}", "modernc.org/libc"); built != libc {
		t.Errorf("go.mod has modernc.org/libc %s, want %s", built, libc)
	}
}

// Another libc than that of this SQLite is warned of at Open and by the doctor. Where the right one is not
// known, nothing is said.
func TestLibraries(t *testing.T) {
	sqliteAt := func(version string) *debug.Module { return &debug.Module{Path: "modernc.org/sqlite", Version: version} }
	libcAt := func(version string) *debug.Module { return &debug.Module{Path: "modernc.org/libc", Version: version} }
	for name, c := range map[string]struct {
		modules []*debug.Module
		warned  bool
	}{
		"as named":         {[]*debug.Module{libcAt(sqlite.KnownLibc), sqliteAt(sqlite.KnownSQLite)}, false},
		"another":          {[]*debug.Module{libcAt("v1.99.0"), sqliteAt(sqlite.KnownSQLite)}, true},
		"replaced":         {[]*debug.Module{{Path: "modernc.org/libc", Version: sqlite.KnownLibc, Replace: libcAt("v1.99.0")}, sqliteAt(sqlite.KnownSQLite)}, true},
		"a folder":         {[]*debug.Module{{Path: "modernc.org/libc", Version: sqlite.KnownLibc, Replace: libcAt("")}, sqliteAt(sqlite.KnownSQLite)}, false},
		"of another":       {[]*debug.Module{libcAt("v1.99.0"), sqliteAt("v1.99.0")}, false},
		"no build info":    {nil, false},
		"no libc is known": {[]*debug.Module{sqliteAt(sqlite.KnownSQLite)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			sqlite.BuiltWith(t, c.modules...)
			const text = "modernc.org/libc v1.99.0: must be " + sqlite.KnownLibc
			if _, _, err := sqlite.Libraries(); (err != nil) != c.warned {
				t.Errorf("Libraries: %v, want a warning: %t", err, c.warned)
			}
			var said bytes.Buffer
			d := newDB(t, &sqlite.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
			app := appDB(t, "file:"+d.path+"?_pragma=journal_mode(wal)&_txlock=immediate")
			n := 0
			for _, open := range []func() (*sqlite.Store, error){
				func() (*sqlite.Store, error) { return sqlite.Open(d.path, d.opts) },
				func() (*sqlite.Store, error) { return sqlite.New(app, d.opts) },
				func() (*sqlite.Store, error) {
					return sqlite.Open(d.path, &sqlite.Options{ReadOnly: true, Logger: d.opts.Logger})
				},
			} {
				s, err := open()
				if err == nil {
					err = s.Close() // after which the log is written
				}
				if err != nil {
					t.Fatal(err)
				}
				if c.warned {
					n++
				}
				if got := strings.Count(said.String(), "level=WARN msg=\"errand: the program was built with another modernc.org/libc than modernc.org/sqlite names\" error=\""+text); got != n {
					t.Errorf("%d lines after %d were to come: %s", got, n, &said)
				}
			}
			found, err := sqlite.Examine(t.Context(), d.path, false, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			warned := false
			for _, f := range found {
				warned = warned || f.Check == "libc" && f.Severity == sqlite.SeverityWarning && strings.HasPrefix(f.Text, text)
			}
			if warned != c.warned {
				t.Errorf("doctor: %+v, want a warning: %t", found, c.warned)
			}
			if err := app.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
