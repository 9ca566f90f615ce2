package storagetest

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// modelFree is the free space of a Memory: more than a test sets as the least, or less
// than tooMuch.
const modelFree = 1 << 40

// evictions are jobs that a call has evicted, and what it has looked at for that.
type evictions struct {
	first  int64          // key of the first job of the call
	named  map[int64]bool // keys of others that its answers name
	at     time.Time
	looked map[int64]bool
	jobs   []storage.Evicted
}

func (m *Memory) newEvictions() *evictions {
	return &evictions{first: m.lastKey + 1, named: map[int64]bool{}, looked: map[int64]bool{}}
}

// atomically undoes what f has done with jobs if it returns an error.
func (m *Memory) atomically(f func() error) error {
	jobs, unique, evicted, last := maps.Clone(m.jobs), maps.Clone(m.unique), maps.Clone(m.graves.evicted), m.lastKey
	windows, behind, topics, letIn := maps.Clone(m.windows), maps.Clone(m.behind), m.topics.clone(), m.regroups.letIn
	totals, numbers := maps.Clone(m.totals), maps.Clone(m.numbers)
	was := map[*job]job{}
	for _, j := range jobs {
		was[j] = *j
	}
	err := f()
	if err != nil {
		m.topics = topics
		m.jobs, m.unique, m.graves.evicted, m.lastKey = jobs, unique, evicted, last
		m.windows, m.behind, m.regroups.letIn, m.totals, m.numbers = windows, behind, letIn, totals, numbers
		for j, before := range was {
			*j = before
			m.unended[j.Key] = true
		}
	}
	return err
}

// admit makes room for a job and adds it, unless it is a duplicate.
func (m *Memory) admit(now time.Time, n storage.NewJob, e *evictions) (out storage.Enqueued, j *job, err error) {
	e.at = floor(now)
	if full := m.makeRoom(&n, e); full != nil {
		return out, nil, full
	}
	out, j = m.enqueue(now, n)
	e.named[out.ID.Key()] = true
	return out, j, nil
}

// waitingIn returns the jobs that wait in a queue, or in all.
func (m *Memory) waitingIn(queue string, state storage.State, compare func(a, b *job) int) []*job {
	return m.liveWhere(func(j *job) bool { return (queue == "" || j.Queue == queue) && j.State == state }, compare)
}

// usedBy returns the use of a queue, or of all.
func (m *Memory) usedBy(queue string) (jobs, bytes int64) {
	for _, state := range []storage.State{storage.Scheduled, storage.Ready, storage.Blocked} {
		for _, j := range m.waitingIn(queue, state, byKey) {
			jobs++
			bytes += countsFor(len(j.Args) + len(j.Headers))
		}
	}
	return jobs, bytes
}

func (m *Memory) makeRoom(n *storage.NewJob, e *evictions) *storage.QueueFullError {
	if _, held := m.unique[n.Unique]; held || n.Queue == storage.BulkQueue {
		return nil
	}
	for _, queue := range []string{n.Queue, ""} {
		s := m.settings[storage.Lane{Queue: queue}]
		if least := s[storage.SettingMinFree]; least > modelFree && int64(n.Priority) <= s[storage.SettingMinFreePriority] {
			return &storage.QueueFullError{Queue: queue, MinFree: least, Free: modelFree}
		}
	}
	var caps []*storage.QueueFullError
	for _, queue := range []string{n.Queue, ""} {
		s := m.settings[storage.Lane{Queue: queue}]
		f := &storage.QueueFullError{
			Queue: queue, MaxJobs: s[storage.SettingMaxJobs], MaxBytes: s[storage.SettingMaxBytes],
			WhenFull: storage.WhenFull(s[storage.SettingWhenFull]),
		}
		if f.MaxJobs > 0 || f.MaxBytes > 0 {
			f.Jobs, f.Bytes = m.usedBy(queue)
			f.Size = countsFor(len(n.Args) + len(n.Headers))
			caps = append(caps, f)
		}
	}
	var out []*job
	for _, f := range caps {
		jobs, bytes := f.Jobs+1, f.Bytes+f.Size
		for _, j := range out { // the queue comes first
			jobs, bytes = jobs-1, bytes-countsFor(len(j.Args)+len(j.Headers))
		}
		victims := m.victims(f, n.Priority, e)
		for f.MaxJobs > 0 && jobs > f.MaxJobs || f.MaxBytes > 0 && bytes > f.MaxBytes {
			victims = slices.DeleteFunc(victims, func(j *job) bool { return slices.Contains(out, j) })
			var j *job
			for j == nil {
				if len(victims) == 0 || !e.looked[victims[0].Key] && len(e.looked) == within(math.MaxInt, m.bounds.Evicted) {
					return f
				}
				e.looked[victims[0].Key] = true
				if !m.stays(victims[0]) {
					j = victims[0]
				}
				victims = victims[1:]
			}
			out = append(out, j)
			jobs, bytes = jobs-1, bytes-countsFor(len(j.Args)+len(j.Headers))
		}
	}
	for _, j := range out {
		m.evict(j, e)
	}
	return nil
}

func countsFor(size int) int64 { return int64(size) + storage.JobOverhead }

// victims returns the jobs that can be evicted for one of a priority, in order, and
// among them those that are to be passed over.
func (m *Memory) victims(f *storage.QueueFullError, priority int, e *evictions) []*job {
	if f.WhenFull == storage.Refuse {
		return nil
	}
	order := func(a, b *job) int {
		if f.WhenFull == storage.EvictLowest && a.Priority != b.Priority {
			return cmp.Compare(a.Priority, b.Priority)
		}
		return byDue(a, b)
	}
	scheduled := m.waitingIn("", storage.Scheduled, byDue)
	scheduled = scheduled[:within(len(scheduled), m.bounds.Scheduled)]
	scheduled = slices.DeleteFunc(scheduled, func(j *job) bool { return f.Queue != "" && j.Queue != f.Queue })
	slices.SortFunc(scheduled, order)
	all := slices.Concat(m.waitingIn(f.Queue, storage.Ready, order), scheduled)
	return slices.DeleteFunc(all, func(j *job) bool {
		return j.Key >= e.first || e.named[j.Key] || f.WhenFull == storage.EvictLowest && j.Priority > priority
	})
}

// stays reports whether a job cannot be evicted.
func (m *Memory) stays(j *job) bool {
	holder, ok := m.unique[j.Unique]
	return j.Group != "" || ok && holder == j.ID && j.scope == storage.UniqueForever
}

func (m *Memory) evict(j *job, e *evictions) {
	lane := storage.Lane{Queue: j.Queue, Kind: j.Kind}
	delete(m.jobs, j.Key)
	m.forgoKey(j)
	if j.Unique != "" {
		m.releaseKey(e.at, j)
	}
	m.graves.evicted[lane]++
	e.jobs = append(e.jobs, storage.Evicted{ID: j.ID, Lane: lane})
}

// graves are the jobs that have died in the exchange under way, and how many jobs and how
// many dead letters were ever evicted.
type graves struct {
	died             []*job
	evicted, dropped map[storage.Lane]int64
}

// evictDead evicts dead letters if more are dead than may be of what has died.
func (m *Memory) evictDead() *evictions {
	e := &evictions{}
	lanes := map[storage.Lane]bool{}
	for _, j := range m.graves.died {
		for _, lane := range []storage.Lane{{Queue: j.Queue, Kind: j.Kind}, {Queue: j.Queue}, {}} {
			lanes[lane] = true
		}
	}
	all := slices.SortedFunc(maps.Keys(lanes), func(a, b storage.Lane) int {
		rank := func(l storage.Lane) int { return min(len(l.Queue), 1) + min(len(l.Kind), 1) }
		return cmp.Or(rank(b)-rank(a), a.Compare(b))
	})
	evicts, looks := within(math.MaxInt, m.bounds.DeadEvicted), within(math.MaxInt, m.bounds.DeadLooked)
	for _, lane := range all {
		s := m.settings[lane]
		if s[storage.SettingMaxDead] <= 0 || storage.WhenDeadFull(s[storage.SettingWhenDeadFull]) != storage.EvictDead {
			continue
		}
		dead := m.where(func(j *job) bool {
			return j.State == storage.Dead && (lane.Queue == "" || lane.Queue == j.Queue) && (lane.Kind == "" || lane.Kind == j.Kind)
		}, func(a, b *job) int { return cmp.Or(byEnd(a, b), byKey(a, b)) })
		over := len(dead) - int(s[storage.SettingMaxDead])
		for _, j := range dead {
			if over <= 0 || len(e.jobs) == evicts || looks == 0 {
				break
			}
			if looks--; j.blocks || slices.Contains(m.graves.died, j) {
				continue
			}
			of := storage.Lane{Queue: j.Queue, Kind: j.Kind}
			delete(m.jobs, j.Key)
			m.forgoKey(j)
			m.graves.dropped[of]++
			e.jobs = append(e.jobs, storage.Evicted{ID: j.ID, Lane: of, Dead: true})
			over--
		}
	}
	return e
}

// NotifyEvicted implements [storage.Examiner].
func (in *instance) NotifyEvicted(f func(time.Time, []storage.Evicted)) (cancel func()) {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	in.lastFunc++
	n := in.lastFunc
	in.evictees[n] = f
	return func() {
		in.m.mu.Lock()
		defer in.m.mu.Unlock()
		delete(in.evictees, n)
	}
}

// tellEvicted tells what a call has evicted. The database is not locked.
func (in *instance) tellEvicted(at time.Time, e *evictions) {
	if len(e.jobs) == 0 {
		return
	}
	in.m.mu.Lock()
	all := slices.Collect(maps.Values(in.evictees))
	in.m.mu.Unlock()
	for _, f := range all {
		f(at, e.jobs)
	}
}
