package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	appsqlite "github.com/errandq/errand/storage/sqlite/testdata/app/sqlite"
)

// inTx is Tx of a Store, with the type of its transactions.
func inTx(ctx context.Context, s *sqlite.Store, fn func(*sql.Tx) error) error {
	return s.Tx(ctx, func(tx any) error { return fn(tx.(*sql.Tx)) })
}

// appStore is a Store on a database that an application has open.
func appStore(t *testing.T, opts *sqlite.Options) (*sql.DB, *sqlite.Store, *db) {
	t.Helper()
	d := newDB(t, opts)
	app := appDB(t, "file:"+d.path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)")
	if _, err := app.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.New(app, d.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Invariants(t)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return app, s, d
}

func counts(t *testing.T, s storage.Store) map[storage.State]int64 {
	t.Helper()
	all, err := s.Counts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	m := map[storage.State]int64{}
	for _, c := range all {
		m[c.State] += c.N
	}
	return m
}

//errand:shows [tx] | | the transaction of an application on a connection of its own
func TestStore_EnqueueTx_CommitsOrVanishesWithTheTransaction(t *testing.T) {
	app, s, d := appStore(t, nil)
	ctx := context.Background()
	big := newJob("default", "big")
	big.Args = []byte(`"` + strings.Repeat("x", 10_000) + `"`)
	big.Headers, big.Policy, big.Unique = []byte(`{"a":"b"}`), []byte(`{"numRetries":1}`), "big 1"
	for _, commit := range []bool{false, true} {
		tx, err := app.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("INSERT INTO orders DEFAULT VALUES"); err != nil {
			t.Fatal(err)
		}
		got, err := s.EnqueueTx(ctx, tx, t0, []storage.NewJob{newJob("other", "a"), big, big})
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Duplicate || got[1].Duplicate || !got[2].Duplicate || got[2].ID != got[1].ID {
			t.Errorf("got %v: want the third to be a duplicate of the second", got)
		}
		if !commit {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Job(ctx, got[0].ID); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("rolled back: job gives %v", err)
			}
			if c := counts(t, s); len(c) != 0 {
				t.Errorf("rolled back: counts %v", c)
			}
			continue
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		rec, err := s.Job(ctx, got[1].ID)
		if err != nil || string(rec.Args) != string(big.Args) || string(rec.Headers) != string(big.Headers) || string(rec.Policy) != string(big.Policy) {
			t.Errorf("committed: job gives %v, %v", rec, err)
		}
		if c := counts(t, s); c[storage.Ready] != 2 {
			t.Errorf("committed: counts %v", c)
		}
	}
	if n := d.number("SELECT COUNT(*) FROM orders"); n != 1 {
		t.Errorf("%d orders, want 1", n)
	}
}

func TestStore_EnqueueTx_WrongDatabase(t *testing.T) {
	_, s, _ := appStore(t, nil)
	other, _, _ := appStore(t, nil)
	for name, app := range map[string]*sql.DB{"another file": other, "in memory": appDB(t, ":memory:")} {
		tx, err := app.Begin()
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.EnqueueTx(context.Background(), tx, t0, []storage.NewJob{newJob("default", "a")})
		if !errors.Is(err, storage.ErrWrongDatabase) {
			t.Errorf("%s: error %v, want ErrWrongDatabase", name, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	if c := counts(t, s); len(c) != 0 {
		t.Errorf("counts %v: want none", c)
	}
}

// A connection that syncs nothing may begin the log anew over what others have
// synced.
//
//errand:shows synchronous=OFF beside Full
func TestStore_EnqueueTx_SynchronousOff(t *testing.T) {
	for name, c := range map[string]struct {
		opts sqlite.Options
		is   error
	}{"full": {is: storage.ErrUnsupportedDB}, "relaxed": {opts: sqlite.Options{Durability: sqlite.Relaxed}}} {
		t.Run(name, func(t *testing.T) {
			_, s, d := appStore(t, &c.opts)
			tx, err := appDB(t, "file:"+d.path+"?_pragma=synchronous(off)").Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.EnqueueTx(context.Background(), tx, t0, one()); !errors.Is(err, c.is) {
				t.Errorf("EnqueueTx: %v, want %v", err, c.is)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// New says what is not right about the connections of the application, and what to write.
//
//errand:shows synchronous=OFF beside Full | | New and EnqueueTx refuse it under Full; under Relaxed New warns
//errand:shows transactions that begin deferred | | New warns of a pool that begins them; the error says what to set
//errand:shows a DSN with a slip | | each error and warning of New says what to write, and names OpenDB, whose database has no slip
func TestNew_WarnsOfTheApplication(t *testing.T) {
	const right = "_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_pragma=synchronous(full)&_txlock=immediate"
	for name, c := range map[string]struct {
		dsn        string
		durability sqlite.Durability
		is         error
		says       []string // in the error, or else each in a warning of its own
	}{
		"right":              {dsn: right},
		"exclusive":          {dsn: strings.Replace(right, "immediate", "exclusive", 1)},
		"no WAL":             {dsn: strings.Replace(right, "journal_mode(wal)", "journal_mode(delete)", 1), is: storage.ErrUnsupportedDB, says: []string{"write _pragma=journal_mode(wal)"}},
		"misspelled WAL":     {dsn: strings.Replace(right, "journal_mode(wal)", "journal(wal)", 1), is: storage.ErrUnsupportedDB, says: []string{"write _pragma=journal_mode(wal)"}},
		"sync off":           {dsn: strings.Replace(right, "(full)", "(off)", 1), is: storage.ErrUnsupportedDB, says: []string{"write _pragma=synchronous(full)"}},
		"sync off, relaxed":  {dsn: strings.Replace(right, "(full)", "(off)", 1), durability: sqlite.Relaxed, says: []string{"write _pragma=synchronous(full)"}},
		"less sync":          {dsn: strings.Replace(right, "(full)", "(normal)", 1), says: []string{"write _pragma=synchronous(full)"}},
		"less sync, relaxed": {dsn: strings.Replace(right, "(full)", "(normal)", 1), durability: sqlite.Relaxed},
		"default sync":       {dsn: strings.Replace(right, "_pragma=synchronous(full)&", "", 1)}, // is FULL
		"deferred":           {dsn: strings.Replace(right, "&_txlock=immediate", "", 1), says: []string{"write _txlock=immediate"}},
		"no timeout":         {dsn: strings.Replace(right, "_pragma=busy_timeout(5000)&", "", 1), says: []string{"write _pragma=busy_timeout(5000)"}},
		"seconds":            {dsn: strings.Replace(right, "(5000)", "(5)", 1), says: []string{"write _pragma=busy_timeout(5000)"}},
		"WAL alone":          {dsn: "_pragma=journal_mode(wal)", says: []string{"write _pragma=busy_timeout(5000)", "write _txlock=immediate"}},
	} {
		t.Run(name, func(t *testing.T) {
			app := appDB(t, "file:"+filepath.Join(t.TempDir(), "jobs.db")+"?"+c.dsn)
			if _, err := app.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY)"); err != nil {
				t.Fatal(err)
			}
			said, err := newOn(t, app, c.durability)
			if !errors.Is(err, c.is) {
				t.Fatalf("New: %v, want %v", err, c.is)
			}
			if err != nil {
				said = append(said, err.Error())
			}
			if len(said) != len(c.says) {
				t.Fatalf("New says %q, want %q", said, c.says)
			}
			for i, want := range c.says {
				if !strings.Contains(said[i], want) || !strings.Contains(said[i], "sqlite.OpenDB") {
					t.Errorf("New says %q, want %q and sqlite.OpenDB", said[i], want)
				}
			}
		})
	}
}

// newOn opens and closes a Store beside a database, and returns what it warns of, but for what
// hangs on the process.
func newOn(t *testing.T, app *sql.DB, durability sqlite.Durability) (warns []string, err error) {
	t.Helper()
	s, err := sqlite.New(app, &sqlite.Options{Durability: durability, Logger: slog.New(listener(func(level slog.Level, text string) {
		if level >= slog.LevelWarn && !strings.Contains(text, "OFD locks") && !strings.Contains(text, "in memory") {
			warns = append(warns, text)
		}
	}))})
	if err == nil {
		err = s.Close()
	}
	return warns, err
}

//errand:shows transactions that begin deferred
//errand:shows calls of the queue inside Tx
func TestStore_EnqueueTx_LateReaderIsBusy(t *testing.T) {
	app, s, _ := appStore(t, nil)
	tx, err := app.Begin() // deferred
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRow("SELECT COUNT(*) FROM orders").Scan(&n); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "a", 1) // now the snapshot of tx is old
	_, err = s.EnqueueTx(context.Background(), tx, t0, []storage.NewJob{newJob("default", "a")})
	if !errors.Is(err, storage.ErrBusy) || !strings.Contains(err.Error(), "_txlock=immediate") {
		t.Errorf("error %v: want ErrBusy that says what to do", err)
	}
}

// bell counts what Notify tells, as a channel.
func bell(t *testing.T, s storage.Notifier) <-chan storage.Event {
	c := make(chan storage.Event, 1000)
	t.Cleanup(s.Notify(func(e storage.Event) { c <- e }))
	return c
}

func TestStore_EnqueueTx_IsLookedFor(t *testing.T) {
	for _, single := range []bool{false, true} {
		app, s, _ := appStore(t, &sqlite.Options{SingleProcess: single})
		rings := bell(t, s)
		tx, err := app.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.EnqueueTx(context.Background(), tx, t0, []storage.NewJob{newJob("default", "a")}); err != nil {
			t.Fatal(err)
		}
		for len(rings) > 0 { // what opening and other tests' commits have rung
			<-rings
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for len(lease(t, s, 1, "a")) == 0 {
			t.Fatal("committed, but not there")
		}
		<-rings
	}
}

func TestStore_Tx(t *testing.T) {
	_, s, d := appStore(t, nil)
	ctx := context.Background()
	rings := bell(t, s)
	boom := errors.New("boom")
	insert := func(tx *sql.Tx) error {
		if _, err := tx.Exec("INSERT INTO orders DEFAULT VALUES"); err != nil {
			return err
		}
		_, err := s.EnqueueTx(ctx, tx, t0, []storage.NewJob{newJob("default", "a")})
		return err
	}
	if err := inTx(ctx, s, func(tx *sql.Tx) error { return errors.Join(insert(tx), boom) }); !errors.Is(err, boom) {
		t.Errorf("error %v, want that of the function", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = inTx(ctx, s, func(tx *sql.Tx) error {
			if err := insert(tx); err != nil {
				return err
			}
			panic("boom")
		})
	}()
	if n := d.number("SELECT COUNT(*) FROM orders") + d.number("SELECT COUNT(*) FROM errand_job"); n != 0 {
		t.Errorf("%d rows after two rollbacks", n)
	}
	if err := inTx(ctx, s, insert); err != nil {
		t.Fatal(err)
	}
	if n := d.number("SELECT COUNT(*) FROM orders") + d.number("SELECT COUNT(*) FROM errand_job"); n != 2 {
		t.Errorf("%d rows after the commit, want 2", n)
	}
	<-rings
}

// What would wait for the transaction that it is called in fails at once.
//
//errand:shows calls of the queue inside Tx | | a call that would wait for its own caller returns `ErrBusy` at once and says so; CancelTx cancels in the transaction; a snapshot that is too old to write says how to begin
func TestStore_Tx_OtherCallsInside(t *testing.T) {
	_, s, _ := appStore(t, &sqlite.Options{BusyTimeout: time.Second})
	ctx := context.Background()
	id := enqueue(t, s, "a", 1)[0].ID
	var elsewhere chan error
	err := inTx(ctx, s, func(tx *sql.Tx) error {
		for name, call := range map[string]func() error{
			"Enqueue": func() error { _, err := s.Enqueue(ctx, t0, one()); return err },
			"Exchange": func() error {
				_, err := s.Exchange(ctx, t0, storage.Exchange{Wants: want(1, "a")})
				return err
			},
			"Cancel": func() error { _, err := s.Cancel(ctx, t0, id, storage.Retention{}); return err },
			"Hold": func() error {
				return s.Hold(ctx, t0, storage.Hold{Lane: storage.Lane{Queue: "default"}, Reason: storage.HoldPaused})
			},
			"Redrive": func() error { _, err := s.Redrive(ctx, t0, storage.Selection{}, ""); return err },
			"RunNow": func() error {
				_, err := s.RunNow(ctx, t0, storage.Selection{}, storage.Waiting{First: true})
				return err
			},
			"Delete":        func() error { _, err := s.Delete(ctx, storage.Selection{}); return err },
			"PurgeFinished": func() error { _, _, err := s.PurgeFinished(ctx, t0); return err },
			"Tx":            func() error { return inTx(ctx, s, func(*sql.Tx) error { return nil }) },
		} {
			if err := call(); !errors.Is(err, storage.ErrBusy) || !strings.Contains(err.Error(), "inside the function of Tx") {
				t.Errorf("%s: %v, want ErrBusy that says why", name, err)
			}
		}
		if r, err := s.Job(ctx, id); err != nil || r.State != storage.Ready {
			t.Errorf("reading inside gives %v, %v", r.State, err)
		}
		begun := make(chan error)
		elsewhere = begun
		go func() { // may wait
			_, err := s.Enqueue(ctx, t0, one())
			begun <- err
		}()
		_, err := s.EnqueueTx(ctx, tx, t0, one())
		return err
	})
	if err := errors.Join(err, <-elsewhere); err != nil {
		t.Error(err)
	}
	if c := counts(t, s); c[storage.Ready] != 3 {
		t.Errorf("counts %v, want 3 ready", c)
	}
}

// keepTx keeps a Tx of s open, in another goroutine, until the result is called.
func keepTx(t *testing.T, s *sqlite.Store) (end func()) {
	t.Helper()
	open, enough, ended := make(chan bool), make(chan bool), make(chan error)
	go func() {
		ended <- inTx(context.Background(), s, func(*sql.Tx) error {
			close(open)
			<-enough
			return nil
		})
	}()
	<-open
	return func() {
		close(enough)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A call that is not made inside a Tx of its own Store waits for one that another
// goroutine has open: from a Tx of that Store, of another, and of a function of the
// application that differs in nothing but the path of its package.
func TestStore_Tx_OfAnotherGoroutine(t *testing.T) {
	_, s, _ := appStore(t, &sqlite.Options{BusyTimeout: 30 * time.Millisecond})
	_, other, _ := appStore(t, nil)
	ctx := context.Background()
	enqueue := func() error { _, err := s.Enqueue(ctx, t0, one()); return err }
	for name, call := range map[string]func() error{
		"Tx":                       func() error { return inTx(ctx, s, func(*sql.Tx) error { return nil }) },
		"inside another Store's":   func() error { return inTx(ctx, other, func(*sql.Tx) error { return enqueue() }) },
		"inside the application's": func() error { return new(appsqlite.Store).Tx(enqueue) },
	} {
		end := keepTx(t, s)
		err := call()
		end()
		if !errors.Is(err, storage.ErrBusy) || strings.Contains(err.Error(), "inside the function of Tx") {
			t.Errorf("%s: %v, want ErrBusy after having waited", name, err)
		}
	}
}

//errand:shows calls of the queue inside Tx
func TestStore_CancelTx(t *testing.T) {
	app, s, d := appStore(t, nil)
	ctx, no := context.Background(), errors.New("no")
	plain := func(ctx context.Context, fn func(*sql.Tx) error) error {
		tx, err := app.Begin()
		if err != nil {
			return err
		}
		if err := fn(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	for name, run := range map[string]func(context.Context, func(*sql.Tx) error) error{"Tx": func(ctx context.Context, f func(*sql.Tx) error) error { return inTx(ctx, s, f) }, "the application's": plain} {
		for _, end := range []error{no, nil} {
			rings := bell(t, s)
			j := newJob("default", "a")
			j.Unique = "key"
			enqueue(t, s, "a", 1)
			l := lease(t, s, 1, "a")[0]
			waits, err := s.Enqueue(ctx, t0, []storage.NewJob{j})
			if err != nil {
				t.Fatal(err)
			}
			for len(rings) > 0 {
				<-rings
			}
			err = run(ctx, func(tx *sql.Tx) error {
				if _, err := s.CancelTx(ctx, tx, t0, storage.ID{1}, storage.Retention{}); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("%s: cancel of no job: %v", name, err)
				}
				for id, want := range map[storage.ID]storage.State{waits[0].ID: storage.Cancelled, l.ID: storage.Running} {
					if state, err := s.CancelTx(ctx, tx, t0, id, storage.Retention{Default: time.Hour}); state != want || err != nil {
						t.Errorf("%s: cancel gives %q, %v, want %q", name, state, err, want)
					}
				}
				again, err := s.EnqueueTx(ctx, tx, t0, []storage.NewJob{j})
				if err != nil || again[0].Duplicate {
					t.Errorf("%s: the key of a job that was cancelled: %v, %v", name, again, err)
				}
				return end
			})
			if !errors.Is(err, end) {
				t.Fatal(err)
			}
			for end == nil && name == "Tx" && !(<-rings).Cancel { // what was cancelled is to be looked for
			}
			x, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Extend: []storage.Lease{l.Lease}})
			if err != nil {
				t.Fatal(err)
			}
			wantState, wantItem := storage.Ready, storage.Applied
			if end == nil {
				wantState, wantItem = storage.Cancelled, storage.Cancelling
			}
			r, err := s.Job(ctx, waits[0].ID)
			if err != nil || r.State != wantState || x.Extended[0] != wantItem {
				t.Errorf("%s, %v: the job that waits is %q (%v), extending the other gives %v", name, end, r.State, err, x.Extended[0])
			}
			finish(t, s, l)
			finish(t, s, lease(t, s, 9, "a")...)
			d.Invariants(t)
		}
	}
	other, _, _ := appStore(t, nil)
	tx, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := s.CancelTx(ctx, tx, t0, storage.ID{1}, storage.Retention{}); !errors.Is(err, storage.ErrWrongDatabase) {
		t.Errorf("a transaction of another database: %v, want ErrWrongDatabase", err)
	}
}

func TestStore_Busy(t *testing.T) {
	d := newDB(t, &sqlite.Options{BusyTimeout: 30 * time.Millisecond})
	s := d.open()
	rivalDB := d.raw()
	defer rivalDB.Close()
	rival, err := rivalDB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("default", "a")})
	if !errors.Is(err, storage.ErrBusy) {
		t.Errorf("error %v, want ErrBusy", err)
	}
	if err := rival.Rollback(); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "a", 1)
}

func TestOpen_OnFileOfTheApplication(t *testing.T) {
	d := newDB(t, nil)
	app := appDB(t, "file:"+d.path)
	if _, err := app.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	s := d.open()
	enqueue(t, s, "a", 1)
	if _, err := app.Exec("INSERT INTO orders DEFAULT VALUES"); err != nil {
		t.Fatal(err)
	}
	if filepath.Base(d.path) != "jobs.db" || d.number("SELECT COUNT(*) FROM orders") != 1 {
		t.Error("the application's table is gone")
	}
}

// What the application takes back by a savepoint of its own takes the counters
// along: what is known of them must not outlive it.
func TestTx_BackToASavepoint(t *testing.T) {
	s, ctx := newDB(t, &sqlite.Options{SingleProcess: true}).open(), context.Background()
	enqueue(t, s, "a", 1)
	add := func(tx *sql.Tx, kind string) error {
		_, err := s.EnqueueTx(ctx, tx, t0, []storage.NewJob{newJob("default", kind)})
		return err
	}
	for _, after := range []string{"", "a"} {
		err := inTx(ctx, s, func(tx *sql.Tx) error {
			_, err := tx.Exec("SAVEPOINT mine")
			if err == nil {
				err = add(tx, "new"+after) // of a kind that was not there
			}
			if err == nil {
				_, err = tx.Exec("ROLLBACK TO mine")
			}
			if err == nil && after != "" {
				err = add(tx, after)
			}
			return err
		})
		if err == nil {
			err = inTx(ctx, s, func(tx *sql.Tx) error { return add(tx, "a") })
		}
		if err != nil {
			t.Fatal(err)
		}
		kind := "b" + after
		enqueue(t, s, kind, 1)
		enqueue(t, s, kind, 1)
		if n := len(lease(t, s, 9, kind)); n != 2 {
			t.Errorf("%d jobs of kind %q leased, want 2", n, kind)
		}
	}
	if err := s.Hold(ctx, t0, storage.Hold{Lane: storage.Lane{Queue: "default"}, Reason: storage.HoldPaused}); err != nil {
		t.Fatal(err)
	}
	if n := len(lease(t, s, 9, "a")); n != 0 {
		t.Errorf("%d jobs of a paused queue leased", n)
	}
}

// A transaction that is rolled back waits for an EnqueueTx that is under way.
func TestTx_FailsBesideEnqueueTx(t *testing.T) {
	s, ctx := newDB(t, nil).open(), context.Background()
	many := make([]storage.NewJob, 3000)
	for i := range many {
		many[i] = newJob("default", "a")
	}
	for range 5 {
		begun, done := make(chan struct{}), make(chan error, 1)
		no := errors.New("no")
		err := inTx(ctx, s, func(tx *sql.Tx) error {
			go func() {
				close(begun)
				_, err := s.EnqueueTx(ctx, tx, t0, many)
				done <- err
			}()
			<-begun
			_, _ = tx.Exec("SELECT 1") // as long as it takes to be in the middle
			return no
		})
		if !errors.Is(err, no) {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Log(err) // it was too late, or not: nothing of it must be there
		}
		if c := counts(t, s); c[storage.Ready] != 0 {
			t.Fatalf("counts %v after a rollback", c)
		}
	}
}

// A cap counts what earlier calls of a transaction have added, also in a lane that it has made.
func TestStore_EnqueueTx_capOfANewLane(t *testing.T) {
	_, s, _ := appStore(t, nil)
	ctx := context.Background()
	if err := s.Configure(ctx, storage.Lane{Queue: "fresh"}, storage.Settings{storage.SettingMaxJobs: 1}); err != nil {
		t.Fatal(err)
	}
	err := inTx(ctx, s, func(tx *sql.Tx) error {
		for _, want := range []error{nil, storage.ErrQueueFull} {
			if _, err := s.EnqueueTx(ctx, tx, t0, []storage.NewJob{newJob("fresh", "a")}); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
