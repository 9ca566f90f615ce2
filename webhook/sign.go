package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	// HeaderID is the ID of the message: the same for all endpoints, retries and
	// redrives. A receiver that has seen it has seen the message.
	HeaderID = "Webhook-Id"
	// HeaderTimestamp is the time of the attempt, in seconds since 1970.
	HeaderTimestamp = "Webhook-Timestamp"
	// HeaderSignature has the signatures, with spaces between them.
	HeaderSignature = "Webhook-Signature"
)

// The versions of signatures.
const (
	versionHMAC    = "v1"
	versionEd25519 = "v1a"
)

// mostSignatures is how many signatures a message has at most. It bounds what a
// receiver computes for a request that nobody signed.
const mostSignatures = 16

const maxID = 128 // bytes

// Sign returns the value of [HeaderSignature] for a message: a signature with each of the
// secrets, in their order, with spaces between them. A receiver needs one of them. So a
// secret is replaced without a break by signing with the old and the new one for a time.
//
// The value of [HeaderTimestamp] that goes with it is the time of the attempt, at.Unix().
// The ID has up to 128 letters, digits, underscores and hyphens; a dot in it would let one
// signature stand for two messages. There are 1 to 16 secrets, and each of them can sign.
// Other input is refused with an [errand.FieldError].
func Sign(id string, at time.Time, body []byte, secrets ...Secret) (string, error) {
	var f faults
	if !isID(id) {
		f.field("id", id, "must match [A-Za-z0-9_-]{1,128}")
	}
	if at.Unix() < 0 {
		f.field("at", at, "must not be before 1970")
	}
	if len(secrets) == 0 || len(secrets) > mostSignatures {
		f.field("secrets", len(secrets), fmt.Sprintf("must be 1 to %d", mostSignatures))
	}
	for i, s := range secrets {
		if !s.signs() {
			f.field(fmt.Sprintf("secrets[%d]", i), s.String(), cannotSign)
		}
	}
	if len(f) > 0 {
		return "", f.err()
	}
	content := signed(id, strconv.FormatInt(at.Unix(), 10), body)
	all := make([]string, len(secrets))
	for i, s := range secrets {
		all[i] = s.key().sign(content)
	}
	return strings.Join(all, " "), nil
}

const cannotSign = "must be a whsec_ or a whsk_, which can sign"

// signs reports whether the secret can sign.
func (s Secret) signs() bool { return s.get != nil && s.key().prefix != prefixPublic }

// isID reports whether s can be the ID of a message.
func isID(s string) bool {
	return s != "" && len(s) <= maxID && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
}

// signed returns what is signed of a message.
func signed(id, timestamp string, body []byte) []byte {
	b := make([]byte, 0, len(id)+len(timestamp)+len(body)+2)
	b = append(b, id...)
	b = append(b, '.')
	b = append(b, timestamp...)
	b = append(b, '.')
	return append(b, body...)
}

// sign returns the signature of a key that can sign, with its version.
func (k *key) sign(content []byte) string {
	if k.private != nil {
		return versionEd25519 + "," + base64.StdEncoding.EncodeToString(ed25519.Sign(k.private, content))
	}
	return versionHMAC + "," + base64.StdEncoding.EncodeToString(k.sum(content))
}

// sum returns the HMAC of content.
func (k *key) sum(content []byte) []byte {
	h := hmac.New(sha256.New, k.hmac)
	_, _ = h.Write(content) // which never returns an error
	return h.Sum(nil)
}
