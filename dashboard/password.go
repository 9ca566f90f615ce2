package dashboard

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand"
)

// User is one who may enter with a password. Either Password or Hash is set. One with neither
// cannot enter.
type User struct {
	Password string
	// Hash is what [HashPassword] has returned for the password.
	Hash string
	Role Role
}

// Hashes are PBKDF2 with HMAC-SHA-256, as text "pbkdf2-sha256$rounds$salt$key" in base64 without
// padding.
const (
	hashName   = "pbkdf2-sha256"
	hashRounds = 600_000
	fewRounds  = 600_000 // of hashes that are taken: the fewest that HashPassword has ever made
	mostRounds = 10_000_000
	hashSize   = 32
	saltSize   = 16
)

// mostPassword is how many bytes of a password are looked at.
const mostPassword = 1024

// hash is a hashed password.
type hash struct {
	rounds    int
	salt, key []byte
}

// HashPassword returns a hash from which the password cannot be read, for [User].Hash. To compute
// or to check it takes some tenths of a second. It returns a [errand.FieldError] for a password
// that is empty or longer than 1,024 bytes.
func HashPassword(password string) (string, error) {
	if password == "" || len(password) > mostPassword {
		return "", &errand.FieldError{Field: "password", Value: len(password), Limit: "must have between 1 and 1,024 bytes"}
	}
	h := hash{rounds: hashRounds, salt: make([]byte, saltSize)}
	_, _ = rand.Read(h.salt) // never fails
	h.key = h.of(password)
	text := base64.RawStdEncoding.EncodeToString
	return strings.Join([]string{hashName, strconv.Itoa(h.rounds), text(h.salt), text(h.key)}, "$"), nil
}

// of returns the key of a password.
func (h *hash) of(password string) []byte {
	key, err := pbkdf2.Key(sha256.New, password, h.salt, h.rounds, hashSize)
	if err != nil { // a program that is bound to FIPS 140 refuses short salts, and these are not
		return nil
	}
	return key
}

func parseHash(text string) (hash, bool) {
	var h hash
	parts := strings.Split(text, "$")
	if len(parts) != 4 || parts[0] != hashName {
		return h, false
	}
	var errs [3]error
	h.rounds, errs[0] = strconv.Atoi(parts[1])
	h.salt, errs[1] = base64.RawStdEncoding.DecodeString(parts[2])
	h.key, errs[2] = base64.RawStdEncoding.DecodeString(parts[3])
	return h, errors.Join(errs[:]...) == nil && h.rounds >= fewRounds && h.rounds <= mostRounds && len(h.salt) >= saltSize && len(h.key) == hashSize
}

// fault returns what is wrong with a user, or nil.
func (u *User) fault(field string) error {
	switch {
	case u.Hash == "":
		return nil
	case u.Password != "":
		return &errand.FieldError{Field: field + ".hash", Value: len(u.Hash), Limit: "must be empty if there is a password"}
	}
	if _, ok := parseHash(u.Hash); !ok {
		return &errand.FieldError{Field: field + ".hash", Value: len(u.Hash), Limit: "must be what dashboard.HashPassword returns, of 600,000 to 10,000,000 rounds"}
	}
	return nil
}

// mostUsers is how many bytes of users are read.
const mostUsers = 1 << 20

// ReadUsers reads users, one a line, as "name:role:hash", with a hash of [HashPassword]. Lines that
// are empty or begin with # are passed over. It returns a [errand.FieldError] that names the line
// for one that is not so, and for a name that is there twice, and one if there is more than 1 MiB.
// No error has a hash.
func ReadUsers(r io.Reader) (map[string]User, error) {
	all, err := io.ReadAll(io.LimitReader(r, mostUsers+1))
	switch {
	case err != nil:
		return nil, err
	case len(all) > mostUsers:
		return nil, &errand.FieldError{Field: "users", Value: len(all), Limit: "must have at most 1 MiB"}
	}
	users := map[string]User{}
	lines := bufio.NewScanner(bytes.NewReader(all))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		field := "line " + strconv.Itoa(n)
		name, rest, _ := strings.Cut(line, ":")
		role, hash, ok := strings.Cut(rest, ":")
		u := User{Hash: hash}
		switch _, twice := users[name]; {
		case !ok || hash == "" || name == "" || !utf8.ValidString(name):
			return nil, &errand.FieldError{Field: field, Value: len(line), Limit: "must be a name, a role and a hash with colons between them"}
		case twice:
			return nil, &errand.FieldError{Field: field, Value: name, Limit: "must not have a name that is there already"}
		}
		if err := u.Role.UnmarshalText([]byte(role)); err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		if err := u.fault(field); err != nil {
			return nil, err
		}
		users[name] = u
	}
	return users, lines.Err()
}

// errUnknown is answered by asking for a name and a password.
var errUnknown = &AuthError{Text: "You may not enter without a name and a password that are known here.",
	Remedy: "Load the page again: the browser asks for them."}

var errTries = &AuthError{Status: http.StatusTooManyRequests, Text: "Too many passwords from your address were wrong.",
	Remedy: "Wait " + took(oneTryEach) + ", then load the page again."}

// Basic lets those in who know a name of users and its password. These are sent with each request,
// so serve the pages over https or on a loopback address only.
//
// From one address 10 passwords in a row may be wrong, then one each 5 s. Who has entered from an
// address stays in there, until 100 passwords for that name from there were wrong. One of these is
// forgotten each 5 s. All who come through one proxy have its address. If many passwords wait to be checked, further ones are refused
// with 503. Basic panics with a [errand.FieldError] if a hash is not as [HashPassword] returns it.
func Basic(users map[string]User) func(*http.Request) (Identity, error) {
	return newBasic(users).identity
}

func newBasic(users map[string]User) *basic {
	b := &basic{users: make(map[string]*known, len(users)), secret: []byte(rand.Text()), turn: make(chan struct{}, 1), room: make(chan struct{}, mostWaiting)}
	for name, u := range users {
		if err := u.fault("users[" + strconv.Quote(name) + "]"); err != nil {
			panic(err)
		}
		k := &known{User: u}
		if u.Hash != "" {
			k.hash, _ = parseHash(u.Hash)
			b.nobody = hash{rounds: max(b.nobody.rounds, k.hash.rounds), salt: make([]byte, saltSize)}
		}
		b.users[name] = k
	}
	return b
}

// basic is what [Basic] keeps.
type basic struct {
	users  map[string]*known
	nobody hash   // of as many rounds as the user with most has; zero if nobody has a hash
	secret []byte // of this process
	turn   chan struct{}
	room   chan struct{} // of those who wait for their turn, or have it
	tries  tries
	seats  seats
}

// known is a user.
type known struct {
	User
	hash hash
}

func (b *basic) identity(r *http.Request) (Identity, error) {
	name, password, given := r.BasicAuth()
	if !given || len(password) > mostPassword {
		return Identity{}, errUnknown
	}
	u := b.users[name]
	sum := b.mac(password)
	from, _ := peer(r)
	at := place{name, networkOf(from)}
	if u != nil && b.seats.has(at, sum, true) {
		return Identity{Name: name, Role: u.Role}, nil
	}
	if !b.tries.take(from) {
		return Identity{}, errTries
	}
	entered := func() bool { return u != nil && b.seats.has(at, sum, false) }
	ok, err := b.check(r.Context(), u, password, entered)
	switch {
	case errors.Is(err, errNoRoom): // it was not looked at, and nobody has waited
		b.tries.giveBack(from)
		return Identity{}, errWaiting
	case errors.Is(err, context.DeadlineExceeded):
		return Identity{}, errWaiting
	case err != nil:
		return Identity{}, err
	case !ok:
		return Identity{}, errUnknown
	}
	b.tries.giveBack(from)
	b.seats.take(at, sum)
	return Identity{Name: name, Role: u.Role}, nil
}

// mac returns what is kept of a password.
func (b *basic) mac(password string) []byte {
	mac := hmac.New(sha256.New, b.secret)
	mac.Write([]byte(password))
	return mac.Sum(nil)
}

// place is a user name and the network that its attempts come from; failures are counted for it.
type place struct {
	name string
	from netip.Prefix
}

// seat is who has entered from a place, so that the hash is computed once.
type seat struct {
	right []byte    // the MAC of the password
	until time.Time // when all passwords from there that were wrong are forgotten
}

// Bounds of seats. Somebody else may send passwords from the same place, such as a proxy: each wrong
// one counts for oneTryEach. While mostWrong count, all from there are hashed, and limited as any
// other. To enter again does not change what counts.
const (
	mostSeats = 1000
	mostWrong = 100
)

// seats are those who have entered.
type seats struct {
	mu sync.Mutex
	by map[place]*seat
}

// has reports whether a user has entered from a place with a password of this MAC. With count,
// another password counts as wrong.
func (s *seats) has(at place, sum []byte, count bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, now := s.by[at], time.Now()
	if one == nil || one.until.Sub(now) > (mostWrong-1)*oneTryEach {
		return false
	}
	if subtle.ConstantTimeCompare(one.right, sum) == 1 {
		return true
	}
	if !count {
		return false
	}
	if one.until.Before(now) {
		one.until = now
	}
	one.until = one.until.Add(oneTryEach)
	return false
}

// take keeps that a user has entered. If there are too many, another has to be hashed again.
func (s *seats) take(at place, sum []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[place]*seat{}
	}
	if one := s.by[at]; one != nil {
		one.right = sum
		return
	}
	for other := range s.by {
		if len(s.by) < mostSeats {
			break
		}
		delete(s.by, other)
	}
	s.by[at] = &seat{right: sum}
}

// Bounds of those who wait until their password is hashed. After a start some people may come, each
// with some tabs that ask for several things at once.
const (
	mostWaiting = 100
	waitFor     = 5 * time.Second
)

// errNoRoom: too many wait already.
var errNoRoom = errors.New("too many passwords wait")

var errWaiting = &AuthError{Status: http.StatusServiceUnavailable, Text: "Too many passwords wait to be checked.",
	Remedy: "Try again in some seconds. If this goes on, somebody may be guessing passwords; who has entered stays in."}

// check reports whether a password is that of u, which is nil if there is no such user. The time
// that it takes tells neither. One password at a time is hashed, so that many do not take all
// processors. Nothing is hashed if entered reports, after the wait, that another request of the user
// has entered meanwhile. An error is errNoRoom, that of ctx, or that of waiting for too long.
func (b *basic) check(ctx context.Context, u *known, password string, entered func() bool) (bool, error) {
	var k known
	if u != nil {
		k = *u
	}
	given, want := sha256.Sum256([]byte(password)), sha256.Sum256([]byte(k.Password))
	ok := subtle.ConstantTimeCompare(given[:], want[:]) == 1 && k.Password != ""
	if b.nobody.rounds == 0 {
		return ok, nil
	}
	select {
	case b.room <- struct{}{}:
		defer func() { <-b.room }()
	default:
		return false, errNoRoom
	}
	ctx, stop := withTimeout(ctx, waitFor)
	defer stop()
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if entered() {
		return true, nil
	}
	if k.hash.rounds > 0 {
		ok = subtle.ConstantTimeCompare(k.hash.of(password), k.hash.key) == 1
	}
	if rest := b.rest(&k); rest.rounds > 0 {
		rest.of(password)
	}
	return ok, nil
}

// rest is what is computed after the hash of a user, so that all together take as long.
func (b *basic) rest(k *known) *hash {
	return &hash{rounds: b.nobody.rounds - k.hash.rounds, salt: b.nobody.salt}
}

// How often passwords from an address may be wrong.
const (
	mostTries     = 10
	oneTryEach    = 5 * time.Second
	mostAddresses = 1000
)

// tries counts the passwords of each address that were wrong.
type tries struct {
	mu sync.Mutex
	by map[netip.Prefix]time.Time // when all that were wrong are forgotten
}

// networkOf returns the network of an address that one may have alone.
func networkOf(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // of no address it is the zero Prefix
	return p
}

// take reports whether an address may try a password, and counts it as wrong.
func (t *tries) take(a netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	from, now := networkOf(a), time.Now()
	until := t.by[from]
	if until.Before(now) {
		until = now
	}
	if until = until.Add(oneTryEach); until.Sub(now) > mostTries*oneTryEach {
		return false
	}
	if t.by == nil || len(t.by) >= mostAddresses {
		t.forget(now)
	}
	t.by[from] = until
	return true
}

// forget leaves room for another address.
func (t *tries) forget(now time.Time) {
	if t.by == nil {
		t.by = map[netip.Prefix]time.Time{}
	}
	for a, until := range t.by {
		if until.Before(now) {
			delete(t.by, a)
		}
	}
	for a := range t.by { // whoever it is: others are not locked out for them
		if len(t.by) < mostAddresses {
			return
		}
		delete(t.by, a)
	}
}

// giveBack counts the password that an address has tried last as right.
func (t *tries) giveBack(a netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from := networkOf(a); !t.by[from].IsZero() {
		t.by[from] = t.by[from].Add(-oneTryEach)
	}
}
