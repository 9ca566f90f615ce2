package dashboard

import (
	"bytes"
	"encoding/json"

	"github.com/errandq/errand"
)

// marshal returns JSON in which <, > and & are as they are, since the answer is no HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// joined is a struct with the fields of another one, or of a map, in one object of JSON.
type joined struct{ of, more any }

// MarshalJSON implements [json.Marshaler].
func (w joined) MarshalJSON() ([]byte, error) {
	of, err := marshal(w.of)
	if err != nil {
		return nil, err
	}
	more, err := marshal(w.more)
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
