package dashboard

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"unicode/utf8"

	"github.com/errandq/errand"
)

// Role is what somebody may do.
type Role int

const (
	// Viewer sees all but args, headers, checkpoints and results. What is secret in errors and
	// other texts is hidden.
	Viewer Role = iota + 1
	// Operator sees these too, with what is secret hidden, and acts on jobs, queues and schedules.
	Operator
	// Admin sees all, changes args, enqueues and deletes.
	Admin
)

func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	case Admin:
		return "admin"
	}
	return "nobody"
}

// UnmarshalText implements [encoding.TextUnmarshaler]: a role is "viewer", "operator" or "admin".
// It returns a [errand.FieldError] for another text.
func (r *Role) UnmarshalText(text []byte) error {
	for role := Viewer; role <= Admin; role++ {
		if role.String() == string(text) {
			*r = role
			return nil
		}
	}
	return &errand.FieldError{Field: "role", Value: string(text), Limit: "must be viewer, operator or admin"}
}

// MarshalText implements [encoding.TextMarshaler]. It returns a [errand.FieldError] for what is none
// of the roles, as [Role.UnmarshalText] does.
func (r Role) MarshalText() ([]byte, error) {
	if r < Viewer || r > Admin {
		return nil, &errand.FieldError{Field: "role", Value: int(r), Limit: "must be Viewer, Operator or Admin"}
	}
	return []byte(r.String()), nil
}

// Identity is who a request is from.
type Identity struct {
	// Name is in the log and in what an action leaves. It may be empty.
	Name string
	Role Role
}

// AuthError is an error of [Options].Auth whose texts are shown to who is refused.
type AuthError struct {
	// Status is the HTTP status, from 400 to 599. If zero, 401.
	Status int
	Text   string // what is the case, a sentence
	Remedy string // what to do, in sentences; it may be empty
}

func (e *AuthError) Error() string { return e.Text }

// enter finds out who a request is from, and returns an error for who may not enter.
func (x *request) enter() error {
	if x.b.o.Auth == nil {
		x.b.sayClosed()
		return errClosed
	}
	who, err := x.b.o.Auth(x.Request)
	switch {
	case err != nil:
		return outside(err)
	case who.Role < Viewer || who.Role > Admin:
		return errNoRole
	}
	x.who = who
	return nil
}

// outside returns how an error of Auth is shown.
func outside(err error) *refusal {
	var told *AuthError
	if !errors.As(err, &told) {
		return &refusal{status: http.StatusUnauthorized, text: "You may not enter.", cause: err,
			remedy: "Who may, says the program that serves this page. Ask who runs it."}
	}
	status := cmp.Or(told.Status, http.StatusUnauthorized)
	if status < 400 || status > 599 {
		status = http.StatusUnauthorized
	}
	return &refusal{status: status, text: told.Text, remedy: told.Remedy, cause: err}
}

var (
	errNotFromProxy = &AuthError{Status: http.StatusForbidden, Text: "This dashboard is reached through its proxy.",
		Remedy: "Open the address of the proxy. If this is the proxy, give its address to dashboard.FromHeader."}
	errUnnamed = &AuthError{Text: "The proxy does not say who you are.",
		Remedy: "Sign in at the proxy. It has to send one header with your name, and to remove that header from what you send."}
)

// FromHeader lets those in whom a proxy has named in a header. As anybody can send a header,
// requests are refused that do not come from one of the addresses of the proxies. With no proxies
// only those are taken that come over a unix socket, whose mode says who may use it. The name must
// be there once. Role returns the role of a name, 0 for none.
//
// The address is [http.Request].RemoteAddr: do not put a handler before the dashboard that sets it
// from what the request says. FromHeader panics with a [errand.FieldError] if the header is empty,
// a proxy is the zero Prefix or role is nil.
func FromHeader(header string, proxies []netip.Prefix, role func(name string) Role) func(*http.Request) (Identity, error) {
	if header == "" {
		panic(&errand.FieldError{Field: "header", Value: header, Limit: "must not be empty"})
	}
	if role == nil {
		panic(&errand.FieldError{Field: "role", Value: nil, Limit: "must not be nil"})
	}
	trusted := make([]netip.Prefix, 0, len(proxies))
	for i, p := range proxies {
		if !p.IsValid() {
			panic(&errand.FieldError{Field: "proxies[" + itoa(i) + "]", Value: p.String(), Limit: "must be an address and a number of bits"})
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		trusted = append(trusted, p)
	}
	return func(r *http.Request) (Identity, error) {
		if !fromProxy(r, trusted) {
			return Identity{}, errNotFromProxy
		}
		names := r.Header.Values(header)
		if len(names) != 1 || names[0] == "" || !utf8.ValidString(names[0]) {
			return Identity{}, errUnnamed
		}
		return Identity{Name: names[0], Role: role(names[0])}, nil
	}
}

// fromProxy reports whether a request comes from one of the addresses, or over a unix socket if
// there are none.
func fromProxy(r *http.Request, trusted []netip.Prefix) bool {
	if len(trusted) == 0 {
		at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		return ok && at.Network() == "unix"
	}
	from, ok := peer(r)
	if !ok {
		return false
	}
	for _, p := range trusted {
		if p.Contains(from) {
			return true
		}
	}
	return false
}

// peer returns the address that a request comes from, an address of IPv4 as such.
func peer(r *http.Request) (netip.Addr, bool) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr().Unmap().WithZone(""), err == nil
}

// Anyone lets everybody in with this role. It is for handlers behind a door of the program's own.
// That door has to check the host of requests too, if it lets in by address alone: the name of a
// foreign page may lead to an address of this machine.
func Anyone(role Role) func(*http.Request) (Identity, error) {
	return func(*http.Request) (Identity, error) { return Identity{Role: role}, nil }
}
