package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// wrongTime is an instance whose answers come with a time that is wrong.
type wrongTime struct {
	*hooks
	show func(in *instance) (time.Time, bool)
}

func (w *wrongTime) StoreTime() (time.Time, bool) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.show(w.instance)
}

// showing has f say what time it is; right is what it should be.
func showing(f func(in *instance, right time.Time) (time.Time, bool)) func(*instance) storage.Store {
	return func(in *instance) storage.Store {
		return &wrongTime{sound(in), func(in *instance) (time.Time, bool) { return f(in, in.shown.Add(time.Since(in.heard))) }}
	}
}

var clockedFaults = []fault{
	{"clocked_by_machine", "clocked_answers", showing(func(*instance, time.Time) (time.Time, bool) { return time.Now(), true })},
	{"clocked_ahead", "clocked_answers", showing(func(_ *instance, right time.Time) (time.Time, bool) { return right.Add(time.Second), true })},
	{"clocked_behind", "clocked_answers", showing(func(_ *instance, right time.Time) (time.Time, bool) { return right.Add(-time.Second), true })},
	{"clocked_unknown", "clocked_answers", showing(func(_ *instance, right time.Time) (time.Time, bool) { return right, false })},
	{"clocked_stands", "clocked_runs", showing(func(in *instance, _ time.Time) (time.Time, bool) { return in.shown, true })},
	{"clocked_asks", "clocked_runs", showing(func(in *instance, _ time.Time) (time.Time, bool) { return time.Now().Add(in.m.ahead), true })},
	{"clocked_never_back", "clocked_set_back", func(in *instance) storage.Store {
		var latest time.Time
		return &wrongTime{sound(in), func(in *instance) (time.Time, bool) {
			if now := in.shown.Add(time.Since(in.heard)); now.After(latest) {
				latest = now
			}
			return latest, true
		}}
	}},
	{"clocked_first_alone", "clocked_agree", showing(func(in *instance, right time.Time) (time.Time, bool) {
		if in != in.m.instances[0] {
			return time.Now(), true
		}
		return right, true
	})},
}
