// Package indent writes JSON for people.
package indent

import (
	"bytes"
	"encoding/json"
)

// JSON returns JSON with each value on a line of its own, indented by two spaces a level: each
// token stays as it is. What indents would make more than four times as long, as it is nested
// deeply, is returned as it is, and so is what is no JSON.
func JSON(doc []byte) []byte {
	var b bytes.Buffer
	if size(doc) > 4*len(doc)+4<<10 || json.Indent(&b, doc, "", "  ") != nil {
		return doc
	}
	return b.Bytes()
}

// size returns at least how many bytes JSON has with indents.
func size(doc []byte) (n int) {
	depth, text := 0, false
	for i := 0; i < len(doc); i++ {
		n++
		switch c := doc[i]; {
		case text && c == '\\':
			n++
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			n += 1 + 2*depth
		case c == '}' || c == ']':
			depth--
			n += 1 + 2*depth
		case c == ',':
			n += 1 + 2*depth
		case c == ':':
			n++
		}
	}
	return n
}
