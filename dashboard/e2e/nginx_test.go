package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/errandq/errand/dashboard"
)

// proxied is the name under which people know the proxy. Browsers trust plain http to 127.0.0.1,
// but not to this.
const proxied = "ops.test"

// nginx serves what is at an address below a path, as Debian's nginx does it by default: without the
// host that people see. It returns the address to open.
func nginx(t *testing.T, to, path string) string {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Fatal("this test needs nginx: apt-get install -y chromium nginx fonts-dejavu-core")
		}
	}
	dir, err := os.MkdirTemp("", "nginx") //nolint:usetesting // others than the owner cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port := freePort(t)
	config := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server { listen 127.0.0.1:%[2]d; location %[3]s { proxy_pass %[4]s; } }
}
`, dir, port, path, to)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "-e", filepath.Join(dir, "error.log"), "-c", file)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 { // it needs no rights
		const nobody = 65534
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
			t.Logf("nginx: %v: %s%s", err, &said, log)
		}
	})
	(&shop{T: t}).until("nginx to answer", func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return fmt.Sprintf("http://%s:%d%s", proxied, port, path)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// Behind nginx, which changes the host, on plain http and below a path, the pages are there and
// change by themselves. An action is refused, by a page that names the setting, and works with it.
func TestNginx(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	var handler atomic.Value
	handler.Store(dashboard.Handler(s.q, options(dashboard.Operator)))
	root := nginx(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.Load().(http.Handler).ServeHTTP(w, r)
	}), "/", false), "/ops/errand/")

	b := newTab(t)
	if status := b.open(root); status != http.StatusOK {
		t.Fatal(status, b.where())
	}
	if js[bool](b, `isSecureContext`) {
		t.Fatal("the browser trusts this address, so that it says from where a form is")
	}
	b.crawl(root, 1, func(string, string) {})
	b.open(root)
	js[int](b, `window.stays = 1`)
	b.wait("a page that is live through nginx", isLive)
	n := js[int](b, ready)
	s.some(3)
	b.wait("3 more that are ready", fmt.Sprint(ready, " === ", n+3, " && ", stays))
	b.open(root + "job/" + s.jobs["done"].String()) // plain http has no clipboard but that of a selection
	b.click("the button that copies", button("Copy"))
	b.wait("a copy", named+`("button", "Copy ").some(e => e.textContent === "Copied")`)
	b.scripts(false)
	b.open(root)
	if status := b.follow("the button that releases", button("Release")); status != http.StatusForbidden || !b.has("Origins") {
		t.Errorf("%d: %s", status, b.where())
	}
	u, err := url.Parse(root)
	if err != nil {
		t.Fatal(err)
	}
	o := options(dashboard.Operator)
	o.Origins = []string{u.Scheme + "://" + u.Host}
	handler.Store(dashboard.Handler(s.q, o))
	before := len(s.holds())
	b.open(root)
	b.follow("the button that releases", button("Release"))
	if status := b.follow("the button that confirms", button("Release")); status != http.StatusOK || len(s.holds()) != before-1 {
		t.Errorf("%d, %d holds: %s", status, len(s.holds()), b.where())
	}
}

// Below any path, stripped or not, all links, the style, the script, forms and what open pages ask
// for lead to where they should.
func TestMounts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	for path, stripped := range map[string]bool{"/": false, "/a/": true, "/ops/errand/": false} {
		t.Run(path, func(t *testing.T) {
			b := newTab(t)
			root := serve(t, dashboard.Handler(s.q, options(dashboard.Operator)), path, stripped)
			b.crawl(root, 1, func(kind, at string) {
				if js[int](b, `[...document.styleSheets].filter(s => s.cssRules.length > 10).length`) != 1 {
					b.Errorf("%s: no style", at)
				}
				b.wait("times of "+kind, `document.getElementById("zone").checkVisibility()`) // by the script
			})
			for _, page := range []string{"", "job/" + s.jobs["running"].String()} {
				b.open(root + page)
				b.wait("a page that is live", isLive)
			}
			b.follow("the button that cancels", button("Cancel"))
			b.follow("the link back", link("Keep it"))
			b.wait("the job", `location.href === `+quote(root+"job/"+s.jobs["running"].String()))
			for _, at := range b.requests() {
				if !strings.HasPrefix(at, root) && !strings.HasPrefix(at, "data:") && !strings.HasPrefix(at, "about:") {
					t.Errorf("asked for %s", at)
				}
			}
		})
	}
}
