package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// unitFiles are the units of systemd in examples, with the page that shows each.
var unitFiles = []struct{ dir, name, page string }{
	{"shell", "errand-work.service", "command.md"},
	{"relay", "errand-relay.service", ""},
	{"relay", "errand-serve.service", ""},
}

const unitsTool = "/usr/local/bin/errand"

func readUnit(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// starts returns the words of what a unit starts, without the program.
func starts(t *testing.T, unit string) []string {
	t.Helper()
	_, line, _ := strings.Cut(unit, "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != unitsTool {
		t.Fatalf("it starts %s", line)
	}
	return words[1:]
}

func TestUnit_page(t *testing.T) {
	for _, u := range unitFiles {
		if u.page == "" {
			continue
		}
		page, err := os.ReadFile(filepath.Join("..", "..", "docs", u.page))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "```ini\n"+readUnit(t, u.dir, u.name)+"```\n") {
			t.Errorf("docs/%s does not show %s as it is", u.page, u.name)
		}
	}
}

// What the unit of a worker starts works.
func TestUnit_command(t *testing.T) {
	needShell(t)
	words := starts(t, readUnit(t, "shell", "errand-work.service"))
	line := strings.Join(words, " ")
	at := strings.Index(line, " -- ")
	if words[1] != "/var/lib/sums/q.db" || at < 0 {
		t.Fatalf("it starts %s", line)
	}
	words[1] = filepath.Join(t.TempDir(), "q.db")
	args := append(words[:len(strings.Fields(line[:at]))], "--until-empty", "--", "true")
	if status, _, errs := errand(t, "", args...); status != 0 {
		t.Errorf("errand %q: status %d: %s", args, status, errs)
	}
}

// What the units of a relay start works, with files in place of those of the system.
func TestUnit_relay(t *testing.T) {
	for _, name := range []string{"errand-serve.service", "errand-relay.service"} {
		r := relaying(t)
		cert, key, _ := certificate(t)
		files := strings.NewReplacer("/etc/errand/tls.crt", cert, "/etc/errand/tls.key", key, "/etc/errand/", r.dir+"/", "/var/lib/errand/", r.dir+"/new-")
		var args []string
		for _, word := range starts(t, readUnit(t, "relay", name)) {
			if word == ":8443" {
				word = "127.0.0.1:0"
			}
			args = append(args, files.Replace(word))
		}
		l := start(t, "", args...)
		if line := l.next(t); !strings.Contains(line, "https://") {
			t.Errorf("errand %q writes %s", args, line)
		}
		l.over(t)
	}
}

// systemd knows all that is in a unit, and ignores nothing. What it says of other units of
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
	verify := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, unitsTool, self)), 0o600); err != nil {
			t.Fatal(err)
		}
		// Older ones have status 0 for what they ignore.
		out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput()
		var ours strings.Builder
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, name) {
				ours.WriteString(line)
			}
		}
		if err != nil && ours.Len() == 0 {
			t.Fatalf("%v: %s", err, out)
		}
		return ours.String()
	}
	for _, u := range unitFiles {
		text := readUnit(t, u.dir, u.name)
		if said := verify(u.name, text); said != "" {
			t.Error(said)
		}
		if verify(u.name, strings.Replace(text, "TimeoutStopSec=", "TimeoutStopSe=", 1)) == "" {
			t.Errorf("%s: a key that systemd does not know passes", u.name)
		}
	}
}
