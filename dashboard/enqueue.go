package dashboard

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/indent"
)

// enqueueForm returns the form of a new job.
func (x *request) enqueueForm() (*form, error) {
	kinds, queues, err := x.known()
	if err != nil {
		return nil, err
	}
	return &form{
		Title: "Enqueue a job", Do: "enqueue", Button: "Enqueue", At: "jobs",
		Inputs: []input{
			{Name: "kind", Label: "Kind", List: kinds, Hint: "default options that its type may have do not count here"},
			{Name: "args", Label: "Args", Value: "{}", Area: true, Hint: "JSON, as the handler of the kind reads it"},
			{Name: "queue", Label: "Queue", List: queues, Hint: "default, if empty"},
			{Name: "delay", Label: "Delay", Hint: "as 30s or 2h; due at once, if empty"},
			{Name: "priority", Label: "Priority", Hint: "-100 to 100; 0, if empty"},
			{Name: "group", Label: "Group", Hint: "the jobs of a group run one after the other"},
			{Name: "tags", Label: "Tags", Hint: "with spaces between"},
			{Name: "unique", Label: "Unique key", Hint: "nothing is added while another job of the kind has it"},
		},
	}, nil
}

// known returns the kinds and the queues that are known: of workers, and of jobs that are there.
func (x *request) known() (kinds, queues []string, err error) {
	l, err := x.look()
	if err != nil {
		return nil, nil, err
	}
	for i := range l.lanes {
		kinds, queues = append(kinds, l.lanes[i].Kind), append(queues, l.lanes[i].Queue)
	}
	for i := range l.workers {
		kinds = append(kinds, l.workers[i].Kinds...)
		for _, q := range l.workers[i].Queues {
			if !strings.HasSuffix(q, "*") {
				queues = append(queues, q)
			}
		}
	}
	const most = 500
	slices.Sort(kinds)
	slices.Sort(queues)
	kinds, queues = slices.Compact(kinds), slices.Compact(queues)
	own := func(name string) bool { return strings.HasPrefix(name, "errand.") }
	kinds, queues = slices.DeleteFunc(kinds, own), slices.DeleteFunc(queues, own)
	return kinds[:min(len(kinds), most)], queues[:min(len(queues), most)], nil
}

// enqueueNames are the fields of the form of a new job.
var enqueueNames = []string{"kind", "args", "queue", "delay", "priority", "group", "tags", "unique"}

// enqueue shows the form of a new job.
func enqueue(x *request) (*content, error) {
	if err := x.mayDo(deeds["enqueue"]); err != nil {
		return nil, err
	}
	m, err := x.enqueueForm()
	if err != nil {
		return nil, err
	}
	return m.filled(x.URL.Query(), nil), nil
}

func enqueueJob(x *request, f url.Values) (*plan, error) {
	m, err := x.enqueueForm()
	if err != nil {
		return nil, err
	}
	r := reader{f: f}
	kind := r.text("kind")
	if kind == "" {
		r.fault("kind", kind, "must name a kind")
	}
	args := r.args(kind)
	o := errand.JobOptions{Queue: r.text("queue"), Delay: r.duration("delay"), Priority: r.number("priority"), Group: r.text("group"), Tags: strings.Fields(f.Get("tags"))}
	if key := r.text("unique"); key != "" {
		o.Unique = &errand.Unique{Key: key}
	}
	if o.Priority < -100 || o.Priority > 100 {
		r.fault("priority", o.Priority, "must be between -100 and 100")
	}
	if o.Delay < 0 {
		r.fault("delay", o.Delay, "must not be negative")
	}
	if err := r.err(); err != nil {
		return &plan{page: x.again("enqueue", m, f, err)}, nil
	}
	queue := cmp.Or(o.Queue, "default")
	p := &plan{text: "a job of kind " + kind + " in queue " + queue, at: "jobs" + string(query("queue", queue, "kind", kind)), n: 0}
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	if !l.unshown && !l.served(queue, kind) {
		p.note = "No running worker takes this kind from this queue: the job will wait for one."
	}
	p.docs = [][2]string{{"Args", string(indent.JSON(args.JSON))}}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		e, err := q.Enqueue(ctx, args, &o)
		if err != nil {
			return err
		}
		out.job, out.At = e.ID, "job/"+e.ID.String()
		switch {
		case e.Gone:
			return declined("Job %v held the unique key, and was deleted since.", e.ID)
		case e.Duplicate:
			return declined("Job %v holds the unique key.", e.ID)
		}
		out.Told, out.n = "Job "+e.ID.String()+" is enqueued.", 1
		return nil
	}
	p.again = func(err error) *content { return x.again("enqueue", m, f, err) }
	return p, nil
}
