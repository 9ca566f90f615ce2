package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// text is the words of a message. The first error in reading them stays.
type text struct {
	line  string
	words []string
	read  int
	err   error
}

// sign returns the header of a message.
func sign(words []string, by Signer) (h http.Header, signature string) {
	line := strings.Join(words, " ")
	signature = hex.EncodeToString(by.Sign([]byte(line)))
	h = http.Header{}
	h.Set(TextHeader, line)
	h.Set(SignatureHeader, signature)
	h.Set("Content-Type", "application/octet-stream")
	return h, signature
}

// open splits the text of a message, and returns its signature: as it was sent, and its bytes.
func open(h http.Header, what string, n int) (t text, signature string, bytes []byte, err error) {
	values, lines := h.Values(SignatureHeader), h.Values(TextHeader)
	if len(values) == 1 {
		bytes = make([]byte, min(len(values[0])/2, 64))
		if (len(bytes) == 32 || len(bytes) == 64) && readHex(bytes, values[0]) {
			signature = values[0]
		}
	}
	if signature == "" {
		return t, "", nil, wrong(SignatureHeader, len(values), "must be one value of 32 or 64 bytes in lower-case hex")
	}
	if len(lines) != 1 {
		return t, signature, nil, wrong(TextHeader, len(lines), "must be one value")
	}
	t = text{line: lines[0]}
	if err := atMost(TextHeader+".length", len(t.line), maxText); err != nil {
		return t, signature, nil, err
	}
	t.words = strings.Split(t.line, " ")
	t.is("version", version)
	t.is("message", what)
	if t.err == nil && len(t.words) != n {
		t.fail("words", len(t.words), fmt.Sprintf("must be %d", n))
	}
	return t, signature, bytes, t.err
}

func (t *text) fail(field string, value any, limit string) {
	if t.err == nil {
		t.err = because(nil, field, value, limit)
	}
}

func (t *text) next() string {
	if t.read++; t.read > len(t.words) {
		return ""
	}
	return t.words[t.read-1]
}

func (t *text) is(field, want string) {
	if word := t.next(); word != want {
		t.fail(field, word, fmt.Sprintf("must be %q", want))
	}
}

func (t *text) bytes(field string, into []byte) {
	if word := t.next(); !readHex(into, word) {
		t.fail(field, word, fmt.Sprintf("must be %d bytes in lower-case hex", len(into)))
	}
}

func (t *text) number(field string) uint64 {
	word := t.next()
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != word {
		t.fail(field, word, "must be a number")
	}
	return n
}

// small returns a number that is at most most.
func (t *text) small(field string, most int) int {
	n := t.number(field)
	if n > uint64(most) && t.err == nil {
		t.err = because(ErrTooLarge, field, n, fmt.Sprintf("must be at most %d", most))
	}
	return int(min(n, uint64(most)))
}

// one returns the place of a word in a list, whose first is none.
func (t *text) one(field string, of []string) int {
	word := t.next()
	i := slices.Index(of, word)
	if i <= 0 {
		t.fail(field, word, "must be one of "+strings.Join(of[1:], ", "))
	}
	return i
}

// sealed is what a text says of the body.
type sealed struct {
	encoding Encoding
	length   int
	sum      [sha256.Size]byte
}

func seal(e Encoding, body []byte) sealed { return sealed{e, len(body), sha256.Sum256(body)} }

func (s sealed) words() []string {
	return []string{encodings[s.encoding], strconv.Itoa(s.length), hex.EncodeToString(s.sum[:])}
}

func (t *text) sealed(l Limits) (s sealed) {
	s.encoding = Encoding(t.one("encoding", encodings))
	s.length = t.small("length", l.Sent)
	t.bytes("sha256", s.sum[:])
	return s
}

// NameForm is what a name has to be, for errors.
const NameForm = "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}"

// IsName reports whether s is a name.
func IsName(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20 // letters in lower case
		if alnum := 'a' <= c && c <= 'z' || '0' <= s[i] && s[i] <= '9'; !alnum && (i == 0 || !strings.Contains("._:/-", s[i:i+1])) {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}
