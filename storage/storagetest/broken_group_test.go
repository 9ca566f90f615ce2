package storagetest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// groups is an instance of which Groups, BehindDead or SkipHead has a fault.
type groups struct {
	*hooks
	ask  func(of *storage.GroupFilter)
	list func(m *Memory, page storage.GroupPage, queue string) storage.GroupPage
	skip func(m *Memory, queue, group string)
	wait func(m *Memory, all []storage.BehindDead) []storage.BehindDead
	set  func(s storage.Settings)
	in   func(queue, after string) (next string, ok bool) // of Regroup, in its place if ok
}

func (g *groups) Configure(ctx context.Context, lane storage.Lane, s storage.Settings) error {
	if g.set != nil {
		s = maps.Clone(s)
		g.set(s)
	}
	return g.hooks.Configure(ctx, lane, s)
}

func (g *groups) Regroup(ctx context.Context, queue, after string) (string, error) {
	if g.in != nil {
		if next, ok := g.in(queue, after); ok {
			return next, nil
		}
	}
	return g.hooks.Regroup(ctx, queue, after)
}

func (g *groups) Groups(ctx context.Context, of storage.GroupFilter, after string, limit int) (storage.GroupPage, error) {
	if g.ask != nil {
		g.ask(&of)
	}
	page, err := g.hooks.Groups(ctx, of, after, limit)
	if g.list != nil && err == nil {
		g.m.locked(func() { page = g.list(g.m, page, of.Queue) })
	}
	return page, err
}

func (g *groups) BehindDead(ctx context.Context, after string, limit int) ([]storage.BehindDead, error) {
	all, err := g.hooks.BehindDead(ctx, after, limit)
	if g.wait != nil && err == nil {
		g.m.locked(func() { all = g.wait(g.m, all) })
	}
	return all, err
}

func (g *groups) SkipHead(ctx context.Context, queue, group string) (storage.ID, error) {
	id, err := g.hooks.SkipHead(ctx, queue, group)
	if g.skip != nil {
		g.m.locked(func() { g.skip(g.m, queue, group) })
	}
	return id, err
}

func grouping(f func(g *groups)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		g := &groups{hooks: sound(in)}
		f(g)
		return g
	}
}

// regrouping has f change the members of each group after each call of the names given,
// all of them if there are none.
func regrouping(f func(m *Memory, members []*job), calls ...string) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		m := in.m
		again := func(call string) {
			if len(calls) > 0 && !slices.Contains(calls, call) {
				return
			}
			m.locked(func() {
				seen := map[storage.Lane]bool{}
				for _, j := range m.where((*job).live, byKey) {
					if name := (storage.Lane{Queue: j.Queue, Kind: j.Group}); j.Group != "" && !seen[name] {
						seen[name] = true
						f(m, m.members(j.Queue, j.Group))
					}
				}
			})
		}
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			defer again("enqueue")
			return in.Enqueue(ctx, now, jobs)
		}
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			defer again("exchange")
			return in.Exchange(ctx, now, x)
		}
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			defer again("redrive")
			return in.Redrive(ctx, now, sel, queue)
		}
		h.runNow = func(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
			defer again("runNow")
			return in.RunNow(ctx, now, sel, which)
		}
		h.change = func(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
			defer again("change")
			return in.Change(ctx, now, sel, e)
		}
		h.del = func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			defer again("delete")
			return in.Delete(ctx, sel)
		}
		h.cancel = func(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
			defer again("cancel")
			return in.Cancel(ctx, now, id, keep)
		}
		return h
	}
}

// wake lets in a blocked job, sleep blocks one that waits.
func (j *job) wake()  { j.State = storage.Ready }
func (j *job) sleep() { j.State, j.due = storage.Blocked, true }

// firstIn returns the first member in a state, or nil.
func firstIn(members []*job, state storage.State) *job {
	for _, j := range members {
		if j.State == state {
			return j
		}
	}
	return nil
}

// notLetIn undoes that a member was let in, once.
func notLetIn(_ *Memory, members []*job) {
	for _, j := range members {
		if j.live() && j.State != storage.Running && j.Attempt == 0 && j.Key > 1 {
			j.sleep()
		}
	}
}

var groupFaults = []fault{
	{"all members run at once", "group_members", regrouping(func(_ *Memory, members []*job) {
		for _, j := range members {
			if j.State == storage.Blocked {
				j.wake()
			}
		}
	})},
	{"the next runs beside the head", "group_members", regrouping(func(_ *Memory, members []*job) {
		if b := firstIn(members, storage.Blocked); b != nil && firstIn(members, storage.Running) != nil && firstIn(members, storage.Ready) == nil {
			b.wake()
		}
	})},
	{"kinds have groups of their own", "group_members", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			jobs = slices.Clone(jobs)
			for i := range jobs {
				if jobs[i].Group != "" && jobs[i].Kind != kind {
					jobs[i].Group += jobs[i].Kind
				}
			}
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
	{"queues share their groups", "group_members", regrouping(func(m *Memory, members []*job) {
		for _, j := range members {
			if j.Queue == "other" && j.State == storage.Ready && len(m.members(queue, j.Group)) > 0 {
				j.sleep()
			}
		}
	}, "enqueue")},
	{"a lease does not name the group", "group_members", after(func(_ *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for i := range res.Leased {
			res.Leased[i].Group = ""
		}
	})},
	{"the highest priority goes first", "group_order", regrouping(func(_ *Memory, members []*job) {
		if r := firstIn(members, storage.Ready); r != nil {
			for _, j := range members {
				if j.State == storage.Blocked && j.Priority > r.Priority {
					r.sleep()
					j.wake()
					return
				}
			}
		}
	})},
	{"the next is let in by the next call", "group_order", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			last := x
			x.Finish = nil
			res, err := in.Exchange(ctx, now, x)
			if err != nil || len(last.Finish) == 0 {
				return res, err
			}
			last.Extend, last.Wants, last.Urgent, last.Hold, last.Release = nil, nil, 0, nil, nil
			ends, err := in.Exchange(ctx, now, last)
			res.Finished = ends.Finished
			return res, err
		}
		return h
	}},
	{"a retry lets others pass", "group_retries", regrouping(func(_ *Memory, members []*job) {
		if s := firstIn(members, storage.Scheduled); s != nil && s.Attempt > 0 {
			if b := firstIn(members, storage.Blocked); b != nil {
				b.wake()
			}
		}
	})},
	{"what is let in is due", "group_due", regrouping(func(_ *Memory, members []*job) {
		if s := firstIn(members, storage.Scheduled); s != nil && s.Attempt == 0 && s.Key > 1 {
			s.wake()
		}
	})},
	{"a delayed job lets others pass", "group_due", regrouping(func(_ *Memory, members []*job) {
		s, b := firstIn(members, storage.Scheduled), firstIn(members, storage.Blocked)
		if s != nil && s.Attempt == 0 && b != nil && b.due {
			b.wake()
		}
	})},
	{"a job that is cancelled lets nobody in", "group_cancel", regrouping(notLetIn, "cancel")},
	{"a job that is deleted lets nobody in", "group_dead", regrouping(notLetIn, "delete")},
	{"a job that moves lets nobody in", "group_dead", regrouping(notLetIn, "change")},
	{"a dead member lets others pass", "group_dead", regrouping(func(m *Memory, members []*job) {
		for _, j := range members {
			j.blocks = false
			m.regroup(j.Queue, j.Group, false)
		}
	}, "exchange")},
	{"a dead member blocks those with lower keys too", "group_redrive_behind", regrouping(func(_ *Memory, members []*job) {
		if r := firstIn(members, storage.Ready); r != nil && firstIn(members, storage.Dead) != nil {
			r.sleep()
		}
	})},
	{"a redriven job goes to the end", "group_redrive", regrouping(func(_ *Memory, members []*job) {
		if r, n := firstIn(members, storage.Ready), len(members); r != nil && r.redriven && members[n-1].State == storage.Blocked {
			r.sleep()
			members[n-1].wake()
		}
	}, "redrive")},
	{"a redriven job is beside the one that runs", "group_redrive", regrouping(func(_ *Memory, members []*job) {
		for _, j := range members {
			if j.State == storage.Blocked && j.redriven {
				j.wake()
			}
		}
	}, "redrive")},
	{"one that failed goes before a redriven one", "group_redrive", regrouping(func(_ *Memory, members []*job) {
		for _, j := range members[1:] {
			if j.State == storage.Blocked && j.Retry > 0 && members[0].State == storage.Ready {
				members[0].sleep()
				j.State = storage.Scheduled
			}
		}
	})},
	{"an urgent job stays urgent though it is blocked", "group_redrive", regrouping(func(_ *Memory, members []*job) {
		for _, j := range members {
			if j.State == storage.Blocked && j.Key == 3 {
				j.urgent = true
			}
		}
	}, "redrive", "runNow")},
	{"a blocked job is run now", "group_run_now", regrouping(func(_ *Memory, members []*job) {
		for _, j := range members {
			if j.State == storage.Blocked {
				j.DueAt = j.CreatedAt
			}
		}
	}, "runNow")},
	{"an edit lets a blocked job in", "group_change", changing(func(_ *Memory, _ *storage.Edit, was, j *job) {
		if was.State == storage.Blocked && j.State == storage.Blocked {
			j.wake()
		}
	}, nil)},
	{"a job that moves stays as it is", "group_change", changing(func(_ *Memory, e *storage.Edit, was, j *job) {
		if e.Queue != "" {
			j.State = was.State
		}
	}, nil)},
	{"a lease that is taken lets the next in", "group_reclaim", reclaiming(func(in *instance, _ time.Time) {
		for _, j := range in.m.jobs {
			if j.State == storage.Blocked {
				j.wake()
			}
		}
	})},
	{"blocked jobs keep a wrong due time", "group_clock", func(in *instance) storage.Store {
		h := sound(in)
		h.step = func(ctx context.Context, now time.Time, after int64) (int64, error) {
			was := map[int64]time.Time{}
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					was[key] = j.DueAt
				}
			})
			next, err := in.StepClock(ctx, now, after)
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					if j.State == storage.Blocked {
						j.DueAt = was[key]
					}
				}
			})
			return next, err
		}
		return h
	}},
	{"blocked jobs are listed by key", "group_lists", func(in *instance) storage.Store {
		h := sound(in)
		h.list = func(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
			page, err := in.Jobs(ctx, f, after, limit)
			if blocked := slices.IndexFunc(page.Jobs, func(r storage.Record) bool { return r.State == storage.Blocked }); blocked >= 0 {
				slices.SortStableFunc(page.Jobs[blocked:], func(a, b storage.Record) int { return int(a.Key - b.Key) })
			}
			return page, err
		}
		return h
	}},
	{"groups of all queues are listed", "groups_list", grouping(func(g *groups) {
		g.list = func(m *Memory, page storage.GroupPage, queue string) storage.GroupPage {
			if len(page.Groups) == 0 && queue == "b" {
				page.Groups = append(page.Groups, storage.GroupState{})
			}
			return page
		}
	})},
	{"blocked members are counted without an end", "groups_list", grouping(func(g *groups) {
		g.list = func(m *Memory, page storage.GroupPage, _ string) storage.GroupPage {
			for i := range page.Groups {
				page.Groups[i].Blocked = len(m.members(page.Groups[i].Queue, page.Groups[i].Group)) - 1
			}
			return page
		}
	})},
	{"the place of a page is the last group of all", "groups_list", grouping(func(g *groups) {
		g.list = func(_ *Memory, page storage.GroupPage, _ string) storage.GroupPage {
			page.Next = ""
			return page
		}
	})},
	{"only dead heads are listed", "groups_waiting", grouping(func(g *groups) {
		g.ask = func(of *storage.GroupFilter) { of.Waiting = false }
	})},
	{"all groups that wait are listed", "groups_list", grouping(func(g *groups) {
		g.ask = func(of *storage.GroupFilter) { of.Waiting = true }
	})},
	{"the last head is listed", "groups_waiting", grouping(func(g *groups) {
		g.list = func(m *Memory, page storage.GroupPage, _ string) storage.GroupPage {
			for i := range page.Groups {
				for _, j := range m.members(page.Groups[i].Queue, page.Groups[i].Group) {
					if j.placed && j.live() {
						page.Groups[i].Head, page.Groups[i].State = j.ID, j.State
					}
				}
			}
			return page
		}
	})},
	{"all that are blocked wait behind the dead", "behind_dead_between", grouping(func(g *groups) {
		g.wait = func(m *Memory, all []storage.BehindDead) []storage.BehindDead {
			for i := range all {
				all[i].Jobs = len(m.where(func(j *job) bool { return j.Queue == all[i].Queue && j.State == storage.Blocked }, byKey))
			}
			return all
		}
	})},
	{"the last death is since when others wait", "behind_dead", grouping(func(g *groups) {
		g.wait = func(m *Memory, all []storage.BehindDead) []storage.BehindDead {
			for i := range all {
				for _, j := range m.where(func(j *job) bool { return j.blocks && j.Queue == all[i].Queue }, byKey) {
					all[i].Since = j.EndedAt
				}
			}
			return all
		}
	})},
	{"groups of which nobody waits are behind the dead", "behind_dead", grouping(func(g *groups) {
		g.wait = func(m *Memory, all []storage.BehindDead) []storage.BehindDead {
			for i := range all {
				all[i].Groups = len(m.where(func(j *job) bool { return j.blocks && j.Queue == all[i].Queue }, byKey))
			}
			return all
		}
	})},
	{"that there are more is not said", "behind_dead_many", grouping(func(g *groups) {
		g.wait = func(_ *Memory, all []storage.BehindDead) []storage.BehindDead {
			for i := range all {
				all[i].More = false
			}
			return all
		}
	})},
	{"the last queue is left out", "behind_dead", grouping(func(g *groups) {
		g.wait = func(_ *Memory, all []storage.BehindDead) []storage.BehindDead { return all[:max(len(all)-1, 0)] }
	})},
	{"all dead heads are skipped", "group_redrive_behind", grouping(func(g *groups) {
		g.skip = func(m *Memory, queue, group string) {
			for _, j := range m.members(queue, group) {
				j.blocks = false
			}
			m.regroup(queue, group, false)
		}
	})},
	{"a skipped head is deleted", "group_dead", grouping(func(g *groups) {
		g.skip = func(m *Memory, queue, group string) {
			for key, j := range m.jobs {
				if j.State == storage.Dead && j.Queue == queue && j.Group == group && !j.blocks {
					delete(m.jobs, key)
				}
			}
		}
	})},
	{"a blocked job waits for its neighbour", "group_ahead", looking(func(in *instance, l *looks) {
		l.ahead = func(id storage.ID, _ int, a storage.Ahead) storage.Ahead {
			in.m.locked(func() {
				for _, j := range in.m.members(queue, "g") {
					if j.State == storage.Blocked && j.Key < id.Key() {
						a.Head = j.ID
					}
				}
			})
			return a
		}
	})},
	{"all blocked members are counted", "group_ahead", looking(func(in *instance, l *looks) {
		l.ahead = func(id storage.ID, most int, a storage.Ahead) storage.Ahead {
			if !a.Head.IsZero() && !a.More {
				a.N = 2
			}
			return a
		}
	})},
	{"the limit is always one", "group_limit", grouping(func(g *groups) {
		g.set = func(s storage.Settings) { delete(s, storage.SettingGroupLimit) }
	})},
	{"a retry keeps its place", "group_limit_scheduled", regrouping(func(_ *Memory, members []*job) {
		if s := firstIn(members, storage.Scheduled); s != nil && s.Retry > 0 && firstIn(members, storage.Blocked) == nil {
			if r := firstIn(members, storage.Ready); r != nil {
				r.sleep()
			}
		}
	}, "exchange")},
	{"whoever is put back for later leaves its place", "group_limit_stays", before(func(_ *Memory, x *storage.Exchange) {
		for i := range x.Finish {
			x.Finish[i].Stays = false
		}
	})},
	{"whoever is returned for later keeps its place", "group_limit_stays", before(func(_ *Memory, x *storage.Exchange) {
		for i := range x.Finish {
			x.Finish[i].Stays = true
		}
	})},
	{"what is due needs no place", "group_limit_scheduled", regrouping(func(_ *Memory, members []*job) {
		for _, j := range members {
			if j.State == storage.Blocked && j.Retry > 0 {
				j.wake()
			}
		}
	}, "exchange")},
	{"dead members always block", "group_pass", grouping(func(g *groups) {
		g.set = func(s storage.Settings) { delete(s, storage.SettingDeadHead) }
	})},
	{"settings take effect by and by", "group_regroup", grouping(func(g *groups) {
		g.in = func(string, string) (string, bool) { return "", true }
	})},
	{"all groups are one step", "group_regroup", grouping(func(g *groups) {
		g.in = func(queue, after string) (string, bool) {
			g.m.locked(func() {
				for _, j := range g.m.jobs {
					if j.Queue == queue {
						g.m.regroup(queue, j.Group, false)
					}
				}
			})
			return "", true
		}
	})},
	{"a lower limit is for those that come", "group_regroup_lower", grouping(func(g *groups) {
		g.in = func(queue, _ string) (string, bool) {
			limit, _ := g.m.groupRule(queue)
			found := false
			g.m.locked(func() {
				for _, j := range g.m.jobs {
					found = found || j.State == storage.Blocked
				}
			})
			return "", !found && limit < 5
		}
	})},
	{"those that run count for nothing", "group_regroup_lower", regrouping(func(m *Memory, members []*job) {
		limit, _ := m.groupRule(queue)
		if limit == 2 && members[0].Group == "g" && members[0].State == storage.Blocked && len(members) == 3 {
			members[0].wake()
		}
	}, "exchange")},
	{"the first members are blocked", "group_regroup_lower", grouping(func(g *groups) {
		g.in = func(queue, _ string) (string, bool) {
			limit, _ := g.m.groupRule(queue)
			if limit != 2 {
				return "", false
			}
			g.m.locked(func() {
				for _, j := range g.m.jobs {
					if j.Group == "2" && j.State == storage.Ready && j.Key%5 != 0 {
						j.block()
					}
				}
			})
			return "", true
		}
	})},
	{"a scheduled head keeps its place", "group_regroup_scheduled", grouping(func(g *groups) {
		g.in = func(queue, _ string) (string, bool) {
			g.m.locked(func() { g.m.regroup(queue, "g", false) })
			return "", true
		}
	})},
	{"settings take effect again and again", "group_regroup_scheduled", grouping(func(g *groups) {
		g.in = func(queue, _ string) (string, bool) {
			g.m.locked(func() { g.m.regroup(queue, "g", true) })
			return "", true
		}
	})},
	{"a new member takes the place of one that waits", "group_regroup_place", regrouping(func(_ *Memory, members []*job) {
		if len(members) == 4 && members[1].State == storage.Ready && members[3].State == storage.Blocked && members[2].State == storage.Blocked {
			members[1].sleep()
			members[3].wake()
		}
	}, "enqueue")},
	{"a new member is let in if nobody runs here", "group_handoff", regrouping(func(_ *Memory, members []*job) {
		if b := firstIn(members, storage.Blocked); b != nil && b.Key == 2 && firstIn(members, storage.Running) != nil {
			b.wake()
		}
	}, "enqueue")},
}
