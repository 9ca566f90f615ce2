package indent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/errandq/errand/internal/indent"
)

func TestJSON(t *testing.T) {
	deep := strings.Repeat("[", 1000) + strings.Repeat("0,", 5000) + "0" + strings.Repeat("]", 1000)
	for in, want := range map[string]string{
		`{"a":[1,{}],"b":"{[,"}`: "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": \"{[,\"\n}",
		`1.50`:                   `1.50`,
		`{"a":`:                  `{"a":`,
		``:                       ``,
		deep:                     deep,
	} {
		got := string(indent.JSON([]byte(in)))
		if got != want {
			t.Errorf("%.80s: %.200s, want %.200s", in, got, want)
		}
		if json.Valid([]byte(in)) && len(got) > 4*len(in)+8<<10 {
			t.Errorf("%.80s: %d bytes of %d", in, len(got), len(in))
		}
	}
}
