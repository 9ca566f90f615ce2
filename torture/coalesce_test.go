//go:build unix

package torture_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["coalescing"] = coalescing }

// edit is the Version-th state of what has a key; with even keys it is put off.
type edit struct{ Key, Version int }

func (edit) Kind() string { return "edit" }

const (
	editQuiet = 100 * time.Millisecond
	editMost  = 400 * time.Millisecond
	editKeys  = 100
)

// coalescing is a program that edits and sends. The versions of a key are in the order of
// commits, since a table of its own counts them in the same transactions.
func coalescing(p part, _ *voice) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	q, err := errand.Open(context.Background(), p.DB, groupOptions(p.Relaxed))
	if err != nil {
		return err
	}
	r := receiver{filepath.Dir(p.DB)}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[edit]) error { return r.latest(job) })
	edited := make(chan error, 1)
	go func() {
		for range p.Jobs {
			if err := makeEdit(q, rand.IntN(editKeys)); err != nil {
				edited <- err
				return
			}
			<-time.After(rand.N(p.Pause))
		}
		edited <- nil
	}()
	if err := errors.Join(w.Run(ctx), <-edited); err != nil {
		return err
	}
	return q.Close()
}

func makeEdit(q *errand.Queue, key int) error {
	ctx := context.Background()
	c := errand.OnConflict{Mode: errand.Replace}
	if key%2 == 0 {
		c = errand.OnConflict{Mode: errand.Debounce, Quiet: editQuiet, MaxWait: editMost}
	}
	return q.Tx(ctx, func(tx *sql.Tx) error {
		e := edit{Key: key}
		err := tx.QueryRowContext(ctx, `INSERT INTO edited VALUES (?1, 1) ON CONFLICT DO UPDATE SET version = version + 1 RETURNING version`, key).Scan(&e.Version)
		if err != nil {
			return err
		}
		_, err = q.EnqueueTx(ctx, tx, e, &errand.JobOptions{Unique: &errand.Unique{Key: strconv.Itoa(key), OnConflict: c}})
		return err
	})
}

// latest takes a version, which must be later than the last one of its key.
func (r receiver) latest(job *errand.Job[edit]) (err error) {
	e, late := job.Args, time.Since(job.DueAt)
	f, err := os.OpenFile(r.path(fmt.Sprint("edit-", e.Key)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(err, r.complain("version %d of %d is beside another", e.Version, e.Key))
	}
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0) // to its end
	if last, _ := strconv.Atoi(strings.TrimSpace(string(b[:n]))); last >= e.Version {
		return r.complain("version %d of %d comes after %d", e.Version, e.Key, last)
	}
	if most := job.DueAt.Sub(job.CreatedAt); e.Key%2 == 0 && most > editMost {
		return r.complain("version %d of %d was put off by %v", e.Version, e.Key, most)
	}
	if full() && late > time.Second && e.Key%2 == 0 {
		return r.complain("version %d of %d comes %v too late", e.Version, e.Key, late)
	}
	<-time.After(rand.N(3 * time.Millisecond))
	_, err = f.WriteAt(fmt.Appendf(nil, "%-10d", e.Version), 0)
	return err
}

// Four processes edit and send what has 100 keys. One job waits for each, none is sent
// beside another or out of order, the last version of each arrives, and none is put off
// for longer than it may be.
func TestCoalesce(t *testing.T) {
	t.Parallel()
	edits, pause := 100, 4*time.Millisecond
	if full() {
		edits, pause = 8000, 6*time.Millisecond
	}
	path := filepath.Join(ramDir(t), "jobs.db")
	q, err := errand.Open(t.Context(), path, groupOptions(true))
	if err != nil {
		t.Fatal(err)
	}
	err = q.Tx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `CREATE TABLE edited (key INTEGER PRIMARY KEY, version INTEGER NOT NULL)`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	db, err := raw(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	one := func() {
		t.Helper()
		var key string
		err := db.QueryRow(`SELECT unique_key FROM errand_job WHERE state <> 3 GROUP BY unique_key HAVING COUNT(*) > 1`).Scan(&key)
		if !errors.Is(err, sql.ErrNoRows) {
			t.Fatalf("two jobs wait for key %q (%v)", key, err)
		}
		if b, err := os.ReadFile(receiver{filepath.Dir(path)}.path("complaints")); err == nil {
			t.Fatalf("%.2000s", b)
		}
	}
	l := newLedger() // of which nothing is asked
	var all []*child
	for range 4 {
		all = append(all, start(t, l, part{Role: "coalescing", DB: path, Relaxed: true, Jobs: edits, Pause: pause}))
	}
	await(t, 3*time.Minute, "all edits are made", func() bool {
		one()
		var n int
		return db.QueryRow(`SELECT COALESCE(SUM(version), 0) FROM edited`).Scan(&n) == nil && n == 4*edits
	})
	await(t, time.Minute, "all that was edited is sent", func() bool {
		one()
		var live int
		return db.QueryRow(`SELECT COUNT(*) FROM errand_job`).Scan(&live) == nil && live == 0
	})
	for _, c := range all {
		c.finishSoon(time.Minute)
	}
	rows, err := db.Query(`SELECT key, version FROM edited`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	total := 0
	for rows.Next() {
		var e edit
		if err := rows.Scan(&e.Key, &e.Version); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(receiver{filepath.Dir(path)}.path(fmt.Sprint("edit-", e.Key)))
		if got := strings.TrimSpace(string(b)); got != strconv.Itoa(e.Version) {
			t.Errorf("version %s of %d was sent last (%v), want %d", got, e.Key, err, e.Version)
		}
		total += e.Version
	}
	if err := rows.Err(); err != nil || total != 4*edits {
		t.Errorf("there were %d edits (%v), want %d", total, err, 4*edits)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	wantRules(t, path)
}
