//go:build !windows

package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A socket is for this user alone, takes the place of one that was left, and of nothing else.
func TestDashboard_Socket(t *testing.T) {
	file, socket := boardFile(t), filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if status, _, errs := errand(t, "", "dashboard", file, "--socket", socket); status != 2 || !strings.Contains(errs, "somebody listens on it") {
		t.Errorf("in use: %d %s", status, errs)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	b := serveBoard(t, file, "--socket", socket)
	if info, err := os.Lstat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 || !strings.Contains(b.greeting, "ssh -L 8080:"+socket) {
		t.Errorf("%v, %v, %s", info, err, b.greeting)
	}
	c := browser(t)
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	if status, text := visit(t, c, b.url); status != 200 || !strings.Contains(text, "admin") {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := visit(t, c, b.root(), func(r *http.Request) { r.Host = "evil.example:8080" }); status != 421 {
		t.Errorf("another host: %d", status)
	}
	at, err := url.Parse(b.root())
	if err != nil {
		t.Fatal(err)
	}
	if all := c.Jar.Cookies(at); len(all) != 1 || all[0].Name != "errand-socket-8080" {
		t.Errorf("cookies %v", all)
	}
	b.end(t)
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
	if err := os.WriteFile(socket, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, errs := errand(t, "", "dashboard", file, "--socket", socket)
	if text, err := os.ReadFile(socket); status != 2 || !strings.Contains(errs, "no socket") || err != nil || string(text) != "mine" {
		t.Errorf("%d %s; %q, %v", status, errs, text, err)
	}
}

// If another file is put in the place of the one that is shown, pages say so and show neither.
func TestDashboard_Replaced(t *testing.T) {
	path, other := boardFile(t), boardFile(t)
	b, c := serveBoard(t, path), browser(t)
	if status, _ := visit(t, c, b.url); status != 200 {
		t.Fatalf("%d", status)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"do": {"hold"}, "queue": {"mail"}}
	for _, page := range []string{"", "jobs", "lanes?format=json"} {
		if status, text := visit(t, c, b.root()+page); status != 503 || !strings.Contains(text, "Another file was put in the place of jobs.db.") || !strings.Contains(text, "start it again") {
			t.Errorf("%q: %d %s", page, status, text)
		}
	}
	if status, text := send(t, c, b.root()+"act", form); status != 503 || !strings.Contains(text, "Another file") {
		t.Errorf("an action: %d %s", status, text)
	}
	if status, text := visit(t, browser(t), b.root()); status != 403 || strings.Contains(text, "Another file") {
		t.Errorf("who is not in: %d %s", status, text)
	}
	b.end(t)
}

// A real process ends on an interrupt with status 0, while browsers are connected.
func TestDashboard_Interrupt(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "errand", "dashboard", boardFile(t))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	if status, text := visit(t, browser(t), lines.Text()); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
