package torture_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// A disk that is full costs nothing that was acknowledged: Enqueue is refused
// with ErrFull, reading works, what handlers come to is written all the same, or
// kept, for longer than their leases if need be, and written once there is room;
// nothing is run a second time for it.
//
//errand:shows [full] | full relaxed | a file system is filled while handlers run, and emptied again
func TestDiskFull(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	inBoth(t, fillDisk)
}

func fillDisk(t *testing.T, relaxed bool) {
	const handlers = 8
	d := newDisk(t, 64<<20)
	f := openLocal(t, filepath.Join(d.dir, "jobs.db"), part{Workers: handlers, Lease: 2 * time.Second, Relaxed: relaxed})
	others := filepath.Join(d.dir, "others") // which is room later
	if err := os.WriteFile(others, make([]byte, 24<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for range handlers {
		if err := f.enqueue(10); err != nil {
			t.Fatal(err)
		}
		<-f.begun
	}
	var err error
	for err == nil {
		err = f.enqueue(100 << 10)
	}
	if !errors.Is(err, errand.ErrFull) {
		t.Fatalf("after %d jobs: %v, want ErrFull", f.n, err)
	}
	fill(t, filepath.Join(d.dir, "rest"))
	for range 1000 { // small ones may find a place somewhere
		if err = f.enqueue(10); err != nil {
			break
		}
	}
	if !errors.Is(err, errand.ErrFull) {
		t.Errorf("on a full disk: %v, want ErrFull", err)
	}
	t.Logf("full after %d jobs: %s", f.n, sizes(d.dir))

	close(f.release)
	<-time.After(3 * time.Second) // longer than the leases
	outcomes := 0
	for o := storage.OutcomeDone; o <= storage.OutcomeDead; o++ {
		outcomes += f.ledger.ended(o)
	}
	t.Logf("3 s later: %s; %s", f.ledger.verbs(), sizes(d.dir))
	if outcomes < handlers { // what they hold is written into the room of errand's ballast
		t.Errorf("%d outcomes of %d handlers were written on the full disk", outcomes, handlers)
	}
	if err := f.enqueue(10); !errors.Is(err, errand.ErrFull) {
		t.Errorf("on a full disk: %v, want ErrFull", err)
	}
	counts, err := f.q.Counts(t.Context())
	if err != nil || len(counts) == 0 {
		t.Errorf("Counts on a full disk: %v, %v", counts, err)
	}
	for n, id := range f.ids {
		if _, err := f.q.Job(t.Context(), id); err != nil {
			t.Errorf("job %d on a full disk: %v", n, err)
		}
	}

	if err := os.Remove(others); err != nil {
		t.Fatal(err)
	}
	room := time.Now()
	await(t, time.Minute, "jobs can be enqueued again", func() bool { return f.enqueue(10) == nil })
	t.Logf("a job was enqueued %v after there was room: %s", time.Since(room), sizes(d.dir))
	await(t, time.Minute, "all is drained", func() bool {
		counts, err := f.q.Counts(t.Context())
		return err == nil && !slices.ContainsFunc(counts, func(c errand.Count) bool {
			return c.State == errand.Ready || c.State == errand.Running || c.State == errand.Scheduled
		})
	})
	f.close(t)
	found := f.ledger.audit(t, f.path)
	found.mustBeClean(t, "a full disk")
	if found.duplicates > 0 {
		t.Errorf("%d duplicates: want none", found.duplicates)
	}
	t.Logf("%v; %s", found, f.ledger.verbs())
	d.unmount()
}

// A program is killed on a full disk, at any moment: the next one finds what was
// acknowledged, on a disk that is still full, may add nothing and can end what
// waits.
//
//errand:shows [full-killed] | | a program is killed on a full disk; the next one goes on there
func TestDiskFull_KilledThere(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	random := dice(t)
	rounds(t, 0, 10, func(i int) {
		l, d := newLedger(), newDisk(t, 48<<20)
		path := filepath.Join(d.dir, "jobs.db")
		c := start(t, l, part{
			Role: "mix", DB: path, Jobs: -1, Senders: 4, Workers: 8, Seed: random.Uint64(), Pause: time.Millisecond,
			Size: 300, Handling: 20 * time.Millisecond,
		})
		c.hears("ready")
		<-time.After(between(random, 50*time.Millisecond, 300*time.Millisecond))
		c.signal(syscall.SIGSTOP) // or the filler may get the room of its ballast
		filler := fillUp(t, d.dir)
		c.signal(syscall.SIGCONT)
		c.hears("refused")
		<-time.After(between(random, 0, 100*time.Millisecond))
		c.kill()
		full := sizes(d.dir)
		endOnFullDisk(t, l, path)
		f := l.audit(t, path)
		f.mustBeClean(t, "round %d, on the full disk", i)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		start(t, l, part{Role: "mix", DB: path, Workers: 8, Finish: true}).finish(time.Minute)
		l.audit(t, path).mustBeClean(t, "round %d, finished", i)
		t.Logf("%s; %v; %s", full, f, l.verbs())
		d.unmount()
	})
}

// endOnFullDisk opens a database on a full disk, and ends what waits.
func endOnFullDisk(t *testing.T, l *ledger, path string) {
	t.Helper()
	s, err := sqlite.Open(path, &sqlite.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("opening it on the full disk: %v", err)
	}
	w := &witness{Store: s, voice: &voice{out: notes{l, &child{t: t}}}}
	now := time.Now()
	taken, err := w.Reclaim(t.Context(), now, 0, time.Minute, 1000)
	if err != nil && !errors.Is(err, errand.ErrFull) { // what is taken over would run again
		t.Errorf("Reclaim on the full disk: %v, want ErrFull", err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: time.Hour}}
	for _, r := range taken { // there was a little room
		x.Finish = append(x.Finish, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeInterrupted})
	}
	if _, err := w.Exchange(t.Context(), now, x); err != nil {
		t.Errorf("ending %d jobs on the full disk: %v", len(taken), err)
	}
	cancelled := 0
	for _, id := range l.enqueued() {
		j, err := w.Job(t.Context(), id)
		if errors.Is(err, errand.ErrNotFound) || err == nil && j.State != errand.Ready && j.State != errand.Scheduled {
			continue
		}
		if err == nil {
			_, err = w.Cancel(t.Context(), now, id, storage.Retention{Default: 24 * time.Hour})
		}
		if err != nil {
			t.Errorf("Cancel on the full disk: %v", err)
			break
		}
		cancelled++
	}
	n, pad := 100_000_000, strings.Repeat("x", 10<<10)
	for err = nil; err == nil && n < 100_001_000; n++ { // some may find a place, where the log was
		w.voice.say("try %d default", n)
		j := storage.NewJob{Queue: "default", Kind: "order", Args: fmt.Appendf(nil, `{"N":%d,"Pad":%q}`, n, pad)}
		var out []storage.Enqueued
		if out, err = w.Enqueue(t.Context(), now, []storage.NewJob{j}); err == nil {
			w.voice.say("enqueued %d %s", n, out[0].ID)
		}
	}
	if !errors.Is(err, errand.ErrFull) {
		t.Errorf("Enqueue on the full disk: %v, want ErrFull", err)
	}
	t.Logf("%d taken over, %d cancelled", len(taken), cancelled)
	if err := w.Close(); err != nil {
		t.Errorf("closing it on the full disk: %v", err)
	}
}

// fill leaves no room on a disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// sizes returns the free space of a disk and its large files.
func sizes(dir string) string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return err.Error()
	}
	out := []string{fmt.Sprintf("%d KiB free", fs.Bavail*uint64(fs.Bsize)>>10)}
	files, _ := os.ReadDir(dir) // empty if it cannot be read
	for _, f := range files {
		if info, err := f.Info(); err == nil && info.Mode().IsRegular() && info.Size() > 1<<20 {
			out = append(out, fmt.Sprintf("%s %d KiB", f.Name(), info.Size()>>10))
		}
	}
	return strings.Join(out, ", ")
}
