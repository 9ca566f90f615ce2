package errand

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// WorkerInfo is what a running worker shows of itself to all processes on the file.
// What changes all the time is shown once it has lasted for some seconds.
type WorkerInfo struct {
	// Instance names the process, as JobInfo.History does.
	Instance string `json:"instance"`
	// Unknown is true if the process lives and may have workers, but shows nothing that
	// can be read here. Of the other fields only Instance, Running and Places are set then.
	Unknown bool `json:"unknown,omitempty"`
	// Running is how many handlers run now in the process, of all its workers together. Those
	// that are being stopped do not count.
	Running int `json:"running"`
	// Places is the sum of the Concurrency of the workers of the process. Running may be more: some
	// attempts take no place, see [HandlerOptions].CountsFor.
	Places int `json:"places"`
	// Since is when the worker began to run.
	Since time.Time `json:"since"`
	// Stopping is true if the worker takes no more jobs.
	Stopping bool `json:"stopping,omitempty"`
	// Queues and Kinds are what the worker works for: all these kinds in all these queues and
	// prefixes, see [WorkerOptions].Queues.
	Queues []string `json:"queues"`
	Kinds  []string `json:"kinds"`
	// AllKinds are those of Queues of which the worker takes the jobs of all kinds, and not those
	// of Kinds, see [HandleQueue].
	AllKinds []string `json:"all_kinds,omitempty"`
	// Concurrency is how many jobs the worker runs at a time, and Full is true if it runs
	// that many.
	Concurrency int  `json:"concurrency"`
	Full        bool `json:"full,omitempty"`
	// Policy is the delivery policy of queues that have none of their own.
	Policy *policy.Topic `json:"policy,omitempty"`
	// Limits are the queues and kinds that have a setting of their own: first those of the
	// queues, in the order of Queues, then those of the kinds. After them come lanes that
	// open gently after they were closed for long, and keep jobs back.
	Limits []WorkerLimit `json:"limits,omitempty"`
	// Progress is how far the jobs of the worker have got, if they say so, see
	// [Job.Progress]: of about 250 jobs at most.
	Progress []JobProgress `json:"progress,omitempty"`
	// Secret is where the args of kinds have fields with the tag `errand:"secret"`, see [Args]:
	// paths of names in JSON with dots between, such as "card.number". A name of a list has
	// "[]" behind it, as in "items[].pin". "*" stands for any name of a map, and "**" for any
	// number of names, as a type contains itself. An empty path is all of the args: of a type
	// that marshals itself, or of one with too many such fields. "**" alone says that the
	// worker does not know the type, as with [HandleRaw]. Kinds without are left out.
	// It is nil if the worker is of a version that does not show it.
	Secret map[string][]string `json:"secret,omitempty"`
}

// WorkerLimit is what a worker shows of the limits of a queue or of a kind, or of a lane
// that opens gently.
type WorkerLimit struct {
	// Queue or Kind names whose limits these are; the other one is empty. A lane that opens
	// gently has both, and besides only Concurrency, Full and Until. Its Kind is "*" for all
	// kinds of one of AllKinds.
	Queue string `json:"queue,omitempty"`
	Kind  string `json:"kind,omitempty"`
	// Concurrency is how many of these jobs the worker runs at a time, and Full is true
	// if it does. If zero, only that of the worker counts.
	Concurrency int  `json:"concurrency,omitempty"`
	Full        bool `json:"full,omitempty"`
	// PerSecond is how many attempts start a second, and Throttled is true if jobs wait
	// for that. If zero, there is no throttle.
	PerSecond int  `json:"per_second,omitempty"`
	Throttled bool `json:"throttled,omitempty"`
	// Budget is true if there is a retry budget, and BudgetEmpty if it cannot pay for
	// a retry.
	Budget      bool `json:"budget,omitempty"`
	BudgetEmpty bool `json:"budget_empty,omitempty"`
	// GroupThrottled is true of a queue if jobs wait for its [GroupThrottle].
	GroupThrottled bool `json:"group_throttled,omitempty"`
	// BatchMin and BatchWait are Min and Wait of the [BatchOptions] of a kind, or of a queue with
	// a [HandleQueue]. If zero, no job waits for others.
	BatchMin  int           `json:"batch_min,omitempty"`
	BatchWait time.Duration `json:"batch_wait_s,omitempty"`
	// Gate is what the worker knows of the gate. It is nil if there is none.
	Gate *GateInfo `json:"gate,omitempty"`
	// Policy is the delivery policy of the queue or kind. If nil, it has none.
	Policy *policy.Topic `json:"policy,omitempty"`
	// Until is when the first job of a lane that opens gently starts. It is zero if one has
	// started.
	Until time.Time `json:"until,omitzero"`
}

// MarshalJSON writes durations in seconds.
func (n WorkerLimit) MarshalJSON() ([]byte, error) { return seconds.Marshal(n) }

// UnmarshalJSON reads what MarshalJSON writes, and what workers show of themselves in the
// file, where batch_wait is in nanoseconds.
func (n *WorkerLimit) UnmarshalJSON(data []byte) error {
	shown := struct {
		BatchWait *time.Duration `json:"batch_wait"`
	}{&n.BatchWait}
	return errors.Join(json.Unmarshal(data, &shown), seconds.Unmarshal(data, n))
}

// GateInfo is what a worker knows of a [Gate].
type GateInfo struct {
	Open bool `json:"open"`
	// Reason is why the gate is closed. If the reason changes all the time, this may be an
	// earlier one.
	Reason string `json:"reason,omitempty"`
	// Since is when the worker found it open or closed. It is zero if the worker has not
	// asked: it asks while jobs are due.
	Since time.Time `json:"since,omitzero"`
}

// Workers returns the workers that run on the file, of this and of other processes, by
// process. A change is seen about a second later. If the store shows nothing of other
// processes, [ErrUnsupportedDB] is returned.
func (q *Queue) Workers(ctx context.Context) (all []WorkerInfo, err error) {
	p, ok := q.store.(storage.Publisher)
	if !ok {
		return nil, fmt.Errorf("%w: store %T does not show what workers do", ErrUnsupportedDB, q.store)
	}
	docs, err := p.Published(ctx)
	if err != nil {
		return nil, err
	}
	loads := map[string]*WorkerInfo{} // two Queues of a process on the file have one name
	for _, d := range docs {
		load := cmp.Or(loads[d.Instance], &WorkerInfo{})
		loads[d.Instance] = load
		load.Running += d.Running
		var doc struct {
			Workers []WorkerInfo `json:"workers"`
		}
		if d.Doc == nil || json.Unmarshal(d.Doc, &doc) != nil { // another version may write what this one cannot read
			doc.Workers = []WorkerInfo{{Unknown: true}}
		}
		for _, w := range doc.Workers {
			w.Instance = d.Instance
			load.Places += w.Concurrency
			all = append(all, w)
		}
	}
	for i := range all {
		load := loads[all[i].Instance]
		all[i].Running, all[i].Places = load.Running, load.Places
	}
	return all, nil
}

// limits returns what limits a lane in w: the limits of the queue, those of the kind,
// and those of the lane itself.
func (w *WorkerInfo) limits(queue, kind string) (ofQueue, ofKind, own WorkerLimit) {
	more := func(than, n WorkerLimit) bool { // its own name goes before a prefix
		return n.Queue == queue || than.Queue != queue && len(n.Queue) > len(than.Queue) && storage.MatchQueue([]string{n.Queue}, queue)
	}
	for _, n := range w.Limits {
		switch {
		case n.Queue != "" && n.Kind != "":
			if (n.Kind == kind || n.Kind == storage.AnyKind) && more(own, n) {
				own = n
			}
		case n.Queue != "" && more(ofQueue, n):
			ofQueue = n
		case n.Kind != "" && n.Kind == kind:
			ofKind = n
		}
	}
	if w.allKinds(queue) {
		ofKind = WorkerLimit{}
	}
	return ofQueue, ofKind, own
}

// Serves reports whether a worker works for a lane. An empty name stands for any.
func (w *WorkerInfo) Serves(queue, kind string) bool {
	switch {
	case queue == "":
		return kind == "" || len(w.AllKinds) > 0 || slices.Contains(w.Kinds, kind)
	case !storage.MatchQueue(w.Queues, queue):
		return false
	}
	return kind == "" || w.allKinds(queue) || slices.Contains(w.Kinds, kind)
}

// allKinds reports whether the worker takes the jobs of all kinds in a queue.
func (w *WorkerInfo) allKinds(queue string) bool {
	return len(w.AllKinds) > 0 && slices.Contains(w.AllKinds, engine.Listed(w.Queues, queue))
}

// Includes reports whether a limit counts for jobs of a kind in a queue. An empty name stands for
// any.
func (n *WorkerLimit) Includes(queue, kind string) bool {
	return (queue == "" || n.Queue == "" || storage.MatchQueue([]string{n.Queue}, queue)) && (kind == "" || n.Kind == "" || n.Kind == kind || n.Kind == storage.AnyKind)
}

// demand is what a job asks of the workers of its lane.
type demand struct {
	queue, kind string
	due         bool // limits on starts are of no matter before
	retry       bool
	// ready is how many jobs of the lane are ready, and first when the earliest of them was
	// due. They are zero if this one is not, or if nobody asks.
	ready int64
	first time.Time
	now   time.Time
}

// demand returns what a job asks of the workers of its lane. It looks at the lane only if
// a worker does its jobs in batches.
func (q *Queue) demand(ctx context.Context, j *JobInfo, serving []WorkerInfo, now time.Time) (*demand, error) {
	d := &demand{queue: j.Queue, kind: j.Kind, now: now}
	batched := slices.ContainsFunc(serving, func(i WorkerInfo) bool {
		ofQueue, ofKind, _ := i.limits(j.Queue, j.Kind)
		return max(ofQueue.BatchMin, ofKind.BatchMin) > 0
	})
	if j.State != Ready || !batched {
		return d, nil
	}
	all, err := q.store.Stats(ctx)
	for i := range all {
		if all[i].Lane == (Lane{Queue: j.Queue, Kind: j.Kind}) {
			d.ready, d.first = all[i].Ready, all[i].OldestDue
		}
	}
	return d, err
}

// limited adds what keeps the workers from starting the job, unless one of them is free
// to.
func (w *Why) limited(serving []WorkerInfo, d *demand) {
	var all []WhyReason
	for i := range serving {
		own := serving[i].blocks(d)
		if len(own) == 0 {
			return
		}
		all = append(all, own...)
	}
	w.Reasons = append(w.Reasons, all...)
}

// throttled adds the shared throttles of a ready job that have no token.
func (w *Why) throttled(place *storage.Ahead, now time.Time) {
	for i, b := range []*storage.Bucket{&place.OfQueue, &place.OfKind} {
		if b.Interval <= 0 || b.Tokens(now) > 0 {
			continue
		}
		r := WhyReason{Code: WhyThrottle, Reason: ReasonShared, Until: b.Next(now)}
		if r.Queue = w.Queue; i == 1 {
			r.Queue, r.Kind = "", w.Kind
		}
		r.Text = fmt.Sprintf("the shared throttle of %s lets one start every %v, and has no token before %s", laneText(r.Queue, r.Kind), b.Interval, moment(r.Until))
		w.add(r)
	}
}

// waitsForBatch returns until when a worker waits for more jobs of a lane, zero if it does
// not.
func (n *WorkerLimit) waitsForBatch(d *demand) time.Time {
	if until := d.first.Add(n.BatchWait); d.ready < int64(n.BatchMin) && until.After(d.now) {
		return until
	}
	return time.Time{}
}

// blocks returns what keeps a worker from starting a job.
func (w *WorkerInfo) blocks(d *demand) (all []WhyReason) {
	queue, kind, due := d.queue, d.kind, d.due
	add := func(code WhyCode, n WorkerLimit, count int, format string, args ...any) *WhyReason {
		text := fmt.Sprintf(format, args...) + ", in worker " + w.Instance
		all = append(all, WhyReason{Code: code, Text: text, Queue: n.Queue, Kind: n.Kind, Worker: w.Instance, N: count})
		return &all[len(all)-1]
	}
	if w.Stopping {
		add(WhyNoWorker, WorkerLimit{Queue: queue, Kind: kind}, 0, "no job is taken: it is stopping")
	}
	ofQueue, ofKind, own := w.limits(queue, kind)
	// The throttle of a kind takes the place of that of the queue, unless its policy
	// disables that of kinds.
	topic := cmp.Or(ofQueue.Policy, w.Policy, &policy.Topic{})
	ofKindCounts := ofKind.PerSecond > 0 && !topic.DisableSubscriptionOverrides
	for _, n := range []WorkerLimit{ofQueue, ofKind} {
		of := laneText(n.Queue, n.Kind)
		if n.Gate != nil && !n.Gate.Open {
			r := add(WhyGate, n, 0, "the gate of %s is closed since %s%s", of, moment(n.Gate.Since), because(n.Gate.Reason))
			r.Since, r.Reason = n.Gate.Since, n.Gate.Reason
		}
		if due && n.Throttled && (n.Kind != "") == ofKindCounts {
			add(WhyThrottle, n, n.PerSecond, "the throttle of %s lets %d a second start, and more wait", of, n.PerSecond)
		}
		if due && n.Full {
			add(WhyConcurrency, n, n.Concurrency, "as many jobs of %s run as may at a time: %d", of, n.Concurrency)
		}
		if d.retry && n.BudgetEmpty && (n.Kind != "" || !ofKind.Budget) {
			add(WhyBudget, n, 0, "the retry budget of %s is empty", of)
		}
	}
	batch := ofKind
	if w.allKinds(queue) {
		batch = ofQueue
	}
	if until := batch.waitsForBatch(d); !until.IsZero() {
		r := add(WhyBatch, WorkerLimit{Queue: queue, Kind: kind}, int(d.ready), "%s waits until %d jobs are ready, of which there are %d, or until %s",
			laneText(queue, kind), batch.BatchMin, d.ready, moment(until))
		r.Of, r.Until = batch.BatchMin, until
	}
	switch {
	case !due:
	case !own.Until.IsZero():
		add(WhyOpening, own, 0, "%s was closed for long, and its first job starts at %s", laneText(queue, kind), moment(own.Until)).Until = own.Until
	case own.Full:
		add(WhyOpening, own, own.Concurrency, "%s was closed for long and opens gently: %d may run at a time for now", laneText(queue, kind), own.Concurrency)
	}
	if due && w.Full {
		add(WhyConcurrency, WorkerLimit{}, w.Concurrency, "as many jobs run as may at a time: %d", w.Concurrency)
	}
	return all
}

// SetConcurrency sets how many handlers run at a time, from 1 to 10,000, in place of
// [WorkerOptions].Concurrency. It can be called at any time. If there are to be more,
// they can start at once. If there are to be fewer, the handlers that run go on, and
// none starts until enough have ended. The Concurrency of queues and kinds stays in
// force. After Run it has no effect.
//
// It returns a [FieldError] if n is out of range.
func (w *Worker) SetConcurrency(n int) error {
	if n < 1 || n > mostConcurrency {
		return &FieldError{Field: "concurrency", Value: n, Limit: fmt.Sprintf("must be between 1 and %d", mostConcurrency)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opts.Concurrency = n
	if w.engine != nil {
		w.engine.SetConcurrency(n)
	}
	return nil
}
