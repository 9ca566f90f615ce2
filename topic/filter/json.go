package filter

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// kind is a kind of JSON value.
type kind uint8

const (
	isNull kind = iota
	isTrue
	isFalse
	isNumber
	isString
	isArray
	isObject
)

// node is a JSON value.
type node struct {
	kind       kind
	start, end int     // where it is written
	text       string  // of a string
	num        number  // of a number
	items      []node  // of an array
	fields     []field // of an object
}

// field is a member of an object.
type field struct {
	name       string
	start, end int // where the name is written
	value      node
}

// readJSON reads a document. The error is a [Fault].
func readJSON(doc string) (node, error) {
	// The check comes first, so that the scanner need not be able to fail. It
	// also bounds how deep values are nested.
	if data := []byte(doc); !json.Valid(data) {
		err := json.Unmarshal(data, new(json.RawMessage))
		at := len(doc)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at = max(0, int(syntax.Offset)-1)
		}
		return node{}, &Fault{Path: "$", Offset: at, Want: "must be JSON: " + err.Error()}
	}
	s := scanner{doc: doc}
	return s.value(), nil
}

// scanner reads a document that is known to be JSON. Its texts share the memory of
// the document.
type scanner struct {
	doc string
	at  int
}

// next returns the next byte that is not white space, and leaves it.
func (s *scanner) next() byte {
	for strings.IndexByte(" \t\r\n", s.doc[s.at]) >= 0 {
		s.at++
	}
	return s.doc[s.at]
}

// more passes the comma or the opening bracket before a member, and reports whether
// there is a member. If there is none, it passes the closing bracket.
func (s *scanner) more(closing byte) bool {
	if s.next() != closing {
		s.at++
		if s.next() != closing {
			return true
		}
	}
	s.at++
	return false
}

func (s *scanner) value() (n node) {
	c := s.next()
	n.start = s.at
	switch c {
	case '{':
		n.kind = isObject
		for s.more('}') {
			var f field
			s.next()
			f.start = s.at
			f.name = s.str()
			f.end = s.at
			s.next() // the colon
			s.at++
			f.value = s.value()
			n.fields = append(n.fields, f)
		}
	case '[':
		n.kind = isArray
		for s.more(']') {
			n.items = append(n.items, s.value())
		}
	case '"':
		n.kind, n.text = isString, s.str()
	case 'n', 't', 'f':
		n.kind = map[byte]kind{'n': isNull, 't': isTrue, 'f': isFalse}[c]
		s.word()
	default:
		n.kind = isNumber
		n.num, _ = parseNumber(s.word())
	}
	n.end = s.at
	return n
}

// word passes a number or a keyword.
func (s *scanner) word() string {
	start := s.at
	for s.at < len(s.doc) && strings.IndexByte(" \t\r\n,]}", s.doc[s.at]) < 0 {
		s.at++
	}
	return s.doc[start:s.at]
}

// str passes a string and returns its value.
func (s *scanner) str() (value string) {
	start, escaped := s.at, false
	for s.at++; s.doc[s.at] != '"'; s.at++ {
		if s.doc[s.at] == '\\' {
			escaped = true
			s.at++
		}
	}
	s.at++
	if !escaped {
		return s.doc[start+1 : s.at-1]
	}
	return unescaped(s.doc[start+1 : s.at-1])
}

// unescaped returns a text of JSON without its escapes. Half of a surrogate pair is no
// character; it becomes the three bytes that it would have in UTF-8, and so is equal to
// nothing else. encoding/json makes it U+FFFD, which is a character that others can write.
func unescaped(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b = append(b, s[i])
			continue
		}
		i++
		switch at := strings.IndexByte("bfnrt", s[i]); {
		case at >= 0:
			b = append(b, "\b\f\n\r\t"[at])
		case s[i] != 'u':
			b = append(b, s[i])
		default:
			r := hex(s[i+1:])
			i += 4
			if next := s[i+1:]; len(next) >= 6 && next[0] == '\\' && next[1] == 'u' {
				if pair := utf16.DecodeRune(r, hex(next[2:])); pair != utf8.RuneError {
					r = pair
					i += 6
				}
			}
			if utf16.IsSurrogate(r) {
				b = append(b, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
			} else {
				b = utf8.AppendRune(b, r)
			}
		}
	}
	return string(b)
}

// hex reads the four digits of an escape.
func hex(s string) (r rune) {
	for i := range 4 {
		c := rune(s[i] | 0x20) // of a digit it is the digit
		if c >= 'a' {
			c -= 'a' - 10 - '0'
		}
		r = r<<4 | (c - '0')
	}
	return r
}
