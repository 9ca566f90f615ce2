package dashboard

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// However many addresses send wrong passwords, few are kept.
func TestTries_bound(t *testing.T) {
	var all tries
	for i := range uint32(3 * mostAddresses) {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], i)
		if !all.take(netip.AddrFrom4(a)) {
			t.Fatalf("address %d is locked out for others", i)
		}
	}
	if n := len(all.by); n > mostAddresses {
		t.Errorf("%d addresses are kept", n)
	}
}

// However many have entered, few are kept.
func TestSeats_bound(t *testing.T) {
	var all seats
	for i := range 3 * mostSeats {
		at := place{name: strconv.Itoa(i)}
		if all.take(at, []byte("a")); !all.has(at, []byte("a"), true) {
			t.Fatalf("user %d has not entered", i)
		}
	}
	if n := len(all.by); n > mostSeats {
		t.Errorf("%d are kept", n)
	}
}

// handMade returns a hash of so many rounds. No password is right.
func handMade(rounds int) string {
	text := base64.RawStdEncoding.EncodeToString
	return strings.Join([]string{hashName, strconv.Itoa(rounds), text(make([]byte, saltSize)), text(make([]byte, hashSize))}, "$")
}

// Few wait for their turn, and not for long. Who is refused at once has not tried.
func TestBasic_waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBasic(map[string]User{"ann": {Hash: handMade(fewRounds)}})
		b.turn <- struct{}{} // somebody who has it
		ask := func(from string) error {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = from
			r.SetBasicAuth("ann", "a")
			_, err := b.identity(r)
			return err
		}
		ended := make(chan error, mostWaiting)
		began := time.Now()
		for i := range mostWaiting {
			go func() { ended <- ask("10.0.1." + strconv.Itoa(i) + ":1") }()
		}
		synctest.Wait()
		for range 2 * mostTries {
			if err := ask("10.0.0.2:1"); !errors.Is(err, errWaiting) || time.Since(began) > 0 {
				t.Errorf("without room: %v after %v", err, time.Since(began))
			}
		}
		for range mostWaiting {
			if err := <-ended; !errors.Is(err, errWaiting) || time.Since(began) != waitFor {
				t.Errorf("in vain: %v after %v", err, time.Since(began))
			}
		}
		if n := len(b.room); n > 0 {
			t.Errorf("%d wait still", n)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := b.check(gone, b.users["ann"], "a", func() bool { return false }); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone: %v", err)
		}
	})
}

// When all tabs of some people ask at once, after a start, all are let in, and one password of each
// is hashed. (No password is right here: who is let in was not hashed.)
func TestBasic_together(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const people, requests = 5, 8
		b := newBasic(map[string]User{"ann": {Hash: handMade(fewRounds)}})
		b.turn <- struct{}{} // somebody who has it
		ended := make(chan error, people*requests)
		for i := range people * requests {
			go func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
				r.RemoteAddr = "10.0.0." + strconv.Itoa(i%people) + ":1"
				r.SetBasicAuth("ann", "a")
				_, err := b.identity(r)
				ended <- err
			}()
		}
		synctest.Wait()
		for i := range people {
			b.seats.take(place{"ann", networkOf(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))}, b.mac("a"))
		}
		<-b.turn
		for range people * requests {
			if err := <-ended; err != nil {
				t.Errorf("who has entered is refused: %v", err)
			}
		}
	})
}

// An error of a hash with few rounds names how many it must have.
func TestUser_rounds(t *testing.T) {
	u := User{Hash: handMade(fewRounds - 1)}
	if err := u.fault("a"); err == nil || !strings.Contains(err.Error(), "600,000") {
		t.Errorf("%v", err)
	}
	if u.Hash = handMade(fewRounds); u.fault("a") != nil {
		t.Error(u.fault("a"))
	}
}

// Each check computes as many rounds, whoever it is.
func TestBasic_rounds(t *testing.T) {
	b := newBasic(map[string]User{"ann": {Hash: handMade(fewRounds)}, "bob": {Hash: handMade(fewRounds + 9)}, "eve": {Password: "a"}})
	b.users["nobody"] = &known{}
	for name, u := range b.users {
		if n := u.hash.rounds + b.rest(u).rounds; n != fewRounds+9 {
			t.Errorf("%s: %d rounds", name, n)
		}
	}
}
