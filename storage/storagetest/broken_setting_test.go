package storagetest

import (
	"context"
	"maps"
	"slices"

	"github.com/errandq/errand/storage"
)

// configuring has f change what is set, given what was.
func configuring(f func(was storage.Settings, s storage.Settings) storage.Settings) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.configure = func(ctx context.Context, lane storage.Lane, s storage.Settings) error {
			var set storage.Settings
			in.m.locked(func() {
				was := storage.Settings{}
				maps.Copy(was, in.m.settings[lane])
				set = f(was, s)
			})
			return in.Configure(ctx, lane, set)
		}
		return h
	}
}

var settingFaults = []fault{
	{"no StartWithin is set", "settings_expiry", unset(storage.SettingStartWithin)},
	{"no FinishWithin is set", "settings_expiry", unset(storage.SettingFinishWithin)},
	{"no OnExpire is set", "settings_expiry", unset(storage.SettingOnExpire)},
	{"others are not kept", "settings_kept", configuring(func(was, s storage.Settings) storage.Settings {
		for name := range was {
			was[name] = 0
		}
		maps.Copy(was, s)
		return was
	})},
	{"one cannot be taken back", "settings_kept", configuring(func(_, s storage.Settings) storage.Settings {
		s = maps.Clone(s)
		maps.DeleteFunc(s, func(_ storage.Setting, value int64) bool { return value == 0 })
		return s
	})},
	{"only what is known is kept", "settings_kept", configuring(func(_, s storage.Settings) storage.Settings {
		return storage.Settings{storage.SettingMaxJobs: s[storage.SettingMaxJobs]}
	})},
	{"settings in any order", "settings_lanes", func(in *instance) storage.Store {
		h := sound(in)
		h.settings = func(ctx context.Context) ([]storage.LaneSettings, error) {
			all, err := in.Settings(ctx)
			slices.Reverse(all)
			return all, err
		}
		return h
	}},
	{"settings of kinds are those of their queues", "settings_lanes", func(in *instance) storage.Store {
		h := sound(in)
		h.configure = func(ctx context.Context, lane storage.Lane, s storage.Settings) error {
			return in.Configure(ctx, storage.Lane{Queue: lane.Queue}, s)
		}
		return h
	}},
	{"how long to keep jobs is not set", "settings_retention", configuring(func(_, s storage.Settings) storage.Settings {
		s = maps.Clone(s)
		delete(s, storage.SettingRetention)
		return s
	})},
}
