package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

func TestSchedule_refusesBadInput(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for _, tt := range []struct {
		name string
		s    errand.Schedule
		want []fault
	}{
		{"nothing", errand.Schedule{}, []fault{
			{"name", `""`, "must match"}, {"spec", `""`, "must have five fields"}, {"args", "nil", "must not be nil"}}},
		{"bad name", errand.Schedule{Name: "a b"}, []fault{{"name", `"a b"`, "must match"}}},
		{"range", errand.Schedule{Spec: "1-100000000 * * * *"}, []fault{
			{"spec", `"1-100000000 * * * *"`, `minute "1-100000000": must be between 0 and 59`}}},
		{"long spec", errand.Schedule{Spec: long}, []fault{
			{"spec", `"` + long[:100] + `"... (10000 bytes)`, "must have at most 256 bytes"}}},
		{"no such date", errand.Schedule{Spec: "0 0 30 2 *"}, []fault{{"spec", `"0 0 30 2 *"`, "day of month: never comes"}}},
		{"zone in the spec", errand.Schedule{Spec: "TZ="}, []fault{{"spec", `"TZ="`, `zone "TZ=": must be given apart`}}},
		{"CRON_TZ", errand.Schedule{Spec: "CRON_TZ=UTC @daily"}, []fault{{"spec", `"CRON_TZ=UTC @daily"`, "zone"}}},
		{"spec and zone", errand.Schedule{Spec: "@never", Zone: "Europe/Atlantis"}, []fault{
			{"spec", `"@never"`, "must be @every"}, {"zone", `"Europe/Atlantis"`, "must be the name of a zone"}}},
		{"local zone", errand.Schedule{Zone: "Local"}, []fault{{"zone", `"Local"`, "must be a name"}}},
		{"none of all", errand.Schedule{Missed: errand.MissedAll(0)}, []fault{
			{"missed", `"all(0)"`, "must be MissedOne, MissedSkip or MissedAll of 1 to 1000"}}},
		{"less than none", errand.Schedule{Missed: errand.MissedAll(-5)}, []fault{{"missed", `"all(-5)"`, "must be"}}},
		{"too many", errand.Schedule{Missed: errand.MissedAll(1001)}, []fault{{"missed", `"all(1001)"`, "must be"}}},
		{"too much", errand.Schedule{Missed: errand.MissedAll(1000), Args: note{Text: strings.Repeat("a", 255<<10)}}, []fault{
			{"missed", `"all(1000)"`, "must be at most all(256) with args and headers of 261"}}},
		{"overlap", errand.Schedule{Overlap: "no"}, []fault{{"overlap", `"no"`, "must be OverlapAllow or OverlapSkip"}}},
		{"jitter", errand.Schedule{Jitter: 24*time.Hour + 1}, []fault{{"jitter", "24h0m0.000000001s", "must be between 0 and 24h0m0s"}}},
		{"negative jitter", errand.Schedule{Jitter: -1}, []fault{{"jitter", "-1ns", "must be"}}},
		{"args", errand.Schedule{Args: note{Text: strings.Repeat("a", 256<<10)}}, []fault{{"args", "262161", "must be at most"}}},
		{"kind", errand.Schedule{Args: ofKind("")}, []fault{{"kind", `""`, "must match"}}},
		{"options", errand.Schedule{Options: &errand.JobOptions{Priority: 101, Queue: "-"}}, []fault{
			{"options.queue", `"-"`, "must match"}, {"options.priority", "101", "must be"}}},
		{"times", errand.Schedule{Options: &errand.JobOptions{DueAt: time.Unix(0, 0).UTC(), Delay: -1}}, []fault{
			{"options.due_at", "1970-01-01T00:00:00Z", "must be zero: the spec says when"}, {"options.delay", "-1ns", "must be zero"}}},
		{"headers of ours", errand.Schedule{Options: &errand.JobOptions{Headers: map[string]string{"errand-tick": "x", "errand-schedule": "y"}}}, []fault{
			{`options.headers["errand-schedule"]`, `"y"`, "must not be set"}, {`options.headers["errand-tick"]`, `"x"`, "must not be set"}}},
		{"headers", errand.Schedule{Options: &errand.JobOptions{Headers: map[string]string{"k": strings.Repeat("a", 16<<10-9)}}}, []fault{
			{"options.headers", "16447", "must be at most 16384 bytes of JSON, with those that are added"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, _ := memoryQueue(t, errand.Options{})
			s := tt.s
			if !reflect.DeepEqual(s, errand.Schedule{}) {
				if s.Name == "" {
					s.Name = "x"
				}
				if s.Spec == "" {
					s.Spec = "@daily"
				}
				if s.Args == nil {
					s.Args = note{}
				}
			}
			wantFaults(t, q.Schedule(t.Context(), s), tt.want...)
			if all, err := q.Schedules().List(t.Context()); len(all) > 0 || err != nil {
				t.Errorf("List gave %v, %v: want nothing", all, err)
			}
		})
	}
}

func TestSchedule_Declare(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		own := policy.Policy{Retries: 1, MinDelay: time.Second, MaxDelay: time.Second}
		s := errand.Schedule{
			Name: "report", Spec: " 30 2  * * *", Zone: "Europe/Berlin", Args: note{"hi", 1},
			Options: &errand.JobOptions{
				Queue: "mail", Priority: 7, Policy: &own, Timeout: time.Hour + 1, Unique: &errand.Unique{Key: "a b", Forever: true},
				Headers: map[string]string{"trace": "x"},
			},
			Missed: errand.MissedAll(12), Overlap: errand.OverlapSkip, Jitter: time.Minute + 1,
		}
		a.declare(s)
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		want := errand.ScheduleInfo{
			Name: "report", Spec: "30 2 * * *", Zone: "Europe/Berlin", Missed: errand.MissedAll(12), Overlap: errand.OverlapSkip,
			Jitter: time.Minute, Kind: "note", Args: []byte(`{"Text":"hi","N":1}`),
			Options: errand.JobOptions{
				Queue: "mail", Priority: 7, Policy: policy.Document{Retry: &own}, Timeout: time.Hour,
				Unique: &errand.Unique{Key: "a b", Forever: true}, Headers: map[string]string{"trace": "x"},
			},
		}
		for day := 1; day <= 5; day++ { // the bubble begins on 2000-01-01
			want.Next = append(want.Next, time.Date(2000, 1, day, 2, 30, 0, 0, berlin))
		}
		if got := a.get("report"); !reflect.DeepEqual(got, want) {
			t.Errorf("Get gave\n%+v, want\n%+v", got, want)
		}
		a.declare(errand.Schedule{Name: "another", Spec: "@hourly"})
		all, err := a.Schedules().List(t.Context())
		if err != nil || len(all) != 2 || all[0].Name != "another" || all[0].Zone != "UTC" || !reflect.DeepEqual(all[1], want) {
			t.Errorf("List gave %+v, %v", all, err)
		}
	})
}

// What is declared already is not written; what has changed goes on where it
// was, unless the ticks are others.
func TestSchedule_Redeclare(t *testing.T) {
	onMemory(t, func(t *testing.T, a *agenda) {
		s := errand.Schedule{Name: "x", Spec: "@hourly", Jitter: 1500, Options: &errand.JobOptions{Timeout: time.Second + 1}}
		a.declare(s)
		before := a.revision("x")
		time.Sleep(90 * time.Minute) // one tick is missed
		s.Zone, s.Spec = "UTC", " @hourly "
		a.declare(s)
		if after := a.revision("x"); after != before {
			t.Errorf("declaring the same changed it from revision %d to %d", before, after)
		}
		s.Jitter, s.Args, s.Missed = 0, note{N: 2}, errand.MissedAll(10)
		a.declare(s)
		stop := a.work(nil)
		synctest.Wait()
		if got, want := a.took(), []ran{{time.Now(), "x", "2000-01-01T01:00:00Z", 2}}; !reflect.DeepEqual(got, want) {
			t.Errorf("ran %v, want what was missed, as it is declared now: %v", got, want)
		}
		stop()
		time.Sleep(2 * time.Hour) // to 03:30
		a.declare(errand.Schedule{Name: "x", Spec: "15 * * * *", Missed: errand.MissedAll(10)})
		a.work(nil)
		synctest.Wait()
		if got := a.took(); len(got) > 0 {
			t.Errorf("a changed spec made %v run by itself", got)
		}
		time.Sleep(time.Hour)
		if got, want := a.ticks("x"), []string{"2000-01-01T04:15:00Z"}; !slices.Equal(got, want) {
			t.Errorf("ran %v, want %v", got, want)
		}
		a.wantHistory("x", "fired 2000-01-01T04:15:00Z", "fired 2000-01-01T01:00:00Z")
	})
}

func TestSchedule_Fires(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		a.work(nil)
		a.declare(errand.Schedule{Name: "hourly", Spec: "@hourly", Zone: "Asia/Kolkata"})
		a.declare(errand.Schedule{Name: "spread", Spec: "0 12 * * *", Jitter: time.Hour})
		time.Sleep(25 * time.Hour)
		var want []string
		var spread time.Duration
		for _, r := range a.took() {
			if r.name == "spread" {
				spread = r.at.Sub(time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC))
				continue
			}
			want = append(want, r.at.In(time.FixedZone("", 5*3600+1800)).Format(time.RFC3339))
			if r.tick != want[len(want)-1] || r.at.Minute() != 30 || r.at.Second() != 0 {
				t.Errorf("the job of the tick %s ran at %v", r.tick, r.at)
			}
		}
		if len(want) != 25 {
			t.Errorf("%d ticks in 25 hours: %v", len(want), want)
		}
		if spread <= 0 || spread >= time.Hour || spread%time.Microsecond != 0 {
			t.Errorf("the job with jitter ran %v after its tick", spread)
		}
		info := a.get("hourly")
		if got := info.LastTick.Format(time.RFC3339); got != want[24] || info.LastJob == (errand.ID{}) {
			t.Errorf("the last tick is %s, of job %v: want %s", got, info.LastJob, want[24])
		}
		ticks, err := a.Schedules().History(t.Context(), "hourly")
		if err != nil || len(ticks) != 25 || ticks[0].Job != info.LastJob || ticks[0].N != 1 ||
			ticks[0].At.Format(time.RFC3339) != want[24] || !ticks[0].Noted.Equal(ticks[0].At) {
			t.Errorf("the history is %+v, %v", ticks, err)
		}
	})
}

func TestSchedule_Overlap(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		a.work(func(ctx context.Context, _ *errand.Job[note]) error {
			select {
			case <-time.After(150 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		a.declare(errand.Schedule{Name: "skip", Spec: "* * * * *", Overlap: errand.OverlapSkip})
		a.declare(errand.Schedule{Name: "allow", Spec: "* * * * *"})
		time.Sleep(4*time.Minute + time.Second)
		ran := map[string][]string{}
		for _, r := range a.took() {
			ran[r.name] = append(ran[r.name], r.tick[14:16])
		}
		if want := map[string][]string{"skip": {"01", "04"}, "allow": {"01", "02", "03", "04"}}; !maps.EqualFunc(ran, want, slices.Equal) {
			t.Errorf("ran %v, want %v", ran, want)
		}
		a.wantHistory("skip", "fired 2000-01-01T00:04:00Z", "overlap 2000-01-01T00:03:00Z",
			"overlap 2000-01-01T00:02:00Z", "fired 2000-01-01T00:01:00Z")
	})
}

// Missed and Overlap are text, also in JSON.
func TestMissed_String(t *testing.T) {
	for _, m := range []errand.Missed{errand.MissedOne, errand.MissedSkip, errand.MissedAll(1), errand.MissedAll(1000)} {
		for _, o := range []errand.Overlap{errand.OverlapAllow, errand.OverlapSkip} {
			info := errand.ScheduleInfo{Missed: m, Overlap: o}
			b, err := json.Marshal(info)
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(`"missed":"%s","overlap":"%s"`, m, o); !strings.Contains(string(b), want) {
				t.Errorf("%s lacks %s", b, want)
			}
			if err := openQueue(t, nil).Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@daily", Args: note{}, Missed: m, Overlap: o}); err != nil {
				t.Error(err)
			}
		}
	}
}

// firings counts calls of Fire, by how many jobs they asked for.
type firings struct {
	storage.Store
	storage.Notifier
	storage.Scheduler
	storage.Timekeeper
	jobs []int
}

func (f *firings) Fire(ctx context.Context, now time.Time, all []storage.Firing) ([]storage.Fired, error) {
	n := 0
	for _, firing := range all {
		for _, tick := range firing.Ticks {
			if tick.Job != nil {
				n++
			}
		}
	}
	f.jobs = append(f.jobs, n)
	return f.Scheduler.Fire(ctx, now, all)
}

// Two weeks without a worker, of a schedule that ticks each five seconds.
func TestSchedule_Downtime(t *testing.T) {
	for _, c := range []struct {
		missed errand.Missed
		want   int
	}{{errand.MissedSkip, 0}, {errand.MissedOne, 1}, {errand.MissedAll(100), 100}} {
		t.Run(string(c.missed), func(t *testing.T) {
			agendas(t, func(t *testing.T, a *agenda) {
				a.declare(errand.Schedule{Name: "x", Spec: "*/5 * * * * *", Missed: c.missed})
				stop := a.work(nil)
				time.Sleep(time.Minute + time.Second)
				stop()
				if got := a.took(); len(got) != 12 {
					t.Errorf("%d jobs in a minute, want 12", len(got))
				}
				var f *firings
				open := a.open
				a.open = func() storage.Store {
					s := open()
					f = &firings{Store: s, Notifier: s.(storage.Notifier), Scheduler: s.(storage.Scheduler), Timekeeper: s.(storage.Timekeeper)}
					return f
				}
				a.restart(14*day - time.Minute)
				a.work(nil)
				synctest.Wait()
				if got := a.took(); len(got) != c.want {
					t.Errorf("%d jobs at once, want %d", len(got), c.want)
				}
				if !slices.Equal(f.jobs, []int{c.want}) {
					t.Errorf("fired in calls of %v jobs, want one of %d", f.jobs, c.want)
				}
				skipped := 14*24*60*12 - 12 - c.want
				history := a.history("x")
				want := fmt.Sprintf("missed 2000-01-01T00:01:05Z to %s: %d",
					time.Date(2000, 1, 15, 0, 0, -5*c.want, 0, time.UTC).Format(time.RFC3339), skipped)
				if len(history) != 50 && len(history) != c.want+13 || c.want < len(history) && history[c.want] != want {
					t.Errorf("the history has %d entries: %q, want %q after %d", len(history), history, want, c.want)
				}
				time.Sleep(time.Minute)
				if got := a.took(); len(got) != 12 {
					t.Errorf("%d jobs in the minute after, want 12", len(got))
				}
			})
		})
	}
}

// A schedule with RunOnStart has a job when it is first declared, and when a program starts
// after all that have declared it have ended.
func TestSchedule_RunOnStart(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		s := errand.Schedule{
			Name: "x", Spec: "@hourly", Zone: "Asia/Kolkata", Args: note{N: 7}, Jitter: time.Hour, RunOnStart: true,
			Options: &errand.JobOptions{Headers: map[string]string{"k": "v"}},
		}
		events, err := a.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{errand.EventEnqueued}}, 10)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		a.declare(s)
		info := a.get("x")
		if want := time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC); len(info.Next) == 0 || !info.Next[0].Equal(want) {
			t.Errorf("next: %v, want %v", info.Next, want)
		}
		j := lookUp(t, a.Queue, info.LastJob)
		if j.State != errand.Ready || string(j.Args) != `{"Text":"","N":7}` || j.Headers["k"] != "v" ||
			j.Headers["errand-schedule"] != "x" || j.Headers["errand-tick"] != "2000-01-01T05:30:01+05:30" {
			t.Errorf("the job is %+v", j)
		}
		select {
		case e := <-events.Events():
			if e.ID != j.ID || e.Kind != "note" {
				t.Errorf("the event is %+v", e)
			}
		default:
			t.Error("no event tells of the job")
		}
		time.Sleep(time.Minute)
		a.declare(s)
		s.Args = note{N: 8}
		a.declare(s)
		a.wantHistory("x", "start 2000-01-01T05:30:01+05:30")
		if got := a.get("x"); string(got.Args) != `{"Text":"","N":8}` {
			t.Errorf("a change was not written: %+v", got)
		}
		a.restart(time.Minute)
		s.RunOnStart = false
		a.declare(s)
		if got := a.history("x"); len(got) != 1 {
			t.Errorf("without RunOnStart: %q", got)
		}
		s.RunOnStart = true
		a.declare(s) // the first by this program
		a.wantHistory("x", "start 2000-01-01T05:32:01+05:30", "start 2000-01-01T05:30:01+05:30")
		if err := a.Schedules().Remove(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		a.declare(s)
		a.wantHistory("x", "start 2000-01-01T05:32:01+05:30")
		if got := a.live(); got != 3 {
			t.Errorf("%d jobs, want 3", got)
		}
	})
}

// What keeps a tick from firing keeps a start from it.
func TestSchedule_RunOnStart_skipped(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		all := []errand.Schedule{
			{Name: "overlap", Spec: "@daily", Overlap: errand.OverlapSkip, RunOnStart: true},
			{Name: "unique", Spec: "@daily", Options: &errand.JobOptions{Unique: &errand.Unique{Key: "u"}}, RunOnStart: true},
			{Name: "paused", Spec: "@daily", RunOnStart: true},
		}
		declare := func() {
			t.Helper()
			for _, s := range all {
				a.declare(s)
			}
		}
		declare()
		if err := a.Schedules().Pause(t.Context(), "paused"); err != nil {
			t.Fatal(err)
		}
		a.restart(time.Second)
		declare()
		declare()
		for name, taken := range map[string]string{"overlap": "overlap", "unique": "duplicate", "paused": "paused"} {
			a.wantHistory(name, taken+" 2000-01-01T00:00:01Z", "start 2000-01-01T00:00:00Z")
		}
		if err := a.Schedules().Resume(t.Context(), "paused"); err != nil {
			t.Fatal(err)
		}
		declare() // it is not made up for
		if got := a.live(); got != 3 {
			t.Errorf("%d jobs, want 3", got)
		}
		stop := a.work(nil)
		synctest.Wait()
		stop()
		a.took()
		a.restart(time.Second)
		declare()
		if got := a.live(); got != 3 {
			t.Errorf("%d jobs after those before were done, want 3", got)
		}
	})
}

// Of programs that start at a time, one fires the schedule, whatever their declarations change.
func TestSchedule_RunOnStart_together(t *testing.T) {
	onMemory(t, func(t *testing.T, a *agenda) {
		var wg sync.WaitGroup
		for i := range 8 {
			q, err := errand.New(t.Context(), a.open(), &a.opts)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = q.Close() })
			wg.Go(func() {
				s := errand.Schedule{Name: "x", Spec: "@daily", Args: note{N: i % 2}, RunOnStart: true}
				if err := q.Schedule(t.Context(), s); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		a.wantHistory("x", "start 2000-01-01T00:00:00Z")
	})
}

// It fires while schedules wait for the clock: it has nothing to do with the time.
func TestSchedule_RunOnStart_waitsForNoClock(t *testing.T) {
	onMemory(t, func(t *testing.T, a *agenda) {
		a.opts.WaitForClock = true
		a.restart(time.Second)
		a.declare(errand.Schedule{Name: "x", Spec: "@daily", RunOnStart: true})
		if got := a.history("x"); len(got) != 1 || !strings.HasPrefix(got[0], "start ") || a.live() != 1 {
			t.Errorf("the history is %q", got)
		}
	})
}
