package policyhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/policy/policyhttp"
)

// site is a server that notes its requests, and answers /STATUS?TO with a redirect and
// all else with 200.
type site struct {
	*httptest.Server
	requests []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.requests = append(s.requests, r.Method+" "+r.URL.Path+" "+string(body))
		if code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")); err == nil {
			w.Header().Set("Location", r.URL.RawQuery)
			w.WriteHeader(code)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// send returns the status of the answer, which it reads to the end.
func send(t *testing.T, c *http.Client, method, address, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("%s %s: the answer cannot be read: %v", method, address, err)
	}
	return resp.StatusCode
}

func TestNewClient_Redirects(t *testing.T) {
	for _, test := range []struct {
		method string
		status int
		to     string
		want   int      // the status that comes back
		seen   []string // after the first request
	}{
		{"GET", 302, "/done", 200, []string{"GET /done "}},
		{"GET", 303, "/done", 200, []string{"GET /done "}},
		{"HEAD", 301, "/done", 200, []string{"HEAD /done "}},
		{"GET", 307, "https://127.0.0.1/done", 307, nil},
		{"GET", 302, "http://portal.test/login", 302, nil},
		// A POST stays a POST, or is not followed.
		{"POST", 301, "/done", 301, nil},
		{"POST", 302, "/done", 302, nil},
		{"POST", 303, "/done", 303, nil},
		{"POST", 307, "/done", 200, []string{"POST /done body"}},
		{"PUT", 308, "/done", 200, []string{"PUT /done body"}},
		{"POST", 308, "http://portal.test/login", 308, nil},
		{"POST", 304, "/done", 304, nil},
	} {
		s := newSite(t)
		c := policyhttp.NewClient()
		body := map[bool]string{true: "body"}[test.method == "POST" || test.method == "PUT"]
		got := send(t, c, test.method, fmt.Sprintf("%s/%d?%s", s.URL, test.status, test.to), body)
		if got != test.want || !slices.Equal(s.requests[1:], test.seen) {
			t.Errorf("%s, %d to %s: status %d after the requests %q, want %d after %q",
				test.method, test.status, test.to, got, s.requests[1:], test.want, test.seen)
		}
		c.CloseIdleConnections()
	}
}

func TestNewClient_RedirectsInARow(t *testing.T) {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		http.Redirect(w, r, "/again", http.StatusFound)
	}))
	defer s.Close()
	if got := send(t, policyhttp.NewClient(), "GET", s.URL, ""); got != 302 || n != 11 {
		t.Errorf("status %d after %d requests, want 302 after 11", got, n)
	}
}

func TestCheckRedirect(t *testing.T) {
	request := func(method, address string) *http.Request {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return &http.Request{Method: method, URL: u}
	}
	for _, test := range []struct {
		from, to string
		follow   bool
	}{
		{"http://host/a", "http://host/b?c", true},
		{"http://host/", "http://HOST:80/", true},
		{"https://host:443/", "https://host/", true},
		{"http://[::1]:8080/", "http://[::1]:8080/x", true},
		{"http://host/", "https://host/", false},
		{"https://host/", "http://host/", false},
		{"https://host/", "https://host:8443/", false},
		{"https://host/", "https://host:80/", false},
		{"https://host:8080/", "http://host:8080/", false},
		{"https://host/", "https://www.host/", false},
		{"https://host/", "https://host.portal.test/", false},
		{"https://host/", "https://host@portal.test/", false},
	} {
		err := policyhttp.CheckRedirect(request("GET", test.to), []*http.Request{request("GET", test.from), request("GET", test.from)})
		if (err == nil) != test.follow || err != nil && !errors.Is(err, http.ErrUseLastResponse) {
			t.Errorf("%s to %s: %v, want to be followed: %t", test.from, test.to, err, test.follow)
		}
	}
}

// A proxy's refusal to connect is an answer as well.
func TestNewClient_ProxyRefuses(t *testing.T) {
	for code, want := range map[int]policy.Class{407: policy.Unavailable, 403: policy.Unavailable, 503: policy.Throttled} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			http.Error(w, "log in first", code)
		}))
		c := policyhttp.NewClient()
		c.Transport.(*policyhttp.Transport).Proxy = func(*http.Request) (*url.URL, error) {
			u, err := url.Parse(proxy.URL)
			u.User = url.UserPassword("device", "hunter22")
			return u, err
		}
		resp, err := c.Get("https://service.test/path?token=abcdef")
		if err == nil {
			resp.Body.Close()
		}
		if e, ok := errors.AsType[*policy.StatusError](err); !ok || e.Error() != fmt.Sprintf("CONNECT service.test:443: http status %d, retry after 7s", code) {
			t.Errorf("the proxy answers %d: %v", code, err)
		}
		if got := policy.Classify(err); got != want {
			t.Errorf("the proxy answers %d: %v, want %v", code, got, want)
		}
		proxy.Close()
	}
}
