package dashboard_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// After an act on one job comes the page of the job, with what was done first. The page is the same
// without that: it has the same links, and whoever did nothing sees it so.
func TestDone_page(t *testing.T) {
	q := open(t)
	name := "ann"
	h := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: func(*http.Request) (dashboard.Identity, error) {
		return dashboard.Identity{Name: name, Role: dashboard.Admin}, nil
	}})
	id := add(t, q, mail{"a"}, &errand.JobOptions{Delay: time.Hour})
	a := send(h, asks(t, h, url.Values{"do": {"cancel"}, "id": {id.String()}}))
	if !strings.HasPrefix(a.to, "job/"+id.String()+"?done=") {
		t.Fatalf("sent to %q", a.to)
	}
	told := func(at string, want bool) string {
		t.Helper()
		status, text := get(h, "/x/"+at)
		if status != 200 || strings.Contains(text, "The job was cancelled.") != want || strings.Contains(text, "done=") {
			t.Errorf("%s: %d, what was done: %v, want it: %s", at, status, want, text)
		}
		_, main, _ := strings.Cut(text, "<main")
		return main
	}
	main := told(a.to, true)
	if bare := told("job/"+id.String(), false); ages(bare) != ages(main) {
		t.Errorf("the page differs: %s\n%s", main, bare)
	}
	ask := func(r *http.Request) { r.Header.Set("Referer", "https://ops.example/x/jobs?state=done&done=KEY") }
	says(t, send(h, url.Values{"do": {"delete"}, "id": {id.String()}}, ask).text, `<a href="./jobs?state=done" class="button safe"`)
	name = "bob"
	told(a.to, false)
	name = "ann"
	at := send(h, asks(t, h, url.Values{"do": {"delete"}, "id": {id.String()}})).to
	if _, text := get(h, "/x/"+at); !strings.HasPrefix(at, "jobs?done=") || !strings.Contains(text, "The job was deleted.") || strings.Contains(text, "Back to:") {
		t.Errorf("%s: %s", at, text)
	}
	if status, text := get(h, "/x/jobs?other=1&done=1"); status != 400 || !strings.Contains(text, "takes no parameter") {
		t.Errorf("%d %s", status, text)
	}
}

// ages returns a page without what changes with the time.
func ages(page string) string { return tag.ReplaceAllString(plain(page), "") }

// What one comes for is the first field of a change, and no hint says what an empty field does of one
// that is not. The question says what stays, and how many go on.
func TestChange_words(t *testing.T) {
	q := open(t)
	h := admin(q)
	add(t, q, letter{"first", ""}, &errand.JobOptions{Group: "g"})
	id := die(t, q, "g")
	add(t, q, letter{"second", ""}, &errand.JobOptions{Group: "g"})
	add(t, q, letter{"third", ""}, &errand.JobOptions{Group: "g"})
	_, text := get(h, "/x/jobs?queue=default&group=g")
	says(t, text, `<a class="button first" href="change?id=`+id.String()+`&then=redrive">Change and redrive</a>`)
	_, text = get(h, "/x/change?then=redrive&id="+id.String())
	f := formOf(text)
	if got := strings.Join(fields(f), " "); got != "priority queue policy args" {
		t.Errorf("the form has %s", got)
	}
	if args, priority := strings.Index(text, `name="args"`), strings.Index(text, `name="priority"`); args > priority {
		t.Errorf("args are at %d, the priority at %d", args, priority)
	}
	if strings.Contains(text, "if empty") {
		t.Error(text)
	}
	_, main, _ := strings.Cut(text, "<main")
	has(t, "the form", plain(main), true, "Its last error: too", "It becomes ready again", "If it succeeds, 2 others of its group “g” go on.", "args before are kept in the history")
	has(t, "the form", plain(main), false, "Its args, attempts")
	f.Set("args", `{"to":"new"}`)
	late := maps.Clone(f)
	late.Set("key", "none")
	_, main, _ = strings.Cut(send(h, late).text, "<main")
	has(t, "the question", plain(main), true, "You were asked too long ago", ": new args, and redrive it?", "It becomes ready again", "What is not named above stays. Its history keeps the args that it has now.", "If it succeeds, 2 others of its group “g” go on.")
	asks(t, h, url.Values{"do": {"redrive"}, "id": {id.String()}}, "Its args, attempts and history stay. If it succeeds, 2 others of its group “g” go on.")
	asks(t, h, url.Values{"do": {"skip"}, "queue": {"default"}, "group": {"g"}}, "It stays dead. 2 others of the group go on without it.")
	text = confirm(t, h, f, "The job was changed: new args. The job was made ready again.")
	_, top, _ := strings.Cut(text, `class="told"`)
	if top, _, _ = strings.Cut(top, "</section>"); strings.Contains(top, "dead") {
		t.Errorf("what was done says that the job is dead: %s", top)
	}
}

// The question about jobs of several states says how many are in each. The bulk job says whom it takes,
// who began it, and what has come of it, and the audit says how many jobs it has changed.
func TestBulk_cancel(t *testing.T) {
	q := open(t)
	h := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: dashboard.Anyone(dashboard.Operator)})
	for i := range 7 {
		o := &errand.JobOptions{Tags: []string{"t5"}, Delay: time.Hour}
		if i < 3 {
			o.Delay = 0
		}
		add(t, q, mail{"a"}, o)
	}
	f := asks(t, h, url.Values{"do": {"cancel"}, "tag": {"t5"}, "state": {"scheduled", "ready", "blocked", "running"}},
		"<h1>Cancel 7 jobs with the tag t5?</h1>", "Those that run are asked to stop. By state: 4 scheduled, 3 ready, none running.")
	has(t, "the question about those that wait", send(h, url.Values{"do": {"cancel"}, "tag": {"t5"}, "state": {"scheduled", "ready", "blocked"}}).text, false, "are asked to stop")
	text := plain(confirm(t, h, f, "A bulk job was started for 7 jobs with the tag t5."))
	has(t, "the bulk job", text, true, "Takes scheduled or ready or blocked or running jobs with the tag t5", "Begun by somebody with the role operator")
	bulks, err := q.Bulks(t.Context())
	if err != nil || len(bulks) != 1 {
		t.Fatal(bulks, err)
	}
	if _, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkDelete, Filter: errand.JobFilter{All: true}, By: "bob"}); err != nil {
		t.Fatal(err)
	}
	serve(t, q, bulks[0].ID)
	_, text = get(h, "/bulk?id="+bulks[0].ID.String())
	has(t, "the bulk job", plain(text), true, "✓ done , 7 cancelled")
	_, text = get(h, "/audit")
	has(t, "the audit", text, true, `<a href="bulk?id=`+bulks[0].ID.String()+`">7</a>`, "7 jobs with the tag t5, by a bulk job")
}

// A release says how many jobs start, on the page of the queue, and in the audit whose hold it was.
func TestRelease_told(t *testing.T) {
	q := open(t)
	h := admin(q)
	for range 3 {
		add(t, q, mail{"a"}, &errand.JobOptions{Queue: "crm"})
	}
	if err := q.Hold(t.Context(), errand.Lane{Queue: "crm"}, &errand.HoldOptions{Reason: "migration", By: "bob"}); err != nil {
		t.Fatal(err)
	}
	text := confirm(t, h, asks(t, h, url.Values{"do": {"release"}, "queue": {"crm"}, "reason": {"migration"}}, "The reason of the hold is migration, since"), "Released: crm. No job starts now. No running worker takes 3 jobs of those that are due.")
	has(t, "the page after it", plain(text), false, "1 held", "since")
	_, text = get(h, "/audit")
	has(t, "the audit", plain(text), true, "crm, which bob held since ", " for the reason migration")
}
