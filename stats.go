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
	// DeadEvicted is how many dead letters a cap has ever deleted.
	DeadEvicted int64 `json:"dead_evicted,omitempty"`
	// OldestDue is when the job that waits longest was due. It is zero if no job is due.
	// Jobs that are due stay scheduled while no worker has a runner free; if more than
	// 100 do, those of this queue and kind may be left out.
	OldestDue time.Time `json:"oldest_due,omitzero"`
	// LastSuccess is when a job was done for the last time, to a second. It is zero if no job
	// was ever done.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// LastFailure is the last failed attempt, or the last death.
	LastFailure LastFailure `json:"last_failure,omitzero"`
	// Holds are the holds in force that keep jobs from starting: those of the lane, its
	// queue and its kind.
	Holds []HoldState `json:"holds,omitempty"`
	// Rate is how many a minute there were in the last minutes. It is nil if that is not known:
	// the file is younger than ten minutes, it has met 200 queues and kinds before this one, the
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
	// Done to Dead are how many jobs have ended so. A job that dies again after a redrive
	// counts again.
	Done      int64 `json:"done"`
	Cancelled int64 `json:"cancelled"`
	Expired   int64 `json:"expired"`
	Dead      int64 `json:"dead"`
	// Failed is how many attempts have failed: crashed or died too. A file that is older than this
	// number has it from the release on that brought it.
	Failed int64 `json:"failed"`
	// Evicted and DeadEvicted are as in [LaneStats].
	Evicted     int64 `json:"evicted"`
	DeadEvicted int64 `json:"dead_evicted"`
	// Since is when this process has opened the queue, on the queue's clock.
	Since time.Time `json:"since"`
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
	out := make([]LaneTotals, len(all))
	for i := range all {
		s := &all[i]
		out[i] = LaneTotals{
			Queue: s.Queue, Kind: s.Kind, Number: s.Number, Enqueued: s.Total.Enqueued,
			Done: s.Total.Done, Cancelled: s.Total.Cancelled, Expired: s.Total.Expired, Dead: s.Total.Dead, Failed: s.Total.Failed,
			Evicted: s.Evicted, DeadEvicted: s.EvictedDead, Since: q.opened, Stats: stats[i],
		}
		m := q.lanes.Meter(s.Lane)
		for outcome, n := range m.Attempts {
			out[i].count(verdictEvents[outcome], n)
		}
		out[i].count(EventLeaseLost, m.Lost)
		out[i].Wait, out[i].Run = histogram(&m.Wait), histogram(&m.Run)
	}
	return out, nil
}

// Rate is what all processes did a minute. It is reckoned from the totals in the file, so it
// is the same wherever it is read.
type Rate struct {
	// Since is when the time of the rate began: five to ten minutes ago.
	Since time.Time `json:"since"`
	// Enqueued, Done and Dead are jobs: those that a redrive starts again are not in Enqueued.
	// Failed are attempts that failed: those that crashed or died are among them, those that were
	// cancelled, snoozed or interrupted, or could not reach the other side, are not.
	Enqueued float64 `json:"enqueued"`
	Done     float64 `json:"done"`
	Failed   float64 `json:"failed"`
	Dead     float64 `json:"dead"`
}

// rating is what rates are reckoned from. With the zero value no rate is known.
type rating struct {
	since   time.Time
	minutes float64
	of      map[Lane]storage.Totals // at since; nil: nothing has changed
	known   bool
}

// rating reads what the totals were five to ten minutes ago.
func (q *Queue) rating(ctx context.Context, now time.Time) (r rating, err error) {
	h, ok := q.store.(storage.Historian)
	if !ok {
		return r, nil
	}
	r.since = now.Add(-storage.SampleEach).Truncate(storage.SampleEach).UTC()
	r.minutes = now.Sub(r.since).Minutes()
	all, err := h.History(ctx, r.since)
	if err != nil || len(all) == 0 || !all[0].At.Before(r.since) { // none, or the file is younger
		return r, err
	}
	all = all[1:]
	if r.known = len(all) == 0 || !all[0].Unknown; len(all) == 0 || !r.known {
		return r, nil
	}
	r.of = make(map[Lane]storage.Totals, len(all[0].Lanes))
	for i := range all[0].Lanes {
		r.of[all[0].Lanes[i].Lane] = all[0].Lanes[i].Total
	}
	return r, nil
}

// rate returns the rate of a lane; nil if it is not known.
func (r *rating) rate(of *storage.LaneStats) *Rate {
	if !r.known || of.Number > storage.SampledLanes {
		return nil
	}
	out := &Rate{Since: r.since}
	if r.of == nil {
		return out
	}
	now, was := &of.Total, r.of[of.Lane] // zero: the lane is younger
	each := func(now, was int64) float64 { return float64(max(now-was, 0)) / r.minutes }
	out.Enqueued, out.Done, out.Failed, out.Dead = each(now.Enqueued, was.Enqueued), each(now.Done, was.Done), each(now.Failed, was.Failed), each(now.Dead, was.Dead)
	return out
}

// Period is what has become of jobs in a time.
type Period struct {
	// From and To are when it began and ended. To is after From.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Lanes are in the order in which the file has met them. Those after the first 200 are one,
	// which is last and has neither Queue nor Kind.
	Lanes []LanePeriod `json:"lanes"`
}

// LanePeriod are the numbers of the jobs of one kind in one queue.
type LanePeriod struct {
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	// Enqueued to Failed are how many there were in the period: jobs, and of Failed attempts,
	// see [Rate].
	Enqueued  int64 `json:"enqueued"`
	Done      int64 `json:"done"`
	Cancelled int64 `json:"cancelled"`
	Expired   int64 `json:"expired"`
	Died      int64 `json:"died"`
	Failed    int64 `json:"failed"`
	// Scheduled to Dead are how many jobs were in each state when the period began.
	Scheduled int64 `json:"scheduled"`
	Ready     int64 `json:"ready"`
	Running   int64 `json:"running"`
	Blocked   int64 `json:"blocked"`
	Dead      int64 `json:"dead"`
	// OldestDue is when the ready job that had waited longest was due, when the period began.
	// It is zero if no job was ready, or if all were held.
	OldestDue time.Time `json:"oldest_due,omitzero"`
}

// History returns what has become of jobs, in periods, the oldest first, from the one in which
// since is or the first after it on. Between two periods nothing has happened.
//
// The file keeps, whichever processes write it, a day of periods of five minutes, and seven days
// of an hour. One during which the disk was nearly full is part of that before. The last one ends
// now. If the clock has gone back, what was done while it was ahead is in none.
//
// It returns [ErrUnsupportedDB] if the store keeps none.
func (q *Queue) History(ctx context.Context, since time.Time) ([]Period, error) {
	h, ok := q.store.(storage.Historian)
	if !ok {
		return nil, fmt.Errorf("%w: store %T keeps no history", ErrUnsupportedDB, q.store)
	}
	all, err := h.History(ctx, since)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	stats, err := q.store.Stats(ctx)
	if err != nil {
		return nil, err
	}
	now := q.clock.Now().UTC()
	last := storage.Sample{At: now}
	var rest *storage.SampledLane
	for i := range stats {
		s := &stats[i]
		if s.Number <= storage.SampledLanes {
			last.Lanes = append(last.Lanes, storage.SampledLane{Lane: s.Lane, Total: s.Total})
			continue
		}
		if rest == nil {
			rest = &storage.SampledLane{}
		}
		rest.Total = rest.Total.Plus(s.Total)
	}
	if rest != nil {
		last.Lanes = append(last.Lanes, *rest)
	}
	return periods(append(all, last), since), nil
}

// periods returns what has changed from each sample to the next. The last one is of now.
func periods(all []storage.Sample, since time.Time) (out []Period) {
	newest := all[len(all)-2].At
	for i := 0; i < len(all)-1; {
		s, next := &all[i], i+1
		for next < len(all)-1 && all[next].Unknown {
			next++
		}
		p := Period{From: s.At, To: s.At.Add(storage.SampleEach)}
		if s.At.Before(newest.Add(-storage.SamplesEachFor)) { // the others of the hour are gone
			p.To = s.At.Truncate(time.Hour).Add(time.Hour)
		}
		if next > i+1 {
			p.To = all[next-1].At.Add(storage.SampleEach)
		}
		if i = next; p.To.After(all[next].At) { // a part of its hour is known by five minutes, or it is now
			p.To = all[next].At
		}
		if s.Unknown || !p.To.After(p.From) || !p.To.After(since) {
			continue
		}
		was := make(map[Lane]*storage.SampledLane, len(s.Lanes))
		for j := range s.Lanes {
			was[s.Lanes[j].Lane] = &s.Lanes[j]
		}
		for j := range all[next].Lanes {
			l := &all[next].Lanes[j]
			w := was[l.Lane]
			if w == nil {
				w = &storage.SampledLane{}
			}
			each := func(now, was int64) int64 { return max(now-was, 0) }
			p.Lanes = append(p.Lanes, LanePeriod{
				Queue: l.Queue, Kind: l.Kind,
				Enqueued: each(l.Total.Enqueued, w.Total.Enqueued), Done: each(l.Total.Done, w.Total.Done), Cancelled: each(l.Total.Cancelled, w.Total.Cancelled),
				Expired: each(l.Total.Expired, w.Total.Expired), Died: each(l.Total.Dead, w.Total.Dead), Failed: each(l.Total.Failed, w.Total.Failed),
				Scheduled: w.Scheduled, Ready: w.Ready, Running: w.Running, Blocked: w.Blocked, Dead: w.Dead, OldestDue: w.OldestDue,
			})
		}
		out = append(out, p)
	}
	return out
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
