package webhook

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/errandq/errand/policy"
)

// special is a range of addresses that are not those of a host on the Internet.
type special struct {
	prefix netip.Prefix
	what   string
	source string
}

// specials are the IANA IPv4 and IPv6 Special-Purpose Address Registries, and multicast.
// Ranges that are reachable and have a purpose of their own are refused too: nobody
// receives webhooks there. The first range that has an address counts.
var specials = []special{
	{netip.MustParsePrefix("0.0.0.0/32"), "unspecified", "RFC 1122"},
	{netip.MustParsePrefix("0.0.0.0/8"), "this network", "RFC 791"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private", "RFC 1918"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by carriers", "RFC 6598"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback", "RFC 1122"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local", "RFC 3927"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private", "RFC 1918"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments", "RFC 6890"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation", "RFC 5737"},
	{netip.MustParsePrefix("192.31.196.0/24"), "AS112", "RFC 7535"},
	{netip.MustParsePrefix("192.52.193.0/24"), "multicast tunnels", "RFC 7450"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relays", "RFC 7526"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private", "RFC 1918"},
	{netip.MustParsePrefix("192.175.48.0/24"), "AS112", "RFC 7534"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarks", "RFC 2544"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation", "RFC 5737"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation", "RFC 5737"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast", "RFC 5771"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast", "RFC 919"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved", "RFC 1112"},

	{netip.MustParsePrefix("::/128"), "unspecified", "RFC 4291"},
	{netip.MustParsePrefix("::1/128"), "loopback", "RFC 4291"},
	{netip.MustParsePrefix("::/96"), "IPv4-compatible", "RFC 4291"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4-translated", "RFC 2765"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local translation", "RFC 8215"},
	{netip.MustParsePrefix("100::/64"), "discard", "RFC 6666"},
	{netip.MustParsePrefix("100:0:0:1::/64"), "dummy", "RFC 9780"},
	{netip.MustParsePrefix("2001::/32"), "Teredo", "RFC 4380"},
	{netip.MustParsePrefix("2001::/23"), "protocol assignments", "RFC 2928"},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation", "RFC 3849"},
	{netip.MustParsePrefix("2002::/16"), "6to4", "RFC 3056"},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "AS112", "RFC 7534"},
	{netip.MustParsePrefix("3fff::/20"), "documentation", "RFC 9637"},
	{netip.MustParsePrefix("5f00::/16"), "segment routing", "RFC 9602"},
	{netip.MustParsePrefix("fc00::/7"), "unique local", "RFC 4193"},
	{netip.MustParsePrefix("fe80::/10"), "link-local", "RFC 4291"},
	{netip.MustParsePrefix("fec0::/10"), "site-local", "RFC 3879"},
	{netip.MustParsePrefix("ff00::/8"), "multicast", "RFC 4291"},
}

var (
	// nat64 embeds an IPv4 address in its last 4 bytes (RFC 6052).
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	// unicast is all of IPv6 that is assigned to hosts (RFC 4291, section 2.4, and
	// IANA's registry of its address space).
	unicast = netip.MustParsePrefix("2000::/3")
)

// filter judges the addresses that are dialled.
type filter struct {
	// allowed are special addresses that may be dialled.
	allowed []netip.Prefix
}

// judge returns why an address may not be dialled, or nothing if it may. An IPv4 address
// that is mapped into IPv6, or translated by a NAT64 of the well-known prefix, counts as
// the IPv4 address.
func (f *filter) judge(a netip.Addr) (reason string) {
	a = a.Unmap().WithZone("") // a prefix contains no address with a zone
	if !a.IsValid() {
		return "no address"
	}
	for _, p := range f.allowed {
		if p.Contains(a) {
			return ""
		}
	}
	if nat64.Contains(a) {
		b := a.As16()
		return f.judge(netip.AddrFrom4([4]byte(b[12:])))
	}
	for _, s := range specials {
		if s.prefix.Contains(a) {
			return fmt.Sprintf("%s, %v, %s", s.what, s.prefix, s.source)
		}
	}
	if a.Is6() && !unicast.Contains(a) {
		return "not assigned, RFC 4291"
	}
	return ""
}

// control is for ControlContext of a [net.Dialer]. There it judges the address that the
// socket is about to connect to: what a name resolved to at an earlier time plays no part.
func (f *filter) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return &addressError{fmt.Sprintf("no address of TCP: %s %s", network, address)}
	}
	if reason := f.judge(to.Addr()); reason != "" {
		return &addressError{"special address: " + reason}
	}
	return nil
}

// addressError is the error of a connection that was not tried, because of its address.
// Its class is Unavailable: a captive portal, or a server for names that answers with
// addresses of its own, does that to the names of all endpoints.
type addressError struct{ reason string }

func (e *addressError) Error() string { return e.reason }

// RetryClass is for [policy.ByMark].
func (*addressError) RetryClass() policy.Class { return policy.Unavailable }

// The limits of names (RFC 1035, section 2.3.4).
const (
	maxHost  = 253
	maxLabel = 63
)

// checkHost returns what is wrong with the host of a URL, without port and brackets, or
// nothing. It knows what can be known without a look-up: what an address is, and what
// only looks like one. Some resolvers read 127.1, 0177.0.0.1, 0x7f000001 and 2130706433 as
// 127.0.0.1, so a host whose last part is a number must be an address in its usual form.
func (f *filter) checkHost(host string) (limit string) {
	if a, err := netip.ParseAddr(host); err == nil {
		switch reason := f.judge(a); {
		case a.Zone() != "":
			return "must be an address without a zone"
		case reason != "":
			return "must not be a special address (" + reason + ")"
		}
		return ""
	}
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	last := labels[len(labels)-1]
	for _, l := range labels {
		if l == "" || len(l) > maxLabel || len(host) > maxHost || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "must have the name of a host, in punycode if it is not ASCII, or an address"
		}
	}
	if isNumber(last) {
		return "must not end in a number, unless it is an address of four decimal numbers"
	}
	// These names are loopback by definition (RFC 6761, section 6.3).
	if last == "localhost" {
		if reason := f.judge(netip.AddrFrom4([4]byte{127, 0, 0, 1})); reason != "" {
			return "must not be a special address (" + reason + ")"
		}
	}
	return ""
}

// isNumber reports whether a resolver may read the last label of a host as a number, as
// the host parser of the WHATWG URL standard does.
func isNumber(label string) bool {
	if strings.Trim(label, "0123456789") == "" {
		return true
	}
	hex, ok := strings.CutPrefix(label, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}
