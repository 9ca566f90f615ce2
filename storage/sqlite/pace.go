package sqlite

import (
	"context"
	"time"
)

// A writer that does not take turns waits in SQLite's busy handler, unseen. It
// asks again after 1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, and then each 100 ms.
// Between two transactions that follow each other the lock is free for some
// microseconds, which such a waiter meets once in many seconds. So gaps are left
// that it cannot miss: of 100 ms for one that may have waited for long, and once
// somebody was met so often that nobody has to wait for more than the intervals of
// 25 ms.
const (
	longWriting = 3800 * time.Millisecond
	longGap     = 105 * time.Millisecond
	// The two together are what a rival waits for at most, but for the length of
	// a batch.
	shareWriting = 50 * time.Millisecond
	shareGap     = 30 * time.Millisecond
	// leastPause is the shortest pause of the writers that counts as a part of a gap.
	leastPause = 10 * time.Millisecond
	// shareFor is for how long the lock is shared after somebody was met.
	shareFor = 10 * time.Second
)

// pace says when the writers of a Store must leave the write lock free for a
// while. Its time is passed in. It is guarded by the turn, which is kept during
// a gap, so that no other process of errand fills it.
type pace struct {
	inUse func() bool   // reports whether the application uses a connection; nil if that is not known
	since time.Time     // when the writing began that was not interrupted for long enough
	ended time.Time     // when the turn was given last
	met   time.Time     // when somebody else was met in a gap last
	heed  time.Duration // how long to write before inUse is worth a gap

	open    bool // a gap was left; what it was for is not known yet
	hinted  bool // it was left because of inUse
	version int64
}

// due returns how long the lock must be left free by a writer that has asked for
// the turn and has it now.
func (p *pace) due(asked, now time.Time) time.Duration {
	writing, gap := longWriting, longGap
	if p.sharing(now) {
		writing, gap = shareWriting, shareGap
	}
	switch pause := asked.Sub(p.ended); {
	case pause >= longGap:
		p.since, p.heed = now, 0
	case pause >= gap:
		p.since = now
	case pause >= leastPause:
		p.since = p.since.Add(pause + pause*shareWriting/shareGap)
		if p.since.After(now) {
			p.since = now
		}
	}
	switch worked := now.Sub(p.since); {
	case worked >= writing:
		return gap
	case p.inUse != nil && worked >= max(p.heed, shareWriting) && p.inUse():
		p.hinted = true
		return shareGap
	}
	return 0
}

func (p *pace) sharing(now time.Time) bool { return now.Sub(p.met) < shareFor }

// over ends a gap. Connections in use of which none writes belong to readers:
// then inUse is heeded more and more seldom.
func (p *pace) over(now time.Time, met bool) {
	switch {
	case met:
		p.met, p.since, p.heed = now, now, 0
	case p.hinted:
		p.heed = min(2*max(p.heed, shareWriting), longWriting)
	default:
		p.since = now
	}
	p.open, p.hinted = false, false
}

// leaveGap leaves the lock free, if it is time for that. By db, which may be nil
// until the turn is had, the caller learns whether somebody has used the gap.
func (s *Store) leaveGap(ctx context.Context, asked time.Time, db **statements) error {
	gap := s.pace.due(asked, time.Now())
	if gap == 0 {
		return nil
	}
	s.pace.open = true
	s.pace.version = dataVersion(*db)
	timer := time.NewTimer(gap)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		s.pace.over(time.Now(), false)
		return ctx.Err()
	}
}

// endGap comes when the transaction has begun: somebody who was let in may have
// kept the lock for longer than the gap.
func (s *Store) endGap(db *statements) {
	s.turn.begun()
	if s.pace.open {
		before := s.pace.version
		s.pace.over(time.Now(), before != 0 && dataVersion(db) != before)
	}
}

// dataVersion returns SQLite's count of the commits of others, 0 if it is not
// known.
func dataVersion(db *statements) (version int64) {
	if db == nil || db.row(sqlDataVersion, nil, &version) != nil {
		return 0
	}
	return version
}

// giveTurn gives the turn back that takeTurn has taken.
func (s *Store) giveTurn() {
	now := time.Now()
	if s.pace.open { // the lock could not be had after a gap
		s.pace.over(now, true)
	}
	s.pace.ended = now
	s.turn.give()
}
