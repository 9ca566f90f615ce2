package torture_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	driver "modernc.org/sqlite"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

func init() {
	roles["convert"], roles["write"], roles["careless"] = convert, write, careless
	roles["writing"] = func(p part, v *voice) error { return writing(p, v) }
	roles["touching"] = func(p part, v *voice) error { return writing(p, v, "-shm") }
}

// convert is a program that takes the database out of WAL mode, which needs it
// for itself alone.
func convert(p part, v *voice) error {
	db, err := sql.Open("sqlite", "file:"+p.DB+"?mode=rw")
	if err != nil {
		return err
	}
	defer db.Close()
	var mode string
	err = db.QueryRow("PRAGMA journal_mode=DELETE").Scan(&mode)
	if err == nil && mode != "delete" {
		err = errors.New("it stays in mode " + mode)
	}
	return answerTry(v, err, err != nil)
}

// write is a program that tries once to write, at once: with errand, or without
// any courtesy.
func write(p part, v *voice) error {
	if p.Workers > 0 {
		s, err := sqlite.Open(p.DB, &sqlite.Options{BusyTimeout: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = s.Hold(context.Background(), time.Now(), storage.Hold{Lane: storage.Lane{Queue: "other"}, Reason: storage.HoldPaused})
			err = errors.Join(err, s.Close())
		}
		return answerTry(v, err, errors.Is(err, errand.ErrBusy))
	}
	db, err := sql.Open("sqlite", "file:"+p.DB+"?mode=rw")
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec("BEGIN IMMEDIATE")
	return answerTry(v, err, err != nil)
}

func answerTry(v *voice, err error, refused bool) error {
	switch {
	case refused:
		v.say("refused")
	case err == nil:
		v.say("let in")
	default:
		return err
	}
	return nil
}

// touch opens and closes files of a database, as a backup or a curious program
// would: POSIX locks of the whole process on a file go with that.
func touch(path string, suffixes ...string) error {
	for _, suffix := range suffixes {
		f, err := os.Open(path + suffix)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// careless is a program with a database open of which a part touches all files;
// if it is fragile it has no OFD locks.
func careless(p part, v *voice) error {
	if _, err := driver.OFDLocking(!p.Fragile); err != nil {
		return err
	}
	db, err := raw(p.DB)
	if err != nil {
		return err
	}
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS mine (n INTEGER)"); err != nil {
		return err
	}
	if err := touch(p.DB, "", "-wal", "-shm"); err != nil {
		return err
	}
	v.say("touched")
	<-time.After(time.Minute) // until it is killed
	return nil
}

// writing is a program in the middle of a transaction of which a part touches
// these files. It does no more: what another does meanwhile may be its end.
func writing(p part, v *voice, suffixes ...string) error {
	db, err := raw(p.DB)
	if err != nil {
		return err
	}
	tx, err := db.Begin() // IMMEDIATE
	if err != nil {
		return err
	}
	if err := touch(p.DB, suffixes...); err != nil {
		return err
	}
	v.say("writing")
	<-time.After(time.Minute) // until it is killed
	return tx.Rollback()
}

// ask returns what a child says first.
func ask(t *testing.T, p part) string {
	t.Helper()
	c := start(t, newLedger(), p)
	answer := <-c.said
	c.finish(time.Minute)
	return answer
}

// Other code of the program may open and close the database and its log: the
// locks stay, and nobody takes the file for himself. The second half shows what
// OFD locks do for that, and that without them this test would see it.
//
//errand:shows [locks] | | other code of the process opens and closes the files
func TestLocks_SurviveOtherCode(t *testing.T) {
	path := filepath.Join(ramDir(t), "jobs.db")
	f := openLocal(t, path, part{})
	for range 5 {
		if err := f.enqueue(10); err != nil {
			t.Fatal(err)
		}
		if err := touch(path, "", "-wal"); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, part{Role: "convert", DB: path}); got != "refused" {
			t.Fatalf("another program that wants the file for itself was %s", got)
		}
	}
	err := f.q.Tx(t.Context(), func(*sql.Tx) error {
		if err := touch(path, "", "-wal"); err != nil {
			return err
		}
		if got := ask(t, part{Role: "write", DB: path}); got != "refused" {
			t.Errorf("another program was %s in the middle of a transaction", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.close(t)
	f.ledger.audit(t, path).mustBeClean(t, "opening and closing the file beside")

	for _, without := range []bool{false, true} {
		c := start(t, newLedger(), part{Role: "careless", DB: path, Fragile: without})
		c.hears("touched")
		got, want := ask(t, part{Role: "convert", DB: path}), map[bool]string{false: "refused", true: "let in"}[without]
		if got != want {
			t.Errorf("all files touched, without OFD locks %t: another program was %s, want %s", without, got, want)
		}
		c.kill()
	}
}

// The file of the shared memory is another matter: SQLite's locks on it are
// POSIX locks always, as the driver's OFDLocking says, and go with any close of
// it. Among processes of errand writing is still in turns.
//
//errand:shows [shm] | | other code opens and closes `jobs.db-shm`
func TestLocks_SharedMemoryTouched(t *testing.T) {
	path := filepath.Join(ramDir(t), "jobs.db")
	f := openLocal(t, path, part{})
	err := f.q.Tx(t.Context(), func(*sql.Tx) error {
		if err := touch(path, "", "-wal", "-shm"); err != nil {
			return err
		}
		if got := ask(t, part{Role: "write", DB: path, Workers: 1}); got != "refused" {
			t.Errorf("another process of errand was %s in the middle of a transaction", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.close(t) // which might not survive what follows
	// Other programs are let in: docs/guarantees.md says so. Once they are not,
	// it can promise more.
	for role, want := range map[string]string{"writing": "refused", "touching": "let in"} {
		c := start(t, newLedger(), part{Role: role, DB: path})
		c.hears("writing")
		if got := ask(t, part{Role: "write", DB: path}); got != want {
			t.Errorf("in the middle of a transaction of a program that is %s another program was %s, want %s", role, got, want)
		}
		c.kill()
	}
}
