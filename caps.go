package errand

import (
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

// QueueFullError says that there is no room for a job: the queue whose cap it is, which is
// empty for the cap of the whole file, the caps, of which 0 is none, and the use without
// the job, bytes as in [Settings].MaxBytes; or, if free space is what lacks, MinFree and
// Free. It is an [ErrQueueFull].
type QueueFullError = storage.QueueFullError

// JobOverhead is how many bytes a job that waits counts for, beside its args and headers.
const JobOverhead = storage.JobOverhead

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

// tellEvicted has subscribers told of the jobs that calls of this process have evicted.
func (q *Queue) tellEvicted() {
	c, ok := q.store.(storage.Capper)
	if !ok {
		return
	}
	c.NotifyEvicted(func(at time.Time, jobs []storage.Evicted) {
		for _, j := range jobs {
			q.events.tell(Event{Type: EventEvicted, At: at, ID: j.ID, Queue: j.Queue, Kind: j.Kind})
		}
	})
}

func aPriority(value int64) string {
	if value < minPriority || value > maxPriority {
		return fmt.Sprintf("must be between %d and %d", minPriority, maxPriority)
	}
	return ""
}

func aWhenFull(value int64) string {
	if value < 0 || value > int64(EvictLowest) {
		return fmt.Sprintf("must be Refuse (%d), EvictOldest (%d) or EvictLowest (%d)", Refuse, EvictOldest, EvictLowest)
	}
	return ""
}
