package torture_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage/sqlite"
)

func init() { roles["first"] = firstStart }

// firstStart is a program that makes its queue.
func firstStart(p part, v *voice) error {
	s, err := openOwn(p.DB)
	if err == nil {
		err = s.Close()
	}
	if err == nil {
		v.say("complete")
	}
	return err
}

func openOwn(path string) (*sqlite.Store, error) {
	return sqlite.Open(path, &sqlite.Options{Own: true, Logger: slog.New(slog.DiscardHandler), BusyTimeout: 500 * time.Millisecond})
}

// At whatever system call a first start is cut off, or halfway through a write, the next one
// takes the file over. So a program that is started again and again comes up.
//
//errand:shows a first start that was cut off, opened again with `Own` | | killed at each system call that writes, and halfway through each write: the next start makes the queue
func TestCrashPoints_FirstStart(t *testing.T) {
	skipUnderRace(t)
	dir := ramDir(t)
	_, calls, said := trace(t, newLedger(), part{Role: "first", DB: filepath.Join(dir, "jobs.db")}, dir, func(call) change { return change{} })
	if fmt.Sprint(said) != "[complete]" {
		t.Fatalf("undisturbed, the first start says %q", said)
	}
	every, points := 4, 0
	if full() {
		every = 1
	}
	for i := 0; i < len(calls) && !t.Failed(); i += every {
		for _, torn := range []bool{false, true} {
			if torn && !strings.Contains(calls[i].name, "write") {
				continue
			}
			points++
			firstCrash(t, calls[i], torn)
		}
	}
	t.Logf("%d points of %d system calls", points, len(calls))
}

func firstCrash(t *testing.T, at call, torn bool) {
	t.Helper()
	dir := ramDir(t)
	path, what := filepath.Join(dir, "jobs.db"), fmt.Sprintf("killed at %v, halfway: %t", at, torn)
	status, _, _ := trace(t, newLedger(), part{Role: "first", DB: path}, dir, func(c call) change {
		return change{kill: c.n == at.n, torn: c.n == at.n && torn}
	})
	if !status.Signaled() {
		t.Errorf("%s: it ended with %d", what, status)
	}
	s, err := openOwn(path)
	if err != nil {
		t.Errorf("%s: the next start: %v", what, err)
		return
	}
	if err := s.Close(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	// And the tables are whole.
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRow("SELECT count(*) FROM errand_job").Scan(&n); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}
