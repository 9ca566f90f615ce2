package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

func TestSchedules_PauseAndResume(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		ctx, all := t.Context(), a.Schedules()
		a.work(nil)
		a.declare(errand.Schedule{Name: "x", Spec: "@hourly", Missed: errand.MissedAll(100)})
		time.Sleep(90 * time.Minute)
		for range 2 {
			if err := all.Pause(ctx, "x"); err != nil {
				t.Fatal(err)
			}
		}
		if info := a.get("x"); !info.Paused || len(info.Next) != 5 || info.Next[0].Hour() != 2 {
			t.Errorf("paused: %+v", info)
		}
		time.Sleep(3 * time.Hour)
		for range 2 {
			if err := all.Resume(ctx, "x"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if got, want := a.ticks("x"), []string{"2000-01-01T01:00:00Z", "2000-01-01T05:00:00Z"}; !slices.Equal(got, want) {
			t.Errorf("ran %v, want %v", got, want)
		}
		a.wantHistory("x", "fired 2000-01-01T05:00:00Z", "paused 2000-01-01T02:00:00Z to 2000-01-01T04:00:00Z: 3", "fired 2000-01-01T01:00:00Z")

		// A pause without a tick leaves no trace, one of a single tick that.
		a.pauseFor("x", time.Minute)
		a.pauseFor("x", time.Hour)
		time.Sleep(time.Hour) // to 07:31
		a.wantHistory("x", "fired 2000-01-01T07:00:00Z", "paused 2000-01-01T06:00:00Z", "fired 2000-01-01T05:00:00Z",
			"paused 2000-01-01T02:00:00Z to 2000-01-01T04:00:00Z: 3", "fired 2000-01-01T01:00:00Z")
	})
}

func (a *agenda) pauseFor(name string, d time.Duration) {
	a.t.Helper()
	if err := a.Schedules().Pause(a.t.Context(), name); err != nil {
		a.t.Fatal(err)
	}
	time.Sleep(d)
	if err := a.Schedules().Resume(a.t.Context(), name); err != nil {
		a.t.Fatal(err)
	}
}

// Ticks that come at the moment of the resumption are not lost, nor told twice.
func TestSchedules_ResumeOnTheTick(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		a.work(nil)
		a.declare(errand.Schedule{Name: "x", Spec: "@hourly"})
		a.pauseFor("x", time.Hour)
		time.Sleep(time.Hour)
		synctest.Wait()
		a.wantHistory("x", "fired 2000-01-01T02:00:00Z", "paused 2000-01-01T01:00:00Z")
		if got := a.ticks("x"); len(got) != 1 {
			t.Errorf("ran %v, want one", got)
		}
	})
}

func TestSchedules_Run(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		ctx, all := t.Context(), a.Schedules()
		a.declare(errand.Schedule{
			Name: "x", Spec: "@hourly", Zone: "Asia/Kolkata", Args: note{N: 7}, Overlap: errand.OverlapSkip, Jitter: time.Hour,
			Options: &errand.JobOptions{Headers: map[string]string{"k": "v"}},
		})
		a.declare(errand.Schedule{Name: "unique", Spec: "@hourly", Options: &errand.JobOptions{Unique: &errand.Unique{Key: "u"}}})
		next := a.get("x").Next
		time.Sleep(1500 * time.Millisecond)
		if err := all.Pause(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		var ids []errand.ID
		for range 2 { // the second while the first is not over
			e, err := all.Run(ctx, "x")
			if err != nil || e.Duplicate || slices.Contains(ids, e.ID) {
				t.Fatalf("Run gave %v, %v", e, err)
			}
			ids = append(ids, e.ID)
		}
		j := lookUp(t, a.Queue, ids[0])
		if j.State != errand.Ready || string(j.Args) != `{"Text":"","N":7}` || len(j.Headers) != 3 || j.Headers["k"] != "v" ||
			j.Headers["errand-schedule"] != "x" || j.Headers["errand-tick"] != "2000-01-01T05:30:01+05:30" {
			t.Errorf("the job is %+v", j)
		}
		info := a.get("x")
		if !slices.EqualFunc(info.Next, next, time.Time.Equal) || info.LastJob != ids[1] || !info.LastTick.Equal(time.Now()) {
			t.Errorf("after that: %+v, want next %v, and the last tick now, of %v", info, next, ids[1])
		}
		a.wantHistory("x", "manual 2000-01-01T05:30:01+05:30", "manual 2000-01-01T05:30:01+05:30")

		first, err := all.Run(ctx, "unique")
		if err != nil || first.Duplicate {
			t.Fatalf("Run gave %v, %v", first, err)
		}
		if second, err := all.Run(ctx, "unique"); err != nil || second != (errand.Enqueued{ID: first.ID, Duplicate: true, Key: "u"}) {
			t.Errorf("Run gave %v, %v: want a duplicate of %v", second, err, first.ID)
		}
		a.wantHistory("unique", "duplicate 2000-01-01T00:00:01Z", "manual 2000-01-01T00:00:01Z")
	})
}

func TestSchedules_KeepAndRemove(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		ctx, all := t.Context(), a.Schedules()
		for _, name := range []string{"a", "b", "c", "d"} {
			a.declare(errand.Schedule{Name: name, Spec: "@hourly"})
		}
		if _, err := all.Run(ctx, "d"); err != nil {
			t.Fatal(err)
		}
		names := func() (names []string) {
			for _, info := range must(all.List(ctx)) {
				names = append(names, info.Name)
			}
			return names
		}
		if got, err := all.Keep(ctx, "b", "d", "new"); err != nil || !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("Keep gave %v, %v: want a, c", got, err)
		}
		if got := names(); !slices.Equal(got, []string{"b", "d"}) {
			t.Errorf("left are %v, want b, d", got)
		}
		if err := all.Remove(ctx, "d"); err != nil {
			t.Error(err)
		}
		if n := a.live(); n != 1 {
			t.Errorf("%d jobs, want that of the schedule that is gone", n)
		}
		a.declare(errand.Schedule{Name: "d", Spec: "@hourly"})
		a.wantHistory("d")
		if got, err := all.Keep(ctx); err != nil || !slices.Equal(got, []string{"b", "d"}) {
			t.Errorf("Keep of nothing gave %v, %v: want b, d", got, err)
		}
		if got := names(); len(got) > 0 {
			t.Errorf("left are %v, want none", got)
		}
		_, err := all.Keep(ctx, "ok", "not ok")
		wantFaults(t, err, fault{"names[1]", `"not ok"`, "must match"})
	})
}

func TestSchedules_NoSuch(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		for name, call := range calls(t.Context(), a.Schedules()) {
			if err := call("x"); !errors.Is(err, errand.ErrNotFound) || !strings.Contains(err.Error(), `schedule "x"`) {
				t.Errorf("%s of no schedule: %v", name, err)
			}
			wantFaults(t, call("x y"), fault{"name", `"x y"`, "must match"})
		}
	})
}

// calls are those about a schedule of some name.
func calls(ctx context.Context, s *errand.Schedules) map[string]func(name string) error {
	return map[string]func(string) error{
		"Get":     func(name string) error { _, err := s.Get(ctx, name); return err },
		"Pause":   func(name string) error { return s.Pause(ctx, name) },
		"Resume":  func(name string) error { return s.Resume(ctx, name) },
		"Run":     func(name string) error { _, err := s.Run(ctx, name); return err },
		"Remove":  func(name string) error { return s.Remove(ctx, name) },
		"History": func(name string) error { _, err := s.History(ctx, name); return err },
	}
}

func TestSchedules_StoreWithout(t *testing.T) {
	q, err := errand.New(t.Context(), noTx{storagetest.NewMemory().Open()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := calls(t.Context(), q.Schedules())
	all["List"] = func(string) error { _, err := q.Schedules().List(t.Context()); return err }
	all["Keep"] = func(string) error { _, err := q.Schedules().Keep(t.Context()); return err }
	all["Schedule"] = func(name string) error {
		return q.Schedule(t.Context(), errand.Schedule{Name: name, Spec: "@daily", Args: note{}})
	}
	for name, call := range all {
		if err := call("x"); !errors.Is(err, errand.ErrUnsupportedDB) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// contested is a store on which others are quicker, so many times.
type contested struct {
	storage.Store
	storage.Scheduler
	lose int
	do   func()
}

func (c *contested) Schedule(ctx context.Context, name string) (storage.ScheduleRecord, error) {
	found, err := c.Scheduler.Schedule(ctx, name)
	if c.lose > 0 {
		c.lose--
		c.do()
	}
	return found, err
}

// Whoever comes too late looks again.
func TestSchedules_LostRaces(t *testing.T) {
	ctx := t.Context()
	db := storagetest.NewMemory()
	store := db.Open()
	other, err := errand.New(ctx, db.Open(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	change := func() {
		n++
		if err := other.Schedule(ctx, errand.Schedule{Name: "x", Spec: "@hourly", Args: note{N: n}}); err != nil {
			t.Fatal(err)
		}
	}
	c := &contested{Store: store, Scheduler: store.(storage.Scheduler), do: change}
	q, err := errand.New(ctx, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine := errand.Schedule{Name: "x", Spec: "@daily", Args: note{N: -1}}
	all := calls(ctx, q.Schedules())
	all["Schedule"] = func(string) error { return q.Schedule(ctx, mine) }
	for _, name := range []string{"Schedule", "Pause", "Resume", "Run"} {
		c.lose = 3
		if err := all[name]("x"); err != nil {
			t.Errorf("%s after three lost races: %v", name, err)
		}
		if c.lose > 0 {
			t.Errorf("%s did not look again: %d races left", name, c.lose)
		}
	}
	info := must(q.Schedules().Get(ctx, "x"))
	if info.Spec != "@hourly" || info.Paused || string(info.Args) != fmt.Sprintf(`{"Text":"","N":%d}`, n) {
		t.Errorf("in the end: %+v, want what the other declared last, N = %d, resumed", info, n)
	}
	if ticks := must(q.Schedules().History(ctx, "x")); len(ticks) != 1 || ticks[0].Taken != errand.TickManual {
		t.Errorf("the history is %v, want one that was run", ticks)
	}
	c.lose = 1 << 20
	for _, name := range []string{"Schedule", "Pause", "Run"} {
		if err := all[name]("x"); err == nil || !strings.Contains(err.Error(), `schedule "x": others have changed it during each of 20 tries`) {
			t.Errorf("%s that always comes late: %v", name, err)
		}
	}
}

// What was decided in a month that was wrong does not count in the right one.
func TestSchedules_ClockSetBack(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		a.wall.set(plausibly + 30*day)
		a.declare(errand.Schedule{Name: "x", Spec: "30 * * * *"})
		if err := a.Schedules().Pause(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		a.wall.set(plausibly)
		a.Clock()
		time.Sleep(clockPatience)
		a.Clock()
		first := time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC).Add(plausibly)
		if got := a.get("x").Next[0]; !got.Equal(first) {
			t.Errorf("next is %v, want %v", got, first)
		}
		if err := a.Schedules().Resume(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		a.wantHistory("x")
		a.work(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := a.ticks("x"); len(got) != 1 || got[0] != first.Format(time.RFC3339) {
			t.Errorf("ran %v, want %v", got, first)
		}
	})
}

// Those who ask at the same time all get what they ask for.
func TestSchedules_RunAtOnce(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		a.declare(errand.Schedule{Name: "x", Spec: "* * * * * *"})
		a.work(nil)
		const n = 400
		errs := make(chan error, n)
		for i := range n {
			go func() {
				if i%10 == 0 {
					errs <- a.Schedule(t.Context(), errand.Schedule{Name: "x", Spec: "* * * * * *", Args: note{N: i}})
				} else {
					_, err := a.Schedules().Run(t.Context(), "x")
					errs <- err
				}
			}()
		}
		for range n {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if got := a.took(); len(got) != n-n/10 {
			t.Errorf("%d jobs, want %d", len(got), n-n/10)
		}
	})
}

// A schedule that cannot be read here keeps nobody from the others.
func TestSchedules_Unreadable(t *testing.T) {
	onMemory(t, func(t *testing.T, a *agenda) {
		a.declare(errand.Schedule{Name: "fine", Spec: "@hourly"})
		s := storage.Schedule{
			Name: "alien", Spec: "@daily", Zone: "Mars/Olympus", Missed: "some",
			Job: storage.NewJob{Queue: "default", Kind: "note", Args: []byte("{}"), Headers: []byte("?"), Policy: []byte("!")},
		}
		if _, err := a.open().(storage.Scheduler).PutSchedule(t.Context(), time.Now(), s); err != nil {
			t.Fatal(err)
		}
		infos, err := a.Schedules().List(t.Context())
		if len(infos) != 2 || infos[0].Name != "alien" || infos[0].Kind != "note" || infos[0].Next != nil || len(infos[1].Next) != 5 {
			t.Errorf("List gave %+v", infos)
		}
		for _, what := range []string{`policy of schedule "alien"`, `headers of schedule "alien"`, `schedule "alien": schedule: missed "some"`,
			`schedule "alien": schedule: zone "Mars/Olympus"`} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("List gave %v: want it to name the %s", err, what)
			}
		}
		h := a.Health(t.Context(), nil)
		h.Reasons = slices.DeleteFunc(h.Reasons, func(r errand.HealthReason) bool { return r.Code == errand.HealthClock })
		if len(h.Reasons) != 1 || h.Reasons[0].Code != errand.HealthSchedule || h.Reasons[0].Schedule != "alien" || !h.Ready ||
			!strings.Contains(h.Reasons[0].Text, `"alien" is not fired here`) || !strings.Contains(h.Reasons[0].Text, "Mars/Olympus") {
			t.Errorf("the health is %+v", h)
		}
		a.work(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := a.ticks("fine"); len(got) != 1 {
			t.Errorf("ran %v, want one of fine", got)
		}
		all := calls(t.Context(), a.Schedules())
		for name, call := range all {
			if name == "Resume" { // of one that is not paused there is nothing to read
				if err := all["Pause"]("alien"); err != nil {
					t.Fatal(err)
				}
			}
			if err := call("alien"); (err == nil) != (name == "Pause" || name == "Remove") {
				t.Errorf("%s: %v", name, err)
			}
			if name == "Remove" {
				if _, err := a.open().(storage.Scheduler).PutSchedule(t.Context(), time.Now(), s); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// unlisted is a store that lists no schedules.
type unlisted struct {
	storage.Store
	storage.Scheduler
}

var errListed = errors.New("all schedules were read")

func (unlisted) Schedules(context.Context) ([]storage.ScheduleRecord, error) { return nil, errListed }

//errand:shows many schedules | | declaring one, or asking for one, costs the same however many there are
func TestSchedules_ReadByName(t *testing.T) {
	store := storagetest.NewMemory().Open()
	q, err := errand.New(t.Context(), unlisted{store, store.(storage.Scheduler)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, all := t.Context(), q.Schedules()
	for _, err := range []error{
		q.Schedule(ctx, errand.Schedule{Name: "a", Spec: "@daily", Args: note{}}),
		q.Schedule(ctx, errand.Schedule{Name: "a", Spec: "@hourly", Args: note{}}),
		all.Pause(ctx, "a"),
		all.Resume(ctx, "a"),
		func() error { _, err := all.Run(ctx, "a"); return err }(),
		func() error { _, err := all.Get(ctx, "a"); return err }(),
		func() error { _, err := all.History(ctx, "a"); return err }(),
		all.Remove(ctx, "a"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := all.Get(ctx, "a"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("Get of one that is removed: %v", err)
	}
}

// Of the options of its jobs a schedule has the queue in JSON.
func TestScheduleInfo_JSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	info := errand.ScheduleInfo{
		Name: "nightly", Spec: "0 2 * * *", Zone: "UTC", Missed: errand.MissedAll(3), Overlap: errand.OverlapSkip, Jitter: time.Minute,
		Kind: "note", Options: errand.JobOptions{Queue: "a"}, Next: []time.Time{at},
	}
	b, err := json.Marshal(info)
	if want := `{"name":"nightly","spec":"0 2 * * *","zone":"UTC","missed":"all(3)","overlap":"skip","jitter_s":60,"kind":"note","paused":false,` +
		`"next":["2026-03-01T12:00:00Z"],"queue":"a"}`; err != nil || string(b) != want {
		t.Errorf("schedule is %s, %v", b, err)
	}
	var got errand.ScheduleInfo
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, info) {
		t.Errorf("read %+v, %v", got, err)
	}
	// What no schedule has is read, and refused where a schedule would get it.
	q := openQueue(t, nil)
	for _, text := range []string{`{"missed":"all(0)"}`, `{"overlap":"never"}`} {
		var read errand.ScheduleInfo
		if err := json.Unmarshal([]byte(text), &read); err != nil {
			t.Fatal(err)
		}
		s := errand.Schedule{Name: "nightly", Spec: "@daily", Args: note{}, Missed: read.Missed, Overlap: read.Overlap}
		if err := q.Schedule(t.Context(), s); !errors.Is(err, errand.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", text, err)
		}
	}
}
