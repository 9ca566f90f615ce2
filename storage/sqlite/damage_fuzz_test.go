package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// smallPages makes trees of several levels out of few jobs.
const smallPages = 512

// specimen is a small database with jobs in every state, and the IDs of some.
func specimen(t testing.TB) (file []byte, ids []storage.ID) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := &db{t, path, &sqlite.Options{Durability: sqlite.Relaxed, Ballast: -1}}
	newDB(t, nil).open() // before any other connection, for the locks
	raw := d.raw()
	if _, err := raw.Exec("PRAGMA page_size = 512; PRAGMA journal_mode = wal; VACUUM"); err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	s, ctx := d.open(), context.Background()
	var jobs []storage.NewJob
	for i := range 40 {
		j := newJob("default", []string{"a", "b"}[i%2])
		j.Args = bytes.Repeat([]byte("1"), 1+i*30)
		j.Headers = []byte(`{"h":"1"}`)
		j.Priority = i % 3
		switch i % 5 {
		case 0:
			j.Delay = time.Hour
		case 1:
			j.Unique, j.Policy = string(rune('a'+i)), []byte(`{"numRetries":1}`)
		case 2:
			j.Args = bytes.Repeat([]byte("1"), 3000)
		}
		jobs = append(jobs, j)
	}
	all, err := s.Enqueue(ctx, t0, jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: time.Hour}}
	for i, l := range lease(t, s, 24, "a", "b") {
		f := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
		switch i % 4 {
		case 0:
			continue // runs
		case 1:
			f.Outcome, f.Reason, f.Error = storage.OutcomeDead, storage.ReasonPermanent, "no"
			f.Failure = &storage.NewFailure{Phase: "immediate", Error: "no", Stack: "main.go:1"}
		case 2:
			f.Outcome, f.DueAt = storage.OutcomeRetry, t0.Add(time.Minute)
			f.Failure = &storage.NewFailure{Phase: "immediate", Error: "not yet"}
		}
		x.Finish = append(x.Finish, f)
	}
	if _, err := s.Exchange(ctx, t0, x); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(ctx, t0, ids[0], storage.Retention{Default: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := s.Hold(ctx, t0, storage.Hold{Lane: storage.Lane{Queue: "other"}, Reason: storage.HoldPaused}); err != nil {
		t.Fatal(err)
	}
	sched := storage.Schedule{Name: "s", Spec: "@hourly", Zone: "UTC", Missed: "one", Job: newJob("default", "a")}
	if _, err := s.PutSchedule(ctx, t0, sched); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if file, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return file, ids
}

// documented are the errors that a damaged file may return.
var documented = []error{
	storage.ErrCorrupt, storage.ErrNotFound, storage.ErrTooNew, storage.ErrUnsupportedDB, storage.ErrIO, storage.ErrClosed,
	storage.ErrUnknownOutcome, storage.ErrFull, storage.ErrReadOnly,
}

func isDocumented(err error) bool {
	for _, want := range documented {
		if errors.Is(err, want) {
			return true
		}
	}
	return err == nil
}

// FuzzDamagedPage overwrites a part of a database: nothing panics or hangs,
// errors are of those that callers know, and it is not taken for a new one.
//
//errand:shows [pages] | | any bytes anywhere in a page
func FuzzDamagedPage(f *testing.F) {
	file, ids := specimen(f)
	pages := len(file) / smallPages
	for page := range pages {
		f.Add(uint16(page), uint16(0), make([]byte, 12))
	}
	f.Add(uint16(0), uint16(100), []byte{13, 0, 0, 0, 0, 2, 0}) // a schema without tables
	f.Add(uint16(0), uint16(16), []byte{0, 1, 1, 1})
	f.Add(uint16(0), uint16(28), []byte{0, 0, 0, 1})
	f.Add(uint16(2), uint16(13), []byte{0x39, 0xd6})
	f.Add(uint16(21), uint16(157), []byte{0xf7, 0xde, 0x0c}) // a column by another name
	f.Add(uint16(22), uint16(9), []byte{0, 0xce})
	f.Add(uint16(68), uint16(210), []byte{0, 0xab, 0xc7})
	f.Add(uint16(86), uint16(9), []byte{0x3b, 0xea, 0x46})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, page, offset uint16, noise []byte) {
		noise = noise[:min(len(noise), smallPages)]
		b := bytes.Clone(file)
		copy(b[int(page)%pages*smallPages+int(offset)%smallPages:], noise)
		path := filepath.Join(dir, "jobs.db")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		defer func() {
			left, err := filepath.Glob(path + "*")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range left {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}()
		what := func(name string, err error) {
			t.Helper()
			if !isDocumented(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
		if _, err := sqlite.Examine(ctx, path, true, t0); err != nil {
			t.Errorf("Examine: %v", err)
		}
		s, err := sqlite.Open(path, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true, Ballast: -1, Logger: quiet})
		if err != nil {
			what("Open", err)
			if info, err := os.Stat(path); err != nil || info.Size() < int64(len(b)) {
				t.Errorf("after Open: %v, %v", info.Size(), err)
			}
			return
		}
		operate(s, ids, what)
		err = s.Close()
		what("Close", err)
	})
}

// operate does a bit of everything.
func operate(s *sqlite.Store, ids []storage.ID, what func(name string, err error)) {
	ctx := context.Background()
	counts, err := s.Counts(ctx)
	what("Counts", err)
	if err == nil && len(counts) == 0 {
		what("Counts", errors.New("no jobs: it was taken for a new one"))
	}
	for i, id := range ids {
		_, err := s.Job(ctx, id)
		what("Job", err)
		if i%10 == 9 {
			_, err = s.Cancel(ctx, t0, id, storage.Retention{Default: time.Hour})
			what("Cancel", err)
		}
	}
	for _, f := range []storage.Filter{{}, {Error: "n"}, {CreatedFrom: t0}, {Tag: "t"}} {
		_, err = s.Jobs(ctx, f, "", 10)
		what("Jobs", err)
	}
	_, err = s.Holds(ctx, t0)
	what("Holds", err)
	_, err = s.Schedules(ctx)
	what("Schedules", err)
	_, _, err = s.Clock(ctx)
	what("Clock", err)
	j := newJob("default", "a")
	j.Unique = "b"
	_, err = s.Enqueue(ctx, t0, []storage.NewJob{j, newJob("new", "c")})
	what("Enqueue", err)
	what("Tx", inTx(ctx, s, func(tx *sql.Tx) error {
		_, err := s.EnqueueTx(ctx, tx, t0, one())
		return err
	}))
	taken, err := s.Reclaim(ctx, t0, 0, time.Minute, 100)
	what("Reclaim", err)
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: want(20, "a", "b")}
	got, err := s.Exchange(ctx, t0.Add(2*time.Hour), x)
	what("lease", err)
	x.Wants, x.Retention = nil, storage.Retention{Default: time.Hour}
	for i, l := range got.Leased {
		x.Extend = append(x.Extend, l.Lease)
		outcome := []storage.Outcome{storage.OutcomeDone, storage.OutcomeDead, storage.OutcomeRetry}[i%3]
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: outcome,
			Reason: storage.ReasonPermanent, Error: "no", Failure: &storage.NewFailure{Error: "no"}})
	}
	for _, r := range taken {
		x.Finish = append(x.Finish, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeDone})
	}
	_, err = s.Exchange(ctx, t0.Add(2*time.Hour), x)
	what("finish", err)
	_, err = s.Redrive(ctx, t0, storage.Selection{}, "")
	what("Redrive", err)
	_, err = s.RunNow(ctx, t0, storage.Selection{}, storage.Waiting{First: true})
	what("RunNow", err)
	_, err = s.Delete(ctx, storage.Selection{})
	what("Delete", err)
	_, _, err = s.PurgeFinished(ctx, t0.Add(24*time.Hour))
	what("PurgeFinished", err)
	_, err = s.StepClock(ctx, t0, 0)
	what("StepClock", err)
	if over := s.CheckOver(); over != nil {
		<-over
	}
}
