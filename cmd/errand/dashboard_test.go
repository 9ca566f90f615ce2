package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// lockedBuffer is what a program has written, also while it runs.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// board is a dashboard that runs in this process.
type board struct {
	keyboard io.WriteCloser
	lines    *bufio.Scanner
	errs     lockedBuffer
	stop     func()
	status   chan int
	greeting string
	url      string // with the token, if there is one
}

// serveBoard runs errand dashboard, until the test ends or end is called.
func serveBoard(t *testing.T, args ...string) *board {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	in, keyboard := io.Pipe()
	r, w, err := os.Pipe() // which holds what is not read yet
	if err != nil {
		t.Fatal(err)
	}
	b := &board{keyboard: keyboard, lines: bufio.NewScanner(r), stop: stop, status: make(chan int, 1)}
	go func() {
		status := run(ctx, append([]string{"dashboard"}, args...), in, w, &b.errs)
		_ = w.Close()
		b.status <- status
	}()
	t.Cleanup(stop)
	b.greeting, b.url = b.next(t), b.next(t)
	return b
}

func (b *board) next(t *testing.T) string {
	t.Helper()
	if !b.lines.Scan() {
		t.Fatalf("no line: %v; %s", b.lines.Err(), &b.errs)
	}
	return b.lines.Text()
}

// end interrupts the dashboard, and wants status 0.
func (b *board) end(t *testing.T) {
	t.Helper()
	b.stop()
	if status := <-b.status; status != 0 {
		t.Errorf("status %d: %s", status, &b.errs)
	}
}

// root is the address of the first page.
func (b *board) root() string { return b.url[:strings.LastIndex(b.url, "/")+1] }

// browser has a jar for cookies of its own.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport}
}

// ask sends a request, and returns the status and the page.
func ask(t *testing.T, c *http.Client, r *http.Request) (int, string) {
	t.Helper()
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func visit(t *testing.T, c *http.Client, address string, with ...func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range with {
		f(r)
	}
	return ask(t, c, r)
}

// send posts a form as a browser does from a page of the dashboard.
func send(t *testing.T, c *http.Client, address string, form url.Values) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return ask(t, c, r)
}

func boardFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	if _, err := fixture(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// isPage reports whether a text is a page of the look of the others.
func isPage(text string) bool {
	return strings.Contains(text, "style.css") && strings.Contains(text, "<h1>")
}

// The address that is printed lets in one browser, once, and others are told what to do.
func TestDashboard_Enters(t *testing.T) {
	b := serveBoard(t, boardFile(t))
	if want := regexp.MustCompile(`^http://127\.0\.0\.1:\d+/[A-Z2-7]{13}/\?token=[A-Z2-7]{26}$`); !want.MatchString(b.url) {
		t.Errorf("%q: want %s", b.url, want)
	}
	ann, eve := browser(t), browser(t)
	foreign := func(r *http.Request) { r.Host = "evil.example" }
	for name, c := range map[string]struct {
		at     string
		with   func(*http.Request)
		status int
		text   string
	}{
		"without a token":           {b.root(), func(*http.Request) {}, 403, "Enter prints another one there."},
		"as JSON":                   {b.root() + "?format=json", func(*http.Request) {}, 403, `"remedy"`},
		"without the path":          {b.url[:strings.Index(b.url[8:], "/")+9] + b.url[strings.Index(b.url, "?"):], func(*http.Request) {}, 403, "not whole"},
		"another token":             {b.root() + "?token=A", func(*http.Request) {}, 403, "has been used"},
		"another host":              {b.root(), foreign, 421, "--host"},
		"another host with a token": {b.url, foreign, 421, "--host"},
		"an odd host":               {b.root(), func(r *http.Request) { r.Host = "localhost@evil.example" }, 421, "--host"},
		"no cookie of the port":     {b.root(), func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "errand-1", Value: "x"}) }, 403, "let in"},
	} {
		if status, text := visit(t, eve, c.at, c.with); status != c.status || !strings.Contains(text, c.text) || name != "as JSON" && !isPage(text) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text := visit(t, ann, b.url); status != 200 || !strings.Contains(text, "admin") || !strings.Contains(text, "jobs.db") {
		t.Errorf("with the token: %d %s", status, text)
	}
	at, err := url.Parse(b.root())
	if err != nil {
		t.Fatal(err)
	}
	if all := ann.Jar.Cookies(at); len(all) != 1 || all[0].Name != "errand-"+at.Port() {
		t.Errorf("cookies %v", all)
	}
	if all := ann.Jar.Cookies(&url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/a/"}); len(all) > 0 { // somebody else's server
		t.Errorf("another port gets cookies %v", all)
	}
	if status, text := visit(t, ann, b.root()+"jobs"); status != 200 || !strings.Contains(text, "<h1>Jobs</h1>") {
		t.Errorf("with the cookie: %d %s", status, text)
	}
	if status, _ := visit(t, ann, b.url); status != 200 {
		t.Errorf("the address again, from one who is in: %d", status)
	}
	if status, text := visit(t, eve, b.url); status != 403 || !isPage(text) || !strings.Contains(text, "Press Enter") {
		t.Errorf("the token again: %d %s", status, text)
	}
	if _, err := io.WriteString(b.keyboard, "\n"); err != nil {
		t.Fatal(err)
	}
	another := b.next(t)
	if status, _ := visit(t, eve, another); another == b.url || status != 200 {
		t.Errorf("another address %q: %d", another, status)
	}
	if err := b.keyboard.Close(); err != nil { // which ends nothing
		t.Fatal(err)
	}
	if status, _ := visit(t, ann, b.root()); status != 200 {
		t.Errorf("after the end of the input: %d", status)
	}
	b.end(t)
}

// The cookie is kept from scripts and from other sites, and nothing keeps the address.
func TestDashboard_Cookie(t *testing.T) {
	b := serveBoard(t, boardFile(t))
	c := browser(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := c.Get(b.url)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	all := answer.Cookies()
	if len(all) != 1 || !all[0].HttpOnly || all[0].SameSite != http.SameSiteStrictMode || all[0].Path != "" || len(all[0].Value) < 26 || all[0].MaxAge != 12*60*60 {
		t.Errorf("cookies %+v", all)
	}
	// One who follows a link of another site gets a page that goes on by itself.
	if _, err := io.WriteString(b.keyboard, "\n"); err != nil {
		t.Fatal(err)
	}
	if status, text := visit(t, browser(t), b.next(t), func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); status != 200 || !strings.Contains(text, `href="./"`) || strings.Contains(text, "<h1>") {
		t.Errorf("from another site: %d %s", status, text)
	}
	h := answer.Header
	if answer.StatusCode != 303 || h.Get("Location") != "./" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", answer.StatusCode, h)
	}
}

// Tokens and sessions lapse, a token is used once, and there is a bound to both.
func TestDashboard_Lapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &entrance{}
		e.at(&net.TCPAddr{Port: 1})
		token := func() string {
			_, token, _ := strings.Cut(e.address(), "=")
			return token
		}
		first, late := token(), token()
		time.Sleep(tokenFor - time.Second)
		session, ok := e.spend(first)
		if _, again := e.spend(first); !ok || again {
			t.Errorf("spent: %t, again: %t", ok, again)
		}
		time.Sleep(time.Second)
		if _, ok := e.spend(late); ok {
			t.Error("a token is good after 10 minutes")
		}
		time.Sleep(sessionFor - 2*time.Second)
		if !e.sessions.good(session) {
			t.Error("a session is over before 12 hours")
		}
		time.Sleep(2 * time.Second)
		if e.sessions.good(session) {
			t.Error("a session is good after 12 hours")
		}
		sessions := make([]string, 0, mostSessions+1)
		for range mostSessions + 1 {
			session, _ := e.spend(token())
			sessions = append(sessions, session)
			time.Sleep(time.Second)
		}
		if n := slices.IndexFunc(sessions, e.sessions.good); n != 1 || len(e.sessions) != mostSessions {
			t.Errorf("%d sessions, the first good one is %d", len(e.sessions), n)
		}
		for range 2 * mostTokens {
			token()
		}
		if len(e.tokens) != mostTokens {
			t.Errorf("%d tokens", len(e.tokens))
		}
	})
}

// Names that a proxy or a tunnel has are allowed by --host, also as the origin of forms.
func TestDashboard_Host(t *testing.T) {
	b := serveBoard(t, boardFile(t), "--host", "Ops.example.com", "--host", "ops2.example.com:8443")
	c := browser(t)
	if status, _ := visit(t, c, b.url); status != 200 {
		t.Fatalf("%d", status)
	}
	for host, known := range map[string]bool{
		"ops.example.com": true, "OPS.example.com:443": true, "ops2.example.com": true, "localhost:9": true, "[::1]:7": true,
		"ops3.example.com": false, "127.0.0.2": false, "ops.example.com.": false,
	} {
		status, text := visit(t, c, b.root(), func(r *http.Request) { r.Host = host })
		if (status != 421) != known {
			t.Errorf("%s: %d %s", host, status, text)
		}
	}
	form := url.Values{"do": {"hold"}, "queue": {"mail"}}
	for origin, want := range map[string]int{"http://Ops.example.com": 200, "https://ops2.example.com:8443": 200, "https://evil.example": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.root()+"act", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", origin) // as over plain http, where nothing else is sent
		if status, text := ask(t, c, r); status != want || want == 403 && (!strings.Contains(text, "--host") || !strings.Contains(text, origin)) {
			t.Errorf("%s: %d %s", origin, status, text)
		}
	}
}

// With a certificate only pages of https may send forms.
func TestDashboard_HostTLS(t *testing.T) {
	for want, config := range map[string]*tls.Config{"https://ops.example.com": {}, "http://ops.example.com https://ops.example.com": nil} {
		e := &entrance{tls: config}
		if err := e.allow("ops.example.com"); err != nil || strings.Join(e.origins, " ") != want {
			t.Errorf("%v, %v: want %s", e.origins, err, want)
		}
	}
	cert, key, _ := certificate(t)
	f := &dashboardFlags{listen: "127.0.0.1:0", hosts: []string{"ops.example.com"}, cert: cert, key: key}
	if e, err := f.entrance(t.Context()); err != nil || len(e.origins) != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

// A socket is for this user alone, takes the place of one that was left, and of nothing else.
func TestDashboard_Socket(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing there")
	}
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

// usersFile writes a file with a user ann, an operator with password secret.
func usersFile(t *testing.T, mode os.FileMode) string {
	t.Helper()
	hash := strings.TrimSpace(hashOf(t, "secret"))
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte("# those who may enter\n\nann:operator:"+hash+"\n"), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func hashOf(t *testing.T, password string) string {
	t.Helper()
	status, out, errs := errand(t, password+"\n", "dashboard", "--hash")
	if status != 0 || errs != "" || strings.Contains(out, password) {
		t.Fatalf("%d %s %s", status, out, errs)
	}
	return out
}

// With passwords it may listen for other machines, and prints no address that lets in.
func TestDashboard_Auth(t *testing.T) {
	b := serveBoard(t, boardFile(t), "--listen", "0.0.0.0:0", "--auth", usersFile(t, 0o600))
	if b.url != b.root() || !strings.Contains(b.errs.String(), "in the clear") {
		t.Errorf("%s %s", b.url, &b.errs)
	}
	for _, c := range []struct {
		name, password string
		want           int
	}{{"ann", "secret", 200}, {"ann", "Secret", 401}, {"eve", "secret", 401}, {"", "", 401}} {
		status, text := visit(t, browser(t), b.root(), func(r *http.Request) {
			if c.name != "" {
				r.SetBasicAuth(c.name, c.password)
			}
		})
		if status != c.want || (status == 200) != strings.Contains(text, "ann, operator") || !strings.Contains(text, "style.css") {
			t.Errorf("%s %s: %d %s", c.name, c.password, status, text)
		}
	}
	if status, _ := visit(t, browser(t), b.root()+"?token=A", func(r *http.Request) { r.SetBasicAuth("ann", "secret") }); status != 200 {
		t.Errorf("with a parameter: %d", status)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(b.root())
	if err != nil {
		t.Fatal(err)
	}
	if line := b.next(t); line != "http://"+name+":"+at.Port()+"/" {
		t.Errorf("for other machines it prints %q", line)
	}
	for host, want := range map[string]int{name: 200, strings.ToUpper(name): 200, name + ".evil.example": 421} {
		status, text := visit(t, browser(t), b.root(), func(r *http.Request) {
			r.Host = host + ":" + at.Port()
			r.SetBasicAuth("ann", "secret")
		})
		if status != want {
			t.Errorf("by %s: %d %s", host, status, text)
		}
	}
	b.end(t)
}

// certificate writes a certificate of this machine and its key.
func certificate(t *testing.T) (cert, key string, known *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	known = x509.NewCertPool()
	known.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return cert, key, known
}

// With a certificate it serves https, and its cookie is for that alone.
func TestDashboard_TLS(t *testing.T) {
	cert, key, known := certificate(t)
	b := serveBoard(t, boardFile(t), "--tls-cert", cert, "--tls-key", key)
	c := browser(t)
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: known}
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if set := r.Response.Cookies(); len(set) != 1 || !set[0].Secure {
			t.Errorf("cookies %v", set)
		}
		return nil
	}
	if status, text := visit(t, c, b.url); !strings.HasPrefix(b.url, "https://127.0.0.1:") || status != 200 || !strings.Contains(text, "admin") {
		t.Errorf("%s: %d %s", b.url, status, text)
	}
	b.end(t)
}

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
		{"--tls-cert, --tls-key: open none.pem", []string{file, "--tls-cert", "none.pem", "--tls-key", "none.pem"}},
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

// If another file is put in the place of the one that is shown, pages say so and show neither.
func TestDashboard_Replaced(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files that are open stay there")
	}
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

// A request that goes on without an end does not keep the command from ending.
func TestServeUntil(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})}
	go func() { ended <- serveUntil(ctx, server, l, time.Hour) }()
	answer, err := browser(t).Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// oneConn accepts one connection.
type oneConn chan net.Conn

func (o oneConn) Accept() (net.Conn, error) {
	if c, ok := <-o; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (oneConn) Close() error   { return nil }
func (oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// Who sends a form byte by byte, or reads no page, is dropped. A stream goes on.
func TestNewServer(t *testing.T) {
	const form = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
	page := bytes.Repeat([]byte("a"), 1<<20)
	for name, c := range map[string]struct {
		send   string
		handle http.HandlerFunc
		after  time.Duration
	}{
		"a slow form":   {form, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, readFor},
		"a deaf reader": {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }, answerFor},
		"a stream": {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(time.Hour):
			case <-r.Context().Done():
			}
		}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(ended)
					c.handle(w, r)
				}), nil)
				l, began := make(oneConn, 1), time.Now()
				here, there := net.Pipe()
				l <- there
				go func() { _ = server.Serve(l) }() // until Close
				if _, err := io.WriteString(here, c.send); err != nil {
					t.Fatal(err)
				}
				<-ended
				if took := time.Since(began); took != c.after {
					t.Errorf("it ended after %v, not after %v", took, c.after)
				}
				_ = here.Close()
				close(l)
				_ = server.Close()
			})
		})
	}
}

// A real process ends on an interrupt with status 0, while browsers are connected.
func TestDashboard_Interrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no interrupts are sent there")
	}
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

// Who comes by the address has the role of the flag.
func TestDashboard_Role(t *testing.T) {
	for _, c := range []struct {
		args []string
		want dashboard.Role
	}{{nil, dashboard.Admin}, {[]string{"--role", "operator"}, dashboard.Operator}} {
		b := serveBoard(t, append([]string{boardFile(t)}, c.args...)...)
		if status, text := visit(t, browser(t), b.url); status != 200 || !strings.Contains(text, ", "+c.want.String()) {
			t.Errorf("%v: %d %s", c.args, status, text)
		}
		b.end(t)
	}
}
