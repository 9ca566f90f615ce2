package dashboard

import (
	"bytes"
	"encoding/json"

	"github.com/errandq/errand"
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

// joined is a struct with the fields of another one, or of a map, in one object of JSON.
type joined struct{ of, more any }

// MarshalJSON implements [json.Marshaler].
func (w joined) MarshalJSON() ([]byte, error) {
	of, err := json.Marshal(w.of)
	if err != nil {
		return nil, err
	}
	more, err := json.Marshal(w.more)
	if err != nil || string(more) == "{}" {
		return of, err
	}
	of = bytes.TrimSuffix(of, []byte("}"))
	if !bytes.HasSuffix(of, []byte("{")) {
		of = append(of, ',')
	}
	return append(of, more[1:]...), nil
}

// settingsJSON returns settings as the command has them, each with what is in use of its caps.
func settingsJSON(all []errand.LaneSettings, stats []errand.LaneStats) []joined {
	out := []joined{}
	for i := range all {
		out = append(out, joined{all[i], all[i].CapUse(stats)})
	}
	return out
}
