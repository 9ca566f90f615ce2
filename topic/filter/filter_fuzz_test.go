package filter_test

import (
	"strings"
	"testing"

	"github.com/errandq/errand/topic/filter"
)

// FuzzParse shows that no document makes Parse or Match panic, that all faults are
// inside the document, and that a policy which is accepted is accepted again.
func FuzzParse(f *testing.F) {
	for _, c := range documentedKeys {
		f.Add([]byte(`{"key": `+c.conditions+`}`), []byte(`{"key": `+c.bodies[0]+`}`))
	}
	for _, c := range wholeBodies {
		f.Add([]byte(c.policy), []byte(c.match[0]))
	}
	f.Add([]byte(`{"a": [1e-400], "a": [{"wildcard": "**"}], "b.c": {}}`), []byte("[[[["))
	f.Fuzz(func(t *testing.T, doc, body []byte) {
		m := filter.NewMessage(map[string]filter.Attribute{"key": arr(string(body)), "a": num(string(body)), "b": str(string(body))}, body)
		for _, scope := range []filter.Scope{filter.Attributes, filter.Body} {
			p, err := filter.Parse(scope, doc)
			if err != nil {
				faults := filter.Faults(err)
				for _, fault := range faults {
					if fault.Offset < 0 || fault.Offset > len(doc) || !strings.HasPrefix(fault.Path, "$") || fault.Want == "" {
						t.Errorf("%q: %+v", doc, fault)
					}
				}
				if len(faults) == 0 || p != nil {
					t.Errorf("%q: %v, %v", doc, p, err)
				}
				continue
			}
			if again, err := filter.Parse(scope, []byte(p.String())); err != nil || again.Match(m) != p.Match(m) {
				t.Errorf("%q: %v", doc, err)
			}
		}
	})
}
