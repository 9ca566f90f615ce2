package storage

import (
	"fmt"
	"slices"
	"strings"
)

// WhenFull says what becomes of a job for which there is no room.
type WhenFull uint8

const (
	// Refuse refuses it.
	Refuse WhenFull = iota
	// EvictOldest deletes jobs to make room, those first that have been due for longest.
	EvictOldest
	// EvictLowest is EvictOldest among the jobs of the lowest priority, and refuses a job
	// of a priority that is lower still.
	EvictLowest
)

var whenFull = [...]string{Refuse: "refuse", EvictOldest: "evict-oldest", EvictLowest: "evict-lowest"}

// String returns the name of w: "refuse", "evict-oldest" or "evict-lowest".
func (w WhenFull) String() string {
	if int(w) < len(whenFull) {
		return whenFull[w]
	}
	return fmt.Sprintf("WhenFull(%d)", uint8(w))
}

// MarshalText returns the name of w.
func (w WhenFull) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText sets w by its name.
func (w *WhenFull) UnmarshalText(text []byte) error {
	i := slices.Index(whenFull[:], string(text))
	if i < 0 {
		return fmt.Errorf("errand: when full %q: must be one of %s", text, strings.Join(whenFull[:], ", "))
	}
	*w = WhenFull(i)
	return nil
}
