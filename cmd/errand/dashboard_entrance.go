package main

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand/dashboard"
)

// pathSize is how many letters of 5 bits the path of the address has: more than can be tried.
const pathSize = 13

// How long tokens and sessions are valid, and how many of each there are. One more takes the place of
// the oldest.
const (
	tokenFor     = 10 * time.Minute
	sessionFor   = 12 * time.Hour
	mostTokens   = 16
	mostSessions = 64
)

// entrance lets people in: by an address that works once, or by their passwords.
type entrance struct {
	role      dashboard.Role // of who comes by the address
	name      string
	passwords func(*http.Request) (dashboard.Identity, error) // nil: by the address
	tls       *tls.Config
	file      *keptFile
	hosts     []string // that people see, in lower case and without ports
	others    []string // hosts with ports by which other machines reach it
	origins   []string

	scheme, host, port string // of the address; the port is "socket" for a socket
	// Browsers send a cookie to all ports of a host, where other users of this machine may listen,
	// but only below the path that it is for. So that path is a secret; empty with passwords.
	path string

	mu               sync.Mutex
	tokens, sessions keys
}

// keys are secrets by their hashes, with the time at which each lapses. So the time that a search
// takes says nothing of a secret.
type keys map[[sha256.Size]byte]time.Time

// add makes a secret, and drops the one that lapses first if there are too many.
func (k keys) add(lasts time.Duration, most int) string {
	if len(k) >= most {
		var first [sha256.Size]byte
		for key, until := range k {
			if k[first].IsZero() || until.Before(k[first]) {
				first = key
			}
		}
		delete(k, first)
	}
	secret := rand.Text()
	k[sha256.Sum256([]byte(secret))] = time.Now().Add(lasts)
	return secret
}

// good reports whether a secret is one of them, and has not lapsed.
func (k keys) good(secret string) bool {
	until, ok := k[sha256.Sum256([]byte(secret))]
	return ok && time.Now().Before(until)
}

// allow adds a host that people see. The certificate is there before, if there is one.
func (e *entrance) allow(host string) error {
	u, err := url.Parse("http://" + host)
	if err != nil || u.Host != host || u.Hostname() == "" || u.User != nil {
		return fmt.Errorf("--host %q: must be a name, as ops.example.com, with a port if it is not the usual one", host)
	}
	e.hosts = append(e.hosts, strings.ToLower(u.Hostname()))
	if e.tls == nil { // a proxy may add https, or not
		e.origins = append(e.origins, "http://"+host)
	}
	e.origins = append(e.origins, "https://"+host)
	return nil
}

// reach adds what other machines call this one, if the dashboard listens for them: its name, and its
// addresses if it listens on all.
func (e *entrance) reach(ip net.IP) {
	if name, err := os.Hostname(); err == nil && name != "" {
		e.hosts, e.others = append(e.hosts, strings.ToLower(name)), append(e.others, net.JoinHostPort(name, e.port))
	}
	if !ip.IsUnspecified() {
		return
	}
	all, err := net.InterfaceAddrs()
	if err != nil { // then it is not known what to print
		return
	}
	for _, a := range all {
		if of, ok := a.(*net.IPNet); ok && of.IP.IsGlobalUnicast() && !of.IP.IsLoopback() {
			e.others = append(e.others, net.JoinHostPort(of.IP.String(), e.port))
		}
	}
}

// at says where the dashboard listens.
func (e *entrance) at(a net.Addr) {
	e.tokens, e.sessions = keys{}, keys{}
	e.scheme, e.host, e.port = "http", "localhost:8080", "socket"
	if tcp, ok := a.(*net.TCPAddr); ok {
		e.port = strconv.Itoa(tcp.Port)
		e.host = tcp.String()
		if tcp.IP.IsUnspecified() { // which is the address of nobody
			e.host = net.JoinHostPort("127.0.0.1", e.port)
		}
		if !tcp.IP.IsLoopback() {
			e.reach(tcp.IP)
		}
	}
	if e.tls != nil {
		e.scheme = "https"
	}
	if e.passwords == nil {
		e.path = rand.Text()[:pathSize] + "/"
	}
}

// address returns where the dashboard is, with a token that lets one browser in if there are no
// passwords.
func (e *entrance) address() string {
	at := e.scheme + "://" + e.host + "/" + e.path
	if e.passwords != nil {
		return at
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return at + "?token=" + e.tokens.add(tokenFor, mostTokens)
}

// spend uses up a token, and returns a session for it.
func (e *entrance) spend(token string) (session string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ok = e.tokens.good(token); !ok {
		return "", false
	}
	delete(e.tokens, sha256.Sum256([]byte(token)))
	return e.sessions.add(sessionFor, mostSessions), true
}

// cookie is the name of the cookie, other than that of other dashboards which a browser sees under
// the same host: by the port here, and by that of a tunnel.
func (e *entrance) cookie(r *http.Request) string {
	name := "errand-" + e.port
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != e.port {
		name += "-" + port
	}
	return name
}

// entered reports whether a request has the cookie of a session.
func (e *entrance) entered(r *http.Request) bool {
	c, err := r.Cookie(e.cookie(r))
	if err != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions.good(c.Value)
}

// known returns an error for a request that is for another host, as the name of a foreign page may
// lead here. An address that is no name cannot.
func (e *entrance) known(r *http.Request) error {
	u, err := url.Parse("http://" + r.Host)
	if err == nil && u.Host == r.Host {
		name := strings.ToLower(u.Hostname())
		for _, h := range append([]string{"localhost", "127.0.0.1", "::1"}, e.hosts...) {
			if name == h {
				return nil
			}
		}
		at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if ip, err := netip.ParseAddr(name); err == nil && ok && at.AddrPort().Addr().Unmap() == ip.Unmap() {
			return nil
		}
	}
	return &dashboard.AuthError{Status: http.StatusMisdirectedRequest, Text: "This is not an address of the dashboard.",
		Remedy: "If a proxy or a tunnel leads here, start errand dashboard with --host and the name that you see in the address. Else open the address that the command has printed."}
}

// identity is the Auth of the dashboard.
func (e *entrance) identity(r *http.Request) (who dashboard.Identity, err error) {
	if err := e.known(r); err != nil {
		return who, err
	}
	who, err = e.enters(r)
	if err == nil && e.file.replaced() {
		return who, &dashboard.AuthError{Status: http.StatusServiceUnavailable, Text: "Another file was put in the place of " + filepath.Base(e.file.path) + ".",
			Remedy: "End errand dashboard, and start it again: pages would mix the two files."}
	}
	return who, err
}

// enters returns who a request is from, of those who may enter.
func (e *entrance) enters(r *http.Request) (who dashboard.Identity, err error) {
	switch {
	case e.passwords != nil:
		return e.passwords(r)
	case e.entered(r):
		return dashboard.Identity{Name: e.name, Role: e.role}, nil
	case r.URL.Query().Has("token"):
		return who, &dashboard.AuthError{Status: http.StatusForbidden, Text: "This address has been used, is older than 10 minutes, or is not whole.",
			Remedy: "Press Enter where errand dashboard runs: it prints another one."}
	}
	return who, &dashboard.AuthError{Status: http.StatusForbidden, Text: "This browser has not been let in, or was 12 hours ago.",
		Remedy: "Open the address that errand dashboard has printed. Enter prints another one there."}
}

// enter takes tokens, and leaves all else to next.
func (e *entrance) enter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.URL.Query().Get("token")
		// A proxy may have the dashboard below a path of its own, so that this one is the end of it.
		if token == "" || r.Method != http.MethodGet || e.known(r) != nil || !strings.HasSuffix(r.URL.Path, "/"+e.path) {
			next.ServeHTTP(w, r)
			return
		}
		if e.passwords == nil && !e.entered(r) {
			session, ok := e.spend(token)
			if !ok {
				next.ServeHTTP(w, r)
				return
			}
			// Without a path it is for the one that the browser sees.
			http.SetCookie(w, &http.Cookie{Name: e.cookie(r), Value: session, MaxAge: int(sessionFor / time.Second),
				HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
		}
		h := w.Header()
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		// The way is relative, as a proxy may have the dashboard under a path.
		if from := r.Header.Get("Sec-Fetch-Site"); from == "cross-site" || from == "same-site" {
			// A page of another site has the link: a redirect would count as its request, and be
			// without the cookie. A page that goes on by itself counts as ours.
			h.Set("Refresh", "0; url=./")
			h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
			h.Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, `<!doctype html><html lang="en"><title>errand</title><p><a href="./">To the dashboard</a></p></html>`)
			return
		}
		h.Set("Location", "./")
		w.WriteHeader(http.StatusSeeOther)
	})
}

// userName is who runs the command, for what actions leave.
func userName() string {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME", "USERNAME"} {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return "command"
}
