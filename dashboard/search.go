package dashboard

import (
	"errors"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/argfilter"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// hit is something that a search has found.
type hit struct {
	What string `json:"what"` // queue, kind, schedule, ...
	Name string `json:"name"`
	Note string `json:"note,omitempty"`
	At   string `json:"at"` // its page
	// Deeds are the buttons of what can be done to all jobs of a tag or a group.
	Deeds []button `json:"-"`
}

// searchData is what a search shows.
type searchData struct {
	Text string
	Hits []hit
	More []string   // what has more than is shown
	Rows []withArgs // the jobs of Hits
	Dead bool       // of groups they are the dead ones
	jobs []errand.ID
	// Behind are the jobs of groups that wait behind dead ones, by these.
	Behind map[errand.ID]*jobsBehind
	// Arg is the condition on args that the text is, empty if it is none or who asks may see no args.
	Arg  string
	Jobs *sought      // how far jobs with it were looked for; nil: not at all, as a name has the text
	Rest template.URL // the list of jobs, where that goes on; empty: at its beginning
}

const (
	// mostHits is how many of a kind of thing a search shows, and mostLooked how many of them
	// it reads of the store.
	mostHits   = 20
	mostLooked = 1000
)

func search(x *request) (*content, error) {
	d := &searchData{Text: strings.TrimSpace(x.URL.Query().Get("q"))}
	if d.Text == "" {
		return &content{data: d, json: map[string]any{"hits": []hit{}}}, nil
	}
	if id, err := errand.ParseID(strings.ToLower(d.Text)); err == nil {
		return &content{to: "job/" + id.String(), json: map[string]any{"hits": []hit{{What: "job", Name: id.String(), At: "job/" + id.String()}}}}, nil
	}
	for _, find := range []func(*request, *searchData) error{findJobs, findLanes, findTag, findGroups, findSchedules, findTopics, findEndpoints} {
		if err := find(x, d); err != nil && !errors.Is(err, errand.ErrUnsupportedDB) {
			return nil, err
		}
	}
	if err := findArgs(x, d); err != nil {
		return nil, err
	}
	if len(d.jobs) > 0 {
		page, err := x.b.q.Jobs(x.Context(), errand.JobFilter{IDs: d.jobs}, &errand.ListOptions{Args: x.who.Role >= Operator, MaxArgs: argfilter.Large})
		if err != nil {
			return nil, err
		}
		d.Rows = x.withArgs(page.Jobs)
	}
	c := &content{title: "Search", data: d}
	out := map[string]any{"hits": append([]hit{}, d.Hits...), "more": d.More}
	if d.Jobs != nil {
		c.still, out["looked"], out["partial"] = true, d.Jobs.Looked, !d.Jobs.Over
	}
	c.json = out
	return c, nil
}

// Names returns the hits that are no jobs.
func (d *searchData) Names() []hit {
	return slices.DeleteFunc(slices.Clone(d.Hits), func(h hit) bool { return h.What == "job" })
}

// add adds hits up to mostHits of a kind of thing.
func (d *searchData) add(what, name, note, at string, deeds ...button) {
	n := 0
	for i := range d.Hits {
		if d.Hits[i].What == what {
			n++
		}
	}
	if n < mostHits {
		d.Hits = append(d.Hits, hit{what, name, note, at, deeds})
	} else if len(d.More) == 0 || d.More[len(d.More)-1] != what {
		d.More = append(d.More, what)
	}
}

// has reports whether a name contains what is searched for, in any ASCII case.
func (d *searchData) has(name string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(d.Text))
}

// findJobs finds jobs by the beginning of their IDs. The first twelve digits are the time.
func findJobs(x *request, d *searchData) error {
	const timed, least = 12, 8
	begin := strings.ToLower(d.Text)
	digits := strings.ReplaceAll(begin, "-", "")
	if len(digits) < least || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil
	}
	head := digits[:min(len(digits), timed)]
	from, _ := strconv.ParseInt(head+strings.Repeat("0", timed-len(head)), 16, 64) // no more than digits
	before := from + 1<<(4*(timed-len(head)))
	page, err := x.b.q.Jobs(x.Context(), errand.JobFilter{CreatedFrom: time.UnixMilli(from), CreatedBefore: time.UnixMilli(before)}, &errand.ListOptions{Limit: mostLooked})
	if errors.Is(err, errand.ErrInvalid) { // a time that no job can have
		return nil
	}
	for i := range page.Jobs {
		j := &page.Jobs[i]
		if id := j.ID.String(); strings.HasPrefix(id, begin) || strings.HasPrefix(strings.ReplaceAll(id, "-", ""), digits) {
			d.addJob(j)
		}
	}
	return err
}

// argOf returns the value of args that a text looks for, unless it is too long for one.
func argOf(text string) (arg argfilter.Arg, ok bool) {
	arg, err := argfilter.Parse(text)
	if err != nil {
		arg, err = argfilter.Parse("=" + text)
	}
	return arg, err == nil
}

// findArgs finds jobs by a value in their args, as the list of jobs does, if nothing has a name with
// the text. What is no condition is a value.
func findArgs(x *request, d *searchData) error {
	if x.who.Role < Operator {
		return nil
	}
	arg, ok := argOf(d.Text)
	if !ok {
		return nil
	}
	if d.Arg = arg.String(); len(d.Hits) > 0 {
		return nil
	}
	page, err := x.matching(jobsFilter{Args: []argfilter.Arg{arg}}, errand.JobFilter{}, "")
	if err != nil {
		return err
	}
	l, err := x.look()
	if err != nil {
		return err
	}
	s := soughtBy(&errand.JobFilter{}, l, &page, nil)
	if d.Jobs = &s; !s.Over && s.Found <= mostHits {
		d.Rest = query("arg", d.Arg, "after", page.Next) + s.On
	}
	for i := range page.Jobs {
		d.addJob(&page.Jobs[i])
	}
	return nil
}

func (d *searchData) addJob(j *errand.JobInfo) {
	id := j.ID.String()
	if slices.Contains(d.jobs, j.ID) { // also found by the beginning of its ID
		return
	}
	if d.add("job", id, string(j.State)+" "+j.Kind+" in "+j.Queue, "job/"+id); len(d.jobs) < mostHits {
		d.jobs = append(d.jobs, j.ID)
	}
}

func findLanes(x *request, d *searchData) error {
	l, err := x.look()
	if err != nil {
		return err
	}
	queues, kinds := map[string]bool{}, map[string]bool{}
	for i := range l.lanes {
		t := &l.lanes[i]
		if d.has(t.Queue) {
			queues[t.Queue] = true
		}
		if d.has(t.Kind) {
			kinds[t.Kind] = true
		}
	}
	for _, name := range sortedKeys(queues) {
		d.add("queue", name, "", "lane"+string(query("queue", name)))
	}
	for _, name := range sortedKeys(kinds) {
		d.add("kind", name, "", "lane"+string(query("kind", name)))
	}
	return nil
}

// addJobs adds a tag or a group with its deeds, if any of its jobs wait, or are dead.
func (d *searchData) addJobs(what, note string, of jobsFilter, waits, dead bool) {
	list := jobsData{Filter: of, Fields: pairs("queue", of.Queue, "group", of.Group, "tag", of.Tag)}
	var deeds []button
	if waits {
		deeds = list.offer(deeds, "cancel", "that wait", waiters(errand.BulkCancel.States()))
	}
	if dead {
		deeds = list.offer(deeds, "redrive", "", errand.BulkRedrive.States())
	}
	name := of.Group + of.Tag
	for i := range deeds {
		deeds[i].About = strings.TrimSpace("of the " + what + " " + name + " " + note)
	}
	d.add(what, name, note, "jobs"+string(query("queue", of.Queue, "group", of.Group, "tag", of.Tag)), deeds...)
}

// findTag finds jobs that have exactly this tag, as an index does.
func findTag(x *request, d *searchData) error {
	var is [3]bool // jobs with it, some that wait, some that are dead
	for i, states := range [][]errand.State{nil, waiters(errand.BulkCancel.States()), errand.BulkRedrive.States()} {
		page, err := x.b.q.Jobs(x.Context(), errand.JobFilter{Tag: d.Text, States: states}, &errand.ListOptions{Limit: 1})
		if errors.Is(err, errand.ErrInvalid) { // no tag looks so
			return nil
		}
		if is[i] = len(page.Jobs) > 0 || page.Partial; err != nil || !is[i] && i == 0 {
			return err
		}
	}
	d.addJobs("tag", "", jobsFilter{Tag: d.Text}, is[1], is[2])
	return nil
}

// findGroups looks at the first groups in which jobs wait, and for a group of exactly this name in the first
// queues with dead jobs. It finds the dead jobs of these groups too.
func findGroups(x *request, d *searchData) error {
	page, err := x.b.q.Groups(x.Context(), &errand.GroupOptions{Waiting: true, Limit: 200})
	if err != nil {
		return err
	}
	l, err := x.look()
	if err != nil {
		return err
	}
	seen := map[[2]string]bool{} // groups, as queue and name
	d.Behind = map[errand.ID]*jobsBehind{}
	find := func(queue, group string, head errand.ID, waits bool) error {
		if seen[[2]string{queue, group}] || len(seen) == 2*mostHits {
			return nil
		}
		seen[[2]string{queue, group}] = true
		dead, err := x.b.q.DeadLetters().List(x.Context(), errand.JobFilter{Queue: queue, Group: group}, &errand.ListOptions{Limit: mostHits})
		if errors.Is(err, errand.ErrInvalid) { // no group looks so
			return nil
		}
		if waits || len(dead.Jobs) > 0 {
			d.addJobs("group", "in "+queue, jobsFilter{Queue: queue, Group: group}, waits, len(dead.Jobs) > 0)
		}
		d.Dead = d.Dead || len(dead.Jobs) > 0
		for i := range dead.Jobs {
			d.addJob(&dead.Jobs[i])
		}
		if err == nil && slices.Contains(d.jobs, head) { // it is dead, and shown
			b := &jobsBehind{}
			if b.Jobs, b.More, err = waitBehind(x.Context(), x.b.q, queue, group, head, countLook); len(b.Jobs) > 0 {
				d.Behind[head] = b
			}
		}
		return err
	}
	for i := range page.Groups {
		if g := &page.Groups[i]; err == nil && d.has(g.Group) {
			err = find(g.Queue, g.Group, g.Head, true)
		}
	}
	for i := range l.lanes {
		if s := &l.lanes[i].Stats; err == nil && s.Dead > 0 {
			err = find(s.Queue, d.Text, errand.ID{}, false)
		}
	}
	return err
}

func findSchedules(x *request, d *searchData) error {
	all, err := x.b.q.Schedules().List(x.Context())
	for i := range all {
		if s := &all[i]; d.has(s.Name) || d.has(s.Kind) {
			d.add("schedule", s.Name, s.Kind, "schedule"+string(query("name", s.Name)))
		}
	}
	if len(all) > 0 {
		return nil // one of them cannot be read here
	}
	return err
}

// findTopics finds the topics whose names begin so, and looks at the first subscriptions.
func findTopics(x *request, d *searchData) error {
	return x.topics(func(t *topic.Topics) error {
		named, err := t.Topic(x.Context(), d.Text)
		if err == nil {
			d.add("topic", named.Name, "", "topic"+string(query("name", named.Name)))
		} else if !errors.Is(err, errand.ErrNotFound) && !errors.Is(err, errand.ErrInvalid) {
			return err
		}
		after, err := t.Topics(x.Context(), d.Text, mostHits)
		if err != nil && !errors.Is(err, errand.ErrInvalid) {
			return err
		}
		for i := range after {
			if strings.HasPrefix(after[i].Name, d.Text) {
				d.add("topic", after[i].Name, "", "topic"+string(query("name", after[i].Name)))
			}
		}
		subs, err := t.Subscriptions(x.Context(), "", "", mostLooked)
		for i := range subs {
			if s := &subs[i]; d.has(s.ID) || d.has(s.Topic) {
				d.add("subscription", s.ID, "of "+s.Topic, "subscription"+string(query("id", s.ID)))
			}
		}
		return err
	})
}

func findEndpoints(x *request, d *searchData) error {
	return x.hooks(func(h *webhook.Webhooks) error {
		all, err := h.Endpoints(x.Context(), "", mostLooked)
		for i := range all {
			if e := &all[i]; d.has(e.ID) || d.has(e.PublicURL()) || d.has(e.Description) {
				d.add("endpoint", e.ID, e.PublicURL(), "endpoint"+string(query("id", e.ID)))
			}
		}
		return err
	})
}
