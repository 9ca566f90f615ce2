package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// forms sends each form that can be reached, once of each kind, without a script and as it is, but
// confirms nothing. Each answers with a page: a list, a question, or what is missing.
func (b *tab) forms(root string, each func(kind, at string)) {
	b.Helper()
	b.scripts(false)
	sent := map[string]bool{}
	b.crawl(root, 1, func(kind, at string) {
		for i, form := range js[[]string](b, `[...document.forms].map(f => f.method + " " + new URL(f.action).pathname + " " + [...f.elements].filter(e => e.name && e.name != "id").map(e => e.name + (e.name == "do" ? "=" + e.value : "")).join())`) {
			if sent[form] {
				continue
			}
			sent[form] = true
			b.open(at)
			js[int](b, fmt.Sprintf(`[...document.forms[%d].elements].filter(e => e.name === "id" && e.type === "checkbox").slice(0, 2).forEach(e => e.checked = true), 1`, i))
			status := b.follow("the button of "+form, fmt.Sprintf(`document.forms[%d].querySelector("button:not([hidden])")`, i))
			if status != http.StatusOK && status != http.StatusBadRequest {
				b.Errorf("%s: %s: %d", at, form, status)
			}
			if js[int](b, `document.querySelectorAll("h1").length`) != 1 || js[string](b, `document.querySelector("main").innerText`) == "" {
				b.Errorf("%s: %s: %s", at, form, b.where())
			}
			each("form of "+kind, form)
		}
		b.open(at)
	})
	if len(sent) < 10 {
		b.Errorf("only these forms: %q", slices.Sorted(maps.Keys(sent)))
	}
}

// fill writes into a field that has a label.
func (b *tab) fill(label, text string) {
	b.Helper()
	if !js[bool](b, `(() => {
		const e = `+named+`("input, textarea", `+quote(label)+`)[0];
		if (e) e.value = `+quote(text)+`;
		return !!e;
	})()`) {
		b.Fatalf("no field %s; %s", label, b.where())
	}
}

// confirm presses a button, which is asked back, and the one that confirms, if it is not empty. Both
// pages have to say what they are about.
func (b *tab) confirm(press, question, sure, outcome string) {
	b.Helper()
	if status := b.follow("the button that is asked back", press); status != http.StatusOK || !b.has(question) {
		b.Fatalf("%d, without %q: %s", status, question, b.where())
	}
	if sure == "" {
		return
	}
	if status := b.follow("the button that confirms: "+sure, button(sure)); status != http.StatusOK || !b.has(outcome) {
		b.Fatalf("%d, without %q: %s", status, outcome, b.where())
	}
}

// Each action is done without a script: a form, a question that says what it would come to, and
// what has come of it.
func TestActions(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	b, j := newTab(t), newJudge()
	b.scripts(false)
	operator, admin := s.dashboard(dashboard.Operator), s.dashboard(dashboard.Admin)
	job := func(name string) string { return "job/" + s.jobs[name].String() }
	attempts := func(name string, n int) func() {
		return func() {
			s.until(name+" to run again", func() bool {
				info, err := s.q.Job(t.Context(), s.jobs[name])
				return err == nil && info.Attempt >= n
			})
		}
	}
	held := func(lane errand.Lane, want bool) func() {
		return func() {
			if is := slices.ContainsFunc(s.holds(), func(h errand.HoldState) bool { return h.Lane == lane }); is != want {
				t.Errorf("%v is held: %v", lane, is)
			}
		}
	}
	paused := func(want bool) func() {
		return func() {
			info, err := s.q.Schedules().Get(t.Context(), "night")
			if err != nil || info.Paused != want {
				t.Errorf("the schedule is paused: %v, %v", info.Paused, err)
			}
		}
	}
	for _, c := range []struct {
		name, root, page string
		before           func()
		button           string // as an expression
		question         string
		sure             string
		outcome          string
		check            func()
	}{
		{"hold", operator, "lanes", nil, button("Hold default order"), "order in default", "Hold order in default", "Held", held(errand.Lane{Queue: "default", Kind: "order"}, true)},
		{"release", operator, "", nil, button("Release default order"), "order in default", "Release", "eleased", held(errand.Lane{Queue: "default", Kind: "order"}, false)},
		{"redrive one", operator, job("dead"), nil, button("Redrive"), s.jobs["dead"].String(), "Redrive the job", "The job was made ready again.", attempts("dead", 2)},
		{"run now", operator, job("failed"), nil, button("Run now"), s.jobs["failed"].String(), "Run the job now", "The job was put first", attempts("failed", 2)},
		{"cancel one", operator, job("scheduled"), nil, button("Cancel"), s.jobs["scheduled"].String(), "Cancel the job", "The job was cancelled.", func() { s.state("scheduled", errand.Cancelled) }},
		{"skip the head", operator, "groups", nil, button("Skip it: 1 goes on"), "the head of group", "Skip the job", "goes on without", func() { s.state("blocked", errand.Done) }},
		{"pause a schedule", operator, "schedule?name=night", nil, button("Pause"), "night", "Pause the schedule", "is paused", paused(true)},
		{"resume a schedule", operator, "schedule?name=night", nil, button("Resume"), "night", "Resume the schedule", "is resumed", paused(false)},
		{"redrive those marked", operator, "jobs?state=dead&kind=payment", func() {
			for i := range 2 {
				b.click("a box", fmt.Sprintf(`document.querySelectorAll("input[type=checkbox][name=id]")[%d]`, i))
			}
		}, `document.getElementById("marked").querySelector("button")`, "2 jobs", "Redrive 2 jobs", "A bulk job was started", func() {
			s.until("two payments to die again", func() bool { // the next action is on all three
				page, err := s.q.Jobs(t.Context(), errand.JobFilter{Kind: "payment", States: []errand.State{errand.Dead}}, nil)
				again := 0
				for i := range page.Jobs {
					if page.Jobs[i].Attempt >= 2 {
						again++
					}
				}
				return err == nil && len(page.Jobs) == 3 && again == 2
			})
		}},
		{"redrive all that match", operator, "jobs?state=dead&kind=payment", func() {
			s.until("the page to show all three, as its numbers may be a second old", func() bool {
				b.open(operator + "jobs?state=dead&kind=payment")
				return js[bool](b, `!!`+button("Redrive 3 dead jobs"))
			})
		},
			button("Redrive 3 dead jobs"), "3 dead jobs", "Redrive", "A bulk job was started", func() {
				s.until("all payments to run again", func() bool {
					page, err := s.q.Jobs(t.Context(), errand.JobFilter{Kind: "payment"}, nil)
					return err == nil && len(page.Jobs) == 3 && !slices.ContainsFunc(page.Jobs, func(j errand.JobInfo) bool { return j.Attempt < 2 })
				})
			}},
		{"enqueue", admin, "enqueue", func() {
			b.fill("Kind", "order")
			b.fill("Args", `{"do": "done", "note": "from a page"}`)
			b.fill("Queue", "mail")
			b.fill("Tags", "by-hand")
		}, `document.querySelector("main form button")`, "order", "Enqueue", "is enqueued.", func() {
			page, err := s.q.Jobs(t.Context(), errand.JobFilter{Tag: "by-hand"}, nil)
			if err != nil || len(page.Jobs) != 1 || page.Jobs[0].Queue != "mail" {
				t.Errorf("%+v, %v", page.Jobs, err)
			}
		}},
		{"change one", admin, "change?id=" + s.jobs["held"].String(), func() {
			b.fill("Priority", "17")
			b.fill("Args", `{"do": "done", "note": "changed"}`)
		}, button("Change the job"), "The job was changed: priority 17, new args.", "", "", func() {
			info, err := s.q.Job(t.Context(), s.jobs["held"])
			if err != nil || info.Priority != 17 || !strings.Contains(string(info.Args), "changed") {
				t.Errorf("%d %s, %v", info.Priority, info.Args, err)
			}
		}},
		{"fire a schedule", operator, "schedule?name=night", nil, button("Run now"), "night", "Run the schedule now", "is enqueued.", func() {
			s.until("a job of the schedule", func() bool {
				ticks, err := s.q.Schedules().History(t.Context(), "night")
				page, err2 := s.q.Jobs(t.Context(), errand.JobFilter{Kind: "order", Queue: "default", States: []errand.State{errand.Done}}, nil)
				return err == nil && err2 == nil && (len(ticks) > 0 || slices.ContainsFunc(page.Jobs, func(j errand.JobInfo) bool { return j.Headers["errand-schedule"] == "night" }))
			})
		}},
		{"send again", operator, "subscription?id=ada-orders", nil, button("Replay"), "ada-orders", "Send them again", "Sent again", func() {
			s.until("six deliveries", func() bool {
				page, err := s.q.Jobs(t.Context(), errand.JobFilter{Queue: webhook.QueueOf("ada"), States: []errand.State{errand.Done}}, nil)
				return err == nil && len(page.Jobs) >= 6
			})
		}},
		{"pause a subscription", operator, "subscription?id=ada-orders", nil, button("Pause"), "ada-orders", "Pause the subscription", "is paused.", func() {
			if sub, err := s.topics.Subscription(t.Context(), "ada-orders"); err != nil || sub.State != topic.Paused {
				t.Errorf("%+v, %v", sub, err)
			}
		}},
		{"resume a subscription", operator, "subscription?id=ada-orders", nil, button("Resume"), "ada-orders", "Resume the subscription", "is resumed.", func() {
			if sub, err := s.topics.Subscription(t.Context(), "ada-orders"); err != nil || sub.State == topic.Paused {
				t.Errorf("%+v, %v", sub, err)
			}
		}},
		{"accept a device", operator, "devices", nil, button("Accept pump-17"), "device pump-17", "Accept the device", "Accepted: device pump-17", func() {
			if d, err := relay.GetDevice(t.Context(), s.q, "pump-17"); err != nil || d.Held > 0 {
				t.Errorf("%+v, %v", d, err)
			}
		}},
		{"revoke a device", admin, "device?name=pump-18", nil, button("Revoke pump-18"), "device pump-18", "Revoke the device", "Revoked: device pump-18.", func() {
			if d, err := relay.GetDevice(t.Context(), s.q, "pump-18"); err != nil || d.RevokedAt.IsZero() {
				t.Errorf("%+v, %v", d, err)
			}
		}},
		{"delete one", admin, job("cancelled"), nil, button("Delete"), s.jobs["cancelled"].String(), "Delete the job", "The job was deleted.", func() {
			s.until("the job to be gone", func() bool {
				_, err := s.q.Job(t.Context(), s.jobs["cancelled"])
				return errors.Is(err, errand.ErrNotFound)
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := b.T
			b.T = t
			defer func() { b.T = was }()
			if status := b.open(c.root + c.page); status != http.StatusOK {
				t.Fatalf("%d: %s", status, b.where())
			}
			if c.before != nil {
				c.before()
			}
			b.confirm(c.button, c.question, c.sure, c.outcome)
			b.scripts(true)
			j.look(b, "done", c.name)
			b.scripts(false)
			c.check()
		})
	}
}

// Where the page asks back, the safe answer has the focus. There and in a form that acts, Enter in a field
// confirms nothing. What is no JSON is not sent.
func TestEnter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	b := newTab(t)
	b.open(s.dashboard(dashboard.Operator) + "lane?kind=payment")
	b.follow("the button that is asked back", button("Redrive 3 dead"))
	if name := js[string](b, `document.activeElement.textContent`); name != "Leave them dead" {
		t.Errorf("%q has the focus", name)
	}
	press := func(name string) {
		t.Helper()
		js[int](b, `window.sent = 0, document.addEventListener("submit", e => { sent++; e.preventDefault(); }), document.querySelector("main input:not([type=hidden])").focus(), 1`)
		b.do("press Enter", chromedp.KeyEvent(kb.Enter))
		if n := js[int](b, `sent`); n != 0 {
			t.Errorf("sent %d times by Enter", n)
		}
		b.click("the button that confirms", button(name))
	}
	press("Redrive ")
	b.wait("a press of the button", `sent === 1`)
	b.open(s.dashboard(dashboard.Admin) + "change?then=redrive&id=" + s.jobs["dead"].String())
	write := func(text string) {
		b.fill("Args", text)
		js[bool](b, `document.getElementById("f-args").dispatchEvent(new Event("input"))`)
	}
	write("{")
	press("Change and redrive the job")
	if n := js[int](b, `document.getElementById("f-args").matches(":invalid") ? sent : 2`); n != 0 {
		t.Errorf("%d for what is no JSON", n)
	}
	write(`{"do": "done"}`)
	b.click("the button that confirms", button("Change and redrive the job"))
	b.wait("a press of the button", `sent === 1`)
}

// A viewer has no button that acts, and an operator none that deletes.
func TestActions_roles(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	for role, most := range map[dashboard.Role][]string{dashboard.Viewer: {}, dashboard.Operator: {"delete"}} {
		b := newTab(t)
		b.crawl(s.dashboard(role), 1, func(kind, _ string) {
			for _, do := range js[[]string](b, `[...document.querySelectorAll("form[method=post]")].flatMap(f => [...f.querySelectorAll("[name=do], [name=do] option")].map(e => e.value))`) {
				if role == dashboard.Viewer || slices.Contains(most, do) {
					b.Errorf("%s: a form for %s to %v", kind, do, role)
				}
			}
		})
		for _, secret := range []string{"hunter2"} {
			b.open(s.dashboard(role) + "job/" + s.jobs["dead"].String())
			if strings.Contains(js[string](b, `document.documentElement.outerHTML`), secret) {
				b.Errorf("%v sees a secret: %s", role, b.where())
			}
		}
	}
}
