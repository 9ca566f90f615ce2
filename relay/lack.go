package relay

import (
	"fmt"
	"time"
)

// String returns in a line how much the server lacks.
func (l Lack) String() string {
	s := fmt.Sprintf("queue %s, stream %s: %d jobs", l.Queue, l.Stream, len(l.Jobs))
	if l.To > 0 {
		s += fmt.Sprintf(", and those of requests %d to %d, which are not listed any more", l.From, l.To)
	}
	return s + ", found at " + l.FoundAt.UTC().Format(time.RFC3339)
}
