package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

// secretOf returns the secret of a prefix and so many bytes.
func secretOf(prefix string, n int) string {
	return prefix + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{'k'}, n))
}

func TestParseSecret(t *testing.T) {
	private, public := webhook.NewKeyPair()
	for _, text := range []string{
		secretOf("whsec_", 24), secretOf("whsec_", 64), secretOf("whsk_", 32), secretOf("whpk_", 32),
		webhook.NewSecret().Reveal(), private.Reveal(), public.Reveal(),
	} {
		s, err := webhook.ParseSecret(text)
		if err != nil || s.Reveal() != text || s.IsZero() {
			t.Errorf("%s becomes %s, %v", text, s.Reveal(), err)
		}
	}
}

// A private key that is written with its public key is the same as its seed.
func TestParseSecret_both(t *testing.T) {
	private, public := webhook.NewKeyPair()
	decode := func(s webhook.Secret) []byte {
		_, encoded, _ := strings.Cut(s.Reveal(), "_")
		b, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	both := append(decode(private), decode(public)...)
	s, err := webhook.ParseSecret("whsk_" + base64.StdEncoding.EncodeToString(both))
	if err != nil || s.Reveal() != private.Reveal() {
		t.Errorf("got %s, %v", s.Reveal(), err)
	}
	both[63] ^= 1
	if _, err := webhook.ParseSecret("whsk_" + base64.StdEncoding.EncodeToString(both)); err == nil {
		t.Error("a key pair whose halves do not belong together was accepted")
	}
}

func TestParseSecret_refused(t *testing.T) {
	const hidden = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for _, test := range []struct{ text, limit string }{
		{"", "must begin with"},
		{hidden, "must begin with"},
		{"WHSEC_" + hidden, "must begin with"},
		{"_" + hidden, "must begin with"},
		{"whsec_", "must have 24 to 64 bytes"},
		{secretOf("whsec_", 23), "must have 24 to 64 bytes"},
		{secretOf("whsec_", 65), "must have 24 to 64 bytes"},
		{secretOf("whsk_", 31), "must have 32 or 64 bytes"},
		{secretOf("whsk_", 64), "must end with the public key"},
		{secretOf("whpk_", 33), "must have 32 bytes"},
		{"whsec_" + hidden + "!", "must be base64"},
		{"whsec_" + hidden + "\n", "must be base64"},
		{strings.TrimRight(secretOf("whsec_", 25), "="), "must be base64"},
	} {
		s, err := webhook.ParseSecret(test.text)
		e, ok := errors.AsType[*errand.FieldError](err)
		if !ok || !s.IsZero() || e.Field != "secret" || !strings.Contains(e.Limit, test.limit) {
			t.Errorf("%q: %v, want %q", test.text, err, test.limit)
		}
		if err != nil && (strings.Contains(err.Error(), hidden[:8]) || strings.Contains(err.Error(), "a2tra2")) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// No way of printing, logging or marshalling shows a key, in whatever struct it is.
func TestSecret_hidden(t *testing.T) {
	private, public := webhook.NewKeyPair()
	for _, s := range []webhook.Secret{webhook.NewSecret(), private, public, {}} {
		type exported struct {
			S    webhook.Secret
			P    *webhook.Secret
			List []webhook.Secret
			Map  map[string]webhook.Secret
		}
		type unexported struct {
			s    webhook.Secret
			list []webhook.Secret
		}
		values := []any{s, &s, exported{s, &s, []webhook.Secret{s}, map[string]webhook.Secret{"a": s}}, unexported{s, []webhook.Secret{s}}}
		var shown strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			for _, v := range values {
				fmt.Fprintf(&shown, verb+"\n", v)
			}
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&shown, nil), slog.NewJSONHandler(&shown, nil)} {
			slog.New(h).Info("a line", "s", s, "p", &s, "struct", values[2], "hidden", values[3])
		}
		b, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(b)
		_, encoded, _ := strings.Cut(s.Reveal(), "_")
		key, _ := base64.StdEncoding.DecodeString(encoded)
		if len(key) == 0 {
			key = []byte("no key")
		}
		for _, form := range []string{encoded, string(key), fmt.Sprintf("%x", key), fmt.Sprintf("%X", key), strings.Trim(fmt.Sprintf("%d", key), "[]")} {
			if form != "" && strings.Contains(shown.String(), form) {
				t.Errorf("%s is shown as %q:\n%s", s, form, shown.String())
			}
		}
	}
	if s := fmt.Sprintf("%v %s", public, webhook.Secret{}); s != "whpk_... none" {
		t.Errorf("printed as %s", s)
	}
}

func TestSecret_Public(t *testing.T) {
	private, public := webhook.NewKeyPair()
	if p, ok := private.Public(); !ok || p.Reveal() != public.Reveal() {
		t.Errorf("the public key of %s is %s, %t", private, p.Reveal(), ok)
	}
	for _, s := range []webhook.Secret{public, webhook.NewSecret(), {}} {
		if p, ok := s.Public(); ok || !p.IsZero() {
			t.Errorf("%s has the public key %s", s, p.Reveal())
		}
	}
	if a, b := webhook.NewSecret(), webhook.NewSecret(); a.Reveal() == b.Reveal() {
		t.Error("two new secrets are equal")
	}
}
