package storagetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// enqueuing has f change the database, or the jobs, before each Enqueue. What f returns
// undoes it.
func enqueuing(f func(m *Memory, jobs []storage.NewJob) (undo func())) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			var undo func()
			jobs = slices.Clone(jobs)
			in.m.locked(func() { undo = f(in.m, jobs) })
			out, err := in.Enqueue(ctx, now, jobs)
			if undo != nil {
				in.m.locked(undo)
			}
			return out, err
		}
		return h
	}
}

// capping has f change the settings of each lane before each Enqueue, until it is over.
func capping(f func(m *Memory, lane storage.Lane, s storage.Settings)) func(in *instance) storage.Store {
	return enqueuing(func(m *Memory, _ []storage.NewJob) func() {
		was := m.settings
		m.settings = map[storage.Lane]storage.Settings{}
		for lane, s := range was {
			m.settings[lane] = storage.Settings{}
			for name, value := range s {
				m.settings[lane][name] = value
			}
		}
		for lane, s := range m.settings { // all are there for f
			f(m, lane, s)
		}
		return func() { m.settings = was }
	})
}

// deadening has f change the database and the settings of each lane before each Exchange.
func deadening(f func(m *Memory, s storage.Settings)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			in.m.locked(func() {
				for _, s := range in.m.settings {
					f(in.m, s)
				}
			})
			return in.Exchange(ctx, now, x)
		}
		return h
	}
}

// holdingKeys returns what has the keys that are held for a time be held still.
func holdingKeys(m *Memory) (undo func()) {
	windows, unique := maps.Clone(m.windows), maps.Clone(m.unique)
	return func() {
		for key, w := range windows {
			if _, held := m.unique[key]; !held {
				m.windows[key], m.unique[key] = w, unique[key]
			}
		}
	}
}

// oneByOne makes a call of each job.
func oneByOne(in *instance) storage.Store {
	h := sound(in)
	h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
		for i := range jobs {
			one, err := in.Enqueue(ctx, now, jobs[i:i+1])
			if err != nil {
				return nil, err
			}
			out = append(out, one...)
		}
		return out, nil
	}
	return h
}

var capFaults = []fault{
	{"no caps of jobs", "cap_refuse", capping(func(_ *Memory, _ storage.Lane, s storage.Settings) { delete(s, storage.SettingMaxJobs) })},
	{"the size of the job is not said", "cap_refuse", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			var full *storage.QueueFullError
			if errors.As(err, &full) {
				full.Size = 0
			}
			return out, err
		}
		return h
	}},
	{"one too few", "cap_refuse", capping(func(_ *Memory, _ storage.Lane, s storage.Settings) { s[storage.SettingMaxJobs]-- })},
	{"a duplicate needs room", "cap_refuse", enqueuing(func(m *Memory, jobs []storage.NewJob) func() {
		var e evictions
		for i := range jobs {
			n := jobs[i]
			if n.Unique = ""; m.makeRoom(&n, &e) != nil {
				jobs[i].Unique = ""
			}
		}
		return nil
	})},
	{"the jobs before the one that is refused are inserted", "cap_refuse", oneByOne},
	{"no cap of the database", "cap_bytes", capping(func(m *Memory, lane storage.Lane, _ storage.Settings) {
		if lane == (storage.Lane{}) {
			m.settings[lane] = nil
		}
	})},
	{"bytes without those that a job takes anyway", "cap_bytes", capping(func(m *Memory, lane storage.Lane, s storage.Settings) {
		if jobs, _ := m.usedBy(lane.Queue); s[storage.SettingMaxBytes] > 0 {
			s[storage.SettingMaxBytes] += (jobs + 1) * storage.JobOverhead
		}
	})},
	{"a redrive makes room", "cap_let_in", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, to string) (storage.Step, error) {
			in.m.locked(func() { _ = in.m.makeRoom(&storage.NewJob{Queue: queue}, in.m.newEvictions()) })
			return in.Redrive(ctx, now, sel, to)
		}
		return h
	}},
	{"the newest goes", "cap_evict_oldest", enqueuing(func(m *Memory, _ []storage.NewJob) func() {
		ready := m.where(func(j *job) bool { return j.State == storage.Ready }, byKey)
		turn := func() {
			for _, j := range ready {
				j.DueAt = time.UnixMicro(-j.DueAt.UnixMicro()).UTC()
			}
		}
		turn()
		return turn
	})},
	{"priorities count", "cap_evict_oldest", capping(func(_ *Memory, _ storage.Lane, s storage.Settings) {
		s[storage.SettingWhenFull] = int64(storage.EvictLowest)
	})},
	{"priorities do not count", "cap_evict_lowest", capping(func(_ *Memory, _ storage.Lane, s storage.Settings) {
		s[storage.SettingWhenFull] = int64(storage.EvictOldest)
	})},
	{"the queue says what happens in a full database", "cap_evict_database", capping(func(m *Memory, _ storage.Lane, s storage.Settings) {
		if of := m.settings[wholeQueue]; of != nil {
			s[storage.SettingWhenFull] = of[storage.SettingWhenFull]
		}
	})},
	{"a key for ever does not keep its job", "cap_evict_stays", enqueuing(func(m *Memory, _ []storage.NewJob) func() {
		all := m.where(func(j *job) bool { return j.scope == storage.UniqueForever }, byKey)
		for _, j := range all {
			j.scope = storage.UniqueLive
		}
		return func() {
			for _, j := range all {
				j.scope = storage.UniqueForever
			}
		}
	})},
	{"what was evicted has its key for its time", "cap_evict_key", enqueuing(func(m *Memory, _ []storage.NewJob) func() { return holdingKeys(m) })},
	{"what was evicted has no key, though its handler has run", "cap_evict_key", enqueuing(func(m *Memory, _ []storage.NewJob) func() {
		for _, j := range m.where(func(j *job) bool { return j.State == storage.Ready }, byKey) {
			j.Attempt = 0
		}
		return nil
	})},
	{"dead letters that were evicted have their keys for their time", "cap_dead_key", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			var undo func()
			in.m.locked(func() { undo = holdingKeys(in.m) })
			defer in.m.locked(undo)
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"jobs that run are evicted", "cap_evict_running", enqueuing(func(m *Memory, _ []storage.NewJob) func() {
		running := m.where(func(j *job) bool { return j.State == storage.Running }, byKey)
		for _, j := range running {
			j.State = storage.Ready
		}
		return func() {
			for _, j := range running {
				j.State = storage.Running
			}
		}
	})},
	{"what was replaced goes for the next", "cap_evict_named", oneByOne},
	{"those that were evicted are forgotten", "cap_evict_stays", eachLane(func(_ *Memory, s *storage.LaneStats) { s.Evicted = 0 })},
	{"fewer jobs are looked at than the bound", "cap_evict_limit", bounding(func(b *Bounds) { b.Evicted = 3 })},
	{"fewer scheduled jobs are looked at than the bound", "cap_evict_scheduled", bounding(func(b *Bounds) { b.Scheduled = 3 })},
	{"any number of scheduled jobs is looked at", "cap_evict_scheduled", bounding(func(b *Bounds) { b.Scheduled = 0 })},
	{"fewer dead letters are evicted than the bound", "cap_dead_limit", bounding(func(b *Bounds) { b.DeadEvicted = 3 })},
	{"any number is evicted", "cap_evict_limit", enqueuing(func(m *Memory, jobs []storage.NewJob) func() {
		e := m.newEvictions()
		if len(jobs) == 1 && m.makeRoom(&jobs[0], e) != nil {
			_ = m.makeRoom(&storage.NewJob{Queue: jobs[0].Queue}, m.newEvictions())
		}
		return nil
	})},
	{"any priority comes in", "cap_min_free", capping(func(_ *Memory, _ storage.Lane, s storage.Settings) { delete(s, storage.SettingMinFree) })},
	{"none comes in", "cap_min_free", capping(func(_ *Memory, _ storage.Lane, s storage.Settings) { s[storage.SettingMinFreePriority] = 100 })},
	{"ordinary ones whatever is set", "cap_min_free", capping(func(_ *Memory, _ storage.Lane, s storage.Settings) { s[storage.SettingMinFreePriority] = 0 })},
	{"a schedule fires whatever the cap", "cap_fire", func(in *instance) storage.Store {
		h := sound(in)
		h.fire = func(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
			in.m.locked(func() { clear(in.m.settings) })
			return in.Fire(ctx, now, firings)
		}
		return h
	}},
	{"no caps of dead letters", "cap_dead", deadening(func(_ *Memory, s storage.Settings) { delete(s, storage.SettingMaxDead) })},
	{"dead letters are never kept", "cap_dead", deadening(func(_ *Memory, s storage.Settings) {
		s[storage.SettingWhenDeadFull] = int64(storage.EvictDead)
	})},
	{"dead heads are evicted", "cap_dead_stays", deadening(func(m *Memory, _ storage.Settings) {
		for _, j := range m.jobs {
			j.blocks = false
		}
	})},
	{"those that have just died are evicted", "cap_dead_stays", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			out, err := in.Exchange(ctx, now, x)
			in.m.locked(func() {
				if len(in.m.graves.died) > 1 {
					in.m.graves.died = in.m.graves.died[1:]
					in.m.evictDead()
				}
			})
			return out, err
		}
		return h
	}},
	{"any number of dead letters is evicted", "cap_dead_limit", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			out, err := in.Exchange(ctx, now, x)
			in.m.locked(func() { in.m.evictDead() })
			return out, err
		}
		return h
	}},
	{"evicted dead letters are told of as jobs", "cap_dead_told", func(in *instance) storage.Store {
		h := sound(in)
		h.evicted = func(f func(time.Time, []storage.Evicted)) func() {
			return in.NotifyEvicted(func(at time.Time, jobs []storage.Evicted) {
				jobs = slices.Clone(jobs)
				for i := range jobs {
					jobs[i].Dead = false
				}
				f(at, jobs)
			})
		}
		return h
	}},
	{"told in any order", "cap_told", func(in *instance) storage.Store {
		h := sound(in)
		h.evicted = func(f func(time.Time, []storage.Evicted)) func() {
			return in.NotifyEvicted(func(at time.Time, jobs []storage.Evicted) {
				jobs = slices.Clone(jobs)
				slices.Reverse(jobs)
				f(at, jobs)
			})
		}
		return h
	}},
	{"told for ever", "cap_told", func(in *instance) storage.Store {
		h := sound(in)
		h.evicted = func(f func(time.Time, []storage.Evicted)) func() {
			in.NotifyEvicted(f)
			return func() {}
		}
		return h
	}},
}
