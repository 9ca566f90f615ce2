package filter

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern      string
		match, other []string
	}{
		{"*ball", []string{"ball", "baseball"}, []string{"balls", "bal"}},
		{"log*", []string{"log", "log/1"}, []string{"lo", "alog"}},
		{"a*b*a", []string{"aba", "abba", "a-b-b-a"}, []string{"ab", "aa", "abab"}},
		{"a*b*ab", []string{"abab", "axbxab"}, []string{"aab", "ab"}},
		{"*", []string{"", "x"}, nil},
		{"aba*aba", []string{"abaaba", "ababaaba"}, []string{"aba", "ababa"}},
		{`a\*b`, []string{"a*b"}, []string{"axb", `a\*b`}},
		{`a\\*`, []string{`a\`, `a\b`}, []string{"ab"}},
		{`\**`, []string{"*", "*x"}, []string{"x"}},
		{"", []string{""}, []string{"x"}},
	} {
		p, want := parsePattern(c.pattern)
		if want != "" {
			t.Errorf("%s: %s", c.pattern, want)
			continue
		}
		for _, s := range c.match {
			if !p.matches(s) {
				t.Errorf("%s does not match %q", c.pattern, s)
			}
		}
		for _, s := range c.other {
			if p.matches(s) {
				t.Errorf("%s matches %q", c.pattern, s)
			}
		}
	}
}

// A pattern matches what the regular expression does.
func TestPattern_regexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[ab*]{0,8}`).Draw(t, "pattern")
		text := rapid.StringMatching(`[ab]{0,10}`).Draw(t, "text")
		p, want := parsePattern(s)
		if bad := strings.Contains(s, "**") || strings.Count(s, "*") > MaxWildcards; bad != (want != "") {
			t.Fatalf("%s: %q", s, want)
		} else if bad {
			return
		}
		re := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, ".*") + "$")
		if p.matches(text) != re.MatchString(text) {
			t.Fatalf("%s and %s: %t", s, text, p.matches(text))
		}
	})
}
