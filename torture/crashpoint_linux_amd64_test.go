package torture_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// At whatever system call a process is killed, or halfway through a write,
// what it had acknowledged is there, nothing is made up, and the next process
// finishes the work. The scenario makes every transition that there is.
//
//errand:shows [points] | | killed at each system call that writes, and halfway through each write
func TestCrashPoints_Killed(t *testing.T) {
	calls := rehearse(t, true)
	every := 60
	if full() {
		every = 1
	}
	points := 0
	for i := 0; i < len(calls); i += every {
		for _, torn := range []bool{false, true} {
			if torn && !strings.Contains(calls[i].name, "write") {
				continue
			}
			points++
			crash(t, calls[i], torn)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d points of %d system calls", points, len(calls))
}

// The same with the power cut where it matters most: before and after each sync.
//
//errand:shows [cut-points] | | the disk is cut off before and after each sync
func TestCrashPoints_PowerCut(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	calls := rehearse(t, true)
	points := 0
	for i, c := range calls {
		before, after := strings.Contains(c.name, "sync"), i > 0 && strings.Contains(calls[i-1].name, "sync")
		if !before && !after && (*long == 0 || i%3 != 0) {
			continue
		}
		points++
		d := newDisk(t, imageSize)
		l, path := newLedger(), filepath.Join(d.dir, "jobs.db")
		what := fmt.Sprintf("power cut at %v", c)
		status, _, said := trace(t, l, part{Role: "scenario", DB: path, Handoff: true, Boot: "before the cut"}, d.dir, func(at call) change {
			return change{kill: at.n == c.n, then: d.cut}
		})
		if !status.Signaled() || len(said) > 0 {
			t.Errorf("%s: it ended with %d and said %q", what, status, said)
		}
		d.unmount()
		d.mount()
		reopen(t, path)
		l.audit(t, path).mustBeClean(t, "%s", what)
		finishAndCheck(t, l, path, what)
		if all := l.crashed(); len(all) > 0 {
			t.Errorf("%s: blamed for it: %v", what, all)
		}
		d.unmount()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d points of %d system calls", points, len(calls))
}

// skipUnderRace skips a test with a child that is traced, but for the full run: the race detector
// makes such a child slow, and the child has no races of its own.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if raced && !full() {
		t.Skip("a traced child under the race detector is slow, and has no races of its own")
	}
}

// rehearse plays the scenario undisturbed, and returns its system calls.
func rehearse(t *testing.T, handoff bool) []call {
	t.Helper()
	skipUnderRace(t)
	dir := ramDir(t)
	l, path := newLedger(), filepath.Join(dir, "jobs.db")
	status, calls, said := trace(t, l, part{Role: "scenario", DB: path, Handoff: handoff}, dir, func(call) change { return change{} })
	if fmt.Sprint(said) != "[complete]" {
		t.Fatalf("undisturbed, the scenario ends with %d and says %q", status, said)
	}
	enqueued, done := 14, 8
	if handoff {
		enqueued, done = 15, 9
	}
	all := fmt.Sprintf("enqueued %d, ticked 1, done %d, cancelled 1, retried 1, snoozed 1, interrupted 3, dead 2, redriven 1, cancelled while waiting 1", enqueued, done)
	if l.verbs() != all {
		t.Fatalf("undisturbed, the scenario comes to: %s: want %s", l.verbs(), all)
	}
	finishAndCheck(t, l, path, "undisturbed")
	return calls
}

// crash plays the scenario up to a call.
func crash(t *testing.T, at call, torn bool) {
	t.Helper()
	dir := ramDir(t)
	l, path := newLedger(), filepath.Join(dir, "jobs.db")
	what := fmt.Sprintf("killed at %v", at)
	if torn {
		what += ", halfway"
	}
	status, _, said := trace(t, l, part{Role: "scenario", DB: path, Handoff: true}, dir, func(c call) change {
		return change{kill: c.n == at.n, torn: c.n == at.n && torn}
	})
	if !status.Signaled() || status.Signal() != syscall.SIGKILL || len(said) > 0 {
		t.Errorf("%s: it ended with %d and said %q", what, status, said)
	}
	reopen(t, path)
	l.audit(t, path).mustBeClean(t, "%s", what)
	finishAndCheck(t, l, path, what)
}

// finishAndCheck finishes what is left, as the next program would.
func finishAndCheck(t *testing.T, l *ledger, path, what string) {
	t.Helper()
	if err := drain(l, path); err != nil {
		t.Errorf("%s: going on: %v", what, err)
	}
	l.audit(t, path).mustBeClean(t, "%s, and gone on", what)
	db, err := raw(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left, holders int
	if err := db.QueryRow("SELECT (SELECT COUNT(*) FROM errand_job), (SELECT COUNT(*) FROM errand_instance)").Scan(&left, &holders); err != nil || left+holders > 0 {
		t.Errorf("%s, and gone on: %d jobs and %d instances are left, %v", what, left, holders, err)
	}
}
