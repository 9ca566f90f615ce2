package storagetest

import (
	"reflect"

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
		f.configure(f.s, lane, storage.Settings{storage.SettingMaxJobs: 5, "unheard of": -7})
		f.settingsAre("two", storage.LaneSettings{Lane: lane, Settings: storage.Settings{storage.SettingMaxJobs: 5, "unheard of": -7}})
		f.configure(f.s, lane, storage.Settings{storage.SettingMaxJobs: 6})
		f.settingsAre("one is changed", storage.LaneSettings{Lane: lane, Settings: storage.Settings{storage.SettingMaxJobs: 6, "unheard of": -7}})
		f.configure(f.db.Open(), lane, storage.Settings{storage.SettingMaxJobs: 0, "another": 1 << 62})
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
}
