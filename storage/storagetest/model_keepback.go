package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// keptBack returns the lanes whose jobs wants keep back, but for held ones, and until
// when if nothing happens before.
func (m *Memory) keptBack(wants []storage.Want, now time.Time) map[storage.Lane]time.Time {
	if !slices.ContainsFunc(wants, func(w storage.Want) bool { return w.Min >= 2 && w.Wait > 0 }) {
		return nil
	}
	lanes := map[storage.Lane][]*job{}
	for _, j := range m.liveWhere(func(j *job) bool { return j.State == storage.Ready && !m.isHeld(j, now) }, byDue) {
		lane := storage.Lane{Queue: j.Queue, Kind: j.Kind}
		lanes[lane] = append(lanes[lane], j)
	}
	kept := map[storage.Lane]time.Time{}
	for lane, jobs := range lanes {
		i := slices.IndexFunc(wants, jobs[0].in)
		if i < 0 || wants[i].Min < 2 || wants[i].Wait <= 0 || len(jobs) >= wants[i].Min {
			continue
		}
		if until := jobs[0].DueAt.Add(wants[i].Wait); until.After(now) {
			kept[lane] = until
		}
	}
	return kept
}

// isKept reports whether j is of one of these lanes.
func (j *job) isKept(kept map[storage.Lane]time.Time) bool {
	_, ok := kept[storage.Lane{Queue: j.Queue, Kind: j.Kind}]
	return ok
}
