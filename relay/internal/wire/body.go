package wire

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/errandq/errand/internal/seconds"
)

// Encoding is how a body is compressed. The zero value is none of them.
type Encoding uint8

// The encodings.
const (
	Identity Encoding = iota + 1
	Gzip
)

var encodings = []string{"", "identity", "gzip"}

func (l Limits) withDefaults() Limits {
	l.Sent = cmp.Or(l.Sent, 1<<20)
	l.Unpacked = cmp.Or(l.Unpacked, 16<<20)
	l.Headers = cmp.Or(l.Headers, 16<<10)
	return l
}

// pack returns the body of a value.
func pack(e Encoding, v any) ([]byte, error) {
	text, err := seconds.JSON(v)
	if err != nil || e != Gzip {
		return text, err
	}
	var b bytes.Buffer
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	w.Reset(&b)
	_, err = w.Write(text)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

// writers are of gzip. A new one takes 800 KB, which is more work than a body.
var writers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// read returns a body as it was sent, if it is the one that was signed.
func (s sealed) read(body io.Reader) ([]byte, error) {
	sent, err := io.ReadAll(io.LimitReader(body, int64(s.length)+1))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) { // which is a body that is too short
		return nil, fmt.Errorf("errand: relay: read body: %w", err)
	}
	if len(sent) != s.length {
		return nil, wrong("body", min(len(sent), s.length+1), "must have %d bytes, as is signed", s.length)
	}
	if sha256.Sum256(sent) != s.sum {
		return nil, wrong("body", len(sent), "must have the SHA-256 that is signed")
	}
	return sent, nil
}

// unpack returns the JSON of a body.
func (s sealed) unpack(sent []byte, l Limits) ([]byte, error) {
	g := &guard{r: bytes.NewReader(sent), most: l.Unpacked}
	if s.encoding == Gzip && len(sent) > 0 {
		unpacked, err := gzip.NewReader(g.r)
		if err != nil {
			return nil, because(err, "body", len(sent), "must be gzip")
		}
		g.r = unpacked
	}
	text, err := io.ReadAll(g)
	if err == nil && !utf8.Valid(text) {
		err = wrong("body", len(text), "must be UTF-8")
	}
	return text, err
}

// guard reads JSON, and fails as soon as it is too long or too deep, or has a byte that no JSON has.
type guard struct {
	r             io.Reader
	n, most       int
	levels        int
	text, escaped bool
}

func (g *guard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, because(err, "body", g.n, "must be gzip")
	}
	if g.n += n; g.n > g.most {
		return 0, atMost("unpacked", g.n, g.most)
	}
	for _, c := range p[:n] {
		switch {
		case c < ' ' && c != '\t' && c != '\n' && c != '\r':
			return 0, wrong("body", fmt.Sprintf("with the byte %d", c), "must be JSON")
		case g.escaped:
			g.escaped = false
		case c == '\\':
			g.escaped = g.text
		case c == '"':
			g.text = !g.text
		case g.text:
		case c == '[' || c == '{':
			if g.levels++; g.levels > maxLevels {
				return 0, atMost("levels", g.levels, maxLevels)
			}
		case c == ']' || c == '}':
			g.levels--
		}
	}
	return n, err
}

// decode decodes a JSON object into v.
func decode(field string, text []byte, v any) error {
	d := decoder(text)
	if err := d.Decode(v); err != nil {
		return because(err, field, len(text), "must be JSON of this version")
	}
	return end(field, d)
}

// list decodes a JSON array of at most most elements.
func list[T any](field string, text []byte, most int) (all []T, err error) {
	d := decoder(text)
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, because(err, field, len(text), "must be a JSON array")
	}
	for d.More() {
		if err := atMost(field, len(all)+1, most); err != nil {
			return nil, err
		}
		var v T
		if err := d.Decode(&v); err != nil {
			return nil, because(err, fmt.Sprintf("%s[%d]", field, len(all)), len(text), "must be JSON of this version")
		}
		all = append(all, v)
	}
	if _, err := d.Token(); err != nil {
		return nil, because(err, field, len(text), "must be a JSON array")
	}
	return all, end(field, d)
}

func decoder(text []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d
}

func end(field string, d *json.Decoder) error {
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return wrong(field, "with more behind it", "must be one JSON document")
	}
	return nil
}
