package dashboard_test

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/errandq/errand"
)

// Enter does nothing on a page that asks back: the safe answer has the focus, and the first button
// of the form, which Enter in a field would press, is no button. What nobody can take back has a
// colour of its own.
func TestWords_safe(t *testing.T) {
	q := open(t)
	fillAll(t, q)
	h := admin(q)
	for do, c := range map[string]struct {
		form   url.Values
		yes    string
		no     string
		danger bool
	}{
		"cancel": {url.Values{"queue": {"default"}}, "Cancel 3 jobs", "Keep them", true},
		"delete": {url.Values{"state": {"done"}}, "Delete 1 job", "Keep it", true},
		"hold":   {url.Values{"queue": {"mail"}}, "Hold mail", "Do not hold", false},
		"fire":   {url.Values{"name": {"night"}}, "Run the schedule now", "Wait for its next tick", false},
		"replay": {url.Values{"endpoint": {"billing"}}, "Send them again", "Send nothing", false},
	} {
		c.form.Set("do", do)
		_, form, _ := strings.Cut(send(h, c.form).text, `class="typed">`)
		form, _, _ = strings.Cut(form, "</form>")
		class := "first"
		if c.danger {
			class = "danger"
		}
		safe := regexp.MustCompile(`<a href="[^"]*" class="button safe" data-focus>` + c.no + `</a> <button class="` + class + `">` + c.yes + `</button>`)
		if !strings.HasPrefix(form, "<button hidden disabled>") || !safe.MatchString(form) || strings.Count(form, "<button") != 2 {
			t.Errorf("%s: %s", do, form)
		}
	}
}

// A release says how many jobs start, and what keeps the others.
func TestWords_release(t *testing.T) {
	q := open(t)
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"crm"}, Logger: quiet})
	ran := make(chan struct{}, 1)
	for _, kind := range []string{"order", "slow"} {
		errand.HandleRaw(w, kind, func(context.Context, *errand.Job[errand.RawArgs]) error {
			ran <- struct{}{}
			return nil
		})
	}
	defer runs(t, w)()
	add(t, q, errand.RawArgs{OfKind: "order", JSON: []byte("{}")}, &errand.JobOptions{Queue: "crm"})
	<-ran // so the worker is seen
	hold := func(lane errand.Lane, o *errand.HoldOptions) {
		t.Helper()
		if err := q.Hold(t.Context(), lane, o); err != nil {
			t.Fatal(err)
		}
	}
	hold(errand.Lane{Queue: "crm"}, nil)
	hold(errand.Lane{Kind: "slow"}, nil)
	h := admin(q)
	release := url.Values{"do": {"release"}, "queue": {"crm"}}
	asks(t, h, release, "<h1>Release crm?</h1>", "No job starts now.", ">Keep the hold<", ">Release crm<")
	var all []errand.NewJob
	for kind, n := range map[string]int{"order": 2000, "slow": 30, "stray": 4} {
		for range n {
			all = append(all, errand.NewJob{Args: errand.RawArgs{OfKind: kind, JSON: []byte("{}")}, Options: &errand.JobOptions{Queue: "crm"}})
		}
	}
	if _, err := q.EnqueueMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	f := asks(t, h, release, "2,000 jobs start, as workers have places for them. No running worker takes 4 jobs of those that are due. Other holds keep 30 jobs back.", ">Release 2,004 jobs<")
	asks(t, h, url.Values{"do": {"hold"}, "queue": {"crm"}, "reason": {"more"}}, "2,034 jobs are due now")
	hold(errand.Lane{Kind: "order"}, &errand.HoldOptions{Reason: "test"}) // so they stay
	confirm(t, h, f, "Released: crm.")
}

// The note of a hold is shown wherever the hold is.
func TestWords_note(t *testing.T) {
	q := open(t)
	id := add(t, q, errand.RawArgs{OfKind: "order", JSON: []byte("{}")}, &errand.JobOptions{Queue: "crm"})
	h := admin(q)
	f := asks(t, h, url.Values{"do": {"hold"}, "queue": {"crm"}}, "1 job is due now")
	f.Set("note", " moved to the <new> host ")
	confirm(t, h, f, "Held: crm")
	const note = "moved to the <new> host"
	for _, page := range []string{"/", "/lane?queue=crm", "/job/" + id.String()} {
		_, text := get(h, page)
		says(t, text, note)
	}
	asks(t, h, url.Values{"do": {"release"}, "queue": {"crm"}}, "by ann ("+note+").")
	asks(t, h, url.Values{"do": {"hold"}, "queue": {"crm"}}, "by ann ("+note+"): the new hold takes the place of that")
	asks(t, h, url.Values{"do": {"hold"}, "queue": {"crm"}, "reason": {"other"}}, "1 job is due now")
}
