package e2e

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/errandq/errand/dashboard"
)

// overflowing lists what is wider than the page and does not scroll in a region of its own.
const overflowing = `(() => {
	const wide = document.documentElement.clientWidth, bad = [];
	if (document.documentElement.scrollWidth > wide) bad.push("the page scrolls sideways: " + document.documentElement.scrollWidth + " of " + wide);
	for (const e of document.body.querySelectorAll("*")) {
		if (!e.checkVisibility() || e.getBoundingClientRect().right <= wide + 1) continue;
		let p = e.parentElement;
		while (p && !/auto|scroll|hidden/.test(getComputedStyle(p).overflowX)) p = p.parentElement;
		if (!p) bad.push(e.outerHTML.slice(0, 200));
	}
	return bad.slice(0, 5);
})()`

// On a page of 320 px all is there, and only tables and the like scroll sideways, for themselves.
func TestLook_narrow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	b := newTab(t)
	b.do("a telephone", chromedp.EmulateViewport(320, 640, chromedp.EmulateMobile, chromedp.EmulateTouch))
	b.crawl(s.dashboard(dashboard.Admin), 1, func(kind, at string) {
		for _, bad := range js[[]string](b, overflowing) {
			b.Errorf("%s: %s: %s", kind, at, bad)
		}
		for _, small := range js[[]string](b, `!matchMedia("(pointer: coarse)").matches ? ["no fingers"] :
			[...document.querySelectorAll("button, select, nav a, input:not([type=hidden], [type=checkbox], [type=radio])")].
				filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 43.5).map(e => e.outerHTML.slice(0, 200)).slice(0, 3)`) {
			b.Errorf("%s: too low for fingers: %s", kind, small)
		}
	})
}

// stops are the elements at which Tab has to stop.
const stops = `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]:not([tabindex='-1'])")].
	filter(e => !e.disabled && (e.checkVisibility() || e.matches(".skip")))`

// keys is what the page keeps for a walk through it with Tab.
const keys = `window.e2e = {
	look(e) { const s = getComputedStyle(e); return [s.outlineStyle, s.outlineWidth, s.boxShadow, s.backgroundColor, s.borderColor, s.textDecorationLine].join(); },
	all: ` + stops + `,
	focused: () => document.activeElement === document.body ? null : document.activeElement,
}, e2e.before = new Map(e2e.all.map(e => [e, e2e.look(e)])), e2e.reached = new Set(), document.activeElement.blur(), e2e.all.length`

// reach tells of the element at which Tab has stopped: empty if all is well.
const reach = `(() => {
	const e = e2e.focused();
	if (!e) return "";
	e2e.reached.add(e);
	const r = e.getBoundingClientRect();
	if (r.bottom <= 0 || r.top >= innerHeight || r.right <= 0 || r.left >= innerWidth) return "not in sight: " + e.outerHTML.slice(0, 200);
	if (e2e.before.has(e) && e2e.before.get(e) === e2e.look(e)) return "looks the same with the focus: " + e.outerHTML.slice(0, 200);
	return "";
})()`

// walk presses Tab until each element was reached that can be used.
func (b *tab) walk(kind string) {
	b.Helper()
	n := js[int](b, keys)
	for range n + 3 {
		b.do("press Tab", chromedp.KeyEvent(kb.Tab))
		if bad := js[string](b, reach); bad != "" {
			b.Errorf("%s: %s", kind, bad)
			return
		}
	}
	for _, missed := range js[[]string](b, `e2e.all.filter(e => e.isConnected && !e2e.reached.has(e)).map(e => e.outerHTML.slice(0, 200)).slice(0, 5)`) {
		b.Errorf("%s: Tab does not reach %s", kind, missed)
	}
}

// hovers lists the rules of the style that show something only to a mouse.
const hovers = `[...document.styleSheets].flatMap(s => [...s.cssRules]).flatMap(r => r.cssRules && !r.selectorText ? [...r.cssRules] : [r]).
	filter(r => r.selectorText && r.selectorText.includes(":hover") && /display|visibility|opacity|clip|height|width|content|position|left|top/.test(r.style.cssText)).map(r => r.cssText)`

// With the keyboard alone each link, button and field is reached, the one with the focus is seen,
// and nothing keeps it. Nothing is shown to a mouse alone.
func TestLook_keyboard(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	b := newTab(t)
	b.crawl(s.dashboard(dashboard.Admin), 1, func(kind, _ string) {
		for _, rule := range js[[]string](b, hovers) {
			b.Errorf("%s needs a mouse: %s", kind, rule)
		}
		b.walk(kind)
	})
	b.open(s.dashboard(dashboard.Admin) + "jobs")
	b.do("press Tab", chromedp.KeyEvent(kb.Tab))
	b.wait("the link over what is on each page", `document.activeElement.matches(".skip") && document.activeElement.getBoundingClientRect().left >= 0`)
	b.do("press Enter", chromedp.KeyEvent(kb.Enter))
	b.wait("the content to have the focus", `document.activeElement.matches("main")`)
	b.do("press Tab", chromedp.KeyEvent(kb.Tab))
	b.wait("the first field of the content", `document.activeElement.closest("main") && document.activeElement !== document.querySelector("main")`)
}

// invisible lists text with less contrast than 4.5:1, and shapes with less than 3:1.
const invisible = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const rgb = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
	const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
	const contrast = (a, b) => { const [x, y] = [light(rgb(a)), light(rgb(b))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
	const paper = getComputedStyle(document.body).backgroundColor;
	const back = rgb(paper)[3] ? paper : "white";
	const bad = [];
	for (const e of document.querySelectorAll("svg :is(path, line, polyline, polygon, rect, circle, text):not(path:not([class]))")) { // without a class: hairlines
		const s = getComputedStyle(e);
		const colours = [s.stroke, s.fill].filter(c => c !== "none" && rgb(c)[3]);
		if (colours.length && !colours.some(c => contrast(c, back) >= (e.localName === "text" ? 4.5 : 3))) bad.push(e.outerHTML.slice(0, 200) + " " + colours + " on " + back);
	}
	for (const e of document.querySelectorAll("body *")) {
		const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()), s = getComputedStyle(e);
		if (!text || !e.checkVisibility() || e.closest("svg, noscript, option")) continue;
		let under = e;
		while (under && rgb(getComputedStyle(under).backgroundColor)[3] === 0) under = under.parentElement;
		const paper = under ? getComputedStyle(under).backgroundColor : back;
		if (contrast(s.color, paper) < (e.matches("[aria-hidden]") ? 3 : 4.5)) bad.push("hard to read: " + e.outerHTML.slice(0, 200) + " " + s.color + " on " + paper);
	}
	for (const e of document.querySelectorAll("button, select, input:not([type=hidden], [type=checkbox], [type=radio]), textarea")) {
		const s = getComputedStyle(e);
		if (e.checkVisibility() && (s.borderTopStyle === "none" || contrast(s.borderTopColor, back) < 3)) bad.push("without a line around it: " + e.outerHTML.slice(0, 200) + " " + s.borderTopColor + " on " + back);
	}
	return bad.slice(0, 5);
})()`

// Text, shapes and fields can be told from the paper in both themes, and where people choose their
// colours; there the focus is seen too. Axe looks at text as well, but not at all of it.
func TestLook_colours(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	b := newTab(t)
	b.crawl(s.dashboard(dashboard.Admin), 1, func(kind, _ string) {
		for _, look := range [][]string{{"prefers-color-scheme", "light"}, {"prefers-color-scheme", "dark"}, {"forced-colors", "active"}} {
			b.looks(look...)
			for _, bad := range js[[]string](b, invisible) {
				b.Errorf("%s, %s: %s", kind, look, bad)
			}
		}
		if kind == "front" || kind == "jobs" {
			b.walk(kind)
		}
		b.looks()
	})
}

// No field of what a producer writes is taken for markup, and what is shown of it is what was written.
func TestHostile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	b := newTab(t)
	root := s.dashboard(dashboard.Admin)
	shown := map[string]bool{}
	check := func(kind, at string) {
		if pwned := js[string](b, `String(window.pwned) + document.querySelectorAll("main script, img, main i, [onerror], [onfocus]").length`); pwned != "undefined0" {
			b.Errorf("%s: what a producer has written is markup: %s", at, pwned)
		}
		for _, bad := range js[[]string](b, turned) {
			b.Errorf("%s: %s: text of a producer turns around what follows it: %s", kind, at, bad)
		}
		for name, text := range map[string]string{"hostile": hostile, "reversed": reversed} {
			if js[bool](b, `document.querySelector("main").textContent.includes(`+quote(text)+`)`) {
				shown[name+" on "+kind] = true
			}
			if js[bool](b, inJSON+`(`+quote(text)+`)`) {
				shown[name+" in JSON on "+kind] = true
			}
		}
	}
	b.crawl(root, 2, check)
	for _, name := range []string{"dead", "running", "panicked", "bytes", "failed", "large", "away", "done"} {
		if status := b.open(root + "job/" + s.jobs[name].String()); status != http.StatusOK {
			b.Errorf("%s: %d", name, status)
		}
		check(name, name)
	}
	for _, want := range []string{
		"hostile on dead", "reversed on dead", "hostile on jobs", "reversed on running", "hostile on panicked", "hostile on failed", "reversed on away",
		"hostile on done", "reversed on bulk", "reversed on groups", "reversed on front",
		"hostile in JSON on schedule?name", "hostile in JSON on done", "hostile in JSON on dead", "reversed in JSON on running",
	} {
		if !shown[want] {
			t.Errorf("not shown as it was written: %s", want)
		}
	}
}

// inJSON reports whether a text is a value in JSON that the page shows.
const inJSON = `(text => [...document.querySelectorAll("main pre")].some(p => {
	const has = v => v === text || v && typeof v === "object" && Object.values(v).some(has);
	try { return has(JSON.parse(p.textContent)); } catch { return false; }
}))`

// turned lists texts with a mark that turns around what follows, and with something after them
// in the same paragraph. What is isolated, as by <bdi>, turns around nothing.
const turned = `(() => {
	const bad = [], all = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
	for (let n; n = all.nextNode();) {
		if (!n.data.includes("\u202e") || !n.parentElement.checkVisibility()) continue;
		let e = n.parentElement, apart = false;
		while (getComputedStyle(e).display === "inline") {
			apart ||= /isolate|plaintext/.test(getComputedStyle(e).unicodeBidi);
			e = e.parentElement;
		}
		if (apart || /plaintext|isolate/.test(getComputedStyle(e).unicodeBidi) && e.childNodes.length === 1 || e.closest("pre, option, textarea")) continue;
		let after = n.data.slice(n.data.lastIndexOf("\u202e") + 1);
		const following = document.createTreeWalker(e, NodeFilter.SHOW_ALL);
		following.currentNode = n;
		for (let m; m = following.nextNode();) {
			if (m.nodeType === 1 && getComputedStyle(m).display !== "inline") break; // a paragraph of its own
			if (m.nodeType === 3) after += m.data;
		}
		after = after.replace("right to left", "").trim();
		if (after) bad.push(JSON.stringify(after.slice(0, 60)) + " in " + e.outerHTML.slice(0, 300));
	}
	return bad.slice(0, 3);
})()`
