package storagetest

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// ofQueue compares two ready jobs of a queue by which goes first.
func (m *Memory) ofQueue(a, b *job) int {
	set := m.settings[storage.Lane{Queue: a.Queue}]
	switch aging := time.Duration(set[storage.SettingAging]) * time.Microsecond; {
	case set[storage.SettingOrder] == int64(storage.Newest):
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), byDue(b, a), cmp.Compare(b.Key, a.Key))
	case aging > 0:
		less := func(j *job) time.Time { return j.DueAt.Add(-aging * time.Duration(j.Priority)) }
		return cmp.Or(less(a).Compare(less(b)), cmp.Compare(a.Key, b.Key))
	}
	return cmp.Or(byPriority(a, b), cmp.Compare(a.Key, b.Key))
}

// inOrder returns the ready jobs that may be leased in the order in which they are, see
// [storage.Order]. What may not be leased any more is passed over.
func (m *Memory) inOrder(may func(*job) bool) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		type turn struct{ first, highest []*job } // of a queue, by its order and by priority
		turns := map[string]*turn{}
		for _, j := range m.liveWhere(func(j *job) bool { return j.State == storage.Ready && may(j) }, byPriority) {
			if turns[j.Queue] == nil {
				turns[j.Queue] = &turn{}
			}
			turns[j.Queue].highest = append(turns[j.Queue].highest, j)
		}
		for _, t := range turns {
			t.first = slices.SortedFunc(slices.Values(t.highest), m.ofQueue)
		}
		gone := map[*job]bool{}
		trim := func(left []*job) []*job {
			for len(left) > 0 && (gone[left[0]] || !may(left[0])) {
				left = left[1:]
			}
			return left
		}
		for {
			var next *job
			most := 0
			for queue, t := range turns {
				if t.first, t.highest = trim(t.first), trim(t.highest); len(t.first) == 0 {
					delete(turns, queue)
					continue
				}
				j, p := t.first[0], t.highest[0].Priority
				if next == nil || cmp.Or(cmp.Compare(most, p), byDue(j, next), cmp.Compare(j.Key, next.Key)) < 0 {
					next, most = j, p
				}
			}
			if next == nil {
				return
			}
			gone[next] = true
			if !yield(next) {
				return
			}
		}
	}
}
