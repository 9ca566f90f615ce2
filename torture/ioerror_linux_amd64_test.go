package torture_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whatever system call fails, and with whatever error, the program is told by
// an error with one of the sentinels, and goes on, at the latest after opening
// the queue again. Nothing is acknowledged that is not there.
//
//errand:shows [errors] | | system calls that write return ENOSPC or EIO: each sync and every fourth write once, or all calls from some call on
func TestIOErrors_Once(t *testing.T) {
	calls := rehearse(t, false)
	failures := 0
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		for _, at := range calls {
			if beside(at) || !full() && at.n%100 != 0 || *long == 0 && at.name == "pwrite64" && at.n%4 != 0 {
				continue
			}
			failures += failing(t, false, fmt.Sprintf("%v at %v", errno, at), func(c call) change {
				if c.n == at.n {
					return change{errno: errno}
				}
				return change{}
			})
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d steps failed", failures)
	if failures == 0 {
		t.Error("no step failed: this harness injects nothing")
	}
}

// A worker whose store has closed itself ends by itself, and with it a program
// that waits for it: another may begin.
func TestIOErrors_EndTheWorker(t *testing.T) {
	random := dice(t)
	rounds(t, 2, 20, func(int) {
		dir, n, nth := ramDir(t), 0, 10+random.IntN(40) // the first are of opening it
		l, path := newLedger(), filepath.Join(dir, "jobs.db")
		p := part{Role: "mix", DB: path, Jobs: -1, Senders: 1, Workers: 4, Seed: random.Uint64(), Handling: time.Millisecond, Fragile: true}
		status, _, said := trace(t, l, p, dir, func(c call) change {
			if c.name == "fsync" && strings.HasSuffix(c.path, "-wal") {
				n++
			}
			if n >= nth && c.name == "fsync" {
				return change{errno: syscall.EIO}
			}
			return change{}
		})
		if !status.Exited() || !slices.ContainsFunc(said, func(line string) bool { return strings.HasPrefix(line, "worker ended: ") }) {
			t.Errorf("EIO from sync %d on: the program ended with %d and said %q", nth, status, said)
		}
		reopen(t, path)
		l.audit(t, path).mustBeClean(t, "EIO from sync %d on", nth)
	})
}

// A job that is handed to a worker by a transaction that fails: nobody waits for
// that for ever, as they once did.
func TestIOErrors_HandedOff(t *testing.T) {
	for _, at := range rehearse(t, true) {
		if at.name != "fsync" || !strings.HasSuffix(at.path, "-wal") {
			continue
		}
		failing(t, true, fmt.Sprintf("EIO at %v", at), func(c call) change {
			if c.n == at.n {
				return change{errno: syscall.EIO}
			}
			return change{}
		})
	}
}

// The files beside the database hold nothing that lasts, but their errors are
// errors too.
func TestIOErrors_FilesBeside(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		for _, at := range rehearse(t, false) {
			if !beside(at) {
				continue
			}
			failing(t, false, fmt.Sprintf("%v at %v", errno, at), func(c call) change {
				if c.n == at.n {
					return change{errno: errno}
				}
				return change{}
			})
		}
	}
}

// A disk on which from some moment on no write or sync succeeds.
//
//errand:shows [errors]
func TestIOErrors_Lasting(t *testing.T) {
	calls := rehearse(t, false)
	step := 150
	if full() {
		step = 5
	}
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		for i := step / 2; i < len(calls); i += step {
			failing(t, false, fmt.Sprintf("%v from %v on", errno, calls[i]), func(c call) change {
				if c.n >= i && !beside(c) && !strings.HasPrefix(c.name, "unlink") {
					return change{errno: errno}
				}
				return change{}
			})
		}
	}
}

// A quota, or a file that may not become longer: for a while no write finds room,
// of the log, of the database or beside them. That is a full disk and nothing
// else, and the store stays open.
//
//errand:shows a quota | | EDQUOT and EFBIG count as a full disk: `ErrFull`, the ballast is given up, the store stays open
func TestIOErrors_Quota(t *testing.T) {
	calls := rehearse(t, false)
	step := 60
	if full() {
		step = 4
	}
	for _, errno := range []syscall.Errno{syscall.EDQUOT, syscall.EFBIG} {
		refused := 0
		for i := step / 2; i < len(calls); i += step {
			what := fmt.Sprintf("%v from %v on", errno, calls[i])
			p := part{Role: "scenario", DB: filepath.Join(ramDir(t), "jobs.db")}
			said := play(t, newLedger(), p, what, func(c call) change {
				during := c.n >= i && c.n < i+30 && !strings.HasSuffix(c.path, "-shm")
				if strings.Contains(c.name, "write") && (during || strings.HasSuffix(c.path, "-room")) {
					return change{errno: errno}
				}
				return change{}
			})
			for _, line := range said {
				switch {
				case strings.Contains(line, ": full: "):
					refused++
				case line != "complete":
					t.Errorf("%s: %s", what, line)
				}
			}
		}
		if t.Logf("%v: %d steps were refused", errno, refused); refused == 0 {
			t.Error("no step failed: this harness injects nothing")
		}
	}
}

// A write that is cut short is gone on with, as POSIX has it.
func TestIOErrors_ShortWrites(t *testing.T) {
	failed := failing(t, false, "all writes are short", func(c call) change {
		return change{torn: c.size > 1 && strings.Contains(c.name, "write") && !beside(c)}
	})
	if failed > 0 {
		t.Errorf("%d steps failed: want none", failed)
	}
}

// After a failed fsync nobody knows what is on the disk. Linux calls the pages
// clean that it could not write: they are still read as they should be, and a
// second fsync that succeeds does not write them. So the power is cut in the
// end, and what was never written again becomes zeros: nothing that was
// acknowledged after the failure may depend on it.
//
//errand:shows [sync] | | each sync fails, its data are lost, and the power is cut in the end
func TestIOErrors_SyncThenPowerCut(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	for name, restart := range map[string]bool{"OpenedAgain": false, "Restarted": true} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for _, at := range rehearse(t, false) {
				if at.name != "fsync" && at.name != "fdatasync" || strings.HasSuffix(at.path, "-journal") {
					continue
				}
				n++
				syncFails(t, at, restart)
				if t.Failed() {
					return
				}
			}
			t.Logf("%d failing syncs, each with a power cut", n)
		})
	}
}

func syncFails(t *testing.T, at call, restart bool) {
	d := newDisk(t, imageSize)
	defer d.unmount()
	l, path := newLedger(), filepath.Join(d.dir, "jobs.db")
	what := fmt.Sprintf("EIO at %v, and a power cut", at)
	lies := newCache()
	_, _, said := trace(t, l, part{Role: "scenario", DB: path, Fragile: restart, Abrupt: true}, d.dir, func(c call) change {
		return lies.see(c, c.n == at.n)
	})
	if len(said) > 0 && said[len(said)-1] != "complete" {
		what += ", with a restart before it"
		_, _, again := trace(t, l, part{Role: "scenario", DB: path, First: 1000, Short: true, Abrupt: true}, d.dir, func(c call) change { return lies.see(c, false) })
		said = append(said, again...)
	}
	if len(said) == 0 || said[len(said)-1] != "complete" {
		t.Errorf("%s: it said %q", what, said)
	}
	d.cut()
	d.unmount()
	d.mount()
	lies.reveal(t)
	reopen(t, path)
	l.audit(t, path).mustBeClean(t, "%s; %v was never written", what, lies)
}

// failing plays the scenario with errors, finishes what is left, and returns the
// number of steps that failed.
func failing(t *testing.T, handoff bool, what string, decide func(call) change) (failed int) {
	t.Helper()
	l, path := newLedger(), filepath.Join(ramDir(t), "jobs.db")
	said := play(t, l, part{Role: "scenario", DB: path, Handoff: handoff}, what, decide)
	finishAndCheck(t, l, path, what)
	return len(said) - 1
}

// play plays the scenario with errors, and returns what it said.
func play(t *testing.T, l *ledger, p part, what string, decide func(call) change) []string {
	t.Helper()
	status, _, said := trace(t, l, p, filepath.Dir(p.DB), decide)
	if !status.Exited() || status.ExitStatus() != 0 || len(said) == 0 || said[len(said)-1] != "complete" {
		t.Errorf("%s: it ended with %d and said %q", what, status, said)
	}
	for _, line := range said {
		if strings.Contains(line, ": untyped: ") {
			t.Errorf("%s: %s", what, line)
		}
	}
	reopen(t, p.DB)
	l.audit(t, p.DB).mustBeClean(t, "%s", what)
	return said
}

// beside reports whether a call is about a file beside the database, which
// nothing durable depends on, or about making that.
func beside(c call) bool {
	return !strings.HasSuffix(c.path, ".db") && !strings.HasSuffix(c.path, "-wal") && !strings.HasSuffix(c.path, "-shm") &&
		!strings.HasSuffix(c.path, "-journal") || c.name == "openat"
}
