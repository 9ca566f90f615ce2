package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// newRelay makes the files of a server, with a device, and of that device, and returns their names.
func newRelay(t *testing.T, dir string) []string {
	t.Helper()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, db := range []string{in("hub.db"), in("device.db")} {
		succeed(t, "jobs", "enqueue", db, "--kind", "measure", "--create", "--file", os.DevNull)
	}
	public := succeed(t, "devices", "new-key", in("hub.key"))
	if err := os.WriteFile(in("hub.pub"), []byte(public), 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, "devices", "add", in("hub.db"), "pump-17", "--new-key", in("pump-17.key"), "--kind", "measure")
	_, other := relay.NewKey()
	if err := os.WriteFile(in("devices.txt"), []byte("# from the factory\n\npump-17 "+other+"\npump-20 "+other+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key, _ := certificate(t)
	for from, to := range map[string][]string{cert: {"ca.pem", "hub.pem", "pump-17.pem"}, key: {"hub-key.pem", "pump-17-key.pem"}} {
		text, err := os.ReadFile(from)
		for _, name := range to {
			err = errors.Join(err, os.WriteFile(in(name), text, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return []string{"hub.db", "hub.key", "hub.pub", "device.db", "pump-17.key", "devices.txt", "ca.pem", "hub.pem", "hub-key.pem", "pump-17.pem", "pump-17-key.pem"}
}

// relayed are a server and a device in a folder.
type relayed struct {
	t   *testing.T
	dir string
}

func relaying(t *testing.T) *relayed {
	t.Helper()
	r := &relayed{t, t.TempDir()}
	newRelay(t, r.dir)
	return r
}

func (r *relayed) file(name string) string { return filepath.Join(r.dir, name) }

// serve runs the server until it is stopped. Its URL is where devices send.
func (r *relayed) serve(args ...string) *listening {
	r.t.Helper()
	return r.serveWith(append([]string{"--key", r.file("hub.key")}, args...)...)
}

// serveWith is serve without a key.
func (r *relayed) serveWith(args ...string) *listening {
	r.t.Helper()
	args = append([]string{"serve", r.file("hub.db"), "--relay", "--listen", "127.0.0.1:0", "--server", "jobs.example.org"}, args...)
	l := start(r.t, "", args...)
	r.t.Cleanup(l.stop)
	first := l.next(r.t)
	url, ok := strings.CutPrefix(first, "listening on ")
	if !ok || !strings.HasSuffix(url, "/relay") {
		r.t.Fatalf("it writes %q", first)
	}
	l.url = url
	return l
}

// forward runs the device until it is stopped.
func (r *relayed) forward(url string, args ...string) *listening {
	r.t.Helper()
	args = append([]string{"relay", r.file("device.db"), "--to", url, "--server", "jobs.example.org", "--device", "pump-17",
		"--key", r.file("pump-17.key"), "--server-key", r.file("hub.pub"), "--queue", "up"}, args...)
	l := start(r.t, "", args...)
	r.t.Cleanup(l.stop)
	if first := l.next(r.t); first != "passing on the jobs of queue up to "+url {
		r.t.Fatalf("it writes %q", first)
	}
	return l
}

// enqueue adds a job on the device, and returns its ID.
func (r *relayed) enqueue(kind string, args ...string) string {
	r.t.Helper()
	out := succeed(r.t, append([]string{"jobs", "enqueue", r.file("device.db"), "--kind", kind, "--queue", "up"}, args...)...)
	return strings.Fields(out)[0]
}

// hub returns the jobs of the server.
func (r *relayed) hub() (all []queue.JobInfo) {
	r.t.Helper()
	var page queue.JobPage
	if err := json.Unmarshal([]byte(succeed(r.t, "jobs", "ls", r.file("hub.db"), "--json")), &page); err != nil {
		r.t.Fatal(err)
	}
	return page.Jobs
}

// until reads what a command writes to a line that has a text.
func (l *listening) until(t *testing.T, text string) string {
	t.Helper()
	for {
		if line := l.next(t); strings.Contains(line, text) {
			return line
		}
	}
}

// wantClosed waits until a file has the closed gate of a worker.
func wantClosed(t *testing.T, file string) {
	t.Helper()
	seen := start(t, "", "watch", file, "--json", "--interval", "100ms")
	seen.until(t, `"open":false`)
	seen.stop()
}

// over interrupts a command, and wants status 0, whatever it still writes.
func (l *listening) over(t *testing.T) {
	t.Helper()
	l.stop()
	for l.lines.Scan() {
	}
	if status := <-l.status; status != 0 {
		t.Errorf("status %d", status)
	}
}

// wantLines wants a text to have lines, with any number of blanks between words.
func wantLines(t *testing.T, text string, want ...string) {
	t.Helper()
	text = regexp.MustCompile(` +`).ReplaceAllString(text, " ")
	for _, line := range want {
		if !regexp.MustCompile(`(?m)^ ?` + line + `$`).MatchString(text) {
			t.Errorf("there is no line %s in\n%s", line, text)
		}
	}
}

const aTime = `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`

// The jobs of a device are on the server, once and with where they came from, and both sides show it.
func TestRelay(t *testing.T) {
	r := relaying(t)
	s := r.serve()
	first := r.enqueue("measure", "--args", `{"n":1}`)
	refused := r.enqueue("alarm")
	d := r.forward(s.url)
	second := r.enqueue("measure", "--args", `{"n":2}`)
	if status, out, errs := errand(t, "", "jobs", "wait", r.file("device.db"), first, second, refused); status != 4 || !strings.Contains(out, "dead") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	d.over(t)
	s.end(t)
	hub := r.hub()
	if len(hub) != 2 || hub[0].Origin.Device != "pump-17" || hub[0].Queue != "default" {
		t.Errorf("on the server are %+v", hub)
	}
	for _, j := range hub {
		out := succeed(t, "jobs", "show", r.file("device.db"), j.Origin.ID)
		if !strings.Contains(out, first) && !strings.Contains(out, second) {
			t.Errorf("job %s of the device is not in %s", j.Origin.ID, out)
		}
	}
	wantLines(t, succeed(t, "dead", "show", r.file("device.db"), refused), `error errand: relay: the server has refused the job: .*kind.*`)
	wantLines(t, succeed(t, "status", r.file("device.db")), `RELAYED QUEUE DEVICE SERVER STREAMS HELD KEPT MISSING LAST ANSWER`,
		`up pump-17 jobs.example.org 4 0 \d 0 `+aTime)
	wantLines(t, succeed(t, "status", r.file("hub.db")), `DEVICES REVOKED HELD STREAMS ENQUEUED DUPLICATES REFUSED LATER LAST SEEN`, `1 0 0 2 0 1 0 `+aTime)
	wantLines(t, succeed(t, "devices", "ls", r.file("hub.db")), `pump-17 taken 2 0 1 0 \d+ `+aTime)
	var of struct{ Streams []relay.StreamInfo }
	if err := json.Unmarshal([]byte(succeed(t, "devices", "show", r.file("hub.db"), "pump-17", "--json")), &of); err != nil || len(of.Streams) == 0 {
		t.Errorf("%v, streams %v", err, of.Streams)
	}
	for file, want := range map[string]string{"device.db": `"relayed": \[\s+\{\s+"queue": "up"`, "hub.db": `"devices": \{\s+"devices": 1,\s+"revoked": 0,\s+"held": 0,\s+"counts": \{\s+"enqueued": 2`} {
		if out := succeed(t, "status", r.file(file), "--json"); !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %s", file, out)
		}
	}
	if settings := succeed(t, "queues", "ls", r.file("device.db")); !strings.Contains(settings, "168h0m0s") {
		t.Errorf("the retention is not there: %s", settings)
	}
	if out := succeed(t, "audit", r.file("device.db")); out != "nothing was done by hand\n" {
		t.Errorf("on the device: %s", out)
	}
}

// With --json both ends write where they are, as one object.
func TestRelay_JSON(t *testing.T) {
	r := relaying(t)
	for want, args := range map[string][]string{
		`{ "listening": "http://127.0.0.1:<port>/relay" }`: {"serve", r.file("hub.db"), "--relay", "--listen", "127.0.0.1:0", "--server", "s", "--key", r.file("hub.key")},
		`{ "queue": "up", "to": "https://jobs.example.org/relay" }`: {"relay", r.file("device.db"), "--to", "https://jobs.example.org/relay", "--server", "s", "--device", "d",
			"--key", r.file("pump-17.key"), "--server-key", r.file("hub.pub"), "--queue", "up"},
	} {
		l := start(t, "", append(args, "--json")...)
		got := l.next(t)
		for got[len(got)-1] != '}' {
			got += " " + strings.TrimSpace(l.next(t))
		}
		if got = constant(got, new([]string)); got != want {
			t.Errorf("it writes %s, want %s", got, want)
		}
		l.over(t)
	}
}

// A job that waits for the server says so, and has lost nothing.
func TestRelay_Away(t *testing.T) {
	r := relaying(t)
	s := r.serve()
	s.end(t)
	d := r.forward(s.url, "--keep", "0")
	id := r.enqueue("measure")
	d.until(t, "gate is closed")
	wantClosed(t, r.file("device.db"))
	why := succeed(t, "jobs", "why", r.file("device.db"), id)
	wantLines(t, why, `- the gate of queue up is closed since .*: no answer from jobs.example.org: dial tcp 127.*`)
	wantLines(t, succeed(t, "status", r.file("device.db")), `.*; gate of queue up closed: no answer from jobs.example.org: dial tcp .*`)
	d.over(t)
	wantLines(t, succeed(t, "queues", "ls", r.file("device.db")), `up \(all\) 1 .* none`)
	if out := succeed(t, "jobs", "show", r.file("device.db"), id); !strings.Contains(out, " 0 retries, 0 crashes in a row") {
		t.Errorf("it is\n%s", out)
	}
	s = r.serve()
	d = r.forward(s.url)
	d.over(t)
	s.end(t)
}

// A server that was put back takes nothing until somebody accepts that, and gets again what it lacks.
func TestRelay_PutBack(t *testing.T) {
	r := relaying(t)
	pass := func(ids ...string) {
		t.Helper()
		s := r.serve()
		d := r.forward(s.url, "--streams", "1")
		succeed(t, append([]string{"jobs", "wait", r.file("device.db")}, ids...)...)
		d.over(t)
		s.end(t)
	}
	pass(r.enqueue("measure", "--args", `{"n":1}`))
	succeed(t, "backup", r.file("hub.db"), r.file("old.db"))
	pass(r.enqueue("measure", "--args", `{"n":2}`))
	if err := os.Rename(r.file("old.db"), r.file("hub.db")); err != nil {
		t.Fatal(err)
	}
	wantLines(t, succeed(t, "relay", "missing", r.file("device.db")), "no server is known to lack jobs")

	third := r.enqueue("measure", "--args", `{"n":3}`)
	s := r.serve()
	d := r.forward(s.url, "--streams", "1")
	d.until(t, "gate is closed")
	wantClosed(t, r.file("device.db"))
	wantLines(t, succeed(t, "jobs", "why", r.file("device.db"), third), `- the gate of queue up .*: stream 0 is held until errand devices accept on the server: .*`)
	d.over(t)
	wantLines(t, succeed(t, "devices", "ls", r.file("hub.db")), `pump-17 1 of 1 streams held 1 0 0 0 \d+ `+aTime)
	wantLines(t, succeed(t, "status", r.file("hub.db")), `1 0 1 1 0 0 0 `+aTime)
	wantLines(t, succeed(t, "status", r.file("device.db")), `up pump-17 jobs.example.org 1 1 0 1 `+aTime)
	wantLines(t, succeed(t, "devices", "accept", r.file("hub.db"), "--all"), "1 stream goes on when the device next asks, within about a minute")
	wantLines(t, succeed(t, "devices", "accept", r.file("hub.db"), "pump-17"), "no stream was held")
	s.end(t)
	pass(third)

	var missing struct{ Missing []relay.Lack }
	if err := json.Unmarshal([]byte(succeed(t, "relay", "missing", r.file("device.db"), "--json")), &missing); err != nil || len(missing.Missing) != 1 || len(missing.Missing[0].Jobs) != 1 {
		t.Fatalf("%v: missing are %+v", err, missing)
	}
	lost := missing.Missing[0].Jobs[0].String()
	wantLines(t, succeed(t, "relay", "missing", r.file("device.db")), `up [0-9a-f]{32} `+aTime+` 1 .*`, lost+` up`)
	if status, out, errs := errand(t, "", "relay", "resend", r.file("device.db")); status != 2 || out != "" || !strings.Contains(errs, "not confirmed: enqueue 1 job again needs --yes") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	wantLines(t, succeed(t, "relay", "resend", r.file("device.db"), "--yes"), "1 job enqueued again")
	wantLines(t, succeed(t, "relay", "resend", r.file("device.db")), "0 jobs enqueued again")
	wantLines(t, succeed(t, "audit", r.file("device.db")), aTime+` \S+ relay resend - 1 -`)
	wantLines(t, succeed(t, "audit", r.file("hub.db")), aTime+` \S+ devices accept --all true 0 -`)
	list := succeed(t, "jobs", "ls", r.file("device.db"), "--state", "ready")
	pass(uuids.FindString(list))
	if got := r.hub(); len(got) != 3 {
		t.Errorf("%d jobs on the server", len(got))
	}
}

// A file of devices adds those that are not there: one that was revoked stays so.
func TestServe_Devices(t *testing.T) {
	r := relaying(t)
	succeed(t, "devices", "revoke", r.file("hub.db"), "pump-17")
	r.serve("--devices", r.file("devices.txt")).end(t)
	r.serve("--devices", r.file("devices.txt")).end(t)
	wantLines(t, succeed(t, "devices", "ls", r.file("hub.db")), `pump-17 revoked since `+aTime+` 0 0 0 0 0 -`, `pump-20 taken 0 0 0 0 0 -`)
	secret := relay.NewSharedKey()
	for in, want := range map[string]string{
		"pump-21":                  "line 1: must be a name, a space and a key",
		"\npump-21 x y":            "line 2: must be a name, a space and a key",
		"a " + secret + "\na x":    `line 2: device "a" is in line 1 too`,
		"a b-" + secret:            `--devices: device "a": `,
		"a\u0001 " + secret + "\n": "--devices: device ",
	} {
		status, out, errs := errand(t, in, "serve", r.file("hub.db"), "--relay", "--listen", "127.0.0.1:0", "--server", "jobs.example.org", "--key", r.file("hub.key"), "--devices", "-")
		if status != 2 || out != "" || !strings.Contains(errs, want) || strings.Contains(errs, secret) {
			t.Errorf("%q: status %d: %s%s", in, status, out, errs)
		}
	}
}

// With a certificate it serves https, and only one path.
func TestServe_TLS(t *testing.T) {
	r := relaying(t)
	cert, key, known := certificate(t)
	s := r.serve("--tls-cert", cert, "--tls-key", key)
	c := browser(t)
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: known}
	if status, _ := visit(t, c, s.url); !strings.HasPrefix(s.url, "https://127.0.0.1:") || status != http.StatusBadRequest {
		t.Errorf("%s: status %d", s.url, status)
	}
	if status, _ := visit(t, c, strings.TrimSuffix(s.url, "relay")); status != http.StatusNotFound {
		t.Errorf("elsewhere: status %d", status)
	}
	s.end(t)
}

// A device that has a certificate needs no key, and neither does its server.
func TestRelay_mutualTLS(t *testing.T) {
	r := relaying(t)
	cert, key, _ := certificate(t)
	tls := []string{"--tls-cert", cert, "--tls-key", key}
	s := r.serveWith(append(tls, "--tls-client-ca", cert)...)
	succeed(t, "devices", "add", r.file("hub.db"), "pump-17", "--mtls")
	id := r.enqueue("measure")
	args := append([]string{"relay", r.file("device.db"), "--to", s.url, "--server", "jobs.example.org", "--device", "pump-17", "--queue", "up", "--tls-ca", cert}, tls...)
	d := start(t, "", args...)
	t.Cleanup(d.stop)
	if status, out, errs := errand(t, "", "jobs", "wait", r.file("device.db"), id); status != 0 {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	d.over(t)
	if hub := r.hub(); len(hub) != 1 || hub[0].Origin.Device != "pump-17" {
		t.Errorf("on the server are %+v", hub)
	}
	s.end(t)
}

// A certificate that was renewed counts from the next connection on.
func TestRelay_renewed(t *testing.T) {
	cert, key, _ := certificate(t)
	newCert, newKey, _ := certificate(t)
	c, err := tlsClient(cert, key, "", 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(newCert, cert), os.Rename(newKey, key)); err != nil {
		t.Fatal(err)
	}
	want, err := certificateIn(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate(nil)
	if err != nil || !bytes.Equal(got.Certificate[0], want.Certificate[0]) {
		t.Errorf("another certificate than in the file, %v", err)
	}
}

// A server whose queue has ended ends too, so that it is started again.
func TestServe_Ended(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be removed there")
	}
	r := relaying(t)
	s := r.serve()
	if err := errors.Join(os.Remove(r.file("hub.db")), os.Remove(r.file("hub.db-wal")), os.Remove(r.file("hub.db-shm"))); err != nil {
		t.Fatal(err)
	}
	r.enqueue("measure")
	d := r.forward(s.url)
	s.until(t, "errand: the queue has ended: ")
	for s.lines.Scan() {
	}
	if status := <-s.status; status != statusUnusable {
		t.Errorf("status %d", status)
	}
	d.over(t)
}

func TestRelay_BadUsage(t *testing.T) {
	r := relaying(t)
	secret := relay.NewSharedKey()
	private, public := relay.NewKey()
	cert, certKey, _ := certificate(t)
	hub, device := r.file("hub.db"), r.file("device.db")
	serve := []string{"serve", hub, "--relay", "--listen", "127.0.0.1:0", "--server", "s", "--key", r.file("hub.key")}
	forward := []string{"relay", device, "--to", "https://jobs.example.org/relay", "--server", "s", "--device", "d", "--key", r.file("pump-17.key"), "--queue", "up", "--server-key", public}
	with := func(of []string, more ...string) []string { return append(append([]string{}, of...), more...) }
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{2, `required flag(s) "listen", "relay", "server" not set`, []string{"serve", hub}},
		{2, "[key tls-client-ca]", serve[:len(serve)-2]},
		{2, "--tls-client-ca needs --tls-cert", with(serve, "--tls-client-ca", r.file("hub.pub"))},
		{2, "--tls-client-ca: open ", with(serve, "--tls-cert", cert, "--tls-key", certKey, "--tls-client-ca", r.file("none"))},
		{2, "hub.pub has no certificate in PEM", with(serve, "--tls-cert", cert, "--tls-key", certKey, "--tls-client-ca", r.file("hub.pub"))},
		{2, "[key tls-cert]", with(forward, "--tls-cert", cert, "--tls-key", certKey)},
		{2, "--tls-ca: open ", with(forward, "--tls-ca", r.file("none"))},
		{2, "hub.pub has no certificate in PEM", with(forward, "--tls-ca", r.file("hub.pub"))},
		{2, "[key tls-cert]", []string{"relay", device, "--to", "https://a.example/relay", "--server", "s", "--device", "d", "--queue", "up"}},
		{2, "[server-key tls-cert]", []string{"relay", device, "--to", "https://a.example/relay", "--server", "s", "--device", "d", "--queue", "up", "--tls-cert", cert, "--tls-key", certKey, "--server-key", public}},
		{2, "there is nothing else to serve", with(serve, "--relay=false")},
		{2, "--concurrency must be at least 1", with(serve, "--concurrency", "0")},
		{2, "--key: must be the name of a file: this key is secret", with(serve, "--key", private)},
		{2, "--key: open ", with(serve, "--key", r.file("none"))},
		{2, "key ", with(serve, "--key", public)},
		{2, "--listen: ", with(serve, "--listen", "nowhere:x")},
		{2, "--devices: open ", with(serve, "--devices", r.file("none"))},
		{2, "--tls-cert ", with(serve, "--tls-cert", r.file("none"), "--tls-key", r.file("none"))},
		{2, "none.db", with([]string{"serve", r.file("none.db")}, serve[2:]...)},
		{2, "url \"http://jobs.example.org/relay\": must have the scheme https", with(forward, "--to", "http://jobs.example.org/relay")},
		{2, "--streams must be at least 1", with(forward, "--streams", "0")},
		{2, "--keep must not be negative", with(forward, "--keep", "-1s")},
		{2, "--key: open ", with(forward, "--key", r.file("none"))},
		{2, "--key: must be the name of a file", with(forward, "--key", public)},
		{2, "--key: must be the name of a file", with(forward, "--key", private)},
		{2, "hub.pub has a public key, which cannot sign", with(forward, "--key", r.file("hub.pub"))},
		{2, "devices.txt has no key: want a line", with(forward, "--key", r.file("devices.txt"))},
		{2, "--server-key is needed", forward[:len(forward)-2]},
		{2, "--server-key: must be the name of a file", with(forward, "--server-key", secret)},
		{2, "pump-17.key has a private key, which stays where it signs", with(forward, "--server-key", r.file("pump-17.key"))},
		{2, "accepts 1 arg(s), received 0; usage: errand relay FILE", []string{"relay"}},
		{2, "none.db", []string{"relay", "missing", r.file("none.db")}},
		{2, "accept needs the NAME of a device or --all, and not both", []string{"devices", "accept", hub}},
		{2, "accept needs the NAME of a device or --all, and not both", []string{"devices", "accept", hub, ""}},
		{2, "accept needs the NAME of a device or --all, and not both", []string{"devices", "accept", hub, "", "--all"}},
		{2, "accept needs the NAME of a device or --all, and not both", []string{"devices", "accept", hub, "pump-17", "--all"}},
		{1, "not found", []string{"devices", "accept", hub, "pump-9"}},
		{1, "not found", []string{"devices", "revoke", hub, "pump-9"}},
		{1, "not found", []string{"devices", "restore", hub, "pump-9"}},
		{1, "device pump-9: ", []string{"devices", "show", hub, "pump-9"}},
		{2, "[key new-key mtls]", []string{"devices", "add", hub, "d"}},
		{2, "[key new-key mtls]", []string{"devices", "add", hub, "d", "--key", public, "--new-key", r.file("d.key")}},
		{2, "--key: must be the name of a file", []string{"devices", "add", hub, "d", "--key", secret}},
		{2, "pump-17.key has a private key, which stays where it signs", []string{"devices", "add", hub, "d", "--key", r.file("pump-17.key")}},
		{2, "--new-key: open ", []string{"devices", "add", hub, "d", "--new-key", r.file("pump-17.key")}},
		{2, "name ", []string{"devices", "add", hub, "d d", "--new-key", r.file("d.key")}},
		{2, "--min-priority and --max-priority need each other", []string{"devices", "add", hub, "d", "--key", public, "--min-priority", "5"}},
		{2, "open ", []string{"devices", "new-key", r.file("pump-17.key")}},
	} {
		status, out, errs := errand(t, "", c.args...)
		if status != c.status || out != "" || !strings.Contains(errs, c.want) || strings.Contains(errs, secret) || strings.Contains(errs, private) {
			t.Errorf("%q: status %d: %s%s", c.args, status, out, errs)
		}
	}
	if _, err := os.Stat(r.file("d.key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key of no device is there: %v", err)
	}
}

// What is said of a device is in the file, and a key is only in its own.
func TestDevices(t *testing.T) {
	r := relaying(t)
	hub := r.file("hub.db")
	succeed(t, "devices", "new-key", "--shared", r.file("meter-4.key"))
	for _, name := range []string{"hub.key", "pump-17.key", "meter-4.key"} {
		info, err := os.Stat(r.file(name))
		if err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
			t.Errorf("%s: %v, mode %v", name, err, info.Mode())
		}
	}
	add := []string{"devices", "add", hub, "meter-4", "--key", r.file("meter-4.key"), "--kind", "read,alarm", "--queue", "meters",
		"--min-priority", "-5", "--max-priority", "10", "--bytes-a-day", "1000000", "--shared-key", "site-"}
	wantLines(t, succeed(t, add...), "meter-4: added")
	wantLines(t, succeed(t, "devices", "show", hub, "meter-4"), "device meter-4", "state taken", "key hmac-sha256", "kinds read, alarm",
		"queue meters", "priority -5 to 10", "bytes a day 1000000", "shared keys site-", "created "+aTime)
	wantLines(t, succeed(t, "devices", "revoke", hub, "meter-4"), "meter-4: revoked")
	wantLines(t, succeed(t, "devices", "show", hub, "meter-4"), "state revoked since "+aTime)
	wantLines(t, succeed(t, "devices", "restore", hub, "meter-4"), "meter-4: may send")
	wantLines(t, succeed(t, "devices", "show", hub, "meter-4"), "state taken", "kinds read, alarm", "bytes a day 1000000")
	if out := succeed(t, add...); out != "meter-4: key and rights replaced\n" {
		t.Errorf("the same rights again: %s", out)
	}
	wantLines(t, succeed(t, "devices", "revoke", hub, "meter-4"), "meter-4: revoked")
	wantLines(t, succeed(t, "devices", "add", hub, "meter-4", "--key", r.file("meter-4.key")), "meter-4: key and rights replaced",
		"it could send: kinds read, alarm; queue meters; priority -5 to 10; bytes a day 1000000; shared keys site-", `it may now send: kinds \(all\)`)
	wantLines(t, succeed(t, "devices", "show", hub, "meter-4"), "state taken", `kinds \(all\)`)
	wantLines(t, succeed(t, "devices", "ls", r.file("device.db")), "this file has no devices")
	wantLines(t, succeed(t, "relay", "missing", hub), "this file has no relayed queue")
	wantLines(t, succeed(t, "relay", "resend", hub), "this file has no relayed queue")
	out := succeed(t, "devices", "add", hub, "pump-18", "--new-key", r.file("pump-18.key"))
	public := regexp.MustCompile(`its public key is (ed25519-public:[0-9a-f]{64})\n`).FindStringSubmatch(out)
	if public == nil {
		t.Fatalf("no public key is in %s", out)
	}
	wantLines(t, succeed(t, "devices", "show", hub, "pump-18"), "key "+public[1])
	audit := succeed(t, "audit", hub)
	wantLines(t, audit, aTime+` \S+ devices restore meter-4 0 -`, aTime+` \S+ devices revoke meter-4 0 -`,
		aTime+` \S+ devices add meter-4 --bytes-a-day --key --kind \[read,alarm\] --max-priority --min-priority --queue meters --shared-key 0 -`)
	key, err := os.ReadFile(r.file("meter-4.key"))
	if err != nil || bytes.Contains([]byte(audit), bytes.TrimSpace(key)) {
		t.Errorf("%v; the key is in %s", err, audit)
	}
}
