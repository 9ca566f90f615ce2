package torture_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

var soakFor = flag.Duration("soak", 0, "run TestSoak for so long, not just for a moment; add -timeout 0")

const (
	soakLease = 2 * time.Second
	soakDrain = 5 * time.Minute // for working off and comparing, at most
)

// All that errand does, and all that can happen to it, for as long as -soak
// says, or else for a moment. One process lives on, and must not grow; beside it processes are killed
// and stopped past their leases, another program locks the database, and one
// reads and pins the log. Nobody adds jobs while there are too many, and
// finished ones are kept for seconds only, so that the database has no reason to
// grow either. At the end all jobs have ended, and nothing was lost.
//
// A power cut ends all processes, so that with ERRAND_TORTURE=1 those, and full
// disks, happen to a second database on a file system of its own.
//
//errand:shows [soak] | | all of it at once, for as long as `-soak` says
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		*soakFor = 5 * time.Second // enough to see that it works
		if full() {
			*soakFor = 2 * time.Minute
		}
	}
	if end, ok := t.Deadline(); ok && time.Until(end) < *soakFor+soakDrain {
		t.Fatalf("go test would end it in %v: add -timeout 0", time.Until(end))
	}
	t.Parallel()
	n := &toll{n: map[string]int{}}
	t.Run("one process lives on", func(t *testing.T) { t.Parallel(); soakProcesses(t, n) })
	t.Run("a disk of its own", func(t *testing.T) { t.Parallel(); soakDisk(t, n) })
}

// toll counts what was done to a database.
type toll struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *toll) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what]++
}

func (c *toll) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%5d %5d %6d %7d %4d %5d", c.n["kill"], c.n["stop"], c.n["rival"], c.n["reader"], c.n["cut"], c.n["full"])
}

const soakHead = "minute      RSS      own goroutines database  log now log most      done | kills stops rivals readers cuts fulls"

// soakWorkers makes children on one database.
type soakWorkers struct {
	t      *testing.T
	ledger *ledger
	random *rand.Rand
	part
}

func newSoakWorkers(t *testing.T, path string) *soakWorkers {
	return &soakWorkers{t: t, ledger: newLedger(), random: dice(t), part: part{
		Role: "soak", DB: path, Jobs: -1, Senders: 1, Workers: 16, Lease: soakLease, Busy: time.Second, Pause: 25 * time.Millisecond,
		Size: 1000, Handling: 200 * time.Millisecond, Keep: soakKeep, Queues: []string{"default", "other"},
	}}
}

func (w *soakWorkers) begin(finish bool) *child {
	w.t.Helper()
	w.First += 10_000_000
	w.Seed, w.Finish = w.random.Uint64(), finish
	c := start(w.t, w.ledger, w.part)
	c.hears("ready")
	return c
}

// end kills a process, which must have lived until then.
func (w *soakWorkers) end(c *child) {
	w.t.Helper()
	c.kill()
	w.lived(c)
}

func (w *soakWorkers) lived(c *child) {
	w.t.Helper()
	if c.state.Exited() {
		w.t.Errorf("a process had ended by itself: %v", c.state)
	}
}

// mustHaveDrained fails the test unless all jobs have ended, and compares the
// database with what was acknowledged.
func (w *soakWorkers) mustHaveDrained() {
	w.t.Helper()
	db, err := raw(w.DB)
	if err != nil {
		w.t.Fatal(err)
	}
	var left int
	if err := db.QueryRow("SELECT (SELECT COUNT(*) FROM errand_job) + (SELECT COUNT(*) FROM errand_dead)").Scan(&left); err != nil || left > 0 {
		w.t.Errorf("%d jobs are left, %v: want all drained", left, err)
	}
	if err := db.Close(); err != nil {
		w.t.Error(err)
	}
	f := w.ledger.audit(w.t, w.DB)
	f.mustBeClean(w.t, "a soak of %v", *soakFor)
	w.t.Logf("%v; %s", f, w.ledger.verbs())
	if of, err := filepath.Glob(w.DB + "-instance-*"); err != nil || len(of) > 0 {
		w.t.Errorf("files of processes that are gone: %v, %v", of, err)
	}
}

func soakProcesses(t *testing.T, n *toll) {
	w := newSoakWorkers(t, filepath.Join(t.TempDir(), "jobs.db"))
	begin := time.Now()
	steady := w.begin(true)
	g, watched := &gauge{}, make(chan error, 1)
	go func() { watched <- g.watch(steady, w.DB, begin) }()
	const others = 3
	var all []*child
	for range others {
		all = append(all, w.begin(false))
	}
	table := []string{soakHead}
	defer func() { t.Logf("%v:\n%s", time.Since(begin).Round(time.Second), strings.Join(table, "\n")) }() // however it ends
	row := func() {
		m := time.Duration(len(table)) * time.Minute
		s := g.during(m-time.Minute, m)
		var now reading
		if len(s) > 0 {
			now = s[len(s)-1]
		}
		table = append(table, fmt.Sprintf("%6d %8s %8s %10d %8s %8s %8s %9d | %v", len(table), mib(median(s, rssOf)), mib(median(s, ownOf)), median(s, goroutinesOf),
			mib(now.db), mib(now.wal), mib(most(s, walOf)), w.ledger.ended(storage.OutcomeDone), n))
		t.Log(table[len(table)-1])
	}
	for time.Since(begin) < *soakFor && !t.Failed() {
		<-time.After(between(w.random, time.Second, 4*time.Second))
		i := w.random.IntN(others)
		switch w.random.IntN(16) {
		case 0, 1:
			n.add("rival")
			w.hold("rival", between(w.random, time.Second, 4*time.Second))
		case 2, 3:
			n.add("reader")
			w.hold("reader", between(w.random, 500*time.Millisecond, 2*time.Second))
		case 4, 5, 6, 7:
			n.add("stop")
			all[i].signal(syscall.SIGSTOP)
			<-time.After(soakLease + between(w.random, 200*time.Millisecond, 700*time.Millisecond))
			all[i].signal(syscall.SIGCONT)
		default:
			n.add("kill")
			w.end(all[i])
			all[i] = w.begin(false)
		}
		for time.Since(begin) >= time.Duration(len(table))*time.Minute {
			row()
		}
	}
	length := time.Since(begin)
	for _, c := range all {
		c.finishSoon(time.Minute)
	}
	steady.finishSoon(soakDrain)
	if err := <-watched; err != nil {
		t.Errorf("measuring: %v", err)
	}
	for _, text := range g.growth(min(length, *soakFor)) {
		t.Error(text)
	}
	w.mustHaveDrained()
}

// hold has another program hold the database for some time.
func (w *soakWorkers) hold(role string, d time.Duration) {
	w.t.Helper()
	c := start(w.t, w.ledger, part{Role: role, DB: w.DB})
	c.hears("holding")
	<-time.After(d)
	c.finishSoon(time.Minute)
}

// soakDisk cuts the power and fills the disk in turns.
func soakDisk(t *testing.T, n *toll) {
	needsRoot(t, "ext4 on loop devices")
	d := newDisk(t, imageSize)
	w := newSoakWorkers(t, filepath.Join(d.dir, "jobs.db"))
	boot := func(i int) *child {
		w.Boot = fmt.Sprint("boot-", i)
		return w.begin(true)
	}
	begin, c := time.Now(), boot(0)
	for i := 1; !t.Failed(); i++ {
		pause := between(w.random, 30*time.Second, 90*time.Second)
		if time.Since(begin)+pause > *soakFor {
			<-time.After(*soakFor - time.Since(begin))
			break
		}
		<-time.After(pause)
		if i%2 == 1 {
			n.add("full")
			filler := fillUp(t, d.dir)
			<-time.After(between(w.random, time.Second, 10*time.Second))
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			continue
		}
		n.add("cut")
		powerOff(d, c)
		w.lived(c)
		d.unmount()
		d.mount()
		reopen(t, w.DB)
		w.ledger.audit(t, w.DB).mustBeClean(t, "%d power cuts and full disks", i)
		c = boot(i)
	}
	c.finishSoon(soakDrain)
	w.mustHaveDrained()
	if all := w.ledger.crashed(); len(all) > 0 {
		t.Errorf("blamed for power cuts: %v", all)
	}
	d.unmount()
}
