package webhook

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// wrong returns the faults of an error as "field value: limit".
func wrong(t *testing.T, err error) (all []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, _ := err.(interface{ Unwrap() []error })
	for _, err := range joined.Unwrap() {
		e, ok := errors.AsType[*errand.FieldError](err)
		if !ok {
			t.Fatalf("%v is no FieldError", err)
		}
		all = append(all, e.Error())
	}
	return all
}

func TestBuildRequest(t *testing.T) {
	c := newClient(clientOptions{})
	now := time.Unix(1674087231, 5e8)
	s := NewSecret()
	m := &message{id: "msg_1", body: []byte(`{"a":1}`), header: map[string]string{"x-event": "paid", "User-Agent": "shop/1"}}
	to := &target{id: "ep_1", url: "https://shop.example:8443/hook?token=t", header: map[string]string{"X-EVENT": "order", "Authorization": "Bearer b"}, secrets: []Secret{s}}
	req, err := c.buildRequest(t.Context(), m, to, 3, now)
	if err != nil {
		t.Fatal(err)
	}
	signature, _ := Sign("msg_1", now, m.body, s)
	want := http.Header{
		"X-Event": {"order"}, "User-Agent": {"shop/1"}, "Authorization": {"Bearer b"}, "Content-Type": {"application/json"},
		"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {"1674087231"}, "Webhook-Signature": {signature},
		"Errand-Endpoint": {"ep_1"}, "Errand-Attempt": {"3"},
	}
	if len(req.Header) != len(want) {
		t.Errorf("headers %v, want %v", req.Header, want)
	}
	for name, values := range want {
		if !slices.Equal(req.Header[name], values) {
			t.Errorf("%s: %q, want %q", name, req.Header[name], values)
		}
	}
	body, err := io.ReadAll(req.Body)
	if err != nil || string(body) != `{"a":1}` || req.ContentLength != 7 || req.GetBody != nil || req.Method != "POST" || req.URL.String() != to.url {
		t.Errorf("%s %s %q of %d, %v", req.Method, req.URL, body, req.ContentLength, err)
	}
	// What was built is what a receiver verifies.
	req, _ = c.buildRequest(t.Context(), m, to, 3, time.Now())
	if body, err = Verify(req, []Secret{s}, 0); err != nil || string(body) != `{"a":1}` {
		t.Errorf("%q, %v", body, err)
	}
	// Without a secret nothing is signed; without a name of its own the sender has errand's.
	req, err = c.buildRequest(t.Context(), &message{id: "m"}, &target{id: "e", url: "https://a.example"}, 1, now)
	if err != nil || req.Header["Webhook-Signature"] != nil || req.Header.Get("User-Agent") != "errand-webhook" || req.ContentLength != 0 {
		t.Errorf("%v, %v", req.Header, err)
	}
}

func TestBuildRequest_contentType(t *testing.T) {
	c := newClient(clientOptions{})
	for _, test := range []struct{ endpoint, message, want string }{
		{"", "", "application/json"},
		{"", "text/plain", "text/plain"},
		{"application/xml", "text/plain", "application/xml"},
		{"TEXT/CSV;charset=UTF-8", "", "text/csv; charset=UTF-8"},
		{"", "application/octet-stream", "application/octet-stream"},
		{"", "application/x-www-form-urlencoded", "application/x-www-form-urlencoded"},
		{"image/png", "", "image/png"},
		{"", "application/cloudevents+json", "application/cloudevents+json"},
		{"", "application/x-ndjson", "application/x-ndjson"},
		{"", "multipart/form-data; boundary=x", "multipart/form-data; boundary=x"},
		{"", "text/*", "message.content_type"},
		{"", "a/" + strings.Repeat("b", 255), "message.content_type"},
		{"", "text/plain\r\nX-Evil: 1", "message.content_type"},
		{"text", "*/*", "message.content_type endpoint.content_type"},
	} {
		req, err := c.buildRequest(t.Context(), &message{id: "m", contentType: test.message},
			&target{id: "e", url: "https://a.example", contentType: test.endpoint}, 1, time.Now())
		if err == nil && req.Header.Get("Content-Type") != test.want {
			t.Errorf("%q, %q: %q, want %q", test.endpoint, test.message, req.Header.Get("Content-Type"), test.want)
		}
		if err != nil {
			var fields []string
			for _, s := range wrong(t, err) {
				fields = append(fields, strings.Fields(s)[1])
			}
			if got := strings.Join(fields, " "); got != test.want {
				t.Errorf("%q, %q: %v, want faults of %q", test.endpoint, test.message, err, test.want)
			}
		}
	}
}

func TestBuildRequest_refused(t *testing.T) {
	c := newClient(clientOptions{})
	_, public := NewKeyPair()
	req, err := c.buildRequest(t.Context(),
		&message{id: "a.b", body: make([]byte, maxRequest+1), contentType: "a/*", header: map[string]string{"Host": "x"}},
		&target{id: "", url: "ftp://a", contentType: "a/*", header: map[string]string{"Te": "x"}, secrets: []Secret{NewSecret(), public}}, 0, time.Now())
	got := wrong(t, err)
	for i, begin := range []string{
		`errand: message.id "a.b": must match`, `errand: message.body 2097153: must be at most 2097152 bytes`, `errand: message.content_type "a/*": must be a media type`,
		`errand: message.headers "Host": must not`, `errand: endpoint.id "": must match`, `errand: endpoint.url "ftp://a": must begin with https`,
		`errand: endpoint.content_type "a/*": must be a media type`, `errand: endpoint.headers "Te": must not`,
		`errand: endpoint.secrets[1] "whpk_...": must be a whsec_ or a whsk_`, `errand: attempt 0: must be at least 1`,
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], begin) {
			t.Errorf("fault %d of %q: want %q", i, got, begin)
		}
	}
	if req != nil || len(got) != 10 || !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("%d faults", len(got))
	}
	_, err = c.buildRequest(t.Context(), &message{id: "m", body: make([]byte, maxRequest)}, &target{id: "e", url: "https://a.example",
		secrets: slices.Repeat([]Secret{NewSecret()}, 17)}, 1, time.Now())
	if got := wrong(t, err); len(got) != 1 || !strings.HasPrefix(got[0], "errand: endpoint.secrets 17: must be at most 16") {
		t.Errorf("%q", got)
	}
}

func TestURL(t *testing.T) {
	plain := newClient(clientOptions{allowHTTP: true})
	inside := newClient(clientOptions{allowed: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8")}})
	strict := newClient(clientOptions{})
	for _, test := range []struct {
		c          *client
		url, limit string
	}{
		{strict, "https://shop.example", ""},
		{strict, "HTTPS://Shop.Example:443/a/b?c=d", ""},
		{strict, "https://shop.example.", ""},
		{strict, "https://xn--bcher-kva.example/", ""},
		{strict, "https://1.1.1.1/", ""},
		{strict, "https://[2606:4700::1111]:8443/", ""},
		{strict, "https://3com.example/", ""},
		{strict, "https://0x7f.example/", ""},
		{strict, "https://intranet/", ""}, // where it leads is known when it is dialled
		{strict, "http://shop.example", "must begin with https://"},
		{plain, "http://shop.example", ""},
		{plain, "https://shop.example", ""},
		{plain, "ws://shop.example", `"ws://shop.example": must begin with http:// or https://`},
		{plain, "shop.example", `"shop.example": must begin with http:// or https://`},
		{strict, "shop.example/in/a-token-of-16-bytes?key=secret", `"shop.example/in/...": must begin with https://`},
		{strict, "ada:secret@shop.example/in", `"...@shop.example/in": must begin with https://`},
		{strict, "hooks.customers.example", `"hooks.customers.example": must begin with https://`},
		{strict, "this-is-a-secret", `"...": must begin with https://`},
		{inside, "https://10.1.2.3/", ""},
		{inside, "https://localhost:8443/", ""},
		{inside, "https://192.168.1.1/", "special address (private, 192.168.0.0/16, RFC 1918)"},
		{strict, "https://10.1.2.3/", "special address (private, 10.0.0.0/8, RFC 1918)"},
		{strict, "", "must begin with https://"},
		{strict, "/hook", "must begin with https://"},
		{strict, "//shop.example/hook", "must begin with https://"},
		{strict, "shop.example/hook", "must begin with https://"},
		{strict, "https:shop.example", "must begin with https://"},
		{strict, "file:///etc/passwd", "must begin with https://"},
		{strict, "gopher://shop.example", "must begin with https://"},
		{strict, "https://", "must have a host"},
		{strict, "https:///hook", `"https:///hook": must have a host`},
		{strict, "https://:443/hook", "must have a host"},
		{strict, "https://ada:secret@shop.example/", "must have no user"},
		{strict, "https://secret@shop.example/", "must have no user"},
		{strict, "https://@shop.example/", "must have no user"},
		{strict, "https://shop.example/#secret", "must have no fragment"},
		{strict, "https://shop.example/#", "must have no fragment"},
		{strict, "https://shop.example:0/", "must have a port"},
		{strict, "https://shop.example:65536/", "must have a port"},
		{strict, "https://shop.example:https/", "must be a URL"},
		{strict, "https://shop.example/\r\nHost: x", "must be a URL"},
		{strict, "https://shop example/", "must be a URL"},
		{strict, `https://shop.example\@10.0.0.1/`, "must be a URL"},
		{strict, "https://bücher.example/", "punycode"},
		{strict, "https://shop.example/hook ", "must have no blank and no invisible character: write U+0020, at byte 25, as %20"},
		{strict, "https://shop.example/hook\u200b", "write U+200B, at byte 25, as %E2%80%8B"},
		{strict, "https://shop.example/a%20b", ""},
		{strict, "https://shop.example/" + strings.Repeat("x", maxURL-21), ""},
		{strict, "https://shop.example/" + strings.Repeat("x", maxURL-20), "must be at most 2048 bytes"},
	} {
		var f faults
		f.url("url", test.url, test.c)
		got := wrong(t, f.err())
		if test.limit == "" && len(got) > 0 || test.limit != "" && (len(got) != 1 || !strings.Contains(got[0], test.limit)) {
			t.Errorf("%s: %q, want %q", test.url, got, test.limit)
		}
		if strings.Contains(strings.Join(got, ""), "secret") {
			t.Errorf("%s: the fault shows a secret: %q", test.url, got)
		}
	}
	var f faults
	f.url("url", "http://ada:secret@10.0.0.1:0/#secret", plain)
	if got := wrong(t, f.err()); len(got) != 4 {
		t.Errorf("%d faults: %q", len(got), got)
	}
}

func TestHeaders(t *testing.T) {
	for _, test := range []struct{ name, value, limit string }{
		{"X-Event", "order.paid", ""},
		{"Authorization", "Bearer a b", ""},
		{"Cookie", "a=b", ""},
		{"x-empty", "", ""},
		{"X-Umlaut", "é", ""},
		{"X-Tab", "a\tb", ""},
		{"Content-Encoding", "gzip", ""},
		{"Webhooks", "x", ""},
		{"", "x", "must have names of"},
		{"X Event", "x", "must have names of"},
		{"X-Event:", "x", "must have names of"},
		{"X-Evént", "x", "must have names of"},
		{"X-Event\r\nHost", "x", "must have names of"},
		{"X-Event", "a\r\nHost: b", "must be without control characters"},
		{"X-Event", "a\nb", "must be without control characters"},
		{"X-Event", "a\x00b", "must be without control characters"},
		{"X-Event", "a\x7f", "must be without control characters"},
		{"X-Event", " a", "spaces around it"},
		{"X-Event", "a\t", "spaces around it"},
		{"X-Event", strings.Repeat("x", maxHeaders-7), ""},
		{"X-Event", strings.Repeat("x", maxHeaders-6), "must be at most 8192 bytes"},
	} {
		var f faults
		f.headers("headers", map[string]string{test.name: test.value})
		got := wrong(t, f.err())
		if test.limit == "" && len(got) > 0 || test.limit != "" && (len(got) != 1 || !strings.Contains(got[0], test.limit)) {
			t.Errorf("%q: %q: %q, want %q", test.name, test.value, got, test.limit)
		}
	}
	for _, name := range []string{
		"Host", "Content-Length", "content-length", "TRANSFER-ENCODING", "Connection", "TE", "te", "Trailer", "Upgrade", "Keep-Alive",
		"Proxy-Authorization", "Proxy-Connection", "Expect", "HTTP2-Settings", "Content-Type", "webhook-id", "Webhook-Signature", "webhook-new",
		"x-amz-sns-message-type", "X-AMZ-SNS-TOPIC-ARN", "Errand-Attempt", "errand-new",
	} {
		var f faults
		f.headers("headers", map[string]string{name: "x"})
		if got := wrong(t, f.err()); len(got) != 1 || !strings.Contains(got[0], strconv.Quote(name)+": must not have a header that is set by the sender") {
			t.Errorf("%s: %q", name, got)
		}
	}
	var f faults
	f.headers("headers", map[string]string{"X-A": "1", "x-a": "secret", "X-B": "secret\n"})
	if got := wrong(t, f.err()); len(got) != 2 || strings.Contains(strings.Join(got, ""), "secret") {
		t.Errorf("%q", got)
	}
}

// What an endpoint repeats of a request is not kept as far as it proves who sends.
func TestSend_keepsNoSecret(t *testing.T) {
	s := NewSecret()
	r := &receiver{script: func(conn net.Conn) {
		req, err := request(conn)
		if err != nil {
			return
		}
		text := "status of " + req.RequestURI + " for " + req.Header.Get("X-Api-Key") + ", " + req.Header.Get("Authorization") + " and " +
			req.Header.Get("Webhook-Signature") + " of " + req.Header.Get("Webhook-Id") + " end"
		_, _ = io.WriteString(conn, "HTTP/1.1 500 Oh\r\nContent-Length: "+strconv.Itoa(len(text))+"\r\n\r\n"+text)
	}}
	c := r.client(clientOptions{})
	defer c.close()
	req, err := c.buildRequest(context.Background(), &message{id: "msg_1"}, &target{id: "e", url: "http://shop.example/?key=t0pp-s&n=1", secrets: []Secret{s},
		header: map[string]string{"X-Api-Key": "k3y-k3y", "Authorization": "Basic dXNlcjpwYXNz"}}, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.send(req)
	const want = "status of /?key=...&n=1 for ..., ... and ... of msg_1 end"
	if a.text != want || err == nil || err.Error() != "POST http://shop.example/: http status 500: "+want {
		t.Errorf("kept %q, error %v", a.text, err)
	}
}

// An error names the URL, without what may be a secret in it.
func TestSend_namesURL(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"https://shop.example/in?key=t0p#x", "https://shop.example/in"},
		{"https://ada:pw@shop.example:8443/hooks/errand", "https://shop.example:8443/hooks/errand"},
		{"https://shop.example/services/T0/XXXXXXXXXXXXXXXXXXXXXXXX/a%2Fb", "https://shop.example/services/T0/.../a%2Fb"},
		{"http://shop.example", "http://shop.example"},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := shown(u); got != c.want {
			t.Errorf("%s is shown as %s, want %s", c.url, got, c.want)
		}
	}
	moved := &receiver{script: says("HTTP/1.1 301 Moved\r\nLocation: /services/XXXXXXXXXXXXXXXXXXXXXXXX?key=t0p\r\nContent-Length: 0\r\n\r\n")}
	there := moved.client(clientOptions{})
	defer there.close()
	if _, err := there.send(post(t, there, "")); err == nil || !strings.HasSuffix(err.Error(), "http status 301 to http://shop.example/services/...") {
		t.Errorf("moved: %v", err)
	}
	r := &receiver{script: func(net.Conn) {}} // ends the connection
	c := r.client(clientOptions{})
	defer c.close()
	if _, err := c.send(post(t, c, "")); err == nil || !strings.HasPrefix(err.Error(), "webhook: no answer from http") {
		t.Errorf("without an answer: %v", err)
	}
}

func TestSend_gone(t *testing.T) {
	for status, want := range map[int]bool{410: true, 404: false, 500: false} {
		r := &receiver{script: says("HTTP/1.1 " + strconv.Itoa(status) + " Status\r\nContent-Length: 0\r\n\r\n")}
		c := r.client(clientOptions{})
		if _, err := c.send(post(t, c, "")); errors.Is(err, errGone) != want {
			t.Errorf("%d: %v", status, err)
		}
		c.close()
	}
}
