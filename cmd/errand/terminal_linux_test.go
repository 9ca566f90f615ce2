package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// atTerminal runs the program at a terminal with so many columns, types a text if it asks,
// and returns what is on the screen.
func atTerminal(t *testing.T, columns uint16, typed string, env []string, args ...string) (string, error) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer keyboard.Close()
	fd := int(keyboard.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "errand", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "NO_COLOR="), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // of its standard input
	defer terminal.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A terminal that nobody has open may end before what was written last is read. So it stays open,
	// and shows when the program has ended.
	const end = "the program has ended"
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_, _ = terminal.WriteString(end)
		ended <- err
	}()
	shown := ""
	for b := make([]byte, 4096); ; {
		n, err := keyboard.Read(b)
		if shown += string(b[:n]); strings.HasSuffix(shown, "? [y/N] ") {
			_, err = keyboard.WriteString(typed)
		}
		if all, ok := strings.CutSuffix(shown, end); ok {
			return strings.ReplaceAll(all, "\r\n", "\n"), <-ended
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// At a terminal tables are as wide as it is, and there is colour unless NO_COLOR is set.
func TestTerminal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	ids, err := fixture(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := atTerminal(t, 100, "", nil, "dead", "ls", path)
	if err != nil || !strings.Contains(shown, "\x1b[31mdead\x1b[0m") || !strings.Contains(shown, ids["DEAD"]) {
		t.Errorf("%v, %q: want red dead letters", err, shown)
	}
	if !strings.Contains(shown, "…") {
		t.Errorf("no long text is cut: %q", shown)
	}
	for line := range strings.SplitSeq(regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(shown, ""), "\n") {
		if n := len([]rune(line)); n > 100 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	if shown, err = atTerminal(t, 100, "", []string{"NO_COLOR=1"}, "dead", "ls", path); err != nil || strings.Contains(shown, "\x1b") {
		t.Errorf("%v, %q: want no colour", err, shown)
	}
}

// At a terminal it asks before it deletes.
func TestTerminal_Asks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	if _, err := fixture(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	shown, err := atTerminal(t, 100, "n\n", nil, "dead", "purge", path, "--all")
	if err == nil || !strings.Contains(shown, "Delete dead letters of ") || !strings.Contains(shown, "? [y/N] ") {
		t.Errorf("%v, %q: want a question", err, shown)
	}
	if out := succeed(t, "dead", "ls", path); strings.Contains(out, "no jobs") {
		t.Errorf("deleted: %s", out)
	}
	if shown, err = atTerminal(t, 100, "y\n", nil, "dead", "purge", path, "--all"); err != nil || !strings.Contains(shown, "2 jobs deleted") {
		t.Errorf("%v, %q: want 2 jobs deleted", err, shown)
	}
}

// An interrupt is an answer too.
func TestTerminal_Interrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	if _, err := fixture(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	shown, err := atTerminal(t, 100, "\x03", nil, "dead", "purge", path, "--all")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != statusInterrupted || !strings.Contains(shown, "errand: interrupted") {
		t.Errorf("%v, %q: want status 130", err, shown)
	}
}
