package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/errandq/errand"
)

// ofSchedule returns the plan of a deed on a schedule: do, or a run now if that is nil.
func ofSchedule(done string, do func(*errand.Schedules, context.Context, string) error) func(*request, url.Values) (*plan, error) {
	return func(x *request, f url.Values) (*plan, error) {
		name := f.Get("name")
		info, err := x.b.q.Schedules().Get(x.Context(), name)
		p := &plan{text: "the schedule " + name, at: "schedule" + string(query("name", name))}
		switch {
		case errors.Is(err, errand.ErrNotFound):
			p.idle, p.at = "There is no schedule "+name+" any more.", "schedules"
			return p, nil
		case err != nil:
			return nil, err
		case do != nil && info.Paused == (done == "paused"):
			p.idle = "The schedule " + name + " is " + done + " already."
			return p, nil
		}
		p.text += " (" + info.Spec + " " + info.Zone + ", " + info.Kind + ")"
		p.facts = scheduleFacts(x.b, &info)
		p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
			if do != nil {
				err := do(q.Schedules(), ctx, name)
				if err == nil {
					out.Told = "The schedule " + name + " is " + done + "."
				}
				return err
			}
			e, err := q.Schedules().Run(ctx, name)
			switch {
			case err != nil:
				return err
			case e.Duplicate:
				out.At, out.job = "job/"+e.ID.String(), e.ID
				return declined("Job %v holds the unique key of the schedule's jobs.", e.ID)
			}
			out.Told, out.At, out.job, out.n = "Job "+e.ID.String()+" is enqueued.", "job/"+e.ID.String(), e.ID, 1
			return nil
		}
		return p, nil
	}
}

// stop returns the plan of the end of a bulk job.
func stop(x *request, f url.Values) (*plan, error) {
	id, err := errand.ParseID(f.Get("id"))
	if err != nil {
		return nil, err
	}
	all, err := x.b.q.Bulks(x.Context(), id)
	if err != nil {
		return nil, err
	}
	p := &plan{at: "bulk?id=" + id.String(), job: id}
	switch {
	case len(all) == 0:
		p.idle, p.at = "There is no bulk job "+id.String()+" any more.", "bulk"
	case !all[0].EndedAt.IsZero():
		p.idle = "The bulk job has ended: it is " + string(all[0].State) + "."
	default:
		b := &all[0]
		p.text = fmt.Sprintf("bulk job %s (%s, %s changed so far)", id, b.Do, plural(b.Changed, "job"))
		p.note = "What it has done stays done."
		p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error { return cancelVerb.do(ctx, q, id, out) }
	}
	return p, nil
}
