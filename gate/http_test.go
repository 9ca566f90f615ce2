package gate_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand/gate"
)

// answer asks once and returns the reason, or "open".
func answer(t *testing.T, c *gate.Check) string {
	t.Helper()
	_, _, changed := c.State()
	<-changed
	open, reason, _ := c.State()
	if open {
		return "open"
	}
	return reason
}

func server(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// portal is a captive portal, which redirects whatever is asked to its login page.
func portal(t *testing.T) *httptest.Server {
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/login" {
			http.Redirect(w, r, "/login", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "<html>Please log in</html>")
	})
}

func TestHTTP_Answers(t *testing.T) {
	status := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	echo := func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Nonce", r.Header.Get("X-Nonce")) }
	const host = "HOST" // stands for the address
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		options gate.HTTPOptions
		want    string
	}{
		{"204", status(204, ""), gate.HTTPOptions{}, "open"},
		{"200 of a portal", status(200, "Please log in"), gate.HTTPOptions{}, "captive portal: status 200 instead of 204"},
		{"511 of a portal", status(511, ""), gate.HTTPOptions{}, "captive portal: status 511 instead of 204"},
		{"a server in trouble", status(503, ""), gate.HTTPOptions{}, "status 503 from HOST instead of 204"},
		{"a status of its own", status(418, "teapot"), gate.HTTPOptions{Status: 418, Body: "tea"}, "open"},
		{"the body", status(200, "field-7 is online\n"), gate.HTTPOptions{Body: "field-7 is online"}, "open"},
		{"another body", status(200, "<html>Please log in"), gate.HTTPOptions{Body: "field-7 is online"}, "captive portal: an answer with another body"},
		{"a short body", status(200, "field"), gate.HTTPOptions{Body: "field-7 is online"}, "captive portal: an answer with another body"},
		{"no body", status(200, ""), gate.HTTPOptions{Body: "field-7 is online"}, "captive portal: an answer with another body"},
		{"the nonce", echo, gate.HTTPOptions{Nonce: "X-Nonce"}, "open"},
		{"no nonce", status(200, ""), gate.HTTPOptions{Nonce: "X-Nonce"}, "captive portal or cache: an answer without the X-Nonce of the request"},
		{"the nonce of another", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Nonce", "7") }, gate.HTTPOptions{Nonce: "X-Nonce"},
			"captive portal or cache: an answer without the X-Nonce of the request"},
		{"a nonce and 204", func(w http.ResponseWriter, r *http.Request) { echo(w, r); w.WriteHeader(204) }, gate.HTTPOptions{Status: 204, Nonce: "X-Nonce"}, "open"},
		{"an endless body", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("ok", 1<<15)); err != nil {
					return
				}
			}
		}, gate.HTTPOptions{Body: "ok"}, "open"},
		{"no answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, gate.HTTPOptions{}, "no answer from HOST: EOF"},
	} {
		s := server(t, c.handler)
		got := answer(t, must(gate.HTTP(s.URL+"/check?key=secret", &c.options)))
		if want := strings.ReplaceAll(c.want, host, strings.TrimPrefix(s.URL, "http://")); got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}

// The redirect to the login page is not followed, whatever it leads to.
//
//errand:shows closed gates
func TestHTTP_Portal(t *testing.T) {
	s := portal(t)
	const want = "captive portal: status 302 instead of 200"
	if got := answer(t, must(gate.HTTP(s.URL, &gate.HTTPOptions{Body: "<html>Please"}))); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHTTP_Request(t *testing.T) {
	var got *http.Request
	s := server(t, func(w http.ResponseWriter, r *http.Request) { got = r; w.WriteHeader(204) })
	header := http.Header{"Authorization": {"Bearer token"}}
	if a := answer(t, must(gate.HTTP(s.URL+"/check?device=7", &gate.HTTPOptions{Header: header}))); a != "open" {
		t.Fatal(a)
	}
	if got.Method != "GET" || got.URL.String() != "/check?device=7" || got.Header.Get("Authorization") != "Bearer token" ||
		got.Header.Get("Cache-Control") != "no-cache" || !got.Close || len(header) != 1 {
		t.Errorf("%s %s %v", got.Method, got.URL, got.Header)
	}
}

// The environment's proxy is used only by who asks for it.
func TestHTTP_Proxy(t *testing.T) {
	asked := 0
	proxy := server(t, func(w http.ResponseWriter, _ *http.Request) { asked++; w.WriteHeader(204) })
	direct := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	u, _ := url.Parse(proxy.URL)
	if a := answer(t, must(gate.HTTP(direct.URL, nil))); a != "open" || asked != 0 {
		t.Errorf("%s, and the proxy was asked %d times", a, asked)
	}
	if a := answer(t, must(gate.HTTP("http://example.org/", &gate.HTTPOptions{Proxy: http.ProxyURL(u)}))); a != "open" || asked != 1 {
		t.Errorf("%s, and the proxy was asked %d times", a, asked)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestHTTP_Errors(t *testing.T) {
	op := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for want, err := range map[string]error{
		"connection refused": op(&net.OpError{Op: "connect", Err: syscall.ECONNREFUSED}),
		"no such host":       op(&net.DNSError{Err: "no such host", Name: "example.org"}),
		"bad certificate":    op(errors.New("bad certificate")),
		"x509: unknown":      errors.New("x509: unknown"),
	} {
		c := must(gate.HTTP("https://example.org/?key=secret", &gate.HTTPOptions{
			Transport: transport(func(*http.Request) (*http.Response, error) { return nil, err }),
		}))
		if got := answer(t, c); got != "no answer from example.org: "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// An answer that does not end is no answer.
	slow := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c := must(gate.HTTP(slow.URL, &gate.HTTPOptions{Body: "ok", CheckOptions: gate.CheckOptions{Timeout: 50 * time.Millisecond}}))
	if got := answer(t, c); !strings.HasSuffix(got, "within 50ms") {
		t.Errorf("%q", got)
	}
}

func TestHTTP_refused(t *testing.T) {
	for _, address := range []string{"", "example.org", "ftp://example.org", "http://", "http:example.org", "http://:80", "http://a b/", "/check"} {
		_, err := gate.HTTP(address, nil)
		wantFaults(t, err, "url", "must be a URL of http or https")
	}
	_, err := gate.HTTP("https://ada:secret@example.org/", nil)
	wantFaults(t, err, "url", "without a user")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%v shows a password", err)
	}
	for _, c := range []struct {
		options gate.HTTPOptions
		want    []string
	}{
		{gate.HTTPOptions{Status: 200}, []string{"status", "must be 204 unless body or nonce"}},
		{gate.HTTPOptions{Status: 302}, []string{"status", "must be 204 unless body or nonce"}},
		{gate.HTTPOptions{Status: 100}, []string{"status", "between 200 and 599"}},
		{gate.HTTPOptions{Status: 600, Body: "x"}, []string{"status", "between 200 and 599"}},
		{gate.HTTPOptions{Status: 204, Body: "x"}, []string{"body", "must be empty"}},
		{gate.HTTPOptions{Body: strings.Repeat("x", 64<<10+1)}, []string{"body", "at most 65536 bytes"}},
		{gate.HTTPOptions{Nonce: "X Nonce"}, []string{"nonce", "must be the name of a header"}},
		{gate.HTTPOptions{Proxy: http.ProxyFromEnvironment, Transport: transport(nil)}, []string{"proxy", "must be nil"}},
		{gate.HTTPOptions{CheckOptions: gate.CheckOptions{Timeout: -1}}, []string{"timeout", "must be"}},
	} {
		_, err := gate.HTTP("https://example.org", &c.options)
		wantFaults(t, err, c.want...)
	}
}

func TestDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if got := answer(t, must(gate.Dial(address, nil))); got != "open" {
		t.Error(got)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is not closed: %v", err)
	}
	conn.Close()
	l.Close()
	refused := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	for _, o := range []*gate.DialOptions{nil, {Dial: refused}} {
		want := "no answer from " + address + ": " + syscall.ECONNREFUSED.Error()
		if got := answer(t, must(gate.Dial(address, o))); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, address := range []string{"", "example.org", ":443", "example.org:https", "example.org:0", "example.org:65536", "::1:443"} {
		_, err := gate.Dial(address, &gate.DialOptions{})
		wantFaults(t, err, "address", "must be a host and a port number")
	}
}
