package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The commands of docs/relay.md do what the page says, in its order: those of the second terminal while those of the
// first run, on a free port. The job that they enqueue comes to the server.
//
//errand:shows output of the command on the pages
func TestDocs_relay(t *testing.T) {
	page, err := os.ReadFile("../../docs/relay.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	defer t.Chdir(home)
	const listen = "127.0.0.1:8443"
	address, device := "", 0
	for _, script := range shell.FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(script[1]) {
			line, _, _ := strings.Cut(strings.TrimSpace(line), " #")
			line, into, _ := strings.Cut(strings.TrimSpace(line), " >")
			words, ok := strings.CutPrefix(line, "errand ")
			if !ok {
				t.Fatalf("%q is no command of errand", line)
			}
			if address == "" {
				words = strings.Replace(words, listen, "127.0.0.1:0", 1)
			}
			args := shellWords(strings.Replace(words, listen, address, 1))
			switch {
			case args[0] == "serve":
				l := start(t, "", args...)
				defer l.over(t)
				address = strings.TrimSuffix(strings.TrimPrefix(l.next(t), "listening on http://"), relayPath)
			case args[0] == "relay" && strings.HasSuffix(args[1], ".db"):
				l := start(t, "", args...)
				defer l.over(t)
				device++
				succeed(t, "jobs", "wait", args[1], uuids.FindString(succeed(t, "jobs", "ls", args[1])))
			default:
				out := succeed(t, args...)
				if into != "" {
					if err := os.WriteFile(into, []byte(out), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if device > 0 && strings.HasPrefix(line, "errand jobs ls") && !strings.Contains(out, "measure") {
					t.Errorf("%s writes %s", line, out)
				}
			}
		}
	}
	if device == 0 || address == "" {
		t.Errorf("the page has a server at %q, and %d devices", address, device)
	}
	if _, err := os.Stat(filepath.Join(".", "hub.db")); err != nil {
		t.Error(err)
	}
}
