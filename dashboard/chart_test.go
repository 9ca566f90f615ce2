package dashboard

import (
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
		{23, 200, "at most 7 an hour, at 02:00", "2.1,100 "},
		{23, 7, "at most 7 or more an hour, at 02:00", "2.1,100 "},
		{25, 200, "at most 7 an hour, at 02:00", "2.1,13 "},
		{26, 200, "at most 3 an hour, at 22:00", "2.1,100 "},
		{46, 200, "none in the last day", ""},
		{100, 200, "none in the last day", ""},
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
