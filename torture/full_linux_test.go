package torture_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
)

// A disk that is full costs nothing that was acknowledged: Enqueue is refused
// with ErrFull, reading works, what handlers come to is written all the same, or
// kept, for longer than their leases if need be, and written once there is room;
// nothing is run a second time for it.
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
	await(t, 20*time.Second, "jobs can be enqueued again", func() bool { return f.enqueue(10) == nil })
	t.Logf("a job was enqueued %v after there was room: %s", time.Since(room), sizes(d.dir))
	await(t, 20*time.Second, "all is worked off", func() bool {
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

// sizes tells what is on a disk.
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
