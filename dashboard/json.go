package dashboard

import (
	"slices"

	"github.com/errandq/errand"
	encode "github.com/errandq/errand/internal/seconds"
)

// marshal returns JSON in which <, > and & are as they are, since the answer is no HTML.
func marshal(v any) ([]byte, error) { return encode.JSON(v) }

// joined is a struct with the fields of another one, or of a map, in one object of JSON.
type joined = encode.Joined[any, any]

// settingsJSON returns settings as the command has them, each with what is in use of its caps.
func settingsJSON(all []errand.LaneSettings, stats []errand.LaneStats) []joined {
	out := []joined{}
	for i := range all {
		out = append(out, joined{Of: all[i], More: all[i].CapUse(stats)})
	}
	return out
}

// textNames are the members of JSON for programs whose texts handlers, or somebody at the other side,
// have written.
var textNames = []string{"by", "error", "stack", "text", "note", "detail", "reason", "why", "what"}

// texts returns JSON for programs with what keys.text leaves of the members that are such texts.
func (k keys) texts(doc []byte) []byte {
	r := redactor{keys: k, doc: doc}
	r.space()
	r.texts()
	return r.result()
}

// texts passes over a value, and hides what is hidden in the texts in it.
func (r *redactor) texts() {
	first := r.doc[r.at]
	if first != '{' && first != '[' {
		r.pass()
		return
	}
	r.at++
	for r.space(); r.doc[r.at] != '}' && r.doc[r.at] != ']'; r.space() {
		if first == '{' {
			name := r.string()
			if r.space(); r.doc[r.at] == '"' && slices.Contains(textNames, name) {
				r.text()
				continue
			}
		}
		r.texts()
	}
	r.at++
}

// text passes over a string, and hides what is hidden in it.
func (r *redactor) text() {
	start := r.at
	s := r.string()
	if clean := r.keys.text(s); clean != s {
		quoted, _ := marshal(clean) // no text fails
		r.cuts = append(r.cuts, patch{start, r.at, quoted})
	}
}
