package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// wanting has the model see other wants than it is asked for.
func wanting(f func(w *storage.Want)) func(in *instance) storage.Store {
	return before(func(_ *Memory, x *storage.Exchange) {
		x.Wants = slices.Clone(x.Wants)
		for i := range x.Wants {
			f(&x.Wants[i])
		}
	})
}

var keepBackFaults = []fault{
	{"Min and Wait not looked at", "keepback_min", wanting(func(w *storage.Want) { w.Min = 0 })},
	{"one job fewer than Min is enough", "keepback_min", wanting(func(w *storage.Want) { w.Min-- })},
	{"one job more than Min is needed", "keepback_min", wanting(func(w *storage.Want) { w.Min++ })},
	{"kept back for ever", "keepback_wait", wanting(func(w *storage.Want) { w.Wait *= 1000 })},
	{"not kept back for long enough", "keepback_wait", wanting(func(w *storage.Want) { w.Wait /= 2 })},
	{"Min of 1 keeps back", "keepback_lanes", wanting(func(w *storage.Want) {
		if w.Min == 1 {
			w.Min = 2
		}
	})},
	{"no Wait is a long one", "keepback_lanes", wanting(func(w *storage.Want) {
		if w.Min > 0 && w.Wait <= 0 {
			w.Wait = time.Hour
		}
	})},
	{"Min and Wait of the last Want count", "keepback_lanes", before(func(_ *Memory, x *storage.Exchange) {
		x.Wants = slices.Clone(x.Wants)
		for i := range x.Wants {
			last := &x.Wants[len(x.Wants)-1]
			x.Wants[i].Min, x.Wants[i].Wait = last.Min, last.Wait
		}
	})},
	{"urgent jobs are kept back", "keepback_urgent", before(func(m *Memory, x *storage.Exchange) {
		if len(m.keptBack(x.Wants, farPast)) > 0 {
			x.Urgent = 0
		}
	})},
	{"urgent jobs count for Min", "keepback_urgent", wanting(func(w *storage.Want) {
		if w.N == 9 && w.Min == 3 {
			w.Min = 2
		}
	})},
	{"scheduled jobs are made ready too late", "keepback_scheduled", before(func(m *Memory, x *storage.Exchange) {
		for _, j := range m.jobs {
			if len(x.Wants) > 0 && x.Wants[0].KeepsBack() && j.State == storage.Scheduled {
				j.DueAt = j.DueAt.Add(time.Millisecond)
			}
		}
	})},
	{"NextDue knows nothing of what is kept back", "keepback_next_due", after(func(_ *Memory, now time.Time, x storage.Exchange, res *storage.ExchangeResult) {
		if len(x.Wants) > 0 && x.Wants[0].KeepsBack() && res.NextDue.After(now.Add(30*time.Second)) {
			res.NextDue = time.Time{}
		}
	})},
	{"NextDue is that of the first in order", "keepback_next_due", after(func(m *Memory, now time.Time, x storage.Exchange, res *storage.ExchangeResult) {
		for _, j := range m.where(func(j *job) bool { return j.State == storage.Ready }, byPriority) {
			if x.Wants[0].KeepsBack() && j.isKept(m.keptBack(x.Wants, now)) {
				res.NextDue = j.DueAt.Add(x.Wants[0].Wait)
				return
			}
		}
	})},
}

// farPast is before everything is due.
var farPast = time.Unix(0, 0)
