package dashboard

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// lanesData is what the list of queues and kinds shows.
type lanesData struct {
	Lanes  []*errand.LaneTotals
	Search string
	pager
}

// lanesLimit is how many rows the long lists have.
const lanesLimit = 100

// pager says which part of a list that is in memory a page shows.
type pager struct {
	Page, Pages, All int
	Query            template.URL
}

// paged returns the part of a list that an address asks for.
func paged[T any](v url.Values, all []T) ([]T, pager, error) {
	p := pager{All: len(all), Pages: max((len(all)+lanesLimit-1)/lanesLimit, 1)}
	var err error
	if p.Page, err = pageOf(v.Get("page"), p.Pages); err != nil {
		return nil, p, err
	}
	from := (p.Page - 1) * lanesLimit
	p.Query = encoded(v)
	return all[from:min(from+lanesLimit, len(all))], p, nil
}

// json adds to the JSON of a list which part of it that is.
func (p pager) json(out map[string]any) map[string]any {
	out["page"], out["pages"], out["all"] = p.Page, p.Pages, p.All
	return out
}

// laneJSON is a lane as the command has it.
type laneJSON struct {
	errand.LaneStats
	Waits float64  `json:"waits_s,omitempty"`
	Held  []string `json:"held,omitempty"`
}

func laneOfStats(s *errand.LaneStats, now time.Time) laneJSON {
	l := laneJSON{LaneStats: *s}
	if !s.OldestDue.IsZero() {
		l.Waits = max(now.Sub(s.OldestDue), 0).Seconds()
	}
	for i := range s.Holds {
		l.Held = append(l.Held, s.Holds[i].Reason)
	}
	return l
}

func lanes(x *request) (*content, error) {
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	v := x.URL.Query()
	d := &lanesData{Search: strings.TrimSpace(v.Get("search"))}
	var all []*errand.LaneTotals
	for i := range l.lanes {
		if t := &l.lanes[i]; strings.Contains(t.Queue, d.Search) || strings.Contains(t.Kind, d.Search) {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b *errand.LaneTotals) int { return laterDue(a.Stats.OldestDue, b.Stats.OldestDue) })
	if d.Lanes, d.pager, err = paged(v, all); err != nil {
		return nil, err
	}
	c := &content{data: d}
	if v.Get("format") == "json" {
		c.json, err = x.lanesJSON(l, d)
	}
	return c, err
}

// lanesJSON returns a page of lanes as the command has them, with the holds and the settings that
// are about these. The first page has some holds of lanes that never had a job.
func (x *request) lanesJSON(l *look, d *lanesData) (any, error) {
	out, names := []laneJSON{}, map[errand.Lane]bool{{}: true}
	for _, t := range d.Lanes {
		out = append(out, laneOfStats(&t.Stats, l.clock.Now))
		for _, lane := range []errand.Lane{{Queue: t.Queue}, {Kind: t.Kind}, {Queue: t.Queue, Kind: t.Kind}} {
			names[lane] = true
		}
	}
	settings, err := x.b.q.Settings(x.Context())
	if err != nil {
		return nil, err
	}
	settings = slices.DeleteFunc(settings, func(s errand.LaneSettings) bool { return !names[s.Lane] })
	apart, more := first(l.apart, lanesLimit)
	if d.Page > 1 {
		apart, more = nil, 0
	}
	return d.json(map[string]any{
		"lanes": out, "holds": append([]errand.HoldState{}, l.holdsAmong(d.Lanes, apart)...), "more_holds": more, "settings": settingsJSON(settings, l.stats()),
	}), nil
}

// laneData is what the page of a queue, of a kind or of both shows.
type laneData struct {
	errand.Lane
	Both     bool // it is a kind in a queue
	Sums     errand.LaneTotals
	Lanes    []*errand.LaneTotals // if not Both: the largest
	More     int                  // that are not shown
	Holds    []errand.HoldState
	Served   bool
	Unshown  bool // workers are not known
	Workers  []laneWorker
	Settings []settingRow
	Known    bool // the policy in effect
	Curves   []*curve
	Throttle string
	Own      ownPolicies
}

// ownPolicies are the jobs of a lane that have a policy of their own, among the first that wait.
type ownPolicies struct {
	N, Of int
	First errand.ID
}

// ownLimit is how many jobs of a lane are looked at for policies of their own.
const ownLimit = 20

// ownPoliciesOf looks at the first jobs of a lane that are ready, and if there are few, scheduled.
func (x *request) ownPoliciesOf(lane errand.Lane) (own ownPolicies, err error) {
	for _, state := range []errand.State{errand.Ready, errand.Scheduled} {
		if own.Of >= ownLimit {
			break
		}
		page, err := x.b.q.Jobs(x.Context(), errand.JobFilter{Queue: lane.Queue, Kind: lane.Kind, States: []errand.State{state}}, &errand.ListOptions{Limit: ownLimit - own.Of})
		if err != nil {
			return own, err
		}
		own.Of += len(page.Jobs)
		for i := range page.Jobs {
			if j := &page.Jobs[i]; j.Policy != nil {
				if own.N++; own.First.IsZero() {
					own.First = j.ID
				}
			}
		}
	}
	return own, nil
}

// laneWorker is what a worker shows of a lane.
type laneWorker struct {
	Instance, What string
	errand.WorkerLimit
}

func lane(x *request) (*content, error) {
	v := x.URL.Query()
	d := &laneData{Lane: errand.Lane{Queue: v.Get("queue"), Kind: v.Get("kind")}}
	if d.Queue == "" && d.Kind == "" {
		return nil, &errand.FieldError{Field: "queue", Value: "", Limit: "must be a queue, or kind a kind"}
	}
	d.Both = d.Queue != "" && d.Kind != ""
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	d.sum(l)
	for _, h := range l.holds() {
		if d.touches(h.Lane) {
			d.Holds = append(d.Holds, h)
		}
	}
	d.Unshown = l.unshown
	d.addWorkers(l.workers)
	all, err := x.b.q.Settings(x.Context())
	if err != nil && l.away == nil {
		return nil, err
	}
	out := map[string]any{"lane": laneOfStats(&d.Sums.Stats, l.clock.Now), "holds": append([]errand.HoldState{}, d.Holds...)}
	all = slices.DeleteFunc(all, func(s errand.LaneSettings) bool { return !d.touches(s.Lane) && s.Lane != (errand.Lane{}) })
	all = all[:min(len(all), lanesLimit)]
	d.Settings, out["settings"] = settingRows(all, l.stats()), settingsJSON(all, l.stats())
	if d.Both {
		doc, known, err := x.b.q.PolicyOf(x.Context(), errand.JobInfo{Queue: d.Queue, Kind: d.Kind})
		if err != nil && l.away == nil {
			return nil, err
		}
		if d.Known = known && err == nil; d.Known {
			out["policy"] = doc
			d.Curves, d.Throttle = curvesOf(&doc), throttleText(doc.Throttle)
		}
		if d.Own, err = x.ownPoliciesOf(d.Lane); err != nil && l.away == nil {
			return nil, err
		}
	}
	return &content{title: laneText(d.Lane), data: d, json: out}, nil
}

// curvesOf draws the policies of a document.
func curvesOf(doc *policy.Document) []*curve {
	all := []*curve{newCurve("Retries", doc.For(policy.Retryable), -1)}
	if doc.ThrottledRetry != nil {
		all = append(all, newCurve("Retries after errors that say too many requests", *doc.ThrottledRetry, -1))
	}
	return all
}

func throttleText(t *policy.Throttle) string {
	if t == nil || t.MaxReceivesPerSecond == 0 {
		return ""
	}
	return count(t.MaxReceivesPerSecond) + " attempts a second"
}

// touches reports whether something that is said of a lane is about one of this page.
func (d *laneData) touches(l errand.Lane) bool {
	return (l.Queue == "" || d.Queue == "" || l.Queue == d.Queue) && (l.Kind == "" || d.Kind == "" || l.Kind == d.Kind) && l != (errand.Lane{})
}

// sum adds up the lanes of the page.
func (d *laneData) sum(l *look) {
	s := &d.Sums
	s.Queue, s.Kind, s.Stats.Queue, s.Stats.Kind = d.Queue, d.Kind, d.Queue, d.Kind
	for i := range l.lanes {
		t := &l.lanes[i]
		if d.Queue != "" && t.Queue != d.Queue || d.Kind != "" && t.Kind != d.Kind {
			continue
		}
		d.Lanes = append(d.Lanes, t)
		addTotals(s, t, len(d.Lanes) == 1)
		d.Served = d.Served || l.served(t.Queue, t.Kind)
	}
	if d.Both && len(d.Lanes) == 1 {
		*s = *d.Lanes[0]
	}
	if d.Both {
		d.Served, d.Lanes = l.served(d.Queue, d.Kind), nil
	}
	slices.SortStableFunc(d.Lanes, func(a, b *errand.LaneTotals) int { return laterDue(a.Stats.OldestDue, b.Stats.OldestDue) })
	if n := len(d.Lanes); n > lanesLimit {
		d.Lanes, d.More = d.Lanes[:lanesLimit], n-lanesLimit
	}
}

// addTotals adds the numbers of one lane to those of several.
func addTotals(s, t *errand.LaneTotals, first bool) {
	s.Enqueued += t.Enqueued
	s.Done += t.Done
	s.Wait, s.Run, s.Since = plus(s.Wait, t.Wait), plus(s.Run, t.Run), t.Since
	a, b := &s.Stats, &t.Stats
	a.Scheduled += b.Scheduled
	a.Ready += b.Ready
	a.Running += b.Running
	a.Done += b.Done
	a.Cancelled += b.Cancelled
	a.Expired += b.Expired
	a.Dead += b.Dead
	a.Blocked += b.Blocked
	a.Bytes += b.Bytes
	a.Evicted += b.Evicted
	a.DeadEvicted += b.DeadEvicted
	switch {
	case b.Rate == nil:
		a.Rate = nil
	case first:
		r := *b.Rate
		a.Rate = &r
	case a.Rate != nil: // else one of them is not known
		a.Rate.Enqueued += b.Rate.Enqueued
		a.Rate.Done += b.Rate.Done
		a.Rate.Failed += b.Rate.Failed
		a.Rate.Dead += b.Rate.Dead
	}
	if laterDue(b.OldestDue, a.OldestDue) < 0 {
		a.OldestDue = b.OldestDue
	}
	if b.LastSuccess.After(a.LastSuccess) {
		a.LastSuccess = b.LastSuccess
	}
	if b.LastFailure.At.After(a.LastFailure.At) {
		a.LastFailure = b.LastFailure
	}
}

// addWorkers adds what the workers show that work for the page, up to lanesLimit rows.
func (d *laneData) addWorkers(all []errand.WorkerInfo) {
	add := func(w *errand.WorkerInfo, what string, limit *errand.WorkerLimit) {
		if len(d.Workers) < lanesLimit {
			d.Workers = append(d.Workers, laneWorker{w.Instance, what, *limit})
		}
	}
	for i := range all {
		w := &all[i]
		if !w.Serves(d.Queue, d.Kind) {
			continue
		}
		add(w, "worker", &errand.WorkerLimit{Concurrency: w.Concurrency, Full: w.Full})
		for j := range w.Limits {
			if limit := &w.Limits[j]; limit.Includes(d.Queue, d.Kind) {
				add(w, laneText(errand.Lane{Queue: limit.Queue, Kind: limit.Kind}), limit)
			}
		}
	}
}

// Says returns what a worker says of a limit, in words.
func (w laneWorker) Says() string {
	var all []string
	add := func(text string, yes bool) {
		if yes {
			all = append(all, text)
		}
	}
	add(count(w.PerSecond)+" a second", w.PerSecond > 0)
	add("waits for its throttle", w.Throttled)
	add("waits for the throttle of groups", w.GroupThrottled)
	add("a retry budget", w.Budget && !w.BudgetEmpty)
	add("the retry budget is empty", w.BudgetEmpty)
	add("waits until "+itoa(w.BatchMin)+" are ready, or "+took(w.BatchWait), w.BatchMin > 0)
	if w.Gate != nil {
		add("the gate is open", w.Gate.Open)
		add("the gate is closed: "+cmp.Or(w.Gate.Reason, "no reason given"), !w.Gate.Open)
	}
	add("opens gently", !w.Until.IsZero())
	return strings.Join(all, ", ")
}
