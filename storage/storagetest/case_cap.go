package storagetest

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/errandq/errand/storage"
)

var wholeQueue = storage.Lane{Queue: queue}

// caps sets the caps of a queue or of the database.
func (f *fixture) caps(lane storage.Lane, jobs, bytes int64, full storage.WhenFull) {
	f.Helper()
	f.configure(f.s, lane, storage.Settings{
		storage.SettingMaxJobs: jobs, storage.SettingMaxBytes: bytes, storage.SettingWhenFull: int64(full),
	})
}

// deadCap sets how many dead letters there may be.
func (f *fixture) deadCap(lane storage.Lane, most int64, full storage.WhenDeadFull) {
	f.Helper()
	f.configure(f.s, lane, storage.Settings{storage.SettingMaxDead: most, storage.SettingWhenDeadFull: int64(full)})
}

// bound returns a bound of the database, or skips the case if it has none.
func (f *fixture) bound(n int) int {
	f.Helper()
	if n == 0 {
		f.skip("a bound")
	}
	return n
}

// refused checks that jobs are refused together, and that nothing has changed.
func (f *fixture) refused(what string, s storage.Store, want *storage.QueueFullError, jobs ...storage.NewJob) {
	f.Helper()
	before, err := f.s.Counts(f.ctx)
	f.must(err)
	_, err = s.Enqueue(f.ctx, f.now, jobs)
	var full *storage.QueueFullError
	if errors.As(err, &full) && full.Free > 0 {
		full.Free = 0 // as on that machine
	}
	is := *want
	if last := jobs[len(jobs)-1]; is.MinFree == 0 {
		is.Size = int64(len(last.Args)+len(last.Headers)) + storage.JobOverhead
	}
	if !errors.As(err, &full) || !errors.Is(err, storage.ErrQueueFull) || *full != is {
		f.Errorf("%s: Enqueue returned %v (%+v), want %+v", what, err, full, is)
	}
	after, err := f.s.Counts(f.ctx)
	f.must(err)
	if !reflect.DeepEqual(after, before) {
		f.Errorf("%s: a call that was refused has changed %v to %v", what, before, after)
	}
}

// left checks which jobs of all are left.
func (f *fixture) left(what string, all []storage.ID, want ...int) {
	f.Helper()
	var got []storage.ID
	for _, id := range all {
		if _, err := f.s.Job(f.ctx, id); err == nil {
			got = append(got, id)
		} else if !errors.Is(err, storage.ErrNotFound) {
			f.Fatal(err)
		}
	}
	f.order(what+": left", got, pick(all, want...))
}

var (
	empty = func(n *storage.NewJob) { n.Args = []byte{} }
	sized = func(size int) func(*storage.NewJob) {
		return func(n *storage.NewJob) { n.Args, n.Headers = make([]byte, size-3), make([]byte, 3) }
	}
)

// tooMuch is more than any file system has free.
const tooMuch = 1 << 62

// lacks sets how much must be free, or skips the case.
func (f *fixture) lacks(lane storage.Lane, least, priority int64) {
	f.Helper()
	f.configure(f.s, lane, storage.Settings{storage.SettingMinFree: least, storage.SettingMinFreePriority: priority})
	c, err := f.s.Check(f.ctx)
	if f.must(err); c.Free >= 0 {
		return
	}
	f.skip("free space")
}

const overhead = storage.JobOverhead

var capCases = []testCase{
	{"cap_refuse", `The use of a queue is how many of its jobs wait, that is are scheduled, ready or blocked, and how many bytes these count for: their args and headers, and [JobOverhead] each. The use of the database is that of all its queues.
A job that Enqueue, EnqueueTx or Fire is to insert has room if, with it, neither number is above a cap of its queue or of the database. A duplicate needs no room.
If it is refused, an Enqueue or EnqueueTx returns a [*QueueFullError], and inserts none of its jobs and evicts none.
Each call of any instance that begins after Configure has returned obeys the settings.`, func(f *fixture) {
		f.caps(wholeQueue, 3, 0, storage.Refuse)
		f.add(newJob(empty), newJob(empty, delay(time.Hour), lane(queue, "other")), newJob(empty, unique("u")))
		of := &storage.QueueFullError{Queue: queue, MaxJobs: 3, Jobs: 3, Bytes: 3 * overhead}
		other := f.db.Open()
		f.refused("a fourth", f.s, of, newJob())
		f.refused("a fourth of another kind", other, of, newJob(lane(queue, "new")))
		f.enqueue(newJob(empty, unique("u")))
		f.add(newJob(lane("b", kind)))
		l := f.lease(f.s, 1)
		f.add(newJob(empty))
		f.refused("a fifth", other, of, newJob())
		of.Bytes += int64(len(newJob().Args))
		f.cancel(f.leaseOne(f.s).ID)
		f.refused("two of which one has room", f.s, of, newJob(lane("b", kind)), newJob(), newJob())
		f.apply(f.s, storage.Finish{Lease: l[0].Lease, Outcome: storage.OutcomeDone})
		f.caps(wholeQueue, 2, 0, storage.Refuse)
		of.MaxJobs, of.Jobs, of.Bytes = 2, 2, 2*overhead
		f.refused("a cap as large as the use", f.s, of, newJob())
		f.caps(wholeQueue, 1, 0, storage.Refuse)
		of.MaxJobs = 1
		f.refused("a cap below the use", f.s, of, newJob())
		f.caps(wholeQueue, 0, 0, storage.Refuse)
		f.add(newJob())
	}},

	{"cap_bytes", `The use of the database is that of all its queues.
how many bytes these count for: their args and headers, and [JobOverhead] each`, func(f *fixture) {
		f.caps(storage.Lane{}, 0, 5000+2*overhead, storage.Refuse)
		f.add(newJob(sized(1000)))
		f.add(newJob(sized(4000), lane("b", kind)))
		of := &storage.QueueFullError{MaxBytes: 5000 + 2*overhead, Jobs: 2, Bytes: 5000 + 2*overhead}
		f.refused("without args", f.s, of, newJob(empty))
		f.caps(storage.Lane{}, 0, 5000+3*overhead, storage.Refuse)
		f.add(newJob(empty))
		f.caps(wholeQueue, 0, 1, storage.Refuse)
		f.refused("of a queue with a cap of its own", f.db.Open(),
			&storage.QueueFullError{Queue: queue, MaxBytes: 1, Jobs: 2, Bytes: 1000 + 2*overhead}, newJob(empty))
	}},

	{"cap_let_in", `Jobs that come back to a queue or are moved to it, and [Finish.Then], need none either.`, func(f *fixture) {
		a, b, c := f.run(f.s), f.run(f.s), f.run(f.s)
		moved := f.add(newJob(lane("b", kind)))
		f.caps(wholeQueue, 1, 0, storage.EvictOldest)
		first := f.add(newJob())
		f.apply(f.s, storage.Finish{Lease: a.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
		then := newJob()
		dead := died(b.Lease, storage.ReasonPermanent, "no")
		dead.Then = []storage.NewJob{then}
		f.apply(f.s, dead)
		f.apply(f.s, storage.Finish{Lease: c.Lease, Outcome: storage.OutcomeReturned})
		f.redrive(storage.Selection{IDs: []storage.ID{b.ID}}, "")
		to := queue
		_, err := f.s.Change(f.ctx, f.now, storage.Selection{IDs: moved}, storage.Edit{Queue: to})
		f.must(err)
		f.left("let in", []storage.ID{first[0], a.ID, b.ID, c.ID, moved[0]}, 0, 1, 2, 3, 4)
	}},

	{"cap_evict_oldest", `Ready jobs go first, in the order of their due times, then of their keys. Then go scheduled ones in the same order`, func(f *fixture) {
		at := func(seconds int) func(*storage.NewJob) { return dueAt(f.now.Add(time.Duration(seconds) * time.Second)) }
		f.caps(wholeQueue, 7, 0, storage.EvictOldest)
		others := f.add(newJob(lane("b", kind), at(-100)), newJob(lane("b", kind), at(1)))
		ids := f.add(newJob(at(50)), newJob(at(-1), priority(9)), newJob(at(-2)), newJob(at(-2), priority(-9)),
			newJob(at(20)), newJob(at(-3), lane(queue, "y"), priority(3)), newJob(at(90)))
		all := append(ids, f.add(newJob(at(99)))...)
		f.left("one", all, 0, 1, 2, 3, 4, 6, 7)
		all = append(all, f.add(newJob(at(99)))...)
		f.left("of the same due time the first", all, 0, 1, 3, 4, 6, 7, 8)
		all = append(all, f.add(newJob(at(98)), newJob(at(97)))...)
		f.left("of all priorities", all, 0, 4, 6, 7, 8, 9, 10)
		all = append(all, f.add(newJob(at(99)), newJob(at(99)))...)
		f.left("scheduled ones", all, 6, 7, 8, 9, 10, 11, 12)
		f.left("others", others, 0, 1)
	}},

	{"cap_evict_lowest", `EvictLowest is EvictOldest with the lowest priority first, of the ready jobs and then of the scheduled ones. A job of a higher priority than the new one stays.`, func(f *fixture) {
		at := func(seconds int) func(*storage.NewJob) { return dueAt(f.now.Add(time.Duration(seconds) * time.Second)) }
		f.caps(wholeQueue, 5, 0, storage.EvictLowest)
		all := f.add(newJob(priority(1), at(-9)), newJob(at(-1)), newJob(at(-2), lane(queue, "y")), newJob(priority(-5), at(9)), newJob(priority(-7), at(99)))
		all = append(all, f.add(newJob(priority(5)))...)
		f.left("the oldest of the lowest that is ready", all, 0, 1, 3, 4, 5)
		all = append(all, f.add(newJob(priority(5)))...)
		f.left("the next", all, 0, 3, 4, 5, 6)
		full := &storage.QueueFullError{Queue: queue, MaxJobs: 5, Jobs: 5, Bytes: 5 * (int64(len(newJob().Args)) + overhead), WhenFull: storage.EvictLowest}
		f.refused("one of a lower priority", f.s, full, newJob(priority(-8)))
		all = append(all, f.add(newJob(priority(-6)))...)
		f.left("a scheduled one, as all ready ones are higher", all, 0, 3, 5, 6, 7)
		all = append(all, f.add(newJob(priority(-6), at(1)))...)
		f.left("of the same priority", all, 0, 3, 5, 6, 8)
		all = append(all, f.add(newJob(priority(2)), newJob(priority(2)))...)
		f.left("ready ones first", all, 3, 5, 6, 9, 10)
	}},

	{"cap_evict_database", `The WhenFull of the queue or the database that has the cap says what happens to a job without room.`, func(f *fixture) {
		f.caps(storage.Lane{}, 4, 0, storage.EvictOldest)
		f.caps(wholeQueue, 2, 0, storage.Refuse)
		all := f.add(newJob(lane("b", kind)), newJob(lane("c", kind)), newJob(), newJob())
		f.refused("of the queue", f.s, &storage.QueueFullError{
			Queue: queue, MaxJobs: 2, Jobs: 2, Bytes: 2 * (int64(len(newJob().Args)) + overhead),
		}, newJob())
		all = append(all, f.add(newJob(lane("b", "new")))...)
		f.left("of any queue", all, 1, 2, 3, 4)
		f.caps(wholeQueue, 2, 0, storage.EvictOldest)
		all = append(all, f.add(newJob())...)
		f.left("of the queue, which makes room in the database too", all, 1, 3, 4, 5)
		f.caps(storage.Lane{}, 0, 4*(11+overhead)+12, storage.EvictOldest)
		all = append(all, f.add(newJob(sized(100), lane("d", kind)))...)
		f.left("as many as it takes", all, 4, 5, 6)
	}},

	{"cap_evict_key", `If its handler was never called, its unique key is free, whatever its UniqueFor; else the key is held as after any other end.`, func(f *fixture) {
		f.caps(wholeQueue, 1, 0, storage.EvictOldest)
		hour := uniqueFor(time.Hour)
		for what, give := range map[string]func(){
			"never leased": func() { f.add(newJob(hour)) },
			"given back": func() {
				f.apply(f.s, storage.Finish{Lease: f.run(f.s, hour).Lease, Outcome: storage.OutcomeReturned, DueAt: f.now})
			},
		} {
			give()
			all := f.add(newJob())
			f.add(newJob(), newJob(lane("b", kind), hour)) // the key is free
			f.left(what, all)
			f.apply(f.s, storage.Finish{Lease: f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"b"}, Kinds: []string{kind}})}).Leased[0].Lease, Outcome: storage.OutcomeDone})
			f.later(time.Hour)
			f.apply(f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		}
		l := f.run(f.s, hour)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now, Failure: &storage.NewFailure{Phase: "backoff", Error: "no"}})
		f.add(newJob())
		f.is("", l.ID)
		f.answers("its handler has run", storage.Enqueued{ID: l.ID, Duplicate: true, Gone: true}, lane("b", kind))
		f.later(time.Hour)
		f.add(newJob(lane("b", kind), hour))
	}},

	{"cap_evict_stays", `An evicted job is deleted for good, with all that belongs to it.
These stay: jobs that hold a key with [UniqueForever], members of groups, and jobs that the answers of the same call name
Evicted is how many of its jobs were evicted, ever`, func(f *fixture) {
		f.caps(wholeQueue, 3, 0, storage.EvictOldest)
		all := f.add(newJob(unique("forever"), forever), newJob(unique("u"), sized(5000), tagged("t")), newJob())
		all = append(all, f.add(newJob())...)
		f.left("the first is passed over", all, 0, 2, 3)
		all = append(all, f.add(newJob(unique("u")))...)
		f.left("its key is free", all, 0, 3, 4)
		full := &storage.QueueFullError{Queue: queue, MaxJobs: 3, Jobs: 3, Bytes: 3 * (int64(len(newJob().Args)) + overhead), WhenFull: storage.EvictOldest}
		f.refused("more than can go", f.s, full, newJob(), newJob(), newJob())
		all = append(all, f.add(newJob(lane(queue, "y")), newJob(lane(queue, "y")))...)
		f.left("one has its key for ever", all, 0, 5, 6)
		all = append(all, f.add(newJob(), newJob())...)
		f.left("and stays", all, 0, 7, 8)
		all = append(all, f.add(newJob(grouped("g")))...)
		f.left("the first again", all, 0, 8, 9)
		all = append(all, f.add(newJob(grouped("g")))...)
		f.left("members of groups count", all, 0, 9, 10)
		full.Bytes = 3 * (int64(len(newJob().Args)) + overhead)
		f.refused("and stay", f.s, full, newJob())
		stats, err := f.db.Open().Stats(f.ctx)
		f.must(err)
		var evicted []int64
		for _, s := range stats {
			evicted = append(evicted, s.Evicted)
		}
		if !slices.Equal(evicted, []int64{6, 2}) {
			f.Errorf("evicted of the lanes: %v, want 6 and 2", evicted)
		}
	}},

	{"cap_evict_named", `These stay: jobs that hold a key with [UniqueForever], members of groups, and jobs that the answers of the same call name, inserted, replaced or kept.`, func(f *fixture) {
		f.caps(wholeQueue, 3, 0, storage.EvictOldest)
		all := f.add(newJob(on(storage.Replace)), newJob(unique("u"), delay(time.Hour)), newJob())
		again := []storage.NewJob{newJob(on(storage.Replace), content("new")), newJob(unique("u"))}
		out := f.enqueue(append(again, newJob())...)
		if !out[0].Replaced || out[0].ID != all[0] || !out[1].Duplicate || out[1].ID != all[1] {
			f.Errorf("the answers are %+v", out)
		}
		all = append(all, out[2].ID)
		f.left("the one that is not named goes", all, 0, 1, 3)
		if text := string(f.record(all[0]).Args); text != "new" {
			f.Errorf("the one that was replaced has args %q", text)
		}
		use := 3*int64(overhead) + int64(len("new")+2*len(newJob().Args))
		full := &storage.QueueFullError{Queue: queue, MaxJobs: 3, Jobs: 3, Bytes: use, WhenFull: storage.EvictOldest}
		f.refused("more than are not named", f.s, full, append(again, newJob(), newJob())...)
		f.add(newJob(), newJob())
		f.left("another call evicts them", all, 1)
	}},

	{"cap_evict_running", `Ready jobs go first, in the order of their due times, then of their keys. Then go scheduled ones in the same order`, func(f *fixture) {
		f.caps(wholeQueue, 4, 0, storage.EvictOldest)
		lease := func() {
			f.exchange(f.s, storage.Exchange{Wants: []storage.Want{{Queues: []string{queue}, Kinds: []string{kind, "y"}, N: 2}}})
		}
		lease() // so that nothing is new to the store when it leases below
		y := lane(queue, "y")
		all := append(f.add(newJob(), newJob(y), newJob(), newJob(y)), f.add(newJob())...)
		f.left("the first goes", all, 1, 2, 3, 4)
		lease()
		all = append(all, f.add(newJob(), newJob(), newJob())...)
		f.left("those that run stay", all, 1, 2, 4, 5, 6, 7)
	}},

	{"cap_evict_limit", `A call looks at a bounded number of jobs: those that it evicts, and those that stay. It refuses the job if that does not make room.`, func(f *fixture) {
		most := f.bound(f.db.Bounds().Evicted)
		f.caps(wholeQueue, 0, 0, storage.EvictOldest)
		f.add(times(most+1, newJob(empty))...)
		n := int64(most + 1)
		full := &storage.QueueFullError{Queue: queue, MaxBytes: n * overhead, Jobs: n, Bytes: n * overhead, WhenFull: storage.EvictOldest}
		f.caps(wholeQueue, 0, full.MaxBytes, storage.EvictOldest)
		f.refused("one that takes the place of too many", f.s, full, newJob(sized(most*overhead)))
		f.add(newJob(sized((most - 1) * overhead)))
		var jobs []storage.NewJob
		for i := range most {
			jobs = append(jobs, newJob(lane("b", kind), unique(strconv.Itoa(i)), forever))
		}
		f.add(append(jobs, newJob(lane("b", kind)))...)
		f.caps(storage.Lane{Queue: "b"}, n, 0, storage.EvictOldest)
		full = &storage.QueueFullError{Queue: "b", MaxJobs: n, Jobs: n, Bytes: n * (int64(len(newJob().Args)) + overhead), WhenFull: storage.EvictOldest}
		f.refused("one behind many that stay", f.s, full, newJob(lane("b", kind)))
	}},

	{"cap_evict_scheduled", `Then go scheduled ones in the same order, of a bounded number of those in the database that are due first.`, func(f *fixture) {
		most := f.bound(f.db.Bounds().Scheduled)
		b := func(n *storage.NewJob) { n.Queue, n.DueAt = "b", f.now.Add(2*time.Hour) }
		f.add(newJob(b))
		f.add(times(most-1, newJob(delay(time.Hour)))...)
		f.caps(storage.Lane{Queue: "b"}, 1, 0, storage.EvictOldest)
		f.add(newJob(b)) // in place of the other
		f.counts(storage.Count{Queue: "b", Kind: kind, State: storage.Scheduled, N: 1}, count(storage.Scheduled, int64(most-1)))
		f.add(newJob(delay(time.Hour)))
		full := &storage.QueueFullError{Queue: "b", MaxJobs: 1, Jobs: 1, Bytes: int64(len(newJob().Args)) + overhead, WhenFull: storage.EvictOldest}
		f.refused("in place of one that is due too late", f.s, full, newJob(b))
	}},

	{"cap_min_free", `While less than [SettingMinFree] of the queue or the database is free, a job has room only if its priority is above [SettingMinFreePriority] of the same. Else it is refused, whatever WhenFull is.
A duplicate needs no room.`, func(f *fixture) {
		f.caps(wholeQueue, 5, 0, storage.EvictOldest)
		f.lacks(wholeQueue, 1, 100)
		f.add(newJob(), newJob(unique("u")))
		f.lacks(wholeQueue, tooMuch, 0)
		of := &storage.QueueFullError{Queue: queue, MinFree: tooMuch}
		other := f.db.Open()
		f.refused("an ordinary one", other, of, newJob())
		f.refused("one of two", f.s, of, newJob(priority(1)), newJob())
		f.add(newJob(priority(1)), newJob(lane("b", kind)))
		f.enqueue(newJob(unique("u")))
		f.lacks(storage.Lane{}, tooMuch, -5)
		f.refused("the queue's comes first", f.s, of, newJob(priority(-5)))
		f.refused("of another queue", other, &storage.QueueFullError{MinFree: tooMuch}, newJob(lane("b", kind), priority(-5)))
		f.add(newJob(lane("b", kind), priority(-4)))
		f.lacks(wholeQueue, 0, 0)
		f.add(newJob())
		f.put(newSchedule("a"))
		f.lacks(wholeQueue, tooMuch, 100)
		if taken := f.take("a", tick(f.now)).Ticks; taken[0].Taken != storage.TickFull {
			f.Errorf("tick %+v, want none fired", taken)
		}
	}},

	{"cap_fire", `A tick of a Fire is skipped, as [TickFull].`, func(f *fixture) {
		f.caps(wholeQueue, 1, 0, storage.Refuse)
		f.put(newSchedule("a"))
		taken := f.take("a", tick(f.now), tick(f.now.Add(time.Second))).Ticks
		if taken[0].Taken != storage.TickFired || taken[1].Taken != storage.TickFull || !taken[1].ID.IsZero() {
			f.Errorf("ticks %+v, want one that is fired and one for which there is no room", taken)
		}
		f.lastJob("the one that is fired", "a", f.now, taken[0].ID)
	}},

	{"cap_dead", `If a job dies in an Exchange, and more are dead then than [SettingMaxDead] of its kind in its queue, of its queue or of the database, [SettingWhenDeadFull] of the same says what happens.
With KeepDead nothing does. With EvictDead the Exchange deletes dead letters of the same for good, as Delete does, until only that many are left. The earliest deaths go first, and of the same time the lower keys.
EvictedDead is how many of its dead letters were evicted, ever.`, func(f *fixture) {
		f.deadCap(wholeQueue, 2, storage.KeepDead)
		var all []storage.ID
		die := func(text string, changes ...func(*storage.NewJob)) {
			f.later(time.Second)
			all = append(all, f.bury(storage.ReasonPermanent, text, changes...))
		}
		die("a", sized(5000), tagged("t"), unique("u"))
		other := lane(queue, "other")
		die("b", other)
		die("a")
		f.left("kept", all, 0, 1, 2)
		f.deadCap(wholeQueue, 2, storage.EvictDead)
		f.left("until the next one dies", all, 0, 1, 2)
		die("c")
		f.left("evicted", all, 2, 3)
		f.deadCap(wholeQueue, 0, storage.EvictDead)
		f.deadCap(usualLane, 2, storage.EvictDead)
		die("d", other)
		die("d", lane("b", kind))
		die("e")
		f.left("of the lane", all, 3, 4, 5, 6)
		f.deadCap(storage.Lane{}, 3, storage.EvictDead)
		die("f", lane("b", kind))
		f.left("of the database", all, 5, 6, 7)
		f.redrive(storage.Selection{IDs: []storage.ID{all[6]}}, "")
		die("g", lane("b", kind))
		f.left("one has left them", all, 5, 6, 7, 8)
		stats, err := f.db.Open().Stats(f.ctx)
		f.must(err)
		var evicted []int64
		for _, s := range stats {
			evicted = append(evicted, s.EvictedDead)
		}
		if !slices.Equal(evicted, []int64{0, 2, 3}) {
			f.Errorf("dead letters evicted of the lanes: %v, want 0, 2 and 3", evicted)
		}
	}},

	{"cap_dead_key", `If the handler of one was never called, its UniqueFor is over.`, func(f *fixture) {
		f.deadCap(wholeQueue, 1, storage.EvictDead)
		never := f.add(newJob(uniqueFor(time.Hour), func(n *storage.NewJob) { n.StartWithin, n.OnExpire = time.Second, storage.Dead }))
		f.later(time.Minute)
		f.lease(f.s, 1)
		f.answers("dead", storage.Enqueued{ID: never[0], Duplicate: true})
		f.later(time.Second)
		f.bury(storage.ReasonPermanent, "no")
		f.is("", never...)
		f.later(time.Second)
		ran := f.bury(storage.ReasonPermanent, "no", uniqueFor(time.Hour)) // the key is free
		f.later(time.Second)
		f.bury(storage.ReasonPermanent, "no")
		f.is("", ran)
		f.answers("its handler has run", storage.Enqueued{ID: ran, Duplicate: true, Gone: true})
	}},

	{"cap_dead_stays", `These stay: those that died in the same Exchange, and those that block other jobs of their group.
The caps of kinds in queues apply first, then those of queues, then that of the database.`, func(f *fixture) {
		f.deadCap(wholeQueue, 1, storage.EvictDead)
		f.deadCap(storage.Lane{}, 1, storage.EvictDead)
		head := f.bury(storage.ReasonPermanent, "no", grouped("g"))
		f.later(time.Second)
		all := []storage.ID{head, f.bury(storage.ReasonPermanent, "no")}
		f.left("the head blocks, and the other has just died", all, 0, 1)
		f.later(time.Second)
		all = append(all, f.bury(storage.ReasonPermanent, "no"))
		f.left("the head blocks", all, 0, 2)
		f.add(newJob(), newJob())
		var x storage.Exchange
		for _, l := range f.lease(f.s, 2) {
			x.Finish = append(x.Finish, died(l.Lease, storage.ReasonPermanent, "no"))
			all = append(all, l.ID)
		}
		f.exchange(f.s, x)
		f.left("both have just died", all, 0, 3, 4)
		f.later(time.Second)
		all = append(all, f.bury(storage.ReasonPermanent, "no", lane("b", kind)))
		f.left("of the database", all, 0, 5)
	}},

	{"cap_dead_limit", `An Exchange looks at a bounded number for all of them, and deletes a bounded number; what is left over goes once the next job dies.`, func(f *fixture) {
		f.buryAll(slices.Repeat([]string{"no"}, f.bound(f.db.Bounds().DeadEvicted)+5))
		f.deadCap(wholeQueue, 1, storage.EvictDead)
		for _, want := range []int64{6, 1} {
			f.later(time.Second)
			f.bury(storage.ReasonPermanent, "no")
			f.counts(storage.Count{Queue: queue, Kind: kind, State: storage.Dead, N: want})
		}
	}},

	{"cap_dead_told", `NotifyEvicted makes the Store call f after each of its commits that has evicted jobs or dead letters`, func(f *fixture) {
		f.deadCap(usualLane, 1, storage.EvictDead)
		var got []storage.Evicted
		var at time.Time
		cancel := f.s.NotifyEvicted(func(when time.Time, jobs []storage.Evicted) { at, got = when, append(got, jobs...) })
		defer cancel()
		first := f.bury(storage.ReasonPermanent, "no")
		f.later(time.Second)
		f.bury(storage.ReasonPermanent, "no")
		if want := []storage.Evicted{{ID: first, Lane: usualLane, Dead: true}}; !slices.Equal(got, want) || !at.Equal(f.now) {
			f.Errorf("told of %v at %v, want %v at %v", got, at, want, f.now)
		}
	}},

	{"cap_told", `NotifyEvicted makes the Store call f after each of its commits that has evicted jobs or dead letters, before the call that evicted them returns. at is the time that the call was given; jobs are in the order of eviction.
The result undoes it.`, func(f *fixture) {
		f.caps(wholeQueue, 2, 0, storage.EvictOldest)
		var got []storage.Evicted
		var at time.Time
		cancel := f.s.NotifyEvicted(func(when time.Time, jobs []storage.Evicted) { at, got = when, append(got, jobs...) })
		all := f.add(newJob(), newJob(lane(queue, "y")))
		f.later(time.Second)
		if got != nil {
			f.Errorf("told of %v, of which none was evicted", got)
		}
		f.add(newJob(), newJob())
		want := []storage.Evicted{{ID: all[0], Lane: usualLane}, {ID: all[1], Lane: storage.Lane{Queue: queue, Kind: "y"}}}
		if !slices.Equal(got, want) || !at.Equal(f.now) {
			f.Errorf("told of %v at %v, want %v at %v", got, at, want, f.now)
		}
		cancel()
		_, err := f.db.Open().Enqueue(f.ctx, f.now, []storage.NewJob{newJob()})
		f.must(err)
		f.add(newJob())
		if len(got) != 2 {
			f.Errorf("told of %v", got)
		}
	}},
}
