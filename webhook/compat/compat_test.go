// Package compat checks package webhook against the library for Go of the Standard
// Webhooks project, in both directions. It is a module of its own, so that nobody who
// imports errand needs that library. The released version of it knows only HMAC; the
// vector for ed25519 of its next one is in the tests of package webhook.
package compat

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/errandq/errand/webhook"
)

// bodies are what is signed: JSON, nothing, no text, dots and line ends.
func bodies() [][]byte {
	random := make([]byte, 256<<10)
	for i := range random {
		random[i] = byte(rand.IntN(256))
	}
	return [][]byte{[]byte(`{"type":"order.paid","data":{"id":1}}`), {}, []byte("1.2.3\r\n\x00é"), random}
}

// secrets are of all lengths.
func secrets(t *testing.T) (all []webhook.Secret) {
	t.Helper()
	for n := 24; n <= 64; n += 8 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rand.IntN(256))
		}
		s, err := webhook.ParseSecret("whsec_" + base64.StdEncoding.EncodeToString(b))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func library(t *testing.T, s webhook.Secret) *standard.Webhook {
	t.Helper()
	w, err := standard.NewWebhook(s.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func header(id string, at time.Time, signature string) http.Header {
	h := http.Header{}
	h.Set(standard.HeaderWebhookID, id)
	h.Set(standard.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(standard.HeaderWebhookSignature, signature)
	return h
}

// What this package signs, alone or with several secrets, their library verifies with
// each of them, and with no other.
func TestSign(t *testing.T) {
	private, _ := webhook.NewKeyPair()
	for i, body := range bodies() {
		id, now := fmt.Sprintf("msg_%d", i), time.Now()
		old := webhook.NewSecret()
		for _, s := range secrets(t) {
			signature, err := webhook.Sign(id, now, body, private, s, old)
			if err != nil {
				t.Fatal(err)
			}
			h := header(id, now, signature)
			for _, known := range []webhook.Secret{s, old} {
				if err := library(t, known).Verify(body, h); err != nil {
					t.Errorf("body %d: %v", i, err)
				}
			}
			if err := library(t, webhook.NewSecret()).Verify(body, h); err == nil {
				t.Errorf("body %d: verified with another secret", i)
			}
			one, err := webhook.Sign(id, now, body, s)
			if theirs, _ := library(t, s).Sign(id, now, body); err != nil || one != theirs {
				t.Errorf("body %d: %s, %v: want %s", i, one, err, theirs)
			}
		}
	}
}

// What their library signs, this package verifies, and nothing that was changed.
func TestVerify(t *testing.T) {
	for i, body := range bodies() {
		id, now := fmt.Sprintf("msg_%d", i), time.Now()
		for _, s := range secrets(t) {
			signature, err := library(t, s).Sign(id, now, body)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
			r.Header = header(id, now, signature)
			got, err := webhook.Verify(r, []webhook.Secret{webhook.NewSecret(), s}, 0)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("body %d: %d bytes, %v", i, len(got), err)
			}
			r = httptest.NewRequest("POST", "/", bytes.NewReader(append(body, ' ')))
			r.Header = header(id, now, signature)
			if _, err := webhook.Verify(r, []webhook.Secret{s}, 0); err == nil {
				t.Errorf("body %d: a longer one was verified", i)
			}
		}
	}
}
