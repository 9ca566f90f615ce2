package gate_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // a machine without zones runs the tests too

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
	"github.com/errandq/errand/internal/clock"
)

// States are separated by spaces: a time, and what the gate says from then on until the
// time of the next. What is expected was worked out by hand from the rule, and the dates
// of the changes.
//
//errand:shows closed gates
func TestWindow(t *testing.T) {
	for _, c := range []struct{ name, times, zone, states string }{
		{"a day", "08:00-17:30", "Europe/Berlin",
			"2027-06-01T07:59:59+02:00=08:00 2027-06-01T08:00:00+02:00=open 2027-06-01T17:29:59+02:00=open 2027-06-01T17:30:00+02:00=08:00"},
		{"over midnight", "22:00-06:00", "Europe/Berlin",
			"2027-06-01T05:59:59+02:00=open 2027-06-01T06:00:00+02:00=22:00 2027-06-01T22:00:00+02:00=open 2027-06-02T00:00:00+02:00=open 2027-06-02T06:00:00+02:00=22:00"},
		{"UTC", "22:00-06:00", "", "2027-06-01T21:59:59Z=22:00 2027-06-01T22:00:00Z=open 2027-06-02T06:00:00Z=22:00"},
		{"to 24:00", "12:00-24:00", "", "2027-06-01T11:59:59Z=12:00 2027-06-01T23:59:59Z=open 2027-06-02T00:00:00Z=12:00"},
		{"from 00:00", "00:00-06:00", "", "2027-06-01T00:00:00Z=open 2027-06-01T06:00:00Z=00:00 2027-06-02T00:00:00Z=open"},
		{"a minute", "12:00-12:01", "", "2027-06-01T12:00:00Z=open 2027-06-01T12:01:00Z=12:00"},
		{"all but a minute", "12:01-12:00", "", "2027-06-01T11:59:00Z=open 2027-06-01T12:00:00Z=12:01 2027-06-01T12:01:00Z=open"},
		// 2027-03-28 02:00 +01 becomes 03:00 +02.
		{"gap, opens in it", "02:30-05:00", "Europe/Berlin",
			"2027-03-28T01:59:59+01:00=03:00 2027-03-28T03:00:00+02:00=open 2027-03-28T05:00:00+02:00=02:30"},
		{"gap, closes in it", "22:00-02:30", "Europe/Berlin",
			"2027-03-28T01:59:59+01:00=open 2027-03-28T03:00:00+02:00=22:00"},
		{"gap, wholly in it", "02:10-02:40", "Europe/Berlin",
			"2027-03-27T02:10:00+01:00=open 2027-03-27T02:40:00+01:00=Mon.02:10 2027-03-28T03:00:00+02:00=02:10 2027-03-29T02:10:00+02:00=open"},
		{"gap, closed only in it", "02:40-02:10", "Europe/Berlin",
			"2027-03-27T02:20:00+01:00=02:40 2027-03-28T01:59:59+01:00=open 2027-03-28T03:00:00+02:00=open 2027-03-29T02:10:00+02:00=02:40"},
		{"gap, over it", "22:00-06:00", "Europe/Berlin",
			"2027-03-28T01:59:59+01:00=open 2027-03-28T03:00:00+02:00=open 2027-03-28T06:00:00+02:00=22:00"},
		// 2027-10-31 03:00 +02 becomes 02:00 +01.
		{"fold, opens in it", "02:30-05:00", "Europe/Berlin",
			"2027-10-31T02:29:59+02:00=02:30 2027-10-31T02:30:00+02:00=open 2027-10-31T02:00:00+01:00=open 2027-10-31T05:00:00+01:00=02:30"},
		{"fold, closes in it", "22:00-02:30", "Europe/Berlin",
			"2027-10-31T02:29:59+02:00=open 2027-10-31T02:30:00+02:00=22:00 2027-10-31T02:00:00+01:00=22:00"},
		{"fold, wholly in it", "02:10-02:40", "Europe/Berlin",
			"2027-10-31T02:10:00+02:00=open 2027-10-31T02:40:00+02:00=Mon.02:10 2027-10-31T02:10:00+01:00=02:10 2027-11-01T02:10:00+01:00=open"},
		{"fold, to its end", "01:00-03:00", "Europe/Berlin",
			"2027-10-31T02:59:59+02:00=open 2027-10-31T02:59:59+01:00=open 2027-10-31T03:00:00+01:00=01:00"},
		// 2027-03-14 02:00 -05 becomes 03:00 -04; 2027-11-07 02:00 -04 becomes 01:00 -05.
		{"gap, New York", "02:00-06:00", "America/New_York",
			"2027-03-14T01:59:59-05:00=03:00 2027-03-14T03:00:00-04:00=open 2027-03-14T06:00:00-04:00=02:00"},
		{"fold, New York", "23:00-01:30", "America/New_York",
			"2027-11-07T01:29:59-04:00=open 2027-11-07T01:30:00-04:00=23:00 2027-11-07T01:29:59-05:00=23:00 2027-11-07T23:00:00-05:00=open"},
		// A gap of midnight: 2027-09-05 00:00 -04 becomes 01:00 -03.
		{"gap, Santiago", "12:00-24:00", "America/Santiago",
			"2027-09-04T23:59:59-04:00=open 2027-09-05T01:00:00-03:00=12:00 2027-09-05T12:00:00-03:00=open"},
		{"gap, Santiago, from midnight", "00:00-06:00", "America/Santiago",
			"2027-09-04T23:59:59-04:00=01:00 2027-09-05T01:00:00-03:00=open 2027-09-05T06:00:00-03:00=00:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := must(gate.Window(c.times, c.zone))
				for s := range strings.FieldsSeq(c.states) {
					at, state, _ := strings.Cut(s, "=")
					time.Sleep(time.Until(parse(t, at)))
					reason := ""
					if state != "open" {
						zone := c.zone
						if zone == "" {
							zone = "UTC"
						}
						reason = "outside " + c.times + " " + zone + " until " + strings.Replace(state, ".", " ", 1)
					}
					if open, got, _ := g.State(); open != (state == "open") || got != reason {
						t.Errorf("%s: %t, %q; want %q", at, open, got, reason)
					}
				}
			})
		})
	}
}

func parse(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Who waits is told at the second at which a window opens or closes.
func TestWindow_Wakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		night := must(gate.Window("22:00-06:00", "Europe/Berlin"))
		time.Sleep(time.Until(parse(t, "2027-03-27T12:00:07+01:00"))) // no multiple of 15 s from here
		// The clock may be set: who waits is told to look again.
		_, _, changed := night.State()
		start := time.Now()
		<-changed
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("left alone for %v", d)
		}
		for _, s := range []string{
			"2027-03-27T22:00:00+01:00", "2027-03-28T06:00:00+02:00", "2027-03-28T22:00:00+02:00",
		} {
			open, _, _ := night.State()
			waitFor(night, !open)
			if at := parse(t, s); !time.Now().Equal(at) {
				t.Errorf("%t at %v, want %v", !open, time.Now(), at)
			}
		}
	})
}

func TestWindow_Several(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight of 2000-01-01
		defer rest()
		g := must(gate.Any(must(gate.Window("12:00-13:00", "")), must(gate.Window("22:00-06:00", ""))))
		waitFor(g, false)
		want(t, g, false, "outside 12:00-13:00 UTC until 12:00; outside 22:00-06:00 UTC until 22:00")
		for _, hour := range []int{12, 13, 22} {
			open, _, _ := g.State()
			waitFor(g, !open)
			if time.Now().UTC().Hour() != hour || time.Now().Minute() != 0 {
				t.Errorf("%t at %v, want %d:00", !open, time.Now(), hour)
			}
		}
	})
}

func TestWindow_refused(t *testing.T) {
	const form, same = "must be two times of a day", "must begin and end at different times"
	for times, limit := range map[string]string{
		"": form, "22-6": form, "22:00": form, "22:00-06:0x": form, "24:00-06:00": form, "22:60-06:00": form, "22:00-25:00": form,
		"22:00-24:01": form, "22:00 06:00": form, "22:00-06:000": form, "22.00-06:00": form, "-1:00-06:00": form,
		"06:00-06:00": same, "00:00-24:00": same,
	} {
		_, err := gate.Window(times, "")
		wantFaults(t, err, "window", limit)
	}
	for _, zone := range []string{"Local", "Atlantis", "../etc/passwd", "Europe/Berlin "} {
		_, err := gate.Window("22:00-06:00", zone)
		wantFaults(t, err, "zone", "must be")
	}
	_, err := gate.Window("", "Atlantis")
	wantFaults(t, err, "window", form, "zone", "must be")
}

func TestClockPlausible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := clock.Built.Add(time.Hour)
		built, given := gate.ClockPlausible(time.Time{}), gate.ClockPlausible(later)
		early := gate.ClockPlausible(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
		for _, g := range []errand.Gate{built, early} {
			want(t, g, false, "the clock shows 2000-01-01 00:00:00 UTC, before "+clock.Built.Format(time.DateTime))
		}
		time.Sleep(time.Until(clock.Built.Add(-20 * time.Second)))
		waitFor(built, true)
		if now := time.Now(); !now.Equal(clock.Built) {
			t.Errorf("open at %v", now)
		}
		want(t, early, true, "")
		waitFor(given, true)
		if now := time.Now(); !now.Equal(later) {
			t.Errorf("open at %v, want %v", now, later)
		}
		// The clock may be set back: who waits is told to look again.
		start := time.Now()
		<-want(t, given, true, "")
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("left alone for %v", d)
		}
	})
}
