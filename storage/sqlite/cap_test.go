package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// capped sets caps of the queue "default".
func capped(t *testing.T, s *sqlite.Store, jobs int64, full storage.WhenFull) {
	t.Helper()
	err := s.Configure(context.Background(), storage.Lane{Queue: "default"},
		storage.Settings{storage.SettingMaxJobs: jobs, storage.SettingWhenFull: int64(full)})
	if err != nil {
		t.Fatal(err)
	}
}

// A call that is refused is an answer: the others of its batch do not run again for it.
func TestCaps_RefusedBesideOthers(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	capped(t, s, 2, storage.Refuse)
	enqueue(t, s, "a", 2)
	begun := s.Begun()
	refused := func() error {
		_, err := s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("default", "a")})
		if !errors.Is(err, storage.ErrQueueFull) {
			return fmt.Errorf("full queue: %w", err)
		}
		return nil
	}
	other := func() error {
		_, err := s.Enqueue(context.Background(), t0, []storage.NewJob{newJob("other", "a")})
		return err
	}
	together(t, s, refused, other, refused, other)
	if n := s.Begun() - begun; n != 2 { // that of the stall is one
		t.Errorf("%d transactions, want 2", n)
	}
	if c := counts(t, s); c[storage.Ready] != 4 {
		t.Errorf("counts %v", c)
	}
}

// The use that a connection remembers is right after others have written, after what
// was rolled back, and after calls that are not about caps.
//
//errand:shows caps
func TestCaps_RememberedUse(t *testing.T) {
	ctx := context.Background()
	d := newDB(t, nil)
	s, other := d.open(), d.open()
	capped(t, s, 3, storage.Refuse)
	add := func(what string, s *sqlite.Store, want bool) {
		t.Helper()
		_, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")})
		if (err == nil) != want || err != nil && !errors.Is(err, storage.ErrQueueFull) {
			t.Errorf("%s: %v", what, err)
		}
	}
	add("first", s, true)
	add("second", other, true)
	s.Fault(func(bool) error { return storage.ErrBusy })
	if _, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")}); !errors.Is(err, storage.ErrBusy) {
		t.Fatal(err)
	}
	s.Fault(nil)
	add("after one that came to nothing", s, true)
	add("fourth", s, false)
	held := lease(t, s, 2, "a")
	add("two run", s, true)
	add("two run", s, true)
	add("two run, three wait", s, false)
	add("elsewhere", other, false)
	x := storage.Exchange{Finish: []storage.Finish{
		{Lease: held[0].Lease, Outcome: storage.OutcomeReturned}, {Lease: held[1].Lease, Outcome: storage.OutcomeDone},
	}}
	if _, err := s.Exchange(ctx, t0, x); err != nil {
		t.Fatal(err)
	}
	lease(t, other, 1, "a")
	add("four waited, one of which runs", s, false)
	lease(t, other, 1, "a")
	add("two wait", s, true)
}

// Transactions of the application obey caps, and what they evict is told of only when
// they have committed.
//
//errand:shows caps
func TestCaps_EnqueueTx(t *testing.T) {
	ctx := context.Background()
	app, s, _ := appStore(t, nil)
	capped(t, s, 2, storage.EvictOldest)
	var told []storage.ID
	s.NotifyEvicted(func(_ time.Time, jobs []storage.Evicted) {
		for _, j := range jobs {
			told = append(told, j.ID)
		}
	})
	one := []storage.NewJob{newJob("default", "a")}
	first := enqueue(t, s, "a", 2)
	in := func(tx *sql.Tx) (storage.ID, error) {
		out, err := s.EnqueueTx(ctx, tx, t0, one)
		if err != nil {
			return storage.ID{}, err
		}
		if len(told) > 0 {
			t.Errorf("told of %v before the commit", told)
		}
		return out[0].ID, nil
	}
	var third storage.ID
	rollback := errors.New("no")
	for _, want := range []error{rollback, nil} {
		err := inTx(ctx, s, func(tx *sql.Tx) (err error) {
			if third, err = in(tx); err != nil {
				return err
			}
			return want
		})
		if !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	if !slices.Equal(told, []storage.ID{first[0].ID}) {
		t.Errorf("told of %v, want the first, %v", told, first[0].ID)
	}
	told = nil
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the second and third take the places of those of the transaction itself
		if _, err := in(tx); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if c := counts(t, s); c[storage.Ready] != 2 {
		t.Errorf("counts %v", c)
	}
	for _, id := range []storage.ID{first[1].ID, third} {
		if _, err := s.Job(ctx, id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("job %v: %v, want it evicted", id, err)
		}
	}
	capped(t, s, 2, storage.Refuse)
	err = inTx(ctx, s, func(tx *sql.Tx) error {
		if _, err := s.EnqueueTx(ctx, tx, t0, one); !errors.Is(err, storage.ErrQueueFull) {
			t.Errorf("EnqueueTx returned %v", err)
		}
		_, err := s.EnqueueTx(ctx, tx, t0, []storage.NewJob{newJob("other", "a")})
		return err
	})
	if err != nil {
		t.Errorf("after an EnqueueTx that was refused: %v", err)
	}
}

// lines are the messages of a log, with the values of one attribute.
type lines struct {
	slog.Handler
	mu   sync.Mutex
	all  []string
	attr string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == l.attr {
			l.all = append(l.all, fmt.Sprint(r.Message, " ", a.Value))
		}
		return true
	})
	return nil
}

// The log warns when 80 and 95 % of a cap are in use, once until the use was less by 10 % of the cap.
func TestCaps_Marks(t *testing.T) {
	log := &lines{attr: "percent"}
	d := newDB(t, &sqlite.Options{Logger: slog.New(log)})
	s := d.open()
	capped(t, s, 100, storage.Refuse)
	enqueue(t, s, "a", 79)
	for range 3 {
		enqueue(t, s, "a", 1)
		lease(t, s, 9, "a")
		enqueue(t, s, "a", 8)
	} // 80, 71 to 79, and so on
	enqueue(t, s, "a", 20)
	lease(t, s, 10, "a")
	enqueue(t, s, "a", 9)
	lease(t, s, 25, "a") // 70
	enqueue(t, s, "a", 20)
	lease(t, s, 30, "a")
	enqueue(t, s, "a", 19)
	enqueue(t, s, "a", 17)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const almost = "errand: a queue is almost full "
	if want := []string{almost + "80", almost + "99", almost + "99"}; !slices.Equal(log.all, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(log.all, "\n"), strings.Join(want, "\n"))
	}
}

// The log says of a queue that fills slowly that it is almost full, and then that it is full, once until the
// use was less than 90 %.
func TestCaps_FullSlowly(t *testing.T) {
	log := &lines{attr: "percent"}
	d := newDB(t, &sqlite.Options{Logger: slog.New(log)})
	s := d.open()
	capped(t, s, 20, storage.Refuse)
	for range 20 {
		enqueue(t, s, "a", 1)
	}
	for _, n := range []int{1, 4} { // it is looked at as a job comes: 100 %, and 85 %
		lease(t, s, n, "a")
		for range n {
			enqueue(t, s, "a", 1)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const full = "errand: a queue is full 100"
	if want := []string{"errand: a queue is almost full 80", "errand: a queue is almost full 95", full, full}; !slices.Equal(log.all, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(log.all, "\n"), strings.Join(want, "\n"))
	}
}

// The log says of a cap that is reached at once that it is, and not almost.
func TestCaps_FullLog(t *testing.T) {
	log := &lines{attr: "percent"}
	d := newDB(t, &sqlite.Options{Logger: slog.New(log)})
	s := d.open()
	capped(t, s, 2, storage.Refuse)
	enqueue(t, s, "a", 2)
	capped(t, s, 0, storage.Refuse)
	if err := s.Configure(context.Background(), storage.Lane{}, storage.Settings{storage.SettingMaxJobs: 3}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "b", 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"errand: a queue is full 100", "errand: the file is full of jobs that wait 100"}; !slices.Equal(log.all, want) {
		t.Errorf("the log has %q, want %q", log.all, want)
	}
}

// The log has a line of the first job that is evicted of a lane, and of each power of ten
// of them, also over a restart.
func TestCaps_EvictedLog(t *testing.T) {
	log := &lines{attr: "total"}
	d := newDB(t, &sqlite.Options{Logger: slog.New(log)})
	s := d.open()
	capped(t, s, 1, storage.EvictOldest)
	for range 8 {
		enqueue(t, s, "a", 1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = d.open()
	for range 120 {
		enqueue(t, s, "a", 1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const evicted = "errand: jobs were evicted to make room "
	if want := []string{evicted + "1", evicted + "10", evicted + "100"}; !slices.Equal(log.all, want) {
		t.Errorf("the log has %q, want %q", log.all, want)
	}
}

// A call evicts the oldest job of the file for a few statements, however many lanes there
// are, also beside a worker that leases and ends jobs.
func TestCaps_ManyLanes(t *testing.T) {
	ctx := context.Background()
	work := func(queues int) float64 {
		s := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true}).open()
		var jobs []storage.NewJob
		for i := range 1000 {
			jobs = append(jobs, newJob(fmt.Sprintf("q%d", i%queues), "a"))
		}
		if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
			t.Fatal(err)
		}
		err := s.Configure(ctx, storage.Lane{}, storage.Settings{
			storage.SettingMaxJobs: 1000, storage.SettingWhenFull: int64(storage.EvictOldest),
		})
		if err != nil {
			t.Fatal(err)
		}
		want := storage.Want{Kinds: []string{"a"}, N: 1}
		for i := range min(queues, 50) {
			want.Queues = append(want.Queues, fmt.Sprintf("q%d", (900+i)%queues))
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{want}}
		n := 0
		return testing.AllocsPerRun(200, func() {
			n++
			if _, err := s.Enqueue(ctx, t0, jobs[n:n+2]); err != nil {
				t.Fatal(err)
			}
			if n%10 > 0 {
				return
			}
			r, err := s.Exchange(ctx, t0, x)
			if err != nil || len(r.Leased) != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			x.Finish = []storage.Finish{{Lease: r.Leased[0].Lease, Outcome: storage.OutcomeDone}}
		})
	}
	if one, many := work(2), work(1000); many > 1.5*one {
		t.Errorf("a call takes %.0f allocations with 1,000 lanes, with 2 %.0f", many, one)
	}
}

// The log warns when there are 80 and 95 % of the dead letters that there may be, once until
// there were fewer by 10 %, and says how many were evicted, also over a restart.
//
//errand:shows caps
func TestCaps_DeadLog(t *testing.T) {
	ctx := context.Background()
	log := &lines{attr: "percent"}
	d := newDB(t, &sqlite.Options{Logger: slog.New(log)})
	s := d.open()
	set := func(full storage.WhenDeadFull) {
		t.Helper()
		err := s.Configure(ctx, storage.Lane{Queue: "default"}, storage.Settings{storage.SettingMaxDead: 20, storage.SettingWhenDeadFull: int64(full)})
		if err != nil {
			t.Fatal(err)
		}
	}
	die := func(n int) {
		t.Helper()
		enqueue(t, s, "a", n)
		for _, l := range lease(t, s, n, "a") {
			x := storage.Exchange{Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}}}
			if _, err := s.Exchange(ctx, t0, x); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(storage.KeepDead)
	die(17)
	die(1) // 90 %
	if _, err := s.Delete(ctx, storage.Selection{Filter: storage.Filter{States: []storage.State{storage.Dead}}}); err != nil {
		t.Fatal(err)
	}
	die(15)
	die(5)
	if err := s.Close(); err != nil { // all warnings are written then
		t.Fatal(err)
	}
	log.attr = "total"
	s = d.open()
	set(storage.EvictDead)
	die(8)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = d.open()
	die(12)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const almost, evicted = "errand: there are almost as many dead letters as there may be ", "errand: dead letters were evicted, as there were too many "
	if want := []string{almost + "80", almost + "80", almost + "95", evicted + "1", evicted + "10"}; !slices.Equal(log.all, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(log.all, "\n"), strings.Join(want, "\n"))
	}
}
