package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// job returns a job that does what args say.
func job(args string) storage.NewJob {
	return storage.NewJob{Queue: "q", Kind: "k", Args: []byte(args)}
}

func keyed(key, args string, mode storage.ConflictMode) storage.NewJob {
	j := job(args)
	j.Unique, j.Conflict = key, &storage.Conflict{Mode: mode}
	return j
}

func grouped(group, args string) storage.NewJob {
	j := job(args)
	j.Group = group
	return j
}

// Each case is calls, and the rows after each.
func TestTx(t *testing.T) {
	type step struct {
		call func(m *memory)
		want string
	}
	enqueue := func(jobs ...storage.NewJob) func(m *memory) {
		return func(m *memory) { m.enqueue(jobs...) }
	}
	run := func(ids ...int64) func(m *memory) { return func(m *memory) { m.run(ids...) } }
	end := func(all ...ending) func(m *memory) { return func(m *memory) { m.end(all...) } }
	limit := func(n int64) func(m *memory) {
		return func(m *memory) { m.set[storage.SettingGroupLimit] = n }
	}
	settle := func(turns int64, groups ...string) func(m *memory) {
		return func(m *memory) {
			for _, name := range groups {
				m.need.End("", name)
			}
			m.need.Anew = turns == 0
			m.load()
			m.tx.Begin(m.now, turns)
			for _, name := range groups {
				m.must(m.tx.Settle(name))
			}
			m.write()
		}
	}
	later := keyed("u", "c", storage.Debounce)
	later.Conflict.Quiet, later.Priority = time.Minute, 3
	delayed := func(j storage.NewJob) storage.NewJob { j.Delay = time.Minute; return j }
	both := grouped("g", "b")
	both.Unique, both.Conflict = "u", &storage.Conflict{Mode: storage.Debounce, Quiet: time.Minute}
	for what, steps := range map[string][]step{
		"a plain job": {
			{func(m *memory) {
				j := job("a")
				j.Priority = 3
				m.enqueue(j, delayed(job("b")))
			}, "1 ready a priority 3, 2 scheduled +60 b"},
			{func(m *memory) {
				m.run(1)
				m.end(ending{job: 1, to: storage.Scheduled, due: m.now.UnixMicro() + second})
			}, "1 scheduled +1 a priority 3, 2 scheduled +60 b"},
		},
		"a key": {
			{enqueue(keyed("u", "a", storage.Keep), keyed("u", "b", storage.Keep), keyed("v", "c", storage.Keep)), "1 ready a, 3 ready c, u of 1, v of 3"},
			{run(1, 3), "1 running a, 3 running c, u of 1, v of 3"},
			{end(ending{job: 1, to: storage.Done}, ending{job: 3, to: storage.Dead}), "3 dead c"},
		},
		"a job that waits is replaced": {
			{enqueue(keyed("u", "a", storage.Replace)), "1 ready a, u of 1"},
			{enqueue(keyed("u", "b", storage.Replace)), "1 ready b, u of 1"},
			{enqueue(later), "1 scheduled +60 c priority 3, u of 1"},
		},
		"a job that has failed is replaced": {
			{func(m *memory) {
				m.enqueue(keyed("u", "a", storage.Replace))
				j := m.jobs[1]
				j.Retry = 2
				m.jobs[1] = j
				m.enqueue(keyed("u", "b", storage.Replace))
				if n := m.jobs[1].Retry; n != 2 {
					m.t.Errorf("%d retries, want 2", n)
				}
				anew := keyed("u", "c", storage.Replace)
				anew.Conflict.Fresh = true
				m.enqueue(anew)
				if n := m.jobs[1].Retry; n != 0 {
					m.t.Errorf("%d retries, want none", n)
				}
			}, "1 ready c, u of 1"},
		},
		"a job is replaced, and ends": {
			{enqueue(keyed("u", "a", storage.Replace)), "1 ready a, u of 1"},
			{func(m *memory) {
				next := keyed("u", "b", storage.Replace)
				m.need.Enter([]storage.NewJob{next})
				m.load()
				_, err := m.enter(next)
				m.must(err)
				_, err = m.tx.End(1, "u", "", NoRole, storage.Cancelled, false)
				m.must(err)
				delete(m.jobs, 1)
				m.write()
			}, ""},
		},
		"a new job is replaced at once": {{enqueue(keyed("u", "a", storage.Replace), later), "1 scheduled +60 c priority 3, u of 1"}},
		"one waits behind another": {
			{enqueue(keyed("u", "a", storage.Replace)), "1 ready a, u of 1"},
			{run(1), "1 running a, u of 1"},
			{enqueue(keyed("u", "b", storage.Replace)), "1 running a, 2 blocked was due b, u of 1 before 2"},
			{enqueue(keyed("u", "c", storage.Replace)), "1 running a, 2 blocked was due c, u of 1 before 2"},
			{enqueue(later), "1 running a, 2 blocked +60 c priority 3, u of 1 before 2"},
			{end(ending{job: 1, to: storage.Done}), "2 scheduled +60 c priority 3, u of 2"},
		},
		"one behind another is let in": {
			{enqueue(keyed("u", "a", storage.Replace)), "1 ready a, u of 1"},
			{run(1), "1 running a, u of 1"},
			{enqueue(keyed("u", "b", storage.Replace)), "1 running a, 2 blocked was due b, u of 1 before 2"},
			{end(ending{job: 1, to: storage.Cancelled, keep: true}), "2 ready b, u of 2"},
		},
		"the clock is set back before one behind another is let in": {
			{enqueue(keyed("u", "", storage.Keep), keyed("v", "", storage.Keep)), "1 ready, 2 ready, u of 1, v of 2"},
			{func(m *memory) {
				m.run(1, 2)
				u, v := keyed("u", "", storage.Replace), delayed(keyed("v", "", storage.Replace))
				u.UniqueFor, v.UniqueFor = time.Minute, time.Minute
				m.enqueue(u, v)
			}, "1 running, 2 running, 3 blocked was due, 4 blocked +60, u of 1 before 3, v of 2 before 4"},
			{func(m *memory) {
				m.now = m.now.Add(-10 * time.Second)
				m.end(ending{job: 1, to: storage.Done}, ending{job: 2, to: storage.Done})
			}, "3 ready +10, 4 scheduled +70, u of 3 until +60, v of 4 until +130"},
		},
		"one that is put back is replaced by a job that follows another": {
			{enqueue(keyed("u", "a", storage.Replace), job("b")), "1 ready a, 2 ready b, u of 1"},
			{run(1, 2), "1 running a, 2 running b, u of 1"},
			{
				func(m *memory) {
					m.end(ending{job: 1, to: storage.Ready, due: m.now.UnixMicro()}, ending{job: 2, to: storage.Done, then: []storage.NewJob{later}})
				}, "1 scheduled +60 c priority 3, u of 1",
			},
		},
		"one that is put back is merged with a job that follows another": {
			{enqueue(keyed("u", "a", storage.Replace), job("b")), "1 ready a, 2 ready b, u of 1"},
			{func(m *memory) {
				m.run(1, 2)
				merge := keyed("u", "c", storage.Replace)
				merge.Conflict.Merge = &storage.Merge{Old: []byte("a")}
				m.end(ending{job: 1, to: storage.Ready, due: m.now.UnixMicro()}, ending{job: 2, to: storage.Done, then: []storage.NewJob{merge}})
			}, "1 ready c, u of 1"},
		},
		"a key that is free is not read as one that has ended": {
			{enqueue(keyed("u", "a", storage.Keep)), "1 ready a, u of 1"},
			{run(1), "1 running a, u of 1"},
			{end(ending{job: 1, to: storage.Done, then: []storage.NewJob{keyed("u", "b", storage.Replace)}}), "2 ready b, u of 2"},
		},
		"one follows a job that has the key for a time": {
			{func(m *memory) {
				j := keyed("u", "a", storage.Keep)
				j.UniqueFor = time.Minute
				m.enqueue(j)
				m.run(1)
			}, "1 running a, u of 1 until +60"},
			{end(ending{job: 1, to: storage.Done, then: []storage.NewJob{keyed("u", "b", storage.Replace)}}), "2 scheduled +60 b, u of 2"},
		},
		"one follows a job that has the key for a time, and was cancelled": {
			{func(m *memory) {
				j := keyed("u", "a", storage.Keep)
				j.UniqueFor = time.Minute
				m.enqueue(j)
				keep, next := keyed("u", "b", storage.Keep), keyed("u", "b", storage.Replace)
				m.need.Enter([]storage.NewJob{keep, next})
				m.load()
				_, err := m.tx.End(1, "u", "", NoRole, storage.Cancelled, false)
				m.must(err)
				delete(m.jobs, 1)
				out, err := m.enter(keep, next)
				if m.must(err); !out[0].Gone || out[1].Duplicate {
					m.t.Errorf("Enter returned %+v; want that the first is gone, and that the second has followed it", out)
				}
				m.write()
			}, "3 scheduled +60 b, u of 3"},
		},
		"a key is held for a time": {
			{func(m *memory) {
				j := keyed("u", "a", storage.Keep)
				j.UniqueFor = time.Minute
				m.enqueue(j)
			}, "1 ready a, u of 1 until +60"},
			{run(1), "1 running a, u of 1 until +60"},
			{end(ending{job: 1, to: storage.Done, keep: true}), "u of 1 until +60"},
			{func(m *memory) {
				if out := m.enqueue(keyed("u", "b", storage.Keep)); out[0].Gone {
					m.t.Errorf("the holder is gone: %+v", out)
				}
				delete(m.kept, 1)
			}, "u of 1 until +60"},
			{func(m *memory) {
				if out := m.enqueue(keyed("u", "b", storage.Keep)); !out[0].Gone {
					m.t.Errorf("the holder is not gone: %+v", out)
				}
			}, "u of 1 until +60"},
			{func(m *memory) {
				m.need.End("u", "")
				m.load()
				if found, holder, err := m.tx.EndTime("u"); !found || !holder.IsZero() || err != nil {
					m.t.Errorf("EndTime returned %v, %v, %v", found, holder, err)
				}
				m.write()
			}, ""},
			{func(m *memory) {
				m.need.End("u", "")
				m.load()
				if found, _, err := m.tx.EndTime("u"); found || err != nil {
					m.t.Errorf("EndTime of a free key returned %v, %v", found, err)
				}
			}, ""},
		},
		"the time of a key ends before its job": {
			{func(m *memory) {
				j := keyed("u", "a", storage.Keep)
				j.UniqueScope = storage.UniqueForever
				m.enqueue(j)
			}, fmt.Sprintf("1 ready a, u of 1 until %+d", int64(Forever-1000*second)/second)},
			{func(m *memory) {
				m.need.End("u", "")
				m.load()
				if found, holder, err := m.tx.EndTime("u"); !found || holder.Key() != 1 || err != nil {
					m.t.Errorf("EndTime returned %v, %v, %v", found, holder, err)
				}
				m.write()
			}, "1 ready a, u of 1"},
		},
		"the next member is let in": {
			{enqueue(grouped("g", ""), delayed(grouped("g", "")), grouped("g", "")), "1 ready placed, 2 blocked +60 waits, 3 blocked was due waits"},
			{run(1), "1 running placed, 2 blocked +60 waits, 3 blocked was due waits"},
			{end(ending{job: 1, to: storage.Done}), "2 scheduled +60 placed, 3 blocked was due waits"},
			{func(m *memory) {
				m.need.End("", "q g")
				m.load()
				_, err := m.tx.End(2, "", "q g", Placed, storage.Cancelled, false)
				m.must(err)
				delete(m.jobs, 2)
				m.must(m.tx.SettleAll())
				m.write()
			}, "3 ready placed"},
		},
		"a member is put back for later among several": {
			{limit(2), ""},
			{enqueue(grouped("g", ""), grouped("g", ""), grouped("g", "")), "1 ready placed, 2 ready placed, 3 blocked was due waits"},
			{run(1, 2), "1 running placed, 2 running placed, 3 blocked was due waits"},
			{end(ending{job: 1, to: storage.Scheduled, due: 1001 * second, stays: true}), "1 scheduled +1 placed, 2 running placed, 3 blocked was due waits"},
			{end(ending{job: 2, to: storage.Scheduled, due: 1001 * second}), "1 scheduled +1 placed, 2 scheduled +1, 3 ready placed"},
		},
		"a member is put back, and blocks": {
			{enqueue(grouped("g", ""), grouped("g", "")), "1 ready placed, 2 blocked was due waits"},
			{run(1), "1 running placed, 2 blocked was due waits"},
			{end(ending{job: 1, to: storage.Scheduled, due: 1001 * second}), "1 scheduled +1 placed, 2 blocked was due waits"},
		},
		"a dead member blocks until it is skipped": {
			{enqueue(grouped("g", ""), grouped("g", "")), "1 ready placed, 2 blocked was due waits"},
			{run(1), "1 running placed, 2 blocked was due waits"},
			{end(ending{job: 1, to: storage.Dead}), "2 blocked was due waits, 1 dead blocks"},
			{enqueue(grouped("g", "")), "2 blocked was due waits, 3 blocked was due waits, 1 dead blocks"},
			{func(m *memory) {
				m.need.End("", "q g")
				m.load()
				m.must(m.tx.SkipHead("q g", 1))
				j := m.dead[1]
				j.Role = NoRole
				m.dead[1] = j
				m.write()
			}, "2 ready placed, 3 blocked was due waits, 1 dead"},
		},
		"a dead member is passed once it may be": {
			{enqueue(grouped("g", ""), grouped("g", "")), "1 ready placed, 2 blocked was due waits"},
			{run(1), "1 running placed, 2 blocked was due waits"},
			{end(ending{job: 1, to: storage.Dead}), "2 blocked was due waits, 1 dead blocks"},
			{func(m *memory) { m.set[storage.SettingDeadHead] = int64(storage.PassDead); m.enqueue(grouped("g", "")) }, "2 ready placed, 3 blocked was due waits, 1 dead"},
		},
		"a dead member is passed by a group that is settled again": {
			{enqueue(grouped("g", ""), grouped("g", "")), "1 ready placed, 2 blocked was due waits"},
			{run(1), "1 running placed, 2 blocked was due waits"},
			{end(ending{job: 1, to: storage.Dead}), "2 blocked was due waits, 1 dead blocks"},
			{func(m *memory) { m.set[storage.SettingDeadHead] = int64(storage.PassDead); settle(0, "q g", "q g")(m) }, "2 ready placed, 1 dead"},
		},
		"a dead member that is alone is passed by a new one": {
			{enqueue(grouped("g", "")), "1 ready placed"},
			{run(1), "1 running placed"},
			{end(ending{job: 1, to: storage.Dead}), "1 dead blocks"},
			{func(m *memory) { m.set[storage.SettingDeadHead] = int64(storage.PassDead); m.enqueue(grouped("g", "")) }, "2 ready placed, 1 dead"},
		},
		"a dead member is passed that is alone": {
			{enqueue(grouped("g", "")), "1 ready placed"},
			{run(1), "1 running placed"},
			{end(ending{job: 1, to: storage.Dead}), "1 dead blocks"},
			{func(m *memory) { m.set[storage.SettingDeadHead] = int64(storage.PassDead); settle(0, "q g")(m) }, "1 dead"},
		},
		"a dead member is passed by a settled group": {
			{enqueue(grouped("g", ""), grouped("g", "")), "1 ready placed, 2 blocked was due waits"},
			{run(1), "1 running placed, 2 blocked was due waits"},
			{end(ending{job: 1, to: storage.Dead}), "2 blocked was due waits, 1 dead blocks"},
			{limit(2), "2 blocked was due waits, 1 dead blocks"},
			{settle(0, "q g"), "2 ready placed, 1 dead"},
		},
		"a group has more places, and then fewer": {
			{enqueue(grouped("g", ""), grouped("g", ""), delayed(grouped("g", "")), grouped("h", "")), "1 ready placed, 2 blocked was due waits, 3 blocked +60 waits, 4 ready placed"},
			{func(m *memory) {
				limit(3)(m)
				m.tx.moved = 7
				settle(0, "q g", "q h")(m)
				if n := m.tx.Moved(); n != 2 {
					m.t.Errorf("%d members were moved, want 2", n)
				}
			}, "1 ready placed, 2 ready placed, 3 scheduled +60 placed, 4 ready placed"},
			{func(m *memory) { limit(2)(m); settle(0, "q g")(m) }, "1 ready placed, 2 ready placed, 3 scheduled +60, 4 ready placed"},
			{func(m *memory) {
				limit(1)(m)
				settle(0, "q g", "q h")(m)
				if n := m.tx.Moved(); n != 1 {
					m.t.Errorf("%d members were moved, want 1", n)
				}
			}, "1 ready placed, 2 blocked was due waits, 3 scheduled +60, 4 ready placed"},
		},
		"a scheduled member keeps no place that it has under another limit": {
			{enqueue(delayed(grouped("g", "")), grouped("g", ""), grouped("g", "")), "1 scheduled +60 placed, 2 blocked was due waits, 3 blocked was due waits"},
			{func(m *memory) { limit(2)(m); settle(0, "q g")(m) }, "1 scheduled +60, 2 ready placed, 3 ready placed"},
		},
		"a job takes its turn behind others": {
			{enqueue(grouped("g", ""), grouped("g", "")), "1 ready placed, 2 blocked was due waits"},
			{func(m *memory) {
				m.set[storage.SettingOrder] = int64(storage.Turns)
				delete(m.jobs, 1)
				m.now = m.now.Add(2 * time.Second)
				settle(m.now.UnixMicro(), "q g")(m)
			}, "2 ready placed"},
		},
		"a job that is blocked and let in again by one exchange takes its turn anew": {
			{limit(3), ""},
			{enqueue(grouped("g", ""), grouped("g", ""), grouped("g", "")), "1 ready placed, 2 ready placed, 3 ready placed"},
			{func(m *memory) {
				m.run(1, 2)
				limit(1)(m)
				m.set[storage.SettingOrder], m.turns = int64(storage.Turns), true
				m.now = m.now.Add(2 * time.Second)
				m.end(ending{job: 1, to: storage.Done, then: []storage.NewJob{grouped("g", "")}}, ending{job: 2, to: storage.Done})
			}, "3 ready placed, 4 blocked was due waits"},
		},
		"members are due that have no place": {
			{limit(2), ""},
			{enqueue(delayed(grouped("g", "")), delayed(grouped("g", "")), grouped("g", "")), "1 scheduled +60, 2 scheduled +60, 3 ready placed"},
			{func(m *memory) {
				m.now = m.now.Add(time.Minute)
				m.need.End("", "q g")
				m.load()
				m.must(m.tx.Place([]Job{m.jobs[1].Job, m.jobs[2].Job}))
				m.write()
			}, "1 ready placed, 2 blocked was due waits, 3 ready -60 placed"},
		},
		"a member gives up its place as it is put off": {
			{limit(2), ""},
			{enqueue(both, grouped("g", "")), "1 scheduled +60 b, 2 ready placed, u of 1"},
			{func(m *memory) { m.now = m.now.Add(time.Minute); m.enqueue(grouped("g", "")) }, "1 scheduled b, 2 ready -60 placed, 3 ready placed, u of 1"},
			{func(m *memory) {
				m.need.End("", "q g")
				m.load()
				m.must(m.tx.Place([]Job{m.jobs[1].Job}))
				m.write()
			}, "1 blocked was due waits b, 2 ready -60 placed, 3 ready placed, u of 1"},
			{enqueue(both), "1 blocked +60 waits b, 2 ready -60 placed, 3 ready placed, u of 1"},
			{func(m *memory) { m.run(2); m.end(ending{job: 2, to: storage.Done}) }, "1 scheduled +60 placed b, 3 ready placed, u of 1"},
			{enqueue(grouped("g", "")), "1 scheduled +60 placed b, 3 ready placed, 5 blocked was due waits, u of 1"},
			{func(m *memory) { m.now = m.now.Add(time.Second); m.enqueue(both) }, "1 scheduled +60 b, 3 ready -1 placed, 5 ready -1 placed, u of 1"},
		},
		"a member is let in before a new one of the same call": {
			{enqueue(grouped("g", ""), grouped("g", ""), job("")), "1 ready placed, 2 blocked was due waits, 3 ready"},
			{run(1, 3), "1 running placed, 2 blocked was due waits, 3 running"},
			{end(ending{job: 1, to: storage.Done}, ending{job: 3, to: storage.Done, then: []storage.NewJob{grouped("g", "")}}), "2 ready placed, 4 blocked was due waits"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMemory(t)
			for i, s := range steps {
				if s.call(m); m.String() != s.want {
					t.Fatalf("after call %d: %s\nwant %s", i, m, s.want)
				}
			}
		})
	}
}

// Enter answers as an Enqueue does, for the jobs of its own call.
func TestTx_Enter(t *testing.T) {
	m := newMemory(t)
	first := keyed("u", "a", storage.Fail)
	m.need.Enter([]storage.NewJob{first, first, first, first})
	m.load()
	out, err := m.tx.Enter(0, &first, 7, 9)
	if want := storage.NewID(m.now, 9, 1); err != nil || out.ID != want {
		t.Fatalf("Enter returned %+v, %v; want the ID %s", out, err, want)
	}
	var held *storage.DuplicateError
	if _, err := m.tx.Enter(1, &first, 7, 0); !errors.As(err, &held) || held.Index != 1 || !held.ID.IsZero() {
		t.Errorf("of the same call: %v", err)
	}
	m.tx.Begin(m.now, 0)
	if _, err := m.tx.Enter(0, &first, 7, 0); !errors.As(err, &held) || held.ID != out.ID {
		t.Errorf("of the next call: %v", err)
	}
	m.need.Enter([]storage.NewJob{first, first})
	m.load() // as the transaction is run again
	if out, err = m.tx.Enter(0, &first, 7, 9); err != nil || out.ID.Key() != 5 {
		t.Errorf("after a Reset: %+v, %v; want a key that was read after it", out, err)
	}
}

// A job that merges does so with what the calls before it have left.
// How much of the time until a job is due is a delay stays known for as long as the job waits for its
// date.
func TestTx_Enter_delay(t *testing.T) {
	m := newMemory(t)
	m.delays = true
	in := func(j storage.NewJob, d time.Duration) storage.NewJob { j.Delay = d; return j }
	delays := func(want ...int64) {
		t.Helper()
		for i, seconds := range want {
			if j := m.jobs[int64(i+1)]; j.Delay != seconds*second {
				t.Fatalf("job %d has a delay of %d, want %d s\n%s", i+1, j.Delay, seconds, m)
			}
		}
	}
	m.enqueue(grouped("g", ""), in(grouped("g", ""), time.Minute), in(keyed("u", "", storage.Keep), time.Minute))
	delays(0, 60, 60)
	m.now = m.now.Add(10 * time.Second)
	later := keyed("u", "", storage.Debounce)
	later.Conflict.Quiet = time.Hour
	m.enqueue(later)
	delays(0, 60, 3600)
	m.run(1)
	m.end(ending{job: 1, to: storage.Done}) // lets the second one in, which is not due
	delays(0, 60)
	m.need.End("", "q g")
	m.load()
	m.must(m.tx.Settle("q g"))
	m.write()
	delays(0, 60)

	// The one that takes a key over is due once the time of the holder is over.
	window, next := keyed("w", "", storage.Keep), keyed("w", "", storage.Replace)
	window.UniqueFor = time.Hour
	m.enqueue(window)
	m.run(5)
	m.end(ending{job: 5, to: storage.Done, keep: true})
	m.now = m.now.Add(10 * time.Second)
	m.enqueue(next)
	delays(0, 60, 3600, 0, 0, 3590)

	// A step of the clock moves what a delay counts from, and no date.
	date := keyed("x", "", storage.After)
	date.DueAt = m.now.Add(time.Minute)
	for name, behind := range map[string]storage.NewJob{"v": in(keyed("v", "", storage.After), time.Minute), "x": date} {
		m.enqueue(keyed(name, "", storage.Keep))
		m.run(m.next)
		m.enqueue(behind)
		m.need.End(name, "")
		m.load()
		if k, err := m.tx.Key(name, nil); err != nil || k.Dated != (name == "x") {
			t.Errorf("who waits for the key %s waits for a date too: %t (%v)", name, k.Dated, err)
		}
		m.need = Need{}
	}
}

// A caller that writes a new job by itself writes the others that were let in by that.
func TestTx_Join(t *testing.T) {
	m := newMemory(t)
	m.enqueue(grouped("g", ""), grouped("g", ""))
	join := func(id int64, want Role, changes int) {
		t.Helper()
		r, changed, err := m.tx.Join(Job{ID: id, Lane: 7, Due: m.now.UnixMicro(), Group: "q g", State: storage.Ready})
		if err != nil || r.Is.Role != want || changed != (changes > 0) || (r.Is.State == storage.Blocked) != (want == Waits) {
			t.Errorf("job %d: %+v, changed: %t (%v)", id, r.Is, changed, err)
		}
		if c := m.tx.Changes(); len(c.Jobs)+len(c.Pass) != changes {
			t.Errorf("with job %d %d others are to be written, want %d", id, len(c.Jobs)+len(c.Pass), changes)
		}
		m.tx.Wrote()
		if c := m.tx.Changes(); !c.None() {
			t.Errorf("what is written is to be written again: %+v", c)
		}
	}
	need := func() {
		m.need.Groups, m.need.Leave = []string{"q g"}, []int32{0}
		m.load()
	}
	need()
	if !m.tx.Knows("q g") || m.tx.Knows("q h") {
		t.Error("what was read is not known, or something else is")
	}
	if !m.tx.Alone("q g", 1) || m.tx.Alone("q g", 2) || m.tx.Alone("q h", 1) {
		t.Error("the first member is not alone, or another is")
	}
	join(3, Waits, 0)
	join(4, Waits, 0)

	m.set[storage.SettingGroupLimit] = 3
	need()
	join(5, Placed, 1) // and so the second one
	join(6, Waits, 0)

	m.jobs = map[int64]stored{}
	m.dead[1] = stored{Job: Job{ID: 1, Group: "q g", Role: Blocks, State: storage.Dead}}
	need()
	join(7, Placed, 1) // the dead one is passed
	join(8, Placed, 0)
	if _, _, err := m.tx.Join(Job{ID: 9, Group: "q h", State: storage.Ready}); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("a group that was not read: %v", err)
	}
}

// A key that is written is written again only if it changes again.
func TestTx_Wrote(t *testing.T) {
	m := newMemory(t)
	m.need.Enter([]storage.NewJob{keyed("u", "", storage.Keep)})
	m.load()
	_, err := m.enter(keyed("u", "", storage.Keep))
	m.must(err)
	if c := m.tx.Changes(); len(c.Jobs) != 1 || c.None() {
		t.Errorf("nothing is to be written: %+v", c)
	}
	m.tx.Wrote()
	if c := m.tx.Changes(); !c.None() {
		t.Errorf("what is written is to be written again: %+v", c)
	}
	_, _, err = m.tx.EndTime("u")
	m.must(err)
	_, err = m.tx.End(1, "u", "", NoRole, storage.Done, false)
	m.must(err)
	if c := m.tx.Changes(); len(c.Jobs) != 0 || c.None() {
		t.Errorf("the key of a job that has ended stays: %+v", c)
	}
}

func TestTx_Forgo(t *testing.T) {
	m := newMemory(t)
	window := keyed("u", "", storage.Keep)
	window.UniqueFor = time.Hour
	m.enqueue(window)
	for job, want := range map[int64]int64{2: m.keys["u"][0].Until, 1: 0} {
		m.need.End("u", "")
		m.load()
		m.must(m.tx.Forgo("u", job))
		if k, err := m.tx.Key("u", nil); err != nil || k.Holder.Until != want {
			t.Errorf("job %d is deleted: the key is held until %d (%v), want %d", job, k.Holder.Until, err, want)
		}
		m.need = Need{}
	}
	if err := m.tx.Forgo("v", 1); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("a key that was not read: %v", err)
	}
}

func TestTx_Enter_merges(t *testing.T) {
	m := newMemory(t)
	merge := func(old, args string) storage.NewJob {
		j := keyed("u", args, storage.Replace)
		j.Group, j.Conflict.Merge = "g", &storage.Merge{Old: []byte(old)}
		return j
	}
	first := keyed("u", "a", storage.Replace)
	first.Group = "g"
	m.enqueue(first)
	out := m.enqueue(merge("x", "b"), merge("a", "b"), merge("a", "c"), merge("b", "c"))
	for i, want := range []string{"a", "", "b", ""} {
		if u := out[i].Unmerged; u == nil && want != "" || u != nil && string(u.Found) != want {
			t.Errorf("job %d: %+v, want it to be merged with %q", i, out[i], want)
		}
	}
	if got, want := m.String(), "1 ready placed c, u of 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	m = newMemory(t)
	m.enqueue(first, merge("a", "b"))
	if got, want := m.String(), "1 ready placed b, u of 1"; got != want {
		t.Errorf("in one call: %s, want %s", got, want)
	}
}

// A decision about what a load has forgotten is an error, and none about what is not there.
func TestTx_forgets(t *testing.T) {
	merge := keyed("u", "c", storage.Replace)
	merge.Conflict.Merge = &storage.Merge{}
	enter := func(j storage.NewJob) func(m *memory) error {
		return func(m *memory) error {
			m.need.Enter([]storage.NewJob{j})
			m.load()
			_, err := m.enter(j)
			return err
		}
	}
	end := func(id int64, to storage.State) func(m *memory) error {
		return func(m *memory) error {
			all := []ending{{job: id, to: to}}
			m.needs(all)
			m.load()
			return m.ends(all)
		}
	}
	settle := func(m *memory) error {
		m.need.End("", "q g")
		m.load()
		return m.tx.Settle("q g")
	}
	for _, c := range []struct {
		forgets, what string
		call          func(m *memory) error
	}{
		{"a key", "a job that wants it", enter(keyed("u", "", storage.Keep))},
		{"a key", "a job that wants one that is free", enter(keyed("free", "", storage.Keep))},
		{"a key", "its job ends", end(1, storage.Done)},
		{"a key", "its time ends", func(m *memory) error {
			m.need.End("u", "")
			m.load()
			_, _, err := m.tx.EndTime("u")
			return err
		}},
		{"who has a key", "a job that replaces the one behind", enter(keyed("u", "", storage.Replace))},
		{"who has a key", "a job that wants one that is free", enter(keyed("free", "", storage.Keep))},
		{"who waits for a key", "a job that wants one that is free", enter(keyed("free", "", storage.Keep))},
		{"who waits for a key", "the one before it ends", end(1, storage.Done)},
		{"the job of a key", "a job that replaces it", enter(keyed("v", "", storage.Replace))},
		{"the job of a key", "a job that replaces the one behind", enter(keyed("u", "", storage.Replace))},
		{"the job of a key", "the one before it ends", end(1, storage.Done)},
		{"the job of a key", "a job that replaces a member", enter(keyed("w", "", storage.Replace))},
		{"args", "a job that merges", enter(merge)},
		{"a fresh key", "a new job", enter(job(""))},
		{"jobs", "one of them ends", end(1, storage.Done)},
		{"jobs", "one is to be cancelled", func(m *memory) error {
			m.need.Jobs = []int64{9}
			m.load()
			_, err := m.tx.Cancel(storage.NewID(m.now, 0, 9), nil)
			return err
		}},
		{"a group", "a new member", enter(grouped("g", ""))},
		{"a group", "a member ends", end(4, storage.Done)},
		{"a group", "a member is put back", end(4, storage.Ready)},
		{"a group", "it is settled", settle},
		{"a group", "its head is skipped", func(m *memory) error {
			m.need.End("", "q g")
			m.load()
			return m.tx.SkipHead("q g", 4)
		}},
		{"a group", "members are due", func(m *memory) error {
			m.need.End("", "q g")
			m.load()
			return m.tx.Place([]Job{{ID: 9, Group: "q g", State: storage.Scheduled}})
		}},
		{"those that wait", "a new member", enter(grouped("g", ""))},
		{"those that wait", "it is settled", settle},
		{"members", "it is settled", settle},
		{"the member running", "it is settled", settle},
		{"the member dead", "it is settled", settle},
	} {
		for _, forgets := range []string{"", c.forgets} {
			m := newMemory(t)
			m.enqueue(keyed("u", "a", storage.Replace), keyed("v", "b", storage.Replace))
			m.run(1)
			member := keyed("w", "", storage.Replace)
			member.Group = "h"
			m.enqueue(keyed("u", "b", storage.Replace), grouped("g", ""), grouped("g", ""), member)
			m.run(4)
			if c.forgets == "the member dead" || c.what == "its head is skipped" {
				m.end(ending{job: 4, to: storage.Dead})
			}
			m.forgets = forgets
			if err := c.call(m); errors.Is(err, ErrNotLoaded) != (forgets != "") || forgets == "" && err != nil {
				t.Errorf("Load forgets %q, %s: %v", forgets, c.what, err)
			}
		}
	}
}

// Nobody may ask for more than is named.
func TestTx_notNamed(t *testing.T) {
	m := newMemory(t)
	m.enqueue(keyed("u", "a", storage.Replace), grouped("g", ""))
	m.need.Enter([]storage.NewJob{keyed("u", "", storage.Keep), keyed("free", "", storage.Keep), grouped("g", "")})
	m.load()
	replace := &storage.Conflict{Mode: storage.Replace}
	key := func(name string, c *storage.Conflict) error {
		_, err := m.tx.Key(name, c)
		return err
	}
	for what, err := range map[string]error{
		"a key":                          key("v", nil),
		"the job of a key":               key("u", replace),
		"the job of a key that is free":  key("free", replace),
		"a group":                        func() error { _, err := m.tx.Group("q h", false); return err }(),
		"the members of a group":         m.tx.Settle("q g"),
		"the members of a group for all": func() error { _, err := m.tx.Group("q g", true); return err }(),
	} {
		if !errors.Is(err, ErrNotLoaded) {
			t.Errorf("%s: %v, want ErrNotLoaded", what, err)
		}
	}
	if err := cmp.Or(key("u", nil), key("free", nil)); err != nil {
		t.Errorf("what was named: %v", err)
	}
	m.need = Need{Keys: []NeedKey{{"u", replace}}}
	m.load()
	for _, c := range []*storage.Conflict{replace, nil} {
		if k, err := m.tx.Key("u", c); err != nil || (k.Waiter != nil) != (c != nil) {
			t.Errorf("Key for %+v returned %+v, %v", c, k, err)
		}
	}
}

// Of a job that is known only as a member it is not known what it does.
func TestTx_knownAsMember(t *testing.T) {
	replace := &storage.Conflict{Mode: storage.Replace}
	for _, read := range []bool{true, false} {
		var tx Tx
		tx.Reset(Need{Keys: []NeedKey{{"u", replace}}, Groups: []string{"q g"}, Leave: []int32{0}})
		tx.ReadKey("u", false, Keeper{Job: 7}, true, false)
		tx.ReadKey("u", true, Keeper{}, false, false)
		member := Job{ID: 7, Lane: 1, Group: "q g", Role: Waits, State: storage.Blocked}
		if tx.row(member); read {
			tx.ReadJob(member)
		}
		if _, err := tx.Key("u", replace); errors.Is(err, ErrNotLoaded) == read {
			t.Errorf("the job was read: %v; Key returned %v", read, err)
		}
	}
}

// No more members may leave than were named: those that wait behind them are not known.
func TestTx_leaves(t *testing.T) {
	m := newMemory(t)
	m.enqueue(grouped("g", ""), grouped("g", ""), grouped("g", ""), grouped("g", ""), grouped("g", ""))
	m.need.End("", "q g")
	m.load()
	for id, last := int64(1), false; !last; id++ {
		last = id == 3
		_, err := m.tx.End(id, "", "q g", Placed, storage.Cancelled, false)
		m.must(err)
		if err := m.tx.SettleAll(); errors.Is(err, ErrNotLoaded) != last {
			t.Errorf("member %d leaves: %v", id, err)
		}
	}
}

// A job that is not blocked, although others say that it waits, is not let in.
func TestTx_damaged(t *testing.T) {
	for what, jobs := range map[string][]storage.NewJob{
		"a member":          {grouped("g", ""), grouped("g", "")},
		"the heir of a key": {keyed("u", "", storage.Replace), keyed("u", "", storage.Replace)},
	} {
		m := newMemory(t)
		m.enqueue(jobs[0])
		m.run(1)
		m.enqueue(jobs[1])
		damaged := m.jobs[2]
		damaged.State = storage.Running
		m.jobs[2] = damaged
		all := []ending{{job: 1, to: storage.Done}}
		m.needs(all)
		m.load()
		m.must(m.ends(all))
		if jobs[0].Group != "" {
			m.must(m.tx.Settle("q g")) // it still waits
		}
		for _, r := range m.tx.Changes().Jobs {
			if r.Is.ID == 2 {
				t.Errorf("%s that runs becomes %+v", what, r.Is)
			}
		}
	}
}

func TestTable(t *testing.T) {
	var all table[int, int]
	for range 2 { // it can be used again
		var want []int
		for _, n := range []int{40, 7, 90, 1, 41, 39, 8, 2, 100, 60, 50} {
			if r := all.add(n); *r != 0 {
				t.Fatalf("a new row is %d", *r)
			} else {
				*r = -n
			}
			want = append(want, n)
			for k := range 102 {
				if r := all.get(k); (r != nil) != slices.Contains(want, k) || r != nil && *r != -k {
					t.Fatalf("row %d of %v is %v", k, want, r)
				}
			}
		}
		if !slices.IsSortedFunc(all.all, func(a, b *int) int { return *b - *a }) {
			t.Error("the rows are not in order")
		}
		all.clear(30)
	}
}

// What a call has decided about a job stays if the next one reads the job again.
func TestTx_readsAgain(t *testing.T) {
	var tx Tx
	j := Job{ID: 1, State: storage.Scheduled, Due: 5}
	tx.ReadJob(j)
	r := tx.rows.get(1)
	r.Is.Due = 6
	tx.ReadJob(j)
	if tx.rows.get(1) != r || r.Is.Due != 6 || !r.Moved() {
		t.Errorf("the job is %+v, not as the call before has left it", tx.rows.get(1))
	}
}
