package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/errandq/errand"
)

const (
	// mostHeads is how many dead heads are acted on at a time.
	mostHeads = 1000
	// mostHeadPages is on how many pages of groups they are looked for.
	mostHeadPages = 10
	// mostBehind is how many jobs behind a head are counted.
	mostBehind = 1000
)

// behindDead returns a trouble for a queue in which jobs wait behind dead ones.
func (l *look) behindDead(r *errand.HealthReason) trouble {
	least := ""
	if r.More {
		least = "at least "
	}
	t := trouble{
		What: conditions[r.Code], Lane: errand.Lane{Queue: r.Queue}, Since: r.Since, Jobs: r.Jobs, Least: r.More, Heads: r.Queue != "", Groups: r.Groups,
		Why:  "They wait in " + least + plural(r.Groups, "group") + " whose first job is dead, until somebody redrives or skips that job.",
		Help: "An operator may redrive or skip the dead jobs.", See: "groups" + string(query("queue", r.Queue)), SeeText: "the " + plural(r.Groups, "group"),
	}
	if r.Groups == 0 { // more queues may have some
		t.Why, t.Help, t.SeeText = r.Text, "", "the groups"
	}
	if i := slices.IndexFunc(l.causes, func(c errand.Cause) bool { return c.Queue == r.Queue }); i >= 0 { // the largest is first
		t.Cause = &l.causes[i]
	}
	return t
}

// waitBehind returns the jobs of a group that wait behind its dead head, the last one first, at most
// so many, and whether there may be more. Those before it, which were redriven, wait for others.
func waitBehind(ctx context.Context, q *errand.Queue, queue, group string, head errand.ID, most int) (jobs []errand.JobInfo, more bool, err error) {
	page, err := q.Jobs(ctx, errand.JobFilter{Queue: queue, Group: group, States: []errand.State{errand.Blocked}}, &errand.ListOptions{Limit: most})
	n := 0
	for n < len(page.Jobs) && page.Jobs[n].ID.Key() > head.Key() {
		n++
	}
	return page.Jobs[:n], n == most && page.Next != "", err
}

// heads returns the groups of a queue in which jobs wait behind a dead one. left says that there
// are others.
func heads(ctx context.Context, q *errand.Queue, queue string) (all []errand.BlockedGroup, left bool, err error) {
	o := errand.GroupOptions{Queue: queue, Limit: mostHeads}
	for range mostHeadPages {
		page, err := q.Groups(ctx, &o)
		if err != nil {
			return nil, false, err
		}
		for _, g := range page.Groups {
			if g.Blocked == 0 {
				continue
			}
			if jobs, _, err := waitBehind(ctx, q, queue, g.Group, g.Head, 1); err != nil {
				return nil, false, err
			} else if len(jobs) == 0 {
				continue
			}
			if len(all) == mostHeads {
				return all, true, nil
			}
			all = append(all, g)
		}
		if o.After = page.Next; o.After == "" {
			return all, false, nil
		}
	}
	return all, true, nil
}

// noHeads is the plan if no job waits behind a dead one, among the groups that were looked at.
func noHeads(queue string, left bool) *plan {
	idle := "No job of " + queue + " waits behind a dead one of its group."
	if left {
		idle = "Nobody waits in the first " + count(mostHeads*mostHeadPages) + " groups of " + queue + " that have a dead job. Redrive or skip the others one by one."
	}
	return &plan{idle: idle, at: "groups" + string(query("queue", queue))}
}

const headsLeft = " There are more: these are the first, act again for the rest."

// redriveHeads redrives the dead jobs of a queue that others wait for.
func redriveHeads(x *request, f url.Values) (*plan, error) {
	queue := f.Get("queue")
	all, left, err := heads(x.Context(), x.b.q, queue)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return noHeads(queue, left), nil
	}
	b := errand.Bulk{Do: errand.BulkRedrive}
	for _, g := range all {
		b.Filter.IDs = append(b.Filter.IDs, g.Head)
	}
	p, err := x.planMany(f, b, which{after: "in " + queue + " that others of their groups wait for"}, redriveVerb.past)
	if err == nil && p.idle == "" {
		if !p.more && int(p.n) == len(p.jobs) { // they are looked for anew
			p.facts = append(p.facts, x.shownFacts(p.jobs, f.Get("was"))...)
		}
		p.note = "Each runs again before all others of its group, with all its retries anew. " + p.note
		if left {
			p.note += headsLeft
		}
	}
	return p, err
}

// skipHeads lets the groups of a queue go on without the dead jobs that they wait for.
func skipHeads(x *request, f url.Values) (*plan, error) {
	queue := f.Get("queue")
	all, left, err := heads(x.Context(), x.b.q, queue)
	if err != nil {
		return nil, err
	}
	p := noHeads(queue, left)
	if len(all) == 0 {
		return p, nil
	}
	p.idle, p.n = "", int64(len(all))
	p.text = plural(p.n, "dead job") + " in " + queue + " that others of their groups wait for"
	if p.note = "Each stays dead. The others of its group go on without it."; left {
		p.note += headsLeft
	}
	some := errand.JobFilter{}
	for _, g := range all[:min(len(all), 10)] {
		some.IDs = append(some.IDs, g.Head)
	}
	page, err := x.b.q.Jobs(x.Context(), some, &errand.ListOptions{Args: true})
	if err != nil {
		return nil, err
	}
	if p.jobs = page.Jobs; int(p.n) == len(p.jobs) {
		p.facts = x.shownFacts(p.jobs, f.Get("was"))
	}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		out.n = 0
		for _, g := range all {
			_, err := q.SkipHead(ctx, queue, g.Group)
			switch {
			case errors.Is(err, errand.ErrNotFound): // somebody else was faster
				continue
			case err != nil && out.n > 0:
				out.Told = fmt.Sprintf("%s, of %s, %s on.", plural(out.n, "group"), count(p.n), goes(out.n))
			}
			if err != nil {
				return err
			}
			out.n++
		}
		if out.n == 0 {
			return declined("None of these groups waits behind a dead job any more.")
		}
		out.Told = plural(out.n, "group") + " " + goes(out.n) + " on."
		return nil
	}
	return p, nil
}

func goes(n int64) string {
	if n == 1 {
		return "goes"
	}
	return "go"
}
