package clock

import (
	"sync"
	"time"
)

const (
	// patience is how long a reading of a wall clock is waited for. It is a quarter of the
	// shortest lease: the heartbeat that waits is still in time.
	patience = 250 * time.Millisecond
	// waiting is which part of the time readers wait at most, 1 of so many, beyond that: a
	// loop that reads a slow clock for each of many jobs is in time too.
	waiting = 10
	// slow is after which time it is told that a wall clock does not answer.
	slow = time.Second
)

// Beside returns a wall clock that asks wall on a goroutine of its own: one that blocks
// must not stop its readers, nor one that is slow. If wall has not returned after 250 ms,
// the time goes on from its last reading, by the monotonic clock, until it has. If readings
// take more than a tenth of the time, later ones are waited for less long, or not at all.
// Only the first reading takes as long as it takes. A panic of wall is one of the reader
// that waits for it.
//
// tell is called when wall has not returned for a second, and when it has returned after
// that. Neither may wait.
func Beside(wall func() time.Time, tell func(answers bool)) func() time.Time {
	b := &beside{wall: wall, tell: tell}
	return b.now
}

type beside struct {
	wall func() time.Time
	tell func(answers bool)

	mu   sync.Mutex
	last time.Time // the last reading
	at   time.Time // when it was asked for, on the monotonic clock; zero: there is none
	late *question // nobody waits for it any more, and no other is asked for; nil: none
	told bool      // that it is late

	left  time.Duration // for which readers may wait
	since time.Time     // as of then; zero: nobody has waited
}

// question is one to wall, and what that returned.
type question struct {
	asked    time.Time
	done     chan struct{} // closed when wall has returned
	wall     time.Time
	returned bool // false after a panic and after runtime.Goexit
	panicked any
}

func (b *beside) now() time.Time {
	r := &question{asked: time.Now(), done: make(chan struct{})}
	b.mu.Lock()
	first, late := b.at.IsZero(), b.late != nil
	b.left, b.since = min(patience, b.left+r.asked.Sub(b.since)/waiting), r.asked
	most := b.left
	b.mu.Unlock()
	if late {
		return b.guess()
	}
	go b.ask(r)
	if first {
		<-r.done
	} else if !b.wait(r, most) && b.leave(r) {
		return b.guess()
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	if !r.returned {
		return b.guess()
	}
	return r.wall
}

// wait waits for a reading, and reports whether it came.
func (b *beside) wait(r *question, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	came := false
	select {
	case <-r.done:
		came = true
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = max(b.left-time.Since(r.asked), 0)
	return came
}

// leave has nobody wait for a reading. It reports false if it came at the last moment.
func (b *beside) leave(r *question) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.done:
		return false
	default:
	}
	b.late = r
	time.AfterFunc(slow-time.Since(r.asked), func() { b.isLate(r) })
	return true
}

// isLate tells that a reading is late, if it is.
func (b *beside) isLate(r *question) {
	b.mu.Lock()
	tell := b.late == r
	b.told = b.told || tell
	b.mu.Unlock()
	if tell {
		b.tell(false)
	}
}

// guess returns the time by the last reading.
func (b *beside) guess() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() { // wall has called runtime.Goexit
		return time.Now()
	}
	return b.last.Add(time.Since(b.at))
}

// ask takes a reading.
func (b *beside) ask(r *question) {
	defer func() {
		if !r.returned {
			r.panicked = recover()
		}
		b.take(r)
	}()
	r.wall = b.wall()
	r.returned = true
}

func (b *beside) take(r *question) {
	b.mu.Lock()
	if r.returned && r.asked.After(b.at) {
		// One that was late shows the time at which it returned, or some time before.
		b.last, b.at = r.wall, r.asked
		if b.late == r {
			b.at = time.Now()
		}
	}
	again := b.late == r && b.told
	if b.late == r {
		b.late, b.told = nil, false
	}
	close(r.done)
	b.mu.Unlock()
	if again {
		b.tell(true)
	}
}
