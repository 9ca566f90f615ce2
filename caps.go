package errand

import (
	"fmt"

	"github.com/errandq/errand/storage"
)

// WhenFull says what becomes of a job for which there is no room: see [Settings].
type WhenFull = storage.WhenFull

const (
	// Refuse refuses the job with a [QueueFullError].
	Refuse = storage.Refuse
	// EvictOldest deletes jobs that wait, those first that have been due for longest.
	EvictOldest = storage.EvictOldest
	// EvictLowest is EvictOldest among the jobs of the lowest priority. It refuses a job
	// of a priority that is lower still.
	EvictLowest = storage.EvictLowest
)

func aWhenFull(value int64) string {
	if value < 0 || value > int64(EvictLowest) {
		return fmt.Sprintf("must be Refuse (%d), EvictOldest (%d) or EvictLowest (%d)", Refuse, EvictOldest, EvictLowest)
	}
	return ""
}
