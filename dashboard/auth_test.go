package dashboard_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// roleOf is what the names of a proxy may do.
func roleOf(name string) dashboard.Role {
	return map[string]dashboard.Role{"ann": dashboard.Admin, "bob": dashboard.Viewer}[name]
}

// Only proxies that are trusted, by the address of the connection, say who somebody is; and once.
func TestFromHeader(t *testing.T) {
	four, six := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/32")
	mapped := netip.MustParsePrefix("::ffff:192.168.7.0/120")
	all := dashboard.FromHeader("X-User", []netip.Prefix{four, six, mapped}, roleOf)
	socket := dashboard.FromHeader("X-User", nil, roleOf)
	overSocket := func(r *http.Request) {
		*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "s", Net: "unix"})))
	}
	q := open(t)
	for name, c := range map[string]struct {
		auth   func(*http.Request) (dashboard.Identity, error)
		from   string
		header http.Header
		with   func(*http.Request)
		status int
		text   string
	}{
		"a proxy":               {all, "10.1.2.3:5000", http.Header{"X-User": {"ann"}}, nil, 200, "ann, admin"},
		"IPv4 in IPv6":          {all, "[::ffff:10.1.2.3]:5000", http.Header{"X-User": {"bob"}}, nil, 200, "bob, viewer"},
		"a prefix of that form": {all, "192.168.7.9:5000", http.Header{"X-User": {"ann"}}, nil, 200, "ann, admin"},
		"IPv6 with a zone":      {all, "[2001:db8::1%eth0]:5000", http.Header{"X-User": {"ann"}}, nil, 200, "ann, admin"},
		"another machine":       {all, "10.2.2.3:5000", http.Header{"X-User": {"ann"}}, nil, 403, "address of the proxy"},
		"said to be forwarded":  {all, "10.2.2.3:5000", http.Header{"X-User": {"ann"}, "X-Forwarded-For": {"10.1.2.3"}, "Forwarded": {"for=10.1.2.3"}}, nil, 403, "address of the proxy"},
		"no address":            {all, "@", http.Header{"X-User": {"ann"}}, overSocket, 403, "address of the proxy"},
		"two names":             {all, "10.1.2.3:5000", http.Header{"X-User": {"bob", "ann"}}, nil, 401, "does not say who you are"},
		"no name":               {all, "10.1.2.3:5000", nil, nil, 401, "does not say who you are"},
		"an empty name":         {all, "10.1.2.3:5000", http.Header{"X-User": {""}}, nil, 401, "does not say who you are"},
		"no text":               {all, "10.1.2.3:5000", http.Header{"X-User": {"\xff"}}, nil, 401, "does not say who you are"},
		"no role":               {all, "10.1.2.3:5000", http.Header{"X-User": {"eve"}}, nil, 403, "no role"},
		"a socket":              {socket, "@", http.Header{"X-User": {"ann"}}, overSocket, 200, "ann, admin"},
		"a socket without @":    {socket, "", http.Header{"X-User": {"ann"}}, overSocket, 200, "ann, admin"},
		"no socket":             {socket, "10.1.2.3:5000", http.Header{"X-User": {"ann"}}, nil, 403, "address of the proxy"},
		"said to be a socket":   {socket, "@", http.Header{"X-User": {"ann"}}, nil, 403, "address of the proxy"},
	} {
		h := dashboard.Handler(q, &dashboard.Options{Auth: c.auth, Logger: quiet})
		status, text := get(h, "/", func(r *http.Request) {
			r.RemoteAddr = c.from
			for k, v := range c.header {
				r.Header[k] = v
			}
			if c.with != nil {
				c.with(r)
			}
		})
		if status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for field, f := range map[string]func(){
		"header":     func() { dashboard.FromHeader("", nil, roleOf) },
		"role":       func() { dashboard.FromHeader("X-User", nil, nil) },
		"proxies[0]": func() { dashboard.FromHeader("X-User", []netip.Prefix{{}}, roleOf) },
	} {
		panics(t, field, f)
	}
}

// panics wants f to panic with a FieldError of a field.
func panics(t *testing.T, field string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		err, _ := recover().(error)
		var got *errand.FieldError
		if !errors.As(err, &got) || got.Field != field {
			t.Errorf("it panics with %v: want one of %s", err, field)
		}
	}()
	f()
}

// A program says on the page why it refuses, and only by an AuthError.
func TestAuthError(t *testing.T) {
	var told error
	h := dashboard.Handler(open(t), &dashboard.Options{Logger: quiet, Auth: func(*http.Request) (dashboard.Identity, error) {
		return dashboard.Identity{Name: "ann", Role: dashboard.Admin}, told
	}})
	for _, c := range []struct {
		err       error
		status    int
		has, hasn string
	}{
		{errors.New("dial ldap: secret"), 401, "You may not enter.", "ldap"},
		{&dashboard.AuthError{Text: "No <b>.", Remedy: "Go to /login."}, 401, "Go to /login.", "<b>"},
		{errors.Join(errors.New("x"), &dashboard.AuthError{Status: 429, Text: "Wait."}), 429, "Wait.", "x<"},
		{&dashboard.AuthError{Status: 200, Text: "Odd."}, 401, "Odd.", "Overview"},
	} {
		told = c.err
		status, text := get(h, "/")
		if status != c.status || !strings.Contains(text, c.has) || strings.Contains(text, c.hasn) || strings.Contains(text, "Overview") || strings.Contains(text, "ann") {
			t.Errorf("%v: %d %s", c.err, status, text)
		}
	}
}

// basic returns how requests of a name and a password from an address are answered.
func basic(t *testing.T, users map[string]dashboard.User) func(from, name, password string) int {
	auth := dashboard.Basic(users)
	h := dashboard.Handler(open(t), &dashboard.Options{Auth: auth, Logger: quiet})
	return func(from, name, password string) int {
		status, _ := get(h, "/", func(r *http.Request) {
			r.RemoteAddr = from
			r.SetBasicAuth(name, password)
		})
		return status
	}
}

// Hashes let in as passwords do, and nothing else does.
func TestBasic_hash(t *testing.T) {
	hash, err := dashboard.HashPassword("geheim")
	if err != nil {
		t.Fatal(err)
	}
	again, err := dashboard.HashPassword("geheim")
	if err != nil || again == hash {
		t.Errorf("two hashes are the same, %v", err)
	}
	ask := basic(t, map[string]dashboard.User{"ann": {Hash: hash, Role: dashboard.Viewer}, "bob": {Password: "plain", Role: dashboard.Admin}, "eve": {Role: dashboard.Admin}})
	for i, c := range []struct {
		name, password string
		want           int
	}{{"ann", "geheim", 200}, {"ann", "geheim", 200}, {"ann", "Geheim", 401}, {"ann", hash, 401}, {"ann", "", 401}, {"bob", "plain", 200}, {"bob", "geheim", 401}, {"eve", "", 401}, {"joe", "geheim", 401}} {
		if got := ask("10.0.0."+strconv.Itoa(i)+":1", c.name, c.password); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.name, c.password, got, c.want)
		}
	}
	for _, password := range []string{"", strings.Repeat("a", 1025)} {
		if _, err := dashboard.HashPassword(password); !errors.Is(err, errand.ErrInvalid) {
			t.Errorf("of %d bytes: %v", len(password), err)
		}
	}
	parts := strings.Split(hash, "$")
	for _, bad := range []string{"x", "pbkdf2-sha256$0$" + parts[2] + "$" + parts[3], "pbkdf2-sha256$599999$" + parts[2] + "$" + parts[3], "pbkdf2-sha256$99999999$" + parts[2] + "$" + parts[3], "pbkdf2-sha256$600000$AA$" + parts[3], "pbkdf2-sha256$600000$" + parts[2] + "$AA", "sha1$600000$" + parts[2] + "$" + parts[3]} {
		panics(t, `users["ann"].hash`, func() { dashboard.Basic(map[string]dashboard.User{"ann": {Hash: bad}}) })
	}
	panics(t, `users["ann"].hash`, func() { dashboard.Basic(map[string]dashboard.User{"ann": {Hash: hash, Password: "a"}}) })
}

// Wrong passwords cost the address that sends them, and neither others nor who is in.
func TestBasic_wrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := basic(t, map[string]dashboard.User{"ann": {Password: "secret", Role: dashboard.Viewer}, "bob": {Password: "plain", Role: dashboard.Viewer}})
		want := func(when, from, name, password string, want int) {
			t.Helper()
			if got := ask(from, name, password); got != want {
				t.Errorf("%s: %d, want %d", when, got, want)
			}
		}
		want("at first", "10.0.0.1:1", "ann", "secret", 200)
		for i := range 10 {
			want("wrong", "10.0.0.1:"+strconv.Itoa(i+1), "ann", "wrong", 401)
		}
		want("too many", "10.0.0.1:1", "ann", "wrong", 429)
		want("who has not been in, from there", "10.0.0.1:1", "bob", "plain", 429)
		want("who is in", "10.0.0.1:1", "ann", "secret", 200)
		want("from elsewhere", "10.0.0.2:1", "bob", "plain", 200)
		time.Sleep(5*time.Second + 1)
		want("5 s later", "10.0.0.1:1", "eve", "wrong", 401)
		want("again", "10.0.0.1:1", "eve", "wrong", 429)
		time.Sleep(time.Minute)
		for range 30 { // right ones cost nothing
			want("right", "[2001:db8::1]:1", "bob", "plain", 200)
		}
		for i := range 10 {
			want("of a network", "[2001:db8::"+strconv.Itoa(i+2)+"]:1", "bob", "wrong", 401)
		}
		want("of that network", "[2001:db8::99]:1", "bob", "wrong", 429)
		for i := range 2000 {
			want("many addresses", "10.1."+strconv.Itoa(i/200)+"."+strconv.Itoa(i%200)+":1", "bob", "wrong", 401)
		}
	})
}

// Who guesses has no help from those who have entered: not from elsewhere, and few guesses from there.
func TestBasic_guesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := basic(t, map[string]dashboard.User{"ann": {Password: "4711", Role: dashboard.Viewer}})
		statuses := func(from string, n int, password string) (out []int) {
			for range n {
				out = append(out, ask(from, "ann", password))
			}
			return out
		}
		if got := statuses("10.0.0.1:1", 1, "4711"); got[0] != 200 {
			t.Fatalf("ann: %v", got)
		}
		if got := statuses("10.6.6.6:1", 11, "0"); slices.Contains(got[:10], 429) || got[10] != 429 {
			t.Errorf("wrong from elsewhere: %v", got)
		}
		if got := ask("10.6.6.6:1", "ann", "4711"); got != 429 {
			t.Errorf("right from elsewhere, after too many: %d", got)
		}
		if got := statuses("10.0.0.1:1", 99, "0"); got[98] != 429 {
			t.Errorf("wrong from there: %v", got)
		}
		if got := ask("10.0.0.1:1", "ann", "4711"); got != 200 {
			t.Errorf("right from there: %d", got)
		}
		statuses("10.0.0.1:1", 1, "0")
		if got := ask("10.0.0.1:1", "ann", "4711"); got != 429 {
			t.Errorf("right from there, after 100: %d", got)
		}
		time.Sleep(time.Minute)
		if got := statuses("10.0.0.1:1", 20, "4711"); slices.Contains(got, 429) {
			t.Errorf("a minute later: %v", got)
		}
		// In that minute 12 were forgotten, and to enter again gave no more.
		statuses("10.0.0.1:1", 11, "0")
		if got := ask("10.0.0.1:1", "ann", "4711"); got != 200 {
			t.Errorf("right from there, after 99 again: %d", got)
		}
		statuses("10.0.0.1:1", 1, "0")
		if got := ask("10.0.0.1:1", "ann", "4711"); got != 429 {
			t.Errorf("right from there, after 100 again: %d", got)
		}
		time.Sleep(5 * time.Second)
		if got := ask("10.0.0.1:1", "ann", "4711"); got != 200 {
			t.Errorf("right from there, when one is forgotten: %d", got)
		}
		statuses("10.0.0.1:1", 1, "0")
		if got := ask("10.0.0.1:1", "ann", "4711"); got != 429 {
			t.Errorf("right from there, after one more: %d", got)
		}
	})
}

// Lines name who may enter, and errors which line is wrong, without its hash.
func TestReadUsers(t *testing.T) {
	hash, err := dashboard.HashPassword("geheim")
	if err != nil {
		t.Fatal(err)
	}
	users, err := dashboard.ReadUsers(strings.NewReader("# us\n\n ann:admin:" + hash + "\r\nbob:viewer:" + hash))
	if err != nil || len(users) != 2 || users["ann"] != (dashboard.User{Hash: hash, Role: dashboard.Admin}) || users["bob"].Role != dashboard.Viewer {
		t.Errorf("%v, %v", users, err)
	}
	if users, err := dashboard.ReadUsers(strings.NewReader(strings.Repeat("#\n", 1<<19-100) + "ann:admin:" + hash)); err != nil || len(users) != 1 {
		t.Errorf("of nearly 1 MiB: %v, %v", users, err)
	}
	for text, want := range map[string]string{
		"ann":                       "line 1",
		"\nann:admin":               "line 2",
		"ann:admin:":                "line 1",
		":admin:" + hash:            "line 1",
		"ann:root:" + hash:          "must be viewer, operator or admin",
		"ann:admin:" + hash + "x":   "HashPassword",
		"\xff:admin:" + hash:        "line 1",
		strings.Repeat("a", 70_000): "token too long",
		"ann:admin:plain":           "HashPassword",
		strings.Repeat("ann:admin:"+hash+"\n", 2): "line 2",
		strings.Repeat("#\n", 1<<19) + "#":        "at most 1 MiB",
	} {
		if _, err := dashboard.ReadUsers(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pbkdf2") {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// A role is read as it is written, and what is none is not written.
func TestRole_text(t *testing.T) {
	for role := dashboard.Role(-3); role <= 4; role++ {
		text, err := role.MarshalText()
		if role < dashboard.Viewer || role > dashboard.Admin {
			if field := (*errand.FieldError)(nil); !errors.As(err, &field) || field.Field != "role" || role.String() != "nobody" {
				t.Errorf("%d is %s, written as %q, %v", int(role), role, text, err)
			}
			continue
		}
		var back dashboard.Role
		if err = errors.Join(err, back.UnmarshalText(text)); err != nil || back != role {
			t.Errorf("%d is %q, and read as %d: %v", int(role), text, int(back), err)
		}
	}
}
