package errand

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

// QueueFullError says that there is no room for a job. Queue has the cap, and is empty
// for the whole file. MaxJobs and MaxBytes are the caps, 0 for none. Jobs and Bytes are
// the use without the job, and Size is what it adds, as in [Settings].MaxBytes. If free
// space lacks, MinFree and Free are set instead of these. It is an [ErrQueueFull].
type QueueFullError = storage.QueueFullError

// JobOverhead is how many bytes a job that waits counts for, besides its args and headers.
const JobOverhead = storage.JobOverhead

// WhenFull says what becomes of a job for which there is no room: see [Settings].
type WhenFull = storage.WhenFull

const (
	// Refuse refuses the job with a [QueueFullError].
	Refuse = storage.Refuse
	// EvictOldest deletes jobs that wait, beginning with what has been due longest.
	EvictOldest = storage.EvictOldest
	// EvictLowest is EvictOldest among the jobs of the lowest priority. It refuses a new job
	// whose priority is lower still.
	EvictLowest = storage.EvictLowest
)

// WhenDeadFull says what becomes of dead letters beyond MaxDead: see [Settings].
type WhenDeadFull = storage.WhenDeadFull

const (
	// KeepDead keeps all dead letters. The log and [Queue.Health] warn.
	KeepDead = storage.KeepDead
	// EvictDead deletes dead letters, the earliest death first.
	EvictDead = storage.EvictDead
)

// CapUse is how much the jobs that wait and the dead letters take of the caps of a queue, of
// a kind or of the whole file.
type CapUse struct {
	// Jobs is how many jobs wait, and Bytes what these jobs count for, see
	// [Settings].MaxBytes. Jobs that run count for neither.
	Jobs  int64 `json:"jobs"`
	Bytes int64 `json:"bytes"`
	// Evicted is how many waiting jobs the cap has ever deleted to make room.
	Evicted int64 `json:"evicted,omitempty"`
	// Dead is the number of dead letters now, and DeadEvicted how many the cap has ever
	// deleted.
	Dead        int64 `json:"dead,omitempty"`
	DeadEvicted int64 `json:"dead_evicted,omitempty"`
}

// CapUse returns how much of the caps of l is in use, from what [Queue.Stats] has
// returned.
func (l LaneSettings) CapUse(stats []LaneStats) (u CapUse) {
	for i := range stats {
		if s := &stats[i]; (l.Queue == "" || l.Queue == s.Queue) && (l.Kind == "" || l.Kind == s.Kind) {
			waiting := s.Scheduled + s.Ready + s.Blocked
			u.Jobs += waiting
			u.Bytes += s.Bytes - s.RunningBytes + waiting*JobOverhead
			u.Evicted += s.Evicted
			u.Dead += s.Dead
			u.DeadEvicted += s.DeadEvicted
		}
	}
	return u
}

// The parts of a cap, in percent, from which on Health has a reason: of one of jobs that
// wait, and of one of dead letters.
const (
	nearCap     = 95
	nearDeadCap = 80
)

// caps adds the caps that are almost reached, and free space below what is set.
func (h *Health) caps(ctx context.Context, q *Queue, free int64) error {
	all, err := q.Settings(ctx)
	if err != nil {
		return err
	}
	var stats []LaneStats
	for _, l := range all {
		if least := orZero(l.MinFree); free >= 0 && free < least {
			text := fmt.Sprintf("jobs of %s with a priority of at most %d are refused: %d bytes of the file system are free, of at least %d",
				capText(l.Queue), orZero(l.MinFreePriority), free, least)
			h.add(HealthReason{Code: HealthSpace, Text: text, Queue: l.Queue})
		}
		r := HealthReason{Code: HealthCap, Queue: l.Queue, MaxJobs: int64(orZero(l.MaxJobs)), MaxBytes: orZero(l.MaxBytes)}
		d := HealthReason{Code: HealthDead, Queue: l.Queue, Kind: l.Kind, MaxDead: int64(orZero(l.MaxDead))}
		if r.MaxJobs == 0 && r.MaxBytes == 0 && d.MaxDead == 0 {
			continue
		}
		if stats == nil {
			if stats, err = q.Stats(ctx); err != nil {
				return err
			}
		}
		u := l.CapUse(stats)
		r.Jobs, r.Bytes = u.Jobs, u.Bytes
		if percent := max(percentOf(u.Jobs, r.MaxJobs), percentOf(u.Bytes, r.MaxBytes)); percent >= nearCap {
			r.Text = fmt.Sprintf("%.0f %% of a cap of %s are in use (%v)", percent, capText(l.Queue), orZero(l.WhenFull))
			h.add(r)
		}
		d.Dead = u.Dead
		if percent := percentOf(d.Dead, d.MaxDead); percent >= nearDeadCap {
			of := "the file"
			if l.Lane != (Lane{}) {
				of = laneText(l.Queue, l.Kind)
			}
			d.Text = fmt.Sprintf("there are %d dead letters of %s, of at most %d (%v)", d.Dead, of, d.MaxDead, orZero(l.WhenDeadFull))
			h.add(d)
		}
	}
	return nil
}

func percentOf(n, most int64) float64 {
	if most == 0 {
		return 0
	}
	return 100 * float64(n) / float64(most)
}

// capText names a queue, or the file if the name is empty.
func capText(queue string) string {
	if queue == "" {
		return "the file"
	}
	return fmt.Sprintf("queue %q", queue)
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// tellEvicted has subscribers told of the jobs that calls of this process have evicted.
func (q *Queue) tellEvicted() {
	q.store.NotifyEvicted(func(at time.Time, jobs []storage.Evicted) {
		for _, j := range jobs {
			e := Event{Type: EventEvicted, At: at, ID: j.ID, Queue: j.Queue, Kind: j.Kind}
			if j.Dead {
				e.Type = EventDeadEvicted
			}
			q.events.tell(e)
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

func aWhenDeadFull(value int64) string {
	if value < 0 || value > int64(EvictDead) {
		return fmt.Sprintf("must be KeepDead (%d) or EvictDead (%d)", KeepDead, EvictDead)
	}
	return ""
}
