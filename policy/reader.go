package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

// reader reads a document and collects what is wrong with it.
type reader struct {
	profile Profile
	stored  bool // perhaps by an older build, see [Policy.hasty]
	faults  []*Fault
}

func (r *reader) fault(path string, value []byte, want string) {
	r.faults = append(r.faults, &Fault{Path: path, Value: shorten(string(value)), Want: want})
}

// valid reports whether raw is JSON at all; the other methods rely on it.
func (r *reader) valid(raw []byte) bool {
	err := json.Unmarshal(raw, new(json.RawMessage))
	if err != nil {
		r.fault("document", nil, "is not JSON: "+err.Error())
	}
	return err == nil
}

// object reads the members of an object: it calls read for each in order, which
// reports whether it knows the name. For null, which means that the member is absent,
// value is nil. path names the object in faults; it is empty at the top.
func (r *reader) object(path string, raw []byte, read func(path, name string, value []byte) (known bool)) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, _ := dec.Token(); t != json.Delim('{') {
		r.fault(cmp.Or(path, "document"), compact(raw), "must be an object")
		return
	}
	seen := map[string]bool{}
	for dec.More() {
		t, _ := dec.Token()
		name, _ := t.(string)
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return // not reached: the document is valid
		}
		written, inner := compact(value), member(path, name)
		if string(value) == "null" {
			value = nil
		}
		if seen[name] {
			r.fault(inner, written, "is given twice")
		} else if !read(inner, name, value) {
			r.fault(inner, written, "is not known")
		}
		seen[name] = true
	}
}

// compact returns a value on one line, for a fault.
func compact(value []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return value
	}
	return b.Bytes()
}

// member returns the path of a member of the object at path. A name that would
// make the path hard to read is quoted.
func member(path, name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '"' || r == '.' || r > '~' }) || name == "" {
		name = quote(name)
	}
	if name = shorten(name); path == "" {
		return name
	}
	return path + "." + name
}

// parse reads a document with the method of reader that knows its form.
func parse[T any](data []byte, p Profile, form func(r *reader, path string, raw []byte) T) (doc T, err error) {
	return read(&reader{profile: p}, data, form)
}

func read[T any](r *reader, data []byte, form func(r *reader, path string, raw []byte) T) (doc T, err error) {
	if r.valid(data) {
		doc = form(r, "", data)
	}
	if err = join(r.faults); err != nil {
		doc = *new(T)
	}
	return doc, err
}

// unmarshal is what UnmarshalJSON does for a type with such a method of reader.
func unmarshal[T any](data []byte, to *T, form func(r *reader, path string, raw []byte) T) error {
	if string(data) == "null" {
		return nil
	}
	doc, err := read(&reader{profile: ProfileQueue, stored: true}, data, form)
	if err == nil {
		*to = doc
	}
	return err
}
