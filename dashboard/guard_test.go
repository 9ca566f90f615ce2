package dashboard_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/dashboard"
)

// What a page may do is the same on all of them, also on those that refuse.
func TestGuard_headers(t *testing.T) {
	q := open(t)
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"Referrer-Policy":         "same-origin", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
	}
	in := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Admin), Logger: quiet})
	out := dashboard.Handler(q, &dashboard.Options{Logger: quiet})
	for name, c := range map[string]struct {
		h            http.Handler
		method, path string
		status       int
	}{
		"a page": {in, "GET", "/", 200}, "JSON": {in, "GET", "/lanes?format=json", 200}, "the style": {out, "GET", "/style.css", 200}, "the script": {out, "GET", "/script.js", 200},
		"no page": {in, "GET", "/none", 404}, "refused": {out, "GET", "/", 403}, "a form": {in, "POST", "/act", 403}, "another method": {in, "DELETE", "/jobs", 405},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		if c.method == "POST" {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		w := httptest.NewRecorder()
		c.h.ServeHTTP(w, r)
		for header, value := range want {
			if got := w.Header().Get(header); got != value {
				t.Errorf("%s: %s is %q", name, header, got)
			}
		}
		if w.Code != c.status || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d %s", name, w.Code, w.Header())
		}
		if text := w.Body.String(); name != "the script" && (strings.Contains(text, " style=") || strings.Contains(text, "<style") || strings.Contains(text, " onclick") || strings.Contains(text, "<script>")) {
			t.Errorf("%s has what its policy forbids: %s", name, text)
		}
	}
}

// Without Auth the log says what to write, once a minute.
func TestHandler_closedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		h := dashboard.Handler(open(t), &dashboard.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 3 {
			for range 5 {
				if status, _ := get(h, "/jobs"); status != 403 {
					t.Errorf("%d", status)
				}
			}
			time.Sleep(30 * time.Second)
		}
		if n := strings.Count(log.String(), "Options.Auth"); n != 2 || !strings.Contains(log.String(), "dashboard.Basic") {
			t.Errorf("%d lines: %s", n, &log)
		}
	})
}

// A path without a slash leads to the one with it, or says how it has to be written.
func TestHandler_mount(t *testing.T) {
	h := dashboard.Handler(open(t), &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Logger: quiet})
	mux := http.NewServeMux()
	mux.Handle("/errand/", h)
	mux.Handle("/stripped/", http.StripPrefix("/stripped", h))
	mux.Handle("/bare", http.StripPrefix("/bare", h))
	mux.Handle("GET /wrong", h)
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/errand/": {200, `href="./style.css"`}, "/errand/jobs": {200, `href="./style.css"`},
		"/errand": {307, "/errand/"}, "/stripped": {307, "/stripped/"}, // by the mux
		"/stripped/jobs": {200, `href="./style.css"`},
		"/bare":          {308, "./bare/"}, "/bare?state=dead": {308, "./bare/?state=dead"},
		"/wrong": {404, "mux.Handle(&#34;GET /wrong/&#34;, ...)"},
	} {
		r := httptest.NewRequest("GET", path, nil)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if text := w.Body.String() + w.Header().Get("Location"); w.Code != want.status || !strings.Contains(text, want.says) {
			t.Errorf("%s: %d %s", path, w.Code, text)
		}
	}
}

// Behind a proxy that changes the host a form is taken if Origins has the address that people see.
func TestOrigins_proxy(t *testing.T) {
	q := open(t)
	fill(t, q)
	form := url.Values{"do": {"release"}, "queue": {"default"}, "reason": {"held"}}
	ask := func(keep bool, origin string, origins ...string) (int, string) {
		t.Helper()
		board := httptest.NewServer(dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Operator), Logger: quiet, Origins: origins}))
		defer board.Close()
		to, err := url.Parse(board.URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to) // which sets Host to that of the dashboard, as nginx does by default
			if keep {
				r.Out.Host = r.In.Host
			}
		}})
		defer proxy.Close()
		r, err := http.NewRequestWithContext(t.Context(), "POST", proxy.URL+"/act", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "ops.example.com"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", origin) // plain http: nothing says where it comes from but this
		answer, err := proxy.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var text strings.Builder
		if err := answer.Write(&text); err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, text.String()
	}
	const seen = "http://ops.example.com"
	if status, text := ask(false, seen); status != 403 || !strings.Contains(text, "Options.Origins") || !strings.Contains(text, "--host") || !strings.Contains(text, seen) || !strings.Contains(text, "127.0.0.1") {
		t.Errorf("unknown: %d %s", status, text)
	}
	for _, c := range []struct {
		name    string
		keep    bool
		origin  string
		origins []string
		want    int
	}{
		{"known", false, seen, []string{seen}, 200},
		{"a proxy that keeps the host", true, seen, nil, 200},
		{"https of it", false, "https://ops.example.com", []string{seen}, 403},
		{"another site", false, "http://evil.example", []string{seen}, 403},
		{"another site, host kept", true, "http://evil.example", nil, 403},
		{"a page without an address", false, "null", []string{seen}, 403},
	} {
		if status, text := ask(c.keep, c.origin, c.origins...); status != c.want {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
	}
	panics(t, "origins[1]", func() {
		dashboard.Handler(q, &dashboard.Options{Origins: []string{seen, "ops.example.com"}})
	})
}

// A form of another site is refused before it is read, whatever way the browser says so.
func TestGuard_forms(t *testing.T) {
	h := dashboard.Handler(open(t), &dashboard.Options{Auth: dashboard.Anyone(dashboard.Admin), Logger: quiet})
	for name, c := range map[string]struct {
		with func(*http.Request)
		want int
	}{
		"the same origin":              {func(*http.Request) {}, 400},
		"no browser":                   {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }, 400},
		"another port of the machine":  {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		"another site":                 {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"another site by an old brow.": {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "http://evil.example") }, 403},
		"a query":                      {func(r *http.Request) { r.URL.RawQuery = "do=hold" }, 400},
	} {
		if status, text := post(h, "/act", url.Values{"do": {"none"}}, c.with); status != c.want || strings.Contains(text, "A form has no query") != (name == "a query") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH"} {
		if status, _ := post(h, "/act", url.Values{"do": {"hold"}, "queue": {"default"}, "sure": {"0"}}, func(r *http.Request) { r.Method = method }); status != 405 {
			t.Errorf("%s: %d", method, status)
		}
	}
	if status, text := post(h, "/act", url.Values{"do": {strings.Repeat("x", 2<<20)}}); status != 413 || !strings.Contains(text, "larger than 1,024 KiB") {
		t.Errorf("a large form: %d %s", status, text)
	}
}

// Who is outside does not learn what the pages are about.
func TestHandler_name(t *testing.T) {
	for _, auth := range []func(*http.Request) (dashboard.Identity, error){nil, dashboard.Basic(nil)} {
		h := dashboard.Handler(open(t), &dashboard.Options{Auth: auth, Name: "orders.db", Logger: quiet})
		if status, text := get(h, "/"); status < 400 || strings.Contains(text, "orders") {
			t.Errorf("%d %s", status, text)
		}
	}
}
