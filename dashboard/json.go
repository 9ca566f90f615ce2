package dashboard

import (
	"bytes"
	"encoding/json"

	"github.com/errandq/errand"
)

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
