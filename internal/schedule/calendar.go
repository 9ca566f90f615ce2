package schedule

import (
	"math/bits"
	"time"
)

// calendar finds the dates and times of day that match a spec with fields, on a clock
// that nobody changes. Its times are wall seconds: the time that the clock shows, in
// seconds since it showed 1970-01-01 00:00:00.
//
// It does what Next of the library does in UTC. It also looks back and counts, which
// the library cannot: after two weeks of downtime, finding the latest tick and the
// number of ticks before it must not cost a walk over all of them.
//
// Each field is a set of bits with at least one value, and some day of some year
// matches; so the searches end.
type calendar struct {
	second, minute, hour, dom, month, dow uint64
	// either is true if a day matches when its dom or its dow matches. Otherwise
	// both must match.
	either bool
}

const daySeconds = 24 * 60 * 60

// next returns the first matching wall second that is not before w.
func (c *calendar) next(w int64) int64 {
	d, sec := divide(w, daySeconds)
	if c.matchesDay(d) {
		if s, ok := c.nextInDay(sec); ok {
			return d*daySeconds + s
		}
	}
	s, _ := c.nextInDay(0)
	return c.nextDay(d+1)*daySeconds + s
}

// prev returns the last matching wall second that is not after w.
func (c *calendar) prev(w int64) int64 {
	d, sec := divide(w, daySeconds)
	if c.matchesDay(d) {
		if s, ok := c.prevInDay(sec); ok {
			return d*daySeconds + s
		}
	}
	s, _ := c.prevInDay(daySeconds - 1)
	return c.prevDay(d-1)*daySeconds + s
}

// count returns how many wall seconds match after a and not after b.
func (c *calendar) count(a, b int64) int64 {
	if b <= a {
		return 0
	}
	da, sa := divide(a, daySeconds)
	db, sb := divide(b, daySeconds)
	n := c.countDays(da, db-1) * c.countInDay(daySeconds-1)
	if c.matchesDay(da) {
		n -= c.countInDay(sa)
	}
	if c.matchesDay(db) {
		n += c.countInDay(sb)
	}
	return n
}

func (c *calendar) matches(w int64) bool {
	d, sec := divide(w, daySeconds)
	h, m, s := clock(sec)
	return has(c.hour, h) && has(c.minute, m) && has(c.second, s) && c.matchesDay(d)
}

func (c *calendar) nextInDay(sec int64) (int64, bool) {
	h, m, s := clock(sec)
	if has(c.hour, h) {
		if has(c.minute, m) {
			if s := nextBit(c.second, s); s >= 0 {
				return seconds(h, m, s), true
			}
		}
		if m := nextBit(c.minute, m+1); m >= 0 {
			return seconds(h, m, nextBit(c.second, 0)), true
		}
	}
	if h := nextBit(c.hour, h+1); h >= 0 {
		return seconds(h, nextBit(c.minute, 0), nextBit(c.second, 0)), true
	}
	return 0, false
}

func (c *calendar) prevInDay(sec int64) (int64, bool) {
	h, m, s := clock(sec)
	if has(c.hour, h) {
		if has(c.minute, m) {
			if s := prevBit(c.second, s); s >= 0 {
				return seconds(h, m, s), true
			}
		}
		if m := prevBit(c.minute, m-1); m >= 0 {
			return seconds(h, m, prevBit(c.second, 59)), true
		}
	}
	if h := prevBit(c.hour, h-1); h >= 0 {
		return seconds(h, prevBit(c.minute, 59), prevBit(c.second, 59)), true
	}
	return 0, false
}

// countInDay returns how many seconds of a day match from its first to sec.
func (c *calendar) countInDay(sec int64) int64 {
	h, m, s := clock(sec)
	perMinute := countBits(c.second, 59)
	perHour := countBits(c.minute, 59) * perMinute
	n := countBits(c.hour, h-1) * perHour
	if has(c.hour, h) {
		n += countBits(c.minute, m-1) * perMinute
		if has(c.minute, m) {
			n += countBits(c.second, s)
		}
	}
	return n
}

// A day is a number, counted from 1970-01-01.

func (c *calendar) matchesDay(d int64) bool {
	m, dom, _ := date(d)
	return has(c.month, m) && c.matchesInMonth(d, dom)
}

// matchesInMonth is matchesDay for a day whose month is known to match.
func (c *calendar) matchesInMonth(d int64, dom int) bool {
	_, dow := divide(d+4, 7) // a Thursday
	if c.either {
		return has(c.dom, dom) || has(c.dow, int(dow))
	}
	return has(c.dom, dom) && has(c.dow, int(dow))
}

func (c *calendar) nextDay(d int64) int64 {
	for {
		m, dom, last := date(d)
		if !has(c.month, m) {
			d += int64(last - dom + 1)
			continue
		}
		for ; dom <= last; dom, d = dom+1, d+1 {
			if c.matchesInMonth(d, dom) {
				return d
			}
		}
	}
}

func (c *calendar) prevDay(d int64) int64 {
	for {
		m, dom, _ := date(d)
		if !has(c.month, m) {
			d -= int64(dom)
			continue
		}
		for ; dom >= 1; dom, d = dom-1, d-1 {
			if c.matchesInMonth(d, dom) {
				return d
			}
		}
	}
}

// countDays returns how many days match from a to b, both included.
func (c *calendar) countDays(a, b int64) int64 {
	n := int64(0)
	for d := a; d <= b; {
		m, dom, last := date(d)
		end := min(b, d+int64(last-dom)) + 1
		if !has(c.month, m) {
			d = end
			continue
		}
		for ; d < end; d, dom = d+1, dom+1 {
			if c.matchesInMonth(d, dom) {
				n++
			}
		}
	}
	return n
}

// date returns the month and the day of month of a day, and the last of its month.
func date(d int64) (month, dom, last int) {
	y, m, dom := time.Unix(d*daySeconds, 0).UTC().Date()
	return int(m), dom, daysIn(y, m)
}

func daysIn(y int, m time.Month) int {
	switch m {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

func clock(sec int64) (h, m, s int) { return int(sec / 3600), int(sec / 60 % 60), int(sec % 60) }

func seconds(h, m, s int) int64 { return int64(h)*3600 + int64(m)*60 + int64(s) }

// divide rounds down, so that the rest is never negative.
func divide(a, b int64) (quotient, rest int64) {
	q, r := a/b, a%b
	if r < 0 {
		return q - 1, r + b
	}
	return q, r
}

// Sets of numbers up to 59, as bits.

func has(set uint64, i int) bool { return set>>i&1 == 1 }

// nextBit returns the least member that is not below from, or -1.
func nextBit(set uint64, from int) int {
	if set = set >> from << from; set == 0 {
		return -1
	}
	return bits.TrailingZeros64(set)
}

// prevBit returns the greatest member that is not above to, or -1.
func prevBit(set uint64, to int) int { return bits.Len64(set&(1<<(to+1)-1)) - 1 }

// countBits returns how many members are not above to.
func countBits(set uint64, to int) int64 { return int64(bits.OnesCount64(set & (1<<(to+1) - 1))) }
