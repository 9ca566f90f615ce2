package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// Each range is judged at its first and its last address, and the addresses beside it by
// the ranges that are there.
func TestFilter_ranges(t *testing.T) {
	var f filter
	for _, s := range specials {
		if s.prefix != s.prefix.Masked() || s.what == "" || !strings.HasPrefix(s.source, "RFC ") {
			t.Errorf("row %v", s)
		}
		first, last := s.prefix.Addr(), lastOf(s.prefix)
		for _, a := range []netip.Addr{first, last} {
			if f.judge(a) == "" {
				t.Errorf("%v of %v may be dialled", a, s.prefix)
			}
			if a.Is4() && f.judge(netip.AddrFrom16(a.As16())) == "" {
				t.Errorf("%v of %v may be dialled when it is mapped", a, s.prefix)
			}
		}
		for _, a := range []netip.Addr{first.Prev(), last.Next()} {
			within := !a.IsValid() || a.Is6() && !unicast.Contains(a) && !nat64.Contains(a)
			for _, other := range specials {
				within = within || other.prefix.Contains(a)
			}
			if reason := f.judge(a); (reason != "") != within {
				t.Errorf("%v beside %v: %q", a, s.prefix, reason)
			}
		}
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// The addresses of the issue by name, as the dialer passes them on, and some that may be
// dialled.
func TestFilter_control(t *testing.T) {
	var f filter
	for _, test := range []struct{ address, reason string }{
		{"0.0.0.0", "unspecified"}, {"0.1.2.3", "this network"}, {"10.0.0.1", "private"}, {"100.64.0.1", "carriers"},
		{"127.0.0.1", "loopback"}, {"127.255.255.254", "loopback"}, {"169.254.169.254", "link-local"}, {"172.31.255.255", "private"},
		{"192.0.0.8", "protocol"}, {"192.0.2.1", "documentation"}, {"192.168.1.1", "private"}, {"198.19.0.1", "benchmarks"},
		{"198.51.100.7", "documentation"}, {"203.0.113.9", "documentation"}, {"224.0.0.1", "multicast"}, {"240.0.0.1", "reserved"},
		{"255.255.255.255", "broadcast"}, {"::", "unspecified"}, {"::1", "loopback"}, {"::127.0.0.1", "IPv4-compatible"},
		{"::ffff:127.0.0.1", "loopback"}, {"::ffff:a00:1", "private"}, {"::ffff:0:10.0.0.1", "IPv4-translated"},
		{"64:ff9b::127.0.0.1", "loopback"}, {"64:ff9b::a9fe:a9fe", "link-local"}, {"64:ff9b:1::1", "translation"},
		{"100::1", "discard"}, {"100:0:0:1::1", "dummy"}, {"2001::1", "Teredo"}, {"2001:1ff::1", "protocol"},
		{"2001:db8::1", "documentation"}, {"2002:7f00:1::", "6to4"}, {"3fff::1", "documentation"}, {"5f00::1", "segment"},
		{"fc00::1", "unique local"}, {"fd00::1", "unique local"}, {"fe80::1", "link-local"}, {"fe80::1%eth0", "link-local"},
		{"fec0::1", "site-local"}, {"ff02::1", "multicast"}, {"4000::1", "not assigned"}, {"::2:0:0:1", "not assigned"},
		{"1.1.1.1", ""}, {"9.255.255.255", ""}, {"172.32.0.1", ""}, {"100.128.0.1", ""}, {"223.255.255.255", ""}, {"::ffff:1.1.1.1", ""},
		{"64:ff9b::1.1.1.1", ""}, {"2606:4700::1111", ""}, {"2001:200::1", ""}, {"2a00::1", ""},
	} {
		network := "tcp6"
		if !strings.Contains(test.address, ":") {
			network = "tcp4"
		}
		err := f.control(t.Context(), network, net.JoinHostPort(test.address, "443"), nil)
		switch {
		case test.reason == "" && err != nil:
			t.Errorf("%s: %v", test.address, err)
		case test.reason != "" && (err == nil || !strings.Contains(err.Error(), test.reason)):
			t.Errorf("%s: %v, want %q", test.address, err, test.reason)
		case err != nil && webhookRules().Classify(&net.OpError{Op: "dial", Err: err}) != policy.Unavailable:
			t.Errorf("%s is of class %v", test.address, webhookRules().Classify(err))
		}
	}
	for _, test := range []struct{ network, address string }{
		{"udp4", "1.1.1.1:53"}, {"unix", "/run/docker.sock"}, {"tcp4", "1.1.1.1"}, {"tcp4", "example.com:80"}, {"tcp", "1.1.1.1:80"},
	} {
		if err := f.control(t.Context(), test.network, test.address, nil); err == nil {
			t.Errorf("%s %s may be dialled", test.network, test.address)
		}
	}
}

func TestFilter_allowed(t *testing.T) {
	f := filter{[]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}}
	for address, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "fd00:1::1": true,
		"10.2.0.1": false, "::ffff:10.2.0.1": false, "fd00:2::1": false, "127.0.0.1": false, "1.1.1.1": true,
	} {
		if reason := f.judge(netip.MustParseAddr(address)); (reason == "") != want {
			t.Errorf("%s: %q", address, reason)
		}
	}
}

// special notations are ways to write 127.0.0.1, ::1 and other special addresses as the host
// of a URL. They are refused without a look-up.
var notations = []string{
	"127.0.0.1", "127.1", "127.0.1", "127.0.0.1.", "0", "0.0.0.0", "00.0.0.0", "2130706433", "017700000001", "0177.0.0.1",
	"0177.0.0.01", "127.0.0.0x1", "0x7f.0.0.1", "0x7f.1", "0x7f000001", "0X7F000001", "0x", "127.000.000.001", "127.0.0.1.5", "a.0x7f",
	"[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]",
	"[::ffff:0:127.0.0.1]", "[2002:7f00:1::]", "[::1%25lo]", "[fe80::1%25eth0]", "[2606:4700::1111%25eth0]",
	"localhost", "LOCALHOST", "localhost.", "db.localhost", "169.254.169.254", "10.0.0.1", "192.168.1.1", "[fd00::1]",
	"１２７.0.0.1", "①27.0.0.1", "127。0。0。1", "%31%32%37.0.0.1", "a..b", ".", "-a_b!c", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a",
}

// No URL that is accepted leads to a special address without a look-up, by the rules of
// inet_aton, which take up to four parts in decimal, octal or hex.
func FuzzURL(f *testing.F) {
	for _, host := range notations {
		f.Add("https://" + host + "/")
	}
	f.Add("https://shop.example:443/hook?a=b")
	c := newClient(clientOptions{})
	f.Fuzz(func(t *testing.T, s string) {
		var all faults
		all.url("url", s, c)
		if all.err() != nil {
			return
		}
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "https" || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q was accepted: %v", s, err)
		}
		host := u.Hostname()
		if a, err := netip.ParseAddr(host); err == nil {
			if c.filter.judge(a) != "" {
				t.Errorf("%q was accepted", s)
			}
			return
		}
		parts := strings.Split(strings.TrimSuffix(host, "."), ".")
		for _, p := range parts {
			if _, err := strconv.ParseUint(p, 0, 64); err != nil && strings.Trim(p, "0123456789") != "" {
				return
			}
		}
		t.Errorf("%q was accepted, whose host is of numbers", s)
	})
}

// A listener on every address of this machine gets no connection, however its address is
// written, and however a name comes to it.
func TestClient_dialsNothingSpecial(t *testing.T) {
	ln, accepted := listen(t)
	port := ln.Addr().(*net.TCPAddr).Port
	names := &nameserver{}
	c := newClient(clientOptions{allowHTTP: true, resolver: names.resolver(), timeout: 5 * time.Second})
	defer c.close()
	for _, host := range notations {
		var f faults
		f.url("url", fmt.Sprintf("http://%s:%d/", host, port), c)
		if e, ok := errors.AsType[*errand.FieldError](f.err()); !ok || e.Field != "url" {
			t.Errorf("%s: %v", host, f.err())
		}
		// Nor if a URL was not checked, and a name server knows such names.
		names.answer("127.0.0.1")
		if req, err := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("http://%s:%d/", host, port), nil); err == nil {
			if _, err := c.send(req); err == nil {
				t.Errorf("%s: was sent", host)
			}
		}
	}
	for _, addresses := range [][]string{
		{"127.0.0.1"}, {"::1"}, {"127.0.0.1", "::1"}, {"127.8.8.8"}, {"0.0.0.0"}, {"::"}, {"::ffff:127.0.0.1"}, {"64:ff9b::7f00:1"},
	} {
		names.answer(addresses...)
		req, err := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("http://shop.example:%d/", port), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.send(req)
		if _, ok := errors.AsType[*addressError](err); !ok || webhookRules().Classify(err) != policy.Unavailable {
			t.Errorf("a name for %v: %v, class %v", addresses, err, webhookRules().Classify(err))
		}
	}
	if n := accepted.Load(); n != 0 {
		t.Errorf("%d connections were accepted", n)
	}
	// The same way with a filter that allows it: the test can fail.
	names.answer("127.0.0.1")
	c = newClient(clientOptions{allowHTTP: true, resolver: names.resolver(), allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer c.close()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("http://shop.example:%d/", port), nil)
	if a, err := c.send(req); err != nil || a.status != 200 || accepted.Load() != 1 {
		t.Errorf("allowed: %+v, %v, %d connections", a, err, accepted.Load())
	}
}

// A name that is harmless when somebody looks, and loopback when it is dialled.
func TestClient_rebinding(t *testing.T) {
	ln, accepted := listen(t)
	port := ln.Addr().(*net.TCPAddr).Port
	names := &nameserver{}
	resolver := names.resolver()
	c := newClient(clientOptions{allowHTTP: true, resolver: resolver})
	defer c.close()
	var f faults
	f.url("url", fmt.Sprintf("http://shop.example:%d/", port), c)
	names.answer("1.1.1.1")
	looked, err := resolver.LookupNetIP(t.Context(), "ip4", "shop.example")
	if f.err() != nil || err != nil || len(looked) != 1 || c.filter.judge(looked[0]) != "" {
		t.Fatalf("looked up: %v, %v; %v", looked, err, f.err())
	}
	names.answer("127.0.0.1")
	req, _ := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("http://shop.example:%d/", port), nil)
	_, err = c.send(req)
	if _, ok := errors.AsType[*addressError](err); !ok || accepted.Load() != 0 {
		t.Errorf("%v, %d connections", err, accepted.Load())
	}
}

// listen returns a listener on all addresses of this machine, or on loopback if it has no
// IPv6, and the number of connections that it has accepted.
func listen(t *testing.T) (net.Listener, *atomic.Int32) {
	t.Helper()
	var accepted atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Listener.Close()
	s.Listener = ln
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return ln, &accepted
}

// nameserver answers every question with the addresses that it is set to.
type nameserver struct{ addresses atomic.Pointer[[]netip.Addr] }

func (n *nameserver) answer(addresses ...string) {
	var all []netip.Addr
	for _, a := range addresses {
		all = append(all, netip.MustParseAddr(a))
	}
	n.addresses.Store(&all)
}

func (n *nameserver) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go n.serve(theirs)
		return ours, nil
	}}
}

// serve answers as a server for names over TCP does (RFC 1035): a length before each
// message, one question in it, and the name of the question as the name of all records.
func (n *nameserver) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		end := 12
		for query[end] != 0 {
			end += int(query[end]) + 1
		}
		end += 5
		kind := binary.BigEndian.Uint16(query[end-4:])
		msg := append([]byte{}, query[:end]...)
		msg[2], msg[3] = 0x81, 0x80 // an answer, with recursion
		var count uint16
		for _, a := range *n.addresses.Load() {
			if b := a.AsSlice(); kind == 1 && a.Is4() || kind == 28 && a.Is6() {
				count++
				msg = append(msg, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(b)))
				msg = append(msg, b...)
			}
		}
		binary.BigEndian.PutUint16(msg[6:], count)
		binary.BigEndian.PutUint16(msg[8:], 0)
		binary.BigEndian.PutUint16(msg[10:], 0)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)); err != nil {
			return
		}
	}
}
