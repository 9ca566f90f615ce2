package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
