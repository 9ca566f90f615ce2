package e2e

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/errandq/errand/dashboard"
)

// axe is axe-core 4.12.1, see axe.LICENSE beside it.
//
//go:embed testdata/axe.min.js
var axe string

// undecided lists what axe cannot decide: a rule, its reason, the kinds of pages, and why it is well
// there.
//
//go:embed testdata/undecided.txt
var undecided string

const axeRun = `axe.run(document, {
	runOnly: {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]},
	resultTypes: ["violations", "incomplete"],
}).then(r => {
	const brief = all => all.map(v => ({Rule: v.id, Help: v.help, 
		Nodes: v.nodes.map(n => ({HTML: n.html.slice(0, 300), Why: n.failureSummary.replace(/\s+/g, " ").replace("Fix any of the following: ", "")}))}));
	return JSON.stringify({Violations: brief(r.violations), Undecided: brief(r.incomplete)});
})`

type finding struct {
	Rule, Help string
	Nodes      []node
}

type node struct{ HTML, Why string }

func (f finding) String() string {
	text := f.Rule + ": " + f.Help
	for _, n := range f.Nodes[:min(len(f.Nodes), 4)] {
		text += "\n    " + n.HTML + "\n      " + n.Why
	}
	return text
}

// judge has axe look at pages, and collects what it cannot decide.
type judge struct {
	mu   sync.Mutex
	open map[string]map[string]string // HTML, by rule and reason, and kind of page
	seen map[string]bool              // kinds of pages that are on a picture, by role and theme
}

func newJudge() *judge {
	return &judge{open: map[string]map[string]string{}, seen: map[string]bool{}}
}

// themes are what people prefer.
var themes = []string{"light", "dark"}

// look has axe look at the page of a tab in both themes, with all of it unfolded. A picture of each
// kind of page is kept in the folder E2E_SCREENSHOTS, if that is set.
func (j *judge) look(b *tab, kind, role string) {
	b.Helper()
	js[bool](b, `document.querySelectorAll("details").forEach(d => d.open = true), true`)
	for _, theme := range themes {
		b.looks("prefers-color-scheme", theme)
		if !js[bool](b, `typeof axe == "object"`) {
			b.do("load axe", chromedp.Evaluate[chromedp.Void](axe))
		}
		var found struct{ Violations, Undecided []finding }
		if err := json.Unmarshal([]byte(js[string](b, axeRun)), &found); err != nil {
			b.Fatal(err)
		}
		for _, f := range found.Violations {
			b.Errorf("%s for %s, %s, %s:\n  %v", kind, role, theme, js[string](b, "location.href"), f)
		}
		short, _, _ := strings.Cut(kind, "?")
		name := strings.TrimPrefix(short, "form of ")
		j.mu.Lock()
		for _, f := range found.Undecided {
			for _, n := range f.Nodes {
				of := f.Rule + " | " + n.Why
				if j.open[of] == nil {
					j.open[of] = map[string]string{}
				}
				j.open[of][name] = n.HTML
			}
		}
		picture := role + "-" + theme + "-" + short
		drawn := j.seen[picture]
		j.seen[picture] = true
		j.mu.Unlock()
		if dir := os.Getenv("E2E_SCREENSHOTS"); dir != "" && !drawn {
			b.picture(filepath.Join(dir, strings.NewReplacer("/", "_", " ", "_", ":", "").Replace(picture)+".png"))
		}
	}
	b.looks()
}

func (b *tab) picture(file string) {
	b.Helper()
	b.do("take a picture", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		picture, err := chromedp.FullScreenshot(100)(ctx, t)
		if err != nil {
			return err
		}
		return os.WriteFile(file, picture, 0o644)
	}))
}

// answered compares what axe could not decide with the list.
func (j *judge) answered(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(undecided) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		part := strings.Split(line, " | ")
		if len(part) != 4 {
			t.Errorf("undecided.txt has a line that is no rule, reason, pages and answer: %s", line)
			continue
		}
		of := part[0] + " | " + part[1]
		if j.open[of] == nil { // what is obscured depends on where the page was scrolled to
			t.Logf("undecided.txt has an answer that nobody has asked for: %s", of)
		}
		for kind := range strings.SplitSeq(part[2], ", ") {
			delete(j.open[of], kind)
		}
		if part[2] == "any" {
			clear(j.open[of])
		}
	}
	for _, of := range slices.Sorted(maps.Keys(j.open)) {
		for kind, html := range j.open[of] {
			t.Errorf("axe cannot decide, and undecided.txt has no answer to: %s | %s\n  %s", of, kind, html)
		}
	}
}

// kindOf returns of what kind the page at an address is: its name, and the names of its parameters.
func kindOf(root, at string) string {
	u, err := url.Parse(strings.TrimPrefix(at, root))
	if err != nil {
		return at
	}
	name := u.Path
	if dir, _, ok := strings.Cut(name, "/"); ok {
		name = dir + "/ID"
	}
	if name == "" {
		name = "front"
	}
	if len(u.Query()) > 0 {
		name += "?" + strings.Join(slices.Sorted(maps.Keys(u.Query())), "&")
	}
	return name
}

// crawl opens the front, and what is linked from there, but at most some pages of a kind. It
// calls each for each page, and returns how many there were of each kind.
func (b *tab) crawl(root string, most int, each func(kind, at string)) map[string]int {
	b.Helper()
	kinds, seen, todo := map[string]int{}, map[string]bool{}, []string{root}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		kind := kindOf(root, at)
		if seen[at] || kinds[kind] >= most {
			continue
		}
		seen[at] = true
		kinds[kind]++
		if status := b.open(at); status != http.StatusOK {
			b.Errorf("%s: %d", at, status)
			continue
		}
		todo = append(todo, b.links(root, at)...)
		each(kind, at)
	}
	return kinds
}

// links returns the pages to which the page has links, none of which leads away.
func (b *tab) links(root, at string) (all []string) {
	b.Helper()
	for _, to := range js[[]string](b, `[...document.querySelectorAll("a[href], area[href]")].map(a => a.href)`) {
		to, _, _ = strings.Cut(to, "#")
		switch {
		case !strings.HasPrefix(to, root):
			b.Errorf("%s has a link that leads away: %s", at, to)
		case strings.Contains(to, "format=json"):
		default:
			all = append(all, to)
		}
	}
	return all
}

// Axe finds no fault on any page, for any role, in either theme, and what it cannot decide has an
// answer.
func TestAxe(t *testing.T) {
	s := newShop(t)
	s.fill()
	j := newJudge()
	t.Run("pages", func(t *testing.T) {
		for role, most := range map[dashboard.Role]int{dashboard.Viewer: 1, dashboard.Operator: 1, dashboard.Admin: 2} {
			t.Run(role.String(), func(t *testing.T) {
				t.Parallel()
				b := newTab(t)
				root := s.dashboard(role)
				kinds := b.crawl(root, most, func(kind, _ string) { j.look(b, kind, role.String()) })
				if len(kinds) < 15 {
					t.Errorf("only these kinds of pages: %v", kinds)
				}
				b.open(root + "search?q=" + url.QueryEscape(reversed)) // a group with a dead job
				if j.look(b, "search", role.String()); !b.has(last(s.jobs["dead"])) {
					t.Errorf("no dead job: %s", b.where())
				}
				for _, name := range slices.Sorted(maps.Keys(s.jobs)) { // in each state
					b.open(root + "job/" + s.jobs[name].String())
					if role == dashboard.Admin {
						j.look(b, "job/ID", role.String()+" "+name)
					}
				}
			})
		}
		t.Run("forms", func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.fill()
			b := newTab(t)
			b.forms(s.dashboard(dashboard.Admin), func(kind, _ string) {
				b.scripts(true)
				j.look(b, kind, "admin")
				b.scripts(false)
			})
		})
		t.Run("states", func(t *testing.T) {
			t.Parallel()
			j.states(newTab(t))
		})
	})
	j.answered(t)
}

// states looks at pages that say what is the case, but not what is asked for.
func (j *judge) states(b *tab) {
	b.Helper()
	empty, closed := newShop(b.T), newShop(b.T)
	root := empty.dashboard(dashboard.Admin)
	b.crawl(root, 1, func(kind, _ string) { j.look(b, kind, "nothing yet") })
	for path, status := range map[string]int{
		"none": 404, "job/x": 400, "job/01890000-0000-7000-8000-000000000000": 404, "jobs?state=x": 400, "jobs?after=x": 400,
		"lanes?page=17": 200, "lanes?page=0": 400, "jobs?error=zzz": 200, "act": 405, "lanes?search=zzz": 200, "schedule?name=none": 404,
	} {
		if is := b.open(root + path); is != status {
			b.Errorf("%s: %d, not %d", path, is, status)
		}
		j.look(b, kindOf("", path), fmt.Sprint(status))
	}
	h := dashboard.Handler(closed.q, options(dashboard.Admin))
	if err := closed.q.Close(); err != nil {
		b.Fatal(err)
	}
	for name, c := range map[string]struct {
		h      http.Handler
		status int
	}{
		"a closed queue": {h, 503},
		"nobody":         {dashboard.Handler(empty.q, &dashboard.Options{Logger: quiet}), 403},
		"no role":        {dashboard.Handler(empty.q, options(0)), 403},
	} {
		if is := b.open(serve(b.T, c.h, "/", false)); is != c.status {
			b.Errorf("%s: %d, not %d", name, is, c.status)
		}
		j.look(b, "front", name)
	}
}
