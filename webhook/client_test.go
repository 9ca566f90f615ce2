package webhook

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/policy"
)

// keepsAlive returns a script that answers all requests of a connection but the last with
// this many bytes, and closes the connection instead of answering the last.
func keepsAlive(answers, size int, requests *atomic.Int32) func(net.Conn) {
	return func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for i := 0; ; i++ {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			requests.Add(1)
			if i == answers {
				return
			}
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
		}
	}
}

// A connection is used again after an answer that was read to its end, and for no longer than
// it may be idle.
func TestClient_connections(t *testing.T) {
	for _, test := range []struct {
		size  int
		pause time.Duration
		dials int32
	}{
		{0, 0, 1}, {100, 0, 1}, {maxAnswer, 0, 1}, {maxAnswer + 1, 0, 1}, {maxAnswer + 2, 0, 3}, {100, idleTimeout - 1, 1}, {100, idleTimeout + 1, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			var requests atomic.Int32
			r := &receiver{script: keepsAlive(10, test.size, &requests)}
			c := r.client(clientOptions{})
			for range 3 {
				if a, err := c.send(post(t, c, "{}")); err != nil || a.status != 200 || len(a.text) != min(test.size, keptAnswer) {
					t.Errorf("%d bytes: %+v, %v", test.size, a, err)
				}
				time.Sleep(test.pause)
			}
			if got := r.dials.Load(); got != test.dials {
				t.Errorf("answers of %d bytes, pauses of %v: %d connections, want %d", test.size, test.pause, got, test.dials)
			}
			c.close()
			r.conns.Wait()
		})
	}
}

// A request that meets the end of its connection is not sent again by net/http, not even
// one without a body that says it may be.
func TestClient_sendsOnce(t *testing.T) {
	for _, test := range []struct {
		body   string
		header map[string]string
	}{
		{"{}", nil}, {"", nil}, {"{}", map[string]string{"Idempotency-Key": "1"}}, {"", map[string]string{"Idempotency-Key": "1"}}, {"{}", map[string]string{"Idempotency-Key": ""}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var requests atomic.Int32
			r := &receiver{script: keepsAlive(1, 0, &requests)}
			c := r.client(clientOptions{})
			var errs [2]error
			for i := range errs {
				req, err := c.buildRequest(t.Context(), &message{id: "m", body: []byte(test.body)},
					&target{id: "e", url: "http://shop.example/", header: test.header}, 1, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				_, errs[i] = c.send(req)
			}
			if errs[0] != nil || webhookRules().Classify(errs[1]) != policy.Retryable || errs[1] == nil {
				t.Errorf("errors %v", errs)
			}
			if requests.Load() != 2 || r.dials.Load() != 1 {
				t.Errorf("body %q, %v: %d requests on %d connections: want 2 on one", test.body, test.header, requests.Load(), r.dials.Load())
			}
			c.close()
			r.conns.Wait()
		})
	}
}

// With many endpoints few connections stay open, and none after the end.
func TestClient_close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		r := &receiver{script: keepsAlive(10, 0, &requests)}
		c := r.client(clientOptions{})
		for i := range 3 * maxIdle {
			req := post(t, c, "{}")
			req.URL.Host = fmt.Sprintf("shop%d.example", i)
			if _, err := c.send(req); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := r.open.Load(); n != maxIdle {
			t.Errorf("%d connections are open, want %d", n, maxIdle)
		}
		c.close()
		r.conns.Wait() // or the bubble is in a deadlock
	})
}

// nowhere is where a server under test logs its failed handshakes.
var nowhere = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// authority signs certificates for names and times.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	c := a.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)})
	a.key, _ = c.PrivateKey.(*ecdsa.PrivateKey)
	a.cert = c.Leaf
	return a
}

func (a *authority) sign(t *testing.T, c *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(1), pkix.Name{CommonName: "test"}
	c.NotBefore = time.Now().Add(-48 * time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// What the certificate and the version of an endpoint's TLS lead to. Nothing of a request is
// sent to an endpoint that is not who it should be.
func TestClient_tls(t *testing.T) {
	known, other := newAuthority(t), newAuthority(t)
	valid := time.Now().Add(time.Hour)
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	good := known.sign(t, &x509.Certificate{DNSNames: []string{"shop.example"}, NotAfter: valid, ExtKeyUsage: server})
	user := known.sign(t, &x509.Certificate{NotAfter: valid, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	for _, test := range []struct {
		name   string
		server *tls.Config
		client clientOptions
		reason string
	}{
		{"good", &tls.Config{Certificates: []tls.Certificate{good}}, clientOptions{}, ""},
		{"TLS 1.2", &tls.Config{Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS12}, clientOptions{}, ""},
		{"TLS 1.1", &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, clientOptions{}, "protocol version"},
		{"expired", &tls.Config{Certificates: []tls.Certificate{
			known.sign(t, &x509.Certificate{DNSNames: []string{"shop.example"}, NotAfter: time.Now().Add(-time.Hour), ExtKeyUsage: server})}},
			clientOptions{}, "expired"},
		{"another name", &tls.Config{Certificates: []tls.Certificate{
			known.sign(t, &x509.Certificate{DNSNames: []string{"portal.example"}, NotAfter: valid, ExtKeyUsage: server})}},
			clientOptions{}, "not shop.example"},
		{"unknown authority", &tls.Config{Certificates: []tls.Certificate{
			other.sign(t, &x509.Certificate{DNSNames: []string{"shop.example"}, NotAfter: valid, ExtKeyUsage: server})}},
			clientOptions{}, "unknown authority"},
		{"not one of the system", &tls.Config{Certificates: []tls.Certificate{good}}, clientOptions{rootCAs: x509.NewCertPool()}, "unknown authority"},
		{"client certificate", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known.pool()},
			clientOptions{certificates: []tls.Certificate{user}}, ""},
		// With TLS 1.3 the refusal comes after the handshake, as one of several errors.
		{"no client certificate", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known.pool(),
			MaxVersion: tls.VersionTLS12}, clientOptions{}, "remote error: tls"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var requests atomic.Int32
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
			s.TLS, s.EnableHTTP2 = test.server, true
			s.Config.ErrorLog = nowhere
			s.StartTLS()
			defer s.Close()
			c := toLoopback(t, test.client, known)
			defer c.close()
			req, err := c.buildRequest(t.Context(), &message{id: "m"}, &target{id: "e", url: "https://shop.example" + portOf(s)}, 1, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			a, err := c.send(req)
			if test.reason == "" {
				if err != nil || a.status != 200 || requests.Load() != 1 {
					t.Errorf("%+v, %v", a, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.reason) || requests.Load() != 0 {
				t.Errorf("%v, %d requests: want %q", err, requests.Load(), test.reason)
			}
			if w, s := webhookRules().Classify(err), snsRules().Classify(err); w != policy.Unavailable || s != policy.Retryable {
				t.Errorf("%v is of class %v, SNS %v", err, w, s)
			}
		})
	}
}

// snsRules are those of Amazon SNS, as package topic has them.
func snsRules() policy.Rules {
	return policy.Rules{policy.BySNSStatus, policy.Otherwise(policy.Retryable)}
}

// toLoopback returns a client for which every name is 127.0.0.1.
func toLoopback(t *testing.T, o clientOptions, a *authority) *client {
	t.Helper()
	names := &nameserver{}
	names.answer("127.0.0.1")
	o.resolver, o.allowed = names.resolver(), []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	if o.rootCAs == nil && a != nil {
		o.rootCAs = a.pool()
	}
	return newClient(o)
}

func portOf(s *httptest.Server) string { return s.URL[strings.LastIndex(s.URL, ":"):] }

// HTTP/2 is spoken with those who can.
func TestClient_http2(t *testing.T) {
	a := newAuthority(t)
	var proto atomic.Value
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		proto.Store(fmt.Sprintf("%s %d %q %s", r.Proto, r.ContentLength, r.Header["Accept-Encoding"], body))
		w.WriteHeader(http.StatusAccepted)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{a.sign(t, &x509.Certificate{
		DNSNames: []string{"shop.example"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})}}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	c := toLoopback(t, clientOptions{}, a)
	defer c.close()
	for body, length := range map[string]int{"{}": 2, "": -1} { // an empty body has an end, and no length
		req, err := c.buildRequest(t.Context(), &message{id: "m", body: []byte(body)}, &target{id: "e", url: "https://shop.example" + portOf(s)}, 1, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.send(req)
		if want := fmt.Sprintf("HTTP/2.0 %d [] %s", length, body); err != nil || got.status != 202 || proto.Load() != want {
			t.Errorf("%+v, %v, %s: want %s", got, err, proto.Load(), want)
		}
	}
}

// With a proxy it is the proxy that is dialled and judged; without one the environment
// has no say.
func TestClient_proxy(t *testing.T) {
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked.Store(r.URL.String()) }))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := clientOptions{allowHTTP: true, proxy: http.ProxyURL(address), allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	c := newClient(o)
	defer c.close()
	if a, err := c.send(post(t, c, "{}")); err != nil || a.status != 200 || asked.Load() != "http://shop.example/hook?token=t0p-s3cret" {
		t.Errorf("%+v, %v: the proxy was asked for %v", a, err, asked.Load())
	}
	o.allowed = nil
	c = newClient(o)
	defer c.close()
	if _, err := c.send(post(t, c, "{}")); webhookRules().Classify(err) != policy.Unavailable {
		t.Errorf("a proxy at a special address: %v", err)
	}
	// The environment may neither set a proxy nor, by GODEBUG, an older TLS.
	if c := newClient(clientOptions{}); c.transport.Proxy != nil || c.transport.TLSClientConfig.MinVersion != tls.VersionTLS12 {
		t.Errorf("proxy %t, least version %x", c.transport.Proxy != nil, c.transport.TLSClientConfig.MinVersion)
	}
}

// Over HTTP/2 as little is read, and the connection goes on for others.
func TestClient_http2_endless(t *testing.T) {
	a := newAuthority(t)
	var written atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/header" {
			for i := range 1 << 10 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1<<10))
			}
			return
		}
		chunk := make([]byte, 1<<10)
		for {
			n, err := w.Write(chunk)
			if err != nil {
				return
			}
			written.Add(int64(n))
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{a.sign(t, &x509.Certificate{
		DNSNames: []string{"shop.example"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = nowhere
	s.StartTLS()
	c := toLoopback(t, clientOptions{}, a)
	to := &target{id: "e", url: "https://shop.example" + portOf(s) + "/body"}
	req, err := c.buildRequest(t.Context(), &message{id: "m", body: []byte("{}")}, to, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.send(req); err != nil || got.status != 200 {
		t.Errorf("%+v, %v", got, err)
	}
	to.url = "https://shop.example" + portOf(s) + "/header"
	req, err = c.buildRequest(t.Context(), &message{id: "m", body: []byte("{}")}, to, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.send(req); err == nil || got.status != 0 || webhookRules().Classify(err) != policy.Retryable {
		t.Errorf("1 MiB of headers: %+v, %v", got, err)
	}
	c.close()
	s.Close() // waits for the handlers
	if n := written.Load(); n > 8<<20 {
		t.Errorf("%d bytes were written", n)
	}
}

func TestClientOptions(t *testing.T) {
	o := clientOptions{
		allowed: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), {}, netip.MustParsePrefix("::ffff:10.0.0.0/104"), netip.MustParsePrefix("fd00::/8")},
		timeout: -1, dialTimeout: -1, tlsTimeout: -1, headerTimeout: -1, bodyTimeout: -1,
	}
	got := wrong(t, o.validate())
	for i, field := range []string{"allow_addresses[1]", "allow_addresses[2]", "timeout", "dial_timeout", "tls_timeout", "header_timeout", "body_timeout"} {
		if i >= len(got) || !strings.HasPrefix(got[i], "errand: "+field+" ") {
			t.Errorf("fault %d of %q: want one of %s", i, got, field)
		}
	}
	if err := (&clientOptions{}).validate(); err != nil || len(got) != 7 {
		t.Errorf("%d faults; without options %v", len(got), err)
	}
}

// Many services have a secret in the path.
func TestText_path(t *testing.T) {
	req, err := http.NewRequest(http.MethodPost, "https://a.example/services/T000/0123456789abcdef/%2B123456789abcdef?q=x", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := text([]byte("no /services/T000/0123456789abcdef/%2B123456789abcdef, no +123456789abcdef"), req, nil)
	if want := "no /services/T000/.../..., no ..."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
