package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// Jobs are refused from the moment at which less than MinFree is free, or a second later,
// and come in again when there is more. Free space is read once a second, and never if
// nothing is set.
func TestMinFree(t *testing.T) {
	path := t.TempDir() + "/jobs.db"
	const plenty, least = 1 << 40, 1 << 30
	set, reads := sqlite.FreeSpace(t, plenty)
	synctest.Test(t, func(t *testing.T) {
		log := &lines{attr: "free"}
		d := &db{t, path, &sqlite.Options{SingleProcess: true, Ballast: -1, Logger: slog.New(log)}}
		s, ctx := d.open(), context.Background()
		add := func(what string, want bool) {
			t.Helper()
			_, err := s.Enqueue(ctx, t0, one())
			var full *storage.QueueFullError
			if want && err != nil || !want && (!errors.As(err, &full) || full.Queue != "" || full.MinFree != least || full.Free != least-1 || full.MaxJobs != 0) {
				t.Errorf("%s: %v", what, err)
			}
		}
		before := reads()
		add("nothing is set", true)
		if n := reads() - before; n != 0 {
			t.Errorf("free space was read %d times for nothing", n)
		}
		if err := s.Configure(ctx, storage.Lane{}, storage.Settings{storage.SettingMinFree: least}); err != nil {
			t.Fatal(err)
		}
		before = reads()
		for range 10 {
			add("plenty", true)
		}
		set(least - 1)
		add("it is not known yet", true)
		if n := reads() - before; n != 1 {
			t.Errorf("free space was read %d times in a second", n)
		}
		time.Sleep(time.Second)
		add("too little", false)
		err := inTx(ctx, s, func(tx *sql.Tx) error {
			_, err := s.EnqueueTx(ctx, tx, t0, one())
			return err
		})
		if !errors.Is(err, storage.ErrQueueFull) {
			t.Errorf("EnqueueTx: %v", err)
		}
		set(least)
		add("it is not known yet", false)
		time.Sleep(time.Second)
		add("enough", true)
		set(-1)
		time.Sleep(time.Second)
		add("the system does not say", true)
		set(plenty)
		time.Sleep(time.Second)
		add("plenty", true)
		set(least * 5 / 4)
		time.Sleep(time.Second)
		add("nearly too little", true)
		add("nearly too little", true)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		const hardly = "errand: there is hardly more free space than new jobs need "
		if want := []string{hardly + "1073741823", hardly + "1342177280"}; !slices.Equal(log.all, want) {
			t.Errorf("the log has %q, want %q", log.all, want)
		}
	})
}

// Room is kept for dead letters that were redriven, by any process, though they are no new
// jobs.
func TestReserve_Redriven(t *testing.T) {
	ctx := context.Background()
	opts := &sqlite.Options{Durability: sqlite.Relaxed, Ballast: -1}
	for _, by := range []string{"the store", "another process"} {
		t.Run(by, func(t *testing.T) {
			set, _ := sqlite.FreeSpace(t, 1<<40)
			d := newDB(t, opts)
			s := d.open()
			dead(t, s, 20_000)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			set(3 << 20)
			s = d.open()
			redrives := s
			if by != "the store" {
				redrives = d.open()
			}
			enqueue(t, s, "a", 1) // there is room for it, and jobs are counted
			n, err := 0, error(nil)
			for err == nil && n < 20_000 {
				var step storage.Step
				step, err = redrives.Redrive(ctx, t0, storage.Selection{}, "")
				n += step.N
			}
			if n == 0 || !errors.Is(err, storage.ErrFull) {
				t.Errorf("%d were redriven, then %v, want ErrFull", n, err)
			}
			many := slices.Repeat(one(), 500) // a step of Redrive
			if _, err := s.Enqueue(ctx, t0, many); !errors.Is(err, storage.ErrFull) {
				t.Errorf("Enqueue: %v, want ErrFull", err)
			}
			err = inTx(ctx, s, func(tx *sql.Tx) error { _, err := s.EnqueueTx(ctx, tx, t0, many); return err })
			if !errors.Is(err, storage.ErrFull) {
				t.Errorf("EnqueueTx: %v, want ErrFull", err)
			}
		})
	}
}

// dead makes n dead letters with args of 300 bytes.
func dead(t *testing.T, s *sqlite.Store, n int) {
	t.Helper()
	job := newJob("default", "a")
	job.Args = bytes.Repeat([]byte("1"), 300)
	for range n / 1000 {
		if _, err := s.Enqueue(context.Background(), t0, slices.Repeat([]storage.NewJob{job}, 1000)); err != nil {
			t.Fatal(err)
		}
		var x storage.Exchange
		for _, l := range lease(t, s, 1000, "a") {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent})
		}
		if _, err := s.Exchange(context.Background(), t0, x); err != nil {
			t.Fatal(err)
		}
	}
}
