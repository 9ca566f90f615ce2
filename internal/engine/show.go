package engine

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	// showEvery is how often an engine looks at most whether what it shows has changed.
	showEvery = time.Second
	// settleAfter is how many looks in a row must find a state before it is shown: a
	// worker of short jobs has all runners in use now and then, which is no news.
	settleAfter = 3
)

// workerDoc is what an engine shows to other processes. The root reads it as a
// WorkerInfo, whose names of members are the same but for batch_wait: processes of other
// versions read that in nanoseconds.
type workerDoc struct {
	Since       time.Time     `json:"since"`
	Stopping    bool          `json:"stopping,omitempty"`
	Queues      []string      `json:"queues"`
	Kinds       []string      `json:"kinds"`
	AllKinds    []string      `json:"all_kinds,omitempty"`
	Concurrency int           `json:"concurrency"`
	Full        bool          `json:"full,omitempty"`
	Policy      *policy.Topic `json:"policy,omitempty"`
	Limits      []limitDoc    `json:"limits,omitempty"`
	Progress    []progressDoc `json:"progress,omitempty"`
	// Secret has the kinds with secret args. It is there if it is empty: by that others see
	// that it is known.
	Secret map[string][]string `json:"secret"`
}

// limitDoc is what limits the jobs of a queue or of a kind, whose other name is empty,
// or of a lane that opens gently and keeps jobs back.
type limitDoc struct {
	Queue       string        `json:"queue,omitempty"`
	Kind        string        `json:"kind,omitempty"`
	Concurrency int           `json:"concurrency,omitempty"`
	Full        bool          `json:"full,omitempty"`
	PerSecond   int           `json:"per_second,omitempty"`
	Throttled   bool          `json:"throttled,omitempty"`
	Budget      bool          `json:"budget,omitempty"`
	BudgetEmpty bool          `json:"budget_empty,omitempty"`
	Groups      bool          `json:"group_throttled,omitempty"`
	BatchMin    int           `json:"batch_min,omitempty"`
	BatchWait   time.Duration `json:"batch_wait,omitempty"`
	Gate        *gateDoc      `json:"gate,omitempty"`
	Policy      *policy.Topic `json:"policy,omitempty"`
	Until       time.Time     `json:"until,omitzero"`
}

// gateDoc is what a worker knows of a gate.
type gateDoc struct {
	Open   bool      `json:"open"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// shown is what the engines of a process show, which share a store.
type shown struct {
	mu   sync.Mutex // held while the document is published
	all  []workerPart
	lost bool // that it cannot be published was logged
}

// workerPart is the part of one engine.
type workerPart struct {
	of  *Config
	doc json.RawMessage
}

// show is the chore that shows what the engine does. It looks when the loop has woken
// anyway, and once more after that. Nothing is written unless something has changed.
type show struct {
	chore
	publisher storage.Publisher // nil: the store cannot show it
	doc       workerDoc         // without what changes
	limits    []*limit
	full      settled
	now       []state // as of the last look: of the worker, of the limits, of lanes that open
	written   bool
	moved     moves
	progress  []progressDoc // as of the last look
}

// limit is what may limit the jobs of a queue or of a kind.
type limit struct {
	doc      limitDoc // without what changes
	bound    *bound
	each     *each // of the queues of a prefix
	throttle *Throttle
	budget   *Budget
	groups   *GroupThrottle

	full, throttled, empty, denied settled
}

// state is what changes of a limit, of the worker, or of a lane that opens gently.
type state struct {
	full, throttled, empty, denied, stopping bool
	concurrency                              int
	gate                                     gateDoc
	lane                                     storage.Lane
	until                                    time.Time
}

// settled is a state that was seen several times in a row.
type settled struct {
	is    bool
	other int // how often it was seen otherwise since
}

// see notes what is seen now. It reports whether that may come to count.
func (s *settled) see(is bool) (unsettled bool) {
	if s.other++; is == s.is || s.other == settleAfter {
		s.is, s.other = is, 0
	}
	return s.other > 0
}

// newShow makes the chore that shows what the engine does.
func (l *loop) newShow() *chore {
	p, _ := l.cfg.Store.(storage.Publisher)
	w := &show{publisher: p, chore: chore{last: true}}
	l.chores.show = w
	if p != nil {
		w.doc = workerDoc{
			Since: l.clock().UTC(), Queues: l.cfg.Queues, Kinds: slices.Sorted(maps.Keys(l.cfg.Handlers)), Policy: &l.cfg.Policy,
			AllKinds: slices.Sorted(maps.Keys(l.cfg.QueueHandlers)), Secret: map[string][]string{},
		}
		for kind, h := range l.cfg.Handlers {
			if len(h.Secret) > 0 {
				w.doc.Secret[kind] = h.Secret
			}
		}
		w.limits = l.limits()
	}
	w.prepare = l.showChanges
	return &w.chore
}

// limits returns what may limit the jobs of queues and kinds.
func (l *loop) limits() (all []*limit) {
	b := l.sources.ramps.bounds
	for _, queue := range l.cfg.Queues {
		s := l.cfg.settings(queue)
		n := &limit{doc: limitDoc{Queue: queue, Policy: s.Policy}, bound: b.queues[queue], each: b.each[queue], throttle: s.Throttle, budget: s.Budget, groups: s.Groups}
		n.doc.batched(l.cfg.QueueHandlers[queue].Batch)
		all = append(all, n)
	}
	for _, kind := range slices.Sorted(maps.Keys(l.cfg.Handlers)) {
		h := l.cfg.Handlers[kind]
		n := &limit{doc: limitDoc{Kind: kind}, bound: b.kinds[kind], throttle: h.Throttle, budget: h.Budget}
		if h.Policy != (policy.Document{}) {
			n.doc.Policy = &policy.Topic{Document: h.Policy}
		}
		n.doc.batched(h.Batch)
		all = append(all, n)
	}
	all = slices.DeleteFunc(all, func(n *limit) bool {
		return n.bound == nil && n.each == nil && n.throttle == nil && n.budget == nil && n.groups == nil && n.doc.Policy == nil && n.doc.BatchMin == 0
	})
	for _, n := range all {
		if n.throttle != nil {
			n.doc.PerSecond = n.throttle.Rate()
		}
		n.doc.Budget = n.budget != nil
	}
	return all
}

// batched notes for how many jobs a handler waits.
func (d *limitDoc) batched(b *Batch) {
	if b != nil && b.Wait > 0 {
		d.BatchMin, d.BatchWait = b.Min, b.Wait
	}
}

// news has the engine look soon: the loop has woken, so something may have changed.
func (w *show) news(now time.Time) {
	if w.publisher != nil && w.due.mono.IsZero() {
		w.due = onMono(now)
	}
}

// showFirst shows the engine before it takes a job.
func (l *loop) showFirst(now time.Time) {
	if l.chores.show.publisher != nil {
		_, _ = l.showChanges(now)(l.runners.ctx)
	}
}

// showChanges looks at what changes, and shows it if it has.
func (l *loop) showChanges(now time.Time) task {
	w := l.chores.show
	w.pause = now.Add(showEvery)
	seen, unsettled := l.states(now)
	progress, moved := l.progress()
	if unsettled || moved {
		w.due = onMono(w.pause)
	}
	if w.written && slices.Equal(seen, w.now) && slices.Equal(progress, w.progress) {
		return nil
	}
	w.now, w.progress, w.written = seen, progress, true
	doc := w.document(seen)
	return func(context.Context) (func(time.Time), error) {
		l.cfg.Lanes.shown.publish(l.cfg, w.publisher, doc)
		return func(time.Time) {}, nil
	}
}

// states returns the states of the worker, of the limits and of the lanes that open
// gently, and whether others may come to count.
func (l *loop) states(now time.Time) (all []state, unsettled bool) {
	w := l.chores.show
	unsettled = w.full.see(l.runners.free() <= 0)
	all = append(all, state{full: w.full.is, concurrency: l.cfg.Concurrency, stopping: !l.shutdown.working()})
	for _, n := range w.limits {
		var s state
		if n.bound != nil {
			if n.bound.most < l.cfg.most() {
				s.concurrency = n.bound.most
			}
			unsettled = n.full.see(n.bound.held >= n.bound.most) || unsettled
			if g := n.bound.gate; g != nil {
				s.gate = g.shown()
			}
		}
		if n.each != nil {
			s.concurrency = n.each.limit
		}
		if n.throttle != nil {
			denies := slices.ContainsFunc(l.sources.all, func(o *source) bool { return o.throttle == n.throttle && o.denied })
			unsettled = n.throttled.see(denies) || unsettled
		}
		if n.budget != nil {
			unsettled = n.empty.see(n.budget.empty(now)) || unsettled
		}
		if n.groups != nil {
			unsettled = n.denied.see(n.groups.denies(now)) || unsettled
		}
		s.full, s.throttled, s.empty, s.denied = n.full.is, n.throttled.is, n.empty.is, n.denied.is
		all = append(all, s)
	}
	for _, o := range l.sources.all {
		o.denied = false
	}
	all, opens := l.sources.ramps.bounds.opening(all)
	return all, unsettled || opens
}

// opening adds the states of the lanes that keep jobs back as they open gently. It
// reports whether others may come to count.
func (all *bounds) opening(to []state) (states []state, unsettled bool) {
	if len(all.ramps) == 0 {
		return to, false
	}
	for _, lane := range slices.SortedFunc(maps.Keys(all.ramps), storage.Lane.Compare) {
		r := all.ramps[lane]
		if r.closed {
			continue
		}
		unsettled = r.busy.see(r.held >= r.most) || unsettled
		if r.busy.is || !r.startAt.IsZero() {
			to = append(to, state{lane: lane, full: true, concurrency: r.most, until: r.starts})
		}
	}
	return to, unsettled
}

// document returns the document for some states.
func (w *show) document(states []state) json.RawMessage {
	doc := w.doc
	doc.Progress = w.progress
	doc.Stopping, doc.Full, doc.Concurrency = states[0].stopping, states[0].full, states[0].concurrency
	for i, n := range w.limits {
		s, d := states[i+1], n.doc
		d.Concurrency, d.Full, d.Throttled, d.BudgetEmpty, d.Groups = s.concurrency, s.full, s.throttled, s.empty, s.denied
		if n.bound != nil && n.bound.gate != nil {
			d.Gate = &s.gate
		}
		doc.Limits = append(doc.Limits, d)
	}
	for _, s := range states[1+len(w.limits):] {
		doc.Limits = append(doc.Limits, limitDoc{Queue: s.lane.Queue, Kind: s.lane.Kind, Concurrency: s.concurrency, Full: s.full, Until: s.until})
	}
	b, err := json.Marshal(doc)
	if err != nil { // a time beyond the year 9999: names and policies have been validated
		doc.Since, doc.Limits, doc.Progress = time.Time{}, nil, nil
		b, _ = json.Marshal(doc)
	}
	return b
}

// publish shows what an engine does beside what the others of the process do. A nil
// document is of an engine that has ended.
func (s *shown) publish(of *Config, p storage.Publisher, doc json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked(of, p, doc)
}

func (s *shown) publishLocked(of *Config, p storage.Publisher, doc json.RawMessage) {
	s.all = slices.DeleteFunc(s.all, func(o workerPart) bool { return o.of == of })
	if doc != nil {
		s.all = append(s.all, workerPart{of, doc})
	}
	workers := []json.RawMessage{}
	for _, o := range s.all {
		workers = append(workers, o.doc)
	}
	b, err := json.Marshal(map[string]any{"workers": workers})
	if err == nil {
		err = p.Publish(b)
	}
	if err != nil && doc != nil && !s.lost {
		s.lost = true
		of.Logger.Warn("errand: other processes cannot see what the worker does", "error", err)
	}
}

// conceal shows the engine no more. Run is about to return, so it waits for nobody: a
// document that is being written then stays until the queue is closed.
func (l *loop) conceal() {
	s := &l.cfg.Lanes.shown
	if p := l.chores.show.publisher; p != nil && s.mu.TryLock() {
		defer s.mu.Unlock()
		s.publishLocked(l.cfg, p, nil)
	}
}
