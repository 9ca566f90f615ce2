package rules

import (
	"time"

	"github.com/errandq/errand/storage"
)

// Behind gathers what waits behind dead members, see [storage.Grouper], from groups in the order
// of their names.
type Behind struct {
	All    []storage.BehindDead
	Limit  int    // of queues
	queue  string // of the last group
	passed int    // groups of it in which nobody waits behind a dead member
	all    int    // such groups of all queues
}

// Next is where to look after a group.
type Next struct {
	// From is the lowest name of a group that is to be looked at, if it is not empty. If it
	// is, all are.
	From string
	Over bool // no other group is to be looked at
}

// Add adds a group, of which n members wait behind the head, which died at a time. n need not be
// counted further than to one more than [storage.BehindJobs].
func (b *Behind) Add(name string, n int64, died time.Time) Next {
	queue, _ := SplitGroup(name)
	if queue != b.queue {
		b.queue, b.passed = queue, 0
	}
	last := len(b.All) - 1
	found := last >= 0 && b.All[last].Queue == queue
	switch {
	case n == 0:
		if b.all++; b.all >= storage.BehindAll {
			if found {
				b.All[last].More = true
			}
			if len(b.All) < b.Limit {
				b.All = append(b.All, storage.BehindDead{More: true})
			}
			return Next{Over: true}
		}
		if b.passed++; b.passed < storage.BehindLooks {
			return Next{}
		}
		if found {
			b.All[last].More = true
		}
		return Next{From: AfterQueue(queue)}
	case !found && len(b.All) >= b.Limit:
		return Next{Over: true}
	case !found:
		b.All = append(b.All, storage.BehindDead{Queue: queue, Since: died})
		last++
	}
	is := &b.All[last]
	if is.Groups == storage.BehindGroups {
		is.More = true
		return Next{From: AfterQueue(queue)}
	}
	is.Groups++
	is.Jobs += int(n)
	if died.Before(is.Since) {
		is.Since = died
	}
	if is.Jobs > storage.BehindJobs {
		is.Jobs, is.More = storage.BehindJobs, true
		return Next{From: AfterQueue(queue)}
	}
	return Next{}
}

// AfterQueue returns a name that is higher than those of all groups of a queue, and lower than
// those of all queues after it. It is empty for no queue.
func AfterQueue(queue string) string {
	if queue == "" {
		return ""
	}
	return queue + "!"
}
