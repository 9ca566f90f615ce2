package storage

import (
	"fmt"
	"slices"
	"strings"
)

// Order is a SettingOrder: which of the ready jobs of a queue with the same priority goes
// first.
//
// With a SettingAging that much waiting makes up for a step of priority: the ready job of
// a queue goes first whose due time, less SettingAging times its priority, is the
// earliest, then the first enqueued. A queue with the order Newest does not age.
//
// Several queues are compared by their first jobs. Each counts with the highest priority
// of all jobs of its queue that could be leased. The highest priority goes first, then
// the earliest due, then the first enqueued.
//
// Settings apply at once to the jobs that are ready. Only the due times of Turns are
// stored in jobs.
type Order uint8

const (
	// Oldest is the order of due times: the earliest due goes first, then the first
	// enqueued.
	Oldest Order = iota
	// Newest is the reverse: the latest due goes first, then the last enqueued.
	Newest
	// Turns is Oldest with the groups in rotation: a due member that an Exchange lets
	// into its group is ready, and its due time becomes the time of the call, if that is
	// later. See [Grouper].
	Turns
)

var order = [...]string{Oldest: "oldest", Newest: "newest", Turns: "turns"}

// String returns the name of o.
func (o Order) String() string {
	if int(o) < len(order) {
		return order[o]
	}
	return fmt.Sprintf("Order(%d)", uint8(o))
}

// MarshalText returns the name of o.
func (o Order) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText sets o by its name.
func (o *Order) UnmarshalText(text []byte) error {
	i := slices.Index(order[:], string(text))
	if i < 0 {
		return fmt.Errorf("errand: order %q: must be one of %s", text, strings.Join(order[:], ", "))
	}
	*o = Order(i)
	return nil
}
