package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand/internal/indent"
)

// safe returns text from elsewhere so that it can do nothing to a terminal or to the
// lines of a table: what cannot be printed, such as escapes, newlines, marks that turn
// the direction of writing, and bytes that are not UTF-8, is written as Go writes it.
func safe(text string) string {
	if isSafe(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x`)
			b.WriteString(strconv.FormatInt(0x100+int64(text[i]), 16)[1:])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += n
	}
	return b.String()
}

func isSafe(text string) bool {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 || !strconv.IsPrint(r) {
			return false
		}
		i += n
	}
	return true
}

// writeJSON writes a value and a newline. In strings what cannot be printed is escaped,
// so that the text is harmless, and means the same. It is indented unless that would make it
// many times as long.
func writeJSON(w io.Writer, v any, indented bool) error {
	text, err := json.Marshal(v) // which escapes what HTML would take for markup
	if err != nil {
		return err
	}
	if indented {
		text = indent.JSON(text)
	}
	_, err = w.Write(safeJSON(append(text, '\n')))
	return err
}

// safeJSON escapes what cannot be printed in JSON, where it is only in strings. Bytes
// that are not UTF-8 become U+FFFD, as every decoder reads them.
func safeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r != utf8.RuneError && (r == '\n' || strconv.IsPrint(r)) {
			out = append(out, text[i:i+n]...)
		} else {
			out = appendEscape(out, r)
		}
		i += n
	}
	return out
}

// appendEscape appends a rune as JSON escapes it: as one or two units of UTF-16.
func appendEscape(out []byte, r rune) []byte {
	units := []rune{r}
	if r > 0xffff {
		units = []rune{0xd800 + (r-0x10000)>>10, 0xdc00 + (r-0x10000)&0x3ff}
	}
	for _, u := range units {
		out = append(out, `\u`...)
		out = append(out, strconv.FormatInt(0x10000+int64(u), 16)[1:]...)
	}
	return out
}

// when returns a time as tables show it: in UTC, to the second.
func when(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format("2006-01-02 15:04:05")
}

// lasting returns a duration as tables show it: its two largest units.
func lasting(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + lasting(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return units(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return units(d, time.Hour, "h", time.Minute, "m")
	}
	return units(d, day, "d", time.Hour, "h")
}

func units(d, large time.Duration, l string, small time.Duration, s string) string {
	text := strconv.FormatInt(int64(d/large), 10) + l
	if rest := d % large / small; rest > 0 {
		text += strconv.FormatInt(int64(rest), 10) + s
	}
	return text
}

// orDash returns text, or a dash if there is none.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// parseTime reads a time: as RFC 3339 has it, or a day.
func parseTime(s string) (time.Time, error) {
	if at, err := time.Parse(time.DateOnly, s); err == nil {
		return at, nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		err = fmt.Errorf("%q: must be a time as 2026-03-01T06:00:00Z, or a day as 2026-03-01", s)
	}
	return at, err
}
