package errand

import (
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

// mostAging bounds Aging, so that 200 steps of priority are a time.
const mostAging = 365 * 24 * time.Hour

// Order says which ready job of a queue starts first among those of the same priority:
// see [Settings].
type Order = storage.Order

const (
	// Oldest starts first what has been due for longest.
	Oldest = storage.Oldest
	// Newest starts first what became due last: for data of which the latest matters most.
	Newest = storage.Newest
	// Turns starts jobs as Oldest does, but a job that waited in its group is due only from
	// when the group lets it run: it goes behind the jobs that are ready then. So a group
	// with many jobs does not go before one with few that came later.
	Turns = storage.Turns
)

func anOrder(value int64) string {
	if value < 0 || value > int64(Turns) {
		return fmt.Sprintf("must be Oldest (%d), Newest (%d) or Turns (%d)", Oldest, Newest, Turns)
	}
	return ""
}

// anAging checks an Aging in microseconds.
func anAging(value int64) string {
	if value != 0 && (value < time.Second.Microseconds() || value > mostAging.Microseconds()) {
		return fmt.Sprintf("must be 0, or from %v to %v", time.Second, mostAging)
	}
	return ""
}
