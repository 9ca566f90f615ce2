package dashboard

import (
	"bytes"
	"encoding/json"
	"strings"
)

// hiddenKeys are parts of the names of fields whose values are hidden from all but an [Admin].
var hiddenKeys = []string{"password", "passwd", "secret", "token", "api_key", "apikey", "authorization", "cookie", "credential", "private_key", "ssn", "card_number", "cvv", "iban"}

const hidden = "[hidden]"

// hides reports whether the value of a field is hidden.
func hides(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
	for _, k := range hiddenKeys {
		if strings.Contains(name, k) || strings.Contains(strings.ReplaceAll(name, "_", ""), strings.ReplaceAll(k, "_", "")) {
			return true
		}
	}
	return false
}

// redact returns JSON without the values of hidden fields, at any depth; all else stays byte for
// byte. What is no JSON is hidden whole.
func redact(doc []byte) []byte {
	if len(doc) == 0 {
		return doc
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	r := redactor{doc: doc, d: d}
	if err := r.value(false); err != nil {
		return []byte(`"` + hidden + `"`)
	}
	return append(r.out, doc[r.copied:]...)
}

type redactor struct {
	doc    []byte
	d      *json.Decoder
	out    []byte
	copied int // of doc
}

// value reads a value, and hides it if hide is true.
func (r *redactor) value(hide bool) error {
	before := int(r.d.InputOffset())
	t, err := r.d.Token()
	if err != nil {
		return err
	}
	if delim, ok := t.(json.Delim); ok {
		for r.d.More() {
			inner := hide
			if delim == '{' {
				name, err := r.d.Token()
				if err != nil {
					return err
				}
				text, _ := name.(string)
				inner = hide || hides(text)
			}
			if err := r.value(inner); err != nil {
				return err
			}
		}
		_, err := r.d.Token()
		return err
	}
	instead := []byte(`"` + hidden + `"`)
	if !hide {
		text, _ := t.(string)
		if instead = redactText(text); instead == nil {
			return nil
		}
	}
	// The offset before a token is that of the end of the one before: the colon, the comma and
	// the space between stay.
	end := int(r.d.InputOffset())
	start := before
	for start < end && strings.IndexByte(" \t\r\n:,", r.doc[start]) >= 0 {
		start++
	}
	r.out = append(append(r.out, r.doc[r.copied:start]...), instead...)
	r.copied = end
	return nil
}

// redactText returns what is shown instead of a string that holds JSON, such as the body of a
// message; nil if there is nothing to hide.
func redactText(s string) []byte {
	if at := strings.TrimLeft(s, " \t\r\n"); at == "" || at[0] != '{' && at[0] != '[' || !json.Valid([]byte(s)) {
		return nil
	}
	clean := redact([]byte(s))
	if string(clean) == s {
		return nil
	}
	quoted, err := json.Marshal(string(clean))
	if err != nil {
		return []byte(`"` + hidden + `"`)
	}
	return quoted
}

// shown returns what somebody may see of JSON that a producer has given: nothing, or redacted, or
// all.
func (x *request) shown(doc []byte) string {
	switch {
	case len(doc) == 0 || x.who.Role < Operator:
		return ""
	case x.who.Role < Admin:
		doc = redact(doc)
	}
	var b bytes.Buffer
	if json.Indent(&b, doc, "", "  ") != nil { // no JSON
		return string(doc)
	}
	return b.String()
}
