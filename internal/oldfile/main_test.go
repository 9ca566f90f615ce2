package main

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/migrations"
	"github.com/errandq/errand/storage/sqlite"
)

const repository = "../.."

// asProgram is set for a process that is to be killed while its jobs run.
const asProgram = "ERRAND_OLDFILE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// since returns the lines of a text that a schema has. Before others is the number of the
// first schema that has them.
func since(schema int, text string) string {
	var have strings.Builder
	for line := range strings.Lines(strings.TrimPrefix(text, "\n")) {
		n, rest, numbered := strings.Cut(line, ": ")
		first, err := strconv.Atoi(n)
		switch {
		case !numbered || err != nil:
			have.WriteString(line)
		case schema >= first:
			have.WriteString(rest)
		}
	}
	return have.String()
}

// worked is what is in a file a month after it was filled, and n times worked on.
func worked(schema, n int) string {
	ticks := n
	if schema >= 2 {
		ticks++ // that of the start
	}
	return fmt.Sprintf(`cancelled default cancelled 1
dies default done 2
expires default expired 1
held default done 1
keeps default done 2
later default scheduled 1
news news done 2
ordered orders done 3
plain default done 3
retries default done 1
runs default done 1
tick default done %d
topic webhook/shop done 1
`, ticks)
}

// A file of each schema, left by the last build of it, is opened with all that is in it, and worked
// on to its end.
//
//errand:shows files of older versions | | a file that each schema's last build has left is opened with all that is in it, examined as by errand doctor --full, and worked on to its end
func TestFiles(t *testing.T) {
	want, err := os.ReadFile("testdata/filled.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range builds {
		t.Run(strconv.Itoa(b.schema), func(t *testing.T) {
			t.Parallel() // most of the time leases of a process that is gone are waited for
			path := filepath.Join(t.TempDir(), "jobs.db")
			unzip(t, fmt.Sprintf("testdata/%d.db.gz", b.schema), path)
			if got := schemaOf(t, path); got != b.schema {
				t.Fatalf("it has schema %d", got)
			}
			if got, want := described(t, path), since(b.schema, string(want)); got != want {
				t.Errorf("it has\n%swant\n%s", got, want)
			}
			examine(t, path, 29, "instances") // whose jobs run
			for n := 1; n <= 2; n++ {
				if got, err := work(t.Context(), path, 30*n); err != nil || got != worked(b.schema, n) {
					t.Errorf("worked on, it has %v\n%swant\n%s", err, got, worked(b.schema, n))
				}
				examine(t, path, 30*n)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.db.gz")
	if last := newest(t); err != nil || len(files) != last || builds[len(builds)-1].schema != last {
		t.Errorf("there are %v, %v: want a file of each schema up to %d, see builds", files, err, last)
	}
}

// A build of before an upgrade works on a file of this build, or refuses it. This build
// opens the file afterwards.
//
//errand:shows files of newer versions | | the last build of the schema before works on a file of this build, and this build goes on; a build that cannot write it refuses it with the text of ErrTooNew, and leaves it as it is
func TestBuildBefore(t *testing.T) {
	if testing.Short() || strconv.IntSize == 32 {
		t.Skip("builds errand from older commits: not with -short, and once is enough")
	}
	path := filled(t)
	least := number(t, path, "SELECT n FROM errand_number WHERE id = 0") // who writes it must know this schema
	last := newest(t)
	for _, b := range builds {
		works := b.schema >= least
		if b.schema != last-1 && b.schema != least-1 {
			continue
		}
		t.Run(strconv.Itoa(b.schema), func(t *testing.T) {
			if out, err := exec.CommandContext(t.Context(), "git", "-C", repository, "cat-file", "-e", b.commit+"^{commit}").CombinedOutput(); err != nil {
				t.Skipf("the history here has no commit %s: %v %s", b.commit, err, out)
			}
			program, err := build(t.Context(), repository, t.TempDir(), b.schema, b.commit)
			if err != nil {
				t.Fatal(err)
			}
			path := filled(t)
			before := described(t, path)
			out, err := exec.CommandContext(t.Context(), program, "work", path, "30").CombinedOutput()
			n := 1
			if works {
				if want := worked(last, 1); err != nil || string(out) != want {
					t.Errorf("it has worked: %v\n%swant\n%s", err, out, want)
				}
				n++
			} else {
				if want := errand.ErrTooNew.Error(); err == nil || !strings.Contains(string(out), want) {
					t.Errorf("it says %v, %q: want %q", err, out, want)
				}
				if after := described(t, path); after != before {
					t.Errorf("it has left\n%swant\n%s", after, before)
				}
			}
			if works {
				examine(t, path, 30)
			} else {
				examine(t, path, 30, "instances") // as it was killed when it was filled
			}
			if got, err := work(t.Context(), path, 60); err != nil || got != worked(last, n) {
				t.Errorf("this build has worked: %v\n%swant\n%s", err, got, worked(last, n))
			}
			examine(t, path, 60)
		})
	}
}

// filled makes a file by this build.
func filled(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jobs.db")
	c := exec.CommandContext(t.Context(), exe, "fill", path)
	c.Env = append(os.Environ(), asProgram+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func unzip(t *testing.T, from, to string) {
	t.Helper()
	packed, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if len(packed) > 50<<10 {
		t.Errorf("%s has %d bytes: want at most 50 KiB", from, len(packed))
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newest is the schema of this build.
func newest(t *testing.T) int {
	t.Helper()
	files, err := migrations.SQLite.ReadDir("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func schemaOf(t *testing.T, path string) int {
	t.Helper()
	return number(t, path, "SELECT MAX(version) FROM errand_migration")
}

func number(t *testing.T, path, query string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.QueryRowContext(t.Context(), query).Scan(&n), db.Close()); err != nil {
		t.Fatal(err)
	}
	return n
}

// examine is errand doctor --full. It may find something about what is named.
func examine(t *testing.T, path string, days int, about ...string) {
	t.Helper()
	found, err := sqlite.Examine(t.Context(), path, true, filledAt.AddDate(0, 0, days).Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Bad() && !slices.Contains(about, f.Check) {
			t.Errorf("after %d days: %s: %s", days, f.Check, f.Text)
		}
	}
}

// described says what is in a file.
func described(t *testing.T, path string) string {
	t.Helper()
	q, err := open(t.Context(), path, 29, func() time.Duration { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	text, err := describe(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(text)
	return strings.Join(text, "")
}
