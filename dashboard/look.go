package dashboard

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand"
)

// look is what the queue was like at a moment. All viewers share it: do not change what it
// refers to.
type look struct {
	serial int64     // another number for each look that differs, from 1
	at     time.Time // of this machine: when it was known last to be the newest
	clock  errand.ClockState

	version int64 // of the file, as of lanes
	known   bool  // the store says the version
	read    time.Time
	lanes   []errand.LaneTotals
	causes  []errand.Cause
	longest []errand.JobInfo
	cut     bool // more jobs run than were looked at for longest
	// full: more than lanes has been read. causesOf and longestOf say as of what.
	full      bool
	causesOf  uint64
	longestOf int64

	crew
	condition

	past past
	away *away // why there is no newer look; nil if this is the newest
}

// crew is what is asked for every 10 s, as it may change without a commit.
type crew struct {
	workers []errand.WorkerInfo
	unshown bool               // workers are not known
	apart   []errand.HoldState // of lanes that never had a job
	fails   []failing          // lanes whose jobs only fail
	asked   time.Time
}

// condition is what is asked for every minute, and every 10 s while something is committed.
type condition struct {
	health errand.Health
	// readOnly: the queue is open for reading alone, and does not know whether it could write.
	readOnly bool
	judged   time.Time
}

// away is why the queue cannot be looked at.
type away struct {
	Text, Remedy string
	Since        time.Time // of this machine
}

// looks keep the last look. They make one at most once a second, or more seldom if it takes long,
// and only if something was committed since the last one.
type looks struct {
	q       *errand.Queue
	version func(context.Context) (v int64, known bool, err error)
	over    chan struct{} // closed once the queue is

	mu    sync.Mutex
	last  *look              // nil: there was none yet
	tried map[bool]time.Time // when the last one began, by whether it was a full one
	each  time.Duration      // how long after that the next one may begin
	next  *looking           // under way; nil: none
	fault error              // of the last try
	since time.Time          // of the fault

	// damage is what a page or an action met first; nil: none. Health alone does not find it: it
	// reads little of the file.
	damage *errand.HealthReason
}

// looking is a look under way.
type looking struct {
	full  bool
	ended chan struct{} // closed once it is over
}

const (
	// Looks take at most the 20th part of the time, for files with thousands of queues, or slow
	// disks; but each 10 s there may be one.
	lookEach = time.Second
	lookPart = 20
	lookMost = 10 * time.Second
	// askEach is how often workers are asked for, which may vanish without a commit, and
	// judgeEach how often health is, which may change without one: a disk becomes full.
	askEach   = 10 * time.Second
	judgeEach = time.Minute
	// ofCauses and ofLongest are how many of them the front shows.
	ofCauses  = 5
	ofLongest = 10
)

// get returns the newest look; what was committed a moment ago may be missing. If the
// queue cannot be looked at, it is the last look, which says so, or an error if there is none.
func (s *looks) get(ctx context.Context) (*look, error) {
	l, err := s.fresh(ctx, true)
	if l == nil || !l.full {
		return nil, err
	}
	shown := *l
	shown.clock = s.q.Clock()
	return &shown, nil
}

// fresh returns the newest look, and why there is no newer one, if it is not the newest. A look
// that is not full has no more than lanes anew.
func (s *looks) fresh(ctx context.Context, full bool) (*look, error) {
	for {
		s.mu.Lock()
		if time.Since(s.tried[full]) < s.each {
			defer s.mu.Unlock()
			return s.last, s.fault
		}
		n := s.next
		if n == nil {
			n = &looking{full: full, ended: make(chan struct{})}
			s.next = n
			go s.run(n, s.last)
		}
		s.mu.Unlock()
		select {
		case <-n.ended:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.last, ctx.Err()
		}
		if n.full || !full { // however long it has taken
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.last, s.fault
		}
	}
}

// run makes a look. It belongs to nobody: a viewer who goes away spoils it for no other.
func (s *looks) run(n *looking, last *look) {
	ctx, stop := withTimeout(context.Background(), readFor)
	defer stop()
	began := time.Now()
	l, err := s.take(ctx, last, n.full)
	s.met(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := time.Now(); {
	case err == nil:
		l.at, l.away = now, nil
		s.last, s.fault = l, nil
	case s.fault == nil:
		s.since = now
		fallthrough
	default:
		if s.fault = err; last != nil {
			old, why := *last, refused(err)
			old.away = &away{why.text, why.remedy, s.since}
			if old.serial++; last.away != nil && last.away.Text == why.text {
				old.serial = last.serial
			}
			s.last = &old
		}
	}
	if s.tried == nil {
		s.tried = map[bool]time.Time{}
	}
	if s.tried[false] = began; n.full {
		s.tried[true] = began
	}
	s.each = min(max(lookEach, time.Since(began)*lookPart), lookMost)
	s.next = nil
	close(n.ended)
}

// expire has the next look see what was committed just now.
func (s *looks) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tried)
	if s.last != nil {
		old := *s.last
		old.judged = time.Time{} // what jobs wait behind is part of the health
		s.last = &old
	}
}

// met keeps an error that says that the file is damaged: it stays so until the queue is opened
// anew. Other errors it takes no notice of.
func (s *looks) met(err error) {
	if !errors.Is(err, errand.ErrCorrupt) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damage == nil {
		s.damage = &errand.HealthReason{Code: errand.HealthDamage, Text: messageOf(err), Since: s.q.Clock().Now}
		clear(s.tried)
	}
}

// damaged adds to a health the damage that was met.
func (s *looks) damaged(h errand.Health) errand.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damage != nil && !isDamaged(&h) {
		h.Reasons = append(slices.Clone(h.Reasons), *s.damage)
	}
	return h
}

func isDamaged(h *errand.Health) bool {
	return slices.ContainsFunc(h.Reasons, func(r errand.HealthReason) bool { return r.Code == errand.HealthDamage })
}

// version returns a number that changes with each commit to the file; known is false if the store
// cannot say.
func version(ctx context.Context, q *errand.Queue) (v int64, known bool, err error) {
	if v, err = q.Version(ctx); errors.Is(err, errand.ErrUnsupportedDB) {
		return 0, false, nil
	}
	return v, err == nil, err
}

// take looks at a queue. What has not changed since the last look is not read again.
func (s *looks) take(ctx context.Context, last *look, full bool) (*look, error) {
	l := &look{}
	if last != nil {
		*l = *last
	}
	v, known, err := s.version(ctx)
	if err != nil {
		return nil, err
	}
	changed := last == nil || last.away != nil || !known || v != last.version || (last.waits() || last.fades(s.q.Clock().Now)) && time.Since(last.read) >= judgeEach
	if changed {
		if l.lanes, err = s.q.Totals(ctx); err != nil {
			return nil, err
		}
		l.version, l.known, l.read = v, known, time.Now()
	}
	if full {
		health := s.judge(ctx, l, changed)
		err = s.rest(ctx, l, changed)
		if h := <-health; h != nil {
			l.health, l.judged = *h, time.Now()
			l.readOnly = slices.ContainsFunc(h.Reasons, func(r errand.HealthReason) bool { return r.Code == errand.HealthReadOnly })
		}
		if err != nil {
			return nil, err
		}
		l.health, l.full = s.damaged(l.health), true
	}
	if changed && (last == nil || last.away != nil || v != last.version || !known || !reflect.DeepEqual(last.lanes, l.lanes)) || full && !last.same(l) {
		l.serial++
	}
	return l, nil
}

// judge asks for the health if that is old, and returns it, or nil.
func (s *looks) judge(ctx context.Context, l *look, changed bool) <-chan *errand.Health {
	health := make(chan *errand.Health, 1)
	if old := time.Since(l.judged); l.full && (old < askEach || !changed && old < judgeEach) {
		health <- nil
		return health
	}
	go func() { // it waits for its turn to write, as the rest does not
		asking, stop := withTimeout(ctx, readFor/2)
		defer stop()
		h := s.q.Health(asking, &errand.HealthOptions{MaxAge: -1})
		for i := range h.Reasons {
			h.Reasons[i].Text = wordsOf(h.Reasons[i].Text)
		}
		health <- &h
	}()
	return health
}

// rest reads what a full look has besides lanes.
func (s *looks) rest(ctx context.Context, l *look, changed bool) (err error) {
	first := !l.full
	if of := l.deaths(); first || of != l.causesOf {
		if l.causes, err = s.q.DeadLetters().Causes(ctx, &errand.CauseOptions{Limit: ofCauses}); err != nil {
			return err
		}
		l.causesOf = of
	}
	if changed || first || l.longestOf != l.version {
		if err = l.runs(ctx, s.q); err != nil {
			return err
		}
		l.longestOf = l.version
	}
	if first || !l.past.none && (l.past.version != l.version || !l.known) && time.Since(l.past.read) >= askEach {
		if l.past, err = l.past.remember(ctx, s.q); err != nil {
			return err
		}
		l.past.read, l.past.version = time.Now(), l.version
	}
	if !first && time.Since(l.asked) < l.askAgain() {
		return nil
	}
	l.workers, err = s.q.Workers(ctx)
	if l.unshown = errors.Is(err, errand.ErrUnsupportedDB); err != nil && !l.unshown {
		return err
	}
	if changed || first {
		holds, err := s.q.Holds(ctx)
		if err != nil {
			return err
		}
		l.apart = slices.DeleteFunc(holds, func(h errand.HoldState) bool {
			return slices.ContainsFunc(l.lanes, func(t errand.LaneTotals) bool { return h.Includes(t.Queue, t.Kind) })
		})
	}
	l.asked = time.Now()
	return l.lookAtFailing(ctx, s.q)
}

// mostRunning is how many jobs that run are looked at for those that have run longest.
const mostRunning = 1000

// runs reads what runs longest.
func (l *look) runs(ctx context.Context, q *errand.Queue) error {
	l.longest, l.cut = nil, false
	if !slices.ContainsFunc(l.lanes, func(t errand.LaneTotals) bool { return t.Stats.Running > 0 }) {
		return nil
	}
	page, err := q.Jobs(ctx, errand.JobFilter{States: []errand.State{errand.Running}}, &errand.ListOptions{Limit: mostRunning})
	slices.SortStableFunc(page.Jobs, func(a, b errand.JobInfo) int { return a.DueAt.Compare(b.DueAt) })
	l.longest, l.cut = page.Jobs[:min(len(page.Jobs), ofLongest)], page.Next != ""
	return err
}

// same reports whether two looks at the same lanes have the same beside these.
func (l *look) same(other *look) bool {
	return l.full && l.away == nil && reflect.DeepEqual(l.workers, other.workers) && reflect.DeepEqual(l.health, other.health)
}

// deaths returns a number that changes if a job has died, or is dead no more.
func (l *look) deaths() (n uint64) {
	for i := range l.lanes {
		t := &l.lanes[i]
		for _, v := range [...]int64{t.Number, t.Dead, t.Stats.Dead} {
			n = (n ^ uint64(v)) * 0x100000001b3
		}
	}
	return n
}

// holds returns all holds in force, in the order of their lanes.
func (l *look) holds() []errand.HoldState {
	all := make([]*errand.LaneTotals, len(l.lanes))
	for i := range l.lanes {
		all[i] = &l.lanes[i]
	}
	return l.holdsAmong(all, l.apart)
}

// holdsAmong returns the holds in force of some lanes, and further ones, in the order of their
// lanes.
func (l *look) holdsAmong(lanes []*errand.LaneTotals, further []errand.HoldState) []errand.HoldState {
	all := slices.Clone(further)
	type key struct {
		lane   errand.Lane
		reason string
	}
	seen := map[key]bool{}
	for _, t := range lanes {
		for _, h := range t.Stats.Holds {
			if k := (key{h.Lane, h.Reason}); !seen[k] && !l.over(h) {
				seen[k] = true
				all = append(all, h)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b errand.HoldState) int {
		return cmp.Or(a.Compare(b.Lane), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}

// waits reports whether jobs may have become due without a commit: no worker takes them.
func (l *look) waits() bool {
	return slices.ContainsFunc(l.lanes, func(t errand.LaneTotals) bool {
		return t.Stats.Scheduled > 0 && t.Stats.OldestDue.IsZero() && !l.served(t.Queue, t.Kind)
	})
}

// fades reports whether rates become others though nothing is committed, at a time of the queue's
// clock.
func (l *look) fades(now time.Time) bool {
	return slices.ContainsFunc(l.lanes, func(t errand.LaneTotals) bool {
		r := t.Stats.Rate
		return r == nil && l.past.young(now) || r != nil && *r != errand.Rate{Since: r.Since}
	})
}

// held reports whether a lane is held. A hold whose time is over may be among those of the lane,
// as nothing need have been committed since.
func (l *look) held(s *errand.LaneStats) bool {
	return slices.ContainsFunc(s.Holds, func(h errand.HoldState) bool { return !l.over(h) })
}

func (l *look) over(h errand.HoldState) bool {
	return !h.Probe && !h.Until.IsZero() && h.Until.Before(l.clock.Now)
}

// progress returns how far a job has got that runs; nil if no worker shows it.
func (l *look) progress(id errand.ID) *errand.Progress {
	for i := range l.workers {
		for j := range l.workers[i].Progress {
			if p := &l.workers[i].Progress[j]; p.Job == id {
				return &p.Progress
			}
		}
	}
	return nil
}

// sums are the numbers of all lanes together.
type sums struct {
	Scheduled, Ready, Blocked, Running, Dead int64
	Enqueued                                 int64
	Places                                   int // of all workers
}

func (l *look) sums() (s sums) {
	for i := range l.lanes {
		t := &l.lanes[i]
		s.Scheduled += t.Stats.Scheduled
		s.Ready += t.Stats.Ready
		s.Blocked += t.Stats.Blocked
		s.Running += t.Stats.Running
		s.Dead += t.Stats.Dead
		s.Enqueued += t.Enqueued
	}
	for i := range l.workers {
		s.Places += l.workers[i].Concurrency
	}
	return s
}

// oldest returns when the job was due that waits longest, of those that nobody holds; zero if
// none waits.
func (l *look) oldest() (t time.Time) {
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		if !l.held(s) && !s.OldestDue.IsZero() && (t.IsZero() || s.OldestDue.Before(t)) {
			t = s.OldestDue
		}
	}
	return t
}

// watch closes over with the queue.
func (s *looks) watch(q *errand.Queue) {
	end, err := q.Subscribe(context.Background(), errand.EventFilter{Kind: "errand/none"}, 1)
	if err != nil { // it is closed already
		close(s.over)
		return
	}
	go func() {
		for range end.Events() { // a few come nevertheless
		}
		close(s.over)
	}()
}
