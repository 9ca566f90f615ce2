package webhook_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand/webhook"
)

// The handler of a receiver. It answers 400 to what is not verified, whatever the reason,
// and keeps the reason to itself.
func ExampleVerify() {
	secret := webhook.NewSecret() // in a program: ParseSecret of what the sender has shown
	secrets := []webhook.Secret{secret}
	seen := map[string]bool{} // in a program: a table
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := webhook.Verify(r, secrets, 0)
		if err != nil {
			http.Error(w, "not verified", http.StatusBadRequest)
			return
		}
		id := r.Header.Get(webhook.HeaderID)
		if !seen[id] {
			seen[id] = true
			fmt.Printf("%s: %s\n", id, body)
		}
	}
	receiver := httptest.NewServer(http.HandlerFunc(handler))
	defer receiver.Close()

	send := func(body, signature string) {
		req, _ := http.NewRequest("POST", receiver.URL, strings.NewReader(body))
		req.Header.Set(webhook.HeaderID, "msg_1")
		req.Header.Set(webhook.HeaderTimestamp, strconv.FormatInt(time.Now().Unix(), 10))
		req.Header.Set(webhook.HeaderSignature, signature)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	const body = `{"type":"order.paid"}`
	signature, err := webhook.Sign("msg_1", time.Now(), []byte(body), secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	send(body, signature)
	send(body, signature) // again, since the sender has not seen the answer
	send(`{"type":"order.free"}`, signature)
	// Output:
	// msg_1: {"type":"order.paid"}
	// 200 OK
	// 200 OK
	// 400 Bad Request
}

// A secret is replaced in three steps, none of which a message fails in: sign with both,
// have the receiver change, sign with the new one alone.
func ExampleSign_rotation() {
	old, current := webhook.NewSecret(), webhook.NewSecret()
	verify := func(signature string, known webhook.Secret) error {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set(webhook.HeaderID, "msg_1")
		r.Header.Set(webhook.HeaderTimestamp, strconv.FormatInt(time.Now().Unix(), 10))
		r.Header.Set(webhook.HeaderSignature, signature)
		_, err := webhook.Verify(r, []webhook.Secret{known}, 0)
		return err
	}
	both, _ := webhook.Sign("msg_1", time.Now(), nil, current, old)
	fmt.Println("the receiver knows the old one:", verify(both, old))
	fmt.Println("the receiver has changed:", verify(both, current))
	one, _ := webhook.Sign("msg_1", time.Now(), nil, current)
	fmt.Println("the old one has ended:", errors.Is(verify(one, old), webhook.ErrSignature))
	// Output:
	// the receiver knows the old one: <nil>
	// the receiver has changed: <nil>
	// the old one has ended: true
}

// The sender keeps the private key. The public one can be shown to everybody.
func ExampleNewKeyPair() {
	private, public := webhook.NewKeyPair()
	fmt.Println(private, len(private.Reveal()))
	fmt.Println(public, len(public.Reveal()))
	// Output:
	// whsk_... 49
	// whpk_... 49
}

// What a secret is printed as does not show it.
func ExampleSecret() {
	s, err := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	fmt.Printf("%v %+v %v\n", s, struct{ Key webhook.Secret }{s}, err)
	fmt.Println(s.Reveal())
	_, err = webhook.ParseSecret("whsec_dG9vIHNob3J0")
	fmt.Println(err)
	// Output:
	// whsec_... {Key:whsec_...} <nil>
	// whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
	// errand: secret "whsec_... of 9 bytes": must have 24 to 64 bytes
}
