package errand

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// LaneStats are the numbers of the jobs of one kind in one queue.
type LaneStats struct {
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	// How many jobs are in each state.
	Scheduled int64 `json:"scheduled"`
	Ready     int64 `json:"ready"`
	Running   int64 `json:"running"`
	Done      int64 `json:"done"`
	Cancelled int64 `json:"cancelled"`
	Expired   int64 `json:"expired"`
	Dead      int64 `json:"dead"`
	Blocked   int64 `json:"blocked"`
	// Bytes is how many bytes the args and headers of the scheduled, ready, blocked and
	// running jobs have. RunningBytes is how many of these the running ones have.
	Bytes        int64 `json:"bytes"`
	RunningBytes int64 `json:"running_bytes,omitempty"`
	// Evicted is how many jobs were deleted to make room, ever.
	Evicted int64 `json:"evicted,omitempty"`
	// DeadEvicted is how many dead letters were deleted, as there were too many, ever.
	DeadEvicted int64 `json:"dead_evicted,omitempty"`
	// OldestDue is when the job that waits longest was due. It is zero if no job is due.
	// Jobs that are due stay scheduled while no worker has a runner free; if more than
	// 100 do, those of this queue and kind may be left out.
	OldestDue time.Time `json:"oldest_due,omitzero"`
	// LastSuccess is when a job was done for the last time, to a second. It is zero if
	// none ever was.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// LastFailure is the last failed attempt, or the last death.
	LastFailure LastFailure `json:"last_failure,omitzero"`
	// Holds are the holds in force that keep jobs from starting: those of the lane, its
	// queue and its kind.
	Holds []HoldState `json:"holds,omitempty"`
	// Rate is how many a minute there were in the last minutes. It is nil if that is not known:
	// the file is younger than five minutes, it has met 200 queues and kinds before this one, the
	// disk was nearly full, or the store keeps no history.
	Rate *Rate `json:"rate,omitempty"`
}

// LastFailure says what failed last. It is zero if nothing has.
type LastFailure struct {
	At time.Time `json:"at,omitzero"`
	// Job is the job, and Error its last error. They are zero if the job was deleted.
	Job   ID     `json:"job,omitzero"`
	Error string `json:"error,omitempty"`
}

// Stats returns the numbers of all queues and kinds that have jobs or have had an
// attempt, sorted by these two. The numbers are kept, not counted: Stats takes some
// milliseconds, however many jobs there are.
func (q *Queue) Stats(ctx context.Context) ([]LaneStats, error) {
	all, stats, err := q.readStats(ctx)
	if err != nil {
		return nil, err
	}
	out := stats[:0]
	for i := range all {
		if !all[i].Idle() {
			out = append(out, stats[i])
		}
	}
	return out, nil
}

// readStats returns the numbers of all lanes that have had jobs, as the store keeps them and
// as they are shown.
func (q *Queue) readStats(ctx context.Context) (all []storage.LaneStats, stats []LaneStats, err error) {
	if all, err = q.store.Stats(ctx); err != nil {
		return nil, nil, err
	}
	holds, err := q.Holds(ctx)
	if err != nil {
		return nil, nil, err
	}
	now := q.clock.Now()
	late, err := q.late(ctx, now)
	if err != nil {
		return nil, nil, err
	}
	rates, err := q.rating(ctx, now)
	if err != nil {
		return nil, nil, err
	}
	held := map[Lane][]HoldState{}
	for _, h := range holds {
		held[h.Lane] = append(held[h.Lane], h)
	}
	stats = make([]LaneStats, len(all))
	for i := range all {
		s := &all[i]
		stats[i] = LaneStats{
			Queue: s.Queue, Kind: s.Kind, Scheduled: s.Scheduled, Ready: s.Ready, Running: s.Running, Done: s.Done, Cancelled: s.Cancelled, Expired: s.Expired,
			Dead: s.Dead, Blocked: s.Blocked, Bytes: s.Bytes, RunningBytes: s.RunningBytes, Evicted: s.Evicted, DeadEvicted: s.EvictedDead, OldestDue: s.OldestDue, LastSuccess: s.Succeeded,
			LastFailure: LastFailure{At: s.Failed, Job: s.FailedJob, Error: s.Error},
		}
		if at, ok := late[s.Lane]; ok && (s.OldestDue.IsZero() || at.Before(s.OldestDue)) {
			stats[i].OldestDue = at
		}
		for _, over := range [...]Lane{{Kind: s.Kind}, {Queue: s.Queue}, s.Lane} { // in the order of Holds
			stats[i].Holds = append(stats[i].Holds, held[over]...)
		}
		stats[i].Rate = rates.rate(s)
	}
	return all, stats, nil
}

// mostLate is how many jobs late looks at: an index by lane would cost every job.
const mostLate = 100

// late returns, by lane, when the first of the jobs was due that are scheduled still
// though they were due before a time: no worker has looked for jobs since.
func (q *Queue) late(ctx context.Context, before time.Time) (map[Lane]time.Time, error) {
	page, err := q.store.Jobs(ctx, storage.Filter{States: []State{Scheduled}, DueBefore: before}, "", mostLate)
	first := map[Lane]time.Time{}
	for _, r := range page.Jobs {
		if lane := (Lane{Queue: r.Queue, Kind: r.Kind}); first[lane].IsZero() {
			first[lane] = r.DueAt
		}
	}
	return first, err
}

// LaneTotals count what has become of the jobs of one kind in one queue. No number ever falls.
//
// Those up to DeadEvicted are of the file: since it was made, whoever has written, and exact
// also after a crash. A job that [Queue.Change] or a redrive moves to another queue counts as
// Enqueued in its first queue, and ends in its last. A redrive changes no number.
//
// Attempts, Wait and Run are of this process, since the queue was opened: of the attempts that
// its workers have ended.
type LaneTotals struct {
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	// Number tells the order in which the file has met the queues and kinds: lower came first.
	Number   int64 `json:"number"`
	Enqueued int64 `json:"enqueued"`
	// Done to Dead are how many jobs have ended so. One that dies again after a redrive counts
	// again.
	Done      int64 `json:"done"`
	Cancelled int64 `json:"cancelled"`
	Expired   int64 `json:"expired"`
	Dead      int64 `json:"dead"`
	// Failed is how many attempts have failed: crashed or died too. A file that is older than this
	// number has it from the release on that brought it.
	Failed int64 `json:"failed"`
	// Evicted and DeadEvicted are those of [LaneStats].
	Evicted     int64 `json:"evicted"`
	DeadEvicted int64 `json:"dead_evicted"`
	// Attempts are by the event that told of their end: [EventDone], [EventRetried],
	// [EventDead], [EventSnoozed], [EventCancelled], [EventUnavailable], [EventInterrupted],
	// [EventCrashed] or [EventLeaseLost].
	Attempts map[EventType]int64 `json:"attempts,omitempty"`
	// Wait is how long jobs were due before their handlers were called, and Run how long these
	// took. Attempts that crashed, or lost their leases, are in neither.
	Wait Histogram `json:"wait"`
	Run  Histogram `json:"run"`
	// Stats are the numbers of the lane at the same moment.
	Stats LaneStats `json:"stats"`
}

// Histogram is how long something took, many times.
type Histogram struct {
	Buckets []Bucket `json:"buckets"`
	Count   int64    `json:"count"`
	Sum     float64  `json:"sum_s"` // in seconds
}

// Bucket is how many times something took at most UpTo seconds: those of the buckets before
// are among them. The last bucket has no bound but [Histogram].Count.
type Bucket struct {
	UpTo float64 `json:"up_to_s"`
	N    int64   `json:"n"`
}

// verdictEvents are the events that tell of the outcomes of attempts.
var verdictEvents = [...]EventType{
	storage.OutcomeDone: EventDone, storage.OutcomeCancelled: EventCancelled, storage.OutcomeRetry: EventRetried,
	storage.OutcomeSnooze: EventSnoozed, storage.OutcomeCrashed: EventCrashed, storage.OutcomeInterrupted: EventInterrupted,
	storage.OutcomeReturned: "", storage.OutcomeDead: EventDead, storage.OutcomeUnavailable: EventUnavailable,
}

// Totals returns the totals of all queues and kinds that have had jobs, sorted by these two.
// Like [Queue.Stats] it takes some milliseconds, however many jobs there are.
func (q *Queue) Totals(ctx context.Context) ([]LaneTotals, error) {
	all, stats, err := q.readStats(ctx)
	if err != nil {
		return nil, err
	}
	meters := q.lanes.Meters()
	out := make([]LaneTotals, len(all))
	for i := range all {
		s := &all[i]
		out[i] = LaneTotals{
			Queue: s.Queue, Kind: s.Kind, Number: s.Number, Enqueued: s.Total.Enqueued,
			Done: s.Total.Done, Cancelled: s.Total.Cancelled, Expired: s.Total.Expired, Dead: s.Total.Dead, Failed: s.Total.Failed,
			Evicted: s.Evicted, DeadEvicted: s.EvictedDead, Stats: stats[i],
		}
		m := meters[s.Lane]
		for outcome, n := range m.Attempts {
			out[i].count(verdictEvents[outcome], n)
		}
		out[i].count(EventLeaseLost, m.Lost)
		out[i].Wait, out[i].Run = histogram(&m.Wait), histogram(&m.Run)
	}
	return out, nil
}

// Version returns a number that changes with every commit to the file, by this process or another:
// while it stays the same, what was read before would be read again. It may also change without a
// commit, and numbers of other Queues have nothing to do with it. Version reads no job and takes
// some microseconds, so a program can ask once a second whether it has to look again. What is not
// committed it does not show: workers that come, go or get on. It returns [ErrUnsupportedDB] if the
// store does not know.
func (q *Queue) Version(ctx context.Context) (int64, error) {
	v, ok := q.store.(storage.Versioner)
	if !ok {
		return 0, fmt.Errorf("%w: store %T does not say when it has changed", ErrUnsupportedDB, q.store)
	}
	return v.Version(ctx)
}

// count sets a number of attempts.
func (t *LaneTotals) count(e EventType, n uint64) {
	if n == 0 || e == "" {
		return
	}
	if t.Attempts == nil {
		t.Attempts = map[EventType]int64{}
	}
	t.Attempts[e] = int64(n)
}

// histogram returns a histogram of the engine with sums of its buckets.
func histogram(h *engine.Histogram) (out Histogram) {
	out.Buckets = make([]Bucket, len(engine.Bounds))
	for i, n := range h.Buckets {
		if out.Count += int64(n); i < len(out.Buckets) {
			out.Buckets[i] = Bucket{UpTo: engine.Bounds[i].Seconds(), N: out.Count}
		}
	}
	out.Sum = h.Sum
	return out
}
