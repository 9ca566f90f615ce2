package main

import (
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	list := table{head: []string{"NAME", " N", "ERROR"}}
	list.add(text("a"), number(7).in(red), text("short"))
	list.add(text("漢字"), number(1234), text(strings.Repeat("long ", 20)))
	print := func(s *screen) string {
		var b strings.Builder
		p := printer{w: &b}
		list.print(&p, s)
		return b.String()
	}
	if got, want := print(&screen{}), "NAME     N  ERROR\na        7  short\n漢字  1234  "+strings.Repeat("long ", 20)+"\n"; got != want {
		t.Errorf("elsewhere:\n%swant\n%s", got, want)
	}
	if got, want := print(&screen{width: 30}), "NAME     N  ERROR\na        7  short\n漢字  1234  long long long lo…\n"; got != want {
		t.Errorf("30 columns:\n%swant\n%s", got, want)
	}
	want := "\x1b[1mNAME\x1b[0m  \x1b[1m   N\x1b[0m"
	if got := print(&screen{width: 30, colour: true}); !strings.Contains(got, "\x1b[31m7\x1b[0m") {
		t.Errorf("in colour: %q", got)
	} else if strings.Contains(got, want) {
		t.Errorf("spaces have a colour: %q", got)
	}
}

func TestLasting(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234 * time.Microsecond: "1ms", 3456 * time.Millisecond: "3.5s", 90 * time.Second: "1m30s", 2 * time.Minute: "2m",
		2 * time.Hour: "2h", 25*time.Hour + 30*time.Minute: "1d1h", -time.Minute: "-1m", 48 * time.Hour: "2d",
	} {
		if got := lasting(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
