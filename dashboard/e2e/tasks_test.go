package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// mostClicks is how many lead from the overview to the answer of each of these tasks that names no
// other number. Each leads to a page.
const mostClicks = 4

// The tasks of a new operator, without a script: each is done by following what pages say, in few
// clicks. The last ones take from what the others show.
func TestTasks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill()
	s.die(1000)
	s.add("mail", of("letter", order{Note: "u24979@example.com"}), &errand.JobOptions{Queue: "bills", Delay: time.Hour})
	s.add("tenant", of("letter", order{Note: "not wanted"}), &errand.JobOptions{Queue: "bills", Tags: []string{"tenant:t7"}, Delay: time.Hour})
	root, admin := s.dashboard(dashboard.Operator), s.dashboard(dashboard.Admin)
	for i, name := range []string{"wrong", "wrong too"} {
		s.add(name, of("letter", order{Do: "die", Note: fmt.Sprint("no such house ", i)}), &errand.JobOptions{Queue: "bills", Group: "tenant-42"})
	}
	s.state("wrong", errand.Dead)
	correct := func(b *tab, name, note string) {
		b.says(note)
		b.follow("the form", link("Change and redrive "+last(s.jobs[name])))
		b.says("Its last error: "+note, "It becomes ready again")
		b.fill("Args", `{"do": "done", "note": "the right house"}`)
		b.follow("the button", button("Change and redrive the job"))
		b.says("The job was changed: new args. The job was made ready again.", "the right house", s.jobs[name].String())
		s.state(name, errand.Done)
	}
	for _, task := range []struct {
		name string
		do   func(b *tab)
		most int
	}{
		{name: "correct the args of dead jobs of a group and run them again", most: 6, do: func(b *tab) {
			b.open(admin)
			js[string](b, `document.querySelector("input[type=search]").value = "tenant-42"`)
			b.follow("the search", button("Search"))
			correct(b, "wrong", "no such house 0")
			if b.clicks != 3 {
				b.Errorf("%d pages for the first job", b.clicks)
			}
			s.state("wrong too", errand.Dead)
			b.follow("the search", link("Back to: Search"))
			correct(b, "wrong too", "no such house 1")
		}},
		{name: "cancel the waiting work of a tenant", most: 3, do: func(b *tab) {
			js[string](b, `document.querySelector("input[type=search]").value = "tenant:t7"`)
			b.follow("the search", button("Search"))
			b.follow("the button of the tag", `document.querySelector("main td.do button")`)
			b.asks("1 scheduled or ready or blocked job with the tag tenant:t7")
			b.follow("the button that confirms", button("Cancel 1 job"))
			b.says("A bulk job was started for 1 ")
			s.state("tenant", errand.Cancelled)
		}},
		{name: "see what a question is about", do: func(b *tab) {
			b.scripts(true)
			b.open(root + "jobs?state=dead&queue=bills")
			b.follow("the button", `document.querySelector("[aria-labelledby=all] button")`)
			b.wait("the focus on what does nothing", `document.activeElement.matches(".safe")`)
			if y := js[float64](b, "scrollY"); y != 0 {
				b.Errorf("the heading is scrolled away by %v", y)
			}
		}},
		{name: "why does this job not run", do: func(b *tab) {
			b.follow("the lane that is held", link("mail · order"))
			b.follow("those that are ready", `document.querySelector(".tile.ready dd a")`)
			b.follow("the job", link(last(s.jobs["held"])))
			b.says("Why it does not run", "audit", reversed)
		}},
		{name: "why does this job of a log not run", do: func(b *tab) {
			js[string](b, `document.querySelector("input[type=search]").value = `+quote(s.jobs["blocked"].String()))
			b.follow("the search", button("Search"))
			if !b.has("Why it does not run") {
				b.follow("the job", link(last(s.jobs["blocked"])))
			}
			b.says("Why it does not run", s.jobs["dead"].String())
		}},
		{name: "which job is the mail to this address", do: func(b *tab) {
			b.open(admin) // an operator does not see the values of raw args
			js[string](b, `document.querySelector("input[type=search]").value = "u24979@example.com"`)
			b.follow("the search", button("Search"))
			b.follow("the job", link(last(s.jobs["mail"])))
			b.says("u24979@example.com", "Why it does not run")
		}},
		{name: "what kills most", do: func(b *tab) {
			b.says("What kills most", "1,000", "bills · letter", "the address is too long")
			b.follow("the jobs", link("1,000"))
			b.says("letter", "the address is too long")
		}},
		{name: "who holds this queue", do: func(b *tab) {
			b.says("What holds work up", "mail · order", "by "+reversed)
			b.follow("the queues", link("Queues"))
			b.follow("the queue", `document.querySelector("main a[href*='lane?'][href*='queue=mail']")`)
			b.says(reversed)
		}},
		{name: "what was sent to this endpoint", do: func(b *tab) {
			b.follow("the topics", link("Topics"))
			b.follow("the endpoints", link("Endpoints"))
			b.follow("the endpoint", link("ada"))
			b.says("Sent")
			b.follow("the last delivery", `[...document.querySelectorAll("main a")].find(a => /^[0-9a-f]{8}$/.test(a.textContent.trim()))`)
			b.says("done", "170", reversed)
		}},
		{name: "why does this device send nothing", do: func(b *tab) {
			b.follow("the devices", link("Devices"))
			b.says("1 held")
			b.follow("the button of the device", button("Accept pump-17"))
			b.says("its card was cloned")
		}},
		{name: "redrive these and stop half-way", do: func(b *tab) {
			b.follow("the button of the cause", `document.querySelector("[aria-label='What kills most'] form.do button")`)
			b.asks("1,000 jobs")
			js[string](b, `document.querySelector("input[name=rate]").value = "20"`)
			b.follow("the button that confirms", button("Redrive"))
			b.follow("the button that stops it", button("Stop"))
			b.follow("the button that confirms", button("Stop"))
			s.until("the end of the bulk job", func() bool {
				all, err := s.q.Bulks(t.Context())
				for _, i := range all {
					if i.Rate == 20 && i.State == errand.Cancelled {
						return i.Changed < 500
					}
				}
				return err != nil
			})
		}},
		{name: "change this job and redrive it", do: func(b *tab) {
			b.open(root + "job/" + s.jobs["dead"].String())
			b.follow("the form", link("Change and redrive"))
			b.says("It becomes ready again", "If it succeeds, 1 other of its group “")
			b.fill("Priority", "9")
			b.follow("the button", button("Change and redrive the job"))
			b.says("The job was changed: priority 9. The job was made ready again.", "History")
		}},
	} {
		t.Run(task.name, func(t *testing.T) {
			b := newTab(t)
			b.scripts(false)
			if status := b.open(root); status != http.StatusOK {
				t.Fatal(status)
			}
			task.do(b)
			if b.clicks > cmp.Or(task.most, mostClicks) {
				t.Errorf("%d clicks", b.clicks)
			}
			t.Logf("%d clicks", b.clicks)
		})
	}
}

// last is the end of an ID, as lists show it.
func last(id errand.ID) string { s := id.String(); return s[len(s)-8:] }

// asks fails if the page does not ask about so many jobs. On a machine that is slow it says that
// they could not be counted.
func (b *tab) asks(jobs string) {
	b.Helper()
	if !b.has(jobs) && !b.has("could not be counted within") {
		b.Errorf("without %q: %s", jobs, b.where())
	}
}

// says fails if the page does not have all these texts.
func (b *tab) says(all ...string) {
	b.Helper()
	for _, text := range all {
		if !b.has(text) {
			b.Errorf("without %q: %s", text, b.where())
		}
	}
}
