package wire

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Signer signs messages. It can be used by several goroutines.
type Signer interface {
	Sign(text []byte) []byte
}

// Verifier verifies signatures. It can be used by several goroutines.
type Verifier interface {
	Verify(text, signature []byte) bool
}

// Unkeyed signs and verifies with SHA-256 alone. That shows that a message is whole, and nothing of who
// has sent it: that is for the connection to show.
var Unkeyed unkeyed

type unkeyed struct{}

func (unkeyed) Sign(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:]
}

func (k unkeyed) Verify(text, signature []byte) bool { return bytes.Equal(k.Sign(text), signature) }

// KeyKind is what a key is for.
type KeyKind string

// The kinds of keys.
const (
	Ed25519Private KeyKind = "ed25519-private" // signs
	Ed25519Public  KeyKind = "ed25519-public"  // verifies
	HMACSHA256     KeyKind = "hmac-sha256"     // both
)

// FormatKey returns the line of a key, without a newline. The bytes of a new Ed25519Private or HMACSHA256 are random.
func FormatKey(kind KeyKind, key [32]byte) string {
	return string(kind) + ":" + hex.EncodeToString(key[:])
}

// PublicKey returns the line of the public half of an Ed25519Private.
func PublicKey(line string) (string, error) {
	_, seed, err := parseKey(line, Ed25519Private)
	if err != nil {
		return "", err
	}
	public := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
	return FormatKey(Ed25519Public, [32]byte(public)), nil
}

// ParseSigner reads the line of an Ed25519Private or an HMACSHA256. One newline may follow. An error
// does not show the key.
func ParseSigner(line string) (Signer, error) {
	kind, key, err := parseKey(line, Ed25519Private, HMACSHA256)
	switch {
	case err != nil:
		return nil, err
	case kind == HMACSHA256:
		return newShared(key), nil
	}
	private := ed25519.NewKeyFromSeed(key[:])
	return signer(func(text []byte) []byte { return ed25519.Sign(private, text) }), nil
}

// ParseVerifier reads the line of an Ed25519Public or an HMACSHA256, as ParseSigner does.
func ParseVerifier(line string) (Verifier, error) {
	kind, key, err := parseKey(line, Ed25519Public, HMACSHA256)
	switch {
	case err != nil:
		return nil, err
	case kind == HMACSHA256:
		return newShared(key), nil
	}
	return verifier(key), nil
}

func parseKey(line string, want ...KeyKind) (KeyKind, [32]byte, error) {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	name, text, _ := strings.Cut(line, ":")
	kind, key := KeyKind(name), [32]byte{}
	switch kind {
	case Ed25519Private, Ed25519Public, HMACSHA256:
	default:
		return "", key, wrong("key", fmt.Sprintf("of %d bytes", len(line)), "must begin with ed25519-private:, ed25519-public: or hmac-sha256:")
	}
	if !slices.Contains(want, kind) {
		return "", key, wrong("key", name, "must be of one of the kinds %v", want)
	}
	if !readHex(key[:], text) {
		return "", key, wrong("key", fmt.Sprintf("%s:... of %d characters", name, len(text)), "must have 64 characters of lower-case hex after the colon, in one line")
	}
	return kind, key, nil
}

// readHex reads lower-case hex of as many bytes as there are in into.
func readHex(into []byte, text string) bool {
	if len(text) != hex.EncodedLen(len(into)) || strings.ContainsAny(text, "ABCDEF") {
		return false
	}
	_, err := hex.Decode(into, []byte(text))
	return err == nil
}

// signer is a function, so that nothing prints the key in it.
type signer func(text []byte) []byte

func (f signer) Sign(text []byte) []byte { return f(text) }

type verifier [ed25519.PublicKeySize]byte

func (k verifier) Verify(text, signature []byte) bool { return ed25519.Verify(k[:], text, signature) }

// shared is a key that both sides have.
type shared struct{ signer }

func newShared(key [32]byte) shared {
	return shared{func(text []byte) []byte {
		h := hmac.New(sha256.New, key[:])
		h.Write(text)
		return h.Sum(nil)
	}}
}

func (k shared) Verify(text, signature []byte) bool { return hmac.Equal(k.Sign(text), signature) }
