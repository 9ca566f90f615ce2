package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// asked counts the answers of a handler to open pages that nothing has changed, and can have it fail.
type asked struct {
	http.Handler
	same   atomic.Int64 // answers that nothing has changed
	broken atomic.Bool
}

// status remembers the status of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.broken.Load() {
		http.Error(w, "broken", http.StatusBadGateway)
		return
	}
	s := &status{ResponseWriter: w}
	a.Handler.ServeHTTP(s, r)
	if s.code == http.StatusNotModified {
		a.same.Add(1)
	}
}

// ready is an expression for how many jobs the overview says are ready.
const ready = `Number(document.querySelector(".tile.ready dd a").textContent.replace(/,/g, ""))`

// isLive is true once a page hears of changes.
const isLive = `document.getElementById("live").innerText.startsWith("live")`

// stays is set once, and gone if the page was loaded again.
const stays = `window.stays === 1`

func (s *shop) some(n int) {
	s.Helper()
	for range n {
		s.add("", of("nobody", order{Do: "done"}), &errand.JobOptions{Queue: "attic"})
	}
}

// A page changes by itself when a job comes, below a path and with a password. It gets nothing while
// nothing has changed. A tab that is hidden asks for nothing, and at once when it is seen again.
func TestLive(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.some(1)
	o := options(dashboard.Operator)
	o.Auth = dashboard.Basic(map[string]dashboard.User{"ann": {Password: "secret", Role: dashboard.Operator}})
	h := &asked{Handler: dashboard.Handler(s.q, o)}
	root := serve(t, h, "/ops/errand/", true)
	b := newTab(t)
	b.open(strings.Replace(root, "://", "://ann:secret@", 1))
	b.wait("a page that is live, whose address has a password", isLive)
	b.open(root)
	js[int](b, `window.stays = 1, window.unseen = 0, (f => { window.fetch = (...of) => { unseen += document.hidden; return f(...of); }; })(window.fetch), 1`)
	b.wait("a page that is live", isLive)
	s.some(2)
	b.wait("3 that are ready", ready+` === 3 && `+stays)
	was := h.same.Load()
	s.until("answers without a change", func() bool { return h.same.Load() >= was+3 })
	s.some(1)
	b.wait("4 that are ready", ready+` === 4 && `+stays)

	other := b.another(t)
	b.wait("a tab that is hidden", `document.hidden`)
	s.some(1)
	if n := js[int](b, `new Promise(r => setTimeout(() => r(window.unseen), 5000))`); n != 0 {
		t.Errorf("a tab that is hidden has asked %d times", n)
	}
	other()
	b.wait("5 that are ready", `!document.hidden && `+ready+` === 5 && `+stays)
	b.wait("a page that is live again", isLive)

	h.broken.Store(true)
	s.some(1)
	b.wait("a page that says that it is old", `document.querySelector("#live.warn") !== null`)
	if js[int](b, ready) != 5 {
		t.Errorf("the last values are gone: %s", b.where())
	}
	h.broken.Store(false)
	b.wait("6 that are ready", ready+` === 6 && `+isLive+` && `+stays)
	for _, at := range b.requests() {
		at = strings.Replace(at, "ann:secret@", "", 1)
		if !strings.HasPrefix(at, root) && !strings.HasPrefix(at, "data:") && !strings.HasPrefix(at, "about:") {
			t.Errorf("a page has asked for %s", at)
		}
	}
}

// another opens another tab over this one. What it returns closes it.
func (b *tab) another(t *testing.T) func() {
	t.Helper()
	ctx, stop := chromedp.NewContext(b.ctx, chromedp.WithNewWindow(false))
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	activate := func(ctx context.Context) {
		t.Helper()
		if _, err := chromedp.CallBrowser(ctx, target.ActivateTarget, target.ActivateTargetParams{TargetID: chromedp.FromContext(ctx).Target.TargetID}); err != nil {
			t.Fatal(err)
		}
	}
	activate(ctx)
	return func() {
		t.Helper()
		activate(b.ctx)
		stop()
	}
}

// The rows of a list stay where they are while others come, and those wait behind a button.
func TestLive_rows(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.some(3)
	b := newTab(t)
	b.open(s.dashboard(dashboard.Operator) + "jobs")
	const rows = `document.querySelectorAll("main tbody tr").length`
	b.wait("a page that is live", isLive)
	b.click("a box", `document.querySelector("input[name=id]")`)
	s.some(2)
	b.wait("two that wait", named+`("button", "2 new").length === 1`)
	if n := js[int](b, rows); n != 3 {
		t.Errorf("%d rows", n)
	}
	b.click("the button", button("2 new"))
	b.wait("all rows", rows+` === 5`)
	b.wait("the mark that was made", `document.querySelectorAll("input[name=id]:checked").length === 1`)
}

// A form that somebody fills stays as it is. Once it is left it shows what has changed meanwhile, though
// nothing changes after that.
func TestLive_forms(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.some(1)
	b := newTab(t)
	b.open(s.dashboard(dashboard.Operator) + "jobs")
	const counted = `document.querySelector("form.filter input[value=ready]").closest("span").innerText.replace(/\D/g, "")`
	b.wait("a page that is live", isLive+` && `+counted+` === "1"`)
	b.fill("Queue", "att")
	s.some(2)
	b.wait("two that wait", named+`("button", "2 new").length === 1`)
	if is := js[string](b, counted); is != "1" {
		t.Errorf("a form that is filled says %s", is)
	}
	b.fill("Queue", "")
	b.wait("the form as it is", counted+` === "3"`)
}

// Times are in UTC or in the zone of the browser, on all pages, as one has said.
func TestLive_zone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.some(1)
	b := newTab(t)
	if _, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"}); err != nil {
		t.Fatal(err)
	}
	const times = `[...document.querySelectorAll("main time .exact")].map(e => e.parentNode.title || e.textContent)` // the title, if the text has no room for all
	root := s.dashboard(dashboard.Viewer)
	b.open(root + "jobs")
	b.wait("times in UTC", times+`.length && `+times+`.every(t => t.endsWith(" UTC"))`)
	at := js[string](b, `document.querySelector("main time").dateTime`)
	moment, err := time.Parse(time.RFC3339Nano, at)
	s.check(err)
	b.click("the switch", `document.getElementById("zone")`)
	b.wait("times in Tokyo", times+`.every(t => t.endsWith(" +09:00"))`)
	local := moment.In(time.FixedZone("", 9*3600)).Format("2006-01-02 15:04:05")
	if is := js[[]string](b, times)[0]; !strings.HasPrefix(is, local) {
		t.Errorf("%s is %s, not %s", at, is, local)
	}
	b.open(root)
	b.wait("times in Tokyo on another page", times+`.length && `+times+`.every(t => t.endsWith(" +09:00"))`)
}

// ailing is a store whose numbers cannot be read at times.
type ailing struct {
	*sqlite.Store
	ails atomic.Bool
}

func (a *ailing) Stats(ctx context.Context) ([]storage.LaneStats, error) {
	if a.ails.Load() {
		return nil, errors.New("disk I/O error")
	}
	return a.Store.Stats(ctx)
}

// Where the queue cannot be looked at, an open page goes on showing what was last there and says
// since when, with what to do, until it can be again. Axe finds no fault in it.
func TestLive_away(t *testing.T) {
	t.Parallel()
	file, err := sqlite.Open(filepath.Join(t.TempDir(), "shop.db"), &sqlite.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	store := &ailing{Store: file}
	q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{T: t, q: q, jobs: map[string]errand.ID{}}
	t.Cleanup(func() { s.check(q.Close()) })
	s.some(2)
	b, j := newTab(t), newJudge()
	b.open(s.dashboard(dashboard.Operator))
	js[int](b, `window.stays = 1`)
	b.wait("a page that is live", isLive)
	store.ails.Store(true)
	s.some(1)
	b.wait("what is wrong", `document.querySelector("main").innerText.includes("disk I/O error") && `+stays)
	b.says("What follows is", "errand doctor", "attic")
	b.wait("a header that is not live", `document.getElementById("live").innerText.includes("last values")`)
	if n := js[int](b, ready); n != 2 {
		t.Errorf("the last number is %d", n)
	}
	j.look(b, "front", "away")
	b.walk("front, away")
	store.ails.Store(false)
	s.some(1)
	b.wait("all that is new", ready+` === 4 && !document.querySelector("main").innerText.includes("disk I/O error") && `+stays)
}

// A redrive of 10,000 jobs is watched from its first to its last, on a page that is not loaded again.
func TestRedrive(t *testing.T) {
	t.Parallel()
	const all = 10_000
	s := newShop(t)
	s.work(500)
	s.die(all)
	b := newTab(t)
	b.open(s.dashboard(dashboard.Operator))
	b.follow("the cause with most dead", link("10,000 dead"))
	b.follow("the button", button("Redrive all dead jobs"))
	b.asks("10,000 jobs")
	js[string](b, `document.querySelector("input[name=rate]").value = "2500"`)
	b.follow("the button that confirms", button("Redrive"))
	js[int](b, `window.stays = 1, window.numbers = new Set(), 1`)
	b.wait("the end", `(() => {
		const m = document.querySelector("main").innerText.match(/([\d,]+)(?: of (?:more than )?[\d,]+)? jobs taken/);
		if (m) numbers.add(m[1]);
		return document.querySelector(".state.done") && document.querySelector("main").innerText.includes("10,000");
	})() && `+stays)
	if n := js[int](b, `numbers.size`); n < 3 {
		t.Errorf("only %d numbers were seen on the way", n)
	}
	counts, err := s.q.Counts(t.Context())
	s.check(err)
	for _, c := range counts {
		if c.State == errand.Dead {
			t.Errorf("%d of %s are dead", c.N, c.Kind)
		}
	}
}

// die adds n dead jobs, which are done when they are redriven. A worker has to run.
func (s *shop) die(n int) {
	s.Helper()
	jobs := make([]errand.NewJob, 1000)
	for i := range jobs {
		jobs[i] = errand.NewJob{Args: of("letter", order{Do: "die once", Note: "the address is too long"}), Options: &errand.JobOptions{Queue: "bills"}}
	}
	for range n / len(jobs) {
		_, err := s.q.EnqueueMany(s.Context(), jobs)
		s.check(err)
	}
	s.until(fmt.Sprint(n, " dead jobs"), func() bool {
		causes, err := s.q.DeadLetters().Causes(s.Context(), &errand.CauseOptions{Lane: errand.Lane{Queue: "bills"}})
		return err == nil && len(causes) == 1 && causes[0].N == int64(n)
	})
}
