package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// Setter is a DB whose clock can be set, if its stores are [storage.Clocked].
type Setter interface {
	DB
	// SetAhead sets the clock of the database ahead of this machine's by so much.
	SetAhead(by time.Duration)
}

const clockedSays = `StoreTime returns what the clock of the Store showed with its latest answer to this instance, and what has passed since on the monotonic clock of this machine.
As an answer takes time, StoreTime is never ahead of that clock, unless the clock was set back since the answer.`

// clocked returns s as one with a clock of its own, and what sets that, or skips the case.
func (f *fixture) clocked(s storage.Store) (storage.Clocked, Setter) {
	f.Helper()
	c, ok := s.(storage.Clocked)
	set, can := f.db.(Setter)
	if !ok || !can {
		f.skip("a clock that can be set")
	}
	return c, set
}

// between checks that c shows a time of between from and now, of a clock that is ahead of this
// machine's by so much.
func (f *fixture) between(what string, c storage.Clocked, from time.Time, ahead time.Duration) {
	f.Helper()
	got, known := c.StoreTime()
	first, last := from.Add(ahead).Truncate(time.Microsecond), time.Now().Add(ahead)
	if !known || got.Before(first) || got.After(last) {
		f.Errorf("after %s StoreTime returned %v (known: %t), want %v to %v", what, got, known, first, last)
	}
}

var clockedCases = []testCase{
	{"clocked_answers", clockedSays + `
known is true once there was an answer.`, func(f *fixture) {
		c, set := f.clocked(f.s)
		for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
			set.SetAhead(ahead)
			for what, call := range map[string]func(){
				"Enqueue":  func() { f.add(newJob()) },
				"Exchange": func() { f.lease(f.s, 1) },
				"Reclaim":  func() { f.reclaim(f.s, 0) },
			} {
				before := time.Now()
				call()
				f.between(what, c, before, ahead)
			}
		}
	}},

	{"clocked_runs", clockedSays + `
The call asks nobody, and costs no round trip.`, func(f *fixture) {
		c, set := f.clocked(f.s)
		f.add(newJob())
		before := time.Now()
		first, _ := c.StoreTime()
		set.SetAhead(time.Hour) // which nobody has heard of yet
		after := time.Now()
		for time.Since(after) <= time.Millisecond {
			continue
		}
		passed := time.Since(after)
		second, _ := c.StoreTime()
		if by := second.Sub(first); by < passed || by > time.Since(before) {
			f.Errorf("StoreTime went on by %v, want %v to %v", by, passed, time.Since(before))
		}
	}},

	{"clocked_set_back", clockedSays, func(f *fixture) {
		c, set := f.clocked(f.s)
		set.SetAhead(time.Hour)
		before := time.Now()
		f.add(newJob())
		f.between("an answer", c, before, time.Hour)
		set.SetAhead(0)
		before = time.Now()
		f.add(newJob())
		f.between("an answer of a clock that was set back", c, before, 0)
	}},

	{"clocked_agree", `Whoever uses it passes this time as now, so that machines whose clocks are wrong agree.`, func(f *fixture) {
		c, set := f.clocked(f.s)
		s := f.db.Open()
		other, _ := f.clocked(s)
		set.SetAhead(time.Hour)
		before := time.Now()
		f.add(newJob())
		f.exchange(s, storage.Exchange{Wants: wants(1)})
		for _, c := range []storage.Clocked{c, other} {
			f.between("an answer to each", c, before, time.Hour)
		}
	}},
}
