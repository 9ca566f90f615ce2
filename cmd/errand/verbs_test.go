package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/webhook"
)

// leaves calls f for all commands that do something, but for those of cobra.
func leaves(cmd *cobra.Command, f func(cmd *cobra.Command)) {
	for _, c := range cmd.Commands() {
		switch {
		case c.Name() == "help" || c.Name() == "completion" || c.Hidden:
			continue
		case !onlyGroups(c):
			f(c)
		}
		leaves(c, f)
	}
}

// placeholder is an ID in examples.
var placeholder = regexp.MustCompile(`01890a5d-ac96-774b-bcce-b302099a8057`)

// Each verb has examples in its help, and each example works, in a folder with the
// files jobs.db, q.db and shop.db, policy.json, secret and sum.sh, and those of newRelay. What has no
// end is interrupted, but for the receiver, which listens on any port, and not for long.
func TestVerbs_Examples(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the examples are for a shell of Unix")
	}
	whole := t.TempDir()
	ids, err := fixture(t.Context(), filepath.Join(whole, "jobs.db"))
	if err != nil {
		t.Fatal(err)
	}
	if status, _, errs := errand(t, "", "queues", "hold", filepath.Join(whole, "jobs.db"), "mail", "--reason", "provider"); status != 0 {
		t.Fatal(errs)
	}
	if status, _, errs := errand(t, "", "jobs", "enqueue", filepath.Join(whole, "jobs.db"), "--kind", "send", "--queue", "orders", "--unique", "order 17"); status != 0 {
		t.Fatal(errs)
	}
	policy, err := os.ReadFile(filepath.Join("testdata", "subscription.json"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join("..", "..", "examples", "shell", "sum.sh"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := os.ReadFile(filepath.Join(whole, "jobs.db"))
	if err != nil {
		t.Fatal(err)
	}
	shop(t, filepath.Join(whole, "shop.db"), receiver(t))
	shopDB, err := os.ReadFile(filepath.Join(whole, "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"jobs.db": db, "q.db": db, "shop.db": shopDB, "policy.json": policy, "sum.sh": sum, "secret": []byte(webhook.NewSecret().Reveal() + "\n"),
	}
	for _, name := range newRelay(t, whole) {
		if files[name], err = os.ReadFile(filepath.Join(whole, name)); err != nil {
			t.Fatal(err)
		}
	}
	endless := map[string]int{"errand dashboard": 2, "errand relay": 1, "errand serve": 1} // with the lines that it writes
	n := 0
	leaves(newRoot(newTool(nil, io.Discard, io.Discard)), func(cmd *cobra.Command) {
		lines := strings.Split(strings.TrimSpace(cmd.Example), "\n")
		if cmd.Example == "" || !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s has no example of itself: %q", cmd.CommandPath(), cmd.Example)
			return
		}
		for _, line := range lines {
			n++
			t.Run(strings.TrimSpace(line), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				for name, b := range files {
					if err := os.WriteFile(filepath.Join(dir, name), b, 0o700); err != nil { //nolint:gosec // sum.sh is run
						t.Fatal(err)
					}
				}
				if cmd.Name() == "listen" {
					line += " --addr 127.0.0.1:0 --for 100ms"
				}
				shell := exec.CommandContext(t.Context(), "sh", "-ec", placeholder.ReplaceAllString(line, idFor(line, ids)))
				shell.Dir = dir
				if lines := endless[cmd.CommandPath()]; lines > 0 && !strings.Contains(line, "--hash") {
					interruptAfter(t, shell, lines)
					return
				}
				if out, err := shell.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	})
	if n < 20 {
		t.Errorf("only %d examples were found", n)
	}
}

// interruptAfter runs a command of a shell, interrupts it after so many lines, and wants success.
func interruptAfter(t *testing.T, shell *exec.Cmd, lines int) {
	t.Helper()
	shell.Args[len(shell.Args)-1] = "exec " + strings.TrimSpace(shell.Args[len(shell.Args)-1])
	out, err := shell.StdoutPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for all := bufio.NewScanner(out); lines > 0 && all.Scan(); lines-- {
	}
	if err := errors.Join(shell.Process.Signal(os.Interrupt), shell.Wait()); err != nil || lines > 0 {
		t.Errorf("%v, %d lines are missing", err, lines)
	}
}

// Whatever jobs hold, no verb writes anything but characters that can be printed.
func TestVerbs_Harmless(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "jobs.db")
	ids, err := fixture(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" { // which has no such names
		harmlessFiles(t, dir)
	}
	for _, args := range harmless(path, ids["EVIL"]) {
		for _, args := range [][]string{args, append(slices.Clone(args), "--json")} {
			status, text := wantHarmless(t, args)
			if len(text) == 0 || status == 2 && !strings.Contains(strings.Join(args, ""), evil) {
				t.Errorf("%q: status %d, %q", args, status, text)
			}
		}
	}
}

// harmlessFiles examines a database, and a policy, whose names are evil.
func harmlessFiles(t *testing.T, dir string) {
	t.Chdir(dir)
	name := strings.ReplaceAll(evil, "/", "")
	succeed(t, "backup", "jobs.db", name)
	if err := os.Chmod(name, 0o666); err != nil { // which the doctor says
		t.Fatal(err)
	}
	copied := name + "2"
	noise, document := name+"3", name+"4"
	err := errors.Join(os.WriteFile(noise, []byte(strings.Repeat(evil, 10)), 0o600),
		os.WriteFile(document, []byte(`{"`+strings.ReplaceAll(evil, `"`, "")+`": 1}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"doctor", name}, {"doctor", "--full", name}, {"doctor", noise}, {"doctor", evil}, {"backup", name, copied}, {"backup", name, copied},
		{"schedules", "ls", name}, {"schedules", "ls", noise}, {"queues", "pause", noise, "mail"},
		{"policy", "check", document}, {"policy", "check", evil}, {"policy", "show", document}, {"policy", "plot", document},
		{"policy", "plot", "default", "--compare", document}, {"jobs", "enqueue", name, "--kind", "send", "--policy", document},
		{"jobs", "enqueue", name, "--kind", "send", "--file", noise}, {"dead", "import", name, noise}, {"dead", "import", name, evil},
		{"work", name, "--kind", "send", "--", evil},
	} {
		wantHarmless(t, args)
	}
	// What SQLite finds wrong names tables.
	db, err := sql.Open("sqlite", copied)
	if err != nil {
		t.Fatal(err)
	}
	table := `"` + strings.ReplaceAll(evil, `"`, "") + `"`
	_, err = db.Exec("CREATE TABLE " + table + " (x); INSERT INTO " + table + " VALUES (NULL); PRAGMA writable_schema = 1; " +
		"UPDATE sqlite_schema SET sql = replace(sql, '(x)', '(x NOT NULL)') WHERE sql LIKE '%(x)'")
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, text := wantHarmless(t, []string{"doctor", copied}); !strings.Contains(text, "NULL value in") {
		t.Errorf("the doctor finds %s", text)
	}
}

// wantHarmless runs a verb, and wants it to write only what can be printed.
func wantHarmless(t *testing.T, args []string) (status int, text string) {
	t.Helper()
	status, out, errs := errand(t, "", args...)
	text = out + errs
	if !utf8.ValidString(text) || !isSafe(strings.ReplaceAll(text, "\n", "")) {
		t.Errorf("%q writes what cannot be printed: %q", args, text)
	}
	if strings.Contains(text, "line\n") {
		t.Errorf("%q breaks a line: %q", args, text)
	}
	return status, text
}

// harmless are command lines of verbs that show a job or its error.
func harmless(path, id string) [][]string {
	return [][]string{
		{"status", path},
		{"watch", path, "--count", "2", "--interval", "100ms"},
		{"queues", "ls", path},
		{"jobs", "edit", path, id, "--args", `{"verdict":"` + "\u009b31m" + `"}`},
		{"jobs", "edit", path, id, "--to", evil},
		{"jobs", "edit", path, id, "--args", evil},
		{"jobs", "reschedule", path, id, "--delay", "1h"},
		{"jobs", "rm", path, "--kind", evil, "--yes"},
		{"jobs", "cancel", path, "--error", evil, "--yes"},
		{"dead", "ls", path},
		{"dead", "show", path, id},
		{"dead", "export", path},
		{"dead", "groups", path},
		{"dead", "redrive", path, "--all", "--dry-run"},
		{"jobs", "ls", path},
		{"jobs", "show", path, id},
		{"jobs", "why", path, id},
		{"jobs", "wait", path, id},
		{"jobs", "wait", path, evil},
		{"schedules", "ls", path},
		{"schedules", "show", path, "nightly"},
		{"schedules", "run", path, evil},
		{"doctor", path},
		{"doctor", path, "--full"},
		{"policy", "check", evil},
		{"policy", "presets"},
		{"backup", evil, path},
		{"schedules", "show", path, evil},
		{"dead", "ls", path, "--queue", evil},
		{"queues", "ls", evil},
		{"devices", "ls", path},
		{"devices", "show", path, evil},
		{"devices", "revoke", path, evil},
		{"devices", "restore", path, evil},
		{"devices", "add", path, evil, "--key", evil},
		{"relay", "missing", path},
		{"relay", "missing", evil},
		{"relay", path, "--to", evil, "--server", evil, "--device", evil, "--key", evil, "--queue", evil},
		{"relay", path, "--to", evil, "--server", evil, "--device", evil, "--key", path, "--queue", evil},
		{"serve", path, "--relay", "--listen", evil, "--server", evil, "--key", evil},
		{"serve", path, "--relay", "--listen", evil, "--server", evil, "--key", path},
	}
}

func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"plain text, Größe, 漢字, 🚀":     "plain text, Größe, 漢字, 🚀",
		"a\nb\tc\r":                    `a\nb\tc\r`,
		"\x1b[31mred":                  `\x1b[31mred`,
		"\u009b31m":                    `\u009b31m`,
		"\u202eevil\u2066":             `\u202eevil\u2066`,
		"bad \xff\xfe bytes":           `bad \xff\xfe bytes`,
		"\u2028\u00a0\ufeff\U000e0041": `\u2028\u00a0\ufeff\U000e0041`,
	} {
		if got := safe(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"{\"a\":\"\u009b\u202e\U000e0041\"}": `{"a":"\u009b\u202e\udb40\udc41"}`,
		"\"\xff\"":                           `"\ufffd"`,
		"\"\u007f 漢 🚀\"":                     "\"\\u007f 漢 🚀\"",
	} {
		if got := string(safeJSON([]byte(in))); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
