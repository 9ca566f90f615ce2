//go:build unix

package torture_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// Two programs whose jobs end with transactions of their handlers are killed at random
// moments, three hundred times: each job is done, and has one row, however it ends and
// whatever errors its handler ignores.
func TestKill_Finish(t *testing.T) { inBoth(t, killFinish) }

func killFinish(t *testing.T, relaxed bool) {
	t.Parallel()
	random := dice(t)
	crew := newCrew(t, 2, "till", relaxed, func(q *errand.Queue) { makeReceipts(t, q) })
	crew.role.Workers, crew.role.Handling = 8, 24*time.Millisecond
	for i := range crew.all { // with those
		crew.kill(i)
	}
	begun := crew.begun
	r := newBooks(t, crew.path)
	rounds(t, 4, 150, func(int) { // of each durability
		r.add(crew.q, manners, forNothing)
		i := random.IntN(len(crew.all))
		c := crew.all[i]
		c.hears("ready") // on a busy machine it could be killed before it has begun
		<-time.After(between(random, 20*time.Millisecond, 200*time.Millisecond))
		crew.kill(i)
		r.hear(rest(c)...)
		r.mustMatch("%d kills", crew.begun-begun)
	})
	kills := crew.begun - begun
	crew.finish(func() {})
	for _, c := range crew.all {
		r.hear(rest(c)...)
	}
	ended, again := r.mustMatch("%d kills, and all finished", kills)
	if ended != len(r.jobs) {
		t.Errorf("%d of %d jobs are done", ended, len(r.jobs))
	}
	r.mustTotal(crew.path)
	if kills > 50 && (again == 0 || r.within == 0) {
		t.Errorf("%d kills: %d within an attempt, %d jobs were cut off: want some", kills, r.within, again)
	}
	t.Logf("%d kills, %d within an attempt: %d jobs, %d of them cut off before, one row each", kills, r.within, ended, again)
}

// A program is stopped for longer than its leases while its handlers are about to end their
// jobs. They go on when another program has taken these, or has done them: what they write
// then is refused, and not there, also if they ignore that.
func TestStop_Finish(t *testing.T) {
	t.Parallel()
	random := dice(t)
	path := filepath.Join(ramDir(t), "jobs.db")
	q, err := errand.Open(t.Context(), path, groupOptions(true))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	makeReceipts(t, q)
	r := newBooks(t, path)
	programs := 0
	begin := func() *child {
		programs++
		c := start(t, newLedger(), part{
			Role: "till", DB: path, Relaxed: true, First: programs, Workers: 2 * manners, Lease: time.Second, Handling: 4 * time.Millisecond,
		})
		c.hears("ready")
		return c
	}
	victim, stops := begin(), 0
	rounds(t, 2, 12, func(i int) {
		waiting := r.add(q, manners, untilTaken+i%2)
		careless := victim.hearsWaits(len(waiting))
		heir := begin()
		r.add(q, manners/4, forNothing) // for both of them
		<-time.After(between(random, 0, 10*time.Millisecond))
		taken := func() bool {
			jobs, rows, err := r.tryRead()
			if locked(err) {
				return false
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range waiting {
				if over := len(rows[n]) > 0; !over && (i%2 == 1 || len(jobs[n]) == 1 && jobs[n][0].attempt == 1) {
					return false
				}
			}
			return true
		}
		stops += victim.stopUntil(taken)
		victim.finishSoon(time.Minute)
		r.hear(rest(victim)...)
		for _, n := range careless { // the others may have noticed before they tried
			if !r.late[n] {
				t.Errorf("job %d: an attempt to complete it after its lease was not told so", n)
			}
		}
		r.mustMatch("%d stops", stops)
		victim = heir
	})
	await(t, time.Minute, "all jobs are done", func() bool {
		ended, _ := r.mustMatch("%d stops", stops)
		return ended == len(r.jobs) || t.Failed()
	})
	victim.finishSoon(time.Minute)
	r.hear(rest(victim)...)
	ended, again := r.mustMatch("%d stops, and all finished", stops)
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	wantRules(t, path)
	r.mustTotal(path)
	t.Logf("%d stops: %d attempts were too late; %d jobs, %d of them cut off before, one row each", stops, len(r.late), ended, again)
}

// hearsWaits waits until a till has said that n jobs wait, and returns the careless ones.
func (c *child) hearsWaits(n int) (careless []int) {
	c.t.Helper()
	for range n {
		var job int
		var is bool
		if _, err := fmt.Sscan(c.hears("waits"), &job, &is); err != nil {
			c.t.Fatal(err)
		}
		if is {
			careless = append(careless, job)
		}
	}
	return careless
}

// stopUntil stops a child until its jobs are taken, and returns how often. It may be stopped
// while it writes, so that nobody else can, or can read: then it goes on for a moment.
func (c *child) stopUntil(taken func() bool) (stops int) {
	c.t.Helper()
	for begun := time.Now(); !taken(); <-time.After(200 * time.Millisecond) {
		stops++
		c.signal(syscall.SIGSTOP)
		for stopped := time.Now(); !taken() && time.Since(stopped) < 3*time.Second; {
			<-time.After(10 * time.Millisecond)
		}
		c.signal(syscall.SIGCONT)
		if time.Since(begun) > time.Minute {
			c.t.Fatal("nobody takes the jobs of a program that is stopped for a minute")
		}
	}
	return stops
}
