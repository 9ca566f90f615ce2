package storagetest

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// instance is one Store on a Memory.
type instance struct {
	m         *Memory
	name      string
	closed    bool               // calls are refused
	gone      bool               // its registration was dropped
	notesLost bool               // with the machine
	unmarked  bool               // it is no Marker: nothing is known of its handlers
	narrow    bool               // it is a Promoter: its exchanges leave other lanes as they are
	hasty     bool               // it waits for nobody
	longest   time.Duration      // lease that it has asked for
	seen      map[int64]sighting // by job key: leases of others, as of the last Reclaim
	ended     map[int64]bool     // by token: leases that its FinishTx has ended
	listeners map[int]func(storage.Event)
	evictees  map[int]func(time.Time, []storage.Evicted)
	lastFunc  int
	offers    []*offer
	doc       []byte // that it shows

	shown time.Time // by the clock of the database at its latest call
	heard time.Time // when that was
}

// sighting is a lease of another instance, and when it was first seen so.
type sighting struct {
	token int64
	until time.Time
	since time.Duration
}

var _ interface {
	storage.Store
	storage.Notifier
	storage.Handoff
	storage.Scheduler
	storage.Timekeeper
	storage.Pulser
	storage.Marker
	storage.Peers
	storage.Publisher
	storage.Versioner
	storage.Historian
	storage.Auditor
	storage.Compacter
	storage.Topics
	storage.TxEnqueuer
} = (*instance)(nil)

// Enqueue implements [storage.Store].
func (in *instance) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return nil, err
	}
	out, a, err := m.enqueueAll(now, jobs)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	m.didAdd(ctx, out)
	in.end(a)
	return out, nil
}

// enqueueAll adds the jobs of a call, all of them or none.
func (m *Memory) enqueueAll(now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, a *admission, err error) {
	m.wrote(now)
	a = &admission{m: m, now: now, evicted: m.newEvictions()}
	err = m.atomically(func() (err error) {
		out, err = a.all(jobs)
		return err
	})
	return out, a, err
}

// admission is a call that adds jobs.
type admission struct {
	m                  *Memory
	now                time.Time
	evicted            *evictions
	inserted, replaced []*job
}

// all adds jobs, and answers for each.
func (a *admission) all(jobs []storage.NewJob) ([]storage.Enqueued, error) {
	out := make([]storage.Enqueued, 0, len(jobs))
	for i, n := range jobs {
		if err := a.m.refuses(floor(a.now), &n, i, a.evicted.first); err != nil {
			return nil, err
		}
		e, j, err := a.m.admit(a.now, n, a.evicted)
		if err != nil {
			return nil, err
		}
		if j != nil {
			a.inserted = append(a.inserted, j)
		}
		if e.Replaced {
			a.replaced = append(a.replaced, a.m.find(e.ID))
		}
		out = append(out, e)
	}
	return out, nil
}

// end ends the call, and unlocks the database.
func (in *instance) end(a *admission) {
	pass := in.handOver(floor(a.now), a.inserted)
	event := availableOf(append(a.inserted, a.replaced...))
	in.m.mu.Unlock()
	in.tellEvicted(a.now, a.evicted)
	pass()
	in.m.emit(in, a.now, event)
}

// Exchange implements [storage.Store].
func (in *instance) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return storage.ExchangeResult{}, err
	}
	if x.Repeats != 0 { // its answers are not lost
		m.mu.Unlock()
		return storage.ExchangeResult{}, storage.ErrNotFound
	}
	given := now
	now = m.wrote(now)
	m.regroups.turn, m.graves.died = now, nil
	var res storage.ExchangeResult
	var event *storage.Event
	for _, l := range x.Extend {
		res.Extended = append(res.Extended, in.extend(now, l, x.LeaseDuration))
	}
	for _, l := range x.Start {
		res.Started = append(res.Started, in.start(now, l))
	}
	for _, l := range x.Stop {
		if j := m.held(l); j != nil && in.unmarked {
			j.lease.written, j.lease.startedAt = false, time.Time{}
		}
	}
	m.regroups.later = true
	for i, f := range x.Finish {
		r := in.finish(now, f, x.Retention)
		res.Finished = append(res.Finished, r)
		if j := m.jobs[f.Key]; (r == storage.Applied || r == storage.Spent) && j != nil && (j.State == storage.Ready || j.State == storage.Scheduled) {
			event = available(event, j)
		}
		added, jobs := m.enqueueThen(given, f.Follows(r))
		for _, j := range jobs {
			event = available(event, j)
		}
		if added != nil {
			if res.Then == nil {
				res.Then = map[int][]storage.Enqueued{}
			}
			res.Then[i] = added
		}
	}
	m.regroupNoted()
	var holds []storage.Lane
	for _, n := range x.Hold {
		if m.putHold(given, n) {
			holds = append(holds, n.Lane)
		}
	}
	for _, n := range x.Release {
		if m.takeHold(n.Lane, n.Reason, now) != nil {
			holds = append(holds, n.Lane)
		}
	}
	if x.Wanted()+x.Urgent > 0 {
		holds = append(holds, m.settle(given, x.Doubtful)...)
		var kept map[storage.Lane]time.Time
		if !x.Doubtful {
			m.settleWindows(given, in.reach(x.Wants))
		}
		last := m.lastKey
		res.Leased, kept = in.grant(now, x, &res)
		for key := last + 1; key <= m.lastKey; key++ { // what follows jobs that have died
			if j := m.jobs[key]; j.State != storage.Running {
				event = available(event, j)
			}
		}
		for _, l := range res.Leased {
			for _, h := range m.probes(m.jobs[l.Key]) {
				holds = append(holds, h.Lane)
			}
		}
		for _, end := range []time.Time{m.holdEnds(x.Wants, now), m.nextChange(in.reach(x.Wants))} {
			res.NextDue = earlier(res.NextDue, end)
		}
		for _, until := range kept {
			if res.NextDue.IsZero() || until.Before(res.NextDue) {
				res.NextDue = until
			}
		}
		if end := m.nextEnd(in.reach(x.Wants)); !end.IsZero() && end.Before(now) { // it has passed
			res.NextDue = now
		}
	}
	if len(holds) > 0 {
		event = &storage.Event{Holds: holds} // due at once
	}
	m.regroups.turn = time.Time{}
	evicted := m.evictDead()
	m.mu.Unlock()
	in.tellEvicted(given, evicted)
	m.emit(in, now, event)
	return res, nil
}

func (in *instance) extend(now time.Time, l storage.Lease, length time.Duration) storage.ItemResult {
	j := in.m.held(l)
	if j == nil {
		return in.notHeld(l)
	}
	j.lease.until = now.Add(length)
	in.longest = max(in.longest, length)
	if j.Cancelling {
		return storage.Cancelling
	}
	return storage.Applied
}

// start writes that the handler of a lease is about to be called, unless there are notes.
func (in *instance) start(now time.Time, l storage.Lease) storage.ItemResult {
	j := in.m.held(l)
	if j == nil {
		return in.notHeld(l)
	}
	if in.unmarked {
		j.lease.written, j.lease.startedAt = true, now
	}
	return storage.Applied
}

func (in *instance) finish(now time.Time, f storage.Finish, r storage.Retention) storage.ItemResult {
	m := in.m
	j := m.held(f.Lease)
	if j == nil {
		return in.notHeld(f.Lease)
	}
	e := f.Effect(j.Cancelling)
	if e.State == "" {
		return storage.Refused
	}
	lane := storage.Lane{Queue: j.Queue, Kind: j.Kind}
	success, watched := m.successes[lane]
	switch {
	case f.Outcome == storage.OutcomeDone && watched:
		m.successes[lane] = max(success, f.Token)
	case f.Outcome != storage.OutcomeUnavailable:
	default:
		m.successes[lane] = success
		if f.Spent != nil && f.Since != 0 && success > f.Since {
			spent := *f.Spent
			spent.Lease = f.Lease
			if result := in.finish(now, spent, r); result != storage.Applied {
				return result
			}
			return storage.Spent
		}
		f.Failure = nil
		if e.State == storage.Ready { // else it was asked to stop
			j.unspent, j.unspentError = f.Token, f.Error
		}
	}
	failed := f.Failure != nil && f.Outcome != storage.OutcomeReturned
	if failed {
		j.remember(entry(*f.Failure, j.Attempt, now, in.name))
	}
	j.Counters = e.Counters(j.Counters)
	j.unproven = j.unproven && e.KeepCrashes
	switch e.State {
	case storage.Ready:
		if f.Outcome == storage.OutcomeReturned {
			m.giveBack(j)
		}
		if j.Attempt > 0 {
			j.windows.start = 0
		}
		place := j.DueAt
		j.putAfter(now, f.DueAt)
		if e.KeepPlace && f.DueAt.IsZero() {
			j.DueAt = place // it was ready, whatever the clock says now
		}
		if limit, _ := m.groupRule(j.Queue); limit > 1 && j.State == storage.Scheduled && !f.Stays {
			j.placed = false
		}
		m.regroup(j.Queue, j.Group, false)
	case storage.Dead:
		j.Reason, j.endError, j.endPolicy, j.cause = f.Reason, f.Error, slices.Clone(f.Policy), m.causeOf(now, lane, f.Reason, f.Cause)
		m.end(now, j, storage.Dead)
		j.keepEnd(&f)
	default:
		j.endError = f.Error
		m.finish(now, j, e.State, r)
		j.keepEnd(&f)
	}
	if failed && m.jobs[j.Key] == j && slices.Contains([]storage.Outcome{storage.OutcomeRetry, storage.OutcomeCrashed, storage.OutcomeDead}, f.Outcome) {
		m.total(j, storage.Totals{Failed: 1})
	}
	m.noteEnd(now, lane, j, f.Outcome == storage.OutcomeDone, failed || e.State == storage.Dead)
	return storage.Applied
}

// entry returns the entry of the history for a failure.
func entry(n storage.NewFailure, attempt int, at time.Time, by string) storage.Failure {
	return storage.Failure{
		Attempt: attempt, At: at, Phase: n.Phase, Error: n.Error, Stack: n.Stack, Duration: n.Duration,
		Instance: cmp.Or(n.Instance, by), RetryAfter: n.RetryAfter,
	}
}

// promote makes due scheduled jobs ready, of those that match.
func (m *Memory) promote(now time.Time, match func(*job) bool) {
	due := m.liveWhere(func(j *job) bool { return j.State == storage.Scheduled && !j.DueAt.After(now) && match(j) }, byDue)
	due = due[:within(len(due), m.bounds.Promoted)]
	for _, j := range due {
		j.State = storage.Ready
	}
	m.findPlaces(due...)
}

// Reclaim implements [storage.Store].
func (in *instance) Reclaim(ctx context.Context, now time.Time, mono, length time.Duration, limit int) ([]storage.Reclaimed, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return nil, err
	}
	now = m.wrote(now)
	var out []storage.Reclaimed
	var lanes []storage.Lane
	for _, j := range in.reclaimable(mono) {
		if len(out) >= limit {
			break
		}
		lanes = append(lanes, m.letNext(j, now)...)
		out = append(out, in.reclaim(now, j, length))
	}
	m.mu.Unlock()
	if len(lanes) > 0 {
		m.emit(in, now, &storage.Event{Holds: lanes})
	}
	return out, nil
}

// reclaimable notes which leases of others there are at mono, and returns those
// whose holder is gone.
func (in *instance) reclaimable(mono time.Duration) []*job {
	seen := map[int64]sighting{}
	out := in.m.liveWhere(func(j *job) bool {
		if j.State != storage.Running || j.lease.holder == in {
			return false
		}
		s, ok := in.seen[j.Key]
		if !ok || s.token != j.lease.token || !s.until.Equal(j.lease.until) {
			s = sighting{j.lease.token, j.lease.until, mono}
		}
		seen[j.Key] = s
		return j.lease.holder.gone || !j.lease.holder.closed && mono-s.since >= j.lease.holder.longest
	}, byKey)
	in.seen = seen
	return out
}

func (in *instance) reclaim(now time.Time, j *job, length time.Duration) storage.Reclaimed {
	holder, startedAt := j.lease.holder, time.Time{}
	if j.lease.fate == 0 {
		j.lease.fate = j.lease.fateNow()
		if holder.gone && (holder.unmarked || !holder.notesLost) {
			startedAt = j.lease.startedAt
		}
	}
	in.m.take(j, in, now, length)
	leased := j.leased()
	leased.WriteStart = false
	j.unproven = j.unproven || holder.unmarked
	return storage.Reclaimed{
		Leased: leased, Fate: j.lease.fate, StartedAt: startedAt, Holder: holder.name, Cancelling: j.Cancelling,
	}
}

// Pulse implements [storage.Pulser].
func (in *instance) Pulse() error {
	if err := in.m.begin(context.Background(), in); err != nil {
		return err
	}
	defer in.m.mu.Unlock()
	for _, other := range in.m.instances {
		for key := range other.seen {
			if j := in.m.jobs[key]; j != nil && j.lease.holder == in {
				delete(other.seen, key)
			}
		}
	}
	return nil
}

// fateNow tells from the holder and the notes what became of the attempt.
func (l lease) fateNow() storage.Fate {
	switch {
	case l.holder.gone && l.holder.unmarked && l.written:
		return storage.Crashed
	case !l.holder.gone, l.holder.notesLost, l.holder.unmarked, l.ended, l.started && l.stopping:
		return storage.Cut
	case l.started:
		return storage.Crashed
	default:
		return storage.Unstarted
	}
}

// Started implements [storage.Marker].
func (in *instance) Started(l storage.Lease, now time.Time) error {
	if err := in.m.begin(context.Background(), in); err != nil {
		return err
	}
	in.m.mu.Unlock()
	return in.note(l, func(l *lease) { l.started, l.startedAt, l.stopping, l.ended = true, floor(now), false, false })
}

// Stopping implements [storage.Marker].
func (in *instance) Stopping(l storage.Lease) error {
	return in.note(l, func(l *lease) { l.stopping = l.started })
}

// Ended implements [storage.Marker].
func (in *instance) Ended(l storage.Lease) error {
	return in.note(l, func(l *lease) { l.ended = true })
}

// note writes a note; those of the end also after Close.
func (in *instance) note(l storage.Lease, write func(*lease)) error {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	for _, m := range in.m.versions() {
		if j := m.held(l); j != nil && !in.gone {
			write(&j.lease)
		}
	}
	if in.closed && !in.gone {
		in.resign()
	}
	return nil
}

// Job implements [storage.Store].
func (in *instance) Job(ctx context.Context, id storage.ID) (storage.Record, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return storage.Record{}, err
	}
	defer in.m.mu.Unlock()
	j := in.m.find(id)
	if j == nil {
		return storage.Record{}, storage.ErrNotFound
	}
	return j.record(), nil
}

// Cancel implements [storage.Store].
func (in *instance) Cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
	if err := in.m.beginWrite(ctx, in); err != nil {
		return "", err
	}
	state, err := in.m.cancel(ctx, now, id, keep)
	in.m.mu.Unlock()
	if err != nil {
		return "", err
	}
	var event *storage.Event
	if state == storage.Running {
		event = &storage.Event{Cancel: true}
	}
	in.m.emit(in, now, event)
	return state, nil
}

func (m *Memory) cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
	now = m.wrote(now)
	j := m.find(id)
	if j == nil {
		return "", storage.ErrNotFound
	}
	switch j.State {
	case storage.Scheduled, storage.Ready, storage.Blocked:
		m.finish(now, j, storage.Cancelled, keep)
		m.did(ctx, 1, false)
	case storage.Running:
		j.Cancelling = true
		m.did(ctx, 1, false)
	}
	return j.State, nil
}

// ReleaseUnique implements [storage.Store].
func (in *instance) ReleaseUnique(ctx context.Context, key string) (storage.ID, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return storage.ID{}, err
	}
	defer m.mu.Unlock()
	holder, ok := m.unique[key]
	if !ok {
		return storage.ID{}, storage.ErrNotFound
	}
	m.did(ctx, 0, false)
	j := m.find(holder)
	if j != nil {
		j.scope = storage.UniqueLive
	}
	if j != nil && j.live() {
		delete(m.windows, key)
		return holder, nil
	}
	delete(m.unique, key)
	delete(m.windows, key)
	return storage.ID{}, nil
}

// Counts implements [storage.Store].
func (in *instance) Counts(ctx context.Context) ([]storage.Count, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer in.m.mu.Unlock()
	n := map[storage.Count]int64{}
	for _, j := range in.m.jobs {
		n[storage.Count{Queue: j.Queue, Kind: j.Kind, State: j.State}]++
	}
	var out []storage.Count
	for c, n := range n {
		c.N = n
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b storage.Count) int {
		return cmp.Or(
			strings.Compare(a.Queue, b.Queue),
			strings.Compare(a.Kind, b.Kind),
			strings.Compare(string(a.State), string(b.State)),
		)
	})
	return out, nil
}

// Close implements [storage.Store].
func (in *instance) Close() error {
	if err := in.m.beginWrite(context.Background(), in); errors.Is(err, storage.ErrClosed) {
		return nil
	} else if err != nil {
		return err
	}
	defer in.m.mu.Unlock()
	in.closed = true
	clear(in.listeners)
	left := &instance{name: in.name, gone: true} // holds what no handler runs of
	for j := range in.m.live() {
		if j.State == storage.Running && j.lease.holder == in && !j.lease.runs() {
			j.lease.holder, j.lease.startedAt = left, time.Time{}
		}
	}
	in.resign()
	return nil
}

// resign drops the registration, unless a handler runs.
func (in *instance) resign() {
	in.gone = !in.m.anyLive(func(j *job) bool { return j.State == storage.Running && j.lease.holder == in && j.lease.runs() })
}

// runs reports whether the handler of a lease runs, as far as is known.
func (l lease) runs() bool { return l.holder.unmarked || l.started && !l.ended }

// Alone implements [storage.Peers].
func (in *instance) Alone() bool {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	for _, other := range in.m.instances {
		if other != in && other.longest > 0 && !other.gone {
			return false
		}
	}
	return !in.m.anyLive(func(j *job) bool { return j.State == storage.Running && j.lease.holder != in })
}

// Notify implements [storage.Notifier]. Its functions are called by the
// goroutine that commits.
func (in *instance) Notify(f func(storage.Event)) (cancel func()) {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	in.lastFunc++
	n := in.lastFunc
	in.listeners[n] = f
	return func() {
		in.m.mu.Lock()
		defer in.m.mu.Unlock()
		delete(in.listeners, n)
	}
}

// enqueueThen enqueues what follows a job that has ended. It returns the answers, and the jobs
// that were added.
func (m *Memory) enqueueThen(now time.Time, then []storage.NewJob) (out []storage.Enqueued, added []*job) {
	for i := range then {
		var held *storage.DuplicateError
		if errors.As(m.refuses(now, &then[i], 0, math.MaxInt64), &held) {
			out = append(out, storage.Enqueued{ID: held.ID, Duplicate: true, Gone: held.Gone})
			continue
		}
		e, j := m.enqueue(now, then[i])
		if out = append(out, e); j != nil {
			added = append(added, j)
		}
	}
	return out, added
}
