package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
)

// form is a page on which values are typed for a deed. With a Key it says what the deed would come to,
// and its button does it; else that is asked next.
type form struct {
	Title, Do, Button string
	Text              string // what it is about
	LastError, Note   string
	Errors            []string
	Inputs            []input
	Hidden            [][2]string
	Key               string // of the question that the form is in place of
	At                string
}

// keyFor sets the key of a form that says what its deed would come to: sending it answers that question.
func (x *request) keyFor(m *form) {
	f := url.Values{"do": {m.Do}}
	for _, h := range m.Hidden {
		f.Add(h[0], h[1])
	}
	m.Key = x.b.ledger.ask(x.who.Name, deeds[m.Do].digest(f), time.Now())
}

// from returns the page that a form was on, seen from the front, or at if that is not known. A form
// that asks again has it as a field. It is one of the pages in any case.
func (x *request) from(at string) string {
	s := x.PostForm.Get("from")
	if s == "" {
		s = x.Referer()
	}
	u, err := url.Parse(s)
	if err != nil || !strings.Contains(u.Path, "/") {
		return at
	}
	dir, name := path.Split(u.Path)
	switch p := pages[name]; {
	case strings.HasSuffix("/"+dir, "/job/") && (p == nil || isID(name)): // else all pages are below /job/
		if id, err := errand.ParseID(name); err == nil {
			return "job/" + id.String()
		}
		return at
	case p == nil || p.posts || p.still:
		return at
	}
	q, err := url.ParseQuery(u.RawQuery)
	if q.Del(doneName); err == nil && len(q) > 0 {
		return name + "?" + q.Encode()
	}
	return name
}

// input is a field of a form.
type input struct {
	Name, Label, Value, Hint string
	Err                      string // what is wrong with the value
	Area                     bool   // it is JSON, on many lines
	List                     []string
}

// compact returns JSON without space between its tokens, or what is no JSON as it is.
func compact(doc []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, doc) != nil {
		return doc
	}
	return b.Bytes()
}

// faultsOf returns the fields that an error is about, and the errors that are about none.
func faultsOf(err error) (fields []*errand.FieldError, others []error) {
	switch e := err.(type) { //nolint:errorlint // errors.As would find the first alone
	case nil:
		return nil, nil
	case *errand.FieldError:
		return []*errand.FieldError{e}, nil
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			f, o := faultsOf(inner)
			fields, others = append(fields, f...), append(others, o...)
		}
		return fields, others
	}
	return nil, []error{err}
}

// inputOf are the fields of a form by names that errand has for them, where these differ.
var inputOf = map[string]string{"due_at": "due", "unique.key": "unique", "unique": "unique", "detail": "note"}

// blame says beside the fields of a form what is wrong with them, and reports whether there was one.
func blame(inputs []input, err error) (blamed bool) {
	fields, _ := faultsOf(err)
	for _, e := range fields {
		name, _, _ := strings.Cut(e.Field, "[")
		for _, place := range []string{"redrive.", "change."} {
			name = strings.TrimPrefix(name, place)
		}
		name = cmp.Or(inputOf[name], strings.Split(name, ".")[0])
		for i := range inputs {
			if in := &inputs[i]; in.Name == name {
				in.Err, blamed = strings.TrimPrefix(in.Err+"\n"+messageOf(e), "\n"), true
			}
		}
	}
	return blamed
}

// filled puts the values that were typed into a form, and the errors in them beside them.
func (m *form) filled(f url.Values, err error) *content {
	c := &content{title: m.Title, data: m}
	for i := range m.Inputs {
		if in := &m.Inputs[i]; f.Has(in.Name) {
			in.Value = f.Get(in.Name)
		}
	}
	fields, others := faultsOf(err)
	blame(m.Inputs, err)
	for _, e := range fields {
		m.Errors = append(m.Errors, messageOf(e))
	}
	for _, e := range others {
		m.Errors = append(m.Errors, messageOf(e))
	}
	if err != nil {
		c.status = http.StatusBadRequest
	}
	return c
}

// reader reads typed values, and collects what is wrong with them.
type reader struct {
	f      url.Values
	faults []error
}

func (r *reader) fault(field string, value any, limit string) {
	r.faults = append(r.faults, &errand.FieldError{Field: field, Value: value, Limit: limit})
}

// text returns a value without the space around it.
func (r *reader) text(name string) string { return strings.TrimSpace(r.f.Get(name)) }

func (r *reader) number(name string) (n int) {
	if s := r.text(name); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			r.fault(name, s, "must be a number")
		}
	}
	return n
}

func (r *reader) duration(name string) (d time.Duration) {
	if s := r.text(name); s != "" {
		var err error
		if d, err = time.ParseDuration(s); err != nil {
			r.fault(name, s, "must be a time, as 30s or 2h")
		}
	}
	return d
}

// json returns a value that is JSON.
func (r *reader) json(name string) json.RawMessage {
	s := r.text(name)
	var v json.RawMessage
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		r.fault(name, s, "must be JSON: "+err.Error())
		return nil
	}
	return v
}

// args are the args of a kind that a form has.
func (r *reader) args(kind string) errand.RawArgs {
	return errand.RawArgs{OfKind: kind, JSON: r.json("args")}
}

func (r *reader) err() error { return errors.Join(r.faults...) }

// again returns the filled form with errors, as the page of its name.
func (x *request) again(page string, m *form, f url.Values, err error) *content {
	x.page = pages[page]
	return m.filled(f, err)
}
