package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/relay"
)

// Each action is refused to those who may not do it, the page says who may, and nothing happens.
func TestAct_roles(t *testing.T) {
	q := open(t)
	fillAll(t, q)
	must := send(admin(q), url.Values{"do": {"explode"}})
	_, names, _ := strings.Cut(must.text, "must be one of ")
	names, _, _ = strings.Cut(names, "<")
	if all := strings.Split(names, ", "); must.status != 400 || len(all) != len(allActions) {
		t.Errorf("%d actions: %s", len(all), names)
	}
	before := everything(t, q)
	for _, role := range []dashboard.Role{dashboard.Viewer, dashboard.Operator, dashboard.Admin} {
		acted := 0
		h := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: who("eve", role), OnAction: func(dashboard.Action) { acted++ }})
		for do, c := range allActions {
			form := url.Values{"do": {do}}
			for name, v := range c.form {
				form[name] = v
			}
			a := send(h, form)
			if role >= c.role {
				if a.status != 200 {
					t.Errorf("%v, %s: %d %s", role, do, a.status, a.text)
				}
				continue
			}
			if a.status != 403 || !strings.Contains(a.text, "It takes the role "+c.role.String()) {
				t.Errorf("%v, %s: %d %s", role, do, a.status, a.text)
			}
			// The answer to what another one was asked.
			if f := formOf(send(admin(q), form).text); f.Get("key") != "" {
				if a := send(h, f); a.status != 403 {
					t.Errorf("%v, %s, with the question of another one: %d %s", role, do, a.status, a.text)
				}
			}
		}
		if after := everything(t, q); after != before || acted > 0 {
			t.Fatalf("%v has done something: %s, before %s", role, after, before)
		}
	}
	for _, path := range []string{"/x/enqueue", "/x/change?id=" + one(t, q, errand.Scheduled).String()} {
		h := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: who("eve", dashboard.Viewer)})
		if status, text := get(h, path); status != 403 || !strings.Contains(text, "It takes the role") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// everything is what actions change.
func everything(t *testing.T, q *errand.Queue) string {
	t.Helper()
	ctx := t.Context()
	jobs, err := q.Jobs(ctx, errand.JobFilter{}, nil)
	holds, err2 := q.Holds(ctx)
	schedules, err3 := q.Schedules().List(ctx)
	bulks, err4 := q.Bulks(ctx)
	devices, err5 := relay.Devices(ctx, q)
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	for i := range holds {
		holds[i].Ready, holds[i].Waiting = 0, 0
	}
	for i := range schedules {
		schedules[i].Next = nil
	}
	b, err := json.Marshal([]any{jobs.Jobs, holds, schedules, bulks, devices})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A dashboard that is for reading only has no buttons and says why; its admins see all.
func TestAct_readOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	writer, err := errand.Open(t.Context(), path, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close() })
	dead := fill(t, writer)
	stopped, err := writer.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{States: []errand.State{errand.Dead}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Cancel(t.Context(), stopped.ID); err != nil {
		t.Fatal(err)
	}
	again := "bulk?id=" + stopped.ID.String()
	if _, text := get(admin(writer), "/x/"+again); !strings.Contains(text, "Redrive the rest") {
		t.Fatal(text)
	}
	reader, err := errand.Open(t.Context(), path, &errand.Options{Logger: quiet, SQLite: errand.SQLiteOptions{ReadOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	form := url.Values{"do": {"release"}, "queue": {"default"}}
	for name, c := range map[string]struct {
		h   http.Handler
		why string
	}{
		"by option":   {dashboard.Handler(writer, &dashboard.Options{Auth: who("ann", dashboard.Admin), Logger: quiet, ReadOnly: true}), "sets dashboard.Options.ReadOnly"},
		"by its file": {dashboard.Handler(reader, &dashboard.Options{Auth: who("ann", dashboard.Admin), Logger: quiet}), "open for reading only"},
	} {
		for _, page := range []string{"", "jobs", "groups", "lanes", "job/" + dead.String(), "schedule?name=night", "bulk", again} {
			status, text := get(c.h, "/x/"+page)
			if status != 200 || strings.Contains(text, `action="`) && strings.Contains(text, `method="post"`) || !strings.Contains(text, c.why) || !strings.Contains(text, "ann, admin") {
				t.Errorf("%s, %q: %d %s", name, page, status, text)
			}
			if strings.HasPrefix(page, "job/") && !strings.Contains(text, "hunter2") {
				t.Errorf("%s: an admin does not see args: %s", name, text)
			}
		}
		if a := send(c.h, form); a.status != 403 || !strings.Contains(a.text, c.why) {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	// With a Writer that is opened by the first action that is confirmed.
	opened := 0
	h := dashboard.Handler(reader, &dashboard.Options{Auth: who("ann", dashboard.Admin), Logger: quiet, Writer: func(context.Context) (*errand.Queue, error) {
		opened++
		return writer, nil
	}})
	f := asks(t, h, form)
	if opened > 0 {
		t.Error("opened by a question")
	}
	confirm(t, h, f, "Released: default.")
	if opened != 1 {
		t.Errorf("opened %d times", opened)
	}
}

// What is found wrong in a form only when it is to be done is said in the form, and is no action.
func TestAct_form(t *testing.T) {
	q := open(t)
	var log bytes.Buffer
	acted := 0
	h := dashboard.Handler(q, &dashboard.Options{Auth: who("ann", dashboard.Admin), Logger: slog.New(slog.NewTextHandler(&log, nil)), OnAction: func(dashboard.Action) { acted++ }})
	a := send(h, asks(t, h, url.Values{"do": {"enqueue"}, "kind": {"no kind!"}, "args": {"{}"}}))
	if again := formOf(a.text); a.status != 400 || again.Get("kind") != "no kind!" {
		t.Errorf("%d %s", a.status, a.text)
	}
	if says(t, a.text, `kind "no kind!": must`); acted > 0 || log.Len() > 0 {
		t.Errorf("%d actions, and the log has %s", acted, &log)
	}
}
