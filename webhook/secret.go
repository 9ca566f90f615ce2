package webhook

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/errandq/errand"
)

// Secret is a key that signs messages or verifies their signatures. It is one of
// three, which the beginning of its text tells apart:
//
//	whsec_  signs and verifies with HMAC-SHA256: 24 to 64 bytes that both sides know
//	whsk_   signs with ed25519: the private key, which only the sender knows
//	whpk_   verifies with ed25519: the public key that belongs to it
//
// The rest of the text is base64. [Secret.Reveal] returns the text. Nothing else does:
// what is printed, logged or marshalled has dots instead. The zero Secret is none;
// all functions refuse it. A Secret can be copied, and used by several goroutines.
type Secret struct {
	// A function, since fmt prints what is in a field that is not exported without
	// asking the Secret, also behind a pointer. It is nil in the zero Secret.
	get func() *key
}

func newKey(k key) Secret { return Secret{func() *key { return &k }} }

// key returns the key of a Secret that is not zero.
func (s Secret) key() *key { return s.get() }

// key is a Secret's: of its kind, and in the form that its kind needs.
type key struct {
	prefix  string
	hmac    []byte
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

const (
	prefixHMAC    = "whsec_"
	prefixPrivate = "whsk_"
	prefixPublic  = "whpk_"

	minHMAC, maxHMAC = 24, 64 // bytes
	newHMAC          = 32     // bytes, as many as SHA-256 returns
)

// NewSecret returns a new random secret for HMAC-SHA256, of 32 bytes. Each endpoint
// should have a secret of its own.
func NewSecret() Secret {
	b := make([]byte, newHMAC)
	_, _ = rand.Read(b) // which never returns an error
	return newKey(key{prefix: prefixHMAC, hmac: b})
}

// NewKeyPair returns a new random pair of keys for ed25519: the private one for the
// sender, and the public one for receivers.
func NewKeyPair() (private, public Secret) {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // which never returns an error
	private = privateSecret(seed)
	public, _ = private.Public()
	return private, public
}

// ParseSecret reads the text of a secret, as [Secret.Reveal] returns it. A whsk_ may have
// 32 bytes, the seed, or 64, the seed and the public key. Text of another form or
// length is refused with an [errand.FieldError] that does not show it.
func ParseSecret(text string) (Secret, error) {
	refuse := func(value any, limit string) (Secret, error) {
		return Secret{}, &errand.FieldError{Field: "secret", Value: value, Limit: limit}
	}
	begin, encoded, _ := strings.Cut(text, "_")
	prefix := begin + "_"
	if prefix != prefixHMAC && prefix != prefixPrivate && prefix != prefixPublic {
		return refuse(strconv.Itoa(len(text))+" bytes", "must begin with whsec_, whsk_ or whpk_")
	}
	shown := prefix + "..."
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") {
		return refuse(shown, "must be base64 after the first underscore, with padding")
	}
	switch size := fmt.Sprintf(" of %d bytes", len(b)); prefix {
	case prefixHMAC:
		if len(b) < minHMAC || len(b) > maxHMAC {
			return refuse(shown+size, fmt.Sprintf("must have %d to %d bytes", minHMAC, maxHMAC))
		}
		return newKey(key{prefix: prefix, hmac: b}), nil
	case prefixPublic:
		if len(b) != ed25519.PublicKeySize {
			return refuse(shown+size, "must have 32 bytes")
		}
		return newKey(key{prefix: prefix, public: b}), nil
	default:
		if len(b) != ed25519.SeedSize && len(b) != ed25519.PrivateKeySize {
			return refuse(shown+size, "must have 32 or 64 bytes")
		}
		s := privateSecret(b[:ed25519.SeedSize])
		if len(b) == ed25519.PrivateKeySize && !s.key().private.Equal(ed25519.PrivateKey(b)) {
			return refuse(shown+size, "must end with the public key of its seed")
		}
		return s, nil
	}
}

func privateSecret(seed []byte) Secret {
	k := key{prefix: prefixPrivate, private: ed25519.NewKeyFromSeed(seed)}
	k.public, _ = k.private.Public().(ed25519.PublicKey)
	return newKey(k)
}

// Public returns the public key of a private one, which receivers need. It is not ok for
// other secrets.
func (s Secret) Public() (public Secret, ok bool) {
	if s.get == nil || s.key().private == nil {
		return Secret{}, false
	}
	return newKey(key{prefix: prefixPublic, public: s.key().public}), true
}

// Reveal returns the text of the secret, for the other side and for safe keeping. A
// private key is written as its seed. For the zero Secret it returns nothing.
func (s Secret) Reveal() string {
	if s.get == nil {
		return ""
	}
	b := s.key().hmac
	switch s.key().prefix {
	case prefixPrivate:
		b = s.key().private.Seed()
	case prefixPublic:
		b = s.key().public
	}
	return s.key().prefix + base64.StdEncoding.EncodeToString(b)
}

// IsZero reports whether s is the zero Secret, which is none.
func (s Secret) IsZero() bool { return s.get == nil }

// String returns the kind of the secret, such as "whsec_...", and nothing of its key.
func (s Secret) String() string {
	if s.get == nil {
		return "none"
	}
	return s.key().prefix + "..."
}

// Format writes what String returns, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// GoString returns what String does.
func (s Secret) GoString() string { return s.String() }

// LogValue returns what String does.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns what String does. So the JSON of a struct with a Secret does not
// show it, and a Secret cannot be read back from it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON returns what String does, in quotation marks.
func (s Secret) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, s.String()), nil }
