package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// calls are those for which an exchange leases jobs, see [storage.Want.ByGroup].
type calls struct {
	begun []int
	sizes map[callName]int
	rest  []int // what is left of N of the wants that are closed
	most  []int
	heads []callHead
	of    map[*job]int // the wants of the jobs that are chosen
}

type callName struct {
	want  int
	lane  storage.Lane
	group string
}

// callHead is a job that may bring others.
type callHead struct {
	*job
	want  int
	after int // how many jobs are leased before the next
	probe bool
}

func newCalls(wants []storage.Want) *calls {
	c := &calls{begun: make([]int, len(wants)), rest: make([]int, len(wants)), most: make([]int, len(wants)), sizes: map[callName]int{}, of: map[*job]int{}}
	for i, w := range wants {
		if w.ByGroup > 0 {
			c.most[i] = w.Calls()
		}
	}
	return c
}

// choose returns the first want that takes j, or -1. Those for whose calls j is the end
// are closed.
func (c *calls) choose(wants []storage.Want, takes func(storage.Want) bool, j *job) int {
	for {
		i := slices.IndexFunc(wants, takes)
		if i < 0 || wants[i].ByGroup <= 0 {
			return i
		}
		name := callName{i, storage.Lane{Queue: j.Queue, Kind: j.Kind}, j.Group}
		if slices.Contains(wants[i].Kinds, "*") {
			name.lane.Kind = "*"
		}
		full := c.sizes[name]%wants[i].ByGroup == 0 // or not begun
		if !full || c.begun[i] < c.most[i] {
			if full {
				c.begun[i]++
			}
			c.sizes[name]++
			return i
		}
		c.rest[i], wants[i].N = wants[i].N, 0
	}
}

// bring leases what the heads of groups bring with them, and returns all that is leased.
func (in *instance) bring(now time.Time, x *storage.Exchange, out []storage.Leased, c *calls, wants []storage.Want) []storage.Leased {
	for i := range wants {
		wants[i].N += c.rest[i]
	}
	bytes, brought := 0, 0
	for i := range out {
		bytes += out[i].Bytes()
	}
	for _, h := range c.heads {
		w := &wants[h.want]
		for n, j := range in.m.following(h) {
			if n+1 >= w.ByGroup || w.N <= 0 || bytes >= storage.LeaseBytes {
				break
			}
			if over, _ := j.over(now); over || !in.m.joins(j, h, w, now) || j.Crashes > 0 || j.unproven || !j.due && j.DueAt.After(now) {
				break
			}
			if !in.m.hasTokens(j, now) {
				break
			}
			in.m.pick(j)
			in.m.pay(j, now)
			in.m.take(j, in, now, x.LeaseDuration)
			j.Attempt++
			j.placed, j.lease.behind = true, n+1
			out = slices.Insert(out, h.after+brought, j.leased())
			bytes += out[h.after+brought].Bytes()
			brought++
			w.N--
		}
	}
	return out
}

// joins reports whether j can be in one call with the head of its group, as for their kinds.
func (m *Memory) joins(j *job, h callHead, w *storage.Want, now time.Time) bool {
	if j.Kind == h.Kind {
		return true
	}
	return slices.Contains(w.Kinds, "*") && j.in(*w) && !m.isHeld(j, now) && len(m.probes(j)) == 0
}

// following returns the members that are blocked behind the head of a group, if they are by
// nobody else.
func (m *Memory) following(h callHead) (behind []*job) {
	if limit, _ := m.groupRule(h.Queue); limit > 1 || h.Group == "" || h.Crashes > 0 || h.unproven || h.probe {
		return nil
	}
	places := 0
	for _, j := range m.members(h.Queue, h.Group) {
		switch {
		case j.blocks:
			return nil
		case j.placed:
			places++
		case j.State == storage.Blocked:
			behind = append(behind, j)
		}
	}
	if places != 1 || len(behind) > 0 && behind[0].Key < h.Key {
		return nil
	}
	return behind
}
