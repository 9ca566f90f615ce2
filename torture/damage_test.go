//go:build unix

package torture_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

const pageSize = 4096

// sample makes a database with jobs in all states, and returns its ledger.
func sample(t *testing.T, closed bool) (*ledger, string) {
	t.Helper()
	l, path := newLedger(), filepath.Join(ramDir(t), "jobs.db")
	p := part{Role: "mix", DB: path, Jobs: 150, Senders: 2, Workers: 4, Seed: 1, Size: 500, Handling: time.Millisecond, Finish: true}
	start(t, l, p).finish(time.Minute)
	p.First, p.Jobs, p.Workers, p.Finish = 1000, 100, 0, false // these wait
	if !closed {
		p.Finish = true // until it is killed
	}
	c := start(t, l, p)
	if closed {
		c.finish(time.Minute)
	} else {
		c.hears("sent")
		c.kill()
	}
	return l, path
}

// copyTo copies a database as a careful person does: with its log.
func copyTo(t *testing.T, path string, with ...string) string {
	t.Helper()
	to := filepath.Join(ramDir(t), "copy.db")
	for _, suffix := range append(with, "") {
		b, err := os.ReadFile(path + suffix)
		if errors.Is(err, os.ErrNotExist) && suffix != "" {
			continue
		}
		if err == nil {
			err = os.WriteFile(to+suffix, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// What a killed process leaves behind can be copied elsewhere, and is whole.
func TestDamage_Copied(t *testing.T) {
	l, path := sample(t, false)
	to := copyTo(t, path, "-wal")
	start(t, l, part{Role: "mix", DB: to, Workers: 4, Finish: true}).finish(time.Minute)
	f := l.audit(t, to)
	f.mustBeClean(t, "a copy")
	t.Log(f)
}

// A file that is cut off at any place is refused, and not touched: in no case
// is it taken for a new one.
//
//errand:shows [cut-off] | | a database is cut off, at many places
func TestDamage_Truncated(t *testing.T) {
	_, path := sample(t, true)
	whole := fileSize(t, path)
	// What is missing of the last page alone SQLite reads as zeros.
	for _, size := range []int64{2, 15, 16, 99, 100, 511, 512, pageSize - 1, pageSize, pageSize + 1, whole / 2, whole/2/pageSize*pageSize + 100, whole - pageSize} {
		to := copyTo(t, path)
		if err := os.Truncate(to, size); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(to, nil)
		if err == nil {
			t.Errorf("cut off at %d of %d bytes: it was opened", size, whole)
			_ = s.Close()
		} else if !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("cut off at %d of %d bytes: %v, want ErrCorrupt", size, whole, err)
		}
		if now := fileSize(t, to); now != size {
			t.Errorf("cut off at %d of %d bytes, it has %d after an attempt to open it", size, whole, now)
		}
	}
}

// A file that was emptied looks like a new one, but for what stands beside it.
//
//errand:shows [emptied] | | a database is emptied while its log is there
func TestDamage_Emptied(t *testing.T) {
	_, path := sample(t, false)
	for _, size := range []int64{0, 1} {
		to := copyTo(t, path, "-wal", "-instance-1", "-turn")
		if err := os.Truncate(to, size); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(to, nil)
		if err == nil {
			t.Errorf("cut off at %d bytes, with a log beside it, it was opened as a new one", size)
			_ = s.Close()
		} else if !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("cut off at %d bytes: %v, want ErrCorrupt", size, err)
		}
	}
}

// Each page in turn is overwritten: whatever is asked then returns what it returned
// before, or ErrCorrupt. Nothing is found missing that is there, and nothing
// panics or hangs.
//
//errand:shows [overwritten] | | each page in turn is overwritten
func TestDamage_Overwritten(t *testing.T) {
	l, path := sample(t, true)
	random := dice(t)
	before := l.answers(t, copyTo(t, path))
	pages := int(fileSize(t, path) / pageSize)
	every := 1 + pages/6
	if full() {
		every = 1
	}
	noticed, harmless := 0, 0
	for page := 0; page < pages; page += every {
		for _, noise := range []bool{true, false} {
			to := copyTo(t, path)
			overwrite(t, to, int64(page*pageSize), pageSize, random, noise)
			after := l.answers(t, to)
			seen := false
			for what, was := range before {
				switch is := after[what]; {
				case errors.Is(is.err, storage.ErrCorrupt):
					seen = true
				case fmt.Sprint(is) != fmt.Sprint(was):
					t.Errorf("page %d of %d overwritten (noise %t): %s gives %v, and gave %v", page, pages, noise, what, is, was)
				}
			}
			if seen {
				noticed++
			} else {
				harmless++
			}
		}
	}
	t.Logf("%d pages overwritten: noticed %d times, harmless %d times", pages, noticed, harmless)
	if noticed == 0 {
		t.Error("nothing was noticed")
	}
}

// answer is what a call gave.
type answer struct {
	text string
	err  error
}

// answers asks a database for all it has, and does a bit of each kind of work.
func (l *ledger) answers(t *testing.T, path string) map[string]answer {
	t.Helper()
	ctx := context.Background()
	all := map[string]answer{}
	s, err := sqlite.Open(path, &sqlite.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil { // which is the answer to all
		for n := range l.ids {
			all[fmt.Sprintf("job %d", n)] = answer{err: err}
		}
		for _, what := range []string{"counts", "dead letters", "enqueue", "lease", "finish"} {
			all[what] = answer{err: err}
		}
		return all
	}
	defer s.Close()
	q, err := errand.New(ctx, s, &errand.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for n, id := range l.ids {
		info, err := q.Job(ctx, id)
		// SQLite has no checksums: noise in the middle of large args is not seen.
		args := info.Args[:min(len(info.Args), 300)]
		all[fmt.Sprintf("job %d", n)] = answer{fmt.Sprint(info.State, info.Attempt, info.Retry, len(info.History), string(args)), err}
	}
	counts, err := q.Counts(ctx)
	all["counts"] = answer{fmt.Sprint(counts), err}
	page, err := q.DeadLetters().List(ctx, errand.JobFilter{}, nil)
	all["dead letters"] = answer{fmt.Sprint(len(page.Jobs)), err}
	e, err := q.Enqueue(ctx, order{N: -1}, nil)
	all["enqueue"] = answer{fmt.Sprint(e.Duplicate), err}
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"default"}, Kinds: []string{"order"}, N: 20}}}
	r, err := s.Exchange(ctx, t0.Add(10*365*24*time.Hour), x)
	all["lease"] = answer{fmt.Sprint(len(r.Leased)), err}
	x.Wants, x.Retention = nil, storage.Retention{Default: time.Hour}
	for _, leased := range r.Leased {
		x.Finish = append(x.Finish, storage.Finish{Lease: leased.Lease, Outcome: storage.OutcomeDone})
	}
	if r, err := s.Exchange(ctx, t0, x); len(x.Finish) > 0 {
		all["finish"] = answer{fmt.Sprintf("%v", r.Finished), err}
	}
	if all["lease"].err != nil { // nothing to finish
		all["finish"] = answer{err: all["lease"].err}
	}
	return all
}

// overwrite puts noise, or zeros, into a file.
func overwrite(t *testing.T, path string, at, n int64, random *rand.Rand, noise bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	for i := range b {
		if noise {
			b[i] = byte(random.Uint32())
		}
	}
	_, err = f.WriteAt(b, at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// The shared memory file is made anew from the log, whatever is in it.
func TestDamage_SharedMemory(t *testing.T) {
	l, path := sample(t, false)
	to := copyTo(t, path, "-wal", "-shm")
	overwrite(t, to+"-shm", 0, fileSize(t, to+"-shm"), dice(t), true)
	reopen(t, to)
	l.audit(t, to).mustBeClean(t, "noise in the shared memory file")
}

// If another program overwrites the file while it is open, Enqueue and the worker
// return ErrCorrupt in time.
func TestDamage_WhileOpen(t *testing.T) {
	f := openLocal(t, filepath.Join(ramDir(t), "jobs.db"), part{Workers: 2})
	close(f.release)
	for range 100 {
		if err := f.enqueue(3000); err != nil {
			t.Fatal(err)
		}
	}
	await(t, time.Minute, "all is drained", func() bool { return f.worked(t) })
	db, err := raw(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	overwrite(t, f.path, 0, fileSize(t, f.path), dice(t), true)
	// What is in the caches of connections is still right. What is read anew is not.
	await(t, time.Minute, "it is noticed", func() bool {
		err := f.enqueue(3000)
		if err != nil && !errors.Is(err, errand.ErrCorrupt) && !errors.Is(err, errand.ErrClosed) {
			t.Fatalf("Enqueue: %v, want ErrCorrupt", err)
		}
		for _, id := range f.ids {
			if _, e := f.q.Job(t.Context(), id); e != nil {
				err = errors.Join(err, e)
			}
		}
		return errors.Is(err, errand.ErrCorrupt)
	})
	if err := f.stop(); err != nil && !errors.Is(err, errand.ErrCorrupt) && !errors.Is(err, errand.ErrClosed) {
		t.Errorf("stopping: %v, want ErrCorrupt", err)
	}
}

// The file is taken away while it is open, and another may be put in its place:
// what is acknowledged from then on would go with the old one.
func TestDamage_TakenAway(t *testing.T) {
	f := openLocal(t, filepath.Join(ramDir(t), "jobs.db"), part{})
	if err := f.enqueue(10); err != nil {
		t.Fatal(err)
	}
	old := copyTo(t, f.path, "-wal")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(f.path + suffix); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(old, f.path); err != nil { // as from a backup
		t.Fatal(err)
	}
	acknowledged := 0
	for begin := time.Now(); time.Since(begin) < 3*time.Second; <-time.After(50 * time.Millisecond) {
		err := f.enqueue(10)
		if err != nil {
			t.Logf("noticed after %v: %v", time.Since(begin), err)
			break
		}
		acknowledged++
	}
	if acknowledged > 30 {
		t.Errorf("%d jobs were acknowledged in 3 s for a file that is gone", acknowledged)
	}
}

// A database that is copied while it is written to, without care, is refused or
// whole; it is never half of one.
//
//errand:shows [copied] | | a database is copied while others write to it
func TestDamage_CopiedInUse(t *testing.T) {
	l, path := newLedger(), filepath.Join(ramDir(t), "jobs.db")
	c := start(t, l, part{Role: "mix", DB: path, Jobs: -1, Senders: 2, Workers: 4, Size: 500, Pause: 2 * time.Millisecond})
	c.hears("ready")
	refused := 0
	rounds(t, 5, 50, func(int) {
		<-time.After(50 * time.Millisecond)
		to := copyTo(t, path, "-wal")
		s, err := sqlite.Open(to, nil)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("a copy: %v, want ErrCorrupt", err)
			}
			refused++
			return
		}
		if err := s.Close(); err != nil && !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("closing a copy: %v", err)
		}
	})
	c.kill()
	t.Logf("%d copies refused", refused)
}
