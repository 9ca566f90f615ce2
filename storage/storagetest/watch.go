package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

// watch compares what callers of a Store see while their calls overlap. A call is decided
// at some moment between its begin and its return. watch finds what no choice of these
// moments explains.
//
// So it goes by what is certain: a lease is held from the return of the call that granted
// it to the begin of the first call that may end it. A job is untouched from the return of
// the call that inserted it to the begin of the first call that may change it, other than
// by a lease.
type watch struct {
	fail   func(format string, args ...any)
	limits map[string]int  // of the groups of a queue; 1 if it is not there
	loose  map[string]bool // queues whose jobs may be evicted by any call that inserts

	mu     sync.Mutex
	last   moment
	jobs   map[storage.ID]*watched
	leases map[storage.Lease]*granted
	groups map[storage.GroupState]*watchedGroup // only Queue and Group are set
	unique map[string][]*watched
	held   map[storage.Lane]*heldLane
	fired  map[int64]bool        // revisions of the schedule
	named  map[storage.ID]string // by duplicates, with their unique key
	freed  map[string]*freedKey
	now    time.Time // zero: how long keys are held for is not checked
	sums   sums
}

// moment is a place in the order of the begins and returns of calls, with the highest key
// and token that were returned before it.
type moment struct{ step, key, token int64 }

// watched is a job.
type watched struct {
	id       storage.ID
	job      storage.NewJob
	known    bool          // the call that inserted it has returned
	began    moment        // of that call
	until    time.Time     // it has its key at least until then; zero: not after its end
	back     int64         // the step of its return
	touched  bool          // by a call that may end or change it
	leased   bool          // at some time
	held     *granted      // for certain
	done     int           // ends as done
	redriven int           // times
	cancels  int           // calls that may have cancelled it
	deletes  int           // calls that may have deleted it
	unkept   bool          // it is deleted if it ends
	evicted  bool          // as was told
	expired  bool          // as was told
	died     int           // ends as dead
	was      []string      // what is known of it
	follower *watchedGroup // its group; nil: none
}

// granted is a lease.
type granted struct {
	storage.Lease
	of      *watched
	by      *desk
	ending  int // calls under way that may end it
	tries   int // calls that may have ended it
	applied int // those that have
}

// desk is an instance, and the leases of its callers.
type desk struct {
	s     storage.Store
	offer storage.Offer
	gone  atomic.Bool

	mu     sync.Mutex
	leases []storage.Leased
}

func (d *desk) isGone() bool { return d.gone.Load() }

// put adds leases.
func (d *desk) put(all ...storage.Leased) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range all {
		if !slices.ContainsFunc(d.leases, func(o storage.Leased) bool { return o.Lease == l.Lease }) {
			d.leases = append(d.leases, l)
		}
	}
}

// take takes some leases, at most n. A few stay, so that others take them too.
func (d *desk) take(rng *rand.Rand, n int) (out []storage.Leased) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range n {
		if len(d.leases) == 0 {
			break
		}
		i := rng.IntN(len(d.leases))
		l := d.leases[i]
		if slices.ContainsFunc(out, func(o storage.Leased) bool { return o.Lease == l.Lease }) {
			break
		}
		if out = append(out, l); rng.IntN(8) > 0 {
			d.leases = slices.Delete(d.leases, i, i+1)
		}
	}
	return out
}

// watchedGroup is a group.
type watchedGroup struct {
	name    string
	limit   int
	held    int // leases of its members, for certain
	waiting []*watched
}

// heldLane is a lane that is held and released.
type heldLane struct {
	since     int64 // the step of the return of the Hold that certainly is in force; 0: none is
	releasing int   // calls under way
	released  int64 // the step of the return of the last
}

// sums are numbers of the whole history.
type sums struct{ inserted, done, died, expired, expiredDead, redriven, evicted, evictedDead int64 }

func newWatch(fail func(format string, args ...any)) *watch {
	return &watch{
		fail: fail, limits: map[string]int{}, loose: map[string]bool{},
		jobs: map[storage.ID]*watched{}, leases: map[storage.Lease]*granted{}, groups: map[storage.GroupState]*watchedGroup{},
		unique: map[string][]*watched{}, held: map[storage.Lane]*heldLane{}, fired: map[int64]bool{}, named: map[storage.ID]string{},
		freed: map[string]*freedKey{},
	}
}

// begin says that a call begins.
func (w *watch) begin() moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next()
}

func (w *watch) next() moment {
	w.last.step++
	return w.last
}

// wrong reports what cannot be, with all that is known of a job.
func (w *watch) wrong(j *watched, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if j != nil {
		text += fmt.Sprintf("\njob %d, %+v:\n\t%s", j.id.Key(), j.job, strings.Join(j.was, "\n\t"))
	}
	w.fail("%s", text)
}

// note adds to what is known of j.
func (w *watch) note(j *watched, format string, args ...any) {
	j.was = append(j.was, fmt.Sprintf("%d: ", w.last.step)+fmt.Sprintf(format, args...))
}

// at returns the job with this ID.
func (w *watch) at(id storage.ID) *watched {
	j := w.jobs[id]
	if j == nil {
		j = &watched{id: id}
		w.jobs[id] = j
	}
	return j
}

// inserted says what an Enqueue has answered that began at c.
func (w *watch) inserted(c moment, jobs []storage.NewJob, out []storage.Enqueued) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	if len(out) != len(jobs) {
		w.wrong(nil, "Enqueue of %d jobs returned %d answers", len(jobs), len(out))
		return
	}
	for i, e := range out {
		if e.Duplicate {
			w.named[e.ID] = jobs[i].Unique
			continue
		}
		w.insert(c, jobs[i], e.ID)
	}
}

func (w *watch) insert(c moment, n storage.NewJob, id storage.ID) {
	j := w.at(id)
	if j.known || id.IsZero() {
		w.wrong(j, "Enqueue returned the ID of another job")
	}
	if id.Key() <= c.key {
		w.wrong(j, "it has a key no higher than %d, which was given before the call began", c.key)
	}
	j.known, j.job, j.began, j.back = true, n, c, w.last.step
	j.touched = j.touched || w.loose[n.Queue] || n.StartWithin > 0
	w.last.key = max(w.last.key, id.Key())
	w.sums.inserted++
	w.note(j, "inserted by a call begun at %d", c.step)
	if n.Unique != "" {
		for _, o := range w.unique[n.Unique] {
			if !o.touched && o.back < c.step && !n.Conflict.Replaces() {
				w.wrong(o, "it holds the key %q, and job %d was inserted with it", n.Unique, id.Key())
			}
		}
		w.takes(j)
	}
	if n.Group != "" {
		j.follower = w.group(n.Queue, n.Group)
		j.follower.waiting = append(j.follower.waiting, j)
		if j.held != nil { // leased before the call has returned
			w.count(j, 1)
		}
	}
}

func (w *watch) group(queue, name string) *watchedGroup {
	key := storage.GroupState{Queue: queue, Group: name}
	g := w.groups[key]
	if g == nil {
		g = &watchedGroup{name: name, limit: max(w.limits[queue], 1)}
		w.groups[key] = g
	}
	return g
}

// count adds to the leases of a group that are held for certain.
func (w *watch) count(j *watched, n int) {
	if g := j.follower; g != nil {
		if g.held += n; g.held > g.limit {
			w.wrong(j, "%d members of its group are leased, more than %d", g.held, g.limit)
		}
	}
}

// touch says that a call is about to begin which may end or change a job.
func (w *watch) touch(id storage.ID, what string, how func(j *watched)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.at(id)
	j.touched = true
	w.note(j, "%s", what)
	if how != nil {
		how(j)
	}
}

// redrive says how many jobs a Redrive has put back.
func (w *watch) redrive(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sums.redriven += int64(n)
}

// purge says that finished jobs are about to be purged.
func (w *watch) purge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		j.unkept = true
	}
}

// fire says that a firing has taken effect that was made for this revision.
func (w *watch) fire(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fired[revision] {
		w.wrong(nil, "two firings took effect that were made for revision %d", revision)
	}
	w.fired[revision] = true
}

// evicts says that these were evicted.
func (w *watch) evicts(all []storage.Evicted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	for _, e := range all {
		j := w.at(e.ID)
		w.note(j, "evicted")
		if j.held != nil || j.evicted || j.done > 0 {
			w.wrong(j, "it is evicted, and does not wait")
		}
		j.evicted, j.touched = true, true
		if w.sums.evicted++; e.Dead {
			w.sums.evicted--
			w.sums.evictedDead++
		}
	}
}

// expires says that these have ended by their windows.
func (w *watch) expires(all []storage.ExpiredJob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range all {
		j := w.at(e.ID)
		w.note(j, "expired as %s", e.State)
		if j.held != nil || j.done > 0 || j.expired && j.redriven == 0 {
			w.wrong(j, "it expires, and does not wait")
		}
		j.expired, j.touched, j.unkept = true, true, true
		w.sums.expired++
		if e.State == storage.Dead {
			w.sums.expired--
			w.sums.expiredDead++
		}
	}
}

// holding says that a Hold of a lane, without an end, has returned that began at c.
func (w *watch) holding(c moment, lane storage.Lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	if h := w.lane(lane); h.releasing == 0 && h.released < c.step && h.since == 0 {
		h.since = w.last.step
	}
}

// releasing says that a Release is about to begin; the result that it has returned.
func (w *watch) releasing(lane storage.Lane) (over func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.lane(lane)
	h.since = 0
	h.releasing++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		h.releasing--
		h.released = w.next().step
	}
}

func (w *watch) lane(lane storage.Lane) *heldLane {
	if w.held[lane] == nil {
		w.held[lane] = &heldLane{}
	}
	return w.held[lane]
}

// sure reports whether a job is there for certain: whether it is live, and untouched.
func (w *watch) sure(id storage.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[id]
	return j != nil && j.known && !j.touched
}

// settled checks what must hold of all jobs while no call is under way. all are those
// that there are, with their states.
func (w *watch) settled(all map[storage.ID]storage.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
	for id := range all {
		if j := w.jobs[id]; j == nil || !j.known {
			w.wrong(w.at(id), "nobody was told of job %d", id.Key())
		}
	}
	for id, key := range w.named {
		if j := w.at(id); !j.known || j.job.Unique != key {
			w.wrong(j, "a duplicate with the key %q names it, which never had that key", key)
		}
	}
	for _, j := range w.jobs {
		state, there := all[j.id]
		over := j.done > 0 || j.died > 0 || j.cancels > 0 || j.expired
		switch {
		case !j.known:
			w.wrong(j, "it was leased or ended, and nobody was told that it was inserted")
		case j.evicted && there:
			w.wrong(j, "it was evicted, and is %s", state)
		case !there && !j.evicted && (!over || !j.unkept && j.deletes == 0):
			w.wrong(j, "it is lost")
		case there && j.held != nil && state != storage.Running:
			w.wrong(j, "token %d is held, and it is %s", j.held.Token, state)
		case there && j.done > 0 && state != storage.Done:
			w.wrong(j, "it is done, and its state is %s", state)
		case there && j.done == 0 && state == storage.Done:
			w.wrong(j, "nobody has done it, and it is done")
		case there && state == storage.Dead && j.died == 0 && !j.expired:
			w.wrong(j, "nobody has ended it as dead, and it is dead")
		case there && state == storage.Cancelled && j.cancels == 0:
			w.wrong(j, "nobody has cancelled it, and it is cancelled")
		case there && !j.touched && state != storage.Scheduled && state != storage.Ready && state != storage.Running && state != storage.Blocked:
			w.wrong(j, "nobody has touched it, and it is %s", state)
		}
	}
}
