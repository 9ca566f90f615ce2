package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/errandq/errand/relay/internal/wire"
)

func TestKeys(t *testing.T) {
	private, shared := wire.FormatKey(wire.Ed25519Private, filled(1)), wire.FormatKey(wire.HMACSHA256, filled(0xab))
	public := must(t, wire.PublicKey, private)
	equal(t, "shared", shared, "hmac-sha256:"+strings.Repeat("ab", 32))
	for _, c := range []struct{ signs, verifies string }{{private, public}, {shared, shared}, {private + "\n", public + "\r\n"}} {
		s, v := must(t, wire.ParseSigner, c.signs), must(t, wire.ParseVerifier, c.verifies)
		signature := s.Sign([]byte("text"))
		if !v.Verify([]byte("text"), signature) || v.Verify([]byte("texts"), signature) || v.Verify([]byte("text"), signature[1:]) || v.Verify([]byte("text"), nil) {
			t.Errorf("%q: another text or signature is good, or this one is not", c.signs)
		}
	}
	other := must(t, wire.ParseSigner, wire.FormatKey(wire.Ed25519Private, filled(2)))
	if must(t, wire.ParseVerifier, public).Verify([]byte("text"), other.Sign([]byte("text"))) {
		t.Error("the signature of another key is good")
	}
}

func TestKeys_refused(t *testing.T) {
	private, shared := wire.FormatKey(wire.Ed25519Private, filled(0xab)), wire.FormatKey(wire.HMACSHA256, filled(0xab))
	public := must(t, wire.PublicKey, private)
	signer := func(line string) error { _, err := wire.ParseSigner(line); return err }
	verifier := func(line string) error { _, err := wire.ParseVerifier(line); return err }
	ofPrivate := func(line string) error { _, err := wire.PublicKey(line); return err }
	const kind, length, begin = "must be of one of the kinds", "must have 64 characters", "must begin with"
	for _, c := range []struct {
		parse       func(string) error
		line, limit string
	}{
		{signer, public, kind}, {verifier, private, kind}, {ofPrivate, public, kind}, {ofPrivate, shared, kind},
		{signer, "", begin}, {signer, "\n", begin}, {signer, strings.Repeat("ab", 32), begin}, {signer, "rsa-private:00", begin}, {signer, " " + private, begin},
		{signer, private[:len(private)-1], length}, {signer, private + "00", length}, {signer, strings.ToUpper(private[len("ed25519-private:"):]), begin},
		{signer, strings.Replace(private, "ab", "AB", 1), length}, {signer, strings.Replace(private, "ab", "xy", 1), length},
		{signer, private + "\n\n", length}, {signer, private + "\n" + private, length}, {signer, "hmac-sha256:", length}, {verifier, public + " ", length},
	} {
		err := c.parse(c.line)
		isField(t, err, "key", c.limit)
		if err != nil && strings.Contains(err.Error(), "ababab") {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

// Nothing prints a key that signs.
func TestKeys_printed(t *testing.T) {
	for _, kind := range []wire.KeyKind{wire.Ed25519Private, wire.HMACSHA256} {
		s := must(t, wire.ParseSigner, wire.FormatKey(kind, filled(0xab)))
		for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%s"} {
			if text := fmt.Sprintf(verb, s); strings.Contains(text, "171 171") || strings.Contains(text, "0xab, ") || strings.Contains(text, "abab") {
				t.Errorf("%s: %s", verb, text)
			}
		}
	}
}
