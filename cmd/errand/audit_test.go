package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Verbs that change something leave an entry with who did it, without args, secrets and texts of
// errors; those that change nothing, and those of producers, leave none.
func TestAudit(t *testing.T) {
	db := filepath.Join(t.TempDir(), "jobs.db")
	do := func(args ...string) string {
		t.Helper()
		status, out, errs := errand(t, "", args...)
		if status > 1 {
			t.Fatalf("%q: %d, %s", args, status, errs)
		}
		return out
	}
	id := strings.Fields(do("jobs", "enqueue", db, "--create", "--kind", "send", "--queue", "mail", "--args", "{}"))[0]
	if out := do("audit", db); out != "nothing was done by hand\n" {
		t.Errorf("after an enqueue: %s", out)
	}
	do("queues", "hold", db, "mail", "--by", "ada", "--note", "ticket 4711", "--for", "2h")
	do("queues", "set", db, "mail", "--starts", "10", "--per", "1m")
	do("queues", "release", db, "mail")
	do("queues", "release", db, "mail") // of nothing
	do("jobs", "edit", db, id, "--args", `{"pin":4711}`, "--yes")
	do("jobs", "cancel", db, id)
	do("jobs", "ls", db)
	do("jobs", "enqueue", db, "--kind", "send", "--queue", "mail", "--args", "{}", "--unique", "secret-key")
	do("jobs", "release-key", db, "--kind", "send", "secret-key")
	t.Setenv("SUDO_USER", "eve")
	do("jobs", "rm", db, "--state", "cancelled", "--error", "secret", "--yes")
	out := do("audit", db)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{"jobs rm", "jobs release-key", "jobs cancel", "jobs edit", "queues release", "queues set", "queues hold"}
	if out := do("audit", db, "--json"); !strings.Contains(out, `"note": "ticket 4711"`) {
		t.Errorf("JSON: %s", out)
	}
	lines = lines[1:]
	if len(lines) == len(want)-1 { // nothing matched the text
		want = want[1:]
	}
	for i, line := range lines {
		if !strings.Contains(line, want[i]) {
			t.Errorf("line %d is %q, want one of %s", i, line, want[i])
		}
	}
	if len(lines) != len(want) || strings.Contains(out, "pin") || strings.Contains(out, "secret") || !strings.Contains(strings.Join(strings.Fields(out), " "), "ada queues hold mail --for 2h0m0s 0 ticket 4711") || !strings.Contains(out, "mail --per 1m0s --starts 10 ") {
		t.Errorf("audit: %s", out)
	}
}

// Each verb is one of those that leave entries, or known to leave none.
func TestAudit_EachVerb(t *testing.T) {
	none := strings.Fields(`ls show why wait watch groups export enqueue publish test listen status metrics dashboard work backup compact plot effective check doctor
version audit presets relay serve missing new-key`)
	var known []string
	leaves(newRoot(newTool(nil, nil, nil)), func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "errand ")
		if known = append(known, name); slices.Contains(byHand, name) == slices.Contains(none, cmd.Name()) {
			t.Errorf("%s: it is not known whether it leaves an entry of who did it", name)
		}
	})
	for _, name := range byHand {
		if !slices.Contains(known, name) {
			t.Errorf("%s is no verb", name)
		}
	}
}
