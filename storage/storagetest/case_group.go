package storagetest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

func grouped(group string) func(*storage.NewJob) {
	return func(n *storage.NewJob) { n.Group = group }
}

// states checks the states of jobs, named one after the other. A job that is gone is "-".
func (f *fixture) states(what string, ids []storage.ID, want string) {
	f.Helper()
	var got []string
	for _, id := range ids {
		r, err := f.s.Job(f.ctx, id)
		state := string(r.State)
		if errors.Is(err, storage.ErrNotFound) {
			state = "-"
		} else {
			f.must(err)
		}
		got = append(got, state)
	}
	if all := strings.Join(got, " "); all != want {
		f.Errorf("%s:\n got %s\nwant %s", what, all, want)
	}
}

// done ends the one job that can be leased, which must be id.
func (f *fixture) done(id storage.ID) {
	f.Helper()
	got := f.lease(f.s, 9)
	if len(got) != 1 || got[0].ID != id {
		f.Fatalf("leased keys %v, want %d", keysOf(leasedIDs(got)), id.Key())
	}
	f.keep(keep, f.s, storage.Finish{Lease: got[0].Lease, Outcome: storage.OutcomeDone})
}

// diesOf has the one job that can be leased die, which must be id.
func (f *fixture) diesOf(id storage.ID, text string) {
	f.Helper()
	got := f.lease(f.s, 9)
	if len(got) != 1 || got[0].ID != id {
		f.Fatalf("leased keys %v, want %d", keysOf(leasedIDs(got)), id.Key())
	}
	f.later(time.Second)
	f.apply(f.s, died(got[0].Lease, storage.ReasonExhausted, text))
}

// dueWhen checks when a job is due, whatever its state.
func (f *fixture) dueWhen(what string, id storage.ID, want time.Time) {
	f.Helper()
	if r := f.record(id); !r.DueAt.Equal(want) {
		f.Errorf("%s: the job is due at %v, want %v", what, r.DueAt, want)
	}
}

func (f *fixture) skipHead(queue, group string, want storage.ID) {
	f.Helper()
	got, err := f.s.SkipHead(f.ctx, queue, group)
	if want.IsZero() && !errors.Is(err, storage.ErrNotFound) || !want.IsZero() && (err != nil || got != want) {
		f.Errorf("SkipHead of %q in %q = %v, %v; want %v", group, queue, got, err, want)
	}
}

// groupsAre checks Groups that a dead member blocks, read in pages of one.
func (f *fixture) groupsAre(queue string, want ...storage.GroupState) {
	f.Helper()
	f.groupsOf(storage.GroupFilter{Queue: queue}, want...)
}

// groupsOf checks Groups, read in pages of one.
func (f *fixture) groupsOf(of storage.GroupFilter, want ...storage.GroupState) {
	f.Helper()
	var got []storage.GroupState
	for after := ""; ; {
		page, err := f.s.Groups(f.ctx, of, after, 1)
		f.must(err)
		for _, g := range page.Groups {
			if (g.Cause == 0) != (g.State != storage.Dead) {
				f.Errorf("group %q has no cause: %+v", g.Group, g)
			}
			g.Cause, g.DiedAt = 0, g.DiedAt.UTC()
			got = append(got, g)
		}
		if after = page.Next; after == "" {
			break
		}
		if len(page.Groups) != 1 {
			f.Fatalf("a page that is not the last has %d groups", len(page.Groups))
		}
	}
	if len(got) != len(want) || len(want) > 0 && !slices.Equal(got, want) {
		f.Errorf("groups of %+v:\n got %+v\nwant %+v", of, got, want)
	}
}

const oneLives = `At most one live member of a group is scheduled, ready or running: the one that runs, or else the one with the lowest key.`

var groupCases = []testCase{
	{"group_members", `A job with a Group is a member of the group of that name in its queue, whatever its kind.
A group of another queue is another group.
` + oneLives, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g, lane(queue, "other")), newJob(g, lane("other", kind)), newJob(grouped("h")), newJob())
		f.states("enqueued", ids, "ready blocked blocked ready ready ready")
		for i, id := range ids {
			if got, want := f.record(id).Group, []string{"g", "g", "g", "g", "h", ""}[i]; got != want {
				f.Errorf("the group of job %d is %q, want %q", i, got, want)
			}
		}
		f.counts(storage.Count{Queue: queue, Kind: "other", State: storage.Blocked, N: 1}, count(storage.Blocked, 1), count(storage.Ready, 3),
			storage.Count{Queue: "other", Kind: kind, State: storage.Ready, N: 1})
		got := f.exchange(f.s, storage.Exchange{Wants: wants(9, storage.Want{Queues: []string{queue, "other"}, Kinds: []string{kind, "other"}})}).Leased
		f.order("leased", leasedIDs(got), pick(ids, 0, 3, 4, 5))
		var names []string
		for _, l := range got {
			names = append(names, l.Group)
		}
		if !slices.Equal(names, []string{"g", "g", "h", ""}) {
			f.Errorf("leased with the groups %q", names)
		}
		ids = append(ids, f.add(newJob(g))...)
		f.states("enqueued while the head runs", ids, "running blocked blocked running running running blocked")
	}},

	{"group_order", oneLives + `
Each call that changes which member is next lets that member in, and blocks another that is scheduled or ready, in the same transaction.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g, priority(5)), newJob(g, lane(queue, "other")), newJob(g))
		both := storage.Want{Queues: []string{queue}, Kinds: []string{kind, "other"}}
		var x storage.Exchange
		for i, id := range ids {
			x.Wants = wants(9, both)
			got := f.exchange(f.s, x).Leased
			if len(got) != 1 || got[0].ID != id {
				f.Fatalf("with the end of the one before keys %v were leased, want %d", keysOf(leasedIDs(got)), id.Key())
			}
			x = storage.Exchange{Finish: []storage.Finish{{Lease: got[0].Lease, Outcome: storage.OutcomeDone}}}
			if i == 1 {
				x.Finish[0].Outcome = storage.OutcomeCancelled
			}
		}
		f.exchange(f.s, x)
		f.counts()
		f.states("afterwards", f.add(newJob(g)), "ready")
	}},

	{"group_retries", oneLives, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g))
		for _, o := range []storage.Outcome{
			storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed, storage.OutcomeInterrupted, storage.OutcomeReturned, storage.OutcomeUnavailable,
		} {
			l := f.leaseOne(f.s)
			f.order("leased", []storage.ID{l.ID}, ids[:1])
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now.Add(time.Minute)})
			f.states(o.String(), ids, "scheduled blocked")
			f.leases("nothing while it waits")
			f.later(time.Minute)
		}
		f.states("more come", f.add(newJob(g, priority(9))), "blocked")
		f.hold(storage.Hold{Lane: storage.Lane{Queue: queue}, Reason: "r"})
		f.leases("nothing while it is held")
		f.release(storage.Lane{Queue: queue}, "r")
		f.done(ids[0])
		f.done(ids[1])
	}},

	{"group_due", `A member that is let in is ready if it was due when it was blocked, else scheduled.
A job due at or before now becomes ready, one due later scheduled, unless its group blocks it.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g, delay(time.Minute)), newJob(g), newJob(g, dueAt(f.now.Add(2*time.Hour))), newJob(g, delay(time.Hour)))
		f.states("enqueued", ids, "scheduled blocked blocked blocked")
		for i, at := range []time.Duration{time.Minute, 0, 2 * time.Hour, time.Hour} {
			f.dueWhen("enqueued", ids[i], f.now.Add(at))
		}
		f.leases("nothing before the first is due")
		f.later(time.Minute)
		f.done(ids[0])
		f.states("the first is done", ids[1:], "ready blocked blocked")
		f.done(ids[1])
		f.states("the second is done", ids[2:], "scheduled blocked")
		f.later(2 * time.Hour)
		f.done(ids[2])
		f.states("the third is done", ids[3:], "scheduled")
		f.done(ids[3])
	}},

	{"group_cancel", `Cancel ends a scheduled, ready or blocked job as cancelled, kept as keep says.
Each call that changes which member is next lets that member in, and blocks another that is scheduled or ready, in the same transaction.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g, delay(time.Hour)), newJob(g), newJob(g, unique("u")), newJob(g))
		for i, want := range []string{
			"ready blocked blocked cancelled blocked", "cancelled scheduled blocked cancelled blocked",
			"cancelled cancelled ready cancelled blocked",
		} {
			id := pick(ids, 3, 0, 1)[i]
			if state := f.cancel(id); state != storage.Cancelled {
				f.Errorf("Cancel returned %s", state)
			}
			f.states("cancelled", ids, want)
		}
		f.add(newJob(unique("u")))
		l := f.leaseOne(f.s)
		if state := f.cancel(l.ID); state != storage.Running {
			f.Errorf("Cancel of the job that runs returned %s", state)
		}
		f.states("asked to stop", ids[2:], "running cancelled blocked")
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry})
		f.states("stopped", ids[2:], "- cancelled ready")
		f.counts(count(storage.Cancelled, 3), count(storage.Ready, 2))
	}},

	{"group_dead", `A dead member blocks all with higher keys until it is redriven, deleted, moved to another queue or skipped.
SkipHead lets the members of a group pass the dead member with the lowest key that blocks them. It returns that member, which stays dead, or [ErrNotFound] if no dead member blocks the group.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g), newJob(g), newJob(g))
		f.skipHead(queue, "g", storage.ID{})
		f.diesOf(ids[0], "no")
		f.states("the head is dead", ids, "dead blocked blocked blocked blocked")
		f.states("another comes", f.add(newJob(g)), "blocked")
		f.skipHead("other", "g", storage.ID{})
		f.skipHead(queue, "h", storage.ID{})
		f.did("redrive", f.redrive(named(ids[0]), ""), 1, nil, nil)
		f.states("redriven", ids[:2], "ready blocked")
		f.done(ids[0])
		f.diesOf(ids[1], "no")
		f.did("delete", f.purgeDead(named(ids[1])), 1, nil, nil)
		f.states("deleted", ids, "done - ready blocked blocked")
		f.diesOf(ids[2], "no")
		f.skipHead(queue, "g", ids[2])
		f.states("skipped", ids, "done - dead ready blocked")
		f.skipHead(queue, "g", storage.ID{})
		f.diesOf(ids[3], "no")
		f.changed(ids[3], storage.Edit{Queue: "other"})
		f.states("moved", ids, "done - dead dead ready")
		f.groupsAre("other", storage.GroupState{
			Queue: "other", Group: "g", Head: ids[3], Kind: kind, State: storage.Dead, Reason: storage.ReasonExhausted, Error: "no", DiedAt: f.now,
		})
		f.states("of the other queue", f.add(newJob(g, lane("other", kind))), "blocked")
	}},

	{"group_redrive", `Redrive puts dead jobs back to work: ready and due now, or blocked by their group.
Each call that changes which member is next lets that member in, and blocks another that is scheduled or ready, in the same transaction.
A blocked job is not urgent.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g))
		for _, id := range ids[:2] {
			f.diesOf(id, "no")
			f.skipHead(queue, "g", id)
		}
		f.runNow(named(ids[2]), anyRun)
		f.did("of the second", f.redrive(named(ids[1]), ""), 1, nil, nil)
		f.states("goes to the front", ids, "dead ready blocked")
		if got := f.exchange(f.s, storage.Exchange{Urgent: 9, Wants: wants(0)}).Leased; len(got) != 0 {
			f.Errorf("a blocked job is urgent: %v", got)
		}
		l := f.leaseOne(f.s)
		f.did("of the first", f.redrive(named(ids[0]), ""), 1, nil, nil)
		f.states("never beside one that runs", ids, "blocked running blocked")
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
		f.states("before one that failed", ids, "ready blocked blocked")
		f.diesOf(ids[0], "no")
		f.states("and blocks it", ids, "dead blocked blocked")
		f.did("again", f.redrive(named(ids[0]), ""), 1, nil, nil)
		f.done(ids[0])
		f.states("which waits on for its retry", ids[1:], "scheduled blocked")
		f.runNow(named(ids[2]), anyRun)
		if got := f.exchange(f.s, storage.Exchange{Urgent: 9, Wants: wants(0)}).Leased; len(got) != 0 {
			f.Errorf("a blocked job is urgent: %v", got)
		}
	}},

	{"group_redrive_behind", oneLives, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g))
		f.diesOf(ids[0], "no")
		f.skipHead(queue, "g", ids[0])
		l := f.leaseOne(f.s)
		f.redrive(named(ids[0]), "")
		f.apply(f.s, died(l.Lease, storage.ReasonExhausted, "no"))
		f.states("one that died later lets it pass", ids, "ready dead")
		ids = append(ids, f.add(newJob(g))...)
		f.diesOf(ids[0], "no")
		f.states("two are dead", ids, "dead dead blocked")
		f.skipHead(queue, "g", ids[0])
		f.states("one blocks on", ids, "dead dead blocked")
		f.redrive(storage.Selection{}, "")
		f.states("all are redriven", ids, "ready blocked blocked")
		for _, id := range ids {
			f.done(id)
		}
	}},

	{"group_change", `Change changes scheduled, ready and blocked jobs as e says, and dead ones that IDs name.
A job due at or before now becomes ready, one due later scheduled, and not urgent; a blocked one stays blocked.
Each call that changes which member is next lets that member in, and blocks another that is scheduled or ready, in the same transaction.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g, delay(time.Hour)), newJob(g), newJob(g))
		f.changed(ids[0], off(time.Minute))
		f.changed(ids[1], off(2*time.Hour))
		f.changed(ids[2], storage.Edit{DueAt: f.now, Priority: new(7)})
		f.changed(ids[3], storage.Edit{Args: []byte("other")})
		f.states("changed", ids, "scheduled blocked blocked blocked blocked")
		f.dueWhen("put off", ids[1], f.now.Add(2*time.Hour))
		if r := f.record(ids[2]); r.Priority != 7 || string(f.record(ids[3]).Args) != "other" {
			f.Errorf("the blocked jobs are %+v, %+v", r, f.record(ids[3]))
		}
		f.changed(ids[0], storage.Edit{Cancel: &storage.Retention{Default: time.Hour}})
		f.states("cancelled", ids, "cancelled scheduled blocked blocked blocked")
		f.changed(ids[1], storage.Edit{Queue: "other"})
		f.states("moved to another queue", ids, "cancelled scheduled ready blocked blocked")
		f.changed(ids[4], storage.Edit{Queue: "other"})
		f.states("moved behind it", ids, "cancelled scheduled ready blocked blocked")
		f.changed(ids[1], storage.Edit{Queue: queue})
		f.states("moved back", ids, "cancelled scheduled blocked blocked ready")
		f.changed(ids[3], storage.Edit{Queue: "other"})
		f.states("moved before another", ids, "cancelled scheduled blocked ready blocked")
		f.changed(ids[1], storage.Edit{Cancel: &storage.Retention{}})
		f.done(ids[2])
		f.counts(count(storage.Cancelled, 1), count(storage.Done, 1),
			storage.Count{Queue: "other", Kind: kind, State: storage.Blocked, N: 1}, storage.Count{Queue: "other", Kind: kind, State: storage.Ready, N: 1})
	}},

	{"group_run_now", `Jobs that are ready, blocked or running are left as they are.
A blocked job is not urgent.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g, delay(time.Hour)), newJob(g, delay(time.Hour)))
		f.did("of a blocked job", f.runNow(named(ids[1]), firstToo), 0, nil, nil)
		f.dueWhen("left as it was", ids[1], f.now.Add(time.Hour))
		f.did("of all", f.runNow(storage.Selection{}, firstToo), 1, nil, nil)
		f.states("run now", ids, "ready blocked")
		f.did("of the head", f.runNow(named(ids[0]), firstToo), 0, nil, nil)
		got := f.exchange(f.s, storage.Exchange{Urgent: 9, Wants: wants(0)}).Leased
		f.order("urgent", leasedIDs(got), ids[:1])
		// One that has a place at once is never blocked.
		f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingGroupLimit: 2})
		ids = f.add(newJob(grouped("h"), delay(time.Hour)))
		f.did("of a member with room", f.runNow(named(ids[0]), firstToo), 1, nil, nil)
		got = f.exchange(f.s, storage.Exchange{Urgent: 9, Wants: wants(0)}).Leased
		f.order("urgent with a place", leasedIDs(got), ids)
	}},

	{"group_reclaim", oneLives, func(f *fixture) {
		g, other := grouped("g"), f.db.Open()
		ids := f.add(newJob(g), newJob(g))
		l := f.leaseOne(other)
		f.db.Kill(other)
		r := f.takes(f.s, 0, l.Lease, storage.Unstarted)
		f.states("reclaimed", ids, "running blocked")
		f.leases("nothing beside it")
		f.apply(f.s, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeReturned})
		f.states("returned", ids, "ready blocked")
		f.done(ids[0])
		f.done(ids[1])
	}},

	{"group_clock", `A blocked job counts as ready if it was due when it was blocked, else as scheduled.`, func(f *fixture) {
		f.timekeeper(f.s)
		start, g := f.now, grouped("g")
		f.later(1000 * time.Hour)
		ids := f.add(newJob(g), newJob(g), newJob(g, delay(time.Minute)), newJob(g, dueAt(f.now.Add(time.Hour))))
		dated := f.now.Add(time.Hour)
		f.now = start
		f.stepClock(f.now)
		f.dueWhen("due at once", ids[1], f.now)
		f.dueWhen("delayed", ids[2], f.now.Add(time.Minute))
		f.dueWhen("dated", ids[3], dated)
		f.done(ids[0])
		f.done(ids[1])
		f.leases("nothing before the delay is over")
		f.later(time.Minute)
		f.done(ids[2])
		f.states("the last", ids[3:], "scheduled")
	}},

	{"group_lists", `blocked          by queue and group; those of a group the lowest key first`, func(f *fixture) {
		ids := f.add(newJob(grouped("b")), newJob(grouped("a")), newJob(grouped("a-x")), newJob(delay(time.Hour)),
			newJob(grouped("b"), lane(queue, "other")), newJob(grouped("a")), newJob(grouped("b")), newJob(grouped("a-x")), newJob(grouped("a")))
		f.lists(storage.Filter{States: []storage.State{storage.Blocked}}, pick(ids, 5, 8, 7, 4, 6)...)
		f.lists(storage.Filter{}, pick(ids, 0, 1, 2, 3, 5, 8, 7, 4, 6)...)
		f.lists(storage.Filter{Kind: "other"}, ids[4])
		f.lists(storage.Filter{States: []storage.State{storage.Blocked}, Kind: kind, DueBefore: f.now.Add(1)}, pick(ids, 5, 8, 7, 6)...)
	}},

	{"groups_list", `Groups lists the groups that a dead member blocks, or, with of.Waiting, those with blocked members, sorted by queue and name.
Head is the dead member with the lowest key that blocks the group.
Reason, Error, Cause and DiedAt are the reason, the last error, the cause and the time of its death;
Blocked is how many members are blocked, at most [GroupCount].`, func(f *fixture) {
		f.groupsAre("")
		state := func(q, group, text string, behind int) storage.GroupState {
			id := f.add(newJob(lane(q, kind), grouped(group)))[0]
			got := f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{q}, Kinds: []string{kind}})}).Leased
			f.later(time.Second)
			f.apply(f.s, died(got[0].Lease, storage.ReasonPermanent, text))
			f.add(times(behind, newJob(lane(q, kind), grouped(group)))...)
			return storage.GroupState{
				Queue: q, Group: group, Head: id, Kind: kind, State: storage.Dead, Reason: storage.ReasonPermanent, Error: text, DiedAt: f.now, Blocked: min(behind, storage.GroupCount),
			}
		}
		b, ax, a := state(queue, "b", "no", 2), state(queue, "a-x", "refused", 0), state(queue, "a", "no", storage.GroupCount+1)
		other := state("a", "b", "no", 1)
		f.add(times(3, newJob(grouped("alive")))...)
		f.groupsAre("", other, a, ax, b)
		f.groupsAre(queue, a, ax, b)
		f.groupsAre("a", other)
		f.groupsAre("b")
		f.skipHead(queue, "b", b.Head)
		f.purgeDead(named(ax.Head))
		f.redrive(named(other.Head), "")
		f.groupsAre("", a)
	}},

	{"groups_waiting", `Waiting chooses the groups that have blocked members, whatever these wait for.
With GroupFilter.Waiting it is the member with the lowest key that is scheduled, ready or running and has a place, if there is one.
zero if Head lives.`, func(f *fixture) {
		waiting := storage.GroupFilter{Waiting: true}
		f.groupsOf(waiting)
		f.add(newJob(grouped("alone")), newJob())
		f.bury(storage.ReasonPermanent, "no", grouped("nobody behind"), lane("a", kind))
		dead := f.bury(storage.ReasonPermanent, "no", grouped("dead"), lane("a", kind))
		died := f.now
		f.later(time.Second)
		f.add(newJob(grouped("dead"), lane("a", kind)))
		f.configure(f.s, storage.Lane{Queue: "b"}, storage.Settings{storage.SettingGroupLimit: 2})
		g, later, many := grouped("g"), grouped("later"), func(n *storage.NewJob) { n.Queue, n.Group = "b", "many" }
		ids := f.add(newJob(g), newJob(g, lane(queue, "other")), newJob(later, delay(time.Hour)), newJob(later), newJob(many), newJob(many), newJob(many), newJob(many))
		all := []storage.GroupState{
			{Queue: "a", Group: "dead", Head: dead, Kind: kind, State: storage.Dead, Reason: storage.ReasonPermanent, Error: "no", DiedAt: died, Blocked: 1},
			{Queue: "b", Group: "many", Head: ids[4], Kind: kind, State: storage.Ready, Blocked: 2},
			{Queue: queue, Group: "g", Head: ids[0], Kind: kind, State: storage.Ready, Blocked: 1},
			{Queue: queue, Group: "later", Head: ids[2], Kind: kind, State: storage.Scheduled, Blocked: 1},
		}
		f.groupsOf(waiting, all...)
		f.groupsOf(storage.GroupFilter{Queue: "b", Waiting: true}, all[1])
		f.groupsOf(storage.GroupFilter{Queue: "none", Waiting: true})
		f.lease(f.s, 9)
		all[2].State = storage.Running
		f.groupsOf(storage.GroupFilter{Queue: queue, Waiting: true}, all[2:]...)
	}},

	{"group_ahead", `of a blocked job, the blocked members of its group with lower keys;
Head is what a blocked job waits for: the member of its group that is scheduled, ready or running, or else the dead one with the lowest key that blocks it.`, func(f *fixture) {
		g := grouped("g")
		ids := f.add(newJob(g), newJob(g), newJob(g), newJob(g, lane(queue, "other")))
		var head storage.Leased
		for _, state := range []storage.State{storage.Ready, storage.Running, storage.Dead} {
			switch state {
			case storage.Running:
				head = f.leaseOne(f.s)
			case storage.Dead:
				f.apply(f.s, died(head.Lease, storage.ReasonPermanent, "no"))
			default:
				f.ahead(ids[0], 9, storage.Ahead{})
			}
			f.is(state, ids[0])
			f.ahead(ids[1], 9, storage.Ahead{Head: ids[0]})
			f.ahead(ids[3], 9, storage.Ahead{N: 2, Head: ids[0]})
			f.ahead(ids[3], 1, storage.Ahead{N: 1, More: true, Head: ids[0]})
		}
	}},

	{"group_handoff", `goes on to lease jobs of want
At most one live member of a group is scheduled, ready or running`, func(f *fixture) {
		g := grouped("g")
		w := f.offer(f.s, usual, 9)
		ids := f.add(newJob(g))
		first := w.took("handed over", ids...)[0]
		ids = append(ids, f.add(newJob(g))...)
		w.took("nothing beside it")
		f.states("handed over", ids, "running blocked")
		ids = append(ids, f.add(newJob(g), newJob(grouped("h")), newJob(grouped("h")))...)
		w.took("of several", ids[3])
		f.apply(f.s, storage.Finish{Lease: first.Lease, Outcome: storage.OutcomeDone})
		f.states("let in", ids, "- ready blocked running blocked")
	}},

	{"notify_group", `Notify makes the Store call f after each commit, of this process or another, that may concern a worker.`, func(f *fixture) {
		g := grouped("g")
		due := f.now.Add(time.Hour)
		f.add(newJob(g, lane("other", kind)), newJob(g, lane("other", "b")), newJob(g, lane("other", kind), dueAt(due)), newJob(g, lane("other", "b")), newJob(g, lane("other", "b")))
		lease := func(kind string) storage.Leased {
			return f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{"other"}, Kinds: []string{kind}})}).Leased[0]
		}
		hears := f.hearsDue(f.db.Open())
		first := lease(kind)
		hears("a member of another kind is let in", f.now, func() { f.apply(f.s, storage.Finish{Lease: first.Lease, Outcome: storage.OutcomeDone}) })
		second := lease("b")
		hears("a member that is due later is let in", due, func() { f.apply(f.s, storage.Finish{Lease: second.Lease, Outcome: storage.OutcomeDone}) })
		f.later(time.Hour)
		third := lease(kind)
		f.apply(f.s, died(third.Lease, storage.ReasonPermanent, "no"))
		hears("a head is deleted", f.now, func() { f.purgeDead(named(third.ID)) })
		fourth := lease("b")
		f.apply(f.s, died(fourth.Lease, storage.ReasonPermanent, "no"))
		hears("a head is skipped", f.now, func() { f.skipHead("other", "g", fourth.ID) })
	}},
}
