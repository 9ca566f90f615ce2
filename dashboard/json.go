package dashboard

import (
	"bytes"
	"encoding/json"
)

// rawJSON returns JSON that a producer has given as somebody may see it: nothing, or redacted, or
// byte for byte.
func (x *request) rawJSON(doc []byte) json.RawMessage {
	switch {
	case len(doc) == 0 || x.who.Role < Operator:
		return nil
	case x.who.Role < Admin:
		return json.RawMessage(x.shown(doc))
	}
	return doc
}

// joined is a struct with further fields, in one object of JSON.
type joined struct {
	of   any
	more map[string]any
}

// MarshalJSON implements [json.Marshaler].
func (w joined) MarshalJSON() ([]byte, error) {
	of, err := json.Marshal(w.of)
	if err != nil || len(w.more) == 0 {
		return of, err
	}
	more, err := json.Marshal(w.more)
	if err != nil {
		return nil, err
	}
	of = bytes.TrimSuffix(of, []byte("}"))
	if !bytes.HasSuffix(of, []byte("{")) {
		of = append(of, ',')
	}
	return append(of, more[1:]...), nil
}
