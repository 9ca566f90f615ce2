//go:build unix

package torture_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// child is a process of the test.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	said   chan string // what was not for the ledger, in part
	kept   []string    // all lines of that which begin so, once it has ended
	ended  chan error  // of its output
	over   bool
	state  *os.ProcessState
	faulty atomic.Bool // something was done to it that may cost it its leases
}

// start starts a child that plays a part; what it says goes to the ledger.
func start(t *testing.T, l *ledger, p part) *child {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(exe), said: make(chan string, 10_000), ended: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), partEnv+"="+string(text))
	c.cmd.Stderr = t.Output() // not go test's own: whoever is left stopped would hold that open
	if p.Boot != "" {
		ownMounts(c.cmd)
	}
	if _, err := c.cmd.StdinPipe(); err != nil { // its end ends the child
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.ended <- l.read(c, out, func(line string) {
			if strings.HasPrefix(line, "kept ") {
				c.kept = append(c.kept, line)
			}
			select {
			case c.said <- line:
			default: // nobody waits for so much
			}
		})
		close(c.said)
	}()
	t.Cleanup(func() { c.kill() })
	return c
}

// kill kills the process with all that it was about to do, and waits until all
// that it has said is in the ledger.
func (c *child) kill() {
	if c.over {
		return
	}
	c.faulty.Store(true)
	_ = c.cmd.Process.Kill() // it may have ended by itself
	c.reap()
}

// reap waits for the end of the process and of its words.
func (c *child) reap() {
	c.t.Helper()
	if err := <-c.ended; err != nil {
		c.t.Errorf("what a child said: %v", err)
	}
	_ = c.cmd.Wait() // how it ended is in state
	c.state, c.over = c.cmd.ProcessState, true
}

// finish waits for a child that ends by itself, and well.
func (c *child) finish(limit time.Duration) {
	c.t.Helper()
	timer := time.AfterFunc(limit, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) }) // shows where it hangs
	defer timer.Stop()
	c.reap()
	if !c.state.Success() {
		c.t.Fatalf("a child that was to end in %v: %v", limit, c.state)
	}
}

// finishSoon asks a child to end, and waits.
func (c *child) finishSoon(limit time.Duration) {
	c.t.Helper()
	c.signal(syscall.SIGTERM)
	c.finish(limit)
}

// hears waits until the child says a line with this beginning, and returns the
// rest of it.
func (c *child) hears(begin string) string {
	c.t.Helper()
	return c.hearsWithin(2*time.Minute, begin)
}

func (c *child) hearsWithin(d time.Duration, begin string) string {
	c.t.Helper()
	limit := time.After(d)
	for {
		select {
		case line, ok := <-c.said:
			if !ok {
				c.t.Fatalf("a child has ended and not said %q", begin)
			}
			if rest, found := strings.CutPrefix(line, begin); found {
				return strings.TrimSpace(rest)
			}
		case <-limit:
			c.t.Fatalf("a child does not say %q", begin)
		}
	}
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("signal %v: %v", s, err)
	}
}

// await waits until something is true.
func await(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); <-time.After(10 * time.Millisecond) {
		if time.Since(begin) > limit {
			t.Fatalf("after %v: not true that %s", limit, what)
		}
	}
}

// ramDir returns a folder for what need not survive the machine: on a file system
// without a disk syncing takes no time.
func ramDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "errand-torture") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
