package policy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand/policy"
)

// reached is what the default rules and IsLocal say about an error.
type reached struct {
	class policy.Class
	local bool
}

func checkReached(t *testing.T, what string, err error, want reached) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	for _, err := range []error{err, fmt.Errorf("send: %w", err), errors.Join(errDown, err)} {
		if got := (reached{policy.Classify(err), policy.IsLocal(err)}); got != want {
			t.Errorf("%s: %v is %+v, want %+v", what, err, got, want)
		}
	}
}

var (
	later   = reached{policy.Retryable, false}
	oneHost = reached{policy.Unavailable, false}
	machine = reached{policy.Unavailable, true}
)

func dialError(addr string, err error) error {
	a, e := net.ResolveTCPAddr("tcp", addr)
	if e != nil {
		panic(e)
	}
	return &url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Net: "tcp", Addr: a, Err: os.NewSyscallError("connect", err)}}
}

func TestByConnect_Errnos(t *testing.T) {
	const v4, v6 = "192.0.2.1:80", "[2001:db8::1]:80"
	for _, test := range []struct {
		err  error
		want reached
	}{
		{dialError(v4, syscall.ECONNREFUSED), oneHost},
		{dialError(v4, syscall.EHOSTUNREACH), oneHost},
		{dialError(v4, syscall.EHOSTDOWN), oneHost},
		{dialError(v4, syscall.ENETUNREACH), machine},
		{dialError(v4, syscall.ENETDOWN), machine},
		{dialError(v4, syscall.EADDRNOTAVAIL), oneHost},
		{dialError(v4, syscall.ETIMEDOUT), oneHost},
		{dialError(v4, os.ErrDeadlineExceeded), oneHost},
		// Most machines have no IPv6.
		{dialError(v6, syscall.ENETUNREACH), oneHost},
		{dialError(v6, syscall.ECONNREFUSED), oneHost},
		{&net.OpError{Op: "proxyconnect", Net: "tcp", Err: dialError(v4, syscall.ENETUNREACH)}, machine},
		{&net.OpError{Op: "proxyconnect", Net: "tcp", Err: dialError(v6, syscall.ENETUNREACH)}, oneHost},
		{syscall.ENETUNREACH, machine},
		{syscall.ECONNREFUSED, oneHost},
		// The network can go away in the middle as well.
		{&net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ENETUNREACH)}, machine},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, later},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, later},
		{io.ErrUnexpectedEOF, later},
		{context.DeadlineExceeded, later},
		{dialError(v4, context.Canceled), later},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, oneHost},
		{&net.DNSError{Err: "server misbehaving"}, oneHost},
		{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, machine},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, machine},
		{&net.DNSError{Err: "no such host", IsNotFound: true, IsTemporary: true}, oneHost},
		{&net.DNSError{Err: "operation was canceled", UnwrapErr: context.Canceled}, later},
		{status(401), oneHost},
		{status(511), oneHost},
		{errDown, later},
	} {
		checkReached(t, "", test.err, test.want)
	}
	if policy.IsLocal(nil) {
		t.Error("nil is about this machine")
	}
	if _, ok := policy.ByConnect(nil); ok {
		t.Error("nil is known")
	}
}

// Errors as systems return them.
func TestByConnect_Dial(t *testing.T) {
	var d net.Dialer
	dial := func(address string) error {
		conn, err := d.DialContext(t.Context(), "tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	checkReached(t, "a closed port", dial(closedPort(t)), oneHost)
	checkReached(t, "a malformed address", dial("127.0.0.1:1:2"), later)
	d.Deadline = time.Unix(1, 0)
	checkReached(t, "no time", dial(closedPort(t)), oneHost)
	d.Deadline = time.Time{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.DialContext(ctx, "tcp", closedPort(t))
	checkReached(t, "a context that was cancelled", err, later)
	_, err = d.DialContext(t.Context(), "carrier-pigeon", closedPort(t))
	checkReached(t, "an unknown network", err, later)
}

// closedPort returns an address that nobody listens on.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestByConnect_DNS(t *testing.T) {
	const noError, serverFailure, nameError, refused = 0, 2, 3, 5
	for _, test := range []struct {
		what   string
		server string
		want   reached
	}{
		{"no such host", nameServer(t, nameError), oneHost},
		{"no address", nameServer(t, noError), oneHost},
		{"the server cannot tell now", nameServer(t, serverFailure), machine},
		{"the server refuses to tell", nameServer(t, refused), oneHost},
		{"a server that is silent", nameServer(t, -1), machine},
		{"no server", closedPort(t), machine},
	} {
		d := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", test.server)
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if test.what == "a server that is silent" {
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		conn, err := d.DialContext(ctx, "tcp", "device.test.:80")
		cancel()
		if err == nil {
			conn.Close()
		}
		checkReached(t, test.what, err, test.want)
	}
}

// nameServer answers all queries with this code, or not at all if it is negative. It
// returns its address.
func nameServer(t *testing.T, code int) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		query := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			const header, typeAndClass = 12, 4
			if code < 0 || n < header {
				continue
			}
			name := strings.IndexByte(string(query[header:n]), 0) // ends with the root
			answer := query[:header+name+1+typeAndClass]
			answer[2], answer[3] = 0x84|query[2]&1, byte(0x80|code) // an answer, with authority; recursion is available
			copy(answer[4:], []byte{0, 1, 0, 0, 0, 0, 0, 0})        // one question and nothing else
			if _, err := conn.WriteTo(answer, from); err != nil {
				return
			}
		}
	}()
	return conn.LocalAddr().String()
}

// silent keeps the log of a test server, which is full of bad handshakes, to itself.
var silent = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

func TestByConnect_TLS(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = silent
	s.StartTLS()
	defer s.Close()
	strict := httptest.NewUnstartedServer(http.NotFoundHandler())
	strict.Config.ErrorLog = silent
	strict.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	strict.StartTLS()
	defer strict.Close()

	for _, test := range []struct {
		what, address string
		change        func(*http.Transport)
		want          reached
	}{
		{"an unknown authority", s.URL, func(t *http.Transport) { t.TLSClientConfig = nil }, oneHost},
		{"another name", s.URL, func(t *http.Transport) { t.TLSClientConfig.ServerName = "portal.test" }, oneHost},
		{"a clock before the certificate", s.URL, func(t *http.Transport) {
			t.TLSClientConfig.Time = func() time.Time { return time.Unix(-1, 0) }
		}, oneHost},
		{"an old version", s.URL, func(t *http.Transport) {
			t.TLSClientConfig.MinVersion, t.TLSClientConfig.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
		}, oneHost},
		{"no certificate of the client", strict.URL, nil, oneHost},
		{"a server of HTTP", strings.Replace(plain.URL, "http:", "https:", 1), nil, oneHost},
		{"a server of something else", "https://" + serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-portal\r\n") }), nil, oneHost},
		{"a silent server", "https://" + serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), func(t *http.Transport) {
			t.TLSHandshakeTimeout = 20 * time.Millisecond
		}, oneHost},
		// What cannot be told from an end that comes later.
		{"a server that hangs up", "https://" + serve(t, func(net.Conn) {}), nil, later},
		{"a server that hangs up without TLS", "http://" + serve(t, func(net.Conn) {}), nil, later},
		{"no answer in time", "http://" + serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), func(t *http.Transport) {
			t.ResponseHeaderTimeout = 20 * time.Millisecond
		}, later},
	} {
		transport := s.Client().Transport.(*http.Transport).Clone()
		if test.change != nil {
			test.change(transport)
		}
		checkReached(t, test.what, get(t, &http.Client{Transport: transport}, test.address), test.want)
		transport.CloseIdleConnections()
	}
	var d tls.Dialer
	_, err := d.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	checkReached(t, "without HTTP", err, oneHost)
}

// get returns the error of a request.
func get(t *testing.T, c *http.Client, address string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	return err
}

// serve listens, calls handle with each connection and closes it. It returns the
// address.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
				handle(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// An answer that breaks off is not about reaching anybody.
func TestByConnect_BodyBreaksOff(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "half")
	}))
	defer s.Close()
	checkReached(t, "half an answer", get(t, s.Client(), s.URL), later)
}
