package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"

	"github.com/errandq/errand/policy/policyhttp"
)

// weather is what the network is like.
type weather int

const (
	online weather = iota
	noRoute
	portal     // a captive portal answers everything
	expired    // the server takes no token that it has given out, and is slow to give a new one
	overloaded // the server answers 503 once, with a Retry-After
)

// network is the server and all that is between.
type network struct {
	server http.Server
	listen net.Listener

	mu    sync.Mutex
	now   weather
	over  chan struct{} // closed: the weather has changed
	met   int           // requests in this weather, also those that got nowhere
	token int           // that the server takes
	got   map[string]bool
}

func startNetwork() (*network, error) {
	n := &network{got: map[string]bool{}, over: make(chan struct{})}
	n.server.Handler = n
	var err error
	if n.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go func() { _ = n.server.Serve(n.listen) }() // until close
	return n, nil
}

func (n *network) close() error { return n.server.Close() }
func (n *network) url() string  { return "http://" + n.listen.Addr().String() + "/readings" }

// client returns an HTTP client that dials through the network.
func (n *network) client() *http.Client {
	c := policyhttp.NewClient()
	t := c.Transport.(*policyhttp.Transport)
	t.DisableKeepAlives = true // the weather is felt by those who dial
	var d net.Dialer
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.now == noRoute {
			n.met++
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
		}
		return d.DialContext(ctx, network, address)
	}
	return c
}

func (n *network) become(w weather) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.over)
	n.now, n.over, n.met = w, make(chan struct{}), 0
	if w == expired {
		n.token++
	}
}

// login returns the token that the server takes.
func (n *network) login(ctx context.Context) (string, error) {
	n.mu.Lock()
	token, now, over := fmt.Sprintf("token-%d", n.token), n.now, n.over
	n.mu.Unlock()
	if now != expired {
		return token, nil
	}
	select {
	case <-over:
		return token, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (n *network) requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.met
}

func (n *network) received() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.got)
}

// ServeHTTP answers for the server, or for the portal before it.
func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.met++
	switch {
	case n.now == portal:
		w.Header().Set("Location", "http://portal.example/login")
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, "log in to this network")
	case r.Header.Get("Authorization") != fmt.Sprintf("Bearer token-%d", n.token):
		http.Error(w, "token expired", http.StatusUnauthorized)
	case n.now == overloaded && n.met == 1:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
	default:
		n.got[r.Header.Get("Idempotency-Key")] = true
		w.WriteHeader(http.StatusNoContent)
	}
}
