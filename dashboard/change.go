package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/indent"
	"github.com/errandq/errand/policy"
)

// formArgs is up to how many bytes args are in a form: encoded they take up to three times as
// many.
const formArgs = mostForm / 4

// changeInputs are the fields that somebody fills in for a change.
var changeInputs = []string{"rate", "args", "due", "delay", "priority", "queue", "policy"}

// changeForm returns the form by which jobs are changed: the one of a plan, or those that a filter
// selects. Of one it says what comes of it.
func (x *request) changeForm(f url.Values, p *plan, of which) *form {
	m := &form{
		Title: "Change", Do: "change", Button: "Go on", At: x.from(cmp.Or(p.at, "jobs")), Text: cmp.Or(p.text, of.jobs("jobs")),
		Inputs: []input{
			{Name: "due", Label: "Due", Hint: "as 2026-03-01T06:00:00Z; as it is, if empty"},
			{Name: "delay", Label: "or due in", Hint: "as 30s or 2h; 0 is at once"},
			{Name: "priority", Label: "Priority", Hint: "-100 to 100"},
			{Name: "queue", Label: "Queue"},
			{Name: "policy", Label: "Policy", Area: true, Hint: "JSON; {} takes the job's own policy away"},
		},
	}
	m.Hidden = append(m.Hidden, [2]string{"from", "./" + m.At})
	// What selects the jobs has names of its own: a queue may be typed too.
	typed := f.Has("form")
	m.Hidden = append(m.Hidden, [2]string{"form", "1"})
	if rate := f.Get("rate"); rate != "" {
		m.Hidden = append(m.Hidden, [2]string{"rate", rate})
	}
	for _, name := range sortedKeys(f) {
		if typed != strings.HasPrefix(name, "of-") || slices.Contains(own, name) || name == "do" || name == "rate" {
			continue
		}
		for _, v := range f[name] {
			m.Hidden = append(m.Hidden, [2]string{"of-" + strings.TrimPrefix(name, "of-"), v})
		}
	}
	stays := func() { // of what has a value that is seen
		for i := range m.Inputs {
			if in := &m.Inputs[i]; in.Value == "" && slices.Contains([]string{"priority", "queue", "policy"}, in.Name) {
				in.Hint = strings.TrimPrefix(in.Hint+"; as it is, if empty", "; ")
			}
		}
	}
	if p.job.IsZero() {
		stays()
		return m
	}
	one, notes := &p.jobs[0], []string(nil)
	m.Button = "Change the job"
	m.LastError = brief(x.text(one.Error))
	if one.State == errand.Dead && cmp.Or(f.Get("of-then"), f.Get("then")) == thenRedrive {
		m.Title, m.Button = "Change and redrive", "Change and redrive the job"
		notes = append(notes, readyAgain, p.goOn)
	}
	was := f.Get("of-was") // as the form was when it was first shown
	if !typed {
		was = x.b.was(x.b.jobWas(one))
		m.Hidden = append(m.Hidden, [2]string{"of-was", was})
	}
	m.Hidden = append(m.Hidden, [2]string{"was", was})
	m.Inputs[2].Value, m.Inputs[3].Value, m.Inputs[4].Value = strconv.Itoa(one.Priority), one.Queue, policyText(one)
	if one.State == errand.Dead { // it is due when it is redriven
		m.Inputs = m.Inputs[2:]
	}
	stays()
	switch args := string(indent.JSON(one.Args)); {
	case x.who.Role < Admin:
		notes = append(notes, "Args are changed by those with the role admin.")
	case len(args) > formArgs:
		notes = append(notes, "The args have "+size(int64(len(args)))+", which is too large for a form: errand jobs edit changes them.")
	default:
		m.Inputs = slices.Insert(m.Inputs, 0, input{Name: "args", Label: "Args", Value: args, Area: true, Hint: "JSON; the args before are kept in the history"})
	}
	m.Note = visible(strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), " "))
	x.keyFor(m)
	return m
}

// thenRedrive is the value of the field then of a change after which the job is redriven.
const thenRedrive = "redrive"

// changeable are the states in which a job that is named can be changed.
var changeable = append(errand.BulkChange.States(), errand.Dead)

// changePage shows the form by which a job is changed.
func changePage(x *request) (*content, error) {
	if err := x.mayDo(deeds["change"]); err != nil {
		return nil, err
	}
	id, err := errand.ParseID(x.URL.Query().Get("id"))
	if err != nil {
		return nil, err
	}
	p, err := x.planOne(id, changeable, "changed")
	if err != nil {
		return nil, err
	}
	if p.idle != "" {
		return nil, &refusal{status: http.StatusConflict, text: p.idle}
	}
	f := url.Values{"id": {id.String()}}
	if p.jobs[0].State == errand.Dead && x.URL.Query().Get("then") == thenRedrive {
		f.Set("then", thenRedrive)
	}
	return x.changeForm(f, p, which{}).filled(nil, nil), nil
}

// readChange reads what is to be changed. Of one job that is only what was typed: what is as the
// form had it stays as it is now.
func (x *request) readChange(f url.Values, one *errand.JobInfo) (c errand.JobChange, text string, err error) {
	r := reader{f: f}
	was := x.b.readWas(f.Get("of-was"))
	typed := func(name string, is string) bool {
		s := r.text(name)
		return s != "" && (one == nil || s != is && (was == nil || s != was.Get(name)))
	}
	var all []string
	if s := r.text("due"); s != "" {
		if c.DueAt, err = readTime(s, time.Time{}); err != nil || c.DueAt.IsZero() {
			r.fault("due", s, "must be a time, as 2026-03-01T06:00:00Z")
		}
		all = append(all, "due "+c.DueAt.UTC().Format(time.RFC3339))
	}
	if s := r.text("delay"); s != "" {
		if c.Delay = r.duration("delay"); c.Delay == 0 && c.DueAt.IsZero() {
			c.DueAt = x.b.q.Clock().Now
		}
		all = append(all, "due in "+s)
	}
	is := errand.JobInfo{}
	if one != nil {
		is = *one
	}
	if typed("priority", strconv.Itoa(is.Priority)) {
		n := r.number("priority")
		c.Priority = &n
		all = append(all, "priority "+r.text("priority"))
	}
	if typed("queue", is.Queue) {
		c.Queue = r.text("queue")
		all = append(all, "queue "+c.Queue)
	}
	if s := r.text("policy"); s != "" {
		doc := r.json("policy")
		old := was.Get("policy")
		if own := []byte(policyText(&is)); doc != nil && (one == nil || !bytes.Equal(compact(doc), compact(own)) && x.b.policyWas(is.ID, doc) != old) {
			d, err := policy.ParseDocument(doc, policy.ProfileQueue)
			if err != nil {
				r.fault("policy", string(doc), "must be a policy: "+err.Error())
			}
			c.Policy = d
			all = append(all, "new policy")
		}
	}
	if f.Has("args") && one != nil {
		doc := r.json("args")
		if doc != nil && !bytes.Equal(compact(doc), compact(one.Args)) && x.b.argsWas(one.ID, doc) != was.Get("args") {
			c.Args = errand.RawArgs{OfKind: one.Kind, JSON: doc}
			all = append(all, "new args")
		}
	}
	if is.State == errand.Dead && (!c.DueAt.IsZero() || c.Delay != 0) {
		r.fault("due", r.text("due"), "must be empty, and delay too: a dead job is due when it is redriven")
	}
	if len(all) == 0 && len(r.faults) == 0 {
		r.fault("change", "nothing", "must differ from what is")
	}
	return c, strings.Join(all, ", "), r.err()
}

// changeDocs returns what a change writes that is too long for a sentence.
func changeDocs(c *errand.JobChange) (docs [][2]string) {
	if raw, ok := c.Args.(errand.RawArgs); ok {
		docs = append(docs, [2]string{"New args", string(indent.JSON(raw.JSON))})
	}
	if c.Policy != nil {
		docs = append(docs, [2]string{"New policy", asJSON(c.Policy)})
	}
	return docs
}

func changeJobs(x *request, f url.Values) (*plan, error) {
	if f.Has("args") && x.who.Role < Admin {
		return nil, &refusal{status: http.StatusForbidden, text: "You may not change args.", remedy: "It takes the role admin; yours is " + x.who.Role.String() + "."}
	}
	sel := f
	if f.Has("form") { // see changeForm
		sel = url.Values{}
		for name, v := range f {
			if of, ok := strings.CutPrefix(name, "of-"); ok {
				sel[of] = v
			}
		}
	}
	in, of, err := x.selected(sel)
	if err != nil {
		return nil, err
	}
	var one *errand.JobInfo
	p := &plan{}
	if len(in.IDs) == 1 {
		if p, err = x.planOne(in.IDs[0], changeable, "changed"); err != nil || p.idle != "" {
			return p, err
		}
		one = &p.jobs[0]
	}
	seen := *p // as it is before it says what is typed
	show := func(typed url.Values, err error) *content {
		return x.again("change", x.changeForm(f, &seen, of), typed, err)
	}
	if !f.Has("form") {
		return &plan{page: show(nil, nil)}, nil
	}
	c, text, err := x.readChange(f, one)
	b := errand.Bulk{Do: errand.BulkChange, Filter: in, Change: c}
	if b.DryRun = true; err == nil && one != nil { // which says what is wrong
		_, err = x.b.q.StartBulk(x.Context(), b)
	} else if err == nil {
		p, err = x.planMany(f, b, of, "changed")
	}
	again := func(err error) *content { return show(f, err) }
	switch {
	case errors.Is(err, errand.ErrInvalid):
		return &plan{page: again(err)}, nil
	case err != nil || p.idle != "":
		return p, err
	}
	p.text += ": " + text
	redriven := one != nil && one.State == errand.Dead && sel.Get("then") == thenRedrive
	if redriven {
		p.text += ", and redrive it"
		p.yes, p.note = "Change and redrive the job", readyAgain+" "
	}
	if one != nil {
		if p.note += "What is not named above stays."; c.Args != nil {
			p.note += " Its history keeps the args that it has now."
		}
	}
	if redriven {
		p.note = strings.TrimSpace(p.note + " " + p.goOn)
	}
	if p.docs = changeDocs(&c); one == nil {
		return p, nil
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		if redriven {
			with := c
			with.Queue = ""
			err := redrive(ctx, q, p.job, &errand.RedriveOptions{Queue: c.Queue, Change: &with}, out)
			if err == nil {
				out.Told = "The job was changed: " + text + ". " + out.Told
			}
			return err
		}
		r, err := q.Change(ctx, in, c)
		switch {
		case err != nil:
			return err
		case len(r.Running) > 0:
			return declined("The job runs now: it is as it was.")
		case len(r.NotFound) > 0:
			return movedOn(ctx, q, p.job)
		}
		out.Told = "The job was changed: " + text + "."
		return nil
	}
	p.again = again
	return p, nil
}
