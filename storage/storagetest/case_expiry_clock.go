package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// expiryClockCases are about windows that began while the clock was wrong.
var expiryClockCases = []testCase{
	{"expiry_in_doubt", `Doubtful says that now may be far from the real time, and be corrected soon: then StartWithin and FinishWithin begin anew with the first Exchange that leases, or Promote, that is not Doubtful.
A StartBy or Deadline that began with a Doubtful now counts only once it has begun anew.
Unsettled is true if they began with a Doubtful now, and may begin anew.`, func(f *fixture) {
		f.pause(queue, true)
		ids := f.add(newJob(startWithin(time.Hour), inDoubt), newJob(finishWithin(time.Hour), delay(time.Minute), inDoubt),
			newJob(startWithin(time.Hour), dueAt(f.now.Add(time.Minute)), inDoubt))
		f.windowed(ids[0], f.now.Add(time.Hour), time.Time{})
		f.later(30 * time.Minute)
		res := f.exchange(f.s, storage.Exchange{Wants: wants(1), Doubtful: true})
		if want := f.now.Add(31 * time.Minute); !res.NextDue.Equal(want) {
			f.Errorf("NextDue is %v, want %v: of the job with a date", res.NextDue, want)
		}
		f.later(56 * 365 * 24 * time.Hour)
		right := f.now.Add(time.Hour)
		if res := f.ends(f.s, 1, ids[2]); !res.NextDue.Equal(right) {
			f.Errorf("NextDue is %v, want %v", res.NextDue, right)
		}
		f.windowed(ids[0], right, time.Time{})
		f.windowed(ids[1], time.Time{}, f.now.Add(61*time.Minute))
		f.later(time.Minute)
		f.cancel(f.add(newJob(startWithin(time.Hour), inDoubt))[0])
		f.ends(f.s, 1) // which ends another time of doubt
		f.windowed(ids[0], right, time.Time{})
		f.later(59 * time.Minute)
		f.ends(f.s, 1, ids[0])
		f.later(time.Minute)
		f.ends(f.s, 1, ids[1])
		f.pause(queue, false)

		for _, doubtful := range []bool{false, true} {
			id := f.add(newJob(startWithin(time.Hour), inDoubt))
			x := storage.Exchange{Wants: wants(1), Doubtful: doubtful}
			if l := f.exchange(f.s, x).Leased; len(l) != 1 || l[0].Unsettled != doubtful {
				f.Errorf("leased %+v, want %v and unsettled %v", l, id, doubtful)
			}
		}
	}},

	{"expiry_shift", `A StartBy or a Deadline that was counted from a later time counts from now.
a StartBy and a Deadline counted from a DueAt,`, func(f *fixture) {
		f.timekeeper(f.s)
		early := f.now
		both := func(n *storage.NewJob) { n.StartWithin, n.FinishWithin = time.Minute, time.Hour }
		before := f.add(newJob(both))[0]
		f.later(24 * time.Hour)
		wrong := f.now
		ids := f.add(newJob(both), newJob(both, delay(time.Minute)), newJob(both, dueAt(wrong.Add(time.Hour))), newJob(both, inDoubt))
		running := f.run(f.s, priority(1), both)
		f.is("", before) // by a wrong clock
		f.now = early
		f.stepClock(f.now)
		at := func(d time.Duration) time.Time { return f.now.Add(d) }
		f.windowed(ids[0], at(time.Minute), at(time.Hour))
		f.windowed(ids[1], at(2*time.Minute), at(61*time.Minute))
		f.windowed(ids[2], wrong.Add(61*time.Minute), wrong.Add(2*time.Hour))
		f.windowed(ids[3], at(time.Minute), at(time.Hour))
		f.windowed(running.ID, at(time.Minute), at(time.Hour))
		f.back(running, storage.OutcomeReturned, time.Time{})
		f.later(time.Minute)
		f.ends(f.s, 1, ids[0], ids[3], running.ID)
	}},

	{"expiry_shift_all", `A StartBy or a Deadline that was counted from a later time counts from now.
a StartBy and a Deadline counted from a DueAt,`, func(f *fixture) {
		f.timekeeper(f.s)
		early := f.now
		f.later(time.Hour)
		ids := f.add(times(1100, newJob(startWithin(time.Minute)))...)
		f.now = early
		f.stepClock(f.now)
		for _, id := range ids {
			f.windowed(id, f.now.Add(time.Minute), time.Time{})
		}
	}},
}
