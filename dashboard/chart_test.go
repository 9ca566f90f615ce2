package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
)

// The line of a cause is that of now, also if it was counted earlier, and says what was not counted.
func TestDay(t *testing.T) {
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	died := make([]int, 24)
	died[2], died[22] = 7, 3
	at := func(h int) time.Time { return from.Add(time.Duration(h)*time.Hour + 20*time.Minute) }
	for _, c := range []struct {
		now        int // hour
		most       int
		want, line string // the highest number; the first point
	}{
		{23, 200, "most from 02:00: 7", "2.1,100 "},
		{23, 7, "most from 02:00: 7 or more, as no more are counted an hour", "2.1,100 "},
		{25, 200, "most from 02:00: 7", "2.1,13 "},
		{26, 200, "most from 22:00: 3", "2.1,100 "},
		{46, 200, "none", ""},
		{100, 200, "none", ""},
	} {
		got := day(errand.Cause{Hours: &storage.CauseHours{From: from, Died: died, Most: c.most}}, at(c.now))
		if got.Text != c.want || len(got.Line) < len(c.line) || got.Line[:len(c.line)] != c.line {
			t.Errorf("at hour %d: %q, line %q, want %q from %q", c.now, got.Text, got.Line, c.want, c.line)
		}
	}
	if got := day(errand.Cause{}, from); got != nil {
		t.Errorf("a cause that was not counted has a line: %+v", got)
	}
}

// The text of an error that a form has kept is left out of what is said, too.
func TestUnsaid(t *testing.T) {
	const said, want = `all jobs whose error contains “e\u202e”, of kind e?`, `all jobs whose error contains “…”, of kind e?`
	for _, name := range []string{"error", "of-error"} {
		x := &request{Request: &http.Request{PostForm: url.Values{name: {"e\u202e"}}}}
		for _, text := range []string{said, visible(said)} {
			if got := x.unsaid(strings.ReplaceAll(text, `\u202e`, "\u202e")); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}
