package filter

import (
	"fmt"
	"strings"
)

// pattern is a text with wildcards.
type pattern struct {
	// literals are the texts around the wildcards, so one more than these. The
	// first and the last may be empty.
	literals  []string
	wildcards int
}

// parsePattern reads a pattern, in which * stands for any characters, also none.
// \* and \\ stand for the characters themselves. want is the rule that is broken,
// if any.
func parsePattern(s string) (p pattern, want string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && (i+1 == len(s) || s[i+1] != '*' && s[i+1] != '\\'):
			return p, `must not have a backslash that is not before a * or another backslash`
		case s[i] == '\\':
			i++
			b.WriteByte(s[i])
		case s[i] != '*':
			b.WriteByte(s[i])
		case i > 0 && p.wildcards > 0 && b.Len() == 0 && s[i-1] == '*':
			return p, "must not have two * in a row"
		default:
			p.literals = append(p.literals, b.String())
			p.wildcards++
			b.Reset()
		}
	}
	p.literals = append(p.literals, b.String())
	if p.wildcards > MaxWildcards {
		return p, fmt.Sprintf("must have at most %d wildcards", MaxWildcards)
	}
	return p, ""
}

// matches reports whether the whole text matches.
func (p *pattern) matches(s string) bool {
	first, last := p.literals[0], p.literals[p.wildcards]
	if p.wildcards == 0 {
		return s == first
	}
	s, ok := strings.CutPrefix(s, first)
	if !ok {
		return false
	}
	if s, ok = strings.CutSuffix(s, last); !ok {
		return false
	}
	// The leftmost place of each literal leaves the most for the next ones.
	for _, literal := range p.literals[1:p.wildcards] {
		at := strings.Index(s, literal)
		if at < 0 {
			return false
		}
		s = s[at+len(literal):]
	}
	return true
}
