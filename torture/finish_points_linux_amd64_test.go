package torture_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/errandq/errand"
)

// At whatever system call a process is killed, or halfway through a write, while its
// handlers end their jobs with transactions of their own: a job is done if and only if its
// row is there, at once and when the next process has gone on.
func TestCrashPoints_Finish(t *testing.T) {
	skipUnderRace(t)
	for name, jobs := range map[string][]int{"Finish": {0, 4, 20}, "CompleteTx in a transaction of the application": {2, 6, 10, 30}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			every := 25
			if full() {
				every = 1
			}
			calls := crashTill(t, jobs, call{}, false).calls
			points, missed := 0, 0
			var left []*crashedTill // jobs that have crashed at once run again after a second
			for i := 0; i < len(calls); i += every {
				for _, torn := range []bool{false, true} {
					if torn && !strings.Contains(calls[i].name, "write") {
						continue
					}
					c := crashTill(t, jobs, calls[i], torn)
					if points++; c.missed {
						missed++
					}
					if left = append(left, c); len(left) > 10 {
						left[0].goOn(t)
						left = left[1:]
					}
				}
				if t.Failed() {
					return
				}
			}
			for _, c := range left {
				c.goOn(t)
			}
			if missed > points/2 {
				t.Errorf("%d of %d points were not reached", missed, points)
			}
			t.Logf("%d points of %d system calls, and %d that were not reached", points-missed, len(calls), missed)
		})
	}
}

// crashedTill is what a till has left behind that was killed at a system call.
type crashedTill struct {
	part
	what   string
	calls  []call
	missed bool // it has made fewer calls, which is chance
	books  *books
}

// crashTill has a till end the jobs with these numbers, which differ in their manners, and
// kills it at a call; none if that is zero.
func crashTill(t *testing.T, numbers []int, at call, torn bool) *crashedTill {
	t.Helper()
	dir := ramDir(t)
	c := &crashedTill{part: part{Role: "till", DB: filepath.Join(dir, "jobs.db"), Finish: true}, what: "undisturbed"}
	q, err := errand.Open(t.Context(), c.DB, groupOptions(false))
	if err != nil {
		t.Fatal(err)
	}
	makeReceipts(t, q)
	c.books = newBooks(t, c.DB)
	c.books.enqueue(q, newCharges(forNothing, numbers...), numbers)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	killed := false
	status, calls, said := trace(t, newLedger(), c.part, dir, func(now call) change {
		if now.n != at.n {
			return change{}
		}
		killed, c.what = true, "killed at "+now.String()
		return change{kill: true, torn: torn}
	})
	c.calls, c.missed = calls, at.n > 0 && !killed
	if torn && killed {
		c.what += ", halfway"
	}
	if ended := slices.Contains(said, "complete"); ended == killed || killed && status.Signal() != syscall.SIGKILL {
		t.Errorf("%s: it ended with %d and said %q", c.what, status, said)
	}
	c.books.hear(said...)
	c.books.mustMatch("%s", c.what)
	return c
}

// goOn goes on as the next program would.
func (c *crashedTill) goOn(t *testing.T) {
	t.Helper()
	var heard lines
	if err := runTill(c.part, &voice{out: &heard}); err != nil {
		t.Errorf("%s, and gone on: %v", c.what, err)
	}
	c.books.hear(heard...)
	if n, _ := c.books.mustMatch("%s, and gone on", c.what); n != len(c.books.jobs) {
		t.Errorf("%s, and gone on: %d of %d jobs are done", c.what, n, len(c.books.jobs))
	}
	wantRules(t, c.DB)
	c.books.mustTotal(c.DB)
	_ = c.books.db.Close()
	_ = os.RemoveAll(filepath.Dir(c.DB)) // there are many of them
}

// lines keep what a program says in this process.
type lines []string

func (l *lines) Write(b []byte) (int, error) {
	*l = append(*l, strings.Split(strings.TrimSpace(string(b)), "\n")...)
	return len(b), nil
}
