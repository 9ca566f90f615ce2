package storagetest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

var (
	overlapHistories = flag.Int("overlap.histories", 0, "how many histories RunOverlapping runs; 0: as many as it is asked for")
	overlapSeed      = flag.Uint64("overlap.seed", 0, "the seed of the first history of RunOverlapping; 0: any")
)

// The features that overlapping histories use, beside Enqueue, Exchange, Reclaim, Job and
// Counts of plain jobs.
var features = []string{
	"cancel", "caps", "change", "checkpoint", "conflicts", "delay", "delete", "expiry", "groups", "handoff", "holds", "keys",
	"list", "priority", "purge", "redrive", "regroup", "run_now", "schedule", "stats", "throttles", "tx", "withdraw",
}

// RunOverlapping has callers of several instances, some of which share one, make random
// calls at the same time, in n histories. It checks what must hold in whatever order the
// calls are decided: see the comment of [storage.Store] on calls that overlap. Between the
// rounds of a history all callers stop. Then the invariants of the database are checked,
// what there is is compared with what the callers were told, and some instance may die. At
// the end all that is left is run.
//
// [Without] leaves out features of Stores; these are not tried. The flags
// -overlap.histories and -overlap.seed say how many histories there are, and which: each
// caller draws its calls by the seed of the history and its number, and only the order in
// which the calls are decided differs from run to run.
func RunOverlapping(t *testing.T, open func(t *testing.T) DB, n int, options ...Option) {
	left, has := leaveOut(options), map[string]bool{}
	for _, name := range features {
		has[name] = !left.has(name)
	}
	seed := *overlapSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	if *overlapHistories > 0 {
		n = *overlapHistories
	}
	for i := range n {
		sound := t.Run(fmt.Sprintf("history_%d", i+1), func(t *testing.T) { overlapOnce(t, open(t), seed+uint64(i), has) })
		if !sound {
			break
		}
	}
	left.report(t, "feature")
}

func overlapOnce(t testing.TB, db DB, seed uint64, has map[string]bool) {
	o := newOverlap(t, db, seed, has)
	o.run()
	if t.Failed() {
		t.Logf("again, as far as goroutines allow: -overlap.histories 1 -overlap.seed %d", seed)
	}
}

const (
	overlapDesks   = 3
	overlapCallers = 2 // of each instance
	overlapCalls   = 10
	overlapRounds  = 4
	overlapCap     = 6
	overlapTokens  = 3
	overlapWait    = time.Minute // for an answer; later ones are errors
)

// Queues of overlapping histories, by what is particular to them.
const (
	queueGroups = "groups" // one member of a group at a time
	queuePairs  = "pairs"  // two
	queueSlow   = "slow"   // has tokens
	queueCapped = "capped" // refuses
	queueEvicts = "evicts" // evicts
)

// overlap is one history of calls that overlap.
type overlap struct {
	t      testing.TB
	db     DB
	seed   uint64
	has    map[string]bool
	rng    *rand.Rand
	now    time.Time
	start  time.Time
	w      *watch
	desks  []*desk
	closed []*desk     // whose processes go on
	over   atomic.Bool // something was wrong
	queue  []string
	known  struct {
		sync.Mutex
		ids []storage.ID
	}
	taken atomic.Int64 // tokens, at least
}

func newOverlap(t testing.TB, db DB, seed uint64, has map[string]bool) *overlap {
	now := time.Date(2026, 3, 4, 5, 6, 7, 891_011_000, time.UTC)
	o := &overlap{t: t, db: db, seed: seed, has: has, rng: rand.New(rand.NewPCG(seed, 0)), now: now, start: now, queue: []string{"a", "b"}}
	o.w = newWatch(o.wrong)
	o.w.pass(now)
	for range overlapDesks {
		o.open()
	}
	set := func(feature, queue string, s storage.Settings) {
		if !has[feature] {
			return
		}
		o.queue = append(o.queue, queue)
		if s != nil {
			o.must(o.desks[0].s.Configure(context.Background(), storage.Lane{Queue: queue}, s))
		}
	}
	set("groups", queueGroups, nil)
	set("groups", queuePairs, storage.Settings{storage.SettingGroupLimit: 2})
	set("throttles", queueSlow, storage.Settings{storage.SettingStarts: 1, storage.SettingStartsBurst: overlapTokens})
	set("caps", queueCapped, storage.Settings{storage.SettingMaxJobs: overlapCap})
	set("caps", queueEvicts, storage.Settings{storage.SettingMaxJobs: overlapCap, storage.SettingWhenFull: int64(storage.EvictOldest)})
	o.w.limits[queuePairs], o.w.loose[queueEvicts] = 2, true
	if s, ok := o.desks[0].s.(storage.Scheduler); ok && has["schedule"] {
		_, err := s.PutSchedule(context.Background(), o.now, newSchedule("a").Schedule)
		o.must(err)
	}
	return o
}

// wrong reports what cannot be. All callers stop then.
func (o *overlap) wrong(format string, args ...any) {
	o.t.Helper()
	if !o.over.Swap(true) { // what follows says less
		o.t.Errorf(format, args...)
	}
}

func (o *overlap) must(err error) {
	o.t.Helper()
	if err != nil {
		o.wrong("unexpected error: %v", err)
	}
}

// open opens an instance.
func (o *overlap) open() {
	d := &desk{s: o.db.Open()}
	o.desks = append(o.desks, d)
	if o.has["caps"] {
		d.s.NotifyEvicted(func(_ time.Time, all []storage.Evicted) { o.w.evicts(all) })
	}
	if s, ok := d.s.(storage.Handoff); ok && o.has["handoff"] {
		d.offer = s.Offer(o.want("b", 1), hold, func(jobs []storage.Leased, _ time.Time) {
			o.granted(moment{}, d, jobs)
		})
	}
}

// want is a Want of all jobs of these queues.
func (o *overlap) want(queue string, n int) storage.Want {
	w := storage.Want{Queues: []string{queue}, Kinds: []string{"x", "y"}, N: n}
	if queue == "" {
		w.Queues = o.queue
	}
	return w
}

// granted notes leases.
func (o *overlap) granted(c moment, d *desk, all []storage.Leased) {
	o.w.leased(c, d, all...)
	for i := range all {
		if all[i].Queue == queueSlow && !all[i].Urgent {
			o.taken.Add(1)
		}
	}
	d.put(all...)
}

// run runs the history.
func (o *overlap) run() {
	for round := range overlapRounds {
		var wg sync.WaitGroup
		for i, d := range o.desks {
			for k := range overlapCallers {
				n := i*overlapCallers + k
				c := &caller{overlap: o, d: d, rng: rand.New(rand.NewPCG(o.seed, uint64(1+round*100+n)))}
				wg.Go(c.calls)
			}
		}
		wg.Wait()
		if o.settled(false); o.over.Load() {
			return
		}
		o.now = o.now.Add([]time.Duration{0, time.Microsecond, time.Second, 5 * time.Second}[o.rng.IntN(4)])
		o.w.pass(o.now)
		o.death()
	}
	o.drain()
}

// death lets an instance end, in one way or another, or none.
func (o *overlap) death() {
	i := o.rng.IntN(len(o.desks))
	d, how := o.desks[i], o.rng.IntN(6)
	if how > 2 {
		return
	}
	o.w.lapse(d)
	d.gone.Store(true)
	if how == 2 && d.offer != nil {
		d.offer.Close()
	}
	switch how {
	case 0:
		o.db.Kill(d.s)
	case 1:
		o.db.Reboot(d.s)
	default:
		o.must(d.s.Close())
		o.closed = append(o.closed, d)
	}
	o.desks = slices.Delete(o.desks, i, i+1)
	o.open()
}
