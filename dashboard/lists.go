package dashboard

import (
	"slices"
	"strconv"
	"strings"

	"github.com/errandq/errand"
)

// lanesData is what the list of queues and kinds shows.
type lanesData struct {
	Lanes       []errand.LaneTotals
	Search      string
	Page, Pages int
	All         int
	Query       string
}

const lanesLimit = 100

func lanes(x *request) (*content, error) {
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	v := x.URL.Query()
	d := &lanesData{Search: v.Get("search")}
	var all []errand.LaneTotals
	for _, t := range l.lanes {
		if strings.Contains(t.Queue, d.Search) || strings.Contains(t.Kind, d.Search) {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b errand.LaneTotals) int { return laterDue(a.Stats.OldestDue, b.Stats.OldestDue) })
	d.All, d.Pages = len(all), max((len(all)+lanesLimit-1)/lanesLimit, 1)
	if d.Page, err = number(v.Get("page"), 1, d.Pages); err != nil {
		return nil, err
	}
	from := (d.Page - 1) * lanesLimit
	d.Lanes = all[from:min(from+lanesLimit, len(all))]
	v.Del("page")
	d.Query = v.Encode()
	return &content{data: d, json: all}, nil
}

// number reads a number of an address, which is 1 if it is missing.
func number(s string, least, most int) (int, error) {
	if s == "" {
		return least, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return 0, &errand.FieldError{Field: "page", Value: s, Limit: "must be between " + itoa(least) + " and " + itoa(most)}
	}
	return n, nil
}

func causes(x *request) (*content, error) {
	v := x.URL.Query()
	all, err := x.b.q.DeadLetters().Causes(x.Context(), &errand.CauseOptions{Lane: errand.Lane{Queue: v.Get("queue"), Kind: v.Get("kind")}, Limit: 200})
	if err != nil {
		return nil, err
	}
	return &content{data: map[string]any{"Causes": all, "Queue": v.Get("queue"), "Kind": v.Get("kind")}, json: all}, nil
}

func groups(x *request) (*content, error) {
	v := x.URL.Query()
	page, err := x.b.q.Groups(x.Context(), &errand.GroupOptions{Queue: v.Get("queue"), Waiting: v.Get("waiting") != "", Limit: jobsLimit, After: v.Get("after")})
	if err != nil {
		return nil, err
	}
	more := v
	more.Set("after", page.Next)
	return &content{data: map[string]any{"Groups": page.Groups, "Next": page.Next, "More": more.Encode(), "Queue": v.Get("queue"), "Waiting": v.Get("waiting") != ""}, json: page}, nil
}

func schedules(x *request) (*content, error) {
	all, err := x.b.q.Schedules().List(x.Context())
	if err != nil {
		return nil, err
	}
	if x.who.Role < Admin {
		for i := range all {
			all[i].Args = nil
		}
	}
	return &content{data: all, json: all}, nil
}

func schedule(x *request) (*content, error) {
	name := x.URL.Query().Get("name")
	info, err := x.b.q.Schedules().Get(x.Context(), name)
	if err != nil {
		return nil, err
	}
	ticks, err := x.b.q.Schedules().History(x.Context(), name)
	if err != nil {
		return nil, err
	}
	args := x.shown(info.Args)
	if x.who.Role < Admin {
		info.Args = nil
	}
	slices.Reverse(ticks)
	return &content{title: "Schedule " + name, data: map[string]any{"Info": info, "Args": args, "Ticks": ticks}, json: map[string]any{"schedule": info, "ticks": ticks}}, nil
}

func bulks(x *request) (*content, error) {
	all, err := x.b.q.Bulks(x.Context())
	if err != nil {
		return nil, err
	}
	return &content{data: all, json: all}, nil
}

func workers(x *request) (*content, error) {
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	return &content{data: map[string]any{"Workers": l.workers, "Unshown": l.unshown}, json: l.workers}, nil
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
	return &content{data: map[string]any{"Health": l.health, "Clock": l.clock, "Settings": asJSON(settings), "N": len(settings)}, json: map[string]any{"health": l.health, "clock": l.clock, "settings": settings}}, nil
}
