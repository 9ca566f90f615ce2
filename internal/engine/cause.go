package engine

import (
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxCause is how many bytes the text of a cause has at most. What differs between
// causes stands at the beginning.
const maxCause = 512

// causeOf returns what an error has in common with those of other jobs: its text, with
// a # for each number, hash, UUID, address or other name that has a digit in it, and …
// for what is in quotes. Of URLs scheme and host stay. The number of a status or of an
// error code stays too, and so do words such as x509. All space becomes one blank. The
// result is valid UTF-8, has at most maxCause bytes, and is its own cause.
//
// One mark stands for all that differs: a hash may happen to have no letter.
func causeOf(text string) string {
	n := normalizer{in: text, out: make([]byte, 0, min(len(text), maxCause)+utf8.UTFMax)}
	n.run()
	if len(n.out) <= maxCause {
		return string(n.out)
	}
	cut := shorten(string(n.out), maxCause)
	if blank := strings.LastIndexByte(cut, ' '); blank > 0 {
		cut = cut[:blank]
	}
	if cut == text { // it does not get shorter
		return cut
	}
	return causeOf(cut)
}

// normalizer makes the text of a cause. What it writes it would read as the same: so
// # counts as a digit, and what came before is looked up in out.
type normalizer struct {
	in   string
	at   int
	out  []byte
	code int // if a number follows, it stays if it has at most so many digits
}

// codes are words after which a number stays, with how many digits that has.
var codes = map[string]int{
	"status": 3, "code": 3, "statuscode": 3, "errno": 3, "http": 3, "signal": 3, "sqlstate": 5,
}

// words are those with digits that say something.
var words = map[string]bool{
	"x509": true, "http2": true, "h2": true, "tls1": true, "ipv4": true, "ipv6": true, "tcp4": true, "tcp6": true, "udp4": true, "udp6": true,
	"md5": true, "sha1": true, "sha256": true, "sha512": true, "base64": true, "utf8": true, "utf16": true, "oauth2": true, "s3": true,
	"int8": true, "int16": true, "int32": true, "int64": true, "uint8": true, "uint16": true, "uint32": true, "uint64": true,
	"float32": true, "float64": true, "sqlite3": true,
}

func (n *normalizer) run() {
	for n.at < len(n.in) && len(n.out) <= 2*maxCause {
		c := n.in[n.at]
		switch {
		case isWord(c):
			n.word()
		case c == '"' || c == '`' || c == '\'':
			n.quote(c)
		case c == '@':
			n.mail()
		default:
			n.other()
		}
	}
	n.out = []byte(strings.TrimRight(string(n.out), " "))
}

// other takes a character that has no meaning of its own.
func (n *normalizer) other() {
	r, size := utf8.DecodeRuneInString(n.in[n.at:])
	n.at += size
	if unicode.IsSpace(r) || unicode.IsControl(r) {
		if r = ' '; len(n.out) == 0 || n.last() == ' ' {
			return
		}
	}
	if !strings.ContainsRune(" :=(", r) {
		n.code = 0
	}
	n.out = utf8.AppendRune(n.out, r)
}

// word takes letters and digits.
func (n *normalizer) word() {
	w, digits := n.in[n.at:], 0
	for i := range len(w) {
		if !isWord(w[i]) {
			w = w[:i]
			break
		}
		if isDigit(w[i]) {
			digits++
		}
	}
	if digits == 0 && strings.HasPrefix(n.in[n.at+len(w):], "://") {
		n.url()
		return
	}
	most := n.code
	n.code = 0
	if size := n.longName(); size > 0 {
		n.at += size
		n.number()
		return
	}
	n.at += len(w)
	prefix := strings.IndexFunc(w, func(r rune) bool { return isDigit(byte(r)) })
	hex := strings.IndexFunc(w, func(r rune) bool { return !isHex(byte(r)) }) < 0
	switch {
	case digits == 0 && hex && (len(w) >= 8 || len(w) >= 4 && n.follows()):
		n.number()
	case digits == 0:
		n.code = codes[strings.ToLower(w)]
		n.out = append(n.out, w...)
	case len(w) <= most && (most > 3 || digits == len(w)) && !strings.Contains(w, "#"), words[strings.ToLower(w)]:
		n.out = append(n.out, w...)
	case prefix > 0 && digits == len(w)-prefix && len(w) < 8 && (!hex || len(w) < 6):
		n.out = append(append(n.out, w[:prefix]...), '#')
	default:
		n.number()
	}
}

// longName returns the length of the UUID, or of the IPv6 address, that begins here.
func (n *normalizer) longName() int {
	const size = 36
	rest := n.in[n.at:]
	if len(rest) >= size && (len(rest) == size || !isWord(rest[size])) && isUUID(rest[:size]) {
		return size
	}
	if n.at > 0 && (isHex(n.in[n.at-1]) || n.in[n.at-1] == ':' || n.in[n.at-1] == '.') {
		return 0
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r >= utf8.RuneSelf || r == '#' || !isHex(byte(r)) && r != ':' && r != '.' })
	if end < 0 {
		end = len(rest)
	}
	if end < len(rest) && isWord(rest[end]) {
		return 0
	}
	address := strings.TrimRight(rest[:end], ".")
	if colon := strings.TrimSuffix(address, ":"); !strings.HasSuffix(colon, ":") {
		address = colon
	}
	if strings.Count(address, ":") < 2 {
		return 0
	}
	if _, err := netip.ParseAddr(address); err != nil {
		return 0
	}
	return len(address)
}

func isUUID(s string) bool {
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || !dash && !isHex(s[i]) || s[i] == '#' {
			return false
		}
	}
	return true
}

// follows reports whether a number has just been written, and a dash.
func (n *normalizer) follows() bool { return strings.HasSuffix(string(n.tail(2)), "#-") }

// number writes the mark of a number. Numbers with a point, a colon or the like between
// them are one.
func (n *normalizer) number() {
	n.code = 0
	signs := len(n.out)
	for signs > 0 && (n.out[signs-1] == '-' || n.out[signs-1] == '+') {
		signs--
	}
	if signs == 0 || strings.IndexByte(" =:([{,", n.out[signs-1]) >= 0 {
		n.out = n.out[:signs]
	}
	between := len(n.out)
	for between > 0 && strings.IndexByte(".:,+-_", n.out[between-1]) >= 0 {
		between--
	}
	if between > 0 && n.out[between-1] == '#' && len(n.out)-between <= 2 {
		n.out = n.out[:between]
		return
	}
	n.out = append(n.out, '#')
}

// mail takes an @ and what follows: with the name before it, the address of somebody.
func (n *normalizer) mail() {
	n.at++
	n.code = 0
	name := len(n.out)
	for name > 0 && (isWord(n.out[name-1]) || strings.IndexByte("._%+-", n.out[name-1]) >= 0) {
		name--
	}
	for name < len(n.out) && !isWord(n.out[name]) {
		name++
	}
	host := n.at
	for host < len(n.in) && (isWord(n.in[host]) || strings.IndexByte(".-", n.in[host]) >= 0) {
		host++
	}
	for host > n.at && !isWord(n.in[host-1]) {
		host--
	}
	if name == len(n.out) || host == n.at {
		n.out = append(n.out, '@')
		return
	}
	n.at, n.out = host, n.out[:name]
	n.number()
}

// quote takes a quotation mark, and what it quotes. An apostrophe is none.
func (n *normalizer) quote(mark byte) {
	begin, end := n.at+1, -1
	if mark != '\'' || len(n.out) == 0 || !isWord(n.last()) {
		end = closing(n.in[begin:], mark)
	}
	n.code = 0
	n.out = append(n.out, mark)
	if n.at = begin; end < 0 {
		return
	}
	within := n.in[begin : begin+end]
	scheme := strings.IndexFunc(within, func(r rune) bool { return r >= utf8.RuneSelf || !isWord(byte(r)) || isDigit(byte(r)) })
	if scheme > 0 && strings.HasPrefix(within[scheme:], "://") {
		u := normalizer{in: within, out: n.out}
		u.url()
		n.out = u.out
	} else {
		n.out = append(n.out, "…"...)
	}
	n.out = append(n.out, mark)
	n.at += end + 1
}

// closing returns where a quotation ends, or -1 if it does not.
func closing(s string, mark byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && mark == '"':
			i++
		case s[i] == mark && (mark != '\'' || i+1 == len(s) || !isWord(s[i+1])):
			return i
		}
	}
	return -1
}

// url takes a URL, of which scheme and host stay.
func (n *normalizer) url() {
	n.code = 0
	scheme := strings.Index(n.in[n.at:], "://") + len("://")
	n.out = append(n.out, n.in[n.at:n.at+scheme]...)
	n.at += scheme
	rest := n.in[n.at:]
	end := strings.IndexFunc(rest, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("\"'`<>(){},;", r)
	})
	if end < 0 {
		end = len(rest)
	}
	rest = strings.TrimRight(rest[:end], ".:!?")
	n.at += len(rest)
	host := strings.IndexAny(rest, "/?\\")
	if host < 0 {
		host = len(rest)
	}
	path := rest[host:]
	h := normalizer{in: rest[strings.LastIndexByte(rest[:host], '@')+1 : host], out: n.out}
	for h.at < len(h.in) {
		if isWord(h.in[h.at]) && !strings.HasPrefix(strings.TrimLeft(h.in[h.at:], letters), "://") {
			h.word()
		} else {
			h.other()
		}
	}
	n.out = h.out
	if len(path) > 1 {
		n.out = append(n.out, "/…"...)
	}
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func (n *normalizer) last() byte { return n.out[len(n.out)-1] }

// tail returns the last bytes written.
func (n *normalizer) tail(size int) []byte { return n.out[max(0, len(n.out)-size):] }

func isDigit(c byte) bool { return '0' <= c && c <= '9' || c == '#' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

func isWord(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
