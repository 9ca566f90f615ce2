package dashboard_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// Jobs are found by what is in their args, as far as the role may see that: what is hidden from it
// answers no guess. So it is in rows, and where an action asks back.
func TestJobs_args(t *testing.T) {
	q := open(t)
	defer work(t, q)()
	later := &errand.JobOptions{Delay: time.Hour}
	ann, bob := payment{Email: "ann@example.org"}, payment{Email: "bob@example.org", Body: strings.Repeat("long ", 30)}
	ann.Card.Number, ann.Card.Holder, ann.Body = "4111", "Ann", `{"password":"hunter2"}`
	bob.Card.Number, bob.Card.Holder = "4222", "Bob"
	ids := map[string]string{}
	for name, args := range map[string]errand.Args{"ann": ann, "bob": bob, "raw": errand.RawArgs{OfKind: "unknown", JSON: []byte(`{"to":"ann","n":1.0,"ok":true}`)}} {
		ids[name] = add(t, q, args, later).String()
	}
	for path, want := range map[string]map[dashboard.Role]string{
		"args.email=ann@example.org":  {dashboard.Operator: "ann", dashboard.Admin: "ann"},
		"arg=email%3Dann@example.org": {dashboard.Operator: "ann", dashboard.Admin: "ann"},
		"arg=":                        {dashboard.Viewer: "ann bob raw", dashboard.Operator: "ann bob raw", dashboard.Admin: "ann bob raw"},
		"args.card.holder=Bob":        {dashboard.Operator: "bob", dashboard.Admin: "bob"},
		"args.card.holder=Bob&args.email=ann@example.org":         {dashboard.Operator: "", dashboard.Admin: ""},
		"args.card.holder=Bob&arg=email%3Dbob@example.org":        {dashboard.Operator: "bob", dashboard.Admin: "bob"},
		"args.card.number=4111":                                   {dashboard.Operator: "", dashboard.Admin: "ann"},
		"args.to=ann":                                             {dashboard.Operator: "", dashboard.Admin: "raw"},
		"args.n=1.0&args.ok=true":                                 {dashboard.Operator: "", dashboard.Admin: "raw"},
		"args.n=1":                                                {dashboard.Operator: "", dashboard.Admin: ""},
		"args.email=ann@example.org&state=dead":                   {dashboard.Operator: "", dashboard.Admin: ""},
		"args.email=ann@example.org&kind=payment&state=scheduled": {dashboard.Operator: "ann", dashboard.Admin: "ann"},
	} {
		for _, role := range []dashboard.Role{dashboard.Viewer, dashboard.Operator, dashboard.Admin} {
			for _, format := range []string{"", "&format=json"} {
				status, text := get(as(q, role), "/jobs?queue=default&"+path+format)
				names, may := want[role]
				if (status == 200) != may || !may && status != 403 {
					t.Errorf("%v is answered %s with %d", role, path, status)
				}
				for name, id := range ids {
					if strings.Contains(text, id) != (may && strings.Contains(names, name)) {
						t.Errorf("%v is answered %s with or without the job of %s:\n%s", role, path, name, text)
					}
				}
			}
		}
	}
	for _, path := range []string{"args.a..b=x", "args=to", "arg=" + strings.Repeat("x", 1100), "arg=.a%3Dx&queue=default&tag=mine"} {
		status, text := get(admin(q), "/jobs?"+path)
		if status != 400 {
			t.Errorf("%.20s is answered with %d", path, status)
		}
		if strings.Contains(path, "mine") && (!strings.Contains(text, "must be a value, or NAME=VALUE") || !strings.Contains(text, `name="arg" value=".a=x"`) || !strings.Contains(text, `name="tag" list="tags" value="mine"`)) {
			t.Errorf("the form that was typed in is gone: %s", text)
		}
	}
	// Search finds the same as the list does, and no answer tells a right guess of what is hidden from
	// a wrong one.
	for text, want := range map[string]map[dashboard.Role]string{
		"ann@example.org":       {dashboard.Operator: "ann", dashboard.Admin: "ann"},
		"email=ann@example.org": {dashboard.Operator: "ann", dashboard.Admin: "ann"},
		"Bob":                   {dashboard.Operator: "bob", dashboard.Admin: "bob"},
		"4111":                  {dashboard.Admin: "ann"}, "card.number=4111": {dashboard.Admin: "ann"}, `{"password":"hunter2"}`: {dashboard.Admin: "ann"},
		"hunter2": {}, "ann": {dashboard.Admin: "raw"}, "n=1.0": {dashboard.Admin: "raw"}, "1.0": {dashboard.Admin: "raw"}, "a..b": {}, "4112": {},
	} {
		for _, role := range []dashboard.Role{dashboard.Viewer, dashboard.Operator, dashboard.Admin} {
			h := as(q, role)
			for _, path := range []string{"/search?q=", "/jobs?arg="} {
				if role == dashboard.Viewer && path == "/jobs?arg=" {
					continue
				}
				status, page := get(h, path+url.QueryEscape(text))
				for name, id := range ids {
					if status != 200 || strings.Contains(page, id) != strings.Contains(want[role], name) {
						t.Errorf("%v is answered %s%s with %d, with or without the job of %s:\n%s", role, path, text, status, name, page)
					}
				}
				if role != dashboard.Operator || want[role] != "" {
					continue
				}
				_, right := get(h, path+url.QueryEscape(text)+"&format=json")
				if _, wrong := get(h, path+url.QueryEscape(text+"-")+"&format=json"); right != wrong {
					t.Errorf("%s%s is answered %s, and a wrong guess %s", path, text, right, wrong)
				}
			}
			if _, page := get(h, "/search?q="+url.QueryEscape(text)); role == dashboard.Viewer && !strings.Contains(page, "It takes the role operator to search in args") ||
				role == dashboard.Operator && want[role] == "" && !strings.Contains(page, "Values that are hidden from you are not searched.") ||
				role > dashboard.Viewer && !strings.Contains(page, `<a href="jobs?arg=`+strings.ReplaceAll(url.QueryEscape(text), "+", "%20")) {
				t.Errorf("%v searches %s: %s", role, text, page)
			}
		}
	}
	shown := map[dashboard.Role][]string{
		dashboard.Operator: {`&#34;holder&#34;: &#34;Ann&#34;`, `{&#34;to&#34;: &#34;[hidden]&#34;`, "…</code>"},
		dashboard.Admin:    {`&#34;number&#34;: &#34;4111&#34;`, `{&#34;to&#34;: &#34;ann&#34;, &#34;n&#34;: 1.0`, "…</code>"},
	}
	secret := map[dashboard.Role][]string{dashboard.Viewer: {"4111", "Ann", "Args"}, dashboard.Operator: {"4111", "4222"}}
	for _, role := range []dashboard.Role{dashboard.Viewer, dashboard.Operator, dashboard.Admin} {
		_, text := get(as(q, role), "/jobs?queue=default")
		texts := []string{text}
		if role >= dashboard.Operator {
			texts = append(texts, send(as(q, role), url.Values{"do": {"cancel"}, "queue": {"default"}, "state": {"scheduled"}}).text)
		}
		for _, text := range texts {
			for _, part := range shown[role] {
				if !strings.Contains(text, part) {
					t.Errorf("%v does not see %s:\n%s", role, part, text)
				}
			}
			for _, part := range secret[role] {
				if strings.Contains(text, part) {
					t.Errorf("%v sees %s:\n%s", role, part, text)
				}
			}
		}
	}
	// No bulk job takes what no index finds, and none takes more than was asked for.
	if _, text := get(admin(q), "/jobs?args.to=ann"); !strings.Contains(text, "All jobs with such args cannot be acted on at once") || strings.Contains(text, "With all that match") {
		t.Errorf("what is offered: %s", text)
	}
	for _, name := range []string{"args.to", "arg"} {
		value := map[string]string{"args.to": "ann", "arg": "to=ann"}[name]
		if a := send(admin(q), url.Values{"do": {"cancel"}, "queue": {"default"}, name: {value}}); a.status != 400 || !strings.Contains(a.text, "cannot be acted on at once") {
			t.Errorf("%s: %d, %s", name, a.status, a.text)
		}
	}
}

// Of large args a row says the size.
func TestJobs_largeArgs(t *testing.T) {
	q := open(t)
	add(t, q, mail{strings.Repeat("x", 40_000)}, nil)
	if _, text := get(admin(q), "/jobs"); !strings.Contains(text, "<code>39 KiB</code>") || strings.Contains(text, "xxxxx") {
		t.Errorf("%s", text)
	}
}

// The filter suggests the names that the page knows, and says beside each state how many jobs of the
// queue and the kind are in it, as a link to these.
func TestJobs_suggestions(t *testing.T) {
	q := open(t)
	hostile := `"><script>`
	add(t, q, mail{"a"}, &errand.JobOptions{Delay: time.Hour, Tags: []string{"tenant:t5"}})
	add(t, q, mail{"a"}, &errand.JobOptions{Queue: "other", Delay: time.Hour})
	add(t, q, errand.RawArgs{OfKind: "raw"}, &errand.JobOptions{Queue: "other", Group: hostile, Delay: time.Hour})
	add(t, q, errand.RawArgs{OfKind: "raw"}, &errand.JobOptions{Queue: "other", Group: hostile, Delay: time.Hour})
	h := admin(q)
	list := func(id string, names ...string) string {
		return `<datalist id="` + id + `"><option value="` + strings.Join(names, `"></option><option value="`) + `"></option></datalist>`
	}
	for path, wants := range map[string][]string{
		"": {
			list("queues", "default", "other"), list("kinds", "mail", "raw"), list("tags", "tenant:t5"), `list="queues"`, `list="kinds"`, `list="tags"`,
			`<a class="n" href="jobs?state=scheduled" aria-label="3 scheduled">3</a>`, `<a class="n" href="jobs?state=blocked" aria-label="1 blocked">1</a>`, `✕</span> dead</label> <span class="n">0</span></span>`,
		},
		"?queue=other&state=dead": {
			list("queues", "default", "other"), list("kinds", "mail", "raw"), `<datalist id="tags"></datalist>`, `value="dead" checked> <span aria-hidden="true">✕</span> dead</label> <span class="n">0</span></span>`,
			`<a class="n" href="jobs?queue=other&amp;state=scheduled" aria-label="2 scheduled">2</a>`,
		},
		"?queue=default&kind=mail": {list("kinds", "mail"), `<a class="n" href="jobs?kind=mail&amp;queue=default&amp;state=scheduled" aria-label="1 scheduled">1</a>`},
		"?tag=none":                {list("queues", "default", "other"), ` dead</label></span>`, ` scheduled</label></span>`},
		"?args.a=1":                {` scheduled</label></span>`},
	} {
		_, text := get(h, "/jobs"+path)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("jobs%s lacks %s:\n%s", path, want, text)
			}
		}
		if strings.Contains(text, hostile) {
			t.Errorf("jobs%s has a script", path)
		}
	}
}
