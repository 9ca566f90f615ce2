package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

const instanceLease = 30 * time.Second // as lease asks for

func (d *db) instanceFile(s *sqlite.Store) string {
	return fmt.Sprintf("%s-instance-%d", d.path, s.InstanceNumber())
}

// reclaimed returns the fates of what s reclaims at mono, by job.
func reclaimed(t *testing.T, s *sqlite.Store, mono time.Duration) map[int64]storage.Fate {
	t.Helper()
	got, err := s.Reclaim(t.Context(), t0, mono, instanceLease, 100)
	if err != nil {
		t.Fatal(err)
	}
	fates := map[int64]storage.Fate{}
	for _, r := range got {
		fates[r.Key] = r.Fate
	}
	return fates
}

func start(t *testing.T, s *sqlite.Store, leases ...storage.Leased) {
	t.Helper()
	for _, l := range leases {
		if err := s.Started(l.Lease, t0); err != nil {
			t.Fatal(err)
		}
	}
}

// The file of a process that lives is deleted. Nobody takes what it holds as
// long as it shows life, and when it shows none that costs a lease.
//
//errand:shows an instance file that is deleted | | a living process keeps its leases, registers anew, and closes without an error; leases without a registration are reported by the doctor and reclaimed after the length of a lease
func TestInstance_FileDeleted(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	enqueue(t, a, "a", 1)
	l := lease(t, a, 1, "a")[0]
	start(t, a, l)
	if err := os.Remove(d.instanceFile(a)); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if got := reclaimed(t, b, time.Duration(i)*instanceLease/2); len(got) > 0 {
			t.Fatalf("taken from a process that lives: %v", got)
		}
		x := storage.Exchange{LeaseDuration: instanceLease, Extend: []storage.Lease{l.Lease}}
		if res, err := a.Exchange(t.Context(), t0.Add(time.Duration(i+1)*time.Second), x); err != nil || res.Extended[0] != storage.Applied {
			t.Fatalf("extending gave %v, %v", res.Extended, err)
		}
	}
	a.Kill()
	if got := reclaimed(t, b, 2*instanceLease); len(got) > 0 {
		t.Errorf("taken before its lease was over: %v", got)
	}
	if got := reclaimed(t, b, 3*instanceLease); got[l.Key] != storage.Cut {
		t.Errorf("taken: %v, want the job as cut", got)
	}
}

// The registration of a process that lives is deleted, as others do if they
// miss its file and it holds nothing. With its next heartbeat it has another
// one, to which all goes along that it holds and has noted.
//
//errand:shows an instance file that is deleted
func TestInstance_RegistersAnew(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	enqueue(t, a, "a", 4)
	jobs := lease(t, a, 3, "a")
	start(t, a, jobs[1], jobs[2])
	if err := a.Ended(jobs[2].Lease); err != nil {
		t.Fatal(err)
	}
	was := a.InstanceNumber()
	d.exec("DELETE FROM errand_instance WHERE instance = ?1", was)
	d.exec("UPDATE errand_number SET n = n + 1 WHERE id = 4")
	x := storage.Exchange{LeaseDuration: instanceLease, Extend: []storage.Lease{jobs[0].Lease, jobs[1].Lease, jobs[2].Lease}}
	if res, err := a.Exchange(t.Context(), t0, x); err != nil || res.Extended[1] != storage.Applied {
		t.Fatalf("extending gave %v, %v", res.Extended, err)
	}
	if now := a.InstanceNumber(); now == was || d.number("SELECT COUNT(*) FROM errand_job WHERE state = 3 AND instance = ?1", now) != 3 {
		t.Fatalf("instance %d, now %d: want a new one that holds the 3 jobs", was, now)
	}
	more := lease(t, a, 1, "a")
	start(t, a, more...)
	if got := reclaimed(t, b, 0); len(got) > 0 {
		t.Errorf("taken from a process that lives: %v", got)
	}
	a.Kill()
	got := reclaimed(t, b, 0)
	want := []storage.Fate{storage.Unstarted, storage.Crashed, storage.Cut, storage.Crashed}
	for i, l := range append(jobs, more...) {
		if got[l.Key] != want[i] {
			t.Errorf("job %d: fate %d, want %d", i, got[l.Key], want[i])
		}
	}
}

// What runs without a registration is named by the doctor and taken over, by
// one that thought it was alone, but not from a holder that shows life.
//
//errand:shows an instance file that is deleted
func TestInstance_LeasesOfNobody(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	enqueue(t, a, "a", 1)
	l := lease(t, a, 1, "a")[0]
	a.Kill()
	d.exec("DELETE FROM errand_instance")
	d.exec("UPDATE errand_number SET n = n + 1 WHERE id = 4")
	if found, err := sqlite.Examine(t.Context(), d.path, false, t0); err != nil || !has(found, "instances", sqlite.SeverityError) {
		t.Errorf("the doctor says %v (%v), want an error about instances", found, err)
	}
	for mono := time.Duration(0); mono < instanceLease; mono += instanceLease / 2 {
		if got := reclaimed(t, b, mono); len(got) > 0 || b.Alone() {
			t.Errorf("taken after %v: %v; alone: %v", mono, got, b.Alone())
		}
	}
	if got := reclaimed(t, b, instanceLease); got[l.Key] != storage.Cut {
		t.Errorf("taken: %v, want the job as cut", got)
	}
	reclaimed(t, b, instanceLease)
	if !b.Alone() {
		t.Error("it is not alone, though nothing is left of others")
	}
}

// Looking after others costs little beside one that runs many jobs: what they
// hold is read four times in a lease, however often it is asked for.
//
//errand:shows watching other processes | | the leases of a living process are read four times in the length of a lease, not four times a second; nobody is woken if no other process is registered
func TestReclaim_ReadsLeasesOfTheLivingRarely(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	enqueue(t, a, "a", 10)
	leased := lease(t, a, 10, "a")
	n := b.LeaseReads()
	const asked = 40
	for i := range asked * 10 {
		if got := reclaimed(t, b, time.Duration(i)*instanceLease/asked); len(got) > 0 {
			t.Fatalf("taken: %v", got)
		}
		if i%(asked/3) == 0 {
			x := storage.Exchange{LeaseDuration: instanceLease}
			for _, l := range leased {
				x.Extend = append(x.Extend, l.Lease)
			}
			if _, err := a.Exchange(t.Context(), t0.Add(time.Duration(i)*time.Second), x); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n = b.LeaseReads() - n; n < 40 || n > 60 {
		t.Errorf("read %d times in ten leases", n)
	}
}

// closeBusy closes s while its writer is busy, as with a checkpoint: after what
// is asked before, and with what happens after that.
func (d *db) closeBusy(s *sqlite.Store, after func(), before ...func()) {
	d.t.Helper()
	release := s.Stall()
	var asked sync.WaitGroup
	for i, ask := range append(before, func() { _ = s.Close() }) {
		asked.Go(ask)
		for s.Waiting() <= i {
			runtime.Gosched()
		}
	}
	after()
	release()
	asked.Wait()
	if left, _ := filepath.Glob(d.path + "-instance-*"); len(left) > 0 {
		d.t.Errorf("left behind: %v", left)
	}
}

// What was asked for before Close goes first, however much it is: Close hands
// back what it leases too.
//
//errand:shows a queue closed while it is busy | | Close waits for the calls before it, hands back the jobs that they leased, and leaves no file; if it cannot write, running jobs are not run a second time either
func TestInstance_ClosedBehindExchanges(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	enqueue(t, a, "a", 1)
	enqueue(t, a, "b", 1)
	d.closeBusy(a, func() {}, func() { lease(t, a, 5000, "a") }, func() { lease(t, a, 5000, "b") })
	if got := reclaimed(t, b, 0); len(got) != 2 {
		t.Errorf("handed back: %v, want both jobs", got)
	}
}

// A handler returns while its Store is being closed: no file is left.
//
//errand:shows a queue closed while it is busy
func TestInstance_HandlerEndsDuringClose(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	enqueue(t, a, "a", 1)
	l := lease(t, a, 1, "a")[0]
	start(t, a, l)
	d.closeBusy(a, func() {
		if err := a.Ended(l.Lease); err != nil {
			t.Error(err)
		}
	})
	if got := reclaimed(t, b, 0); got[l.Key] != storage.Cut {
		t.Errorf("handed back: %v, want the job as cut", got)
	}
}

// Close does not complain of a file that somebody has deleted before.
//
//errand:shows an instance file that is deleted
func TestInstance_FileDeletedThenClosed(t *testing.T) {
	d := newDB(t, nil)
	a := d.open()
	enqueue(t, a, "a", 1)
	finish(t, a, lease(t, a, 1, "a")...)
	if err := os.Remove(d.instanceFile(a)); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// Close cannot write while another program does. What a handler runs is kept
// from others all the same, until it has returned.
//
//errand:shows a queue closed while it is busy
func TestInstance_ClosedWithoutTheDatabase(t *testing.T) {
	d := newDB(t, nil)
	b := d.open()
	a, err := sqlite.Open(d.path, &sqlite.Options{BusyTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, a, "a", 1)
	l := lease(t, a, 1, "a")[0]
	start(t, a, l)
	reclaimed(t, b, 0)
	raw := d.raw()
	defer raw.Close()
	tx, err := raw.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("Close: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if got := reclaimed(t, b, time.Duration(i)*instanceLease); len(got) > 0 {
			t.Fatalf("taken while its handler runs: %v", got)
		}
	}
	if err := a.Ended(l.Lease); err != nil {
		t.Fatal(err)
	}
	if got := reclaimed(t, b, 4*instanceLease); got[l.Key] != storage.Cut {
		t.Errorf("taken: %v, want the job as cut", got)
	}
}

// A holder that shows that it lives keeps its leases also from one who waits
// already to take them.
//
//errand:shows long transactions of others | | a holder shows without the database that it is alive, also to a worker that already waits to take its lease; `ErrBusy` names the likely holder of the lock
func TestPulse_BeforeALeaseIsTaken(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	ctx, length := context.Background(), 30*time.Second
	enqueue(t, a, "a", 1)
	l := lease(t, a, 1, "a")[0]
	reclaim := func(mono time.Duration) []storage.Reclaimed {
		got, err := b.Reclaim(ctx, t0, mono, length, 10)
		if err != nil {
			t.Error(err)
		}
		return got
	}
	reclaim(0)
	release := b.Stall()
	taken := make(chan []storage.Reclaimed)
	go func() { taken <- reclaim(length) }()
	for b.Waiting() == 0 {
		runtime.Gosched()
	}
	if err := a.Pulse(); err != nil {
		t.Fatal(err)
	}
	release()
	if got := <-taken; len(got) != 0 {
		t.Errorf("%d leases were taken from a holder that lives", len(got))
	}
	if n := len(reclaim(2*length - 1000)); n != 0 {
		t.Errorf("%d leases were taken before they have looked the same for a lease", n)
	}
	if err := a.Started(l.Lease, t0); err != nil { // is noted elsewhere
		t.Fatal(err)
	}
	if n := len(reclaim(3 * length)); n != 1 {
		t.Errorf("%d leases were taken that have lapsed, want 1", n)
	}
	if err := os.Remove(d.path + "-instance-1"); err != nil {
		t.Fatal(err)
	}
	if err := a.Pulse(); err == nil {
		t.Error("a pulse that nobody can see")
	}
}

// The files of processes that were killed before they could delete them go when the database is
// opened, but none of a process that lives or of which the database knows.
func TestOpen_SweepsLeftovers(t *testing.T) {
	d := newDB(t, nil)
	lives, killed := d.showing("one"), d.showing("two")
	killed.Kill()
	kept := []string{d.instanceFile(killed), d.workersFile(killed), d.instanceFile(lives), d.workersFile(lives)}
	d.exec("DELETE FROM errand_instance WHERE instance = ?1", lives.InstanceNumber())
	for _, end := range []string{"-instance-77", "-workers-77", "-instance-78", "-workers-79", "-instance-080", "-workers-x", "-room"} {
		if err := os.WriteFile(d.path+end, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.open()
	kept = append(kept, d.path+"-instance-080", d.path+"-workers-x")
	var left []string
	for _, of := range []string{"-instance-*", "-workers-*", "-room"} {
		found, _ := filepath.Glob(d.path + of)
		left = append(left, found...)
	}
	slices.Sort(left)
	slices.Sort(kept)
	if !slices.Equal(left, kept) {
		t.Errorf("files %q are left, want %q", left, kept)
	}
}

// A process that is about to sweep a file, which another one sweeps first, leaves that alone which
// a third one makes in its place. Its registration has not committed yet.
func TestOpen_SweepsNoOther(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be deleted")
	}
	d := newDB(t, nil)
	s := d.open()
	path := d.path + "-instance-77"
	made := func() *os.File {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	late, first := made(), made()
	s.SweepFile(first, 77)
	lives := made()
	defer lives.Close()
	s.SweepFile(late, 77)
	there, err := os.Stat(path)
	if own, e := lives.Stat(); err != nil || e != nil || !os.SameFile(there, own) {
		t.Errorf("%v, %v: the file of a new instance is gone", err, e)
	}
}
