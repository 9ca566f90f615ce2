package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	queue "github.com/errandq/errand"
)

// What cannot be is said, with the flag or the file.
func TestDashboard_Refuses(t *testing.T) {
	file, dir := boardFile(t), t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	users := usersFile(t, 0o644)
	cases := []struct {
		want string
		args []string
	}{
		{"--listen 0.0.0.0:0: who else can reach this address would see the queue: it needs --auth", []string{file, "--listen", "0.0.0.0:0"}},
		{"it needs --auth", []string{file, "--listen", ":0"}},
		{"--listen 127.0.0.1: ", []string{file, "--listen", "127.0.0.1"}},
		{"--host \"https://ops.example.com\": must be a name", []string{file, "--host", "https://ops.example.com"}},
		{"--host \"a@b\": must be a name", []string{file, "--host", "a@b"}},
		{"must be viewer, operator or admin", []string{file, "--role", "root"}},
		{"[tls-cert tls-key]", []string{file, "--tls-cert", "cert.pem"}},
		{"--tls-cert none.pem, --tls-key none.pem: open none.pem", []string{file, "--tls-cert", "none.pem", "--tls-key", "none.pem"}},
		{"[listen socket]", []string{file, "--listen", "127.0.0.1:0", "--socket", "s"}},
		{"at most 103 bytes", []string{file, "--socket", filepath.Join(dir, strings.Repeat("s", 104))}},
		{"[auth role]", []string{file, "--auth", users, "--role", "admin"}},
		{"no such file", []string{file, "--auth", filepath.Join(dir, "none")}},
		{"it names nobody", []string{file, "--auth", write("nobody", "# ann\n", 0o600)}},
		{"line 2", []string{file, "--auth", write("bad", "\nann:admin\n", 0o600)}},
		{"HashPassword", []string{file, "--auth", write("plain", "ann:admin:secret\n", 0o600)}},
		{"?format=json", []string{file, "--json"}},
		{"usage: errand dashboard FILE", nil},
		{"usage: errand dashboard FILE", []string{file, "--hash"}},
		{"no such file", []string{filepath.Join(dir, "none.db")}},
		{"database is damaged", []string{write("text.db", strings.Repeat("no database ", 100), 0o600)}},
	}
	if runtime.GOOS != "windows" {
		cases = append(cases, struct {
			want string
			args []string
		}{"chmod 600 " + users, []string{file, "--auth", users}})
	}
	for _, c := range cases {
		status, out, errs := errand(t, "", append([]string{"dashboard"}, c.args...)...)
		if status != 2 || out != "" || !strings.Contains(errs, c.want) || strings.Contains(errs, "pbkdf2") {
			t.Errorf("%v: status %d %s %s: want %s", c.args, status, out, errs, c.want)
		}
	}
	if status, _, errs := errand(t, "\n", "dashboard", "--hash"); status != 2 || !strings.Contains(errs, "password") {
		t.Errorf("no password: %d %s", status, errs)
	}
}

// A file that this command cannot read says why, before anything is served.
func TestDashboard_Files(t *testing.T) {
	dir := t.TempDir()
	other, crashed := filepath.Join(dir, "other.db"), filepath.Join(dir, "crashed.db")
	if err := foreign(other); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(t.TempDir(), "jobs.db")
	q, err := queue.Open(t.Context(), from, &queue.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), raw("{}"), nil); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} { // as a crash leaves it, without the index
		b, err := os.ReadFile(from + suffix)
		if err == nil {
			err = os.WriteFile(crashed+suffix, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{other: "recovery", crashed: "open it once for writing"} {
		if status, out, errs := errand(t, "", "dashboard", path); status != 2 || out != "" || !strings.Contains(errs, want) || !strings.Contains(errs, filepath.Base(path)) {
			t.Errorf("%s: %d %s %s", path, status, out, errs)
		}
	}
}

// files returns what is in the folder of a file, and when it was changed, and the bytes of the file.
func files(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return list(t, path, false) + string(b)
}

// The file is written by nothing before an action is confirmed, and never with --read-only.
func TestDashboard_Writes(t *testing.T) {
	release := url.Values{"do": {"hold"}, "queue": {"mail"}}
	for _, readOnly := range []bool{true, false} {
		t.Run(fmt.Sprintf("read-only %t", readOnly), func(t *testing.T) {
			path := boardFile(t)
			before := files(t, path)
			b := serveBoard(t, path, fmt.Sprintf("--read-only=%t", readOnly))
			c := browser(t)
			_, front := visit(t, c, b.url)
			if status, text := visit(t, c, b.root()+"jobs"); status != 200 || strings.Contains(front+text, `method="post"`) == readOnly {
				t.Errorf("%d %s", status, text)
			}
			asked, text := send(t, c, b.root()+"act", release)
			if (asked == 200) == readOnly || strings.Contains(text, "--read-only") != readOnly {
				t.Errorf("asked: %d %s", asked, text)
			}
			if files(t, path) != before {
				t.Error("the files have changed before anything was confirmed")
			}
			sure := url.Values{"do": release["do"]}
			if _, form, ok := strings.Cut(text, `class="typed"`); ok {
				for _, m := range regexp.MustCompile(`name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(form, -1) {
					sure.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
				}
				sure["do"] = release["do"]
			}
			done, text := send(t, c, b.root()+"act", sure)
			if (done == 200) == readOnly || readOnly != (files(t, path) == before) {
				t.Errorf("done: %d %s", done, text)
			}
			if !readOnly && !strings.Contains(b.errs.String(), "by="+userName()) {
				t.Errorf("the log has not who did it: %s", &b.errs)
			}
			b.end(t)
			if out := succeed(t, "queues", "ls", path); strings.Contains(out, "held") == readOnly {
				t.Errorf("%s", out)
			}
			if _, err := os.Stat(path + "-wal"); !os.IsNotExist(err) {
				t.Errorf("a log is left: %v", err)
			}
		})
	}
}

// The file is opened once, again after an error, and goes on being opened if who asked has gone.
func TestOnceOpen(t *testing.T) {
	path := boardFile(t)
	calls, failing, wait := 0, errors.New("locked"), make(chan struct{})
	o := &onceOpen{open: func() (*queue.Queue, error) {
		if calls++; calls == 1 {
			return nil, failing
		}
		<-wait
		return queue.Open(context.Background(), path, &queue.Options{Logger: slog.New(slog.DiscardHandler)})
	}}
	if q, err := o.get(t.Context()); q != nil || !errors.Is(err, failing) {
		t.Errorf("at first: %v, %v", q, err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := o.get(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("who has gone: %v", err)
	}
	close(wait)
	first, err := o.get(t.Context())
	if err != nil || first == nil {
		t.Fatalf("then: %v", err)
	}
	if again, err := o.get(t.Context()); again != first || err != nil || calls != 2 {
		t.Errorf("opened %d times, %v", calls, err)
	}
	if err := first.Close(); err != nil { // as it does itself after some errors
		t.Error(err)
	}
	last, err := o.get(t.Context())
	if err != nil || last == first || calls != 3 {
		t.Fatalf("after it was closed: opened %d times, %v", calls, err)
	}
	if _, err := last.Counts(t.Context()); err != nil {
		t.Errorf("opened again: %v", err)
	}
	if err := o.close(); err != nil {
		t.Error(err)
	}
	if _, err := last.Counts(t.Context()); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("it is not closed: %v", err)
	}
	// Another call has closed the queue before this one has got it.
	o = &onceOpen{opening: make(chan struct{})}
	close(o.opening)
	if q, err := o.get(t.Context()); q != nil || !errors.Is(err, queue.ErrClosed) {
		t.Errorf("opened and closed: %v, %v", q, err)
	}
}

// Two dashboards of one machine do not take each other's cookies, in one browser.
func TestDashboard_Two(t *testing.T) {
	a, b, c := serveBoard(t, boardFile(t), "--role", "viewer"), serveBoard(t, boardFile(t)), browser(t)
	for range 2 {
		for board, role := range map[*board]string{a: "viewer", b: "admin"} {
			if status, text := visit(t, c, board.url); status != 200 || !strings.Contains(text, ", "+role) {
				t.Errorf("%s: %d %s", role, status, text)
			}
		}
	}
	a.end(t)
	b.end(t)
}
