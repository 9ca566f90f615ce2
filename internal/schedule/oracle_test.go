package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/internal/schedule"
)

// reading is what a clock shows.
type reading struct {
	month             time.Month
	day, hour, minute int
	weekday           time.Weekday
}

func read(w time.Time) reading {
	_, month, day := w.Date()
	hour, minute, _ := w.Clock()
	return reading{month, day, hour, minute, w.Weekday()}
}

// A rule is what a spec says about one reading of the clock, in Go.
type rule struct {
	spec  string
	fixed bool
	match func(r reading) bool
}

var rules = []rule{
	{"30 2 * * *", true, func(r reading) bool { return r.hour == 2 && r.minute == 30 }},
	{"0 0 * * *", true, func(r reading) bool { return r.hour == 0 && r.minute == 0 }},
	{"*/20 0-3,22,23 * * *", true, func(r reading) bool { return (r.hour <= 3 || r.hour >= 22) && r.minute%20 == 0 }},
	{"* 1,2 * * 0", true, func(r reading) bool { return (r.hour == 1 || r.hour == 2) && r.weekday == time.Sunday }},
	{"45 1 26-31 3,10 *", true, func(r reading) bool {
		return r.hour == 1 && r.minute == 45 && r.day >= 26 && (r.month == time.March || r.month == time.October)
	}},
	{"0 9 1 * mon", true, func(r reading) bool {
		return r.hour == 9 && r.minute == 0 && (r.day == 1 || r.weekday == time.Monday)
	}},
	{"0 * * * *", false, func(r reading) bool { return r.minute == 0 }},
	{"10,40 */2 * * *", false, func(r reading) bool { return r.hour%2 == 0 && (r.minute == 10 || r.minute == 40) }},
	{"*/15 1/3 * * 6,0", false, func(r reading) bool {
		return r.minute%15 == 0 && r.hour%3 == 1 && (r.weekday == time.Saturday || r.weekday == time.Sunday)
	}},
	{"5 * 30 * *", false, func(r reading) bool { return r.minute == 5 && r.day == 30 }},
}

// oracle knows the ticks of all rules by walking over the minutes and looking
// at the clock, whose readings it takes as times in UTC. It must see some days
// before the first tick that counts.
type oracle struct {
	latest  time.Time // the latest reading ever
	last    time.Time // the reading of the minute before
	behind  time.Duration
	oldEnds time.Time // until when the old clock, so far behind, counts too

	now     []reading // for hours with wildcards and steps
	reached []reading // for the first time, for fixed hours
}

func (o *oracle) minute(t time.Time, tick func(rule int)) {
	year, month, day := t.Date()
	hour, minute, _ := t.Clock()
	w := time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	if o.last.IsZero() {
		o.last, o.latest = w.Add(-time.Minute), w.Add(-time.Minute)
	}
	if gap := w.Sub(o.last) - time.Minute; gap > 0 {
		o.behind, o.oldEnds = gap, t.Add(gap)
	}
	o.last = w
	o.now = append(o.now[:0], read(w))
	if t.Before(o.oldEnds) {
		o.now = append(o.now, read(w.Add(-o.behind)))
	}
	o.reached = o.reached[:0]
	for ; o.latest.Before(w); o.latest = o.latest.Add(time.Minute) {
		o.reached = append(o.reached, read(o.latest.Add(time.Minute)))
	}
	for i, r := range rules {
		if r.fixed && slices.ContainsFunc(o.reached, r.match) || !r.fixed && slices.ContainsFunc(o.now, r.match) {
			tick(i)
		}
	}
}

// Two years of zones with all kinds of changes, each minute of them.
var oracleZones = []struct {
	name string
	year int
}{
	{"Europe/Berlin", 2024}, {"America/New_York", 2024}, {"Australia/Lord_Howe", 2024},
	{"America/Sao_Paulo", 2017}, {"Africa/Cairo", 2023}, {"Asia/Beirut", 2021}, {"Pacific/Apia", 2011},
	{"Africa/Casablanca", 2021}, {"Antarctica/Troll", 2023}, {"Asia/Tehran", 2021}, {"Europe/Dublin", 2024},
	{"Pacific/Kwajalein", 1993}, {"Asia/Pyongyang", 2015}, {"UTC", 2024},
	// the rule of its last change says another date than its table
	{"America/Ciudad_Juarez", 2022},
	// by rule instead of by table, over the end of a leap year
	{"Europe/Berlin", 2047}, {"Australia/Lord_Howe", 2048},
}

func TestNext_oracle(t *testing.T) {
	for _, z := range oracleZones {
		t.Run(fmt.Sprint(z.name, z.year), func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(z.name)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Date(z.year, time.January, 1, 0, 0, 0, 0, time.UTC)
			end := begin.AddDate(2, 0, 0)
			if testing.Short() {
				end = begin.AddDate(1, 0, 0)
			}
			specs := make([]*schedule.Spec, len(rules))
			next := make([]time.Time, len(rules))
			first := make([]time.Time, len(rules))
			last := make([]time.Time, len(rules))
			ticks := make([]int64, len(rules))
			for i, r := range rules {
				specs[i] = parse(t, r.spec, z.name)
				next[i] = specs[i].Next(begin.Add(-1))
				first[i] = next[i]
			}
			var o oracle
			for m := begin.AddDate(0, 0, -4); m.Before(end); m = m.Add(time.Minute) {
				o.minute(m.In(zone), func(i int) {
					if m.Before(begin) {
						return
					}
					if !next[i].Equal(m) {
						t.Fatalf("%s: %s: want %s", rules[i].spec, next[i], m.In(zone))
					}
					// The tick before is the last until this one.
					d := specs[i].Due(last[i].Add(-time.Second), m.Add(-time.Second), schedule.One, 0)
					if ticks[i] > 0 && (len(d.Fire) != 1 || d.Skipped > 0 || !d.Fire[0].Equal(last[i])) {
						t.Fatalf("%s: before %s: %+v: want %s", rules[i].spec, m, d, last[i])
					}
					last[i] = m
					ticks[i]++
					next[i] = specs[i].Next(m)
				})
			}
			for i, r := range rules {
				if next[i].Before(end) {
					t.Errorf("%s: %s is one too many", r.spec, next[i])
				}
				d := specs[i].Due(begin.Add(-time.Second), end.Add(-1), 1, 0)
				if n := d.Skipped + int64(len(d.Fire)); n != ticks[i] || ticks[i] > 1 && !d.FirstSkipped.Equal(first[i]) {
					t.Errorf("%s: %d ticks are due, the first %s: want %d, %s", r.spec, n, d.FirstSkipped, ticks[i], first[i])
				}
			}
		})
	}
}
