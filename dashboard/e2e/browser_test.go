// Package e2e has the tests of the dashboard in a real browser, and no other code.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for a condition before it fails.
const patience = 2 * time.Minute

// browser is the one process of all tests.
var browser context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path, err := exec.LookPath("chromium")
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need chromium: apt-get install -y chromium nginx fonts-dejavu-core")
		return 1
	}
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(dir),
		chromedp.DisableGPU, chromedp.WindowSize(1280, 800), chromedp.Flag("lang", "en"),
		// Nothing but this machine can be reached, whatever a page asks for.
		chromedp.Flag("host-resolver-rules", "MAP "+proxied+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, stop := chromedp.NewContext(allocator)
	defer stop()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chromium does not start:", err)
		return 1
	}
	browser = ctx
	return m.Run()
}

// tab is a page of the browser, with cookies of its own. When its test ends, it fails the test if a
// page had a script that failed or was forbidden, or asked for anything but what is on its host.
type tab struct {
	*testing.T
	ctx    context.Context
	clicks int // so far

	mu     sync.Mutex
	asked  []string // addresses
	faults []string
}

func newTab(t *testing.T) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{T: t, ctx: ctx}
	b.do("open a tab", chromedp.Navigate("about:blank"))
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []string{"Log", "Network"} {
		var err error
		if enable == "Log" {
			_, err = chromedp.Call(ctx, log.Enable, struct{}{})
		} else {
			_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
		}
		if err != nil {
			t.Fatal(enable, err)
		}
	}
	t.Cleanup(func() {
		stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.faults {
			t.Error(f)
		}
		for _, at := range b.asked {
			u, err := url.Parse(at)
			if err != nil || u.Scheme != "data" && u.Scheme != "about" && u.Hostname() != "127.0.0.1" && u.Hostname() != proxied {
				t.Errorf("a page has asked for %s", at)
			}
		}
	})
	return b
}

// hear takes what the browser tells of the tab.
func (b *tab) hear(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, fmt.Sprintf("a script has failed: %v", &chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}))
	case *log.EventEntryAdded:
		// Pages that are refused are logged as errors of the network. On plain http, browsers do
		// without one of the headers that protect.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork && !strings.HasPrefix(e.Entry.Text, "The Cross-Origin-Opener-Policy header has been ignored") {
			b.faults = append(b.faults, fmt.Sprintf("the browser has logged: %s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}

// requests returns which addresses were asked for.
func (b *tab) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.asked...)
}

// do does something within the time of patience.
func (b *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	var err error
	if what == "open a tab" { // the first call may not end: the tab would end too
		err = chromedp.Do(b.ctx, steps...)
	} else {
		ctx, stop := context.WithTimeout(b.ctx, patience)
		defer stop()
		err = chromedp.Do(ctx, steps...)
	}
	if err != nil {
		b.Fatalf("%s: %v; %s", what, err, b.where())
	}
}

// open opens an address and returns the status of the answer.
func (b *tab) open(at string) int { b.Helper(); return b.loaded("open "+at, chromedp.Navigate(at)) }

// loaded does something that leads to another page, waits until it is there, and returns the
// status of the answer.
func (b *tab) loaded(what string, steps ...chromedp.Action[chromedp.Void]) int {
	b.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	answer, err := chromedp.RunResponse(ctx, steps...)
	if err != nil {
		b.Fatalf("%s: %v; %s", what, err, b.where())
	}
	if answer == nil {
		return 0
	}
	return int(answer.Status)
}

// where says which page there is, for a failure.
func (b *tab) where() string {
	ctx, stop := context.WithTimeout(b.ctx, 5*time.Second)
	defer stop()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`"the page is "+location.href+":\n"+(document.body ? document.body.innerText : "")`))
	if err != nil {
		return "no page: " + err.Error()
	}
	if len(text) > 4000 {
		text = text[:4000]
	}
	return text
}

// js returns the value of an expression in the page.
func js[T any](b *tab, expression string) T {
	b.Helper()
	v, err := try[T](b, expression)
	if err != nil {
		b.Fatalf("%s: %v; %s", expression, err, b.where())
	}
	return v
}

func try[T any](b *tab, expression string) (T, error) {
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// wait waits until an expression is true in the page. It asks again and again, as the page may have
// no script that could tell, and may be another one meanwhile.
func (b *tab) wait(what, expression string) {
	b.Helper()
	until := time.After(patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		ok, err := try[bool](b, "!!("+expression+")")
		if ok && err == nil {
			return
		}
		if failed := (*chromedp.ExceptionError)(nil); err != nil && !errors.As(err, &failed) && b.ctx.Err() != nil {
			b.Fatalf("waited for %s: %v", what, err)
		}
		select {
		case <-again.C:
		case <-until:
			b.Fatalf("waited %v for %s: %s (%v); %s", patience, what, strings.TrimPrefix(expression, named), err, b.where())
		}
	}
}

// quote returns a string as JavaScript has it.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// named is a function of JavaScript which returns the visible elements of a selector that have a
// name, as those who use them call it: its label, else its text.
const named = `((selector, name, within) => [...(within || document).querySelectorAll(selector)].filter(e => {
	const label = e.getAttribute("aria-label") || (e.labels && e.labels.length ? e.labels[0].textContent : e.textContent);
	return e.checkVisibility() && label.trim().replace(/\s+/g, " ").startsWith(name);
}))`

// at returns where the first element of an expression is, after it was scrolled to. It fails if
// something else would be hit there.
func (b *tab) at(what, element string) (x, y float64) {
	b.Helper()
	b.wait(what, element)
	at := js[[]float64](b, `(e => {
		e.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
		for (const r of e.getClientRects()) {
			const x = r.x + r.width / 2, y = r.y + r.height / 2, hit = document.elementFromPoint(x, y);
			if (hit && (e.contains(hit) || hit.contains(e) || [...(e.labels || [])].some(l => l.contains(hit)))) return [x, y];
		}
		return [];
	})(`+element+`)`)
	if len(at) != 2 {
		b.Fatalf("%s cannot be hit: %s; %s", what, element, b.where())
	}
	return at[0], at[1]
}

// click clicks on an element.
func (b *tab) click(what, element string) {
	b.Helper()
	x, y := b.at(what, element)
	b.clicks++
	b.do("click on "+what, chromedp.MouseClickXY(x, y))
}

// follow clicks on a link or a button that leads to another page, and returns the status of the
// answer.
func (b *tab) follow(what, element string) int {
	b.Helper()
	x, y := b.at(what, element)
	b.clicks++
	return b.loaded("click on "+what, chromedp.MouseClickXY(x, y))
}

// link and button are the first of a name.
func link(name string) string   { return named + `("a[href]", ` + quote(name) + `)[0]` }
func button(name string) string { return named + `("button", ` + quote(name) + `)[0]` }

// looks sets what the browser prefers, such as prefers-color-scheme and forced-colors, as names
// and values.
func (b *tab) looks(features ...string) {
	b.Helper()
	var all []*emulation.MediaFeature
	for i := 0; i+1 < len(features); i += 2 {
		all = append(all, &emulation.MediaFeature{Name: features[i], Value: features[i+1]})
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: all}); err != nil {
		b.Fatal(err)
	}
}

// scripts says whether pages may run scripts.
func (b *tab) scripts(on bool) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on}); err != nil {
		b.Fatal(err)
	}
}

// has reports whether the page has a text.
func (b *tab) has(text string) bool {
	return strings.Contains(js[string](b, `document.body.innerText`), text)
}
