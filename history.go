package errand

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

// Rate is how many a minute, of all processes. It is reckoned from the totals in the file, so it is
// the same wherever it is read, and there from the start.
type Rate struct {
	// Since is from when on it is: five to ten minutes ago.
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
	if err != nil || len(all) == 0 || all[0].At.After(r.since) { // none, or the file is younger
		return r, err
	}
	if all[0].At.Before(r.since) {
		all = all[1:]
	}
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
	// Scheduled to Dead are how many jobs were in each state when it began.
	Scheduled int64 `json:"scheduled"`
	Ready     int64 `json:"ready"`
	Running   int64 `json:"running"`
	Blocked   int64 `json:"blocked"`
	Dead      int64 `json:"dead"`
	// OldestDue is when the ready job was due then that had waited longest; zero if none was,
	// or they were held.
	OldestDue time.Time `json:"oldest_due,omitzero"`
}

// History returns what has become of jobs, in periods, the oldest first, from the one in which
// since is or the first after it on. Between two periods nothing has happened.
//
// The file keeps, whichever processes write it, a day of periods of five minutes, and seven days
// of an hour. One during which the disk was nearly full is part of that before. The last one ends
// now. If the clock has gone back, what it had been ahead for is gone.
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
	now := all[len(all)-1].At
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
		if i = next; p.To.After(now) {
			p.To = now
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
