package gate

import (
	"fmt"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/schedule"
)

// Window returns a gate that is open at some time of each day, such as "22:00-06:00", in
// the zone of a name of the IANA time zone database; an empty zone is UTC. The first time
// belongs to the window, the second does not. A window whose second time is before its
// first goes over midnight. 24:00 is the end of a day. For several windows use [Any]. On
// a device without a clock battery, put [ClockPlausible] before it, with [All].
//
// The window opens and closes as a schedule with these times fires. Where clocks are set
// forward, a time that is left out comes at the first instant after the gap: a window
// wholly within the gap does not open. Where clocks are set back, a time that comes twice
// counts when it comes first. A clock that was set is noticed within 15 s.
//
// Another form of window, the whole day, and a zone that is not known are refused with an
// [errand.FieldError].
func Window(times, zone string) (errand.Gate, error) {
	var f faults
	from, to, ok := parseTimes(times)
	switch {
	case !ok:
		f.field("window", times, "must be two times of a day, such as 22:00-06:00")
	case from == to%day:
		f.field("window", times, "must begin and end at different times of the day")
	}
	w := &window{wraps: from > to%day}
	var err error
	if w.opens, err = schedule.Parse(daily(from), zone); err == nil {
		w.closes, err = schedule.Parse(daily(to%day), zone)
	}
	for _, fault := range schedule.Faults(err) {
		f.field(fault.Field, fault.Value, fault.Limit)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	w.name = times + " " + w.opens.Zone().String()
	return w, nil
}

const day = 24 * 60 // minutes

// daily returns the spec of a schedule for a minute of each day.
func daily(minute int) string { return fmt.Sprintf("%d %d * * *", minute%60, minute/60) }

// parseTimes returns the minutes of the day at which a window opens and closes.
func parseTimes(s string) (from, to int, ok bool) {
	var n [4]int
	const form = "00:00-00:00"
	if len(s) != len(form) {
		return 0, 0, false
	}
	for i, c := range []byte(s) {
		switch {
		case form[i] != '0' && c != form[i], form[i] == '0' && (c < '0' || c > '9'):
			return 0, 0, false
		case form[i] == '0':
			n[i/3] = 10*n[i/3] + int(c-'0')
		}
	}
	from, to = 60*n[0]+n[1], 60*n[2]+n[3]
	if n[1] > 59 || n[3] > 59 || from >= day || to > day {
		return 0, 0, false
	}
	return from, to, true
}

type window struct {
	name          string // "22:00-06:00 Europe/Berlin"
	opens, closes *schedule.Spec
	wraps         bool // over midnight
	alarm         alarm
}

// AsksNobody has engines ask it when they like, see engine.Gate.
func (*window) AsksNobody() {}

func (w *window) State() (open bool, reason string, changed <-chan struct{}) {
	now := time.Now().Round(0) // what the monotonic clock says does not count
	open, next := w.at(now)
	changed = w.alarm.within(max(next.Sub(now), 0))
	if open {
		return true, "", changed
	}
	layout := "15:04"
	if next.Sub(now) > 24*time.Hour {
		layout = "Mon 15:04"
	}
	return false, "outside " + w.name + " until " + next.Format(layout), changed
}

// at reports whether the window is open at a time, and returns when that changes.
func (w *window) at(t time.Time) (open bool, next time.Time) {
	opens, closes := w.opens.Next(t), w.closes.Next(t)
	switch {
	case opens.IsZero() || closes.IsZero(): // the year 9999 is over
		return false, t.Add(lookAgain)
	case opens.Before(closes):
		return false, opens
	case closes.Before(opens):
		return true, closes
	}
	// A gap holds both: they come at its end, and nothing changes.
	_, next = w.at(opens)
	return w.wraps, next
}
