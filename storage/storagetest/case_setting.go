package storagetest

import (
	"reflect"
	"time"

	"github.com/errandq/errand/storage"
)

func (f *fixture) configure(s storage.Store, lane storage.Lane, set storage.Settings) {
	f.Helper()
	f.must(s.Configure(f.ctx, lane, set))
}

// settingsAre checks what Settings returns, of the first instance and of a new one.
func (f *fixture) settingsAre(what string, want ...storage.LaneSettings) {
	f.Helper()
	for _, s := range []storage.Store{f.s, f.db.Open()} {
		got, err := s.Settings(f.ctx)
		f.must(err)
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			f.Errorf("%s: Settings returned\n %+v, want\n %+v", what, got, want)
		}
	}
}

var settingCases = []testCase{
	{"settings_kept", `Configure sets the settings of a lane that s names, and keeps its others. One that is set to zero is not set any more.
The lane need not have any job yet.
A Store keeps settings that it does not know.`, func(f *fixture) {
		f.settingsAre("at first")
		lane := storage.Lane{Queue: "new"}
		f.configure(f.s, lane, storage.Settings{storage.SettingGroupLimit: 5, "unheard of": -7})
		f.settingsAre("two", storage.LaneSettings{Lane: lane, Settings: storage.Settings{storage.SettingGroupLimit: 5, "unheard of": -7}})
		f.configure(f.s, lane, storage.Settings{storage.SettingGroupLimit: 6})
		f.settingsAre("one is changed", storage.LaneSettings{Lane: lane, Settings: storage.Settings{storage.SettingGroupLimit: 6, "unheard of": -7}})
		f.configure(f.db.Open(), lane, storage.Settings{storage.SettingGroupLimit: 0, "another": 1 << 62})
		f.settingsAre("one is gone", storage.LaneSettings{Lane: lane, Settings: storage.Settings{"another": 1 << 62, "unheard of": -7}})
		f.configure(f.s, lane, nil)
		f.configure(f.s, lane, storage.Settings{"unheard of": 0, "another": 0, "never": 0})
		f.settingsAre("all are gone")
	}},

	{"settings_lanes", `Settings returns the lanes with settings, sorted by queue and kind, and what is set for each.
An empty Kind stands for all kinds of the queue, an empty Queue for the kind in all queues, both for the whole database.`, func(f *fixture) {
		var want []storage.LaneSettings
		for i, l := range []storage.Lane{{}, {Kind: "x"}, {Queue: "a"}, {Queue: "a", Kind: "x"}, {Queue: "b"}} {
			want = append(want, storage.LaneSettings{Lane: l, Settings: storage.Settings{"n": int64(i + 1)}})
		}
		for _, i := range []int{3, 0, 4, 1, 2} {
			f.configure(f.s, want[i].Lane, want[i].Settings)
		}
		f.settingsAre("of all", want...)
	}},

	{"settings_expiry", `SettingStartWithin and SettingFinishWithin are the StartWithin and the FinishWithin of new jobs that have none of their own, in microseconds, and SettingOnExpire is ExpireFinished or ExpireDead, the OnExpire of those that have none.
Which one counts is as with SettingRetention.`, func(f *fixture) {
		set := func(lane storage.Lane, start, finish time.Duration, on int64) {
			f.configure(f.s, lane, storage.Settings{
				storage.SettingStartWithin: start.Microseconds(), storage.SettingFinishWithin: finish.Microseconds(), storage.SettingOnExpire: on,
			})
		}
		is := func(what string, s storage.Store, start, finish time.Duration, on storage.State, changes ...func(*storage.NewJob)) {
			f.Helper()
			out, err := s.Enqueue(f.ctx, f.now, []storage.NewJob{newJob(changes...)})
			f.must(err)
			at := func(d time.Duration) (t time.Time) {
				if d > 0 {
					t = f.now.Add(d)
				}
				return t
			}
			f.windowed(out[0].ID, at(start), at(finish))
			if got := f.record(out[0].ID).OnExpire; got != on {
				f.Errorf("%s: OnExpire is %q, want %q", what, got, on)
			}
		}
		before := f.add(newJob())[0]
		other := f.db.Open()
		set(storage.Lane{}, time.Minute, time.Hour, storage.ExpireDead)
		is("of all", f.s, time.Minute, time.Hour, storage.Dead)
		is("its own", other, 2*time.Minute, time.Hour, storage.Expired, startWithin(2*time.Minute), endsUnstarted)
		is("its own end", other, time.Minute, time.Hour, storage.Expired, endsUnstarted)
		is("its own deadline", other, time.Minute, time.Second, storage.Dead, finishWithin(time.Second))
		set(storage.Lane{Queue: queue}, 3*time.Minute, 0, storage.ExpireFinished)
		is("of the queue", other, 3*time.Minute, time.Hour, storage.Expired)
		is("dies", f.s, 3*time.Minute, time.Hour, storage.Dead, diesUnstarted)
		set(storage.Lane{Kind: kind}, 4*time.Minute, 0, 0)
		is("of the kind", f.s, 4*time.Minute, time.Hour, storage.Expired)
		set(storage.Lane{Queue: queue, Kind: kind}, 0, 4*time.Hour, storage.ExpireDead)
		is("of the lane", other, 4*time.Minute, 4*time.Hour, storage.Dead)
		set(storage.Lane{Kind: kind}, 0, 0, 0)
		is("of the queue again", f.s, 3*time.Minute, 4*time.Hour, storage.Dead)
		f.windowed(before, time.Time{}, time.Time{})
	}},

	{"settings_retention", `The first of these that is set counts: that of the kind in the queue, of the kind, of the queue, of the whole database, and last the [Retention] of a call.
SettingRetention is how long finished jobs are kept, in microseconds; below zero they are deleted at once.`, func(f *fixture) {
		keeps := func(what string, want time.Duration) {
			f.Helper()
			l := f.run(f.s)
			f.keep(2*time.Hour, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			waiting := f.add(newJob())[0]
			_, err := f.s.Cancel(f.ctx, f.now, waiting, kept(2*time.Hour))
			f.must(err)
			for _, id := range []storage.ID{l.ID, waiting} {
				_, err := f.s.Job(f.ctx, id)
				if (err == nil) != (want > 0) {
					f.Errorf("%s: a finished job: %v, want it kept for %v", what, err, want)
				}
			}
			if want <= 0 {
				return
			}
			if n, _, err := f.s.PurgeFinished(f.ctx, f.now.Add(want-time.Microsecond)); n != 0 || err != nil {
				f.Errorf("%s: %d jobs of %v were deleted too early (%v)", what, n, want, err)
			}
			if n, _, err := f.s.PurgeFinished(f.ctx, f.now.Add(want)); n != 2 || err != nil {
				f.Errorf("%s: %d jobs were deleted after %v (%v), want 2", what, n, want, err)
			}
		}
		set := func(lane storage.Lane, d time.Duration) {
			f.Helper()
			f.configure(f.s, lane, storage.Settings{storage.SettingRetention: d.Microseconds()})
		}
		set(storage.Lane{Queue: "b", Kind: kind}, time.Minute)
		keeps("of another lane", 2*time.Hour)
		set(storage.Lane{}, time.Hour)
		keeps("of the whole database", time.Hour)
		set(storage.Lane{Queue: queue}, time.Minute)
		keeps("of the queue", time.Minute)
		set(storage.Lane{Kind: kind}, -1*time.Second)
		keeps("of the kind", 0)
		set(usualLane, time.Second)
		keeps("of the kind in the queue", time.Second)
		set(usualLane, 0)
		set(storage.Lane{Kind: kind}, 0)
		keeps("of the queue again", time.Minute)
	}},
}
