package policyhttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/policy/policyhttp"
)

// pipes is a network in memory, for fake time.
type pipes struct {
	conns  chan net.Conn
	close  sync.Once
	silent atomic.Bool // nobody answers who makes a connection
	mute   atomic.Bool // somebody answers, and says nothing
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn, 10)} }

func (p *pipes) dial(ctx context.Context, network, address string) (net.Conn, error) {
	httptrace.ContextClientTrace(ctx).ConnectStart(network, address) // as a net.Dialer does
	if p.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ours, theirs := net.Pipe()
	if !p.mute.Load() {
		p.conns <- theirs
	}
	return ours, nil
}

func (p *pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.conns) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// network is a client of NewClient and a server in a network of pipes. The server
// answers /silent never, and cuts the connection at /cut.
type network struct {
	*pipes
	server *httptest.Server
	client *http.Client
}

// inNetwork calls test with a network in fake time.
func inNetwork(t *testing.T, secure bool, test func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{pipes: newPipes(), client: policyhttp.NewClient()}
		gone := make(chan struct{})
		n.server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if secure != (r.ProtoMajor == 2) {
				t.Errorf("the request is of %s", r.Proto)
			}
			switch r.URL.Path {
			case "/silent":
				<-gone
			case "/cut":
				panic(http.ErrAbortHandler)
			}
		}))
		n.server.Listener.Close()
		n.server.Listener, n.server.EnableHTTP2 = n.pipes, secure
		transport := n.client.Transport.(*policyhttp.Transport)
		if secure {
			n.server.StartTLS()
			transport.TLSClientConfig = n.server.Client().Transport.(*http.Transport).TLSClientConfig
		} else {
			n.server.Start()
		}
		transport.DialContext = n.dial
		defer n.server.Close()
		defer n.client.CloseIdleConnections()
		defer close(gone)
		test(t, n)
	})
}

// get returns how long a request for a path took, and its error.
func (n *network) get(ctx context.Context, path string) (time.Duration, error) {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.server.URL+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := n.client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return time.Since(began), err
}

const five = 5 * time.Second

func TestTransport_TimeBeforeConnection(t *testing.T) {
	for _, test := range []struct {
		name    string
		secure  bool
		path    string
		prepare func(*network)
		limit   time.Duration
		want    policy.Class
	}{
		{"nobody answers who connects", false, "", func(n *network) { n.silent.Store(true) }, five, policy.Unavailable},
		{"the same with TLS", true, "", func(n *network) { n.silent.Store(true) }, five, policy.Unavailable},
		{"nobody speaks TLS", true, "", func(n *network) { n.mute.Store(true) }, five, policy.Unavailable},
		{"too little time", false, "", func(n *network) { n.silent.Store(true) }, time.Second - time.Millisecond, policy.Retryable},
		{"no answer", false, "/silent", func(*network) {}, five, policy.Retryable},
		{"no answer over HTTP/2", true, "/silent", func(*network) {}, five, policy.Retryable},
		{"no answer over a connection that was there", false, "/silent", func(n *network) {
			_, _ = n.get(context.Background(), "/")
			n.silent.Store(true)
		}, five, policy.Retryable},
		{"a connection that was there is cut, and there is no other", false, "/cut", func(n *network) {
			_, _ = n.get(context.Background(), "/")
			n.silent.Store(true)
		}, five, policy.Unavailable},
		{"no connection is free", false, "", func(n *network) {
			n.client.Transport.(*policyhttp.Transport).MaxConnsPerHost = 1
			go func() { _, _ = n.get(context.Background(), "/silent") }()
			synctest.Wait()
		}, five, policy.Retryable},
	} {
		check := func(whose string, ctx context.Context, n *network) {
			took, err := n.get(ctx, test.path)
			if got := policy.Classify(err); got != test.want || took != test.limit || err == nil {
				t.Errorf("%s, timeout of the %s: %v after %v, which is %v; want %v after %v", test.name, whose, err, took, got, test.want, test.limit)
			}
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, context.DeadlineExceeded) && whose == "context" {
				t.Errorf("%s, timeout of the %s: %v is no timeout", test.name, whose, err)
			}
		}
		inNetwork(t, test.secure, func(t *testing.T, n *network) {
			test.prepare(n)
			ctx, cancel := context.WithTimeout(t.Context(), test.limit)
			defer cancel()
			check("context", ctx, n)
		})
		inNetwork(t, test.secure, func(t *testing.T, n *network) {
			test.prepare(n)
			n.client.Timeout = test.limit
			check("client", t.Context(), n)
		})
	}
}

func TestTransport_Cancelled(t *testing.T) {
	inNetwork(t, false, func(t *testing.T, n *network) {
		n.silent.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(five, cancel)
		took, err := n.get(ctx, "")
		if got := policy.Classify(err); got != policy.Retryable || !errors.Is(err, context.Canceled) || took != five {
			t.Errorf("%v after %v, which is %v", err, took, got)
		}
	})
}

// The text says what the time was spent on.
func TestTransport_Text(t *testing.T) {
	inNetwork(t, false, func(t *testing.T, n *network) {
		n.silent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), five)
		defer cancel()
		_, err := n.get(ctx, "/mail")
		want := `Get "` + n.server.URL + `/mail": policyhttp: not connected in time: context deadline exceeded`
		if _, ok := errors.AsType[*url.Error](err); !ok || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		n.client.Timeout = five
		_, err = n.get(t.Context(), "/mail")
		if !strings.Contains(err.Error(), "/mail\": policyhttp: not connected in time: ") {
			t.Errorf("with the client's timeout: %v", err)
		}
	})
}
