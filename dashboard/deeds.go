package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
)

// jobVerb is a deed on jobs.
type jobVerb struct {
	bulk  errand.BulkAction
	one   []errand.State // of a job that is named alone; nil: those of bulk
	past  string         // redriven
	note  string         // about a job that is named alone
	notes string         // about several
	runs  string         // about those that run
	do    func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error
}

// alone returns the states in which it takes a job that is named alone.
func (v *jobVerb) alone() []errand.State {
	if v.one != nil {
		return v.one
	}
	return v.bulk.States()
}

// readyAgain says what becomes of a job that is redriven.
const readyAgain = "It becomes ready again, and has all its retries anew."

var redriveVerb = jobVerb{
	bulk: errand.BulkRedrive, past: "redriven",
	note:  readyAgain + " Its args, attempts and history stay.",
	notes: "Each becomes ready again, and has all its retries anew. Args, attempts and history stay.",
	do: func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error {
		return redrive(ctx, q, id, nil, out)
	},
}

// redrive redrives a job.
func redrive(ctx context.Context, q *errand.Queue, id errand.ID, o *errand.RedriveOptions, out *outcome) error {
	r, err := q.DeadLetters().Redrive(ctx, errand.JobFilter{IDs: []errand.ID{id}}, o)
	switch {
	case err != nil:
		return err
	case len(r.Duplicates) > 0:
		return declined("Another job holds its unique key: it stays dead, as it was.")
	case r.Redriven == 0:
		return movedOn(ctx, q, id)
	}
	out.Told = "The job was made ready again."
	return nil
}

// movedOn returns why nothing was done to a job that is in another state by now.
func movedOn(ctx context.Context, q *errand.Queue, id errand.ID) error {
	info, err := q.Job(ctx, id)
	if err != nil {
		return err
	}
	return declined("Somebody or something else was faster: the job is %s by now.", info.State)
}

var runVerb = jobVerb{
	bulk: errand.BulkRunNow, one: []errand.State{errand.Scheduled, errand.Ready}, past: "run now",
	note: "It goes before all others, whatever holds its queue. A retry budget holds it back.",
	do: func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error {
		r, err := q.RunNow(ctx, errand.JobFilter{IDs: []errand.ID{id}}, nil)
		switch {
		case err == nil && len(r.NotFound) > 0:
			return movedOn(ctx, q, id)
		case err == nil:
			out.Told = "The job was put first: it runs as soon as a worker of its queue and kind has a free place."
		}
		return err
	},
}

var cancelVerb = jobVerb{
	bulk: errand.BulkCancel, past: "cancelled",
	notes: "Those that wait never run.", runs: "Those that run are asked to stop.",
	do: func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error {
		state, err := q.Cancel(ctx, id)
		switch {
		case err != nil:
			return err
		case state == errand.Running:
			out.Told = "The job ran, and was asked to stop."
		case state == errand.Cancelled:
			out.Told = "The job was cancelled."
		default:
			return declined("It had ended before: it is %s.", state)
		}
		return nil
	},
}

var deleteVerb = jobVerb{
	bulk: errand.BulkDelete, past: "deleted",
	note:  "It is gone then, with its history.",
	notes: "They are gone then, with their history.",
	do: func(ctx context.Context, q *errand.Queue, id errand.ID, out *outcome) error {
		n, err := q.Delete(ctx, errand.JobFilter{IDs: []errand.ID{id}})
		if err == nil && n == 0 {
			err = errand.ErrNotFound
		}
		if err == nil {
			out.Told, out.At = "The job was deleted.", "jobs"
		}
		return err
	},
}

// choice is a deed on jobs that a list offers: Before and After are what its button says before and
// after the number of jobs.
type choice struct{ Do, Before, After string }

// choiceOf returns a deed as a list offers it.
func choiceOf(do string) choice {
	before, after, _ := strings.Cut(deeds[do].does, "%s")
	return choice{do, before, after}
}

// verbs are the deeds on jobs, as lists offer them. whose says which jobs a deed takes that takes
// those of several states.
var verbs = []struct {
	do    string
	role  Role
	bulk  errand.BulkAction
	one   []errand.State
	whose string
}{
	{"redrive", Operator, errand.BulkRedrive, redriveVerb.alone(), ""},
	{"run", Operator, errand.BulkRunNow, runVerb.alone(), ""},
	{"change", Operator, errand.BulkChange, changeable, "that wait"},
	{"cancel", Operator, errand.BulkCancel, cancelVerb.alone(), "that wait or run"},
	{"delete", Admin, errand.BulkDelete, deleteVerb.alone(), "that have ended or are dead"},
}

// button is a form with a button and no fields in which one types.
type button struct {
	Do, Title, About string
	Fields           [][2]string
}

// ForAll returns what can be done to all jobs that match, each deed to those of the states that it
// takes. Where nothing is chosen, no more than to redrive what is dead. What waits can be cancelled without
// what runs.
func (d *jobsData) ForAll(r Role) (all []button) {
	if d.Filter.Error != "" && r < Admin || len(d.Filter.Args) > 0 { // see selected
		return nil
	}
	for i := range verbs {
		v := &verbs[i]
		states := slices.DeleteFunc(v.bulk.States(), func(s errand.State) bool { return len(d.Filter.State) > 0 && !d.Filter.Has(s) })
		if r < v.role || len(d.Fields) == 0 && v.bulk != errand.BulkRedrive {
			continue
		}
		if waits := waiters(states); v.bulk == errand.BulkCancel && len(waits) < len(states) {
			all = d.offer(all, v.do, "that wait", waits)
		}
		all = d.offer(all, v.do, v.whose, states)
	}
	return all
}

// waiters returns those of the states in which a job can be cancelled that are not of one that runs.
func waiters(states []errand.State) []errand.State {
	return slices.DeleteFunc(slices.Clone(states), func(s errand.State) bool { return s == errand.Running })
}

// offer adds the button of a deed on all jobs that match and are in one of the states, if there are any.
func (d *jobsData) offer(all []button, do, whose string, states []errand.State) []button {
	of, text := d.Filter, which{after: whose}
	of.State = states
	if len(states) == 1 {
		text = which{before: string(states[0])}
	}
	what := "all " + text.jobs("jobs")
	switch n, known := of.count(d.look); {
	case len(states) == 0 || known && n == 0:
		return all
	case known:
		what = text.n(n)
	}
	b := button{Do: do, Title: deeds[do].ask(what)}
	for _, s := range states {
		b.Fields = append(b.Fields, [2]string{"state", string(s)})
	}
	for _, field := range d.Fields {
		if field[0] != "state" {
			b.Fields = append(b.Fields, field)
		}
	}
	return append(all, b)
}

// Deed returns what is most likely done to the job of a row, nil if nothing is.
func (r *withArgs) Deed() *button {
	do := map[errand.State]string{errand.Dead: "redrive", errand.Scheduled: "run", errand.Ready: "run", errand.Running: "cancel"}[r.State]
	if do == "" {
		return nil
	}
	return &button{do, deeds[do].title, lastEight(r.ID), pairs("id", r.ID.String())}
}

// ForMarked returns what can be done to some of the jobs that a filter selects.
func (f jobsFilter) ForMarked(r Role) (all []choice) {
	for i := range verbs {
		if v := &verbs[i]; r >= v.role && (len(f.State) == 0 || slices.ContainsFunc(v.one, f.Has)) {
			all = append(all, choiceOf(v.do))
		}
	}
	return all
}

// selected reads which jobs a form is about, and says it in words.
func (x *request) selected(f url.Values) (in errand.JobFilter, text which, err error) {
	for _, s := range f["id"] {
		id, err := errand.ParseID(s)
		if err != nil {
			return in, text, err
		}
		if !slices.Contains(in.IDs, id) {
			in.IDs = append(in.IDs, id)
		}
	}
	switch {
	case len(in.IDs) > 0:
		return in, which{after: "that you have marked"}, nil
	case f.Get("which") == "marked":
		return in, text, &refusal{status: http.StatusBadRequest, text: "No job is marked.", remedy: "Mark some in the list first."}
	}
	of, in, err := filterOf(f)
	switch {
	case err != nil:
		return in, text, err
	case len(of.Args) > 0:
		return in, text, &refusal{status: http.StatusBadRequest, text: "All jobs with such args cannot be acted on at once.",
			remedy: "No index finds them: mark the jobs in the list, or choose by other fields."}
	}
	if in.Error != "" && x.who.Role < Admin {
		return in, text, &refusal{status: http.StatusForbidden, text: "It takes the role admin to act on all jobs whose errors contain a text.",
			remedy: "The store compares whole errors, and how many jobs match would tell what is hidden in them. Mark the jobs in the list, or choose those of one cause."}
	}
	if text = filterText(&in); text == (which{}) {
		in.All = true
		return in, which{after: "of all queues"}, nil
	}
	return in, text, nil
}

// which says in words which jobs something is about: what comes before the word job, and after it.
type which struct{ before, after string }

// jobs is the word with those before and after it: job or jobs.
func (w which) jobs(word string) string {
	return strings.TrimSpace(w.before + " " + word + " " + w.after)
}

// n returns the words for a number of jobs.
func (w which) n(n int64) string {
	if n == 1 {
		return "1 " + w.jobs("job")
	}
	return count(n) + " " + w.jobs("jobs")
}

// errorContains stands before the text of an error in what jobs were chosen by.
const errorContains = "whose error contains"

// filterText says in words what a filter selects; empty: all.
func filterText(in *errand.JobFilter) which {
	var all []string
	add := func(before, value string) {
		if value != "" {
			all = append(all, before+" "+value)
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			add(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	add("of kind", in.Kind)
	add("in queue", in.Queue)
	add("of group", in.Group)
	add("with the tag", in.Tag)
	if !in.Parent.IsZero() {
		add("after job", in.Parent.String())
	}
	add("from", strings.TrimSuffix(in.Origin.Device+","+in.Origin.ID, ","))
	add("with the reason", string(in.Reason))
	if in.Cause != 0 {
		add("of cause", strconv.FormatInt(in.Cause, 10))
	}
	if in.Error != "" {
		add(errorContains, "“"+in.Error+"”")
	}
	at("enqueued from", in.CreatedFrom)
	at("enqueued before", in.CreatedBefore)
	at("due from", in.DueFrom)
	at("due before", in.DueBefore)
	at("ended from", in.EndedFrom)
	at("ended before", in.EndedBefore)
	return which{strings.ReplaceAll(words(in.States), ", ", " or "), strings.Join(all, ", ")}
}

// onJobs returns the plan of a deed on jobs: at once on one, by a bulk job on others.
func onJobs(v *jobVerb) func(*request, url.Values) (*plan, error) {
	return func(x *request, f url.Values) (*plan, error) {
		in, of, err := x.selected(f)
		if err != nil {
			return nil, err
		}
		if len(in.IDs) == 1 {
			p, err := x.planOne(in.IDs[0], v.alone(), v.past)
			if err == nil && p.idle == "" {
				p.note = strings.TrimSpace(v.note + " " + p.goOn)
				p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error { return v.do(ctx, q, p.job, out) }
			}
			return p, err
		}
		b := errand.Bulk{Do: v.bulk, Filter: in}
		if v.bulk == errand.BulkRunNow {
			b.RunNow.FirstRuns = true
		}
		p, err := x.planMany(f, b, of, v.past)
		if err != nil || p.idle != "" {
			return p, err
		}
		notes := v.notes
		if len(in.States) == 0 || slices.Contains(in.States, errand.Running) {
			notes += " " + v.runs
		}
		p.note = strings.TrimSpace(notes + " " + p.note)
		if in.Cause != 0 {
			c, err := x.causeOf(&in)
			if err != nil {
				return nil, err
			}
			if c != nil {
				p.note = "Cause " + strconv.FormatInt(c.ID, 10) + " is: " + brief(x.text(c.Text)) + ".\n" + p.note
			}
		}
		return p, nil
	}
}

// planOne returns the plan of a deed on a job in one of the states, without what it does.
func (x *request) planOne(id errand.ID, about []errand.State, past string) (*plan, error) {
	info, err := x.b.q.Job(x.Context(), id)
	p := &plan{n: 1, job: id, at: "job/" + id.String()}
	switch {
	case errors.Is(err, errand.ErrNotFound):
		return &plan{idle: "There is no job " + id.String() + ". It may have ended and been deleted since.", at: "jobs"}, nil
	case err != nil:
		return nil, err
	case !slices.Contains(about, info.State):
		p.idle = fmt.Sprintf("The job is %s. Only jobs that are %s can be %s.", info.State, strings.ReplaceAll(words(about), ", ", " or "), past)
		return p, nil
	}
	p.text = fmt.Sprintf("job %s (%s in %s, %s)", id, info.Kind, info.Queue, info.State)
	p.jobs, p.facts = []errand.JobInfo{info}, x.jobFacts(&info)
	if info.State == errand.Dead && past != deleteVerb.past && info.Group != "" {
		b, err := x.behind(info.Queue, info.Group)
		if err == nil && b != nil && b.Head.ID == id {
			p.goOn = "If it succeeds, " + b.others() + " of its group “" + info.Group + "” " + goes(int64(len(b.Jobs))) + " on."
		}
		if err != nil && !errors.Is(err, errand.ErrNotFound) { // it has moved on
			return nil, err
		}
	}
	return p, nil
}

// others says how many jobs wait, as 19 others.
func (b *jobsBehind) others() string {
	if b.More {
		return b.N() + " others"
	}
	return plural(int64(len(b.Jobs)), "other")
}

// countFor is how long jobs are counted. What is left of readFor is for the rest of the page.
const countFor = readFor / 2

// mostCounted is how many jobs a bulk job counts that takes those that had ended before a time.
// Larger redrives take what was dead when they began, so that they can say how long they take.
const mostCounted = 10_000

// countLook is how many jobs are looked for at most to say how many there are. The numbers of
// queues, kinds and states are kept, and cost no look.
const countLook = 250

// inEach says how many of all jobs that a bulk job takes are in each state, as 180 scheduled, none
// running. It is empty if that is not known.
func (x *request) inEach(ctx context.Context, b errand.Bulk, all int64) string {
	states := b.Filter.States
	if len(states) == 0 {
		states = b.Do.States()
	}
	if len(states) == 1 || len(b.Filter.IDs) > 0 {
		return ""
	}
	var said []string
	b.Filter.All = false
	for _, s := range states {
		b.Filter.States = []errand.State{s}
		dry, err := x.b.q.StartBulk(ctx, b)
		if err != nil || dry.More { // what it comes to is not known, and the sum is
			return ""
		}
		switch all -= dry.Total; {
		case dry.Total > 0:
			said = append(said, count(dry.Total)+" "+string(s))
		case s == errand.Running:
			said = append(said, "none "+string(s))
		}
	}
	if all != 0 { // some have moved on meanwhile
		return ""
	}
	return strings.Join(said, ", ")
}

// planMany returns the plan of a bulk job.
func (x *request) planMany(f url.Values, b errand.Bulk, of which, past string) (*plan, error) {
	about := b.Do.States()
	if len(b.Filter.States) > 1 && !slices.ContainsFunc(about, func(s errand.State) bool { return !slices.Contains(b.Filter.States, s) }) {
		of.before = "" // it takes no others
		of.after = cmp.Or(of.after, "of all queues")
	}
	rate := input{Name: "rate", Label: "Jobs a second", Value: strings.TrimSpace(f.Get("rate")), Hint: "a whole number up to 100,000; as many as the rest of the work allows, if empty or 0"}
	if rate.Value != "" {
		var err error
		if b.Rate, err = strconv.Atoi(rate.Value); err != nil || b.Rate < 0 || b.Rate > 100_000 {
			rate.Err, b.Rate = "rate "+strconv.Quote(rate.Value)+": must be a whole number from 0 to 100,000", 0
		}
	}
	for _, s := range b.Filter.States {
		if !slices.Contains(about, s) {
			return nil, &refusal{status: http.StatusBadRequest, text: fmt.Sprintf("Jobs that are %s cannot be %s.", s, past),
				remedy: "Only jobs that are " + strings.ReplaceAll(words(about), ", ", " or ") + " can: choose these states alone, or none."}
		}
	}
	b.By, b.DryRun, b.Look = x.by(), true, countLook
	p := &plan{inputs: []input{rate}, at: "jobs", jobs: []errand.JobInfo{}, bulk: true}
	if ids := b.Filter.IDs; len(ids) > 0 {
		left, err := x.inStates(&b.Filter, about)
		switch {
		case err != nil:
			return nil, err
		case len(b.Filter.IDs) == 0:
			p.idle = fmt.Sprintf("None of the %s is %s any more.", plural(int64(len(ids)), "marked job"), strings.ReplaceAll(words(about), ", ", " or "))
			return p, nil
		case left > 0:
			p.note = plural(int64(left), "marked job") + " cannot be " + past + ", and will be left as it is."
			if left > 1 {
				p.note = plural(int64(left), "marked job") + " cannot be " + past + ", and will be left as they are."
			}
		}
	}
	counting, stop := withTimeout(x.Context(), countFor)
	defer stop()
	dry, err := x.b.q.StartBulk(counting, b)
	late := errors.Is(err, context.DeadlineExceeded) && x.Context().Err() == nil // no index serves the filter
	if late {
		dry.More, err = true, nil
		p.note = "They could not be counted within " + took(countFor) + ", as each job has to be looked at."
	}
	if err != nil {
		return nil, err
	}
	if dry.Total == 0 && !dry.More {
		p.idle = "No " + of.jobs("job") + " can be " + past + "."
		return p, nil
	}
	p.n, p.more, p.text = dry.Total, dry.More, of.n(dry.Total)
	switch {
	case late:
	case dry.More && dry.Total == 0:
		p.note += " How many there are is not known: none was among the jobs looked at first."
	case dry.More:
		p.note += " There are at least " + count(dry.Total) + "; the others were not counted."
	}
	if !dry.More {
		if each := x.inEach(counting, b, dry.Total); each != "" {
			p.note = strings.TrimSpace("By state: " + each + ". " + p.note)
		}
	}
	if dry.More {
		p.text, p.note = "all "+of.jobs("jobs"), strings.TrimSpace(p.note+" All that match will be taken.")
	}
	if len(dry.Sample) > 0 {
		page, err := x.b.q.Jobs(x.Context(), errand.JobFilter{IDs: dry.Sample}, &errand.ListOptions{Args: x.who.Role >= Operator})
		if err != nil {
			return nil, err
		}
		p.jobs = page.Jobs
	}
	if len(b.Filter.IDs) == 0 && !p.more && int(p.n) == len(p.jobs) {
		p.facts = x.shownFacts(p.jobs, f.Get("was"))
	}
	p.facts = append(p.facts, x.shownArgs(p.jobs)...)
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		b.DryRun = false
		if len(b.Filter.IDs) == 0 && (b.Do == errand.BulkDelete || b.Do == errand.BulkRedrive && p.n <= mostCounted) {
			endedBefore(&b.Filter, x.b.q.Clock().Now.Add(-time.Since(x.asked.at)))
		}
		info, err := q.StartBulk(ctx, b)
		if err != nil {
			return err
		}
		out.Told, out.At, out.bulk = "A bulk job was started for "+p.text, "bulk?id="+info.ID.String(), info.ID
		if b.Rate > 0 {
			out.Told += ", at most " + count(b.Rate) + " a second"
		}
		if out.Told += "."; info.Unserved {
			out.Told += " No worker ran that could do it, so it waited for one. The command errand bulk watch --serve does it too."
		}
		return nil
	}
	return p, nil
}

// shownFacts are what a deed on several jobs depends on if all of them are shown: none has come
// since, though some may have gone. If more jobs than can be shown were asked about, there are none.
func (x *request) shownFacts(jobs []errand.JobInfo, was string) []fact {
	ids := make([]string, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].ID.String()
	}
	value, v := strings.Join(ids, " "), x.b.readWas(was)
	old := v.Get("jobs")
	switch {
	case v != nil && old == "":
		return nil
	case !slices.ContainsFunc(ids, func(id string) bool { return !strings.Contains(old, id) }):
		value = old
	}
	return []fact{{"jobs", value, ""}}
}

// shownArgs are the args of the jobs that are shown. Those of jobs that were not shown before have not
// changed, see changed.
func (x *request) shownArgs(jobs []errand.JobInfo) (all []fact) {
	for i := range jobs {
		j := &jobs[i]
		all = append(all, fact{"args of " + j.ID.String(), x.b.argsWas(j.ID, j.Args), x.argsShown(j)})
	}
	return all
}

// endedBefore leaves in a filter those jobs that had ended before a time.
func endedBefore(in *errand.JobFilter, at time.Time) {
	if in.EndedBefore.IsZero() || at.Before(in.EndedBefore) {
		in.EndedBefore, in.All = at, false
	}
}

// inStates leaves in a filter the named jobs that are in one of the states, and returns how many
// others there were.
func (x *request) inStates(in *errand.JobFilter, states []errand.State) (left int, err error) {
	var ids []errand.ID
	for some := range slices.Chunk(in.IDs, 1000) {
		page, err := x.b.q.Jobs(x.Context(), errand.JobFilter{IDs: some}, &errand.ListOptions{Limit: 1000})
		if err != nil {
			return 0, err
		}
		for i := range page.Jobs {
			if j := &page.Jobs[i]; slices.Contains(states, j.State) {
				ids = append(ids, j.ID)
			}
		}
	}
	left, in.IDs = len(in.IDs)-len(ids), ids
	return left, nil
}
