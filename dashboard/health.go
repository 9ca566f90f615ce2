package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
)

// settingRow is one setting.
type settingRow struct {
	errand.Lane
	Name, Value, Use string
}

// Where says of what it is set.
func (r settingRow) Where() string {
	if r.Lane == (errand.Lane{}) {
		return "the whole file"
	}
	return laneText(r.Lane)
}

// settingRows returns a row for each setting. If stats are given, those of caps have what is in
// use.
func settingRows(all []errand.LaneSettings, stats []errand.LaneStats) (rows []settingRow) {
	for i := range all {
		s := &all[i]
		var use errand.CapUse
		if stats != nil && (s.MaxJobs != nil || s.MaxBytes != nil || s.MaxDead != nil) {
			use = s.CapUse(stats)
		}
		for _, r := range valuesOf(&s.Settings) {
			r.Lane = s.Lane
			if stats != nil {
				switch r.Name {
				case "Max jobs":
					r.Use = count(use.Jobs)
				case "Max bytes":
					r.Use = size(use.Bytes)
				case "Max dead":
					r.Use = count(use.Dead)
				}
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// valuesOf returns the settings that are set, under the names of their fields.
func valuesOf(s *errand.Settings) (rows []settingRow) {
	add := func(name, value string) { rows = append(rows, settingRow{Name: name, Value: value}) }
	ofInt := func(name string, p *int) {
		if p != nil {
			add(name, count(*p))
		}
	}
	ofBytes := func(name string, p *int64) {
		if p != nil {
			add(name, size(*p))
		}
	}
	ofTime := func(name string, p *time.Duration) {
		if p != nil {
			add(name, took(*p))
		}
	}
	ofInt("Max jobs", s.MaxJobs)
	ofBytes("Max bytes", s.MaxBytes)
	if s.WhenFull != nil {
		add("When full", s.WhenFull.String())
	}
	ofBytes("Min free", s.MinFree)
	ofInt("Min free priority", s.MinFreePriority)
	ofInt("Max dead", s.MaxDead)
	if s.WhenDeadFull != nil {
		add("When dead full", s.WhenDeadFull.String())
	}
	ofInt("Group limit", s.GroupLimit)
	if s.DeadHead != nil {
		add("Dead head", s.DeadHead.String())
	}
	if s.Order != nil {
		add("Order", s.Order.String())
	}
	ofTime("Aging", s.Aging)
	if s.Starts != nil {
		text := count(*s.Starts) + " in " + took(cmp.Or(deref(s.StartsPer), time.Second))
		if n := deref(s.StartsBurst); n > 0 {
			text += ", " + count(n) + " at once"
		}
		add("Starts", text)
	}
	if s.Retention != nil && *s.Retention < 0 {
		add("Retention", "finished jobs are deleted at once")
	} else {
		ofTime("Retention", s.Retention)
	}
	ofTime("Start within", s.StartWithin)
	ofTime("Finish within", s.FinishWithin)
	if s.OnExpire != nil {
		add("On expire", string(*s.OnExpire))
	}
	return rows
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// healthData is what the page about the file shows.
type healthData struct {
	errand.Health
	ReadOnly bool // whether it can be written is not known
	Damaged  bool
	Clock    errand.ClockState
	Jobs     int64 // that are in the file
	Bytes    int64 // of args and headers
	Lanes    int
	Settings []settingRow
	Search   string
	pager
}

// stats returns the numbers of all lanes.
func (l *look) stats() []errand.LaneStats {
	all := make([]errand.LaneStats, len(l.lanes))
	for i := range l.lanes {
		all[i] = l.lanes[i].Stats
	}
	return all
}

func health(x *request) (*content, error) {
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	settings, err := x.b.q.Settings(x.Context())
	if err != nil && l.away == nil {
		return nil, err
	}
	v := x.URL.Query()
	d := &healthData{Health: l.health, ReadOnly: l.readOnly, Damaged: isDamaged(&l.health), Clock: x.b.q.Clock(), Lanes: len(l.lanes), Search: strings.TrimSpace(v.Get("search"))}
	stats := l.stats()
	for i := range stats {
		for _, n := range byState(&stats[i]) {
			d.Jobs += n
		}
		d.Bytes += stats[i].Bytes
	}
	settings = slices.DeleteFunc(settings, func(s errand.LaneSettings) bool {
		return !strings.Contains(s.Queue, d.Search) && !strings.Contains(s.Kind, d.Search)
	})
	if settings, d.pager, err = paged(v, settings); err != nil {
		return nil, err
	}
	d.Settings = settingRows(settings, stats)
	return &content{data: d, json: d.json(map[string]any{"health": l.health, "clock": d.Clock, "settings": settingsJSON(settings, stats)})}, nil
}
