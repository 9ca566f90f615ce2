package schedule

import (
	"math"
	"time"
)

// span is a stretch of time in which a zone has one offset, in seconds east of UTC.
// It includes start and excludes end, which are seconds since the Unix epoch, not
// wall seconds. Neighbouring spans may have the same offset.
type span struct{ start, end, offset int64 }

const (
	always = math.MinInt64 // the start of the first span
	ever   = math.MaxInt64 // the end of the last
)

// farthest is more than any zone is off UTC, and more than any clock was ever
// set back at once: a day, to move to the other side of the date line.
const farthest = 26 * 60 * 60

// spanAt returns the span that holds t.
func spanAt(zone *time.Location, t int64) span {
	at := time.Unix(t, 0).In(zone)
	_, offset := at.Zone()
	start, end := at.ZoneBounds()
	sp := span{always, ever, int64(offset)}
	if !end.IsZero() {
		sp.end = end.Unix()
		// For the last rule of a zone, package time takes each year to have 365
		// days. So on 31 December of a leap year the end that it reports has passed.
		if sp.end <= t {
			sp.end = time.Date(at.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
		}
	}
	if !start.IsZero() {
		sp.start = start.Unix()
		// The start is that of the rule, even if an older offset held then.
		if _, o := start.Zone(); o != offset {
			_, end := start.ZoneBounds()
			sp.start = end.Unix()
		}
	}
	return sp
}

// before returns the span that ends where sp starts, unless sp is the first.
func (sp span) before(zone *time.Location) (span, bool) {
	if sp.start == always {
		return span{}, false
	}
	p := spanAt(zone, sp.start-1)
	p.end = sp.start
	return p, true
}

// after returns the span that starts where sp ends, unless sp is the last.
func (sp span) after(zone *time.Location) (span, bool) {
	if sp.end == ever {
		return span{}, false
	}
	n := spanAt(zone, sp.end)
	n.start = sp.end
	return n, true
}

// gap returns the offset before sp and the seconds that clocks were set forward
// by when it began: 0 if they were not.
func (sp span) gap(zone *time.Location) (offset, gap int64) {
	p, ok := sp.before(zone)
	if !ok || p.offset >= sp.offset {
		return sp.offset, 0
	}
	return p.offset, sp.offset - p.offset
}

// reached returns the latest wall second that the clocks of a zone have ever
// shown up to t. It stands still after they were set back until they have
// caught up, and jumps when they are set forward.
func reached(zone *time.Location, t int64) int64 {
	sp := spanAt(zone, t)
	w := t + sp.offset
	for sp.start > t-farthest {
		sp, _ = sp.before(zone)
		w = max(w, sp.end-1+sp.offset)
	}
	return w
}

// instant is the inverse of reached: the first second by which the clocks of a
// zone have shown w or later. That is the first of two if they show w twice,
// and the end of the gap if they never do.
func instant(zone *time.Location, w int64) int64 {
	from := w - farthest
	sp := spanAt(zone, from)
	for w-sp.offset >= sp.end {
		sp, _ = sp.after(zone)
		from = sp.start
	}
	return max(from, w-sp.offset)
}
