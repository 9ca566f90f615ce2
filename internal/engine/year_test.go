package engine_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
)

// A long run is a year and more in one zone, from January 2000 on. The times at
// which its clocks are changed, and what that makes of the schedules below, are
// written down here as they are in the almanac.
type longRun struct {
	zone         string
	gap, overlap clockTime // of the two daily schedules: in the hours that are skipped, and repeated
	inGap        string    // when the one ticks on the day on which clocks go forward
	inOverlap    string    // when the other ticks on the day on which they go back
	forward      []string  // the hourly ticks around the one change
	back         []string  // and the other
}

type clockTime struct {
	spec         string
	hour, minute int
}

var longRuns = []longRun{
	{
		"Europe/Berlin", clockTime{"30 2 * * *", 2, 30}, clockTime{"30 2 * * *", 2, 30},
		"2000-03-26T03:00:00+02:00", "2000-10-29T02:30:00+02:00",
		[]string{"2000-03-26T01:00:00+01:00", "2000-03-26T03:00:00+02:00", "2000-03-26T04:00:00+02:00"},
		[]string{"2000-10-29T02:00:00+02:00", "2000-10-29T02:00:00+01:00", "2000-10-29T03:00:00+01:00"},
	},
	{
		"America/New_York", clockTime{"30 2 * * *", 2, 30}, clockTime{"45 1 * * *", 1, 45},
		"2000-04-02T03:00:00-04:00", "2000-10-29T01:45:00-04:00",
		[]string{"2000-04-02T01:00:00-05:00", "2000-04-02T03:00:00-04:00", "2000-04-02T04:00:00-04:00"},
		[]string{"2000-10-29T01:00:00-04:00", "2000-10-29T01:00:00-05:00", "2000-10-29T02:00:00-05:00"},
	},
	{ // by half an hour; an early spring, for the Olympic Games
		"Australia/Lord_Howe", clockTime{"15 2 * * *", 2, 15}, clockTime{"45 1 * * *", 1, 45},
		"2000-08-27T02:30:00+11:00", "2000-03-26T01:45:00+11:00",
		[]string{"2000-08-27T01:00:00+10:30", "2000-08-27T02:30:00+11:00", "2000-08-27T03:00:00+11:00"},
		[]string{"2000-03-26T01:00:00+11:00", "2000-03-26T02:00:00+10:30", "2000-03-26T03:00:00+10:30"},
	},
}

const longDays = 400

// walk returns the ticks of an hourly and of two daily schedules by looking at
// the clocks of the zone in each minute.
//
// The hourly one ticks when they show a full hour, and for as long after they
// went forward as they went, also when they would have shown one. A daily one
// ticks when they have reached its time on a date for the first time.
func (lr longRun) walk(begin time.Time) (hours, gap, overlap []time.Time) {
	shown := func(t time.Time) time.Time { // as if it were UTC
		return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	}
	reached := shown(begin.Add(-time.Hour)) // the latest that they have shown
	last := reached
	var old time.Duration // by how much they went forward
	var until time.Time   // and for how long that counts
	for t := begin.Add(-time.Hour + time.Minute); t.Before(begin.AddDate(0, 0, longDays)); t = t.Add(time.Minute) {
		now := shown(t)
		if skipped := now.Sub(last) - time.Minute; skipped > 0 {
			old, until = skipped, t.Add(skipped)
		}
		last = now
		passed := func(c clockTime) bool {
			at := time.Date(now.Year(), now.Month(), now.Day(), c.hour, c.minute, 0, 0, time.UTC)
			return at.After(reached) && !at.After(now)
		}
		isGap, isOverlap := passed(lr.gap), passed(lr.overlap)
		if now.After(reached) {
			reached = now
		}
		if !t.After(begin) {
			continue
		}
		if now.Minute() == 0 || t.Before(until) && now.Add(-old).Minute() == 0 {
			hours = append(hours, t)
		}
		if isGap {
			gap = append(gap, t)
		}
		if isOverlap {
			overlap = append(overlap, t)
		}
	}
	return hours, gap, overlap
}

// yearly is one schedule of a long run: what is expected of it, and what came.
type yearly struct {
	name   string
	spec   string
	missed string
	most   int // that are made up for: -1 none, 0 one, unless one is on time
	ticks  []time.Time

	done    int // of ticks
	want    []run
	skipped int64
}

// restart is what a schedule makes of the ticks up to now, of which only those
// less than ten seconds old are on time.
func (y *yearly) restart(now time.Time) {
	missed := y.due(now)
	keep := 0
	for _, t := range missed {
		if now.Sub(t) <= 10*time.Second {
			keep++
		}
	}
	if y.most >= 0 {
		keep = min(len(missed), max(keep, y.most, 1))
	}
	y.skipped += int64(len(missed) - keep)
	for _, t := range missed[len(missed)-keep:] {
		y.want = append(y.want, run{tick: t, at: now})
	}
}

// go on until now fires what comes when it comes.
func (y *yearly) goOn(now time.Time) {
	for _, t := range y.due(now) {
		y.want = append(y.want, run{tick: t, at: t})
	}
}

func (y *yearly) due(now time.Time) []time.Time {
	from := y.done
	for y.done < len(y.ticks) && !y.ticks[y.done].After(now) {
		y.done++
	}
	return y.ticks[from:y.done]
}

// Over 400 days with stops and crashes no tick is doubled, those missed are
// dealt with exactly as their schedules say, and both changes of the clocks go
// by the rule.
func TestSchedule_AYearOfRestarts(t *testing.T) {
	runs := longRuns
	if raced || testing.Short() {
		runs = runs[2:] // the oddest
	}
	for _, lr := range runs {
		t.Run(lr.zone, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(lr.zone)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { lr.run(t, zone) })
		})
	}
}

func (lr longRun) run(t *testing.T, zone *time.Location) {
	began := time.Now().In(zone)
	hours, gap, overlap := lr.walk(began)
	all := []*yearly{
		{name: "hourly-one", spec: "0 * * * *", missed: "one", ticks: hours},
		{name: "hourly-skip", spec: "@hourly", missed: "skip", most: -1, ticks: hours},
		{name: "hourly-all", spec: "0 * * * *", missed: "all(5)", most: 5, ticks: hours},
		{name: "gap", spec: lr.gap.spec, missed: "one", ticks: gap},
		{name: "overlap", spec: lr.overlap.spec, missed: "skip", most: -1, ticks: overlap},
	}
	first := newRig(t)
	rec := &record{runs: map[string][]run{}}
	for _, y := range all {
		first.declare(storage.Schedule{Name: y.name, Spec: y.spec, Zone: lr.zone, Missed: y.missed})
	}
	skipped := map[string]int64{}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	changes := append(lr.times(t, lr.forward), lr.times(t, lr.back)...)
	end := began.AddDate(0, 0, longDays)
	restarts := 0
	for time.Now().Before(end) {
		r := first.another()
		r.store.alone = true
		r.cfg.Keep = 0
		r.handle("k", rec.handle(t))
		r.start()
		for _, y := range all {
			y.restart(time.Now())
		}
		up := time.Duration(random.Int64N(int64(6*day))).Truncate(time.Second) + time.Second/2
		stop := around(time.Now().Add(up), changes, +1)
		if stop.After(end) {
			stop = end.Add(-time.Second / 2)
		}
		pass(time.Until(stop))
		for _, y := range all {
			y.goOn(time.Now())
		}
		if random.IntN(2) == 0 {
			r.db.Kill(r.store.Store)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		for _, c := range r.store.of("fire", 0) {
			for _, f := range c.firings {
				for _, tick := range f.Ticks {
					if tick.Taken == storage.TickMissed {
						skipped[f.Name] += tick.N
					}
				}
			}
		}
		restarts++
		pass(time.Until(around(time.Now().Add(lr.down(random)), changes, -1)))
	}
	t.Logf("seed %d: %d restarts, skipped %v of %d hours", seed, restarts, skipped, len(hours))
	for _, y := range all {
		got := rec.take(y.name)
		slices.SortStableFunc(got, func(a, b run) int { return a.tick.Compare(b.tick) })
		if len(got) != len(y.want) || skipped[y.name] != y.skipped {
			t.Errorf("%s: %d runs and %d skipped, want %d and %d", y.name, len(got), skipped[y.name], len(y.want), y.skipped)
		}
		for i := range min(len(got), len(y.want)) {
			if g, w := got[i], y.want[i]; !g.tick.Equal(w.tick) || !g.at.Equal(w.at) {
				t.Fatalf("%s: run %d is of %v at %v, want %v at %v", y.name, i, g.tick, g.at.In(zone), w.tick, w.at)
			}
		}
		switch y.name {
		case "gap":
			lr.wantTicks(t, got, []string{lr.inGap}, day)
		case "overlap":
			lr.wantTicks(t, got, []string{lr.inOverlap}, day)
		case "hourly-one":
			lr.wantTicks(t, got, lr.forward, 0)
			lr.wantTicks(t, got, lr.back, 0)
		}
	}
}

// down returns for how long nothing runs: at times for days, at times until a
// moment after a full hour.
func (lr longRun) down(random *rand.Rand) time.Duration {
	switch random.IntN(3) {
	case 0:
		return time.Duration(random.Int64N(int64(2 * day)))
	case 1:
		return time.Duration(random.Int64N(int64(time.Minute)))
	}
	hours := time.Duration(1+random.IntN(12)) * 30 * time.Minute
	at := time.Now().Truncate(30 * time.Minute).Add(hours + time.Duration(random.IntN(20))*time.Second)
	return time.Until(at)
}

// around returns t, or if that is close to a change of the clocks a time after it
// (side +1) or before it: the engine is up then.
func around(t time.Time, changes []time.Time, side time.Duration) time.Time {
	const margin = 30 * time.Hour
	for _, c := range changes {
		if d := t.Sub(c); d > -margin && d < margin {
			return c.Add(side*margin + 17*time.Second + time.Second/2)
		}
	}
	return t
}

func (lr longRun) times(t *testing.T, text []string) []time.Time {
	var all []time.Time
	for _, s := range text {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, at)
	}
	return all
}

// wantTicks checks that there were these ticks and no others between them, and
// so far around them.
func (lr longRun) wantTicks(t *testing.T, runs []run, text []string, around time.Duration) {
	t.Helper()
	want := lr.times(t, text)
	var got []string
	for _, run := range runs {
		if !run.tick.Before(want[0].Add(-around/2)) && !run.tick.After(want[len(want)-1].Add(around/2)) {
			got = append(got, run.tick.Format(time.RFC3339))
		}
	}
	if !slices.Equal(got, text) {
		t.Errorf("ticks %v, want %v", got, text)
	}
}
