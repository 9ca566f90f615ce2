package dashboard

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"hash/maphash"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/indent"
)

//go:embed pages assets
var files embed.FS

// page is a kind of page.
type page struct {
	name  string // the last part of its address, empty for the front
	title string
	in    string // the page of the nav that it belongs to, if it is none itself
	// read returns what the template shows, or an error.
	read func(x *request) (*content, error)

	// takes are the parameters that its address may have, besides format.
	takes []string

	posts    bool // it is for forms
	still    bool // it does not change by itself, or people type in it
	template *template.Template
}

// content is what a page shows.
type content struct {
	title string // if empty, that of the page
	data  any    // for the template
	json  any    // for ?format=json; nil: the page has none
	to    string // the page that is to be shown instead, seen from the front
	// status is that of the answer; 0: 200.
	status int
	still  bool // it is not asked for again, as pages are that are open
}

// pages are all pages by name. They are set up by init, as they refer to each other.
var pages = map[string]*page{}

func init() {
	for _, p := range []*page{
		{name: "", title: "Overview", read: front, takes: []string{"span"}},
		{name: "lanes", title: "Queues", read: lanes, takes: []string{"search", "page"}},
		{name: "lane", title: "Queue", in: "lanes", read: lane, takes: []string{"queue", "kind"}},
		{name: "jobs", title: "Jobs", read: jobs, takes: append(append([]string{"after"}, filterNames...), "looked", "found")},
		{name: "job", title: "Job", in: "jobs", read: job},
		{name: "dead", title: "Dead letters", read: causes, takes: []string{"queue", "kind"}},
		{name: "groups", title: "Groups", read: groups, takes: []string{"queue", "waiting", "after"}},
		{name: "schedules", title: "Schedules", read: schedules, takes: []string{"search", "page"}},
		{name: "schedule", title: "Schedule", in: "schedules", read: schedule, takes: []string{"name"}},
		{name: "topics", title: "Topics and webhooks", read: topics, takes: []string{"after"}},
		{name: "topic", title: "Topic", in: "topics", read: topicOf, takes: []string{"name", "after"}},
		{name: "subscription", title: "Subscription", in: "topics", read: subscription, takes: []string{"id"}},
		{name: "endpoints", title: "Endpoints", read: endpoints, takes: []string{"search", "state", "after"}},
		{name: "endpoint", title: "Endpoint", in: "endpoints", read: endpoint, takes: []string{"id"}},
		{name: "devices", title: "Devices", read: devices, takes: []string{"after"}},
		{name: "device", title: "Device", in: "devices", read: device, takes: []string{"name"}},
		{name: "bulk", title: "Bulk jobs", read: bulks, takes: []string{"id"}},
		{name: "audit", title: "Audit", read: audit},
		{name: "workers", title: "Workers", read: workers, takes: []string{"page"}},
		{name: "health", title: "Health", read: health, takes: []string{"search", "page"}},
		{name: "search", title: "Search", read: search, takes: []string{"q"}},
		{name: "act", title: "Action", read: act, posts: true},
		{name: "change", title: "Change", in: "jobs", read: changePage, still: true, takes: []string{"id", "then"}},
		{name: "enqueue", title: "Enqueue a job", in: "jobs", read: enqueue, still: true, takes: enqueueNames},
	} {
		file := "front"
		if p.name != "" {
			file = p.name
		}
		p.template = template.Must(template.New("layout.html").Funcs(funcs).ParseFS(files, "pages/layout.html", "pages/parts.html", "pages/inputs.html", "pages/"+file+".html"))
		pages[p.name] = p
	}
}

var refusalPage = template.Must(template.New("layout.html").Funcs(funcs).ParseFS(files, "pages/layout.html", "pages/parts.html", "pages/refusal.html"))

// layout is what the frame of a page shows.
type layout struct {
	Up, Name, Title, Page string
	Section               string // the page of the nav that Page belongs to
	Who                   Identity
	Inside                bool // whether the request may enter
	// May is the role whose actions pages show: that of Who, or 0 if Frozen, which is why nothing
	// can be done on these pages.
	May    Role
	Frozen string
	Now    time.Time
	Clock  errand.ClockState
	navSaid
	Search string
	Done   *outcome // of what was done last, which the page shows first; nil: nothing
	Data   any
	// Live is true if the page can be asked for again.
	Live bool
	Tag  string // of what it shows besides the nav, see [fragment]
	staleness
	Body template.HTML // in place of Data, if it is not empty
	keys keys          // what Text hides; nil: nothing
}

// staleness says whether a page shows the newest.
type staleness struct {
	As   time.Time // when what it shows was the newest; zero: now
	Away *away     // why it shows nothing newer; nil if it is the newest
}

// Age returns how old it is what the page shows.
func (l *layout) Age() time.Duration {
	if l.As.IsZero() {
		return 0
	}
	return max(l.Now.Sub(l.As), 0)
}

// Text returns a text that a handler or somebody at the other side has written, as an error, without
// what is hidden from who asks.
func (l *layout) Text(s string) string {
	if l.keys == nil {
		return s
	}
	return l.keys.text(s)
}

// navSaid is the nav with what it says.
type navSaid struct {
	Nav    []navGroup
	NavTag string // changes with it
}

// navGroup is a part of the nav.
type navGroup struct {
	Name  string
	Items []navItem
}

type navItem struct {
	Name, Title string
	Mark        *navMark // nil: there is nothing to say
}

// navMark says in the nav that something is to be seen on a page.
type navMark struct{ Class, Sign, Text, Means string }

var nav = []navGroup{
	{"Jobs", []navItem{{Title: "Overview"}, {Name: "jobs", Title: "Jobs"}, {Name: "dead", Title: "Dead"}, {Name: "groups", Title: "Groups"}, {Name: "bulk", Title: "Bulk"}}},
	{flow, []navItem{{Name: "lanes", Title: "Queues"}, {Name: "schedules", Title: "Schedules"}, {Name: "topics", Title: "Topics"}, {Name: "endpoints", Title: "Endpoints"}}},
	{"System", []navItem{{Name: "workers", Title: "Workers"}, {Name: "health", Title: "Health"}, {Name: "audit", Title: "Audit"}}},
}

// flow is the group of the nav to which devicesItem belongs, where there are any.
const flow = "Flow"

var devicesItem = navItem{Name: "devices", Title: "Devices"}

var navSeed = maphash.MakeSeed()

// marked returns the nav with what a look has to say.
func marked(l *look) navSaid {
	marks, tag := l.marks(), ""
	all := make([]navGroup, len(nav))
	for i, g := range nav {
		all[i] = navGroup{g.Name, slices.Clone(g.Items)}
		if g.Name == flow && !l.relayed.none() {
			all[i].Items = append(all[i].Items, devicesItem)
			tag += devicesItem.Name
		}
		for j := range all[i].Items {
			item := &all[i].Items[j]
			if item.Mark = marks[item.Name]; item.Mark != nil {
				tag += item.Name + item.Mark.Text
			}
		}
	}
	return navSaid{all, strconv.FormatUint(maphash.String(navSeed, tag), 36)}
}

// marks returns what the nav says of pages. A hold of an endpoint counts there alone.
func (l *look) marks() map[string]*navMark {
	marks := map[string]*navMark{}
	add := func(page, class, sign string, n int64, word, means string) {
		if n > 0 {
			marks[page] = &navMark{class, sign, count(n) + word, means}
		}
	}
	held, away := int64(0), int64(0)
	for _, h := range l.holds() {
		if endpointOf(h.Queue) != "" {
			away++
		} else {
			held++
		}
	}
	behind, more := int64(0), ""
	for i := range l.health.Reasons {
		if r := &l.health.Reasons[i]; r.Code == errand.HealthDeadHead {
			behind += r.Groups
			if r.More {
				more = "+"
			}
		}
	}
	add("dead", "dead", shapes[errand.Dead], l.sums().Dead, "", "dead letters")
	add("groups", "dead", shapes[errand.Dead], behind, more, "behind a dead job")
	add("lanes", "held", "▮", held, " held", "")
	add("endpoints", "held", "▮", away, " away", "")
	streams := int64(len(l.relayed.held))
	for i := range l.relayed.queues {
		streams += heldOf(&l.relayed.queues[i])
	}
	add("devices", "held", "▮", streams, " held", "")
	return marks
}

// navWait is how long a page that shows no look waits for one, for the numbers of the nav.
const navWait = 100 * time.Millisecond

func (x *request) layout(title string, data any) *layout {
	l := &layout{Up: cmp.Or(x.up, "./"), Name: x.b.o.Name, Title: title, Who: x.who, May: x.who.Role, Inside: x.who.Role > 0, Now: time.Now(), navSaid: navSaid{Nav: nav}, Data: data}
	if !l.Inside {
		l.Name = "errand" // what the pages are about is for those inside
	}
	if x.who.Role < Admin {
		l.keys = x.b.keys
	}
	if x.page != nil {
		l.Page, l.Section = x.page.name, x.page.in
	}
	if l.Inside {
		l.Clock = x.b.q.Clock()
		l.Now = l.Clock.Now
		l.Live = x.page != nil && x.page.lives()
		if l.Frozen = x.b.frozen(x.Context()); l.Frozen != "" {
			l.May = 0
		}
		l.Search = x.URL.Query().Get("q")
		if x.done != "" {
			l.Done = x.b.ledger.outcome(x.done, x.who.Name, time.Now())
		}
	}
	if x.seen != nil {
		l.As, l.Away = x.seen.as, x.seen.away
		l.shows(x.seen)
	}
	return l
}

// shows has the nav say what a look does, which may be nil.
func (l *layout) shows(of *look) {
	if of != nil {
		l.navSaid = of.navSaid
	}
}

// look returns the newest look, which the page shows: the same for the whole request.
func (x *request) look() (*look, error) {
	if x.seen != nil {
		return x.seen, nil
	}
	if x.open {
		x.seen = x.b.looks.current(x.version, x.as)
	}
	var err error
	if x.seen == nil {
		x.seen, err = x.b.looks.get(x.Context())
	}
	if x.seen != nil { // what else it says counts beside what the look does
		x.freshness = freshness{until: x.seen.moment()}
	}
	return x.seen, err
}

// render writes a page.
func (x *request) render(w http.ResponseWriter, status int, c *content) {
	if x.URL.Query().Get("format") == "json" {
		if c.json == nil {
			x.fail(w, &refusal{status: http.StatusNotFound, text: "This page is not there as JSON."})
			return
		}
		b, err := marshal(c.json)
		if err != nil {
			x.fail(w, err)
			return
		}
		if x.who.Role < Admin {
			b = x.b.keys.texts(b)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(append(b, '\n')) // nobody is left who could be told
		return
	}
	if c.to != "" {
		w.Header().Set("Location", x.up+c.to) // relative, as the path may have been stripped
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	status = cmp.Or(c.status, status)
	frame := x.frame(c)
	if frame.Live && status == http.StatusOK {
		_ = x.fill(x.b.live.of(x), frame) // to write the page says why not
	}
	x.write(w, status, x.page.template, frame)
}

// frame returns what the frame of a page shows.
func (x *request) frame(c *content) *layout {
	f := x.layout(cmp.Or(c.title, x.page.title), c.data)
	f.Live = f.Live && !c.still
	if x.seen == nil {
		f.shows(x.around())
	}
	return f
}

// around returns the look that the nav shows, on pages that show none too; nil: there is none yet.
func (x *request) around() *look {
	if x.nav == nil {
		x.nav = x.b.looks.forNav(x.Context(), x.version, x.as, x.asks())
	}
	return x.nav
}

// fail writes a page that says what is the case.
func (x *request) fail(w http.ResponseWriter, err error) {
	r := refused(err)
	x.b.looks.met(err)
	if r.status == http.StatusUnauthorized && errors.Is(err, errUnknown) {
		w.Header().Set("WWW-Authenticate", `Basic realm="errand", charset="UTF-8"`)
	}
	if x.URL.Query().Get("format") == "json" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(r.status)
		b, _ := marshal(map[string]string{"error": r.text, "remedy": r.remedy}) // texts cannot fail
		_, _ = w.Write(append(b, '\n'))
		return
	}
	l := x.layout(http.StatusText(r.status), map[string]string{"Text": r.text, "Remedy": r.remedy})
	l.Live = l.Live && r.status == http.StatusServiceUnavailable // other pages stay as they are
	x.write(w, r.status, refusalPage, l)
}

func (x *request) write(w http.ResponseWriter, status int, t *template.Template, l *layout) {
	var b bytes.Buffer
	if err := t.Execute(&b, l); err != nil { // a fault of the template
		x.b.o.Logger.Error("errand: a page of the dashboard cannot be shown", "path", x.URL.Path, "error", err)
		http.Error(w, "This page cannot be shown; the log of the program says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // nobody is left who could be told
}

// serveAsset serves the style and the script. They hold nothing of the queue, so anybody may
// read them.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) bool {
	kind := map[string]string{"style.css": "text/css; charset=utf-8", "script.js": "text/javascript; charset=utf-8"}[name]
	if kind == "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	b, err := files.ReadFile("assets/" + name)
	if err != nil {
		return false
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(b)
	return true
}

var funcs = template.FuncMap{
	"count": func(n any) (string, error) {
		switch n := n.(type) {
		case int:
			return count(n), nil
		case int64:
			return count(n), nil
		}
		return "", fmt.Errorf("count: %T", n)
	},
	"plus":       func(n int) int { return n + 1 },
	"minus":      func(n int) int { return n - 1 },
	"ago":        ago,
	"took":       took,
	"long":       long,
	"exact":      exactly,
	"short":      short,
	"few":        few,
	"starts":     starts,
	"goOn":       func(n int64) string { return count(n) + " " + goes(n) + " on" },
	"delay":      delayText,
	"endpointOf": endpointOf,
	"dangerous":  dangerous,
	"brief":      brief,
	"note":       note,
	"iso":        func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	// clockTime is the time of day of what was read some time before.
	"clockTime": func(now time.Time, age time.Duration) string { return now.Add(-age).UTC().Format("15:04:05") + " UTC" },
	"query":     query,
	"bytes":     size,
	"perMinute": perMinute,
	"p50":       func(h errand.Histogram) string { return part(&h, 0.5) },
	"p95":       func(h errand.Histogram) string { return part(&h, 0.95) },
	"quantiles": func(h errand.Histogram) string { return quantiles(&h) },
	"shape":     func(s errand.State) string { return shapes[s] },
	"day":       day,
	"lastEight": lastEight,
	"plural":    plural,
	"dict":      dict,
	"pairs":     pairs,
}

// shapes go with the words of states, so that colour alone says nothing.
var shapes = map[errand.State]string{
	errand.Running: "●", errand.Ready: "○", errand.Scheduled: "◌", errand.Blocked: "◆", errand.Dead: "✕", errand.Done: "✓", errand.Cancelled: "–", errand.Expired: "⌛︎", "held": "▮",
}

// lastEight returns the end of an ID, which tells jobs of a list apart: its begin is the time.
func lastEight(id errand.ID) string {
	s := id.String()
	return s[len(s)-8:]
}

// count returns a number with commas: 12,345.
func count[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	digits := strings.TrimPrefix(s, "-")
	var b strings.Builder
	b.WriteString(s[:len(s)-len(digits)])
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// few returns a number as a tile has room for it: 10.2 M.
func few(n int64) string {
	if n < 1_000_000 {
		return count(n)
	}
	return count(n/1_000_000) + "." + itoa(int(n/100_000%10)) + " M"
}

// starts is what a button says that releases so many jobs which start then.
func starts(n int64, short any) string {
	switch {
	case n == 0:
		return "Release"
	case short == true:
		return "Release " + count(n)
	case n == 1:
		return "Release, 1 starts"
	}
	return "Release, " + count(n) + " start"
}

// took returns a duration with its two largest units: 1 h 12 min.
func took(d time.Duration) string {
	if d < 0 {
		return "-" + took(-d)
	}
	units := []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	if d < time.Second {
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	for i, u := range units {
		if n := d / u.of; n > 0 {
			s := strconv.FormatInt(int64(n), 10) + " " + u.name
			if i+1 < len(units) {
				if rest := d % u.of / units[i+1].of; rest > 0 && n < 10 {
					s += " " + strconv.FormatInt(int64(rest), 10) + " " + units[i+1].name
				}
			}
			return s
		}
	}
	return "0 s"
}

// ago returns how far a time is from now: 3 min ago, in 12 s.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 0 && d > -time.Second, d >= 0 && d < time.Second:
		return "now"
	case d < 0:
		return "in " + took(-d)
	}
	return took(d) + " ago"
}

// long returns for how long it has been so at a time, at least a second.
func long(since, now time.Time) string { return took(max(now.Sub(since), time.Second)) }

// brief returns the beginning of a long text, for a row of a list.
func brief(s string) string {
	if len(s) <= 300 {
		return s
	}
	return cut(s, 300) + "…"
}

// note returns a note of a hold, or the beginning of an error in its place, which may be longer.
func note(s string) string {
	if len(s) <= 1000 {
		return s
	}
	return cut(s, 1000) + "…"
}

// size returns a number of bytes for people.
func size(n int64) string {
	const k = 1024
	switch {
	case n < 10*k:
		return count(n) + " B"
	case n < 10*k*k:
		return count(n/k) + " KiB"
	case n < 10*k*k*k:
		return count(n/k/k) + " MiB"
	}
	return count(n/k/k/k) + " GiB"
}

// encoded returns parameters for an address that has further ones, without a place in a list.
func encoded(v url.Values) template.URL {
	rest := url.Values{}
	for name := range v {
		if name != "page" && name != "after" && name != "format" {
			rest[name] = v[name]
		}
	}
	return template.URL(rest.Encode())
}

// query returns the query of an address of pairs of names and values, without those that are
// empty.
func query(pairs ...string) template.URL {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return ""
	}
	return template.URL("?" + v.Encode())
}

// dict returns a map for a part of a page.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, errors.New("dict: a name without a value")
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, errors.New("dict: a name that is no text")
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// pairs returns names with values, for the fields of a form.
func pairs(all ...string) (out [][2]string) {
	for i := 0; i+1 < len(all); i += 2 {
		out = append(out, [2]string{all[i], all[i+1]})
	}
	return out
}

// sortedKeys returns the keys of a map in their order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// asJSON returns a value as text that people can read.
func asJSON(v any) string {
	b, err := marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(indent.JSON(b))
}
