package rules

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// Tx is what the calls of one transaction know of rows: as they were read, and as the decisions
// have left them. A store locks and reads what a Need names, and says so to the Tx, also that
// something is not there. Then a call decides, and the store writes the Changes. The zero value
// knows nothing. It is for one goroutine.
//
// Calls of one transaction may follow each other: each knows what those before it have left, and
// nothing is read or written between them.
type Tx struct {
	need    Need // what was read, sorted
	now     time.Time
	turns   int64 // the time of an exchange, see Group.Settle
	keys    table[string, keyRow]
	groups  table[string, groupRow]
	rows    table[int64, Row]
	lives   bool     // all of Need.Jobs were read
	fresh   []int64  // keys for jobs that enter
	first   int64    // of the call
	touched []string // groups to settle
	moved   int
	settled Moves // of the decision under way
	changes Changes
}

// keyRow is a unique key in a Tx.
type keyRow struct {
	Key
	live [2]int64 // the jobs of Were that were live, 0 for others
	read [2]bool  // whether Were was read
}

// groupRow is a group in a Tx.
type groupRow struct {
	Group
	members bool        // whether Members were read
	most    int64       // how many that wait were to be read
	left    int         // how many of these are still to come
	pass    bool        // its dead members block nobody any more
	touched bool        // it is to be settled
	live    []memberRow // as they were read
	// The first of those that wait, and the first that is live: most groups have no others.
	waits [1]int64
	lives [1]memberRow
}

// memberRow is a live member as it was read. It becomes a Row once a decision is about it.
type memberRow struct {
	job int64
	is  Standing
}

// Begin begins a call, as of now. turns is the time of an exchange, see Group.Settle, and else zero.
func (t *Tx) Begin(now time.Time, turns int64) { t.now, t.turns, t.first = now, turns, 0 }

// Reset forgets all that was read and decided. What is read after it is for n, which is sorted.
func (t *Tx) Reset(n Need) {
	t.need = n
	t.keys.clear(len(n.Keys))
	t.groups.clear(len(n.Groups))
	t.rows.clear(n.Fresh)
	clear(t.changes.Jobs)
	clear(t.changes.Keys)
	t.fresh, t.touched, t.first, t.moved, t.lives = t.fresh[:0], t.touched[:0], 0, 0, false
}

// ReadKey takes note of who has a unique key, or waits for it if behind is set. Both are to be said of
// each key, with a zero is if it is nobody. live says whether that job is live, so that ReadJob is to be
// called too if it is behind or the Conflict of the key needs it. kept says whether it has ended and is
// in a table.
func (t *Tx) ReadKey(name string, behind bool, is Keeper, live, kept bool) {
	k := t.keys.get(name)
	if k == nil {
		k = t.keys.add(name)
		k.Name = name
	}
	slot := 0
	if behind {
		slot, k.Behind = 1, is
	} else {
		k.Holder, k.Live, k.Kept = is, live, kept
	}
	k.read[slot] = true
	if k.Were[slot] = is; live {
		k.live[slot] = is.Job
	}
}

// ReadJob takes note of a live job that has a unique key, or waits for one.
func (t *Tx) ReadJob(j Job) {
	if r := t.row(j); !r.work {
		r.work, r.Is.Priority, r.Is.Args = true, j.Priority, j.Args
	}
}

// ReadLives takes note that all of [Need.Jobs] are read: those that ReadLive is not told of are not live.
func (t *Tx) ReadLives() { t.lives = true }

// ReadLive takes note of a live job of [Need.Jobs].
func (t *Tx) ReadLive(j Job) {
	r := t.row(j)
	j.Priority, j.Args = r.Is.Priority, r.Is.Args
	r.live, r.Was, r.Is = true, j.standing(), j
}

// Live returns a job of [Need.Jobs], as the decisions have left it. It has no key if it is not live.
func (t *Tx) Live(job int64) Job {
	if r, _ := t.live(job); r != nil {
		return r.Is
	}
	return Job{}
}

// Row returns what was decided of a job, nil if nothing was read of it. It is valid until the next Reset.
func (t *Tx) Row(job int64) *Row { return t.rows.get(job) }

// live returns a job of [Need.Jobs], nil if it is not live.
func (t *Tx) live(job int64) (*Row, error) {
	if _, ok := slices.BinarySearch(t.need.Jobs, job); !ok || !t.lives {
		return nil, unread("a job")
	}
	if r := t.rows.get(job); r != nil && r.live && !r.ended {
		return r, nil
	}
	return nil, nil
}

// row returns the row of a job, which is as j says if no row is there yet.
func (t *Tx) row(j Job) *Row {
	r := t.rows.get(j.ID)
	if r == nil {
		r = t.rows.add(j.ID)
		r.Was, r.Is = j.standing(), j
	}
	return r
}

// ReadGroup takes note of a group, of which ReadMember says those that wait and, with members, the
// others. waiting is how many that wait it says at least, as far as is known before they are read, and
// most as how many were to be read.
func (t *Tx) ReadGroup(g Group, members bool, waiting int, most int64) {
	*t.groups.add(g.Name) = groupRow{Group: g, members: members, most: most, left: waiting}
}

// ReadMember takes note of a member of a group that was read, which waits, has a place, or is dead
// and blocks others. It counts neither for Taken nor for Dead.
func (t *Tx) ReadMember(j Job) {
	g := t.groups.get(j.Group)
	if g.live == nil {
		g.live, g.Waiting = g.lives[:0], g.waits[:0]
	}
	if j.Role != Waits {
		g.Members = append(g.Members, j.member())
	} else if i, ok := slices.BinarySearch(g.Waiting, j.ID); !ok {
		g.Waiting = slices.Insert(g.Waiting, i, j.ID)
		g.More = int64(len(g.Waiting)) >= g.most
		g.left--
	}
	if j.Role != Blocks {
		g.live = append(g.live, memberRow{j.ID, j.standing()})
	}
}

// ReadFresh takes note of a key for a job that enters.
func (t *Tx) ReadFresh(id int64) { t.fresh = append(t.fresh, id) }

// Key returns a unique key for a job with a Conflict, which may be nil. It returns [ErrNotLoaded] if the key was
// not read, or the job that the Conflict may change.
func (t *Tx) Key(name string, c *storage.Conflict) (*Key, error) {
	k, last, err := t.key(name, c)
	if err != nil {
		return nil, err
	}
	if k.Waiter = nil; last != nil {
		k.Waiter = last.waiting()
	}
	return &k.Key, nil
}

// key returns a key, and the job that a Conflict may change. That is nil if there is none.
func (t *Tx) key(name string, c *storage.Conflict) (*keyRow, *Row, error) {
	k := t.keys.get(name)
	if k == nil || !k.read[0] || !k.read[1] {
		return nil, nil, unread("a key")
	}
	behind, err := t.jobOf(k, k.Behind.Job)
	if err != nil {
		return nil, nil, err
	}
	if behind != nil {
		k.Dated = behind.Is.State == storage.Blocked && !behind.Is.WasDue && behind.Is.Delay == 0
	}
	if !c.Replaces() {
		return k, nil, nil
	}
	if n, _ := t.need.key(name); !n.Conflict.Replaces() {
		return nil, nil, unread("who waits for a key")
	}
	last, err := t.jobOf(k, k.Last().Job)
	if err != nil || last == nil {
		return k, nil, err
	}
	if !last.work || c.Merge != nil && last.Does == nil && last.Is.Args == nil {
		return nil, nil, unread("what a job does")
	}
	return k, last, nil
}

// jobOf returns a job that has a key or waits for it, nil if it is not live.
func (t *Tx) jobOf(k *keyRow, job int64) (*Row, error) {
	r := t.rows.get(job)
	switch {
	case r != nil && r.ended:
		return nil, nil
	case r == nil && job != 0 && slices.Contains(k.live[:], job):
		return nil, unread("the job of a key")
	}
	return r, nil
}

// Group returns what [Group.Reads] says is needed for Settle with anew. It returns [ErrNotLoaded] if that was
// not read.
func (t *Tx) Group(name string, anew bool) (Group, error) {
	g, err := t.group(name)
	if err != nil {
		return Group{}, err
	}
	members, waiting := g.Reads(anew)
	if members && !g.complete() || g.More && int64(len(g.Waiting)) < waiting {
		return Group{}, unread("members of a group")
	}
	return g.Group, nil
}

// complete reports whether all Members are known.
func (g *groupRow) complete() bool {
	taken, blocks := int64(0), false
	for _, m := range g.Members {
		if m.Role == Placed {
			taken++
		} else {
			blocks = true
		}
	}
	return taken == g.Taken && blocks == g.Dead
}

// Knows reports whether a group was read.
func (t *Tx) Knows(group string) bool { return t.groups.get(group) != nil }

// Alone is [Group.Alone] for a group that was read.
func (t *Tx) Alone(group string, key int64) bool {
	g := t.groups.get(group)
	return g != nil && g.Alone(key)
}

func (t *Tx) group(name string) (*groupRow, error) {
	g := t.groups.get(name)
	if g == nil {
		return nil, unread("a group")
	}
	if g.left > 0 {
		return nil, unread("members that wait")
	}
	return g, nil
}

// member returns a live member of a group that was read or is new.
func (t *Tx) member(g *groupRow, job int64) (*Row, error) {
	r := t.rows.get(job)
	if r == nil {
		if i := slices.IndexFunc(g.live, func(m memberRow) bool { return m.job == job }); i >= 0 {
			is := Job{ID: job, Group: g.Name}
			is.stand(g.live[i].is)
			r = t.row(is)
		}
	}
	if r == nil || r.ended {
		return nil, unread("a member")
	}
	return r, nil
}

// ErrNotLoaded says that a rule is about rows that were not read.
var ErrNotLoaded = errors.New("errand: a rule is about rows that it has not loaded")

// unread is what was asked for and was not read. It is [ErrNotLoaded].
type unread string

func (u unread) Error() string { return ErrNotLoaded.Error() + ": " + string(u) }

func (unread) Unwrap() error { return ErrNotLoaded }

// table is rows in the order of their keys.
type table[K cmp.Ordered, R any] struct {
	keys  []K
	all   []*R
	block []R  // the next rows are here
	spare []*R // or here: those that were cleared, a few of them
}

// spareRows is how many rows a table keeps that it does not need.
const spareRows = 16

// get returns a row, or nil.
func (t *table[K, R]) get(key K) *R {
	if i, ok := slices.BinarySearch(t.keys, key); ok {
		return t.all[i]
	}
	return nil
}

// add adds a row, which is zero.
func (t *table[K, R]) add(key K) *R {
	var r *R
	switch last := len(t.spare) - 1; {
	case last >= 0:
		r, t.spare = t.spare[last], t.spare[:last]
	case len(t.block) == 0:
		t.block = make([]R, min(max(len(t.all), 2), 16))
		fallthrough
	default:
		r, t.block = &t.block[0], t.block[1:]
	}
	i, _ := slices.BinarySearch(t.keys, key)
	t.keys, t.all = slices.Insert(t.keys, i, key), slices.Insert(t.all, i, r)
	return r
}

// clear removes all rows, and makes room for n.
func (t *table[K, R]) clear(n int) {
	for _, r := range t.all[:min(len(t.all), spareRows-len(t.spare))] {
		var zero R
		*r = zero
		t.spare = append(t.spare, r)
	}
	clear(t.all)
	t.keys, t.all = slices.Grow(t.keys[:0], n), slices.Grow(t.all[:0], n)
	if len(t.spare)+len(t.block) < n {
		t.block = make([]R, n)
	}
}
