package storagetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

var closeCases = []testCase{
	{"close_calls", `later ones return [ErrClosed]`, func(f *fixture) {
		s := f.db.Open()
		l := f.run(s)
		f.must(s.Close())
		calls := map[string]func() error{
			"Enqueue": func() error { _, err := s.Enqueue(f.ctx, f.now, times(1, newJob())); return err },
			"Exchange": func() error {
				_, err := s.Exchange(f.ctx, f.now, storage.Exchange{LeaseDuration: hold, Wants: wants(1)})
				return err
			},
			"Finish": func() error {
				_, err := s.Exchange(f.ctx, f.now, storage.Exchange{Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeDone}}})
				return err
			},
			"Reclaim":       func() error { _, err := s.Reclaim(f.ctx, f.now, 0, hold, 9); return err },
			"Job":           func() error { _, err := s.Job(f.ctx, l.ID); return err },
			"Cancel":        func() error { _, err := s.Cancel(f.ctx, f.now, l.ID, kept(keep)); return err },
			"Hold":          func() error { return s.Hold(f.ctx, f.now, aPause) },
			"Release":       func() error { _, err := s.Release(f.ctx, f.now, aPause.Lane, aPause.Reason); return err },
			"Holds":         func() error { _, err := s.Holds(f.ctx, f.now); return err },
			"Counts":        func() error { _, err := s.Counts(f.ctx); return err },
			"Jobs":          func() error { _, err := s.Jobs(f.ctx, storage.Filter{}, "", 9); return err },
			"Redrive":       func() error { _, err := s.Redrive(f.ctx, f.now, storage.Selection{}, ""); return err },
			"Delete":        func() error { _, err := s.Delete(f.ctx, storage.Selection{}); return err },
			"PurgeFinished": func() error { _, _, err := s.PurgeFinished(f.ctx, f.now); return err },
			"Checkpoint": func() error {
				_, err := s.Checkpoint(f.ctx, storage.Checkpoint{Lease: l.Lease, Data: []byte("x")})
				return err
			},
			"States": func() error { _, err := s.States(f.ctx, []storage.ID{l.ID}); return err },
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, storage.ErrClosed) && f.lacked(err) == "" {
				f.Errorf("%s after Close returned %v, want ErrClosed", name, err)
			}
		}
		f.counts(count(storage.Running, 1))
	}},

	{"close_with_lease", `The registration stands until the last running handler has returned or the process ends. Until then no lease of such a handler lapses, so that it is not run a second time meanwhile.`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		la, lb := f.run(a), f.run(b)
		f.begin(a, la.Lease)
		f.begin(b, lb.Lease)
		f.must(a.Close())
		f.must(b.Close())
		f.takesNothing(f.s, 0)
		f.takesNothing(f.s, time.Second)
		f.db.Kill(a)
		f.takes(f.s, time.Second, la.Lease, storage.Crashed)
		f.takesNothing(f.s, hold)
		f.takesNothing(f.s, 10*hold)
		f.db.Kill(b)
		f.takes(f.s, 10*hold, lb.Lease, storage.Crashed)
	}},

	{"close_hands_back", `Leases whose handlers have not begun, or have returned, are there for Reclaim at once.`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		unstarted, running, returned := f.three(a)
		again, _, _ := f.three(b)
		f.db.Kill(b)
		crashed := f.reclaim(a, 0) // and has not decided about them yet
		f.must(a.Close())
		want := map[int64]storage.Fate{unstarted.Key: storage.Unstarted, returned.Key: storage.Cut}
		for _, r := range crashed {
			want[r.Key] = r.Fate
		}
		if len(crashed) != 3 || want[again.Key] != storage.Unstarted {
			f.Fatalf("reclaimed %v", crashed)
		}
		f.fates(f.s, 0, want)
		f.is(storage.Running, running.ID)
	}},

	{"close_last_ends", `The registration stands until the last running handler has returned
later ones return [ErrClosed]. Only Stopping and Ended still work.`, func(f *fixture) {
		a := f.db.Open()
		first, last := f.run(a), f.run(a)
		f.begin(a, first.Lease)
		f.begin(a, last.Lease)
		f.must(a.Close())
		f.stopping(a, first.Lease)
		f.takesNothing(f.s, 0)
		f.ended(a, first.Lease)
		f.takesNothing(f.s, 10*hold)
		f.ended(a, last.Lease)
		f.fates(f.s, 20*hold, map[int64]storage.Fate{first.Key: storage.Cut, last.Key: storage.Cut})
	}},

	{"close_without_lease", `The registration stands until the last running handler has returned`, func(f *fixture) {
		a := f.db.Open()
		l := f.run(a)
		f.apply(a, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now})
		f.must(a.Close())
		f.takesNothing(f.s, 0)
		f.order("leased", leasedIDs(f.lease(f.s, 1)), []storage.ID{l.ID})
	}},

	{"close_durable", `when it returns nil all of it is durable`, func(f *fixture) {
		f.pause("paused", true)
		waiting := f.add(newJob(unique("a"), func(n *storage.NewJob) { n.Headers = []byte("h") }), newJob(dueAt(f.now.Add(time.Hour))))
		dead := f.bury(storage.ReasonPermanent, "no", lane("other", kind))
		before := []storage.Record{f.record(waiting[0]), f.record(waiting[1]), f.record(dead)}
		f.must(f.s.Close())
		f.s = f.db.Open()
		for _, r := range before {
			f.same("the job after opening again", f.record(r.ID), r)
		}
		f.counts(count(storage.Ready, 1), count(storage.Scheduled, 1), storage.Count{Queue: "other", Kind: kind, State: storage.Dead, N: 1})
		f.holdsAre("after opening again", storage.HoldState{Lane: storage.Lane{Queue: "paused"}, Reason: storage.HoldPaused, Since: f.now})
		if e := f.enqueue(newJob(unique("a")))[0]; !e.Duplicate || e.ID != waiting[0] {
			f.Errorf("the unique key was forgotten: %v", e)
		}
	}},
}

var concurrencyCases = []testCase{
	{"concurrent_workers", `It is safe for concurrent use.`, func(f *fixture) {
		const callers, perCaller = 8, 40
		stores := []storage.Store{f.s, f.db.Open()}
		var wg sync.WaitGroup
		var done atomic.Int64
		var mu sync.Mutex
		runs := map[int64]int{}
		fail := func(err error) bool {
			if err != nil {
				f.Errorf("unexpected error: %v", err)
				done.Store(callers * perCaller) // let everybody stop
			}
			return err != nil
		}
		for c := range callers {
			s := stores[c%2]
			wg.Go(func() {
				for i := range perCaller / 4 {
					if _, err := s.Enqueue(f.ctx, f.now, times(4, newJob(priority(i%3)))); fail(err) {
						return
					}
					if _, err := s.Counts(f.ctx); fail(err) {
						return
					}
				}
			})
			wg.Go(func() {
				var finish []storage.Finish
				for done.Load() < callers*perCaller {
					res, err := s.Exchange(f.ctx, f.now, storage.Exchange{LeaseDuration: hold, Finish: finish, Retention: kept(keep), Wants: wants(5)})
					if fail(err) {
						return
					}
					for _, r := range res.Finished {
						if r != storage.Applied {
							f.Errorf("finishing returned %d, want applied", r)
						}
					}
					done.Add(int64(len(finish)))
					finish = nil
					for _, l := range res.Leased {
						finish = append(finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
						mu.Lock()
						runs[l.Key]++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		for key, n := range runs {
			if n != 1 {
				f.Errorf("job %d was leased %d times", key, n)
			}
		}
		f.counts(count(storage.Done, callers*perCaller))
	}},

	{"concurrent_unique", `A job whose unique key is held is not inserted; its answer is a duplicate that names the holder.
It is safe for concurrent use.`, func(f *fixture) {
		stores := []storage.Store{f.s, f.db.Open()}
		var wg sync.WaitGroup
		answers := make([]storage.Enqueued, 16)
		for i := range answers {
			wg.Go(func() {
				got, err := stores[i%2].Enqueue(f.ctx, f.now, times(1, newJob(unique("a"))))
				if err != nil || len(got) != 1 {
					f.Errorf("Enqueue returned %v, %v", got, err)
					return
				}
				answers[i] = got[0]
			})
		}
		wg.Wait()
		inserted := 0
		for _, e := range answers {
			if !e.Duplicate {
				inserted++
			}
			if e.ID != answers[0].ID {
				f.Errorf("one answer names %v, another %v", answers[0].ID, e.ID)
			}
		}
		if inserted != 1 {
			f.Errorf("%d jobs were inserted, want 1", inserted)
		}
		f.counts(count(storage.Ready, 1))
	}},
}
