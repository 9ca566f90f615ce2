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
	Lanes  []laneRow
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
	worry := worries(l.troubles())
	l.sortLanes(all, worry)
	if all, d.pager, err = paged(v, all); err != nil {
		return nil, err
	}
	d.Lanes = l.rows(all, worry)
	c := &content{data: d}
	if v.Get("format") == "json" {
		c.json, err = x.lanesJSON(l, d, all)
	}
	return c, err
}

// lanesJSON returns a page of lanes as the command has them, with the holds and the settings that
// are about these. The first page has some holds of lanes that never had a job.
func (x *request) lanesJSON(l *look, d *lanesData, of []*errand.LaneTotals) (any, error) {
	out, names := []laneJSON{}, map[errand.Lane]bool{{}: true}
	for _, t := range of {
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
		"lanes": out, "holds": append([]errand.HoldState{}, l.holdsAmong(of, apart)...), "more_holds": more, "settings": settingsJSON(settings, l.stats()),
	}), nil
}

// laneData is what the page of a queue, of a kind or of both shows.
type laneData struct {
	errand.Lane
	Both     bool     // it is a kind in a queue
	Worry    *trouble // the worst that it has; nil: none
	Held     int64    // of those that are ready
	Tiles    []tile
	Sums     errand.LaneTotals
	Lanes    []laneRow // if not Both: the worst
	More     int       // that are not shown
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
	worry := worries(l.troubles())
	all, more := first(d.sum(l, worry), lanesLimit)
	d.Lanes, d.More = l.rows(all, worry), more
	d.Worry = l.worryOf(&d.Sums, worry)
	if len(d.Lanes) > 0 { // the first is the worst
		d.Worry = d.Lanes[0].Worry
	}
	if w := d.Worry; w != nil && w.Reason != "" {
		w.Starts = l.under(&errand.HoldState{Lane: w.Lane, Reason: w.Reason}).free
	}
	for _, p := range parts(&d.Sums.Stats, d.Held) {
		d.Tiles = append(d.Tiles, tile{Class: p.Class, Of: cmp.Or(p.Of, p.Class), N: p.N})
	}
	d.Tiles[1].N = d.Sums.Stats.Ready // with those that are held
	if d.Held > 0 {
		d.Tiles[2].Note = amongReady
	}
	for _, h := range l.holds() {
		if d.touches(h.Lane) {
			d.Holds = append(d.Holds, h)
		}
	}
	d.Unshown = l.unshown
	d.addWorkers(l.workers)
	set, err := x.b.q.Settings(x.Context())
	if err != nil && l.away == nil {
		return nil, err
	}
	out := map[string]any{"lane": laneOfStats(&d.Sums.Stats, l.clock.Now), "holds": append([]errand.HoldState{}, d.Holds...)}
	set = slices.DeleteFunc(set, func(s errand.LaneSettings) bool { return !d.touches(s.Lane) && s.Lane != (errand.Lane{}) })
	set = set[:min(len(set), lanesLimit)]
	d.Settings, out["settings"] = settingRows(set, l.stats()), settingsJSON(set, l.stats())
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

// sum adds up the lanes of the page, and returns them, unless the page is of one.
func (d *laneData) sum(l *look, worry map[errand.Lane]*trouble) (all []*errand.LaneTotals) {
	s := &d.Sums
	s.Queue, s.Kind, s.Stats.Queue, s.Stats.Kind = d.Queue, d.Kind, d.Queue, d.Kind
	for i := range l.lanes {
		t := &l.lanes[i]
		if d.Queue != "" && t.Queue != d.Queue || d.Kind != "" && t.Kind != d.Kind {
			continue
		}
		all = append(all, t)
		addTotals(s, t, len(all) == 1)
		if l.held(&t.Stats) {
			d.Held += t.Stats.Ready
		}
		d.Served = d.Served || l.served(t.Queue, t.Kind)
	}
	if d.Both && len(all) == 1 {
		*s = *all[0]
	}
	if d.Both {
		d.Served = l.served(d.Queue, d.Kind)
		return nil
	}
	l.sortLanes(all, worry)
	return all
}

// laneRow is a lane as a row of a table.
type laneRow struct {
	*errand.LaneTotals
	Worry  *trouble // the worst that it has; nil: none
	Worst  bool     // there is none worse
	Bar    []barPart
	Spark  *spark
	Hold   *errand.HoldState // that a button releases; nil: it is not held
	Starts int64             // then
}

// Waits reports whether jobs could start but for something.
func (r laneRow) Waits() bool { return r.Worry != nil || !r.Stats.OldestDue.IsZero() }

// Fails reports whether an attempt has failed of late.
func (r laneRow) Fails() bool { return r.Stats.Rate != nil && r.Stats.Rate.Failed > 0 }

// barPart is the jobs of a lane that are in a state.
type barPart struct {
	Class errand.State
	Of    errand.State // in which they are to be seen
	N     int64
	X, W  length // in hundredths of the bar
}

// worryOf returns the worst trouble of a lane.
func (l *look) worryOf(t *errand.LaneTotals, worry map[errand.Lane]*trouble) (worst *trouble) {
	for _, lane := range []errand.Lane{{Queue: t.Queue, Kind: t.Kind}, {Queue: t.Queue}, {Kind: t.Kind}} {
		o := worry[lane]
		if o == nil || lane == (errand.Lane{}) || o.Heads && t.Stats.Blocked == 0 || worst != nil && o.before(worst) >= 0 {
			continue
		}
		worst = o
	}
	return worst
}

// sortLanes sorts lanes: first those with the worst trouble, then those whose jobs wait longest.
func (l *look) sortLanes(all []*errand.LaneTotals, worry map[errand.Lane]*trouble) {
	if len(worry) > 0 {
		of := make(map[*errand.LaneTotals]*trouble, len(all))
		for _, t := range all {
			of[t] = l.worryOf(t, worry)
		}
		defer slices.SortStableFunc(all, func(a, b *errand.LaneTotals) int {
			switch a, b := of[a], of[b]; {
			case a == b:
				return 0
			case b == nil:
				return -1
			case a == nil:
				return 1
			default:
				return a.before(b)
			}
		})
	}
	slices.SortStableFunc(all, func(a, b *errand.LaneTotals) int { return laterDue(a.Stats.OldestDue, b.Stats.OldestDue) })
}

// rows returns lanes as rows of a table.
func (l *look) rows(all []*errand.LaneTotals, worry map[errand.Lane]*trouble) []laneRow {
	rows := make([]laneRow, len(all))
	for i, t := range all {
		rows[i] = l.row(t, worry)
	}
	return rows
}

func (l *look) row(t *errand.LaneTotals, worry map[errand.Lane]*trouble) laneRow {
	s := &t.Stats
	r := laneRow{LaneTotals: t, Worry: l.worryOf(t, worry)}
	r.Worst = r.Worry != nil && r.Worry.rank() < 2
	held := int64(0)
	for i := range s.Holds {
		if h := &s.Holds[i]; !l.over(*h) {
			r.Hold, r.Starts, held = h, l.under(h).free, s.Ready
			break
		}
	}
	r.Bar = bar(parts(s, held))
	r.Spark = newSpark("done a minute", "done", spans[0], l.past.of(t).rates(spans[0], l.clock.Now, numberDone), l.clock.Now, perMinute)
	return r
}

// parts returns how many jobs of a lane are in each state. So many of those that are ready are held.
func parts(s *errand.LaneStats, held int64) []barPart {
	return []barPart{{Class: errand.Running, N: s.Running}, {Class: errand.Ready, N: s.Ready - held}, {Class: "held", Of: errand.Ready, N: held},
		{Class: errand.Scheduled, N: s.Scheduled}, {Class: errand.Blocked, N: s.Blocked}, {Class: errand.Dead, N: s.Dead}}
}

// bar returns the parts of a bar that are not empty. Each can be seen, however small.
func bar(all []barPart) []barPart {
	const gap, least = 0.4, 1.5
	all = slices.DeleteFunc(all, func(p barPart) bool { return p.N == 0 })
	sum, x := 0.0, length(0)
	for i := range all {
		sum += float64(all[i].N)
	}
	room := whole - length(len(all))*(least+gap) + gap
	for i := range all {
		p := &all[i]
		p.Of = cmp.Or(p.Of, p.Class)
		p.X, p.W = x, least+room*length(float64(p.N)/sum)
		x += p.W + gap
	}
	return all
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
