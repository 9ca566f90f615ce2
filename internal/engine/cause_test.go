package engine

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// Errors as Go programs make them, and what they have in common with their like.
func TestCauseOf(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"connection refused", "connection refused"},
		{"dial tcp 10.0.0.1:443: connect: connection refused", "dial tcp #: connect: connection refused"},
		{"read tcp 10.0.0.1:41234->10.0.0.2:443: read: connection reset by peer", "read tcp #->#: read: connection reset by peer"},
		{"dial tcp [2001:db8::1]:443: i/o timeout", "dial tcp [#]:#: i/o timeout"},
		{"no route to fe80::a: try again", "no route to #: try again"},
		{"dial tcp: lookup api.example.com on 127.0.0.53:53: no such host", "dial tcp: lookup api.example.com on #: no such host"},
		{`Post "https://api.example.com/v1/orders/17?token=s3cr3t": context deadline exceeded`, `Post "https://api.example.com/…": context deadline exceeded`},
		{`Get "http://ada:secret@10.0.0.1:8080/x": EOF`, `Get "http://#/…": EOF`},
		{"get https://example.com/a/b: 404", "get https://example.com/…: #"},
		{"see https://example.com.", "see https://example.com."},
		{`job 0192f3ab-4c5d-7e6f-8a9b-0c1d2e3f4a5b: status 422: {"id": 17}`, `job #: status 422: {"…": #}`},
		{"job abcdefab-cdef-abcd-efab-cdefabcdefab failed", "job # failed"},
		{`pq: duplicate key value violates unique constraint "foo" (SQLSTATE 42P01)`, `pq: duplicate key value violates unique constraint "…" (SQLSTATE 42P01)`},
		{"Error 1062 (23000): Duplicate entry 'ada' for key 'users.name'", "Error # (#): Duplicate entry '…' for key '…'"},
		{"550 5.1.1 <ada.lovelace+x@mail-3.example.org>: Recipient address rejected", "# # <#>: Recipient address rejected"},
		{"open /var/spool/job-17/a1b2c3d4.json: no such file or directory", "open /var/spool/job-#/#.json: no such file or directory"},
		{"exit status 65", "exit status 65"},
		{"signal: 9", "signal: 9"},
		{"HTTP 503 after 3 tries in 1m30.5s", "HTTP 503 after # tries in #"},
		{"status 4221 of order 17", "status # of order #"},
		{"timeout of 30s exceeded: user17 is away", "timeout of # exceeded: user# is away"},
		{"panic: runtime error: index out of range [5] with length 3", "panic: runtime error: index out of range [#] with length #"},
		{"x509: certificate has expired: current time 2026-03-04T05:06:07Z is after 2026-03-01T00:00:00Z", "x509: certificate has expired: current time # is after #"},
		{"json: cannot unmarshal number -300 into Go struct field T.n of type uint8", "json: cannot unmarshal number # into Go struct field T.n of type uint8"},
		{"can't open the user's file", "can't open the user's file"},
		{"unknown user 'ada' in `users`", "unknown user '…' in `…`"},
		{`said "never \"again\"" and went`, `said "…" and went`},
		{`an end that "was cut`, `an end that "was cut`},
		{"line 1\n\tline 2\x1b[31m\x00", "line # line # [#"},
		{"not \xff text", "not � text"},
		{"balance is -5, was +17", "balance is #, was #"},
		{"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 is not there", "sha256:# is not there"},
		{"grüße an 3 Leute", "grüße an # Leute"},
		{"the process died while the handler ran (crash 3 in a row)", "the process died while the handler ran (crash # in a row)"},
	} {
		if got := causeOf(c.text); got != c.want {
			t.Errorf("%q\n got %q\nwant %q", c.text, got, c.want)
		}
	}
}

// However a name is spelt that differs from job to job, there is one cause.
func TestCauseOf_same(t *testing.T) {
	for _, texts := range [][]string{
		{"order 1 is gone", "order 123456789 is gone", "order -5 is gone", "order 1.5 is gone", "order 1e9 is gone", "order 0x7ffe is gone"},
		{"blob 01234567 is gone", "blob abcdefab is gone", "blob a1b2c3d4 is gone", "blob 01HF7YAT31JZ8FSM3G0V9W5XKQ is gone"},
		{"part 12-abcd of it", "part 0x12-7 of it", "part 1b-12-dead of it"},
		{"at 05:06:07 no", "at 2026-03-04 no", "at 2026-03-04T05:06:07.123+01:00 no"},
		{"to 10.0.0.1 no", "to 192.168.17.1:8080 no", "to 2001:db8::1 no"},
		{"mail to <ada@example.org>", "mail to <x.y-z@a.b.example.com>", "mail to <17@3.de>"},
		{`field "a" is bad`, `field "b c \" d" is bad`, `field "17" is bad`},
	} {
		for _, text := range texts[1:] {
			if a, b := causeOf(texts[0]), causeOf(text); a != b {
				t.Errorf("%q and %q have the causes %q and %q", texts[0], text, a, b)
			}
		}
	}
	seen := map[string]bool{}
	for i := range 10_000 {
		seen[causeOf(fmt.Sprintf("job %08x: n = %d: 10.0.%d.%d: %q", uint32(i)*2654435761, i, i/256, i%256, fmt.Sprint(i)))] = true
	}
	if len(seen) != 1 {
		t.Errorf("10,000 errors of one cause have %d", len(seen))
	}
}

func TestCauseOf_long(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("word ", 1000), strings.Repeat("x", 5000), strings.Repeat("ä", 5000), strings.Repeat(`"q" `, 5000),
		strings.Repeat("x509 ", 1000), strings.Repeat("a:", 4096), strings.Repeat("a.", 4096) + "@b", strings.Repeat("'", 8192),
	} {
		checkCause(t, text)
	}
}

func checkCause(t *testing.T, text string) {
	t.Helper()
	got := causeOf(text)
	if len(got) > maxCause || !utf8.ValidString(got) {
		t.Errorf("%q: the cause %q has %d bytes", text, got, len(got))
	}
	if again := causeOf(got); again != got {
		t.Errorf("%q: the cause %q has the cause %q", text, got, again)
	}
}

func FuzzCauseOf(f *testing.F) {
	for _, text := range []string{
		`Post "https://u:p@h.example:1/x?id=1": EOF`, "dial tcp [::1]:443->10.0.0.1:80", "a@b.c@d 'x'-5 it's", "0192f3ab-4c5d-7e6f-8a9b-0c1d2e3f4a5b",
		"status: 503 SQLSTATE 42P01 x509 user17 --5 ##", "\xff\x00\n'1'b \"unclosed",
	} {
		f.Add(text)
	}
	f.Fuzz(checkCause)
}

func BenchmarkCauseOf(b *testing.B) {
	for name, text := range map[string]string{
		"short": `Post "https://api.example.com/v1/orders/17": dial tcp 10.0.0.1:443: connect: connection refused`,
		"long":  strings.Repeat("job 0192f3ab: ", maxError/14),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				causeOf(text)
			}
		})
	}
}
