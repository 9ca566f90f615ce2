package engine

import (
	"fmt"
	"testing"
	"time"
)

// However many groups come, the buckets that are kept are bounded; those that were the last
// to be slowed down are among them.
func TestGroupThrottle_Forgets(t *testing.T) {
	g := NewGroupThrottle(GroupRate{Starts: 1, Per: time.Hour, Burst: 1})
	now := g.began
	take := func(i int) bool {
		now = now.Add(time.Millisecond)
		_, ok := g.take(fmt.Sprint(i), now)
		return ok
	}
	const groups = 3 * mostBuckets
	for i := range groups {
		if !take(i) {
			t.Fatalf("group %d has to wait", i)
		}
		if n := len(g.groups); n > mostBuckets {
			t.Fatalf("%d buckets after %d groups", n, i)
		}
	}
	for i := range mostBuckets / 2 {
		if take(groups - 1 - i) {
			t.Fatalf("the bucket of a group was forgotten, %d came after it", i)
		}
	}
}
