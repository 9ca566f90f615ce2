package engine

import (
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// Rate is how many attempts end a minute.
type Rate struct{ Attempts, Done, Failed float64 }

const (
	// ratePace is how long what ends is counted together.
	ratePace = 5 * time.Second
	// rateSlots is how many of these are kept, for five minutes and the one under way.
	rateSlots = 61
)

// rates are the attempts that have ended in the last minutes, by lane.
type rates struct {
	mu    sync.Mutex
	since time.Time // the first ended
	lanes map[storage.Lane]*ended
}

// ended is what has ended in a lane: all, and the last of it.
type ended struct {
	meter Meter
	ring  ring
}

// ring is what has ended, by time.
type ring [rateSlots]struct {
	at                     int64 // in units of ratePace, see slot
	attempts, done, failed uint32
}

// slot returns in which unit of ratePace a time is, and how much of that is over. The
// first is so high that a slot without a time counts as over.
func (r *rates) slot(now time.Time) (at int64, part time.Duration) {
	gone := max(now.Sub(r.since), 0)
	return int64(gone/ratePace) + rateSlots, gone % ratePace
}

// count counts outcomes that the store has written.
func (r *rates) count(written []outcome, results []storage.ItemResult, now time.Time) {
	if len(results) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var lane storage.Lane
	var e *ended
	if r.since.IsZero() {
		r.since = now
	}
	at, _ := r.slot(now)
	for i := range written {
		f := &written[i].Finish
		if results[i] == storage.Spent {
			f = f.Spent
		}
		if r := results[i]; r != storage.Spent && r != storage.Applied && r != storage.Lost || f.Outcome == storage.OutcomeReturned {
			continue
		}
		job := written[i].job
		if e == nil || lane.Queue != job.Queue || lane.Kind != job.Kind { // mostly it is the one before
			lane = storage.Lane{Queue: job.Queue, Kind: job.Kind}
			e = r.of(lane)
		}
		if results[i] == storage.Lost {
			e.meter.Lost++
			continue
		}
		e.meter.add(f.Outcome, &written[i].timing)
		s := &e.ring[at%rateSlots]
		if s.at != at {
			*s = ring{}[0]
			s.at = at
		}
		s.attempts++
		switch f.Outcome {
		case storage.OutcomeDone:
			s.done++
		case storage.OutcomeRetry, storage.OutcomeCrashed, storage.OutcomeDead:
			s.failed++
		}
	}
}

// of returns what has ended of a lane.
func (r *rates) of(lane storage.Lane) *ended {
	e := r.lanes[lane]
	if e == nil {
		if r.lanes == nil {
			r.lanes = map[storage.Lane]*ended{}
		}
		e = new(ended)
		r.lanes[lane] = e
	}
	return e
}

// lost counts an attempt whose lease was lost before its handler returned.
func (r *rates) lost(job *storage.Leased) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(storage.Lane{Queue: job.Queue, Kind: job.Kind}).meter.Lost++
}

// Rates returns how many attempts of a lane have ended a minute, in the last minute
// and in the last five.
func (s *Lanes) Rates(lane storage.Lane, now time.Time) (minute, five Rate) {
	s.rates.mu.Lock()
	defer s.rates.mu.Unlock()
	e := s.rates.lanes[lane]
	if e == nil {
		return minute, five
	}
	at, part := s.rates.slot(now)
	add := func(r *Rate, i int) {
		r.Attempts += float64(e.ring[i].attempts)
		r.Done += float64(e.ring[i].done)
		r.Failed += float64(e.ring[i].failed)
	}
	for i := range e.ring {
		if age := at - e.ring[i].at; age < rateSlots {
			add(&five, i)
			if age <= int64(time.Minute/ratePace) {
				add(&minute, i)
			}
		}
	}
	// The slot under way counts for as much of it as is over.
	more := float64(part) / float64(time.Minute)
	scale := func(r *Rate, minutes float64) {
		r.Attempts, r.Done, r.Failed = r.Attempts/minutes, r.Done/minutes, r.Failed/minutes
	}
	scale(&minute, 1+more)
	scale(&five, 5+more)
	return minute, five
}
