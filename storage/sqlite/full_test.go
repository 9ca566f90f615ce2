package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// filled is a disk that a store alone has filled.
type filled struct {
	*testing.T
	*db
	s    *sqlite.Store
	free func() int64
	args []byte
	inTx bool // jobs are added by EnqueueTx
	n    int  // jobs that were added
}

// start opens the store, whose commits fail from now on while nothing is free.
func (f *filled) start() {
	f.s = f.open()
	f.s.Fault(func(bool) error {
		if f.free() == 0 {
			return storage.ErrFull
		}
		return nil
	})
}

func (f *filled) add(n int) error {
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = newJob("default", "a")
		jobs[i].Args = f.args
	}
	var err error
	if f.inTx {
		err = inTx(context.Background(), f.s, func(tx *sql.Tx) error {
			_, err := f.s.EnqueueTx(context.Background(), tx, t0, jobs)
			return err
		})
	} else {
		_, err = f.s.Enqueue(context.Background(), t0, jobs)
	}
	if err == nil {
		f.n += n
	}
	return err
}

// fill adds jobs until there is no room, also not for a single one.
func (f *filled) fill() {
	for _, n := range []int{max(1, 100_000/len(f.args)), 1} {
		for refused := 0; refused < 5; {
			err := f.add(n)
			if f.s.Rested(); err == nil && f.n*len(f.args) < 16<<20 {
				continue
			}
			if refused++; !errors.Is(err, storage.ErrFull) {
				f.Fatalf("after %d jobs: %v, want ErrFull", f.n, err)
			}
		}
	}
}

// drain leases jobs and ends them until none is left. A tenth fail twice. The rows of all
// are kept.
func (f *filled) drain() {
	now, ended := t0, 0
	for refused := 0; ended < f.n; now = now.Add(time.Second) {
		r, err := f.s.Exchange(context.Background(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: want(200, "a")})
		if errors.Is(err, storage.ErrFull) && refused < 5 {
			refused++
			continue
		}
		if err != nil || len(r.Leased) == 0 {
			f.Fatalf("%d of %d jobs have ended: %d leased, %v; %d bytes free", ended, f.n, len(r.Leased), err, f.free())
		}
		refused = 0
		x := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: 24 * time.Hour}}
		for _, l := range r.Leased {
			o := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
			if l.Key%10 == 0 && l.Attempt <= 2 {
				o.Outcome, o.DueAt = storage.OutcomeRetry, now.Add(time.Millisecond)
				o.Failure = &storage.NewFailure{Phase: "backoff", Error: "the network is away: no route to host"}
			} else {
				ended++
			}
			x.Finish = append(x.Finish, o)
		}
		out, err := f.s.Exchange(context.Background(), now, x)
		if err != nil {
			f.Fatalf("finishing %d jobs: %v; %d bytes free", len(x.Finish), err, f.free())
		}
		for _, r := range out.Finished {
			if r != storage.Applied {
				f.Fatalf("finishing: %v", r)
			}
		}
		f.s.Rested()
	}
	if c := counts(f.T, f.s); c[storage.Done] != int64(f.n) {
		f.Errorf("counts %v, want %d done", c, f.n)
	}
}

// A disk that jobs alone have filled, until none is taken in, has room to run them all,
// and to keep their rows; after that jobs are taken in again.
//
//errand:shows a disk that jobs alone have filled | | the jobs that were taken in run and their outcomes are written, also after a restart, a kill, and with EnqueueTx; then jobs are taken in again
func TestFull_JobsRun(t *testing.T) {
	for _, d := range []struct {
		disk, ballast int64
		args          []int
	}{{4 << 20, 1 << 20, []int{100, 1000, 4 << 10, 40 << 10}}, {10 << 20, 0, []int{1000, 40 << 10}}} {
		for _, args := range d.args {
			for _, way := range []string{"goes on", "opened again", "killed", "by EnqueueTx"} {
				if args == 100 && way != "goes on" { // so many jobs take long
					continue
				}
				t.Run(fmt.Sprintf("%d MiB/%d/%s", d.disk>>20, args, way), func(t *testing.T) {
					dir := t.TempDir()
					free, _ := sqlite.Disk(t, dir, d.disk)
					synctest.Test(t, func(t *testing.T) {
						opts := &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: d.ballast}
						f := &filled{T: t, db: &db{t, dir + "/jobs.db", opts}, free: free, inTx: way == "by EnqueueTx"}
						f.args = bytes.Repeat([]byte("1"), args)
						f.start()
						f.fill()
						if c, err := f.s.Check(t.Context()); err != nil || args < 2048 && !errors.Is(c.Write, storage.ErrFull) {
							t.Errorf("a disk that takes in no job: %v, %+v", err, c)
						}
						switch way {
						case "killed":
							f.s.Kill()
							f.start()
						case "opened again":
							if err := f.s.Close(); err != nil {
								t.Fatal(err)
							}
							f.start()
						}
						at := f.free()
						f.drain()
						t.Logf("full after %d jobs with %d bytes free; %d once all have ended", f.n, at, f.free())
						f.addsAgain()
						f.Invariants(t)
					})
				})
			}
		}
	}
}

// addsAgain adds a job, once those that have ended are purged.
func (f *filled) addsAgain() {
	if f.add(1) == nil {
		return
	}
	for n := 1; n > 0; f.s.Rested() {
		var err error
		if n, _, err = f.s.PurgeFinished(context.Background(), t0.Add(480*time.Hour)); err != nil {
			f.Fatal(err)
		}
	}
	time.Sleep(3 * time.Second) // the ballast is tried every 3 s
	if f.inTx && f.add(1) == nil {
		return
	}
	synctest.Wait() // a transaction that was refused has told the writer, which brings it back
	if err := f.add(1); err != nil {
		f.Errorf("with no jobs left: %v; %d bytes free", err, f.free())
	}
}

// A transaction of the application can go on without the jobs that find no room, and
// what it has written itself is committed.
//
//errand:shows a disk that jobs alone have filled
func TestFull_TxGoesOn(t *testing.T) {
	app, s, _ := appStore(t, nil)
	if _, err := app.Exec("CREATE TABLE mine (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	set, _ := sqlite.FreeSpace(t, 1<<40)
	ctx := context.Background()
	insert := func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, "INSERT INTO mine VALUES (1)"); return err }
	enqueueTx := func(tx *sql.Tx) error { _, err := s.EnqueueTx(ctx, tx, t0, one()); return err }
	set(400 << 10)
	s.Deafen()       // so that the log is moved when a transaction has found no room
	for range 2000 { // free space is read after so many jobs at the latest
		if err := inTx(ctx, s, enqueueTx); err != nil {
			break
		}
	}
	both := func(tx *sql.Tx) error {
		if err := enqueueTx(tx); !errors.Is(err, storage.ErrFull) {
			t.Errorf("EnqueueTx: %v, want ErrFull", err)
		}
		return insert(tx)
	}
	if err := inTx(ctx, s, both); err != nil {
		t.Errorf("Tx: %v", err)
	}
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(both(tx), tx.Commit()); err != nil {
		t.Errorf("a transaction of the application: %v", err)
	}
	var n int
	if err := app.QueryRow("SELECT COUNT(*) FROM mine").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d rows of the application, %v, want 2", n, err)
	}
	set(1 << 40)
	if err := inTx(ctx, s, enqueueTx); err != nil {
		t.Errorf("EnqueueTx with room again: %v", err)
	}
}

// A disk can be full though nothing runs that would end, and the log have no way into the
// database, as after a fill by an earlier version. Then the ballast is given up to lease.
// It is kept for jobs that run, if there are any.
//
//errand:shows a disk that jobs alone have filled
func TestFull_NothingRuns(t *testing.T) {
	d := newDB(t, &sqlite.Options{SingleProcess: true, Ballast: 1 << 16})
	s := d.open()
	enqueue(t, s, "a", 20)
	leased := lease(t, s, 1, "a")
	sqlite.FreeSpace(t, 450<<10) // enough to lease, but not for the ballast and the log
	s.Fault(func(begins bool) error {
		if begins && d.ballast() > 0 {
			return storage.ErrFull
		}
		return nil
	})
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: want(10, "a")}
	if _, err := s.Exchange(context.Background(), t0, x); !errors.Is(err, storage.ErrFull) {
		t.Errorf("leasing while a job runs: %v, want ErrFull", err)
	}
	if d.ballast() == 0 {
		t.Error("the ballast of a job that runs was given up to lease")
	}
	finish(t, s, leased...)
	if _, err := s.Enqueue(context.Background(), t0, one()); !errors.Is(err, storage.ErrFull) || d.ballast() == 0 {
		t.Errorf("Enqueue: %v with a ballast of %d bytes, want ErrFull", err, d.ballast())
	}
	if n := len(lease(t, s, 5, "a")); n != 5 {
		t.Errorf("%d jobs were leased, want 5", n)
	}
}

// What few jobs there is room for go to whose turn it is, whatever is wanted first: neither
// a kind without jobs nor one with many keeps others from them.
//
//errand:shows a disk that jobs alone have filled
func TestFull_RoomForFew(t *testing.T) {
	for _, wants := range [][]string{{"none", "late", "early"}, {"early", "late", "none"}} {
		d := newDB(t, &sqlite.Options{SingleProcess: true, Ballast: 1 << 16})
		set, _ := sqlite.FreeSpace(t, 1<<40)
		s := d.open()
		enqueue(t, s, "early", 150)
		enqueue(t, s, "late", 150)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		set(700 << 10)
		s = d.open()
		x := storage.Exchange{LeaseDuration: time.Minute}
		for _, kind := range wants {
			x.Wants = append(x.Wants, want(100, kind)...)
		}
		got := map[string]int{}
		for range 300 {
			r, err := s.Exchange(context.Background(), t0, x)
			if err != nil || len(r.Leased) == 0 {
				t.Fatalf("wanted are %q, leased were %v: none more, %v", wants, got, err)
			}
			if n := got["early"]; r.Leased[0].Kind == "late" && n < 150 {
				t.Errorf("wanted are %q: late jobs are leased after %d early ones", wants, n)
			}
			if len(r.Leased) < 200 && r.NextDue.IsZero() && got["early"]+got["late"]+len(r.Leased) < 300 {
				t.Error("nothing says that there are more jobs")
			}
			for _, l := range r.Leased {
				got[l.Kind]++
			}
			finish(t, s, r.Leased...)
			if got["early"]+got["late"] == 300 {
				break
			}
		}
	}
}

// The room that the ballast needs may be in the log, though all of it is in the database.
//
//errand:shows a disk that jobs alone have filled
func TestFull_LogIsCutForTheBallast(t *testing.T) {
	const ballast = 256 << 10
	dir := t.TempDir()
	free, resize := sqlite.Disk(t, dir, 1<<30)
	synctest.Test(t, func(t *testing.T) {
		d := &db{t, dir + "/jobs.db", &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: ballast}}
		s := d.open()
		enqueue(t, s, "a", 1)
		leased := lease(t, s, 1, "a")
		big(t, s, 100)                    // a log of more than 2 MB
		reads, err := s.Reading().Begin() // so that it is not cut for what ends work
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := reads.QueryRow("SELECT COUNT(*) FROM errand_job").Scan(&n); err != nil {
			t.Fatal(err)
		}
		s.Fault(func(bool) error {
			if d.ballast() > 0 {
				return storage.ErrFull
			}
			return nil
		})
		finish(t, s, leased...)
		s.Fault(nil)
		if err := reads.Rollback(); err != nil {
			t.Fatal(err)
		}
		s.Rested()
		log, err := os.Stat(d.path + "-wal")
		if err != nil || log.Size() < 2*ballast {
			t.Fatalf("the log has %d bytes, %v, want %d", log.Size(), err, 2*ballast)
		}
		resize(1<<30 - free() + ballast - 4096)
		if d.ballast() > 0 || free() >= ballast {
			t.Fatalf("%d bytes are free, and the ballast has %d", free(), d.ballast())
		}
		time.Sleep(3 * time.Second) // until it is tried again
		enqueue(t, s, "a", 1)
		if n := d.ballast(); n != ballast {
			t.Errorf("a ballast of %d bytes", n)
		}
	})
}

// With half of its room on the disk, and as much free in the database as it lacks, the
// ballast is there again: what is free in the database stays there until it is compacted.
//
//errand:shows a disk that jobs alone have filled
func TestFull_HalfABallast(t *testing.T) {
	const ballast = 4 << 20
	dir := t.TempDir()
	free, resize := sqlite.Disk(t, dir, 1<<30)
	synctest.Test(t, func(t *testing.T) {
		d := &db{t, dir + "/jobs.db", &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed}}
		s := d.open()
		leased := func() []storage.Leased { enqueue(t, s, "a", 1); return lease(t, s, 1, "a") }()
		big(t, s, 300) // of which 6 MB are free then
		s.Fault(func(bool) error {
			if d.ballast() > 0 {
				return storage.ErrFull
			}
			return nil
		})
		finish(t, s, leased...)
		s.Fault(nil)
		s.Rested()
		log, err := os.Stat(d.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		resize(1<<30 - free() - log.Size() + ballast*3/4 + (500 << 10)) // for the log there is room beside
		time.Sleep(3 * time.Second)                                     // until it is tried again
		enqueue(t, s, "a", 1)
		if n := d.ballast(); n < ballast/2 || n >= ballast {
			t.Errorf("a ballast of %d bytes, want at least half of %d", n, ballast)
		}
	})
}

// What the log has is room for leases without a ballast too: it is cut where they lack room,
// also if it is short.
func TestFull_LogIsRoomForLeases(t *testing.T) {
	dir := t.TempDir()
	free, resize := sqlite.Disk(t, dir, 1<<30)
	synctest.Test(t, func(t *testing.T) {
		d := &db{t, dir + "/jobs.db", &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: -1}}
		s := d.open()
		job := newJob("default", "a")
		job.Args = make([]byte, 2000)
		for size := int64(0); size < 365_000; { // less than a log that is cut for its length
			info, err := os.Stat(d.path + "-wal")
			if err != nil {
				t.Fatal(err)
			}
			size = info.Size()
			if _, err := s.Enqueue(t.Context(), t0, []storage.NewJob{job}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second) // the log is moved, and stays as long as it is
		resize(1<<30 - free() + 60<<10)
		lease(t, s, 3, "a")
		time.Sleep(2 * time.Second)
		leased := 0
		for range 2 {
			r, err := s.Exchange(t.Context(), t0, storage.Exchange{LeaseDuration: time.Minute, Wants: want(10, "a")})
			if err != nil {
				t.Fatal(err)
			}
			leased += len(r.Leased)
			synctest.Wait()
		}
		if leased == 0 {
			t.Errorf("no job is leased, with %d bytes free", free())
		}
	})
}

// An exchange in which jobs end, and for whose leases there is no room beside, leases none, and says
// that there may be some at once.
//
//errand:shows a disk that jobs alone have filled
func TestFull_EndsBeforeLeases(t *testing.T) {
	dir := t.TempDir()
	free, resize := sqlite.Disk(t, dir, 1<<30)
	d := &db{t, dir + "/jobs.db", &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: -1}}
	s := d.open()
	const jobs = 200
	enqueue(t, s, "a", jobs)
	gone := newJob("default", "gone")
	gone.Args = make([]byte, 300_000) // its pages are free in the database then
	if _, err := s.Enqueue(t.Context(), t0, []storage.NewJob{gone}); err != nil {
		t.Fatal(err)
	}
	finish(t, s, lease(t, s, 1, "gone")...)
	s.Close() // so there is no log
	s = d.open()
	resize(1<<30 - free() + 110<<10)
	x := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: time.Hour}, Wants: want(1, "a")}
	ended := 0
	for exchanges := 1; ended < jobs; exchanges++ {
		r, err := s.Exchange(t.Context(), t0, x)
		switch {
		case err != nil:
			t.Fatalf("after %d jobs: %v", ended, err)
		case len(r.Leased) == 0 && r.NextDue.After(t0):
			t.Fatalf("after %d jobs none is to be leased before %v", ended, r.NextDue.Sub(t0))
		case exchanges > 3*jobs:
			t.Fatalf("%d jobs have ended after %d exchanges", ended, exchanges)
		}
		x.Finish = nil
		for _, l := range r.Leased {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone, Result: make([]byte, 1000)})
			ended++
		}
	}
}

// passed makes all steps of a pass.
func passed[P comparable](t *testing.T, step func(after P) (P, error)) {
	t.Helper()
	var first P
	for after := first; ; {
		next, err := step(after)
		if err != nil {
			t.Fatal(err)
		}
		if after = next; after == first {
			return
		}
	}
}

// A step over many jobs for which there is no room is made in smaller ones, down to a single job.
//
//errand:shows a disk that jobs alone have filled
func TestFull_SmallerSteps(t *testing.T) {
	const n = 300
	ctx, hour := context.Background(), t0.Add(time.Hour)
	ended := func(t *testing.T, s *sqlite.Store, o storage.Outcome) {
		x := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: time.Minute}}
		for _, l := range lease(t, s, n, "a") {
			f := storage.Finish{Lease: l.Lease, Outcome: o}
			if o == storage.OutcomeDead {
				f.Reason = storage.ReasonPermanent
			}
			x.Finish = append(x.Finish, f)
		}
		if _, err := s.Exchange(ctx, t0, x); err != nil {
			t.Fatal(err)
		}
	}
	later := func(j *storage.NewJob) { j.DueAt = t0.Add(time.Minute) }
	all := func(t *testing.T, sel storage.Selection, do func(storage.Selection) (storage.Step, error)) {
		for changed := 0; ; {
			step, err := do(sel)
			if changed += step.N; err != nil || step.Next == (storage.Position{}) {
				if err != nil || changed != n {
					t.Errorf("%d of %d: %v", changed, n, err)
				}
				return
			}
			sel.After, sel.Through = step.Next, step.Through
		}
	}
	in := func(s storage.State) storage.Selection {
		return storage.Selection{Filter: storage.Filter{States: []storage.State{s}}}
	}
	for name, c := range map[string]struct {
		as     func(*storage.NewJob)
		groups int
		ends   storage.Outcome
		do     func(t *testing.T, s *sqlite.Store, ids []storage.ID)
	}{
		"Delete what is done": {ends: storage.OutcomeDone, do: func(t *testing.T, s *sqlite.Store, _ []storage.ID) {
			all(t, in(storage.Done), func(sel storage.Selection) (storage.Step, error) { return s.Delete(ctx, sel) })
		}},
		"Delete dead letters by ID": {ends: storage.OutcomeDead, do: func(t *testing.T, s *sqlite.Store, ids []storage.ID) {
			all(t, storage.Selection{IDs: ids}, func(sel storage.Selection) (storage.Step, error) { return s.Delete(ctx, sel) })
		}},
		"Redrive": {ends: storage.OutcomeDead, do: func(t *testing.T, s *sqlite.Store, _ []storage.ID) {
			all(t, storage.Selection{}, func(sel storage.Selection) (storage.Step, error) { return s.Redrive(ctx, hour, sel, "") })
		}},
		"Cancel": {do: func(t *testing.T, s *sqlite.Store, _ []storage.ID) {
			all(t, in(storage.Ready), func(sel storage.Selection) (storage.Step, error) {
				return s.Change(ctx, hour, sel, storage.Edit{Cancel: &storage.Retention{Default: time.Hour}})
			})
		}},
		"RunNow": {as: later, do: func(t *testing.T, s *sqlite.Store, ids []storage.ID) {
			all(t, storage.Selection{IDs: ids}, func(sel storage.Selection) (storage.Step, error) {
				return s.RunNow(ctx, t0, sel, storage.Waiting{First: true})
			})
		}},
		"PurgeFinished": {ends: storage.OutcomeDone, do: func(t *testing.T, s *sqlite.Store, _ []storage.ID) {
			purged := 0
			for next := hour; !next.IsZero(); {
				k, after, err := s.PurgeFinished(ctx, hour)
				if err != nil {
					t.Fatal(err)
				}
				purged, next = purged+k, after
			}
			if purged != n {
				t.Errorf("%d are purged", purged)
			}
		}},
		"expiry": {as: func(j *storage.NewJob) { j.StartWithin = time.Minute }, do: func(t *testing.T, s *sqlite.Store, _ []storage.ID) {
			late := 0
			for range n {
				r, err := s.Exchange(ctx, hour, storage.Exchange{LeaseDuration: time.Minute, Wants: want(1, "a")})
				if err != nil || len(r.Leased) > 0 {
					t.Fatalf("%d leased: %v", len(r.Leased), err)
				}
				if late += len(r.Expired); len(r.Expired) == 0 || late == n {
					break
				}
			}
			if late != n {
				t.Errorf("%d have expired", late)
			}
		}},
		"due jobs": {as: later, do: func(t *testing.T, s *sqlite.Store, _ []storage.ID) {
			leased := 0
			for range n {
				r, err := s.Exchange(ctx, hour, storage.Exchange{LeaseDuration: time.Minute, Wants: want(5, "a")})
				if err != nil {
					t.Fatal(err)
				}
				if leased += len(r.Leased); len(r.Leased) == 0 {
					break
				}
			}
			if leased != n {
				t.Errorf("%d were leased", leased)
			}
		}},
		"StepClock": {ends: storage.OutcomeDone, do: func(t *testing.T, s *sqlite.Store, _ []storage.ID) {
			passed(t, func(after int64) (int64, error) { return s.StepClock(ctx, t0.Add(-time.Hour), after) })
		}},
		"StepClock over dead letters": {ends: storage.OutcomeDead, do: func(t *testing.T, s *sqlite.Store, _ []storage.ID) {
			passed(t, func(after int64) (int64, error) { return s.StepClock(ctx, t0.Add(-time.Hour), after) })
		}},
		"Regroup": {groups: n / 3, do: func(t *testing.T, s *sqlite.Store, _ []storage.ID) {
			if err := s.Configure(ctx, storage.Lane{Queue: "default"}, storage.Settings{storage.SettingGroupLimit: 3}); err != nil {
				t.Fatal(err)
			}
			passed(t, func(after string) (string, error) { return s.Regroup(ctx, "default", after) })
			if c := counts(t, s); c[storage.Ready] != n {
				t.Errorf("counts %v", c)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDB(t, &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: 1 << 16}).open()
			job := newJob("default", "a")
			if c.as != nil {
				c.as(&job)
			}
			jobs := slices.Repeat([]storage.NewJob{job}, n)
			for i := range c.groups * 3 {
				jobs[i].Group = fmt.Sprint(i % c.groups)
			}
			out, err := s.Enqueue(ctx, t0, jobs)
			if err != nil {
				t.Fatal(err)
			}
			var ids []storage.ID
			for _, e := range out {
				ids = append(ids, e.ID)
			}
			if c.ends != 0 {
				ended(t, s, c.ends)
			}
			s.RoomForChanges(50)
			c.do(t, s, ids)
			s.Fault(nil)
		})
	}
}

// Requests that share a transaction for which there is no room go each by itself.
func TestFull_RequestsApart(t *testing.T) {
	const n = 40
	s := newDB(t, &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: 1 << 16}).open()
	ids := enqueue(t, s, "a", n)
	s.RoomForChanges(50)
	release, errs := s.Stall(), make(chan error, n)
	for _, e := range ids {
		go func() {
			_, err := s.Cancel(context.Background(), t0, e.ID, storage.Retention{Default: time.Hour})
			errs <- err
		}()
	}
	for s.Waiting() < n {
		runtime.Gosched()
	}
	release()
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// moves reports whether the log could be moved, as the database would grow.
func moves(t *testing.T, d *db, free int64) bool {
	t.Helper()
	app := appDB(t, "file:"+d.path)
	var pages, size int64
	if err := errors.Join(app.QueryRow("PRAGMA page_count").Scan(&pages), app.QueryRow("PRAGMA page_size").Scan(&size)); err != nil {
		t.Fatal(err)
	}
	return pages*size-d.bytes() <= free
}

// What ends work, what an application writes with Tx, and Finish are refused before the log has more
// than the database could take: so the log can be moved, and jobs run again once there is room inside.
//
//errand:shows a disk that jobs alone have filled
func TestFull_LogCanBeMoved(t *testing.T) {
	for _, way := range []string{"results", "jobs that follow", "Tx", "Finish"} {
		t.Run(way, func(t *testing.T) {
			dir := t.TempDir()
			free, _ := sqlite.Disk(t, dir, 6<<20)
			d := &db{t, dir + "/jobs.db", &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: 1 << 20}}
			s, ctx := d.open(), context.Background()
			enqueue(t, s, "a", 100)
			if err := inTx(ctx, s, func(tx *sql.Tx) error {
				_, err := tx.Exec("CREATE TABLE mine (n INTEGER PRIMARY KEY, pad BLOB)")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			leased := lease(t, s, 100, "a")
			refused, ended := 0, 0
			insert := func(tx *sql.Tx) error {
				_, err := tx.Exec("INSERT INTO mine (pad) VALUES (zeroblob(200000))")
				return err
			}
			for _, l := range leased {
				f := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
				keep := storage.Retention{Default: time.Hour}
				var err error
				switch way {
				case "results":
					f.Result = make([]byte, 200_000)
				case "jobs that follow":
					next := newJob("default", "b")
					next.Args = bytes.Repeat([]byte("1"), 200_000)
					f.Then = []storage.NewJob{next}
				case "Tx":
					err = inTx(ctx, s, insert)
				case "Finish":
					err = inTx(ctx, s, func(tx *sql.Tx) error {
						if err := insert(tx); err != nil {
							return err
						}
						_, _, err := s.FinishTx(ctx, tx, t0, []storage.Finish{f}, keep, nil)
						return err
					})
				}
				if f.Result != nil || f.Then != nil {
					_, err = s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{f}, Retention: keep})
				}
				switch {
				case errors.Is(err, storage.ErrFull):
					refused++
				case err != nil:
					t.Fatal(err)
				default:
					ended++
				}
				if !moves(t, d, free()) {
					t.Fatalf("after %d the log cannot be moved, with %d bytes free", ended, free())
				}
			}
			if refused == 0 || ended == 0 {
				t.Errorf("%d were written, %d refused", ended, refused)
			}
			t.Logf("%d were written, %d refused, %d bytes are free", ended, refused, free())
		})
	}
}

// EnqueueTx is refused when it is called if the log has no room for its job, though the database has.
func TestFull_EnqueueTxAtTheCall(t *testing.T) {
	s := newDB(t, &sqlite.Options{SingleProcess: true, Ballast: -1}).open()
	big(t, s, 300) // of which 6 MB are free then
	s.Rested()
	sqlite.FreeSpace(t, 800<<10)
	job := newJob("default", "a")
	job.Args = make([]byte, 1<<20)
	err := inTx(context.Background(), s, func(tx *sql.Tx) error {
		for range 5 { // free space is read when it is a few MiB
			if _, err := s.EnqueueTx(context.Background(), tx, t0, []storage.NewJob{job}); err != nil {
				if !errors.Is(err, storage.ErrFull) {
					t.Error(err)
				}
				return nil
			}
		}
		t.Error("5 jobs of 1 MiB were taken in with 800 KiB free")
		return nil
	})
	if err != nil && !errors.Is(err, storage.ErrFull) {
		t.Error(err)
	}
}

// Jobs are leased as far as there is room for what those of their lane have brought lately. Those of
// other lanes, and later ones, do not wait behind them.
//
//errand:shows a disk that jobs alone have filled
func TestFull_RoomForWhatIsBrought(t *testing.T) {
	dir := t.TempDir()
	sqlite.FreeSpace(t, 2<<20)
	synctest.Test(t, func(t *testing.T) {
		d := &db{t, dir + "/jobs.db", &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: 1 << 16}}
		s, ctx := d.open(), context.Background()
		enqueue(t, s, "large", 20)
		enqueue(t, s, "small", 40)
		first := lease(t, s, 1, "large")
		f := storage.Finish{Lease: first[0].Lease, Outcome: storage.OutcomeDone, Result: make([]byte, 300_000)}
		if _, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{f}, Retention: storage.Retention{Default: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		leases := func() map[string]int {
			r, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Wants: want(60, "large", "small")})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			for _, l := range r.Leased {
				got[l.Kind]++
			}
			finish(t, s, r.Leased...)
			return got
		}
		if got := leases(); got["large"] == 0 || got["large"] > 4 || got["small"] == 0 {
			t.Errorf("leased were %v", got)
		}
		sqlite.FreeSpace(t, 700<<10)
		if got := leases(); got["large"] != 0 || got["small"] == 0 {
			t.Errorf("without room for a large one leased were %v", got)
		}
		time.Sleep(10 * time.Minute) // what was brought counts no longer
		if got := leases(); got["large"] == 0 {
			t.Errorf("after a while leased were %v", got)
		}
	})
}

// What a transaction brings in which many jobs end is that of all of them, of whatever lanes.
func TestFull_RoomForWhatIsBroughtTogether(t *testing.T) {
	sqlite.FreeSpace(t, 3<<20)
	app, s, _ := appStore(t, &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: -1})
	if _, err := app.Exec("CREATE TABLE mine (pad BLOB)"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "one", 40)
	enqueue(t, s, "two", 40)
	all := slices.Concat(lease(t, s, 20, "one"), lease(t, s, 10, "two"))
	err := inTx(context.Background(), s, func(tx *sql.Tx) error {
		for _, l := range all {
			if _, err := tx.Exec("INSERT INTO mine (pad) VALUES (zeroblob(10000))"); err != nil {
				return err
			}
			f := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
			if _, _, err := s.FinishTx(context.Background(), tx, t0, []storage.Finish{f}, storage.Retention{}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"one", "two"} {
		leased := lease(t, s, 20, kind)
		if n := len(leased); n < 10 {
			t.Errorf("%d jobs of kind %s are leased, want at least 10", n, kind)
		}
		finish(t, s, leased...)
	}
}

// That another database or file has no room gives up no ballast.
func TestFull_OfAnotherFile(t *testing.T) {
	sqlite.FreeSpace(t, 1<<40)
	_, s, d := appStore(t, &sqlite.Options{SingleProcess: true, Ballast: 1 << 16})
	other := appDB(t, "file:"+t.TempDir()+"/other.db?_pragma=max_page_count(2)")
	if _, err := other.Exec("CREATE TABLE mine (pad BLOB)"); err != nil {
		t.Fatal(err)
	}
	for what, fails := range map[string]func() error{
		"another database": func() error { _, err := other.Exec("INSERT INTO mine VALUES (zeroblob(100000))"); return err },
		"another file":     func() error { return fmt.Errorf("export: %w", storage.ErrFull) },
	} {
		enqueue(t, s, "a", 1)
		leased := lease(t, s, 1, "a")
		err := inTx(context.Background(), s, func(tx *sql.Tx) error {
			f := storage.Finish{Lease: leased[0].Lease, Outcome: storage.OutcomeDone}
			if _, _, err := s.FinishTx(context.Background(), tx, t0, []storage.Finish{f}, storage.Retention{}, nil); err != nil {
				return err
			}
			return fails()
		})
		if !errors.Is(err, storage.ErrFull) || d.ballast() == 0 {
			t.Errorf("%s: %v with a ballast of %d bytes, want ErrFull and the ballast", what, err, d.ballast())
		}
		if ours, _ := s.Trouble(err); ours {
			t.Errorf("%s: %v is taken for trouble of this Store", what, err)
		}
		finish(t, s, leased...)
	}
}

// Once half of a batch has needed the room of the ballast, the other half adds no work.
func TestFull_RestOfABatch(t *testing.T) {
	d := newDB(t, &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: 1 << 16})
	s, ctx := d.open(), context.Background()
	enqueue(t, s, "a", 2)
	x := storage.Exchange{LeaseDuration: time.Minute}
	for _, l := range lease(t, s, 2, "a") {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent})
	}
	if _, err := s.Exchange(ctx, t0, x); err != nil {
		t.Fatal(err)
	}
	ids := enqueue(t, s, "a", 1)
	s.Fault(func(bool) error {
		if d.ballast() > 0 {
			return storage.ErrFull
		}
		return nil
	})
	release, cancelled, redriven := s.Stall(), make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.Cancel(ctx, t0, ids[0].ID, storage.Retention{Default: time.Hour})
		cancelled <- err
	}()
	for s.Waiting() < 1 {
		runtime.Gosched()
	}
	go func() {
		_, err := s.Redrive(ctx, t0, storage.Selection{}, "")
		redriven <- err
	}()
	for s.Waiting() < 2 {
		runtime.Gosched()
	}
	release()
	if err := <-cancelled; err != nil {
		t.Errorf("Cancel: %v", err)
	}
	if err := <-redriven; !errors.Is(err, storage.ErrFull) {
		t.Errorf("Redrive: %v, want ErrFull", err)
	}
	s.Fault(nil)
}

// A call for which there is no room is tried a few times, not for each half of its step.
func TestFull_FewTries(t *testing.T) {
	s := newDB(t, &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: 1 << 16}).open()
	enqueue(t, s, "a", 10)
	lease(t, s, 1, "a") // for whom the ballast is kept
	tries := 0
	s.Fault(func(bool) error { tries++; return storage.ErrFull })
	_, err := s.Exchange(context.Background(), t0, storage.Exchange{LeaseDuration: time.Minute, Wants: want(5, "a")})
	if !errors.Is(err, storage.ErrFull) || tries > 6 {
		t.Errorf("%d tries, then %v, want at most 6", tries, err)
	}
	s.Fault(nil)
}
