package main

import (
	"testing"
	"time"
)

func TestIDPrefix(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"0189", "0189"}, {"01890A5D-ac96", "01890a5d-ac96"}, {"01890a5d-", "01890a5d-"},
		{"01890a5d-ac96-774b-bcce-b302099a805", "01890a5d-ac96-774b-bcce-b302099a805"},
		{"", ""}, {"018", ""}, {"01890a5dac96", ""}, {"0189-", ""}, {"--yes", ""}, {"018g", ""}, {"018é", ""},
		{"01890a5d-ac96-774b-bcce-b302099a80577", ""}, {"01890a5d-ac96-774b-bcce-b302099a805g", ""},
	} {
		if got, err := idPrefix(c.arg); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, %v, want %q", c.arg, got, err, c.want)
		}
	}
}

func TestParseID(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	for arg, ok := range map[string]bool{
		id: true, "01890a5dac96774bbcceb302099a8057": true, "01890A5DAC96774BBCCEB302099A8057": true,
		"01890a5dac96774bbcceb302099a805": false, "01890a5dac96774bbcceb302099a80570": false, "01890a5dac96774bbcceb302099a805g": false, "01890a5d": false,
	} {
		if got, err := parseID(arg); (err == nil) != ok || ok && got.String() != id {
			t.Errorf("%s: %v, %v", arg, got, err)
		}
	}
}

func TestCreatedWithin(t *testing.T) {
	day := func(s string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, c := range []struct {
		prefix       string
		from, before time.Time
		ok           bool
	}{
		{"01890a5d-ac96-774b", day("2023-06-30T03:34:18.518Z"), day("2023-06-30T03:34:18.519Z"), true},
		{"01890a5d-ac9", day("2023-06-30T03:34:18.512Z"), day("2023-06-30T03:34:18.528Z"), true},
		{"0000", day("1970-01-01T00:00:00Z"), day("1970-02-19T17:02:47.296Z"), true},
		{"ffff", time.Time{}, time.Time{}, false},
	} {
		f, ok := createdWithin(c.prefix)
		if ok != c.ok || ok && (!f.CreatedFrom.Equal(c.from) || !f.CreatedBefore.Equal(c.before)) {
			t.Errorf("%s: from %v before %v, %v", c.prefix, f.CreatedFrom.UTC(), f.CreatedBefore.UTC(), ok)
		}
	}
}
