package dashboard

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
)

// Role is what somebody may do.
type Role int

const (
	// Viewer sees all but args, headers, checkpoints and results.
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

// Identity is who a request is from.
type Identity struct {
	// Name is in the log and in what an action leaves. It may be empty.
	Name string
	Role Role
}

// User is one who may enter with a password.
type User struct {
	Password string
	Role     Role
}

var errUnknown = errors.New("dashboard: unknown name or wrong password")

// Basic lets those in who know a name of users and its password. They are sent with each request,
// so serve the pages over https or on a loopback address only.
func Basic(users map[string]User) func(*http.Request) (Identity, error) {
	known := map[string]User{}
	for name, u := range users {
		known[name] = u
	}
	return func(r *http.Request) (Identity, error) {
		name, password, _ := r.BasicAuth()
		u, ok := known[name]
		// The time that this takes tells neither the password nor whether there is such a name.
		given, want := sha256.Sum256([]byte(password)), sha256.Sum256([]byte(u.Password))
		if subtle.ConstantTimeCompare(given[:], want[:]) != 1 || !ok || u.Password == "" {
			return Identity{}, errUnknown
		}
		return Identity{Name: name, Role: u.Role}, nil
	}
}

var errNotFromProxy = errors.New("dashboard: the request does not come from a trusted proxy")

// FromHeader lets those in whom a proxy has named in a header. Requests that do not come from one
// of the addresses of the proxies are refused, as anybody can send a header. Role returns the role
// of a name, 0 for none.
func FromHeader(header string, proxies []netip.Prefix, role func(name string) Role) func(*http.Request) (Identity, error) {
	trusted := append([]netip.Prefix(nil), proxies...)
	return func(r *http.Request) (Identity, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return Identity{}, errNotFromProxy
		}
		from, err := netip.ParseAddr(host)
		if err != nil {
			return Identity{}, errNotFromProxy
		}
		for _, p := range trusted {
			if p.Contains(from.Unmap().WithZone("")) {
				name := r.Header.Get(header)
				if name == "" {
					return Identity{}, errUnknown
				}
				return Identity{Name: name, Role: role(name)}, nil
			}
		}
		return Identity{}, errNotFromProxy
	}
}

// Anyone lets everybody in with this role. It is for handlers behind a door of the program's own.
func Anyone(role Role) func(*http.Request) (Identity, error) {
	return func(*http.Request) (Identity, error) { return Identity{Role: role}, nil }
}
