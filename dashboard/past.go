package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand"
)

// past is what has become of jobs in the last week, as the file has it.
type past struct {
	periods []errand.Period // the oldest first
	none    bool            // the store keeps no history
	whole   time.Time       // the hour in which all of it was read
	read    time.Time
	version int64 // of the file then
}

// span is how far back charts go, and of how much time each of their points is.
type span struct {
	Name   string
	of, by time.Duration
}

var spans = []span{{"hour", time.Hour, 5 * time.Minute}, {"day", 24 * time.Hour, 30 * time.Minute}, {"week", 7 * 24 * time.Hour, 3 * time.Hour}}

// spanOf returns the span of a name; that of none is the first.
func spanOf(name string) (span, error) {
	i := slices.IndexFunc(spans, func(s span) bool { return s.Name == cmp.Or(name, spans[0].Name) })
	if i < 0 {
		return span{}, &errand.FieldError{Field: "span", Value: name, Limit: "must be hour, day or week"}
	}
	return spans[i], nil
}

// remember reads what is not known yet of the past. Once an hour it is read anew, as the file
// forgets some of it.
func (p past) remember(ctx context.Context, q *errand.Queue) (past, error) {
	now := q.Clock().Now
	hour, since := now.Truncate(time.Hour), now.Add(-spans[len(spans)-1].of)
	if n := len(p.periods); n > 0 && p.whole.Equal(hour) {
		since = p.periods[n-1].From
	}
	got, err := q.History(ctx, since)
	if err == nil && len(got) == 0 && len(p.periods) > 0 { // the clock was set back
		return past{}.remember(ctx, q)
	}
	if errors.Is(err, errand.ErrUnsupportedDB) {
		return past{none: true}, nil
	}
	if err != nil || len(got) == 0 {
		return past{whole: hour}, err
	}
	older := slices.IndexFunc(p.periods, func(o errand.Period) bool { return !o.From.Before(got[0].From) })
	switch {
	case !p.whole.Equal(hour):
		older = 0
	case older < 0:
		older = len(p.periods)
	}
	return past{periods: append(slices.Clone(p.periods[:older]), got...), whole: hour}, nil
}

// since returns the periods that end after a time.
func (p *past) since(t time.Time) []errand.Period {
	i := slices.IndexFunc(p.periods, func(o errand.Period) bool { return o.To.After(t) })
	if i < 0 {
		return []errand.Period{}
	}
	return p.periods[i:]
}

// of returns what has become of the jobs of a lane, from when the file knows it on.
func (p *past) of(t *errand.LaneTotals) *past {
	own := &past{none: p.none}
	for i := range p.periods {
		o := &p.periods[i]
		j := slices.IndexFunc(o.Lanes, func(l errand.LanePeriod) bool { return l.Queue == t.Queue && l.Kind == t.Kind })
		if j >= 0 {
			own.periods = append(own.periods, errand.Period{From: o.From, To: o.To, Lanes: o.Lanes[j : j+1]})
		}
	}
	return own
}

// number is what is counted of a lane: in a period, and a minute of late.
type number struct {
	in   func(l *errand.LanePeriod) int64
	rate func(r *errand.Rate) float64
}

var (
	numberDone   = number{func(l *errand.LanePeriod) int64 { return l.Done }, func(r *errand.Rate) float64 { return r.Done }}
	numberFailed = number{func(l *errand.LanePeriod) int64 { return l.Failed }, func(r *errand.Rate) float64 { return r.Failed }}
	numberDead   = number{func(l *errand.LanePeriod) int64 { return l.Died }, func(r *errand.Rate) float64 { return r.Dead }}
)

// in returns how much there was of a number from one time to another.
func (p *past) in(from, to time.Time, n number) (sum float64) {
	for i := range p.periods {
		o := &p.periods[i]
		both := minTime(to, o.To).Sub(maxTime(from, o.From))
		if both <= 0 {
			continue
		}
		had := int64(0)
		for j := range o.Lanes {
			had += n.in(&o.Lanes[j])
		}
		sum += float64(had) * both.Seconds() / o.To.Sub(o.From).Seconds()
	}
	return sum
}

// rate returns how much there was of a number a minute in the last five to ten, as [errand.Rate]
// has it of one lane; known is false if the file is younger.
func (p *past) rate(now time.Time, n number) (perMinute float64, known bool) {
	since := now.Add(-rateOver).Truncate(rateOver)
	if len(p.periods) == 0 || !p.periods[0].From.Before(since) {
		return 0, false
	}
	return p.in(since, now, n) / now.Sub(since).Minutes(), true
}

// young reports whether rates are not known yet, and will be.
func (p *past) young(now time.Time) bool {
	return len(p.periods) > 0 && now.Sub(p.periods[0].From) <= 3*rateOver
}

// rateOver is the least time of which rates are, and the unit in which they begin.
const rateOver = 5 * time.Minute

// rates returns how much there was of a number a minute, over a span.
func (p *past) rates(s span, now time.Time, n number) (all []point) {
	for from := now.Add(-s.of).Truncate(s.by); from.Before(now); from = from.Add(s.by) {
		to := minTime(from.Add(s.by), now)
		if len(p.periods) == 0 || !to.After(p.periods[0].From) || to.Sub(from) < s.by/5 { // what has only begun says little
			continue
		}
		all = append(all, point{at: from, to: to, y: p.in(from, to, n) / to.Sub(from).Minutes()})
	}
	return all
}

// levels returns how many jobs there were of a kind, over a span, from when the file knows it on, and
// is how many there are now.
func (p *past) levels(s span, now time.Time, is float64, of func(o *errand.LanePeriod) int64) (all []point) {
	begin := now.Add(-s.of)
	add := func(at time.Time, v float64) {
		if !at.Before(begin) {
			all = append(all, point{at: at, to: at, y: v})
		}
	}
	for i := range p.periods {
		o, had := &p.periods[i], 0.0
		for j := range o.Lanes {
			had += float64(of(&o.Lanes[j]))
		}
		if i > 0 && o.From.After(p.periods[i-1].To) { // nothing has happened since
			add(p.periods[i-1].To, had)
		}
		add(o.From, had)
	}
	if len(p.periods) > 0 {
		add(now, is)
	}
	return all
}

// ages returns how long the oldest job that was due had waited, over a span; oldest is when that
// of now was due.
func (p *past) ages(s span, now, oldest time.Time) (all []point) {
	begin := now.Add(-s.of)
	due := make([]time.Time, 0, len(p.periods)+1) // from the period on
	at := make([]time.Time, 0, len(p.periods)+1)
	for i := range p.periods {
		var first time.Time
		for j := range p.periods[i].Lanes {
			if d := p.periods[i].Lanes[j].OldestDue; laterDue(d, first) < 0 {
				first = d
			}
		}
		due, at = append(due, first), append(at, p.periods[i].From)
	}
	if len(at) > 0 {
		due, at = append(due, oldest), append(at, now)
	}
	add := func(at, due time.Time) {
		if !at.Before(begin) {
			age := 0.0
			if !due.IsZero() && due.Before(at) {
				age = at.Sub(due).Seconds()
			}
			all = append(all, point{at: at, to: at, y: age})
		}
	}
	for i := range at {
		if i > 0 && !due[i].IsZero() && due[i].After(at[i-1]) && due[i].Before(at[i]) {
			add(due[i], due[i]) // nothing waited until then
		}
		add(at[i], due[i])
	}
	return all
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
