package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

// DialOptions are the options of [Dial].
type DialOptions struct {
	CheckOptions
	// Dial makes the connection, as [net.Dialer.DialContext] does. If nil, that of
	// a zero net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Dial returns a gate that is open while a TCP connection to an address can be made, such
// as "broker.example.org:8883". The connection is closed at once. An address without a
// host or a port number, and options out of the bounds that [NewCheck] names, are refused
// with an [errand.FieldError].
//
// Some captive portals accept connections to any address. [HTTP] tells them from the
// server that is meant.
func Dial(address string, o *DialOptions) (*Check, error) {
	var f faults
	if o == nil {
		o = &DialOptions{}
	}
	host, port, err := net.SplitHostPort(address)
	if n, e := strconv.Atoi(port); err != nil || e != nil || host == "" || n < 1 || n > 65535 {
		f.field("address", address, "must be a host and a port number, such as 10.0.0.1:443")
	}
	dial := o.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return f.check(address, func(ctx context.Context) error {
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return noAnswer(address, err)
		}
		_ = conn.Close() // it was made, which is all that is asked
		return nil
	}, o.withDefaults(time.Minute, 5*time.Minute))
}

func noAnswer(from string, err error) error {
	return fmt.Errorf("no answer from %s: %s", from, plain(err))
}

// plain returns what is wrong in the words of the system, without the addresses and
// the names of calls around it: people read the reason of a gate.
func plain(err error) string {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err.Error()
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
