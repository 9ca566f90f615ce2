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
// [storage.Order]. What may be leased can change meanwhile.
func (m *Memory) inOrder(may func(*job) bool) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		left := m.where(func(j *job) bool { return j.State == storage.Ready }, byKey)
		for {
			left = slices.DeleteFunc(left, func(j *job) bool { return !may(j) })
			firsts, most := map[string]*job{}, map[string]int{}
			for _, j := range left {
				if first := firsts[j.Queue]; first == nil {
					firsts[j.Queue], most[j.Queue] = j, j.Priority
				} else if most[j.Queue] = max(most[j.Queue], j.Priority); m.ofQueue(j, first) < 0 {
					firsts[j.Queue] = j
				}
			}
			var next *job
			for queue, j := range firsts {
				if next == nil || cmp.Or(cmp.Compare(most[next.Queue], most[queue]), byDue(j, next), cmp.Compare(j.Key, next.Key)) < 0 {
					next = j
				}
			}
			if next == nil {
				return
			}
			left = slices.DeleteFunc(left, func(j *job) bool { return j == next })
			if !yield(next) {
				return
			}
		}
	}
}
