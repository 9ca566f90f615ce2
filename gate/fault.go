package gate

import (
	"errors"
	"reflect"

	"github.com/errandq/errand"
)

// faults are all that is wrong with the input of one call.
type faults []error

func (f *faults) field(name string, value any, limit string) {
	*f = append(*f, &errand.FieldError{Field: name, Value: value, Limit: limit})
}

func (f *faults) err() error { return errors.Join(*f...) }

// isNil reports whether a gate is nil or a nil pointer.
func isNil(g errand.Gate) bool {
	if g == nil {
		return true
	}
	v := reflect.ValueOf(g)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
