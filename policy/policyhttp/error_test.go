package policyhttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/policy/policyhttp"
)

// answered returns the error of an answer.
func answered(status int, header http.Header, body string) error {
	resp := &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}
	defer resp.Body.Close()
	return policyhttp.Error(resp)
}

func TestError(t *testing.T) {
	for status := 100; status <= 599; status++ {
		err := answered(status, nil, "text")
		e, ok := errors.AsType[*policy.StatusError](err)
		if success := status/100 == 2; success != (err == nil) || ok == success || ok && (e.Status != status || e.Text != "text") {
			t.Errorf("status %d: %#v", status, err)
		}
	}
	if err := policyhttp.Error(&http.Response{StatusCode: 404}); err == nil || err.Error() != "http status 404" {
		t.Errorf("an answer with a status alone: %v", err)
	}
}

// The error of a redirect says where that leads to.
func TestError_Location(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), "POST", "https://api.example/v1/hook?key=t0pkey", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status   int
		to, want string
	}{
		{301, "https://ada:pw@new.example/hook?key=t0pkey#x", "POST https://api.example/v1/hook: http status 301 to https://new.example/hook"},
		{308, "/v2/t0pkey", "POST https://api.example/v1/hook: http status 308 to https://api.example/v2/..."},
		{302, "", "POST https://api.example/v1/hook: http status 302"},
		{500, "/v2/hook", "POST https://api.example/v1/hook: http status 500"},
	} {
		err := policyhttp.Error(&http.Response{StatusCode: c.status, Header: http.Header{"Location": {c.to}}, Request: req})
		if c.to == "" {
			err = policyhttp.Error(&http.Response{StatusCode: c.status, Request: req})
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%d to %s: %v, want %s", c.status, c.to, err, c.want)
		}
	}
}

func TestError_Text(t *testing.T) {
	for _, test := range []struct{ body, want string }{
		{"", ""},
		{"two\r\nlines\n", "two\r\nlines\n"},
		{strings.Repeat("x", 2000), strings.Repeat("x", 512)},
		{strings.Repeat("é", 3000), strings.Repeat("é", 256)},
		{"x" + strings.Repeat("é", 3000), "x" + strings.Repeat("é", 255)},
		{"\x1f\x8b\x08\x00\x00", ""},
		{"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", ""},
		{"text \xff\xfe\xfd\xfc\xfb", ""},
		{"Gr\xfc\xdfe", "Gre"}, // a few characters of another encoding
	} {
		e, _ := errors.AsType[*policy.StatusError](answered(500, nil, test.body))
		if e == nil || e.Text != test.want {
			t.Errorf("%.20q: %+v, want the text %q", test.body, e, test.want)
		}
	}
}

// A server that repeats all that it was sent, as pages for developers do.
func TestError_KeepsNoSecret(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "Bearer token refused: "+r.Header.Get("Authorization")+" of "+r.RequestURI+
			" with "+r.Header.Get("Cookie")+" and "+r.URL.Query().Get("key")+" end")
	}))
	defer s.Close()
	address := strings.Replace(s.URL, "http://", "http://ada:hunter22@", 1) + "/v1/mail?key=s%C3%A9cret+key&n=1#fragment"
	req, err := http.NewRequestWithContext(t.Context(), "POST", address, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer eyJhbGciOi.abc")
	req.AddCookie(&http.Cookie{Name: "session", Value: "c00kie"})
	resp, err := policyhttp.NewClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := policyhttp.Error(resp).Error()
	want := "POST " + s.URL + "/v1/mail: http status 401: Bearer token refused: ... of /v1/mail?key=...&n=1 with session=... and ... end"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, secret := range []string{"hunter22", "cret", "eyJ", "c00kie", "fragment", "ada"} {
		if strings.Contains(got, secret) {
			t.Errorf("the error has %q: %s", secret, got)
		}
	}
}

func TestError_KeepsNoUserinfo(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, user+" with "+password+" as "+r.Header.Get("Authorization")+" end")
	}))
	defer s.Close()
	resp, err := policyhttp.NewClient().Get(strings.Replace(s.URL, "http://", "http://ada:hunter22@", 1) + "/mail")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	want := "GET " + s.URL + "/mail: http status 403: ada with ... as ... end"
	if got := policyhttp.Error(resp).Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A date in Retry-After is compared with the date of the answer, not with the clock of
// a device that has just been started.
func TestError_DatedRetryAfter(t *testing.T) {
	header := http.Header{"Date": {"Fri, 20 Nov 2026 12:00:00 GMT"}, "Retry-After": {"Fri, 20 Nov 2026 12:01:00 GMT"}}
	if d, _ := policy.RetryAfter(answered(503, header, "")); d != time.Minute {
		t.Errorf("hint %v, want a minute", d)
	}
	synctest.Test(t, func(t *testing.T) {
		header := http.Header{"Date": {"soon"}, "Retry-After": {time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)}}
		if d, _ := policy.RetryAfter(answered(503, header, "")); d != time.Minute {
			t.Errorf("without a date: hint %v, want a minute", d)
		}
	})
}

// A body that goes on for ever, as those of some portals, does not keep the handler.
func TestError_BodyThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, "wait") }()
		began := time.Now()
		err := policyhttp.Error(&http.Response{StatusCode: 503, Body: body})
		if err == nil || err.Error() != "http status 503: wait" || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	// The same over a connection: Close ends a read of another goroutine.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "wait")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	resp, err := s.Client().Get(s.URL) //nolint:bodyclose // it is closed while it is read
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := io.ReadAll(resp.Body)
		read <- err
	}()
	resp.Body.Close()
	if err := <-read; err == nil {
		t.Error("a closed body was read to its end")
	}
}
