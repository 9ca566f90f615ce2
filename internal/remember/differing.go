package remember

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// Differing returns the names of the members in which the documents of two entries differ,
// sorted.
func Differing(a, b []byte) (names []string, err error) {
	var x, y map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		return nil, err
	}
	for name, value := range x {
		if bytes.Equal(value, y[name]) {
			delete(y, name)
		} else {
			y[name] = value
		}
	}
	return slices.Sorted(maps.Keys(y)), nil
}
