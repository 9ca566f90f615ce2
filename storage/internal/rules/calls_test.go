package rules

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// Calls that follow each other in one transaction leave what they leave if each of them reads and
// writes for itself.
func TestTx_callsOfOneTransaction(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 43))
		one, each := newMemory(t), newMemory(t)
		for _, m := range []*memory{one, each} {
			m.set[storage.SettingGroupLimit] = int64(seed % 4)
			m.set[storage.SettingDeadHead] = int64(seed / 4 % 2)
			m.set[storage.SettingOrder] = int64(seed / 8 % 2)
		}
		for range 8 {
			calls := randomCalls(r, each)
			for _, c := range calls {
				c.needs(each)
				each.load()
				each.must(c.decide(each))
				each.write()
				c.needs(one)
			}
			one.load()
			for _, c := range calls {
				one.tx.Begin(one.now, 0)
				one.must(c.decide(one))
			}
			one.write()
			if one.String() != each.String() || !reflect.DeepEqual(one.keys, each.keys) {
				t.Fatalf("seed %d: one transaction leaves\n%s\nand one for each call\n%s", seed, one, each)
			}
			leases := r.Uint64()
			for _, m := range []*memory{one, each} {
				m.now = m.now.Add(30 * time.Second)
				m.promote(leases)
			}
		}
	}
}

// call is an exchange, or an Enqueue.
type call struct {
	ends []ending
	jobs []storage.NewJob
}

func (c call) needs(m *memory) {
	m.needs(c.ends)
	m.need.Enter(c.jobs)
}

func (c call) decide(m *memory) error {
	_, err := m.enter(c.jobs...)
	if err != nil {
		return err
	}
	return m.ends(c.ends)
}

// randomCalls returns calls, of which the exchanges end jobs that run.
func randomCalls(r *rand.Rand, m *memory) (all []call) {
	var running []int64
	for id, j := range m.jobs {
		if j.State == storage.Running {
			running = append(running, id)
		}
	}
	slices.Sort(running)
	random := func() (jobs []storage.NewJob) {
		for range r.IntN(4) {
			j := job(string(rune('a' + r.IntN(26))))
			if r.IntN(3) > 0 {
				j.Group = string(rune('g' + r.IntN(2)))
			}
			if r.IntN(2) > 0 {
				modes := []storage.ConflictMode{storage.Keep, storage.Replace, storage.Debounce, storage.After}
				j.Unique, j.Conflict = string(rune('u'+r.IntN(3))), &storage.Conflict{Mode: modes[r.IntN(len(modes))], Quiet: time.Minute, Fresh: r.IntN(2) > 0}
				j.UniqueFor = time.Duration(r.IntN(2)) * time.Minute
			}
			if r.IntN(3) == 0 {
				j.Delay = time.Duration(r.IntN(60)) * time.Second
			}
			jobs = append(jobs, j)
		}
		return jobs
	}
	for range 1 + r.IntN(4) {
		c := call{jobs: random()}
		for len(running) > 0 && r.IntN(3) > 0 {
			to := []storage.State{storage.Done, storage.Cancelled, storage.Dead, storage.Ready, storage.Scheduled}[r.IntN(5)]
			e := ending{job: running[0], to: to, due: m.now.UnixMicro(), keep: r.IntN(2) > 0}
			if to == storage.Done || to == storage.Dead {
				e.then = random()
			}
			if to == storage.Scheduled {
				e.due += int64(r.IntN(60)) * second
			}
			c.ends, running = append(c.ends, e), running[1:]
		}
		all = append(all, c)
	}
	return all
}

// promote has jobs be ready that are due, and lease some.
func (m *memory) promote(seed uint64) {
	m.t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	var due []Job
	var ids []int64
	for id := range m.jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		j := m.jobs[id]
		switch {
		case j.State == storage.Scheduled && j.Due <= m.now.UnixMicro() && j.Group != "" && j.Role == NoRole:
			due = append(due, j.Job)
			m.need.End("", j.Group)
		case j.State == storage.Scheduled && j.Due <= m.now.UnixMicro():
			j.State = storage.Ready
			m.jobs[id] = j
		}
	}
	m.load()
	m.must(m.tx.Place(due))
	m.write()
	for _, id := range ids {
		if m.jobs[id].State == storage.Ready && r.IntN(2) > 0 {
			m.run(id)
		}
	}
}
