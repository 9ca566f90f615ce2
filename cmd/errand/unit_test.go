package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// unitName is the unit of systemd for errand work, in examples/shell and on its page.
const (
	unitName  = "errand-work.service"
	unitsTool = "/usr/local/bin/errand"
	unitsFile = "/var/lib/sums/q.db"
)

func readUnit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "shell", unitName))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestUnit_page(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "command.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```ini\n"+readUnit(t)+"```\n") {
		t.Errorf("docs/command.md does not show %s as it is", unitName)
	}
}

// What it starts works.
func TestUnit_command(t *testing.T) {
	needShell(t)
	_, line, _ := strings.Cut(readUnit(t), "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	at := strings.Index(line, " -- ")
	if words[0] != unitsTool || words[2] != unitsFile || at < 0 {
		t.Fatalf("it starts %s", line)
	}
	words[2] = filepath.Join(t.TempDir(), "q.db")
	args := append(words[1:len(strings.Fields(line[:at]))], "--until-empty", "--", "true")
	if status, _, errs := errand(t, "", args...); status != 0 {
		t.Errorf("errand %q: status %d: %s", args, status, errs)
	}
}

// systemd knows all that is in it, and ignores nothing. What it says of other units of
// this machine does not count.
func TestUnit_verify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip(err) // CI installs it
	}
	self, err := os.Executable() // what it starts must be there
	if err != nil {
		t.Fatal(err)
	}
	verify := func(text string) string {
		path := filepath.Join(t.TempDir(), unitName)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, unitsTool, self)), 0o600); err != nil {
			t.Fatal(err)
		}
		// Older ones have status 0 for what they ignore.
		out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput()
		var ours strings.Builder
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, unitName) {
				ours.WriteString(line)
			}
		}
		if err != nil && ours.Len() == 0 {
			t.Fatalf("%v: %s", err, out)
		}
		return ours.String()
	}
	text := readUnit(t)
	if said := verify(text); said != "" {
		t.Error(said)
	}
	if verify(strings.Replace(text, "KillMode=", "KillMod=", 1)) == "" {
		t.Error("a key that systemd does not know passes")
	}
}
