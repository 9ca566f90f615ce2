package relay

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay/internal/wire"
)

// authority issues certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	c := &authority{t: t, key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	c.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	c.cert = must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, c.cert, c.cert, c.key.Public(), c.key))))
	return c
}

func (c *authority) pool() *x509.CertPool {
	all := x509.NewCertPool()
	all.AddCert(c.cert)
	return all
}

// issue returns a certificate for clients, and for servers on this machine.
func (c *authority) issue(common string, dns ...string) tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: common}, NotAfter: time.Now().Add(time.Hour), DNSNames: dns,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	return tls.Certificate{Certificate: [][]byte{must(x509.CreateCertificate(rand.Reader, leaf, c.cert, key.Public(), c.key))}, PrivateKey: key}
}

// client returns a client with a certificate, which trusts servers of c.
func (c *authority) client(own tls.Certificate) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.pool(), Certificates: []tls.Certificate{own}}}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// mutual has a server verify certificates of clients of c, and has one of issuer itself.
func (h *hub) mutual(t testing.TB, c, issuer *authority, auth tls.ClientAuthType) {
	plain := h.server
	h.server = httptest.NewUnstartedServer(plain.Config.Handler)
	h.server.TLS = &tls.Config{Certificates: []tls.Certificate{issuer.issue("hub")}, ClientCAs: c.pool(), ClientAuth: auth}
	h.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	h.server.StartTLS()
	t.Cleanup(h.server.Close)
}

// certified returns a device that has a certificate and no key.
func (h *hub) certified(t testing.TB, name string, client *http.Client) *device {
	d := h.device(t, "", "")
	d.options.Device, d.options.Key, d.options.Client = name, nil, client
	return d
}

func (h *hub) put(t testing.TB, name, key string) {
	t.Helper()
	if err := PutDevice(t.Context(), h.Queue, Device{Name: name, Key: key}); err != nil {
		t.Fatal(err)
	}
}

// By mutual TLS neither side has a key.
//
//errand:shows mutual TLS | | A device that has a certificate and no key delivers each job once
func TestBoth_mutualTLS(t *testing.T) {
	h, _, _ := newHub(t)
	h.close(t)
	h.key = ""
	h.open(t)
	ca := newAuthority(t)
	h.mutual(t, ca, ca, tls.VerifyClientCertIfGiven)
	for name, cert := range map[string]tls.Certificate{"pi-17": ca.issue("pi-17"), "pi-18": ca.issue("board", "other", "pi-18")} {
		h.put(t, name, MutualTLS)
		d := h.certified(t, name, ca.client(cert))
		d.add(t, 100, none)
		d.add(t, 100, func(i int) string { return fmt.Sprint("g", i%7) })
		d.run(t)
		until(t, "all are done", func() bool { return d.count(t, errand.Done) == 200 })
		if info := must(GetDevice(t.Context(), h.Queue, name)); info.KeyKind != MutualTLS || info.PublicKey != "" || info.Counts.Enqueued != 200 {
			t.Errorf("device %+v", info)
		}
	}
	h.wantOnce(t, 400)
}

// unverified is a transport whose connections verify nothing, and that is not seen in the options.
type unverified struct{ *http.Transport }

// Who does not show the certificate of a device that is known by it has nothing enqueued, and where a server
// does not show one nothing is ended.
//
//errand:shows a certificate that does not count | | A certificate of another device or authority, of a revoked device or of one with a key enqueues nothing; that of a portal ends nothing
func TestBoth_mutualTLS_refused(t *testing.T) {
	const other = "no device of this name was added here with mtls"
	type ends struct {
		h               *hub
		ca, stranger    *authority
		client          *http.Client // of the device; of ca with the certificate of pi-17 at first
		private, public string       // keys
		issuer          *authority   // of the server's certificate
		auth            tls.ClientAuthType
		serverKey, key  string // if set, the device has a key
	}
	for what, c := range map[string]struct {
		change func(t *testing.T, e *ends)
		want   string // in the reason of the gate
	}{
		"another device's":     {func(_ *testing.T, e *ends) { e.client = e.ca.client(e.ca.issue("pi-18", "pi-17.example.org")) }, `the names ["pi-18" "pi-17.example.org"], and not that of the device`},
		"none":                 {func(_ *testing.T, e *ends) { e.client = e.ca.client(tls.Certificate{}) }, "sent no certificate"},
		"of another authority": {func(_ *testing.T, e *ends) { e.client = e.ca.client(e.stranger.issue("pi-17")) }, "unknown certificate"},
		"that nobody verifies": {func(_ *testing.T, e *ends) { e.auth = tls.RequireAnyClientCert }, "does not verify"},
		"behind a proxy that ends TLS": {func(_ *testing.T, e *ends) {
			real := e.h.handler
			e.h.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { r.TLS = nil; real.ServeHTTP(w, r) })
		}, "not come to the program of the server by TLS"},
		"of a revoked device": {func(t *testing.T, e *ends) {
			if err := Revoke(t.Context(), e.h.Queue, "pi-17"); err != nil {
				t.Fatal(err)
			}
		}, "the device is revoked"},
		"of a device with a key":                   {func(t *testing.T, e *ends) { e.h.put(t, "pi-17", must(wire.PublicKey(e.private))) }, other},
		"of a device with a shared key":            {func(t *testing.T, e *ends) { e.h.put(t, "pi-17", NewSharedKey()) }, other},
		"of a device that is not there":            {func(t *testing.T, e *ends) { e.client = e.ca.client(e.ca.issue("pi-19")) }, "not that of the device"},
		"a key of a device that has a certificate": {func(_ *testing.T, e *ends) { e.key, e.serverKey = e.private, e.public }, "sends without a key"},
		"a key in the place of a certificate": {func(_ *testing.T, e *ends) {
			e.key, e.serverKey, e.client = e.private, e.public, e.ca.client(tls.Certificate{})
		}, "401"},
		"a portal of another authority": {func(_ *testing.T, e *ends) { e.issuer = e.stranger }, "certificate"},
		"a portal whose certificate is not checked": {func(_ *testing.T, e *ends) {
			e.issuer = e.stranger
			transport := e.client.Transport.(*http.Transport)
			transport.TLSClientConfig.InsecureSkipVerify = true
			e.client.Transport = &unverified{transport}
		}, "without a verified certificate of the server"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := &ends{ca: newAuthority(t), stranger: newAuthority(t), auth: tls.VerifyClientCertIfGiven}
			e.h, e.private, e.public = newHub(t)
			e.h.put(t, "pi-17", MutualTLS)
			e.h.put(t, "pi-18", MutualTLS)
			e.client, e.issuer = e.ca.client(e.ca.issue("pi-17")), e.ca
			c.change(t, e)
			e.h.mutual(t, e.ca, e.issuer, e.auth)
			d := e.h.certified(t, "pi-17", e.client)
			if e.key != "" {
				d.options.Key, d.options.ServerKey = KeyText(e.key), e.serverKey
			}
			d.add(t, 3, none)
			w := d.worker()
			f := d.forward(t, w)
			d.start(t, w)
			reason := ""
			until(t, "the gate is closed", func() bool {
				var open bool
				open, reason = f.away.is()
				return !open
			})
			if !strings.Contains(reason, c.want) {
				t.Errorf("the gate says %q, want %q", reason, c.want)
			}
			e.h.wantOnce(t, 0)
			d.wantUnspent(t)
			if n := d.count(t, errand.Done); n != 0 {
				t.Errorf("%d are done", n)
			}
		})
	}
}

// What stands for a key, and what goes with it.
func TestForward_unkeyed(t *testing.T) {
	ca := newAuthority(t)
	d := newDevice(t, newFake(t))
	d.options.Key, d.options.ServerKey, d.options.URL = nil, "", "https://example.org/relay"
	with := func(change func(*http.Transport)) func(*Options) {
		return func(o *Options) {
			o.Client = ca.client(ca.issue("pi-17"))
			change(o.Client.Transport.(*http.Transport))
		}
	}
	asIs := func(*http.Transport) {}
	for what, c := range map[string]struct {
		change func(*Options)
		want   []string
	}{
		"a certificate": {with(asIs), nil},
		"one that comes later": {with(func(t *http.Transport) {
			t.TLSClientConfig.Certificates = nil
			t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }
		}), nil},
		"a transport that is not known":    {func(o *Options) { o.Client = &http.Client{Transport: &unverified{}} }, nil},
		"no client":                        {nil, []string{"key"}},
		"no transport":                     {func(o *Options) { o.Client = &http.Client{} }, []string{"key"}},
		"no certificate":                   {with(func(t *http.Transport) { t.TLSClientConfig.Certificates = nil }), []string{"key"}},
		"no TLS":                           {with(func(t *http.Transport) { t.TLSClientConfig = nil }), []string{"key"}},
		"nothing that verifies the server": {with(func(t *http.Transport) { t.TLSClientConfig.InsecureSkipVerify = true }), []string{"client"}},
		"http on loopback":                 {func(o *Options) { with(asIs)(o); o.URL = "http://127.0.0.1/relay" }, []string{"url"}},
		"a key of the server":              {func(o *Options) { with(asIs)(o); o.ServerKey = serverSeed }, []string{"server_key"}},
		"a key beside it": {func(o *Options) {
			with(asIs)(o)
			o.Key, o.ServerKey = KeyText(testSeed), must(wire.PublicKey(serverSeed))
		}, nil},
	} {
		if got := d.refused(d.Queue, c.change); !slices.Equal(got, c.want) {
			t.Errorf("%s: Forward refuses %q, want %q", what, got, c.want)
		}
	}
}
