// Package seconds is how structs with durations are in JSON: as numbers of seconds, under
// the names of their tags, which end in _s. A struct has the two methods
//
//	func (v T) MarshalJSON() ([]byte, error)     { return seconds.Marshal(v) }
//	func (v *T) UnmarshalJSON(data []byte) error { return seconds.Unmarshal(data, v) }
//
// Package encoding/json takes a duration for a number of nanoseconds, and has no tag that
// says otherwise. A field of type [Duration] needs no methods, and [Joined] adds fields to a struct that
// has them.
package seconds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"sync"
	"time"
)

// Marshal returns the JSON of a struct, or of what a pointer points to: as package
// encoding/json does it without a method, but with fields of type time.Duration and
// *time.Duration in seconds. The fields of embedded structs without a name of their own
// count as its fields; what methods those have does not matter. Whether <, > and & are escaped
// is left to the caller: json.Marshal escapes them, an Encoder as SetEscapeHTML says.
func Marshal(v any) ([]byte, error) {
	from := reflect.Indirect(reflect.ValueOf(v))
	t := twinOf(from.Type())
	to := reflect.New(t.of).Elem()
	for i, f := range t.fields {
		to.Field(i).Set(from.FieldByIndex(f).Convert(t.of.Field(i).Type))
	}
	return JSON(to.Interface())
}

// JSON returns the JSON of a value, in which <, > and & are as they are.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Unmarshal reads what Marshal has written into the struct that v points to. Fields that
// are not in data stay as they are.
func Unmarshal(data []byte, v any) error {
	to := reflect.ValueOf(v).Elem()
	t := twinOf(to.Type())
	from := reflect.New(t.of)
	for i, f := range t.fields {
		from.Elem().Field(i).Set(to.FieldByIndex(f).Convert(t.of.Field(i).Type))
	}
	if err := json.Unmarshal(data, from.Interface()); err != nil {
		return err
	}
	for i, f := range t.fields {
		field := to.FieldByIndex(f)
		field.Set(from.Elem().Field(i).Convert(field.Type()))
	}
	return nil
}

// twin is a struct type as JSON sees it: without methods, and with numbers for durations.
// Values of its fields convert to those of the other type, and back.
type twin struct {
	of     reflect.Type
	fields [][]int // of the other type, by field
}

var twins sync.Map // of *twin by reflect.Type

func twinOf(t reflect.Type) *twin {
	if known, ok := twins.Load(t); ok {
		return known.(*twin)
	}
	var w twin
	var fields []reflect.StructField
	w.add(&fields, t, nil)
	w.of = reflect.StructOf(fields)
	known, _ := twins.LoadOrStore(t, &w)
	return known.(*twin)
}

func (w *twin) add(fields *[]reflect.StructField, t reflect.Type, at []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(at[:len(at):len(at)], i)
		switch tag := f.Tag.Get("json"); {
		case tag == "-":
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
			w.add(fields, f.Type, index)
		case f.IsExported():
			w.fields = append(w.fields, index)
			*fields = append(*fields, reflect.StructField{Name: f.Name, Type: numbered(f.Type), Tag: f.Tag})
		}
	}
}

var (
	duration = reflect.TypeFor[time.Duration]()
	pointer  = reflect.TypeFor[*time.Duration]()
)

// numbered returns the type of a field of a twin.
func numbered(t reflect.Type) reflect.Type {
	switch t {
	case duration:
		return reflect.TypeFor[Duration]()
	case pointer:
		return reflect.TypeFor[*Duration]()
	}
	return t
}

// Duration is a duration that JSON has in seconds, exactly.
type Duration time.Duration

// MarshalJSON implements [json.Marshaler].
func (n Duration) MarshalJSON() ([]byte, error) {
	sign, ns := "", uint64(n)
	if n < 0 {
		sign, ns = "-", -ns
	}
	b := fmt.Appendf(nil, "%s%d.%09d", sign, ns/uint64(time.Second), ns%uint64(time.Second))
	return bytes.TrimSuffix(bytes.TrimRight(b, "0"), []byte(".")), nil
}

// UnmarshalJSON implements [json.Unmarshaler]. It takes fractions and exponents, and leaves the duration as
// it is for null.
func (n *Duration) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	if d, err := time.ParseDuration(string(data) + "s"); err == nil { // exactly
		*n = Duration(d)
		return nil
	}
	var s float64
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	ns := math.Round(s * float64(time.Second))
	if math.Abs(ns) >= math.MaxInt64 {
		return fmt.Errorf("%s seconds: must be less than 292 years", data)
	}
	*n = Duration(ns)
	return nil
}

// Joined is one object in JSON: the members of Of, and then those of More. Each is written by its own
// methods, if it has some. Both are structs or maps, and no name is in both.
type Joined[A, B any] struct {
	Of   A
	More B
}

// Join returns both as one.
func Join[A, B any](of A, more B) Joined[A, B] { return Joined[A, B]{of, more} }

// MarshalJSON implements [json.Marshaler].
func (j Joined[A, B]) MarshalJSON() ([]byte, error) {
	of, err := JSON(j.Of)
	if err != nil {
		return nil, err
	}
	more, err := JSON(j.More)
	if err != nil || string(more) == "{}" {
		return of, err
	}
	of = bytes.TrimSuffix(of, []byte("}"))
	if !bytes.HasSuffix(of, []byte("{")) {
		of = append(of, ',')
	}
	return append(of, more[1:]...), nil
}
