package storagetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// Memory is a database that lives in memory: the reference model that random
// histories are compared with, and a test double for what is built on a Store.
// It is written to be obviously right, not to be fast: every call looks at every live job, and
// some at every job. It starts no goroutine, sets no timer and reads no clock but for what an
// Offer and StoreTime tell, so it works inside a testing/synctest bubble.
//
// Each call of Open returns another instance on it, as if in a process of its
// own.
type Memory struct {
	mu        sync.Mutex
	salt      uint32
	instances []*instance
	open      *transaction  // that Tx has begun
	calls     int64         // of any kind, for Version
	ahead     time.Duration // by so much its clock is ahead of this machine's
	data
}

// tally is what is counted, and was.
type tally struct {
	totals  map[storage.Lane]storage.Totals
	samples samples
	deeds   []deed // never changed in place
}

// data is what is stored. A transaction works on a copy of it.
type data struct {
	lasted
	jobs      map[int64]*job
	unended   map[int64]bool        // keys of the live jobs, and of some that have ended since
	unique    map[string]storage.ID // who holds each unique key
	windows   map[string]window     // of keys
	behind    map[string]storage.ID // who waits behind the holder of each
	holds     []*held
	settings  map[storage.Lane]storage.Settings
	regroups  regroups
	graves    graves
	schedules map[string]*schedule
	throttles map[storage.Lane]*bucket // of queues and kinds
	lasts     map[storage.Lane]*last
	tally
	numbers   map[storage.Lane]int64 // of lanes
	successes map[storage.Lane]int64 // tokens of the last ones, of lanes in which one was unavailable
	mark      time.Time              // latest that a write was given
	shifting  bool
	topics    topics
	bounds    Bounds
}

// lasted are the last numbers that were given.
type lasted struct{ lastKey, lastToken, lastCause int64 }

// bulkStep is how many jobs one step of a redrive, purge or shift handles. It
// is small so that a caller who forgets to ask for the next step is found out.
const bulkStep = 100

// modelBounds are small for the same reason.
var modelBounds = Bounds{Promoted: 100, Expired: 50, Evicted: 120, Scheduled: 1200, DeadEvicted: 20, DeadLooked: 200}

// job is a job in any state.
type job struct {
	storage.Record // Policy is always the job's own
	endPolicy      []byte
	endError       string
	token          int64 // of the last lease
	previous       int64 // of the one before
	unspent        int64 // of the last attempt that was unavailable and cost nothing
	unspentError   string
	urgent         bool
	resets         int // of crashes, by checkpoints
	scope          storage.UniqueScope
	since          time.Time // what DueAt was counted from; zero if it was a date
	keepUntil      time.Time // finished
	cause          *cause    // dead
	blocks         bool      // dead: those of its group with higher keys
	due            bool      // blocked: it was ready when it was blocked
	keyUntil       time.Time // until when it is to hold its key at least
	placed         bool      // it was let into its group
	marks
	lease   lease // running
	windows windows
}

// marks is what a job keeps of what has happened to it.
type marks struct {
	redriven bool   // at some time
	schedule string // whose firing has enqueued it
	unproven bool   // it was reclaimed from one that is no Marker, and may have crashed
}

// lease is what is known of the holding of a running job.
type lease struct {
	token     int64
	until     time.Time
	holder    *instance
	started   bool
	startedAt time.Time
	stopping  bool
	ended     bool
	written   bool         // its start, by one that is no Marker
	behind    int          // jobs with which it was leased, see storage.Leased
	fate      storage.Fate // of the attempt, once its holder was found gone
}

// NewMemory returns an empty database.
func NewMemory() *Memory {
	return &Memory{salt: rand.Uint32(), data: data{
		jobs:    map[int64]*job{},
		unended: map[int64]bool{},
		unique:  map[string]storage.ID{},

		windows:   map[string]window{},
		behind:    map[string]storage.ID{},
		settings:  map[storage.Lane]storage.Settings{},
		throttles: map[storage.Lane]*bucket{},
		regroups:  regroups{ungrouped: map[string]bool{}},
		graves:    graves{evicted: map[storage.Lane]int64{}, dropped: map[storage.Lane]int64{}},
		lasts:     map[storage.Lane]*last{},
		tally:     tally{totals: map[storage.Lane]storage.Totals{}},
		numbers:   map[storage.Lane]int64{},
		successes: map[storage.Lane]int64{},
		schedules: map[string]*schedule{},
		bounds:    modelBounds,
	}}
}

// Bounds implements [DB].
func (m *Memory) Bounds() Bounds {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bounds
}

// Open returns another instance on the database. It implements all optional
// interfaces but [storage.Backuper]. The transactions of [storage.TxEnqueuer] are of a type
// of its own.
func (m *Memory) Open() storage.Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	in := &instance{
		m:         m,
		name:      fmt.Sprintf("memory-%d", len(m.instances)+1),
		seen:      map[int64]sighting{},
		ended:     map[int64]bool{},
		listeners: map[int]func(storage.Event){},
		evictees:  map[int]func(time.Time, []storage.Evicted){},
	}
	m.instances = append(m.instances, in)
	return in
}

// OpenBare returns another instance on the database that implements none of the
// optional interfaces.
func (m *Memory) OpenBare() storage.Store {
	in := m.Open().(*instance)
	in.unmarked = true
	return bare{in}
}

// bare hides all methods but those of a Store.
type bare struct{ storage.Store }

// of returns the instance that s is.
func (m *Memory) of(s storage.Store) *instance {
	switch wrapped := s.(type) {
	case bare:
		s = wrapped.Store
	case narrow:
		return wrapped.instance
	}
	switch s := s.(type) {
	case *amnesiac:
		return s.instance
	case *clocked:
		return s.instance
	}
	return s.(*instance)
}

// Kill lets an instance die as by kill -9: its lock drops, its leases and its
// notes stay.
func (m *Memory) Kill(s storage.Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in := m.of(s)
	in.closed, in.gone = true, true
	clear(in.listeners)
}

// Reboot lets an instance die as by a power cut: its lock drops, its leases
// stay, its notes are lost.
func (m *Memory) Reboot(s storage.Store) {
	m.Kill(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(s).notesLost = true
}

// enqueue adds a job, unless it is a duplicate: then the second result is nil.
func (m *Memory) enqueue(now time.Time, n storage.NewJob) (storage.Enqueued, *job) {
	n = m.withDefaults(n)
	created := floor(now)
	var earliest time.Time
	var follows bool
	if n.Conflict != nil {
		var e storage.Enqueued
		var decided bool
		if e, earliest, decided = m.conflict(now, &n, m.waiting(created, n.Unique, n.Conflict)); decided {
			return e, nil
		}
		if !earliest.After(created) { // the time is over
			earliest = time.Time{}
		}
		_, follows = m.holder(created, n.Unique)
		follows = follows && m.find(m.unique[n.Unique]) != nil && m.find(m.unique[n.Unique]).live()
		if n.Conflict.Mode == storage.Debounce {
			n.Delay = n.Conflict.Quiet
		}
	} else if holder, held := m.holder(created, n.Unique); held {
		m.renew(created, n.Unique)
		return storage.Enqueued{ID: holder, Duplicate: true, Gone: m.find(holder) == nil}, nil
	}
	m.lastKey++
	j := &job{scope: n.UniqueScope}
	j.Key = m.lastKey
	j.ID = storage.NewID(created, m.salt, j.Key)
	j.Queue, j.Kind, j.Priority = n.Queue, n.Kind, n.Priority
	j.CreatedAt, j.Timeout, j.Unique = created, n.Timeout, n.Unique
	j.Policy, j.Args, j.Headers = bytes.Clone(n.Policy), bytes.Clone(n.Args), bytes.Clone(n.Headers)
	j.Tags, j.Group = slices.Sorted(slices.Values(n.Tags)), n.Group
	m.put(j)
	m.total(j, storage.Totals{Enqueued: 1})
	if n.Delay > 0 {
		j.putAfter(created, now.Add(n.Delay))
	} else {
		j.putAt(created, n.DueAt)
	}
	delayed := n.Delay > 0 || earliest.After(j.DueAt)
	if earliest.After(j.DueAt) {
		j.putAfter(created, earliest)
	}
	if n.StartWithin > 0 || n.FinishWithin > 0 {
		j.windows.startWithin, j.windows.finishWithin, j.OnExpire = n.StartWithin, n.FinishWithin, n.OnExpire
		j.windows.begin(now, j.DueAt, delayed, n.Doubtful)
	}
	if j.Unique != "" {
		if n.UniqueFor > 0 {
			j.keyUntil = later(created, j.DueAt).Add(ceilDuration(n.UniqueFor))
		}
		if follows {
			m.behind[j.Unique] = j.ID
			m.blockBehind(j)
		} else {
			m.claim(j, j.keyUntil)
		}
	}
	m.join(j)
	if j.State == storage.Blocked && (m.hasPlace(j) || m.passes(j)) {
		m.regroup(j.Queue, j.Group, false)
	}
	return storage.Enqueued{ID: j.ID}, j
}

// putAt makes j ready if due is not after now, else scheduled.
func (j *job) putAt(now, due time.Time) {
	j.lease = lease{}
	j.Cancelling, j.urgent = false, false
	j.since = time.Time{}
	if due.IsZero() {
		due = now
	}
	j.DueAt = ceil(due)
	j.State = storage.Ready
	if j.DueAt.After(now) {
		j.State = storage.Scheduled
	}
}

// putAfter is putAt for a due time that is counted from now.
func (j *job) putAfter(now, due time.Time) {
	j.putAt(now, due)
	j.since = now
}

// end takes a job out of the live ones, into the state given.
func (m *Memory) end(now time.Time, j *job, state storage.State) {
	j.lease = lease{}
	j.Cancelling, j.urgent, j.unproven = false, false, false
	_, pass := m.groupRule(j.Queue)
	counted := j.placed || j.State == storage.Blocked
	j.State, j.EndedAt, j.placed, j.blocks = state, now, false, state == storage.Dead && j.Group != "" && !pass
	j.windows.start, j.windows.finish, j.windows.open = 0, 0, false
	m.total(j, map[storage.State]storage.Totals{storage.Done: {Done: 1}, storage.Cancelled: {Cancelled: 1}, storage.Expired: {Expired: 1}, storage.Dead: {Dead: 1}}[state])
	if state == storage.Dead {
		m.graves.died = append(m.graves.died, j)
	} else {
		j.Checkpoint = nil
	}
	if j.Unique != "" {
		m.releaseKey(now, j)
	}
	if counted {
		m.regroup(j.Queue, j.Group, false)
	}
}

// finish ends a job as done or cancelled.
func (m *Memory) finish(now time.Time, j *job, state storage.State, r storage.Retention) {
	m.end(now, j, state)
	keep := m.keepFor(j, r)
	j.keepUntil = now.Add(keep)
	if keep <= 0 {
		delete(m.jobs, j.Key)
	}
}

// take leases j to in.
func (m *Memory) take(j *job, in *instance, now time.Time, length time.Duration) {
	m.lastToken++
	j.previous, j.token = j.token, m.lastToken
	j.State, j.urgent = storage.Running, false
	j.lease = lease{
		token: m.lastToken, until: now.Add(length), holder: in, fate: j.lease.fate,
	}
	in.longest = max(in.longest, length)
}

// grant leases what x wants. Unless the result is for an Exchange it leases nothing of
// lanes that are ajar, and ends no job. It returns the lanes that are kept back.
func (in *instance) grant(now time.Time, x storage.Exchange, res *storage.ExchangeResult) (out []storage.Leased, kept map[storage.Lane]time.Time) {
	in.m.promote(now, in.reach(x.Wants))
	late := func(j *job) bool { // and ended, if it may be
		over, e := j.over(now)
		if over && res != nil {
			in.m.expire(now, j, e, &x)
			res.Expired = append(res.Expired, e)
		}
		return over
	}
	if res != nil {
		res.Expired = in.m.sweep(now, &x, in.reach(x.Wants))
	}
	wants, bytes := slices.Clone(x.Wants), 0
	calls := newCalls(x.Wants)
	for _, j := range in.m.liveWhere(func(j *job) bool { return j.urgent }, byKey) {
		if len(out) < x.Urgent && bytes < storage.LeaseBytes && slices.ContainsFunc(wants, j.in) && !late(j) {
			in.m.take(j, in, now, x.LeaseDuration)
			j.Attempt++
			out = append(out, j.leased())
			out[len(out)-1].Urgent = true
			bytes += out[len(out)-1].Bytes()
		}
	}
	if bytes >= storage.LeaseBytes {
		return out, nil
	}
	kept = in.m.keptBack(wants, now)
	ofQueue, through := map[string]int{}, map[storage.Lane]bool{} // lanes that are ajar of which a job is leased
	in.m.forgetPicks()
	takes := func(j *job) func(storage.Want) bool {
		return func(w storage.Want) bool { return w.N > 0 && j.in(w) && hasRoom(w, j.Queue, ofQueue[j.Queue]) }
	}
	may := func(j *job) bool {
		wanted := slices.ContainsFunc(wants, takes(j)) && !through[storage.Lane{Queue: j.Queue, Kind: j.Kind}]
		return wanted && !j.isKept(kept) && !in.m.isHeld(j, now) && (res != nil || len(in.m.probes(j)) == 0)
	}
	var first []*job
	for j := range in.m.inOrder(func(j *job) bool { return may(j) && in.m.hasTokens(j, now) }) {
		want := calls.choose(wants, takes(j), j)
		if want < 0 {
			continue
		}
		wants[want].N--
		calls.of[j] = want
		ofQueue[j.Queue]++
		through[storage.Lane{Queue: j.Queue, Kind: j.Kind}] = len(in.m.probes(j)) > 0
		in.m.pick(j)
		first = append(first, j)
	}
	inTime := slices.DeleteFunc(slices.Clone(first), late)
	if res != nil && len(inTime) < len(first) {
		res.NextDue = now
	}
	for _, j := range inTime {
		if j.State != storage.Ready { // blocked by one that has ended
			continue
		}
		probes := in.m.probes(j)
		in.m.take(j, in, now, x.LeaseDuration)
		in.m.pay(j, now)
		j.Attempt++
		for _, h := range probes {
			h.letThrough(j, now)
		}
		out = append(out, j.leased())
		out[len(out)-1].Probe = len(probes) > 0
		calls.heads = append(calls.heads, callHead{j, calls.of[j], len(out), len(probes) > 0})
		if bytes += out[len(out)-1].Bytes(); bytes >= storage.LeaseBytes {
			break
		}
	}
	picks := in.m.picks()
	in.m.forgetPicks()
	if next := in.m.nextToken(now, may); res != nil && !next.IsZero() && (res.NextDue.IsZero() || next.Before(res.NextDue)) {
		res.NextDue = next
	}
	in.m.pickAgain(picks)
	out = in.bring(now, &x, out, calls, wants)
	in.m.forgetPicks()
	return out, kept
}

// hasRoom reports whether w takes one more job of a queue, after n.
func hasRoom(w storage.Want, queue string, n int) bool {
	most, ok := w.EachOf[queue]
	if !ok {
		most = w.Each
	}
	return w.Each <= 0 || n < most
}

// held returns the job that l is a lease on, or nil if l is no longer held.
func (m *Memory) held(l storage.Lease) *job {
	j := m.jobs[l.Key]
	if j == nil || j.State != storage.Running || j.lease.token != l.Token {
		return nil
	}
	return j
}

// find returns the job with this ID, or nil.
func (m *Memory) find(id storage.ID) *job {
	if j := m.jobs[id.Key()]; j != nil && j.ID == id {
		return j
	}
	return nil
}

// put adds a live job, or puts it in the place of the one that has its key.
func (m *Memory) put(j *job) { m.jobs[j.Key], m.unended[j.Key] = j, true }

// live returns the live jobs. What has ended costs a look once.
func (m *Memory) live() iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for key := range m.unended {
			j := m.jobs[key]
			if j == nil || !j.live() {
				delete(m.unended, key)
			} else if !yield(j) {
				return
			}
		}
	}
}

// where returns the jobs that match, in the order of less.
func (m *Memory) where(match func(*job) bool, order func(a, b *job) int) []*job {
	return ordered(maps.Values(m.jobs), match, order)
}

// liveWhere is where for the live ones.
func (m *Memory) liveWhere(match func(*job) bool, order func(a, b *job) int) []*job {
	return ordered(m.live(), match, order)
}

// anyLive reports whether a live job matches.
func (m *Memory) anyLive(match func(*job) bool) bool {
	for j := range m.live() {
		if match(j) {
			return true
		}
	}
	return false
}

func ordered(all iter.Seq[*job], match func(*job) bool, order func(a, b *job) int) []*job {
	var out []*job
	for j := range all {
		if match(j) {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b *job) int { return cmp.Or(order(a, b), cmp.Compare(a.Key, b.Key)) })
	return out
}

func byDue(a, b *job) int      { return a.DueAt.Compare(b.DueAt) }
func byPriority(a, b *job) int { return cmp.Or(cmp.Compare(b.Priority, a.Priority), byDue(a, b)) }
func byEnd(a, b *job) int      { return a.EndedAt.Compare(b.EndedAt) }
func byKeep(a, b *job) int     { return a.keepUntil.Compare(b.keepUntil) }
func byKey(_, _ *job) int      { return 0 }

// record returns what Store.Job tells of j.
func (j *job) record() storage.Record {
	r := j.Record
	if l := &j.lease; j.State == storage.Running && l.started && !l.holder.notesLost && !l.holder.unmarked {
		r.StartedAt = l.startedAt
	}
	r.StartBy, r.Deadline = j.windows.ends()
	r.Error = j.endError
	if r.Error == "" && j.unspent == j.token {
		r.Error = j.unspentError
	}
	waits := j.State == storage.Scheduled || j.State == storage.Ready || j.State == storage.Blocked
	r.Unreached = waits && j.unspent != 0 && j.unspent == j.token
	if failures := j.failures(); r.Error == "" && len(failures) > 0 {
		r.Error = failures[len(failures)-1].Error
	}
	if j.State == storage.Dead && j.endPolicy != nil {
		r.Policy = j.endPolicy
	}
	r.Policy, r.Args, r.Headers = bytes.Clone(r.Policy), bytes.Clone(r.Args), bytes.Clone(r.Headers)
	r.History, r.Tags = slices.Clone(r.History), slices.Clone(r.Tags)
	r.Checkpoint, r.Result = bytes.Clone(r.Checkpoint), bytes.Clone(r.Result)
	if r.Progress != nil {
		r.Progress = new(*r.Progress)
	}
	return r
}

// leased returns what a holder is told of j.
func (j *job) leased() storage.Leased {
	startBy, deadline := j.windows.ends()
	origin, _ := storage.OriginOf(j.Tags)
	return storage.Leased{
		WriteStart: j.unproven,
		StartBy:    startBy, Deadline: deadline, Unsettled: j.windows.open && (!startBy.IsZero() || !deadline.IsZero()),
		Lease: storage.Lease{Key: j.Key, Token: j.lease.token},
		ID:    j.ID, Queue: j.Queue, Kind: j.Kind, Priority: j.Priority,
		Membership: storage.Membership{Group: j.Group, Behind: j.lease.behind},
		Counters:   j.Counters, CreatedAt: j.CreatedAt, DueAt: j.DueAt, Timeout: j.Timeout,
		Policy: bytes.Clone(j.Policy), Headers: bytes.Clone(j.Headers), Args: bytes.Clone(j.Args),
		Past: storage.Past{Previous: j.previous, Checkpoint: bytes.Clone(j.Checkpoint), Redriven: j.redriven, Origin: origin},
	}
}

// emit tells every instance of a commit by one of them. The lock must not be
// held, as a listener may call the store.
func (m *Memory) emit(by *instance, now time.Time, e *storage.Event) {
	m.mu.Lock()
	for _, j := range m.regroups.letIn {
		e = available(e, j)
	}
	m.regroups.letIn = nil
	if e == nil {
		m.mu.Unlock()
		return
	}
	var calls []func()
	for _, in := range m.instances {
		told := *e
		if in != by {
			told.Clock = floor(now)
		}
		for _, n := range slices.Sorted(maps.Keys(in.listeners)) {
			f := in.listeners[n]
			calls = append(calls, func() { f(told) })
		}
	}
	m.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// available adds to e that a job is now waiting for its due time, unless it is blocked.
func available(e *storage.Event, j *job) *storage.Event {
	if j.Queue == storage.BulkQueue {
		if e == nil {
			e = &storage.Event{}
		}
		e.Due, e.Schedules = time.Time{}, true
		return e
	}
	if j.State == storage.Blocked {
		return e
	}
	var due time.Time
	if j.State == storage.Scheduled {
		due = j.DueAt
	}
	if e == nil {
		return &storage.Event{Due: due}
	}
	if due.Before(e.Due) {
		e.Due = due
	}
	return e
}

// availableOf is available for those of many that wait.
func availableOf(jobs []*job) (e *storage.Event) {
	for _, j := range jobs {
		if j.State != storage.Running {
			e = available(e, j)
		}
	}
	return e
}

// floor and ceil give whole microseconds.
func floor(t time.Time) time.Time { return t.Round(0).Truncate(time.Microsecond) }

func ceil(t time.Time) time.Time {
	if f := floor(t); f.Before(t) {
		return f.Add(time.Microsecond)
	}
	return floor(t)
}

// begin locks the database for a call of in, unless the call is refused.
func (m *Memory) begin(ctx context.Context, in *instance) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	if in.closed {
		m.mu.Unlock()
		return storage.ErrClosed
	}
	m.calls++
	m.keepSample()
	in.shown, in.heard = time.Now().Add(m.ahead), time.Now()
	return nil
}
