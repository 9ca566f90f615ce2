package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand"
)

// look is what the queue was like at a moment. All viewers share it: do not change what it
// refers to.
type look struct {
	at    time.Time // of this machine: when it was known last to be the newest
	as    time.Time // that, by the queue's clock
	clock errand.ClockState

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

	// What follows is set by settle. until and navUntil are when the look and its nav may be others
	// without a commit; zero: never.
	until, navUntil time.Time
	navSaid
}

// crew is what is asked for every 10 s while jobs wait or run, as it may change without a commit.
type crew struct {
	workers []errand.WorkerInfo
	unshown bool               // workers are not known
	apart   []errand.HoldState // of lanes that never had a job
	fails   []failing          // lanes whose jobs only fail
	asked   time.Time
}

// condition is what is asked for every 10 s while something is committed, and every minute while
// jobs wait or run.
type condition struct {
	health errand.Health
	// readOnly: the queue is open for reading alone, and does not know whether it could write.
	readOnly bool
	judged   time.Time
	relayed  relayed
}

// away is why the queue cannot be looked at.
type away struct {
	Text, Remedy string
	Since        time.Time // of this machine
}

// looks keep the last look. They make one at most once a second, or more seldom if it takes long,
// and only if something was committed since the last one.
type looks struct {
	q *errand.Queue

	mu    sync.Mutex
	last  *look         // nil: there was none yet
	tried time.Time     // when the last one began
	each  time.Duration // how long after that the next one may begin
	next  chan struct{} // closed once the one under way is over; nil: none is
	fault error         // of the last try
	since time.Time     // of the fault

	// damage is what a page or an action met first; nil: none. Health alone does not find it: it
	// reads little of the file.
	damage *errand.HealthReason
}

const (
	// Looks take at most the 20th part of the time, for files with thousands of queues, or slow
	// disks; but each 10 s there may be one.
	lookEach = time.Second
	lookPart = 20
	lookMost = 10 * time.Second
	// askEach is how often workers are asked for, which may vanish without a commit, and
	// judgeEach how often health is, which may change without one: a disk becomes full. farEach
	// is how often workers are while jobs say how far they have got.
	askEach   = 10 * time.Second
	judgeEach = time.Minute
	farEach   = 2 * time.Second
	// ofCauses and ofLongest are how many of them the front shows. Of mostCauses one may be that of
	// what it shows.
	ofCauses   = 5
	mostCauses = 100
	ofLongest  = 10
)

// get returns the newest look; what was committed a moment ago may be missing. If the
// queue cannot be looked at, it is the last look, which says so, or an error if there is none.
func (s *looks) get(ctx context.Context) (*look, error) {
	l, err := s.fresh(ctx)
	if l == nil {
		return nil, err
	}
	return l.now(s.q), nil
}

// now returns a look as of the clock of q.
func (l *look) now(q *errand.Queue) *look {
	shown := *l
	shown.clock = q.Clock()
	return &shown
}

// current returns the last look if there is nothing newer, as of a version of the file that it had at
// a time, else nil.
func (s *looks) current(v int64, as time.Time) *look {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.last
	if l == nil || !l.known || l.version != v || s.fault != nil || isPast(l.until) {
		return nil
	}
	if l.at.Before(as) {
		same := *l
		same.at, same.as = as, l.as.Add(as.Sub(l.at))
		s.last = &same
	}
	return s.last.now(s.q)
}

// forNav returns a look for the nav, which may be older than the newest one if nothing in the nav is, and
// for a page that is open already by up to blindEach. It waits for one no longer than navWait; nil: there is none.
func (s *looks) forNav(ctx context.Context, v int64, as time.Time, open bool) *look {
	if l := s.current(v, as); l != nil {
		return l
	}
	s.mu.Lock()
	l, fault := s.last, s.fault
	s.mu.Unlock()
	if l != nil && fault == nil && (l.known && l.version == v || (open || !l.known) && time.Since(l.read) < blindEach) && !isPast(l.navUntil) {
		return l.now(s.q)
	}
	ctx, stop := context.WithTimeout(ctx, navWait)
	defer stop()
	l, _ = s.get(ctx) // without it there are no numbers
	return l
}

// isPast reports whether a time is over; zero never is.
func isPast(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// settle sets what follows from the rest of a look that nobody has yet.
func (l *look) settle() {
	l.navUntil = l.navMoment()
	l.until = l.moment()
	l.navSaid = marked(l)
}

// navMoment returns when there may be something new in the nav without a commit; zero is never.
func (l *look) navMoment() (t time.Time) {
	if l.away != nil {
		return l.at
	}
	for _, asked := range []time.Time{l.asked, l.judged} {
		if asked.Before(l.read.Add(askEach)) { // a commit may have effects a little after it
			t = earliest(t, asked.Add(askEach))
		}
	}
	for _, h := range l.holds() {
		if h.Until.After(l.as) {
			t = earliest(t, l.at.Add(h.Until.Sub(l.as)))
		}
	}
	return t
}

// moment returns when there may be something new without a commit; zero is never. A worker that
// comes has committed that it does; nobody misses one that goes until there is work.
func (l *look) moment() (t time.Time) {
	if l.away != nil {
		return l.at
	}
	t = l.navMoment()
	by := func(o time.Time) { t = earliest(t, o) }
	if !l.past.none && l.past.version != l.version {
		by(l.past.read.Add(askEach))
	}
	sums := l.sums()
	if sums.Running > 0 || len(l.workers) > 0 && !l.oldest().IsZero() {
		by(l.asked.Add(l.askAgain()))
	}
	if sums.Scheduled > 0 { // one may be due, and its worker gone
		by(l.asked.Add(judgeEach))
	}
	if sums.Scheduled+sums.Ready+sums.Running > 0 {
		by(l.judged.Add(judgeEach))
	}
	if l.waits() || l.fades(l.as) {
		by(l.read.Add(judgeEach))
	}
	return t
}

// askAgain returns after how long workers are asked for again.
func (l *look) askAgain() time.Duration {
	for i := range l.workers {
		if len(l.workers[i].Progress) > 0 {
			return farEach
		}
	}
	return askEach
}

// fresh returns the newest look, and why there is no newer one, if it is not the newest.
func (s *looks) fresh(ctx context.Context) (*look, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried.IsZero() && time.Since(s.tried) < s.each {
		return s.last, s.fault
	}
	if s.next == nil {
		s.next = make(chan struct{})
		go s.run(s.next, s.last)
	}
	next := s.next
	s.mu.Unlock()
	select { // however long it has taken
	case <-next:
	case <-ctx.Done():
		s.mu.Lock()
		return s.last, ctx.Err()
	}
	s.mu.Lock()
	return s.last, s.fault
}

// run makes a look. It belongs to nobody: a viewer who goes away spoils it for no other.
func (s *looks) run(ended chan struct{}, last *look) {
	ctx, stop := withTimeout(context.Background(), readFor)
	defer stop()
	began := time.Now()
	l, err := s.take(ctx, last)
	s.met(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := time.Now(); {
	case err == nil:
		l.clock = s.q.Clock()
		l.at, l.as, l.away = now, l.clock.Now, nil
		l.settle()
		s.last, s.fault = l, nil
	case s.fault == nil:
		s.since = now
		fallthrough
	default:
		if s.fault = err; last != nil {
			old, why := *last, refused(err)
			old.away = &away{why.text, why.remedy, s.since}
			old.settle()
			s.last = &old
		}
	}
	s.tried = began
	s.each = min(max(lookEach, time.Since(began)*lookPart), lookMost)
	s.next = nil
	close(ended)
}

// expire has the next look see what was committed just now.
func (s *looks) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Time{}
	if s.last != nil {
		old := *s.last
		old.judged, old.relayed.read = time.Time{}, time.Time{} // what jobs wait behind is part of the health
		old.settle()
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
		s.tried = time.Time{}
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
func (s *looks) take(ctx context.Context, last *look) (*look, error) {
	l := &look{}
	if last != nil {
		*l = *last
	}
	v, known, err := version(ctx, s.q)
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
	health := s.judge(ctx, l, changed || l.judged.Before(l.read.Add(askEach)))
	err = s.rest(ctx, l, changed)
	if h := <-health; h != nil {
		l.health, l.judged = *h, time.Now()
		l.readOnly = slices.ContainsFunc(h.Reasons, func(r errand.HealthReason) bool { return r.Code == errand.HealthReadOnly })
	}
	if err != nil {
		return nil, err
	}
	l.health, l.full = s.damaged(l.health), true
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
		if l.causes, err = s.q.DeadLetters().Causes(ctx, &errand.CauseOptions{Limit: mostCauses}); err != nil {
			return err
		}
		shown, err := s.q.DeadLetters().Causes(ctx, &errand.CauseOptions{Limit: ofCauses, Hours: true})
		if err != nil {
			return err
		}
		for i := range l.causes {
			if at := slices.IndexFunc(shown, func(c errand.Cause) bool { return c.ID == l.causes[i].ID }); at >= 0 {
				l.causes[i].Hours = shown[at].Hours
			}
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
	if first || (l.relayed.version != l.version || !l.known) && time.Since(l.relayed.read) >= askEach {
		l.relayed, err = readRelayed(ctx, s.q, l.version)
		if s.met(err); err != nil && !errors.Is(err, errand.ErrCorrupt) { // a row of theirs keeps nobody from the rest
			return err
		}
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
	slices.SortStableFunc(page.Jobs, func(a, b errand.JobInfo) int { return laterDue(a.StartedAt, b.StartedAt) })
	l.longest, l.cut = page.Jobs[:min(len(page.Jobs), ofLongest)], page.Next != ""
	return err
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
	return !h.Probe && !h.Until.IsZero() && !h.Until.After(l.clock.Now)
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
	Held                                     int64 // of Ready
	Enqueued                                 int64
	Places                                   int // of all workers
}

func (l *look) sums() (s sums) {
	for i := range l.lanes {
		t := &l.lanes[i]
		s.Scheduled += t.Stats.Scheduled
		s.Ready += t.Stats.Ready
		if l.held(&t.Stats) {
			s.Held += t.Stats.Ready
		}
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
func (l *look) oldest() time.Time {
	if s := l.oldestLane(); s != nil {
		return s.OldestDue
	}
	return time.Time{}
}

// oldestLane returns the lane of the job that waits longest, nil if none waits.
func (l *look) oldestLane() (of *errand.LaneStats) {
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		if !s.OldestDue.IsZero() && (of == nil || s.OldestDue.Before(of.OldestDue)) && !l.held(s) {
			of = s
		}
	}
	return of
}
