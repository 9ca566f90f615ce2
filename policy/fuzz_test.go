package policy_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/errandq/errand/policy"
)

// checkParse holds what is true of every parser and input: it returns a value or
// faults with a path and a reason; and what is written for a value is read as
// an equal one, and written again as the same.
func checkParse[T any](t *testing.T, data []byte, profile policy.Profile, parse func([]byte, policy.Profile) (T, error)) T {
	doc, err := parse(data, profile)
	if err != nil {
		faults := policy.Faults(err)
		if len(faults) == 0 || len(faults) != strings.Count(err.Error(), "\n")+1 {
			t.Fatalf("%d faults in %q", len(faults), err)
		}
		for _, f := range faults {
			if f.Path == "" || f.Want == "" {
				t.Fatalf("incomplete fault %+v", f)
			}
		}
		return doc
	}
	written, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	back, err := parse(written, profile)
	if err != nil {
		t.Fatalf("%s was written and is refused: %v", written, err)
	}
	if !reflect.DeepEqual(back, doc) {
		t.Fatalf("%+v became %+v through %s", doc, back, written)
	}
	return doc
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(subscription))
	f.Add([]byte(topic))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, profile := range []policy.Profile{policy.ProfileQueue, policy.ProfileSNS} {
			p := checkParse(t, data, profile, policy.ParsePolicy)
			if err := profile.Validate(p); p != (policy.Policy{}) && err != nil {
				t.Fatalf("read %+v, which is not valid: %v", p, err)
			}
			d := checkParse(t, data, profile, policy.ParseDocument)
			if d.Retry != nil && profile.Validate(*d.Retry) != nil {
				t.Fatalf("read %+v, which is not valid", d.Retry)
			}
			checkParse(t, data, profile, policy.ParseTopic)
			checkParse(t, data, profile, policy.Parse)
		}
		// SNS is the stricter profile.
		if d, err := policy.ParseDocument(data, policy.ProfileSNS); err == nil {
			if q, err := policy.ParseDocument(data, policy.ProfileQueue); err != nil || !reflect.DeepEqual(d, q) {
				t.Fatalf("profile sns reads %+v, profile queue %+v %v", d, q, err)
			}
		}
	})
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"120", "Fri, 31 Dec 1999 23:59:59 GMT", "Friday, 31-Dec-99 23:59:59 GMT", "Fri Dec 31 23:59:59 1999", "-1", "1.5"} {
		f.Add("Retry-After", s)
	}
	f.Add("X-Amz-Retry-After", "1500")
	f.Fuzz(func(t *testing.T, name, value string) {
		d, ok := policy.ParseRetryAfter(map[string][]string{name: {value}}, time.Unix(0, 0))
		if d < 0 || !ok && d != 0 {
			t.Fatalf("%v %v", d, ok)
		}
	})
}

// Whatever a server answers, the error is one line that a log can show.
func FuzzStatusError(f *testing.F) {
	f.Add(503, "POST", "https://host/path", "two\r\nlines \x1b[31m\xff\u2028")
	f.Fuzz(func(t *testing.T, status int, method, url, text string) {
		e := policy.StatusError{Status: status, After: time.Hour, Method: method, URL: url, Text: text}
		s := e.Error()
		unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
		if len(s) >= 1024 || !utf8.ValidString(s) || strings.ContainsFunc(s, unprintable) || strings.Contains(s, "  ") {
			t.Fatalf("%d bytes: %q", len(s), s)
		}
	})
}
