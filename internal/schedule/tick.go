package schedule

import "time"

// ticker finds the ticks of one spec. Times are seconds since the Unix epoch.
type ticker interface {
	next(t int64) int64     // the first tick after t
	prev(t int64) int64     // the last tick not after t
	count(a, b int64) int64 // how many ticks are after a and not after b
}

// every ticks at the multiples of a number of seconds.
type every int64

func (e every) next(t int64) int64 { return e.prev(t) + int64(e) }

func (e every) prev(t int64) int64 {
	_, rest := divide(t, int64(e))
	return t - rest
}

func (e every) count(a, b int64) int64 {
	return max(0, (e.prev(b)-e.prev(a))/int64(e))
}

// fixed is for specs with fixed hours. A tick comes when the clocks of the zone
// have reached its wall second for the first time. Both ways between the two are
// monotone, so that order is kept; wall seconds in one gap become one tick.
type fixed struct {
	calendar
	zone *time.Location
}

func (f *fixed) next(t int64) int64 {
	return instant(f.zone, f.calendar.next(reached(f.zone, t)+1))
}

func (f *fixed) prev(t int64) int64 {
	return instant(f.zone, f.calendar.prev(reached(f.zone, t)))
}

func (f *fixed) count(a, b int64) int64 {
	if b <= a {
		return 0
	}
	n := f.calendar.count(reached(f.zone, a), reached(f.zone, b))
	sp := spanAt(f.zone, a)
	for sp.end <= b {
		sp, _ = sp.after(f.zone)
		here := f.calendar.count(reached(f.zone, sp.start-1), reached(f.zone, sp.start))
		n -= max(0, here-1)
	}
	return n
}

// elapsed is for specs whose hours are wildcards or steps. It ticks whenever the
// clocks of the zone show a wall second that matches. After a gap, for as long as the
// gap is wide, it also ticks when the old clock would have shown one.
type elapsed struct {
	calendar
	zone *time.Location
}

func (e *elapsed) next(t int64) int64 {
	from := t + 1
	for sp := spanAt(e.zone, from); ; {
		tick := e.calendar.next(from+sp.offset) - sp.offset
		if nearStart(sp, from) {
			if old, gap := sp.gap(e.zone); from < sp.start+gap {
				if o := e.calendar.next(from+old) - old; o < sp.start+gap {
					tick = min(tick, o)
				}
			}
		}
		if tick < sp.end {
			return tick
		}
		sp, _ = sp.after(e.zone)
		from = sp.start
	}
}

func (e *elapsed) prev(t int64) int64 {
	for sp := spanAt(e.zone, t); ; {
		tick := e.calendar.prev(t+sp.offset) - sp.offset
		if nearStart(sp, tick) {
			if old, gap := sp.gap(e.zone); gap > 0 {
				tick = max(tick, e.calendar.prev(min(t, sp.start+gap-1)+old)-old)
			}
		}
		if tick >= sp.start {
			return tick
		}
		t = sp.start - 1
		sp, _ = sp.before(e.zone)
	}
}

func (e *elapsed) count(a, b int64) int64 {
	n := int64(0)
	for sp, from := spanAt(e.zone, a), a; from < b; {
		to := min(b, sp.end-1)
		n += e.calendar.count(from+sp.offset, to+sp.offset)
		if nearStart(sp, from+1) {
			old, gap := sp.gap(e.zone)
			to := min(to, sp.start+gap-1)
			for t := e.calendar.next(from+1+old) - old; t <= to; t = e.calendar.next(t+1+old) - old {
				if !e.matches(t + sp.offset) {
					n++
				}
			}
		}
		if sp.end == ever {
			break
		}
		from = sp.end - 1
		sp, _ = sp.after(e.zone)
	}
	return n
}

// nearStart reports whether a gap at the start of a span can matter at t. It is
// asked first, since most of the time there is none in reach.
func nearStart(sp span, t int64) bool { return sp.start != always && t < sp.start+farthest }
