package main

import (
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	queue "github.com/errandq/errand"
)

var update = flag.Bool("update", false, "write the golden files of the doctor anew")

type job struct{}

func (job) Kind() string { return "job" }

// database makes one with some jobs, and returns its path and the open queue.
func database(t *testing.T) (string, *queue.Queue) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := queue.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	for range 500 {
		if _, err := q.Enqueue(t.Context(), job{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return path, q
}

func closed(t *testing.T) string {
	t.Helper()
	path, q := database(t)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func change(t *testing.T, path string, texts ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range texts {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
}

// list returns what files there are, and unless only their names are asked for,
// when they were changed.
func list(t *testing.T, path string, names bool) (all string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if names {
			all += e.Name() + "\n"
			continue
		}
		all += fmt.Sprintln(e.Name(), info.Mode(), info.Size(), info.ModTime())
	}
	return all
}

// plain leaves out what differs between machines and runs.

func plain(out string) string {
	for _, r := range [][2]string{
		{`(?m)^(ok|warning) +free space .*\n(\s+->.*\n)?`, ""},
		{`(?m)^(ok|note|warning|error) +file system .*\n(\s+->.*\n)?`, ""},
		{`(sqlite +)[\d.]+`, "${1}VERSION"},
		{`[\d]+ KiB`, "N KiB"},
		{`\S+/\d+/(\d+)`, "HOST/PID/$1"},
		{`20\d\d-\S+Z`, "TIME"},
		{`, \S+ ahead`, ", AHEAD ahead"},
		{`(?m)(quick_check|integrity_check): .*(Tree|page|row|Page|malformed).*`, "$1: WHAT"},
		{` {2,}`, "  "},
	} {
		out = regexp.MustCompile(r[0]).ReplaceAllString(out, r[1])
	}
	return out
}

//errand:shows the doctor | | it counts jobs by state, advises nothing on modes for a file that is no database, and warns of a database that everybody can write, not of one that everybody can read
func TestDoctor(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are not the same there")
	}
	for name, c := range map[string]struct {
		status int
		args   []string
		make   func(t *testing.T) string
	}{
		"in-use":    {0, nil, func(t *testing.T) string { path, _ := database(t); return path }},
		"closed":    {0, []string{"--full"}, closed},
		"neglected": {1, nil, neglected},
		"not-in-wal-mode": {1, nil, func(t *testing.T) string {
			path := closed(t)
			change(t, path, "PRAGMA journal_mode = delete")
			return path
		}},
		"readable-to-all": {0, nil, func(t *testing.T) string {
			path := closed(t)
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		"writable-to-all": {1, nil, func(t *testing.T) string {
			path := closed(t)
			for _, suffix := range []string{"", "-ballast", "-turn"} {
				if err := os.Chmod(path+suffix, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			return path
		}},
		"damaged": {1, nil, func(t *testing.T) string {
			path := closed(t)
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			for at := int64(60 * 4096); at < info.Size(); at += 4096 {
				if _, err := f.WriteAt([]byte(strings.Repeat("noise", 100)), at); err != nil {
					t.Fatal(err)
				}
			}
			return path
		}},
		"counts": {1, nil, func(t *testing.T) string {
			path := closed(t)
			change(t, path, "UPDATE errand_number SET n = n + 1 WHERE id >= 32")
			return path
		}},
		"not-a-database": {1, nil, func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "jobs.db")
			if err := os.WriteFile(path, []byte(strings.Repeat("text", 100)), 0o644); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		"empty": {1, nil, func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "jobs.db")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		"of-others": {1, nil, func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "jobs.db")
			change(t, path, "CREATE TABLE theirs (x)")
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		"copied-with-its-log": {0, nil, func(t *testing.T) string {
			from, _ := database(t)
			path := filepath.Join(t.TempDir(), "jobs.db")
			for _, suffix := range []string{"", "-wal"} {
				b, err := os.ReadFile(from + suffix)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path+suffix, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			return path
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.make(t)
			before := list(t, path, name == "in-use") // whose log is moved in a pause
			status, out, errs := errand(t, "", append([]string{"doctor", path}, c.args...)...)
			if strings.Contains(out, "which is in memory") { // where tests keep their files
				c.status = 1
			}
			if status != c.status || errs != "" {
				t.Errorf("status %d, %q: want %d", status, errs, c.status)
			}
			if after := list(t, path, name == "in-use"); after != before {
				t.Errorf("files before\n%sand after\n%s", before, after)
			}
			golden := filepath.Join("testdata", "doctor", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(plain(out)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got := plain(out); got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// neglected is a database with all that is wrong and can be mended.
func neglected(t *testing.T) string {
	path := closed(t)
	now := time.Now().Add(48 * time.Hour).UnixMicro()
	change(t, path,
		"INSERT INTO errand_instance VALUES (7, 'host/1/7', 'boot', 1, 1), (8, 'host/1/8', 'boot', 1, 1), (9, 'host/1/9', 'boot', 1, 1)",
		"UPDATE errand_job SET state = 3, instance = 7, token = id, until = 1 WHERE id <= 3",
		"UPDATE errand_job SET state = 3, instance = 9, token = id, until = 1 WHERE id = 4",
		"UPDATE errand_number SET n = n - 4 WHERE id = 32 + 2",
		fmt.Sprintf("UPDATE errand_number SET n = %d WHERE id = 5", now))
	for name, mode := range map[string]os.FileMode{"-instance-99": 0o600, "-wake": 0o644} {
		if err := os.WriteFile(path+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path+name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(path+"-ballast", 0); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDoctor_CannotLook(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{filepath.Join(dir, "no.db")}, {dir}, {}, {"a", "b"}} {
		status, out, errs := errand(t, "", append([]string{"doctor"}, args...)...)
		if status != 2 || out != "" || errs == "" {
			t.Errorf("%v: status %d, %q, %q: want 2", args, status, out, errs)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("files %v were made (%v)", files, err)
	}
}

func TestDoctor_JSON(t *testing.T) {
	path := neglected(t)
	status, out, errs := errand(t, "", "doctor", "--json", path)
	var got struct {
		File     string
		Findings []struct{ Check, Severity, Text, Remedy string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 1 || errs != "" {
		t.Fatalf("status %d, %v, %s", status, err, errs)
	}
	bad := 0
	for _, f := range got.Findings {
		if (f.Severity == "warning" || f.Severity == "error") && f.Check != "free space" && f.Check != "file system" {
			bad++
			if f.Remedy == "" {
				t.Errorf("%s: no remedy for %q", f.Check, f.Text)
			}
		}
	}
	if got.File != path || bad != 5 {
		t.Errorf("%s: %d bad findings of %v, want 5", got.File, bad, got.Findings)
	}
}
