package policy

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
)

// ByConnect knows errors of making a connection, after which nothing of a request was
// sent. All are Unavailable:
//
//   - a name that could not be looked up, even one that does not exist: a device that
//     is offline gets that answer too
//   - a connection that was refused or not made in time, a host or network that is
//     unreachable, and every other error of dialling except a malformed address
//   - TLS: a certificate that is not accepted, for example since the clock of the
//     device is wrong or a captive portal answers; a side that does not speak TLS; a
//     handshake that failed or timed out
//
// ByConnect does not know the end of a context that was cancelled, or errors that come
// later too, such as a reset in a handshake. It knows a request whose time was over while
// its connection was being made only if a client of package policyhttp sent the request.
// With other clients limit the time for connecting by itself, as [net.Dialer] can.
func ByConnect(err error) (Class, bool) {
	if errors.Is(err, context.Canceled) {
		return 0, false
	}
	return Unavailable, isAny(err, networkErrors) || isAny(err, hostErrors) || contains(err, isConnect)
}

// connectTexts begin the texts of errors of TLS and of package policyhttp. Their types
// would tell those of TLS as well, but importing crypto/tls and net/http makes every
// program that uses a queue larger by 1 to 2 MB, and many have no type of their own.
var connectTexts = []string{
	"tls: ", "x509: ", "net/http: TLS handshake timeout", "http: server gave HTTP response to HTTPS client",
	"policyhttp: not connected in time",
}

// isConnect reports whether err, without what it wraps, is about a connection that
// was not made.
func isConnect(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the caller walks the tree
	case *net.DNSError:
		return true
	case *net.OpError:
		switch e.Err.(type) { //nolint:errorlint // an OpError holds them as they are
		case *net.AddrError, net.UnknownNetworkError:
			return false
		}
		return e.Op == "dial"
	}
	return slices.ContainsFunc(connectTexts, func(begin string) bool { return strings.HasPrefix(err.Error(), begin) })
}

// IsLocal reports whether err says that this machine has no network, rather than that
// one host cannot be reached. So it is true for
//
//   - a network that is unreachable or down: there is no route. A missing route to
//     an IPv6 address is about the host, since most machines without IPv6 have IPv4.
//   - a name that could not be looked up: no server for names answered in time, it
//     failed for now, or there is none. A name that does not exist is about the host.
//     Some systems say that of every name while they are offline.
//
// It is false for all other errors, such as a connection that was refused, a host
// that is unreachable, any answer over HTTP, and nil. "No route to host" is what some
// systems call an unreachable host: a router, or a neighbour that is asked for its
// address, did not find that one host.
func IsLocal(err error) bool {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return (e.IsTimeout || e.IsTemporary) && !e.IsNotFound
	}
	return isAny(err, networkErrors) && !contains(err, isIPv6)
}

// isIPv6 reports whether err, without what it wraps, is about an IPv6 address.
func isIPv6(err error) bool {
	e, ok := err.(*net.OpError) //nolint:errorlint // the caller walks the tree
	return ok && e.Addr != nil && strings.HasPrefix(e.Addr.String(), "[")
}

// isAny reports whether err is one of the targets, or wraps one.
func isAny(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// IsUnauthorized reports whether err is an answer over HTTP that refuses the sender,
// with status 401, 403 or 407: a token is missing or has expired, or its owner may not
// do what was asked for.
func IsUnauthorized(err error) bool {
	code, _ := statusOf(err)
	return code == 401 || code == 403 || code == 407
}
