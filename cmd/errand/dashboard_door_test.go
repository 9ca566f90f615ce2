package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/dashboard"
)

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
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pump-17"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
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
