package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

// longest returns a name of n bytes in which no line can break.
func longest(what string, n int) string { return what + strings.Repeat("W", n-len(what)) }

// crowd fills a queue with 100,000 jobs, with the longest names there may be of everything, and
// with long args and errors without spaces. A worker runs until the test ends.
func (s *shop) crowd() {
	s.Helper()
	ctx := s.Context()
	queue, stopped, kind, group := longest("queue", 128), longest("held", 128), longest("kind", 128), longest("group", 256)
	text := longest("text", 3000)
	w := errand.NewWorker(s.q, &errand.WorkerOptions{Queues: []string{queue, stopped, "errand.bulk", webhook.Queues, topic.Queues}, Concurrency: 12, Logger: quiet, Grace: -1})
	s.hooks.Handle(w)
	s.topics.Handle(w)
	errand.HandleRaw(w, kind, handle, errand.HandlerOptions{Concurrency: 8, Policy: &policy.Document{
		Retry: &policy.Policy{Retries: 3, MinDelay: time.Hour, MaxDelay: 2 * time.Hour}, Throttle: &policy.Throttle{MaxReceivesPerSecond: 10_000},
	}})
	ran, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ran) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})

	by := longest("by", 255)
	s.check(s.q.Hold(ctx, errand.Lane{Queue: stopped, Kind: kind}, &errand.HoldOptions{Reason: longest("reason", 128), By: by, Detail: longest("note", 1000)}))
	var tags []string
	for i := range 7 {
		tags = append(tags, longest(fmt.Sprint("tag", i), 64))
	}
	all := make([]errand.NewJob, 10_000)
	for batch := range 10 {
		for i := range all {
			all[i] = errand.NewJob{Args: of(kind, order{Do: "done", Note: fmt.Sprint(batch, "-", i)}), Options: &errand.JobOptions{Queue: stopped}}
			if batch >= 6 {
				all[i].Options.Delay = 24 * time.Hour
			}
		}
		_, err := s.q.EnqueueMany(ctx, all)
		s.check(err)
	}
	options := func() *errand.JobOptions {
		return &errand.JobOptions{Queue: queue, Tags: tags, Headers: map[string]string{longest("header", 128): text}}
	}
	add := func(name string, o *errand.JobOptions, do string) {
		s.Helper()
		s.add(name, of(kind, order{Do: do, Note: text, Password: "hunter2"}), o)
	}
	in := options()
	in.Group, in.Unique = group, &errand.Unique{Key: longest("key", 255), Forever: true}
	add("dead", in, "die")
	behind := options()
	behind.Group = group
	for range 5 {
		add("blocked", behind, "done")
	}
	add("again", options(), "fail")
	add("over", options(), "done")
	add("followed", options(), "follow")
	add("runs", options(), "run")
	later := options()
	later.Delay, later.StartWithin, later.FinishWithin = time.Hour, time.Hour, 2*time.Hour
	add("scheduled", later, "done")
	add("cancelled", later, "done")
	_, err := s.q.Cancel(ctx, s.jobs["cancelled"])
	s.check(err)

	for _, name := range []string{longest("night", 128), longest("paused", 128)} {
		s.check(s.q.Schedule(ctx, errand.Schedule{Name: name, Spec: "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25 3 * * *", Zone: "America/Argentina/ComodRivadavia",
			RunOnStart: true, Args: of(kind, order{Do: "done", Note: text}), Options: &errand.JobOptions{Queue: queue, Tags: tags, Group: longest("tick", 256)}}))
	}
	s.check(s.q.Schedules().Pause(ctx, longest("paused", 128)))
	most, starts, bytes := 999_999, 50, int64(1<<40)
	s.check(s.q.Configure(ctx, errand.Lane{Queue: queue}, errand.Settings{MaxJobs: &most, MaxBytes: &bytes, MaxDead: &most, Starts: &starts}))

	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusBadRequest) }))
	s.Cleanup(receiver.Close)
	secret, err := webhook.ParseSecret("whsec_aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMg==")
	s.check(err)
	endpoint, name := longest("endpoint", 64), longest("topic", 100)
	for _, id := range []string{endpoint, longest("disabled", 64)} {
		_, _, err = s.hooks.Declare(ctx, webhook.Endpoint{ID: id, URL: receiver.URL + "/" + longest("path", 900), Description: longest("description", 250),
			Headers: map[string]string{longest("X-", 60): "hunter2"}, EventTypes: []string{longest("type", 128)}, Policy: &policy.Document{Retry: &policy.Policy{}}}, secret)
		s.check(err)
	}
	s.check(s.hooks.Disable(ctx, longest("disabled", 64), longest("reason", 255)))
	_, err = s.topics.Declare(ctx, topic.Topic{Name: name, Keep: time.Hour, Policy: &policy.Topic{Document: policy.Document{Retry: &policy.Policy{Retries: 100, NoDelayRetries: 100}}}})
	s.check(err)
	_, err = s.topics.Subscribe(ctx, topic.Subscription{ID: longest("to", 50), Topic: name, Endpoint: endpoint, FilterScope: filter.Body,
		Filter: json.RawMessage(`{"note":[{"exists":true},"` + longest("filter", 900) + `"]}`)})
	s.check(err)
	_, err = s.topics.Subscribe(ctx, topic.Subscription{ID: longest("jobs", 50), Topic: name, Kind: kind})
	s.check(err)
	body, err := json.Marshal(map[string]any{"note": text})
	s.check(err)
	_, err = s.topics.Publish(ctx, name, topic.Message{ID: longest("message", 64), Subject: longest("subject", 100), Body: body})
	s.check(err)

	for name, state := range map[string]errand.State{"dead": errand.Dead, "blocked": errand.Blocked, "again": errand.Scheduled, "over": errand.Done, "followed": errand.Done, "runs": errand.Running} {
		s.state(name, state)
	}
	s.until("progress", func() bool {
		info, err := s.q.Job(ctx, s.jobs["runs"])
		return err == nil && info.Progress != nil
	})
	s.bulk("bulk", errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{Kind: "nothing"}, By: by, Rate: 1000})
	s.state("bulk", errand.Done)
}

// cramped lists what is wider than its window or the box around it, what scrolls sideways though
// there is room, and short words that are broken, while all times are as long as times can be.
// Where rows are no cards, a table that has not asked for them may scroll in a region of its own.
const cramped = `(() => {
	const bad = new Set(), told = [], wide = document.documentElement.clientWidth, roomy = wide >= 1024;
	document.querySelectorAll("details").forEach(d => d.open = true);
	document.querySelectorAll("time").forEach(t => {
		const ago = t.querySelector(".ago"), exact = t.querySelector(".exact");
		if (ago) ago.textContent = "9 min 59 s" + (t.matches(".long") ? "" : " ago");
		if (exact && t.matches(".both, .at")) exact.textContent = "2006-01-02 15:04";
	});
	const say = (what, e) => {
		if (!told.some(t => t.contains(e))) bad.add(what + ": " + e.outerHTML.slice(0, 150).replace(/\s+/g, " ")); // what is in it is wide too
		told.push(e);
	};
	if (document.documentElement.scrollWidth > wide) bad.add("the page scrolls sideways: " + document.documentElement.scrollWidth + " of " + wide);
	const scrolls = e => /auto|scroll|hidden|clip/.test(getComputedStyle(e).overflowX);
	for (const e of document.body.querySelectorAll("*")) {
		if (!e.checkVisibility() || e.closest(".only, .skip, .rows thead") && !roomy || e.closest(".only, .skip, option")) continue;
		const r = e.getBoundingClientRect(), s = getComputedStyle(e);
		if (!r.width) continue;
		let within = e.parentElement;
		while (within && !scrolls(within)) within = within.parentElement;
		const region = within && within.matches(".wide, pre") && !roomy && !within.querySelector(".rows");
		if (scrolls(e) && /auto|scroll/.test(s.overflowX) && e.scrollWidth > e.clientWidth + 1 && (roomy || e.querySelector(".rows")) && !e.matches("textarea, select")) say("scrolls sideways, " + e.scrollWidth + " of " + e.clientWidth, e);
		if ((r.right > wide + 1 || r.left < -1) && !region) say("out of the window, " + Math.round(r.left) + " to " + Math.round(r.right), e);
		if (e.closest("svg")) continue;
		if (!scrolls(e) && e.clientWidth && e.scrollWidth > e.clientWidth + 1 && !s.display.startsWith("inline") && !e.matches("input, select, textarea, figure, .charts, tbody, tr") && !region && !e.querySelector(":scope > .graph, svg")) say("wider than itself, " + e.scrollWidth + " of " + e.clientWidth, e);
		const box = e.parentElement && e.parentElement.closest(".paper, .tile, .verdict, .gauge, .cluster, td, header, .foot, .keys > span, .filter, button, .button");
		if (box && !region && scrolls(e) === false) {
			const q = box.getBoundingClientRect();
			if (r.right > q.right + 1 || r.left < q.left - 1) say("out of its box by " + Math.round(Math.max(r.right - q.right, q.left - r.left)), e);
		}
	}
	const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
	let looked = 0;
	for (let n; (n = words.nextNode()) && looked < 4000;) {
		const e = n.parentElement;
		if (!e.checkVisibility() || e.closest(".only, .skip, svg, pre, code, option, textarea, .err, .rows thead") && !(roomy && e.closest(".rows thead") && !e.closest(".only"))) continue;
		for (const m of n.data.matchAll(/(?<![^\s])[\p{L}\p{N}]{2,10}(?![^\s.,:;?])/gu)) {
			looked++;
			range.setStart(n, m.index), range.setEnd(n, m.index + m[0].length);
			if (new Set([...range.getClientRects()].filter(r => r.width).map(r => Math.round(r.top))).size > 1) say("a short word is broken, " + m[0], e);
		}
	}
	return [...bad].slice(0, 6);
})()`

// No page is wider than its window, no table scrolls sideways where there is room, nothing leaves
// its box and no short word is broken: with the longest names, with 100,000 jobs, also while the
// focus is in a row, of cards and of the narrowest table.
func TestLook_wide(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.crowd()
	check := func(b *tab) func(kind, _ string) {
		return func(kind, _ string) {
			for _, width := range []int64{390, 600, 1024, 1280, 1440, 1920} {
				b.do("set the width of the window", chromedp.EmulateViewport(width, 900))
				for _, bad := range js[[]string](b, cramped) {
					b.Errorf("%s at %d px: %s", kind, width, bad)
				}
				if width != 390 && width != 1024 {
					continue
				}
				for _, bad := range js[[]string](b, `[...new Set([...document.querySelectorAll("tbody tr:first-child")].flatMap(r => { r.querySelector("a, button")?.focus(); return `+cramped+`; }))]`) {
					b.Errorf("%s at %d px, with the focus in a row: %s", kind, width, bad)
				}
			}
			b.do("set the width of the window", chromedp.EmulateViewport(1280, 800))
		}
	}
	root := s.dashboard(dashboard.Admin)
	t.Run("pages", func(t *testing.T) {
		t.Parallel()
		b := newTab(t)
		look := check(b)
		kinds := b.crawl(root, 1, look)
		for name, id := range s.jobs {
			b.open(root + "job/" + id.String())
			look("job, "+name, "")
		}
		for _, path := range []string{"search?q=WWWW", "search?q=" + longest("group", 256), "jobs?group=" + longest("group", 256) + "&queue=" + longest("queue", 128), "none", "jobs?state=x", "lanes?search=zzz", "groups?waiting=1",
			"schedule?name=" + longest("paused", 128), "endpoint?id=" + longest("disabled", 64), "subscription?id=" + longest("jobs", 50), "lane?queue=" + longest("held", 128)} {
			b.open(root + path)
			look(path[:min(len(path), 24)], "")
		}
		if len(kinds) < 15 {
			t.Errorf("only these kinds of pages: %v", kinds)
		}
	})
	t.Run("forms", func(t *testing.T) {
		t.Parallel()
		b := newTab(t)
		look := check(b)
		b.forms(root, func(kind, form string) {
			b.scripts(true)
			look(kind+", "+form, "")
			b.scripts(false)
		})
	})
}
