package torture_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

const (
	cutsInARow = 5 // of one database
	imageSize  = 96 << 20
)

// Whatever was acknowledged survives a power cut: enqueued jobs, each outcome,
// each redrive and cancellation. What was finished stays finished, and nobody
// is blamed for the cut.
//
//errand:shows [cut] | | the disk is cut off at random moments, fifty times
func TestPowerCut_Full(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	random := dice(t)
	cuts, total := 0, findings{}
	rounds(t, 0, 10, func(history int) {
		l, d := newLedger(), newDisk(t, imageSize)
		path := filepath.Join(d.dir, "jobs.db")
		for i := range cutsInARow {
			c := start(t, l, part{
				Role: "mix", DB: path, First: i * 1_000_000, Jobs: -1, Senders: 4, Workers: 8, Seed: random.Uint64(),
				Size: 300, Handling: 5 * time.Millisecond, Boot: fmt.Sprintf("boot-%d-%d", history, i),
			})
			if i == 0 && history%2 == 0 { // at any moment, the making of the file included
				<-time.After(between(random, 0, 100*time.Millisecond))
			} else {
				c.hears("ready")
				<-time.After(between(random, 0, 600*time.Millisecond))
			}
			powerOff(d, c)
			d.unmount()
			d.mount()
			cuts++
			reopen(t, path)
			f := l.audit(t, path)
			f.mustBeClean(t, "cut %d of history %d", i+1, history)
			t.Logf("cut %d of history %d: %v; %s", i+1, history, f, l.verbs())
			if t.Failed() {
				return
			}
		}
		c := start(t, l, part{Role: "mix", DB: path, Workers: 8, Finish: true, Boot: "the last boot"})
		c.finish(time.Minute)
		f := l.audit(t, path)
		f.mustBeClean(t, "history %d, finished", history)
		if all := l.crashed(); len(all) > 0 {
			t.Errorf("blamed for power cuts: %v", all)
		}
		total.jobs += f.jobs
		total.runs += f.runs
		total.duplicates += f.duplicates
		total.unsure += f.unsure
		d.unmount()
	})
	t.Logf("%d power cuts: %v", cuts, &total)
}

// What is lost without syncing are the last commits, all of them together: the
// file is as it was a moment before the cut. The same harness sees that, and
// would see it above.
//
//errand:shows [lossy] | | Relaxed is cut off: the last commits are lost, and nothing in between
func TestPowerCut_RelaxedLoses(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	random := dice(t)
	for i := range 30 {
		l, d := newLedger(), newDisk(t, imageSize)
		path := filepath.Join(d.dir, "jobs.db")
		// Made and closed before, so that there is something to lose.
		start(t, l, part{Role: "mix", DB: path, Jobs: 100, Senders: 4, Workers: 4, Finish: true}).finish(time.Minute)
		c := start(t, l, part{Role: "mix", DB: path, First: 1_000_000, Jobs: -1, Senders: 4, Workers: 8, Seed: random.Uint64(), Relaxed: true})
		c.hears("ready")
		<-time.After(between(random, 100*time.Millisecond, 500*time.Millisecond))
		powerOff(d, c)
		d.unmount()
		d.mount()
		reopen(t, path)
		f := l.audit(t, path)
		if len(f.broken)+len(f.unexpected) > 0 {
			t.Errorf("Relaxed is to lose the last commits, not the integrity of the file: %v", f)
		}
		if missing, kept := l.gap(t, path); missing > 0 && kept > missing {
			t.Errorf("job %d is lost, and %d, enqueued later, is not", missing, kept)
		}
		d.unmount()
		if len(f.lost) > 0 {
			t.Logf("cut %d loses %d of what was acknowledged for %d jobs: %s", i+1, len(f.lost), f.jobs, l.verbs())
			return
		}
	}
	t.Error("30 power cuts without syncing lost nothing: this harness sees nothing")
}

// A process that believes in another boot has copies of all mounts. It must not keep the disk
// of another test.
func TestPowerCut_LeavesOtherDisks(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	own, other := newDisk(t, 16<<20), newDisk(t, 16<<20)
	c := start(t, newLedger(), part{Role: "mix", DB: filepath.Join(own.dir, "jobs.db"), Jobs: -1, Senders: 1, Workers: 1, Boot: "a boot"})
	c.hears("ready")
	other.unmount()
	c.finishSoon(time.Minute)
}

// powerOff ends processes and disk. The processes go first: nobody acknowledges
// anything after a power cut. Waiting for them would be too late, though: they
// end only when what they write has been written, and it is to be cut too. The
// other way round ext4 has been seen to let an fsync succeed that was under way
// when it was shut down, while what was written became zeros.
func powerOff(d *disk, all ...*child) {
	d.t.Helper()
	for _, c := range all {
		_ = c.cmd.Process.Kill() // it may have ended by itself
	}
	d.cut()
	for _, c := range all {
		c.kill()
	}
}
