package dashboard

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/indent"
)

// hiddenKeys are parts of the names of fields whose values are hidden from all but an [Admin].
// Options.Hidden adds to them.
var hiddenKeys = []string{
	"password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "accesskey", "authorization", "bearer", "signature",
	"cookie", "credential", "privatekey", "ssn", "cardnumber", "cvv", "iban",
}

// hiddenNames are such names as a whole, which are parts of others too.
var hiddenNames = bareAll("pass", "auth")

// nameKeys and valueKeys are how objects call a name and its value, as {"name": "pin", "value": 1}.
var nameKeys, valueKeys = bareAll("name", "key", "field", "header"), bareAll("value", "values")

const hidden = "[hidden]"

// bare returns a name without what others spell in another way: case, and what is between words.
func bare(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return folded(r)
	}, name)
}

func bareAll(names ...string) []string {
	for i, name := range names {
		names[i] = bare(name)
	}
	return names
}

// folded returns the least of the letters that encoding/json takes for each other in names.
func folded(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

// keys are names of fields, as bare returns them, any part of a name.
type keys []string

// newKeys returns the names that are hidden: the default ones, and more.
func newKeys(more []string) (all keys) {
	for i, k := range slices.Concat(hiddenKeys, more) {
		k = bare(k)
		if k == "" {
			n := i - len(hiddenKeys)
			panic(&errand.FieldError{Field: "hidden[" + itoa(n) + "]", Value: more[n], Limit: "must be a part of a name: letters or digits"})
		}
		all = append(all, k)
	}
	return all
}

// hides reports whether the value of a field of this name is hidden.
func (k keys) hides(name string) bool {
	name = bare(name)
	return slices.Contains(hiddenNames, name) || slices.ContainsFunc(k, func(key string) bool { return strings.Contains(name, key) })
}

// mention reports whether a hidden name is one of the words of a text.
func (k keys) mention(s string) bool {
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.", r)
	}) {
		if k.hides(word) {
			return true
		}
	}
	return false
}

var (
	// userInURL is who a URL says asks for it, with the password.
	userInURL = regexp.MustCompile(`://[^\s/?#]*@`)
	// oddUserInURL is the same, with a password that has /, ? or #. What begins as a port is one.
	oddUserInURL = regexp.MustCompile(`://(?::|[^\s/?#@:[]+:(?:[^\s\d]|\d+[^\s\d/?#]))\S*@`)
	// cutInURL is the beginning of them, at the end of the text or where dots stand for the rest: a
	// text may have been cut before the @. What portAtEnd matches is a host with its port.
	cutInURL  = regexp.MustCompile(`://(?:[^\s/?#@:["']*:[^\s/?#@][^\s@]*?(?:…|\.\.\.|$)|[^\s/?#@]*(?:…|\.\.\.))`)
	portAtEnd = regexp.MustCompile(`^://[^:]*:\d{1,5}(?:[/?#].*|["')\]}>.,;:]{0,2})$`)
	// named is a name and what is between it and its value, as the query of a URL, a form, a
	// connection string, a header or YAML has it.
	named = regexp.MustCompile(`([^\s?&#;,=:'"]+)["']?\s*([=:]+>?)\s*`)
	// valued is a value behind a =, and lineValued one behind a colon.
	valued     = regexp.MustCompile(`^(?:"[^"]*"|'[^']*'|(?i:(?:basic|bearer|digest|token)\s+)?[^\s&#;]*)`)
	lineValued = regexp.MustCompile(`^(?:"[^"]*"|'[^']*'|[^\r\n]*)`)
	// escaped is text with a name and a value as a value of a URL has it, and percent a byte there.
	escaped = regexp.MustCompile(`[^\s?&#;,='"]*%(?:25)*3[DdAa][^\s&#;]*`)
	percent = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
)

// text returns a text without what is hidden in it: users and passwords of URLs, and the values of
// hidden names. A value that is escaped as in a URL is hidden whole if something in it is.
func (k keys) text(s string) string { return k.textIn(s, 0) }

// mostEscapes is how often a text may be escaped.
const mostEscapes = 3

func (k keys) textIn(s string, escapes int) string {
	if escapes < mostEscapes {
		s = escaped.ReplaceAllStringFunc(s, func(part string) string {
			plain := percent.ReplaceAllStringFunc(part, func(c string) string {
				b, _ := hex.DecodeString(c[1:]) // which has two digits
				return string(b)
			})
			if k.textIn(plain, escapes+1) != plain {
				return hidden
			}
			return part
		})
	}
	if strings.Contains(s, "://") {
		s = userInURL.ReplaceAllString(s, "://"+hidden+"@")
		s = oddUserInURL.ReplaceAllString(s, "://"+hidden+"@")
		s = cutInURL.ReplaceAllStringFunc(s, func(part string) string {
			if portAtEnd.MatchString(part) {
				return part
			}
			return "://" + hidden
		})
	}
	if !strings.ContainsAny(s, "=:") {
		return s
	}
	var b strings.Builder
	for m := named.FindStringSubmatchIndex(s); m != nil; m = named.FindStringSubmatchIndex(s) {
		name, colon := s[m[2]:m[3]], s[m[4]:m[5]] == ":"
		b.WriteString(s[:m[1]])
		s = s[m[1]:] // with the value, in which there may be names
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if len(name) > mostName || colon && strings.HasPrefix(name, "//") || !k.hides(name) { // a host has a port
			continue
		}
		value := valued
		if colon {
			value = lineValued
		}
		if n := len(value.FindString(s)); n > 0 {
			b.WriteString(hidden)
			s = s[n:]
		}
	}
	return b.String() + s
}

// mostName is how long a name may be. What is longer is a value.
const mostName = 64

// redactor hides values in JSON.
type redactor struct {
	keys keys
	root []string // the paths of a whole document
	all  bool     // hides all values that are neither object nor array
	doc  []byte
	at   int
	cuts []patch
}

// patch is a part of a document that is replaced. One may be within another.
type patch struct {
	from, to int
	by       []byte
}

// redact returns JSON without hidden values: those of fields that keys or paths name, see
// errand.WorkerInfo, at any depth, and with all each value that is no object and no array, and names
// that are none of fields. The rest stays byte for byte, except for strings in which something is
// hidden: they hold JSON, URLs or names with values. What is no JSON is hidden whole.
func redact(doc []byte, k keys, paths []string, all bool) []byte {
	switch {
	case len(doc) == 0:
		return doc
	case !json.Valid(doc): // which bounds the depth too
		return slices.Clone(hiddenJSON)
	}
	r := redactor{keys: k, root: foldedAll(paths), all: all, doc: doc}
	r.space()
	r.value(r.root, false)
	return r.result()
}

// result returns the document with all that was cut out of it replaced.
func (r *redactor) result() []byte {
	if len(r.cuts) == 0 {
		return r.doc
	}
	slices.Reverse(r.cuts) // of two for one part the later one hides it whole
	slices.SortStableFunc(r.cuts, func(a, b patch) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	out, done := make([]byte, 0, len(r.doc)), 0
	for _, c := range r.cuts {
		if c.from >= done { // else it is within the one before
			out = append(append(out, r.doc[done:c.from]...), c.by...)
			done = c.to
		}
	}
	return append(out, r.doc[done:]...)
}

// space passes over what is between tokens.
func (r *redactor) space() {
	for r.at < len(r.doc) && strings.IndexByte(" \t\r\n:,", r.doc[r.at]) >= 0 {
		r.at++
	}
}

// value passes over a value that is at some paths, and hides it or what is hidden in it.
func (r *redactor) value(paths []string, hide bool) {
	start, first := r.at, r.doc[r.at]
	simple := first != '{' && first != '['
	if hide || slices.ContainsFunc(paths, isWhole) || r.all && simple {
		r.pass()
		r.hide(start)
		return
	}
	if simple {
		if r.pass(); first == '"' {
			r.inner(start)
		}
		return
	}
	r.at++
	var o object
	for r.space(); r.doc[r.at] != '}' && r.doc[r.at] != ']'; r.space() {
		if first == '[' {
			r.value(paths, false)
			continue
		}
		r.member(paths, &o)
	}
	r.at++
	if o.secret {
		r.cuts = append(r.cuts, o.values...)
	}
}

// object is what is known of the members of an object.
type object struct {
	secret bool // a member says that the values are those of a hidden name
	values []patch
}

// member passes over a member of an object.
func (r *redactor) member(paths []string, o *object) {
	from := r.at
	name := r.string()
	if r.all && !isName(name) {
		r.hide(from)
	}
	r.space()
	inside, hide := inside(paths, strings.Map(folded, name)), r.keys.hides(name)
	switch start, plain := r.at, bare(name); {
	case hide:
		r.value(inside, true)
	case slices.Contains(nameKeys, plain):
		if r.value(inside, false); r.doc[start] == '"' {
			r.at = start
			o.secret = r.keys.hides(r.string()) || o.secret
		}
	case slices.Contains(valueKeys, plain):
		r.value(inside, false)
		o.values = append(o.values, patch{start, r.at, hiddenJSON})
	default:
		r.value(inside, false)
	}
}

// isName reports whether what names a member looks like the name of a field, not like a value.
func isName(s string) bool {
	for i, c := range s {
		if !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c) && c != '_' && c != '-' && c != '.') {
			return false
		}
	}
	return s != "" && len(s) <= mostName
}

// string passes over a string, and returns it.
func (r *redactor) string() (s string) {
	from := r.at
	r.pass()
	if json.Unmarshal(r.doc[from:r.at], &s) != nil { // which json.Valid rules out
		s = string(r.doc[from:r.at])
	}
	return s
}

// hiddenJSON is hidden in JSON.
var hiddenJSON = []byte(`"` + hidden + `"`)

// hide hides what is from a place up to here.
func (r *redactor) hide(from int) { r.cuts = append(r.cuts, patch{from, r.at, hiddenJSON}) }

// inner hides what is hidden in a string, which may hold JSON, such as the body of a message. The
// string ends here. If nothing in it is hidden, it stays as it is.
func (r *redactor) inner(start int) {
	if r.at-start < 4 { // nothing fits in
		return
	}
	r.at = start
	s := r.string()
	clean := ""
	switch begin := strings.TrimLeft(s, "\ufeff \t\r\n"); {
	case begin == "":
		return
	case strings.IndexByte("{[\"", begin[0]) >= 0 && json.Valid([]byte(begin)):
		clean = s[:len(s)-len(begin)] + string(redact([]byte(begin), r.keys, r.root, r.all))
	case strings.IndexByte("{[", begin[0]) >= 0 && r.keys.mention(s): // as lines of JSON
		clean = hidden
	default:
		clean = r.keys.text(s)
	}
	quoted, err := json.Marshal(clean)
	if clean == s || err != nil { // no string fails
		return
	}
	r.cuts = append(r.cuts, patch{start, r.at, quoted})
}

// pass passes over a value.
func (r *redactor) pass() {
	for depth := 0; ; {
		switch r.doc[r.at] {
		case '{', '[':
			depth++
			r.at++
		case '}', ']':
			depth--
			r.at++
		case '"':
			for r.at++; r.doc[r.at] != '"'; r.at++ {
				if r.doc[r.at] == '\\' {
					r.at++
				}
			}
			r.at++
		default:
			for r.at < len(r.doc) && strings.IndexByte(" \t\r\n:,]}", r.doc[r.at]) < 0 {
				r.at++
			}
		}
		if depth == 0 {
			return
		}
		r.space()
	}
}

// reaches reports whether paths name the value that is at names, or one around it.
func reaches(paths []string, names ...string) bool {
	paths = foldedAll(paths)
	for _, name := range names {
		if slices.ContainsFunc(paths, isWhole) {
			return true
		}
		paths = inside(paths, strings.Map(folded, name))
	}
	return slices.ContainsFunc(paths, isWhole)
}

func foldedAll(paths []string) []string {
	folds := make([]string, len(paths))
	for i, p := range paths {
		folds[i] = strings.Map(folded, p)
	}
	return folds
}

// isWhole reports whether a path has come to its end.
func isWhole(path string) bool { return strings.Trim(path, "[]") == "" }

// inside returns what is left of paths inside a member of an object. A path may be cut in
// more than one way, as names may contain what is between names; all ways count.
func inside(paths []string, name string) (left []string) {
	for _, p := range paths {
		p = strings.TrimPrefix(strings.TrimLeft(p, "[]"), ".")
		if rest, ok := strings.CutPrefix(p, "**."); ok {
			left = append(append(left, p), inside([]string{rest}, name)...)
		}
		for _, first := range []string{name, "*"} {
			rest, ok := strings.CutPrefix(p, first)
			if ok && (isWhole(rest) || rest[0] == '.' || rest[0] == '[') {
				left = append(left, strings.TrimPrefix(rest, "."))
			}
		}
	}
	if len(left) > len(paths) { // "**" at any depth, each time again
		slices.Sort(left)
		left = slices.Compact(left)
	}
	if slices.Equal(left, paths) {
		return paths
	}
	return left
}

// secretKinds are what the types of args mark as secret, as far as workers have shown it since the
// handler was made.
type secretKinds struct {
	q *errand.Queue

	mu    sync.Mutex
	asked time.Time // when the workers were last looked at
	kinds map[string][]string
}

const (
	// mostKinds is how many kinds are remembered. Others count as unknown.
	mostKinds   = 10_000
	workersEach = time.Second
)

// of returns the paths of a kind, and whether they are known. What one worker has shown counts
// from then on, also if others show less.
func (s *secretKinds) of(ctx context.Context, kind string) (paths []string, known bool, err error) {
	if kind == bulkQueue { // errand's own, with what it writes into the args of others
		return []string{"set", "edit.args"}, true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) >= workersEach {
		all, err := s.q.Workers(ctx)
		if err != nil && !errors.Is(err, errand.ErrUnsupportedDB) {
			return nil, false, err
		}
		s.asked = time.Now()
		s.see(all)
	}
	paths, known = s.kinds[kind]
	return paths, known, nil
}

// see remembers what workers show.
func (s *secretKinds) see(all []errand.WorkerInfo) {
	if s.kinds == nil {
		s.kinds = map[string][]string{}
	}
	for i := range all {
		w := &all[i]
		for _, kind := range w.Kinds {
			old, known := s.kinds[kind]
			if w.Secret == nil || slices.Contains(w.Secret[kind], "**") || !known && len(s.kinds) >= mostKinds { // of a version that does not show it, or knows no type
				continue
			}
			for _, p := range w.Secret[kind] {
				if !slices.Contains(old, p) {
					old = append(old, p)
				}
			}
			s.kinds[kind] = old
		}
	}
}

// noteUnknown is why all values of args are hidden.
const noteUnknown = "No worker that knows the type of these args has run since this dashboard began, so what it marks as secret is not known: all values are hidden."

// rawArgs returns what somebody may see of the args of a kind: nothing, or redacted, or byte for
// byte, and a note if all values are hidden.
func (x *request) rawArgs(kind string, doc json.RawMessage) (_ json.RawMessage, note string, err error) {
	switch {
	case len(doc) == 0 || x.who.Role < Operator:
		return nil, "", nil
	case x.who.Role == Operator:
		paths, known, err := x.b.secrets.of(x.Context(), kind)
		if err != nil {
			return nil, "", err
		}
		if !known {
			note = noteUnknown
		}
		return redact(doc, x.b.keys, paths, !known), note, nil
	}
	return doc, "", nil
}

// args is rawArgs for people.
func (x *request) args(kind string, doc json.RawMessage) (text, note string, err error) {
	doc, note, err = x.rawArgs(kind, doc)
	return unescaped(string(indent.JSON(doc))), note, err
}

// visible returns what somebody may see of JSON that is no args, such as a result or the body of a
// message: nothing, or redacted by names, or byte for byte.
func (x *request) visible(doc []byte) json.RawMessage {
	switch {
	case len(doc) == 0 || x.who.Role < Operator:
		return nil
	case x.who.Role == Operator:
		return redact(doc, x.b.keys, nil, false)
	}
	return doc
}

// shown is visible for people.
func (x *request) shown(doc []byte) string { return unescaped(string(indent.JSON(x.visible(doc)))) }

// unescaped returns JSON for people, in which <, > and & are as they are: encoding/json writes them
// as HTML would need them.
func unescaped(doc string) string { return htmlEscapes.Replace(doc) }

// htmlEscapes leaves a backslash that is escaped itself.
var htmlEscapes = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// text returns a text that a handler or somebody at the other side has written, as somebody may see it.
func (x *request) text(s string) string {
	if x.who.Role < Admin {
		return x.b.keys.text(s)
	}
	return s
}

// hides reports whether the value of a header is hidden from somebody.
func (x *request) hides(name string) bool { return x.who.Role < Admin && x.b.keys.hides(name) }
