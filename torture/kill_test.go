//go:build unix

package torture_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Several processes on one file, each killed again and again: what any of them
// acknowledged is there, and the others recover what the dead one was at.
// Nothing is lost, and what runs twice was cut.
//
//errand:shows [kill] | full relaxed | of three processes on a file one is killed, a hundred times
func TestKill_SeveralProcesses(t *testing.T) { inBoth(t, killSeveral) }

func killSeveral(t *testing.T, relaxed bool) {
	t.Parallel()
	random := dice(t)
	const processes = 3
	l, path := newLedger(), filepath.Join(ramDir(t), "jobs.db")
	first := 0
	begin := func() *child {
		first += 1_000_000
		return start(t, l, part{
			Role: "mix", DB: path, First: first, Jobs: -1, Senders: 1, Workers: 4, Seed: random.Uint64(), Pause: 5 * time.Millisecond,
			Size: 300, Handling: 10 * time.Millisecond, Relaxed: relaxed,
		})
	}
	var all []*child
	for range processes {
		all = append(all, begin())
	}
	// On a machine that is busy all could be killed before they have begun.
	await(t, time.Minute, "a job is acknowledged", func() bool { return len(l.enqueued()) > 0 })
	kills := 0
	rounds(t, 4, 100, func(int) {
		<-time.After(between(random, 20*time.Millisecond, 250*time.Millisecond))
		i := random.IntN(processes)
		all[i].kill()
		kills++
		all[i] = begin()
	})
	for _, c := range all {
		c.kill()
	}
	l.audit(t, path).mustBeClean(t, "%d kills", kills)
	start(t, l, part{Role: "mix", DB: path, Workers: 8, Finish: true}).finish(time.Minute)
	f := l.audit(t, path)
	f.mustBeClean(t, "%d kills, and all finished", kills)
	if f.runs == 0 || f.duplicates == 0 && kills > 50 {
		t.Errorf("%d kills cut nothing off: %v", kills, f)
	}
	t.Logf("%d kills: %v; %s", kills+processes, f, l.verbs())
}

// A process that is stopped for longer than its leases is taken for dead as far
// as its jobs go; what it reports afterwards is refused. It may have been
// stopped in a write: then the others wait for it, and lose nothing either.
//
//errand:shows [stop] | full relaxed | one of three is stopped for longer than its leases
func TestStop_LongerThanALease(t *testing.T) { inBoth(t, stopLong) }

func stopLong(t *testing.T, relaxed bool) {
	t.Parallel()
	random := dice(t)
	const processes, workers = 3, 4
	l, path := newLedger(), filepath.Join(ramDir(t), "jobs.db")
	var all []*child
	for i := range processes {
		all = append(all, start(t, l, part{
			Role: "mix", DB: path, First: i * 1_000_000, Jobs: -1, Senders: 1, Workers: workers, Seed: random.Uint64(), Pause: 5 * time.Millisecond,
			Handling: 50 * time.Millisecond, Relaxed: relaxed,
		}))
	}
	for _, c := range all {
		c.hears("ready")
	}
	stops := 0
	rounds(t, 1, 10, func(int) {
		c := all[random.IntN(processes)]
		<-time.After(between(random, 100*time.Millisecond, 300*time.Millisecond))
		c.signal(syscall.SIGSTOP)
		<-time.After(between(random, 1500*time.Millisecond, 2*time.Second)) // leases are of 1 s
		c.signal(syscall.SIGCONT)
		stops++
	})
	for _, c := range all {
		c.finishSoon(time.Minute)
	}
	f := l.audit(t, path)
	f.mustBeClean(t, "%d stops", stops)
	// What a stopped process holds: what its handlers run, and what it has
	// leased ahead of them, which may begin when it goes on.
	t.Logf("%d stops: %v; %s", stops, f, l.verbs())
	start(t, l, part{Role: "mix", DB: path, Workers: 8, Finish: true}).finish(time.Minute)
	l.audit(t, path).mustBeClean(t, "%d stops, and all finished", stops)
}
