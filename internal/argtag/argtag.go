// Package argtag reads the tag errand of the fields of args: which of them are secret, and which
// make the unique key.
package argtag

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Tag is what the tag errand of a field says.
type Tag struct {
	Secret bool // its value is hidden from who may not see it
	Unique bool // its value is part of the key of errand.Unique.ByArgs
}

// Of returns the tag of a field. What it does not know it leaves out, see [Check].
func Of(f *reflect.StructField) (t Tag) {
	for word := range strings.SplitSeq(f.Tag.Get("errand"), ",") {
		t.Secret, t.Unique = t.Secret || word == "secret", t.Unique || word == "unique"
	}
	return t
}

// Check returns an error for a tag that can be reached from a type and has no meaning.
func Check(t reflect.Type) error { return check(t, map[reflect.Type]bool{}) }

func check(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return check(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if tag, ok := f.Tag.Lookup("errand"); ok && !slices.Contains([]string{"secret", "unique", "unique,secret", "secret,unique"}, tag) {
				return fmt.Errorf(`the tag errand of field %s of %v must be "secret", not %q; or "unique", or "unique,secret"`, f.Name, t, tag)
			}
			if err := check(f.Type, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// Name returns how encoding/json calls a field, and whether the field's tag says so. It returns ""
// for a field that it leaves out.
func Name(f *reflect.StructField) (name string, named bool) {
	tag := f.Tag.Get("json")
	name, _, _ = strings.Cut(tag, ",")
	if strings.ContainsFunc(name, notOfJSON) {
		name = ""
	}
	if tag == "-" || !f.IsExported() && !f.Anonymous {
		return "", false
	}
	return cmp.Or(name, f.Name), name != ""
}

// notOfJSON reports whether encoding/json refuses a name with this rune, and takes that of the field.
func notOfJSON(r rune) bool {
	return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// Key are the fields of args that make a unique key.
type Key struct {
	// Secret is true if one of them is secret, or is within a field that is.
	Secret bool
	of     *part
}

// part says what of a value is in a key: all of it, or parts of what is in it.
type part struct {
	each *part            // of each element of a list, or value of a map; nil: there are none
	by   map[string]*part // of the fields of an object
}

var whole = &part{}

// KeyOf returns the fields of a type that have the tag unique, or nil if none has it. It returns an
// error if the tag is where it would have no effect.
func KeyOf(t reflect.Type) (*Key, error) {
	b := builder{parts: map[reflect.Type]*part{}, has: map[reflect.Type]bool{}}
	if !b.reaches(t) {
		return nil, nil
	}
	of, err := b.part(t)
	if err != nil {
		return nil, err
	}
	return &Key{b.secret, of}, nil
}

// Of returns what of decoded args makes the key.
func (k *Key) Of(args any) any { return k.of.of(args) }

func (p *part) of(v any) any {
	if p == whole {
		return v
	}
	switch v := v.(type) {
	case []any:
		if p.each == nil {
			return v
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = p.each.of(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, in := range v {
			if within := cmp.Or(p.by[name], p.each); within != nil {
				out[name] = within.of(in)
			}
		}
		return out
	}
	return v // null
}

// builder makes the parts of types.
type builder struct {
	parts  map[reflect.Type]*part
	has    map[reflect.Type]bool
	secret bool
}

// reaches reports whether a field with the tag unique can be reached from a type, by fields that are
// in its JSON.
func (b *builder) reaches(t reflect.Type) bool {
	has, known := b.has[t]
	if !known {
		has = reaches(t, map[reflect.Type]bool{}, func(t Tag) bool { return t.Unique })
		b.has[t] = has
	}
	return has
}

func reaches(t reflect.Type, seen map[reflect.Type]bool, wanted func(Tag) bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return reaches(t.Elem(), seen, wanted)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if wanted(Of(&f)) {
				return true
			}
			if name, _ := Name(&f); name != "" && reaches(f.Type, seen, wanted) {
				return true
			}
		}
	}
	return false
}

var marshalers = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()}

// part returns what of a value of a type is in the key, as parts of it are.
func (b *builder) part(t reflect.Type) (*part, error) {
	if t.Kind() == reflect.Pointer {
		return b.part(t.Elem())
	}
	if p := b.parts[t]; p != nil {
		return p, nil
	}
	if slices.ContainsFunc(marshalers, reflect.PointerTo(t).Implements) {
		return nil, fmt.Errorf(`%v writes its JSON itself: put the tag errand:"unique" on the field that has a %v, or set Unique.Key`, t, t)
	}
	p := &part{}
	b.parts[t] = p
	var err error
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		p.each, err = b.part(t.Elem())
	case reflect.Struct:
		p.by, err = b.fields(t)
	}
	return p, err
}

// field is a field of an object, or one that another field of its name hides.
type field struct {
	reflect.StructField
	of     reflect.Type // the struct
	name   string
	named  bool
	depth  int
	unique bool // also if it is embedded in a field that is
	secret bool
}

// fields returns the parts of the fields of a struct that are in the key.
func (b *builder) fields(t reflect.Type) (map[string]*part, error) {
	var all []field
	if err := collect(&all, t, field{}, map[reflect.Type]bool{}); err != nil {
		return nil, err
	}
	by := map[string]*part{}
	for i := range all {
		f := &all[i]
		if !f.unique && !b.reaches(f.Type) {
			continue
		}
		if !shown(all, f) {
			return nil, fmt.Errorf(`field %s of %v has the tag errand:"unique", or a field in it has, but the JSON of %v has another field called %q: give one of the two another JSON name`, f.Name, f.of, t, f.name)
		}
		b.secret = b.secret || f.secret
		if f.unique {
			b.secret = b.secret || reaches(f.Type, map[reflect.Type]bool{}, func(t Tag) bool { return t.Secret })
			by[f.name] = whole
			continue
		}
		p, err := b.part(f.Type)
		if err != nil {
			return nil, err
		}
		by[f.name] = p
	}
	return by, nil
}

// collect adds the fields that encoding/json sees in a struct, which is embedded in outer.
func collect(all *[]field, t reflect.Type, outer field, within map[reflect.Type]bool) error {
	if within[t] {
		return nil
	}
	within[t] = true
	defer delete(within, t)
	for i := range t.NumField() {
		f := field{StructField: t.Field(i), of: t, depth: outer.depth}
		tag := Of(&f.StructField)
		f.unique, f.secret = outer.unique || tag.Unique, outer.secret || tag.Secret
		f.name, f.named = Name(&f.StructField)
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		embedded := f.Anonymous && !f.named && inner.Kind() == reflect.Struct
		switch {
		case f.name == "" || !f.IsExported() && !embedded && inner.Kind() != reflect.Struct:
			if tag.Unique {
				return fmt.Errorf(`field %s of %v has the tag errand:"unique", but is not in the JSON: export it and give it a JSON name, or take the tag away`, f.Name, t)
			}
		case embedded:
			f.depth++
			if err := collect(all, inner, f, within); err != nil {
				return err
			}
		default:
			*all = append(*all, f)
		}
	}
	return nil
}

// shown reports whether encoding/json takes f of all fields with its name: the least deep of them,
// and of these the only one whose tag says the name, or the only one.
func shown(all []field, f *field) bool {
	for i := range all {
		o := &all[i]
		if o == f || o.name != f.name {
			continue
		}
		if o.depth < f.depth || o.depth == f.depth && (o.named || !f.named) {
			return false
		}
	}
	return true
}
