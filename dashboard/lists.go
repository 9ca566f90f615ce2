package dashboard

import (
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/errandq/errand"
)

// pageOf reads which page of a list is asked for: the first if none is, and the last if the list
// has become shorter.
func pageOf(s string, last int) (int, error) {
	if s == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, &errand.FieldError{Field: "page", Value: s, Limit: "must be a number from 1 on"}
	}
	return min(n, last), nil
}

// missing returns the error of a page about something that is not there.
func missing(err error, what, remedy string) error {
	if errors.Is(err, errand.ErrNotFound) {
		return &refusal{status: http.StatusNotFound, text: "There is no " + what + ".", remedy: remedy, cause: err}
	}
	return err
}

// causesData is what the page of the dead letters shows.
type causesData struct {
	errand.Lane
	Causes  []errand.Cause
	Jobs    int64 // of Causes
	Dead    int64 // of the queues and kinds that the page is about
	Cut     bool  // there may be further causes
	Evicted int64
	Queues  []deadIn // those with the most dead, if no queue is chosen
}

// deadIn is how many jobs are dead in a queue.
type deadIn struct {
	Queue string
	N     int64
}

// causeOf returns the cause that a filter names, nil if no job is dead of it.
func (x *request) causeOf(in *errand.JobFilter) (*errand.Cause, error) {
	all, err := x.b.q.DeadLetters().Causes(x.Context(), &errand.CauseOptions{Lane: errand.Lane{Queue: in.Queue, Kind: in.Kind}, Limit: 10_000})
	i := slices.IndexFunc(all, func(c errand.Cause) bool { return c.ID == in.Cause })
	if err != nil || i < 0 {
		return nil, err
	}
	return &all[i], nil
}

// causesLimit is how many causes the page shows.
const causesLimit = 200

func causes(x *request) (*content, error) {
	v := x.URL.Query()
	d := &causesData{Lane: errand.Lane{Queue: v.Get("queue"), Kind: v.Get("kind")}}
	var err error
	if d.Causes, err = x.b.q.DeadLetters().Causes(x.Context(), &errand.CauseOptions{Lane: d.Lane, Limit: causesLimit, Hours: true}); err != nil {
		return nil, err
	}
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	in := map[string]int64{}
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		if (d.Queue == "" || s.Queue == d.Queue) && (d.Kind == "" || s.Kind == d.Kind) {
			d.Dead += s.Dead
			in[s.Queue] += s.Dead
			d.Evicted += s.DeadEvicted
		}
	}
	for _, queue := range sortedKeys(in) {
		if d.Queue == "" && in[queue] > 0 {
			d.Queues = append(d.Queues, deadIn{queue, in[queue]})
		}
	}
	slices.SortStableFunc(d.Queues, func(a, b deadIn) int { return cmp.Compare(b.N, a.N) })
	d.Queues, _ = first(d.Queues, ofLanes)
	for i := range d.Causes {
		d.Jobs += d.Causes[i].N
	}
	d.Cut = len(d.Causes) == causesLimit
	if len(d.Causes) > 0 {
		x.tillHour()
	}
	return &content{data: d, json: map[string]any{"causes": append([]errand.Cause{}, d.Causes...)}}, nil
}

// groupsData is what the page of the groups shows.
type groupsData struct {
	Groups  []errand.BlockedGroup
	Next    string
	Query   template.URL
	Queue   string
	Waiting bool
	First   bool
}

func groups(x *request) (*content, error) {
	v := x.URL.Query()
	d := &groupsData{Queue: v.Get("queue"), Waiting: v.Get("waiting") != "", First: v.Get("after") == ""}
	page, err := x.b.q.Groups(x.Context(), &errand.GroupOptions{Queue: d.Queue, Waiting: d.Waiting, Limit: jobsLimit, After: v.Get("after")})
	if err != nil {
		return nil, err
	}
	x.settled()
	d.Groups, d.Next, d.Query = page.Groups, page.Next, encoded(v)
	return &content{data: d, json: page}, nil
}

// schedulesData is what the list of schedules shows.
type schedulesData struct {
	Schedules []errand.ScheduleInfo
	Search    string
	Broken    string // why some of them cannot be read in full
	pager
}

func schedules(x *request) (*content, error) {
	v := x.URL.Query()
	d := &schedulesData{Search: strings.TrimSpace(v.Get("search"))}
	all, err := x.b.q.Schedules().List(x.Context())
	switch {
	case errors.Is(err, errand.ErrUnsupportedDB):
		d.Broken = "This store keeps no schedules."
	case err != nil && len(all) > 0:
		d.Broken = messageOf(err)
	case err != nil:
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s errand.ScheduleInfo) bool {
		return !strings.Contains(s.Name, d.Search) && !strings.Contains(s.Kind, d.Search)
	})
	if d.Schedules, d.pager, err = paged(v, all); err != nil {
		return nil, err
	}
	out := []errand.ScheduleInfo{}
	x.settled()
	for _, s := range d.Schedules {
		if len(s.Next) > 0 {
			x.tillClock(s.Next[0])
		}
		var err error
		if s.Args, _, err = x.rawArgs(s.Kind, s.Args); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return &content{data: d, json: d.json(map[string]any{"schedules": out})}, nil
}

// scheduleData is what the page of a schedule shows.
type scheduleData struct {
	errand.ScheduleInfo
	Queue    string
	Viewer   bool // who may not see args
	ArgsText string
	ArgsNote string // why all values of the args are hidden
	Headers  [][2]string
	History  []errand.Tick
}

func schedule(x *request) (*content, error) {
	name := x.URL.Query().Get("name")
	info, err := x.b.q.Schedules().Get(x.Context(), name)
	if err != nil {
		return nil, missing(err, "schedule of this name", "A program may have removed it. The page Schedules has those that there are.")
	}
	d := &scheduleData{ScheduleInfo: info, Viewer: x.who.Role < Operator, Queue: info.Options.Queue}
	if d.ArgsText, d.ArgsNote, err = x.args(info.Kind, info.Args); err != nil {
		return nil, err
	}
	if d.History, err = x.b.q.Schedules().History(x.Context(), name); err != nil {
		return nil, missing(err, "schedule of this name", "It was removed just now.")
	}
	if x.who.Role >= Operator {
		for _, name := range sortedKeys(info.Options.Headers) {
			d.Headers = append(d.Headers, [2]string{name, x.headerValue(name, info.Options.Headers[name])})
		}
	}
	if info.Args, _, err = x.rawArgs(info.Kind, info.Args); err != nil {
		return nil, err
	}
	if x.settled(); len(info.Next) > 0 {
		x.tillClock(info.Next[0])
	}
	return &content{title: "Schedule " + name, data: d, json: joined{Of: info, More: map[string]any{"history": append([]errand.Tick{}, d.History...)}}}, nil
}

// workersData is what the page of the workers shows.
type workersData struct {
	Workers []errand.WorkerInfo
	Unshown bool
	Limits  []laneWorker
	More    bool // limits that are not shown
	Running []runningJob
	pager
}

// runningJob is a job that says how far it has got.
type runningJob struct {
	Instance string
	errand.JobProgress
}

func workers(x *request) (*content, error) {
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	d := &workersData{Unshown: l.unshown}
	if d.Workers, d.pager, err = paged(x.URL.Query(), l.workers); err != nil {
		return nil, err
	}
	for i := range d.Workers {
		w := &d.Workers[i]
		for j := range w.Limits {
			if limit := &w.Limits[j]; len(d.Limits) < causesLimit {
				d.Limits = append(d.Limits, laneWorker{w.Instance, laneText(errand.Lane{Queue: limit.Queue, Kind: limit.Kind}), *limit})
			} else {
				d.More = true
			}
		}
		for _, p := range w.Progress[:min(len(w.Progress), causesLimit-min(causesLimit, len(d.Running)))] {
			d.Running = append(d.Running, runningJob{w.Instance, p})
		}
	}
	return &content{data: d, json: d.json(map[string]any{"workers": append([]errand.WorkerInfo{}, d.Workers...)})}, nil
}
