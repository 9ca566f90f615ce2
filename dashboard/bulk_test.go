package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// A bulk job that somebody has stopped says how far it has got, and has a button for the rest. It
// has not failed.
func TestBulk_stopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := counted(t)
		defer q.Close()
		for range 50 {
			add(t, q, mail{"a"}, &errand.JobOptions{Delay: time.Hour, Tags: []string{"old"}})
		}
		b, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{Tag: "old"}, Rate: 1, By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		defer runs(t, errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet}))()
		time.Sleep(10 * time.Second)
		h := as(q, dashboard.Operator)
		confirm(t, h, asks(t, h, url.Values{"do": {"stop"}, "id": {b.ID.String()}}))
		time.Sleep(10 * time.Second)
		all, err := q.Bulks(t.Context(), b.ID)
		if err != nil || all[0].State != errand.Cancelled || all[0].Changed == 0 {
			t.Fatal(all, err)
		}
		n, rest := all[0].Changed, 50-all[0].Changed
		stopped := fmt.Sprintf("stopped , at %d of 50; the other %d are as they were", n, rest)
		_, list := get(h, "/bulk")
		has(t, "the list", plain(list), true, "Done Unchanged Remaining", "at most 1 a second by ann", stopped, fmt.Sprintf("%d of 50 0 %d", n, rest))
		_, page := get(h, "/bulk?id="+b.ID.String())
		has(t, "its page", plain(page), true, stopped, fmt.Sprintf("Done %d Unchanged 0 Remaining %d", n, rest))
		has(t, "its page", page, true, ">Cancel the rest</button>")
		has(t, "its page", plain(page), false, "Last error", "context canceled", " cancelled")
		again := url.Values{}
		_, form, _ := strings.Cut(page, `<div class="acts">`)
		for _, m := range hiddenField.FindAllStringSubmatch(form, -1) {
			again.Add(m[1], m[2])
		}
		if again.Get("tag") != "old" || again.Get("rate") != "1" {
			t.Errorf("the button asks for %v", again)
		}
		asks(t, h, again, fmt.Sprintf("%d jobs", rest))
	})
}

// Who may not act any more sees what has come of an action, without a button that stops it.
func TestDone_role(t *testing.T) {
	q := open(t)
	add(t, q, mail{"a"}, nil)
	role := dashboard.Operator
	h := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: func(*http.Request) (dashboard.Identity, error) {
		return dashboard.Identity{Name: "ann", Role: role}, nil
	}})
	a := send(h, asks(t, h, url.Values{"do": {"cancel"}, "queue": {"default"}, "rate": {"1"}}))
	_, text := get(h, "/x/"+a.to)
	has(t, "an operator", text, true, "A bulk job was started", "Stop it")
	role = dashboard.Viewer
	_, text = get(h, "/x/"+a.to)
	has(t, "a viewer", text, true, "A bulk job was started")
	has(t, "a viewer", text, false, "Stop it")
}
