package webhook

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/policy"
)

// receiver is an endpoint in memory, which does with each connection what its script
// says. Nothing is buffered between the two sides.
type receiver struct {
	script func(conn net.Conn)
	dials  atomic.Int32
	open   atomic.Int32
	conns  sync.WaitGroup
}

// client returns a client whose only endpoint is the receiver. It belongs to the bubble of
// the test.
func (r *receiver) client(o clientOptions) *client {
	o.allowHTTP = true
	o.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		httptrace.ContextClientTrace(ctx).ConnectStart(network, address) // as a net.Dialer does
		r.dials.Add(1)
		if r.script == nil {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ours, theirs := net.Pipe()
		r.conns.Go(func() {
			defer theirs.Close()
			r.open.Add(1)
			defer r.open.Add(-1)
			r.script(theirs)
		})
		return ours, nil
	}
	return newClient(o)
}

// request reads a request to its end.
func request(conn net.Conn) (*http.Request, error) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	return req, err
}

// says returns a script that reads a request and answers with text.
func says(text string) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := request(conn); err == nil {
			_, _ = io.WriteString(conn, text)
		}
	}
}

// drips returns a script that reads a request, says a beginning at once and then a byte a
// second.
func drips(begin, rest string) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := request(conn); err != nil {
			return
		}
		_, err := io.WriteString(conn, begin)
		time.Sleep(time.Second / 2) // so that no byte comes at the end of a timeout
		for i := 0; err == nil; i++ {
			time.Sleep(time.Second)
			_, err = conn.Write([]byte{rest[i%len(rest)]})
		}
	}
}

// sips is a script that reads a byte a second.
func sips(conn net.Conn) {
	for {
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// echoes is a script that answers with the signature and the key of a request, and no HTTP.
func echoes(conn net.Conn) {
	if req, err := request(conn); err == nil {
		_, _ = io.WriteString(conn, req.Header.Get(HeaderSignature)+" "+req.Header.Get("X-Key")+" "+strings.Repeat("x", 32<<10)+"\r\n")
	}
}

// echoesLength is a script that answers with the key of a request as a length.
func echoesLength(conn net.Conn) {
	if req, err := request(conn); err == nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: "+req.Header.Get("X-Key")+"\r\n\r\n")
	}
}

// goesOn returns a script that reads a request, and writes until it cannot any more. Its
// second result is how much it has written.
func goesOn(begin, rest string) (script func(net.Conn), written *atomic.Int64) {
	written = new(atomic.Int64)
	return func(conn net.Conn) {
		if _, err := request(conn); err != nil {
			return
		}
		_, err := io.WriteString(conn, begin)
		for err == nil && written.Load() < 1<<30 {
			var n int
			n, err = io.WriteString(conn, rest)
			written.Add(int64(n))
		}
	}, written
}

func post(t *testing.T, c *client, body string) *http.Request {
	t.Helper()
	req, err := c.buildRequest(t.Context(), &message{id: "msg_1", body: []byte(body)}, &target{
		id: "shop", url: "http://shop.example/hook?token=t0p-s3cret", header: map[string]string{"X-Key": "t0p-s3cret"}, secrets: []Secret{NewSecret()}}, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// What each kind of receiver costs: one connection, one request and a bounded time. Its class
// is that by the rules of Standard Webhooks and by those of SNS; a status without error is
// a delivery that is done.
func TestSend_hostile(t *testing.T) {
	const (
		retry    = policy.Retryable
		away     = policy.Unavailable
		throttle = policy.Throttled
		dead     = policy.Permanent
		done     = policy.Class(99)
		ok       = "HTTP/1.1 200 OK\r\n"
	)
	for _, test := range []struct {
		name   string
		script func(net.Conn)
		body   string
		status int
		text   string
		class  policy.Class
		sns    policy.Class
		most   time.Duration
		reason string
	}{
		{name: "is well", script: says(ok + "Content-Length: 4\r\n\r\ndone"), status: 200, text: "done", class: done, sns: done},
		{name: "has nothing to say", script: says("HTTP/1.1 204 No Content\r\n\r\n"), status: 204, class: done, sns: done},
		{name: "makes no connection", class: away, sns: retry, most: 15 * time.Second, reason: "not connected in time"},
		{name: "never answers", script: says(""), class: retry, sns: retry, reason: "EOF"},
		{name: "never answers, and waits", script: func(conn net.Conn) { _, _ = request(conn); _, _ = conn.Read(make([]byte, 1)) },
			class: retry, sns: retry, most: 15 * time.Second, reason: "awaiting"},
		{name: "reads a byte a second", script: sips, body: strings.Repeat("x", maxMessage),
			class: retry, sns: retry, most: 15 * time.Second},
		{name: "drips its header", script: drips("", ok), class: retry, sns: retry, most: 15 * time.Second, reason: "awaiting"},
		{name: "drips its answer", script: drips(ok+"\r\n", "x"), status: 200, text: "xx", class: done, sns: done, most: 3 * time.Second},
		{name: "drips an error", script: drips("HTTP/1.1 503 Unavailable\r\n\r\n", "x"), status: 503, text: "xx", class: retry, sns: retry, most: 3 * time.Second},
		{name: "closes after the request", script: func(conn net.Conn) { _, _ = request(conn) }, class: retry, sns: retry, reason: "EOF"},
		{name: "closes in the request", script: func(conn net.Conn) { _, _ = conn.Read(make([]byte, 100)) }, body: strings.Repeat("x", maxMessage), class: retry, sns: retry},
		{name: "promises more than it sends", script: says(ok + "Content-Length: 1000\r\n\r\nshort"), status: 200, text: "short", class: done, sns: done},
		{name: "sends more than it promises", script: says(ok + "Content-Length: 5\r\n\r\nshort and more"), status: 200, text: "short", class: done, sns: done},
		{name: "promises less than nothing", script: says(ok + "Content-Length: -5\r\n\r\nshort"), class: retry, sns: retry, reason: "Content-Length"},
		{name: "promises two lengths", script: says(ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nshort"), class: retry, sns: retry, reason: "Content-Length"},
		{name: "breaks off in a chunk", script: says(ok + "Transfer-Encoding: chunked\r\n\r\nff\r\nshort"), status: 200, text: "short", class: done, sns: done},
		{name: "speaks no HTTP", script: says("220 mail.example ESMTP\r\n"), class: retry, sns: retry, reason: "malformed HTTP"},
		{name: "repeats what it was sent, and no HTTP", script: echoes, class: retry, sns: retry, reason: `malformed HTTP status code "..."`},
		{name: "repeats what it was sent as its length", script: echoesLength, class: retry, sns: retry, reason: "..."},
		{name: "redirects inside", script: says("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"), status: 302, class: retry, sns: dead},
		{name: "redirects with the body", script: says("HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"), status: 307, class: retry, sns: dead},
		{name: "wants no more", script: says("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"), status: 410, class: dead, sns: dead},
		{name: "does not know the way", script: says("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), status: 404, class: retry, sns: dead},
		{name: "has too much to do", script: says("HTTP/1.1 429 Slow\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"), status: 429, class: throttle, sns: throttle},
		{name: "sends something packed", script: says(ok + "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00\x00"), status: 200, class: done, sns: done},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{script: test.script}
				c := r.client(clientOptions{})
				began := time.Now()
				a, err := c.send(post(t, c, test.body))
				took := time.Since(began)
				c.close()
				r.conns.Wait() // each of them ends, since the client has closed its side
				class, sns := done, done
				if err != nil {
					class, sns = webhookRules().Classify(err), snsRules().Classify(err)
				}
				if a.status != test.status || a.text != test.text || class != test.class || sns != test.sns {
					t.Errorf("status %d, %q, class %v, SNS %v, %v: want %d, %q, %v, %v",
						a.status, a.text, class, sns, err, test.status, test.text, test.class, test.sns)
				}
				if err != nil && (!strings.Contains(err.Error(), test.reason) || len(err.Error()) > 2<<10 ||
					strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "v1,")) {
					t.Errorf("%v: want %q, and no secret", err, test.reason)
				}
				if took != test.most || r.dials.Load() != 1 {
					t.Errorf("took %v and %d connections: want %v and one", took, r.dials.Load(), test.most)
				}
				if a.latency > took {
					t.Errorf("a latency of %v in %v", a.latency, took)
				}
			})
		})
	}
}

// However much a receiver sends, little of it is read, and its connection is closed.
func TestSend_endless(t *testing.T) {
	const chunk, most = 1 << 10, 64<<10 + 16<<10
	for _, test := range []struct {
		name, begin, rest string
		status            int
		most              int64
		class             policy.Class
		reason            string
	}{
		{"a gibibyte", "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", strings.Repeat("x", chunk), 200, most, 0, ""},
		{"a gibibyte of errors", "HTTP/1.1 500 Oh\r\nContent-Length: 1073741824\r\n\r\n", strings.Repeat("x", chunk), 500, most, policy.Retryable, "http status 500: xxx"},
		{"a body without an end", "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", chunk), 200, most, 0, ""},
		{"headers", "HTTP/1.1 200 OK\r\n", "X-Long: " + strings.Repeat("x", chunk-10) + "\r\n", 0, most, policy.Retryable, "headers exceeded 65536 bytes"},
		{"one header", "HTTP/1.1 200 OK\r\nX-Long: ", strings.Repeat("x", chunk), 0, most, policy.Retryable, "headers exceeded 65536 bytes"},
		{"informational answers", "", "HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("x", chunk) + "\r\n\r\n", 0, most, policy.Retryable, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script, written := goesOn(test.begin, test.rest)
				r := &receiver{script: script}
				c := r.client(clientOptions{})
				a, err := c.send(post(t, c, "{}"))
				synctest.Wait()
				if n := written.Load(); n > test.most {
					t.Errorf("%d bytes were read: want at most %d", n, test.most)
				}
				if a.status != test.status || len(a.text) > 1024 || test.status == 200 && len(a.text) != 1024 {
					t.Errorf("status %d, %d bytes: want %d", a.status, len(a.text), test.status)
				}
				if (err == nil) != (test.status == 200) {
					t.Errorf("error %v", err)
				} else if err != nil && (webhookRules().Classify(err) != test.class || !strings.Contains(err.Error(), test.reason)) {
					t.Errorf("%v is of class %v: want %q, %v", err, webhookRules().Classify(err), test.reason, test.class)
				}
				if len(fmt.Sprint(err)) > 1<<10 {
					t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
				}
				c.close()
				r.conns.Wait()
			})
		})
	}
}
