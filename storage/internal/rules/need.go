package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/errandq/errand/storage"
)

// Need is what a call may ask for, and so what is to be locked and read for it. The zero value is
// nothing.
type Need struct {
	Keys   []NeedKey
	Groups []string
	// Leave is how many members of each of Groups may leave their places. A group of which none
	// may does not need its Members.
	Leave []int32
	Jobs  []int64 // that may end
	Fresh int     // how many jobs may enter
	Anew  bool    // of all groups, see Group.Settle

	entrants []entrant
}

// NeedKey is a unique key, with the Conflict of who needs it.
type NeedKey struct {
	Name     string
	Conflict *storage.Conflict
}

// entrant is a job that may enter a group.
type entrant struct{ group, key string }

// Enter adds what is needed for jobs that are to enter.
func (n *Need) Enter(jobs []storage.NewJob) {
	for i := range jobs {
		j := &jobs[i]
		if j.Unique != "" {
			n.Keys = append(n.Keys, NeedKey{j.Unique, j.Conflict})
		}
		if j.Group != "" {
			n.entrants = append(n.entrants, entrant{GroupName(j.Queue, j.Group), j.Unique})
		}
	}
	n.Fresh += len(jobs)
}

// End adds what is needed for a job that may end, with its unique key and its group, if it has them.
func (n *Need) End(key, group string) {
	if key != "" {
		n.Keys = append(n.Keys, NeedKey{Name: key})
	}
	if group != "" {
		n.Groups, n.Leave = append(n.Groups, group), append(n.Leave, 1)
	}
}

// Ends reports whether n has what End adds.
func (n *Need) Ends(key, group string) bool {
	return (key == "" || slices.ContainsFunc(n.Keys, func(k NeedKey) bool { return k.Name == key })) &&
		(group == "" || slices.Contains(n.Groups, group))
}

// None reports whether no unique key and no group is needed.
func (n *Need) None() bool { return len(n.Keys)+len(n.Groups)+len(n.entrants) == 0 }

// Sort brings n in the order in which it is locked, with each key and each group once. A key has
// the Conflict for which most is to be read of it.
func (n *Need) Sort() {
	slices.Sort(n.Jobs)
	slices.SortFunc(n.Keys, func(a, b NeedKey) int { return strings.Compare(a.Name, b.Name) })
	keys := n.Keys[:0]
	for _, k := range n.Keys {
		if last := len(keys) - 1; last < 0 || keys[last].Name != k.Name {
			keys = append(keys, k)
		} else if was := &keys[last].Conflict; !(*was).Replaces() || k.Conflict.Replaces() && k.Conflict.Merge != nil {
			*was = k.Conflict
		}
	}
	n.Keys = keys
	groups, leave := n.Groups, n.Leave
	n.Groups, n.Leave = groups[:0], leave[:0]
	for i, name := range groups {
		n.leaves(name, leave[i])
	}
	slices.SortFunc(n.entrants, func(a, b entrant) int { return strings.Compare(a.group, b.group) })
	for _, e := range n.entrants {
		leave := int32(0)
		if k, ok := n.key(e.key); ok && k.Conflict.Replaces() { // another job of the call may put it off
			leave = 1
		}
		n.leaves(e.group, leave)
	}
	n.entrants = nil
}

// leaves adds a group to those of a sorted n, or so many members that may leave it.
func (n *Need) leaves(name string, leave int32) {
	i, ok := slices.BinarySearch(n.Groups, name)
	if ok {
		n.Leave[i] += leave
		return
	}
	n.Groups, n.Leave = slices.Insert(n.Groups, i, name), slices.Insert(n.Leave, i, leave)
}

// key returns what a sorted n says of a key.
func (n *Need) key(name string) (NeedKey, bool) {
	i, ok := slices.BinarySearchFunc(n.Keys, name, func(k NeedKey, name string) int { return cmp.Compare(k.Name, name) })
	if !ok {
		return NeedKey{}, false
	}
	return n.Keys[i], true
}
