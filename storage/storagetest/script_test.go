package storagetest

import (
	"strings"
	"testing"
)

func TestScript(t *testing.T) {
	for _, sub := range []struct{ name, text, want string }{
		{"right", "enqueue a b group=g\n----\na ready\nb blocked\n\nlease 9\n----\na\n\nfinish a done\nstates a b\n----\na done\nb ready", ""},
		{"a wrong answer", "enqueue a\n----\na blocked", "x.txt:1: enqueue a\n got:\n\ta ready\nwant:\n\ta blocked"},
		{"an answer too few", "# first\n\nenqueue a b\n----\na ready", "x.txt:3: enqueue a b\n got:\n\ta ready\n\tb ready\nwant:\n\ta ready"},
		{"an answer too many", "lease 1\n----\nnone\na", "want:\n\tnone\n\ta"},
		{"an error without an answer", "cancel a", "error: errand: not found"},
		{"an error that is expected", "cancel a\n----\nerror: errand: not found", ""},
		{"no such command", "enqueu a", `no command is called "enqueu"`},
		{"no such option", "enqueue a grup=g", `no option is called "grup"`},
		{"no such mode", "enqueue a mode=x", `no mode is called "x"`},
		{"no such outcome", "enqueue a\nlease 1\nfinish a well", `no outcome is called "well"`},
		{"no such setting", "set most=2", `no setting is called "most"`},
		{"no duration", "later 5", "missing unit"},
	} {
		got := record(t, func(t testing.TB) {
			_, steps := parseScript(sub.text)
			newScript(newFixture(t, NewMemory())).run("x.txt", steps)
		})
		if !strings.Contains(got, sub.want) || sub.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", sub.name, got, sub.want)
		}
	}
}
