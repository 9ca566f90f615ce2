package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// Sentences about lost answers.
const (
	foundOutSays = `It looks for that itself before it returns this error. If it has found out, the call returns the answer, or an error that says that nothing was written.`
	repeatsSays  = `If it took effect then, it changes nothing now, and the answer is the one that was lost, with its leases. Else it takes effect now.`
)

// loses has the next commit of s lose its answer, or skips the case.
func (f *fixture) loses(s storage.Store, commits bool, calls int) {
	f.Helper()
	l, ok := f.db.(Loser)
	if !ok {
		f.skip("lost answers")
	}
	l.Lose(s, commits, calls)
}

// unknown checks that err is the error of a call whose outcome is not known, and returns its Call.
func (f *fixture) unknown(what string, err error) int64 {
	f.Helper()
	var lost *storage.UnknownOutcomeError
	if !errors.As(err, &lost) || !errors.Is(err, storage.ErrUnknownOutcome) {
		f.Fatalf("%s returned %v, want an UnknownOutcomeError", what, err)
	}
	return lost.Call
}

// lostExchange is an Exchange whose answer is lost. It returns the one to repeat.
func (f *fixture) lostExchange(s storage.Store, x storage.Exchange, commits bool, calls int) storage.Exchange {
	f.Helper()
	f.loses(s, commits, calls)
	x.LeaseDuration = hold
	_, err := s.Exchange(f.ctx, f.now, x)
	if x.Repeats = f.unknown("Exchange", err); x.Repeats <= 0 {
		f.Errorf("the Call is %d, want a positive number", x.Repeats)
	}
	return x
}

// eitherWay returns two cases, one for a commit that takes place and one for one that does not.
func eitherWay(name, says string, run func(f *fixture, commits bool)) []testCase {
	return []testCase{
		{name + "_committed", says, func(f *fixture) { run(f, true) }},
		{name + "_undone", says, func(f *fixture) { run(f, false) }},
	}
}

// ifSo returns the first state if it is so, else the second.
func ifSo[E any](so bool, yes, no E) E {
	if so {
		return yes
	}
	return no
}

var lostCases = slices.Concat(
	eitherWay("lost_found_out", foundOutSays, func(f *fixture, commits bool) {
		l := f.run(f.s)
		f.loses(f.s, commits, 0)
		out, err := f.s.Enqueue(f.ctx, f.now, []storage.NewJob{newJob(unique("key"))})
		switch {
		case errors.Is(err, storage.ErrUnknownOutcome), commits && err != nil:
			f.Fatalf("Enqueue returned %v", err)
		case err != nil:
			f.counts(count(storage.Running, 1))
			out = f.enqueue(newJob(unique("key")))
		}
		if out[0].Duplicate {
			f.Errorf("the job is a duplicate: of itself")
		}
		f.is(storage.Ready, out[0].ID)
		x := storage.Exchange{LeaseDuration: hold, Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeDone}}, Wants: wants(1), Retention: kept(keep)}
		f.loses(f.s, commits, 0)
		res, err := f.s.Exchange(f.ctx, f.now, x)
		switch {
		case errors.Is(err, storage.ErrUnknownOutcome), commits && err != nil:
			f.Fatalf("Exchange returned %v", err)
		case err != nil:
			f.counts(count(storage.Ready, 1), count(storage.Running, 1))
			res = f.exchange(f.s, x)
		}
		if len(res.Leased) != 1 || res.Leased[0].ID != out[0].ID || !slices.Equal(res.Finished, []storage.ItemResult{storage.Applied}) {
			f.Errorf("Exchange returned %+v", res)
		}
		f.counts(count(storage.Done, 1), count(storage.Running, 1))
	}),

	eitherWay("lost_exchange", repeatsSays+`
Another UnknownOutcomeError has the Call for the next time.`, func(f *fixture, commits bool) {
		other := f.db.Open()
		a, b := f.run(f.s), f.run(f.s)
		c := f.add(newJob())[0]
		x := f.lostExchange(f.s, storage.Exchange{
			Extend: []storage.Lease{a.Lease}, Retention: kept(keep), Wants: wants(1),
			Finish: []storage.Finish{{Lease: b.Lease, Outcome: storage.OutcomeDone, Then: []storage.NewJob{newJob(lane("next", kind))}}},
		}, commits, 3)
		then := storage.Count{Queue: "next", Kind: kind, State: storage.Ready, N: 1}
		if f.isTo(other, ifSo(commits, storage.Done, storage.Running), b.ID); commits {
			f.counts(count(storage.Done, 1), count(storage.Running, 2), then)
		} else {
			f.counts(count(storage.Ready, 1), count(storage.Running, 2))
		}
		for range 2 {
			_, err := f.s.Exchange(f.ctx, f.now, x)
			x.Repeats = f.unknown("the repeated Exchange", err)
		}
		d := f.addTo(other, newJob())
		f.later(time.Second)
		res := f.exchange(f.s, x)
		if !slices.Equal(res.Extended, []storage.ItemResult{storage.Applied}) || !slices.Equal(res.Finished, []storage.ItemResult{storage.Applied}) || len(res.Then[0]) != 1 {
			f.Errorf("the repeated Exchange returned %+v", res)
		}
		f.order("leased", leasedIDs(res.Leased), []storage.ID{c})
		f.counts(count(storage.Done, 1), count(storage.Ready, 1), count(storage.Running, 2), then)
		f.is(storage.Ready, d)
		f.is(storage.Done, b.ID)
		if r := f.record(c); r.Attempt != 1 {
			f.Errorf("the job leased has begun %d attempts, want 1", r.Attempt)
		}
		f.finishAll(f.s, append(res.Leased, a)...)
	}),

	eitherWay("lost_exchange_again", repeatsSays+`
Another UnknownOutcomeError has the Call for the next time.`, func(f *fixture, commits bool) {
		id := f.add(newJob())[0]
		x := f.lostExchange(f.s, storage.Exchange{Wants: wants(1)}, false, 1)
		x = f.lostExchange(f.s, x, commits, 1)
		f.is(ifSo(commits, storage.Running, storage.Ready), id)
		res := f.exchange(f.s, x)
		f.order("leased", leasedIDs(res.Leased), []storage.ID{id})
		if r := f.record(id); r.Attempt != 1 {
			f.Errorf("the job has begun %d attempts, want 1", r.Attempt)
		}
		f.finishAll(f.s, res.Leased...)
	}),

	eitherWay("lost_exchange_answers", repeatsSays, func(f *fixture, commits bool) {
		gone, asked, refused := f.run(f.s), f.run(f.s), f.run(f.s)
		f.apply(f.s, storage.Finish{Lease: gone.Lease, Outcome: storage.OutcomeDone})
		f.cancel(asked.ID)
		x := f.lostExchange(f.s, storage.Exchange{
			Extend: []storage.Lease{gone.Lease, asked.Lease},
			Finish: []storage.Finish{
				{Lease: gone.Lease, Outcome: storage.OutcomeDone}, {Lease: refused.Lease, Outcome: 99},
				{Lease: asked.Lease, Outcome: storage.OutcomeInterrupted}, {Lease: asked.Lease, Outcome: storage.OutcomeDone},
			},
			Retention: kept(keep),
		}, commits, 1)
		res := f.exchange(f.s, x)
		if want := []storage.ItemResult{storage.Lost, storage.Cancelling}; !slices.Equal(res.Extended, want) {
			f.Errorf("extending returned %v, want %v", res.Extended, want)
		}
		if want := []storage.ItemResult{storage.Lost, storage.Refused, storage.Applied, storage.Lost}; !slices.Equal(res.Finished, want) {
			f.Errorf("finishing returned %v, want %v", res.Finished, want)
		}
		f.is(storage.Cancelled, asked.ID)
		f.is(storage.Running, refused.ID)
	}),

	eitherWay("lost_exchange_meanwhile", repeatsSays, func(f *fixture, commits bool) {
		other := f.db.Open()
		id := f.add(newJob())[0]
		x := f.lostExchange(f.s, storage.Exchange{Wants: wants(1)}, commits, 1)
		var own storage.Leased // of the other one
		if f.takesNothing(other, 0); commits {
			got := f.reclaim(other, hold)
			if len(got) != 1 {
				f.Fatalf("the lease of the lost answer has not lapsed")
			}
			own = got[0].Leased
		} else {
			own = f.leaseOne(other)
		}
		for _, l := range f.exchange(f.s, x).Leased {
			if r := f.extend(f.s, l.Lease); r != storage.Lost {
				f.Errorf("extending a lease that another instance has returned %d, want lost", r)
			}
		}
		f.finishAll(other, own)
		f.is("", id)
	}),

	eitherWay("lost_exchange_withdrawn", `After any other error it has taken effect neither then nor now`, func(f *fixture, commits bool) {
		id := f.add(newJob())[0]
		x := f.lostExchange(f.s, storage.Exchange{Wants: wants(1)}, commits, 1)
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		_, err := f.s.Exchange(ctx, f.now, x)
		if errors.Is(err, storage.ErrUnknownOutcome) {
			x.Repeats = f.unknown("a repeated Exchange without a context", err)
			f.order("leased", leasedIDs(f.exchange(f.s, x).Leased), []storage.ID{id})
		} else {
			f.is(storage.Ready, id)
		}
	}),

	eitherWay("lost_exchange_holds", repeatsSays, func(f *fixture, commits bool) {
		f.hold(storage.Hold{Lane: storage.Lane{Queue: "other", Kind: kind}, Reason: "old"})
		id := f.add(newJob())[0]
		x := f.lostExchange(f.s, storage.Exchange{
			Hold:    []storage.Hold{{Lane: storage.Lane{Queue: queue, Kind: kind}, Reason: "new"}},
			Release: []storage.Hold{{Lane: storage.Lane{Queue: "other", Kind: kind}, Reason: "old"}},
			Wants:   wants(1),
		}, commits, 1)
		if commits { // somebody else changes his mind
			f.release(storage.Lane{Queue: queue, Kind: kind}, "new")
		}
		if got := f.exchange(f.s, x).Leased; len(got) != 0 {
			f.Errorf("a job of a held lane was leased")
		}
		holds, err := f.s.Holds(f.ctx, f.now)
		f.must(err)
		if want := ifSo(commits, 0, 1); len(holds) != want {
			f.Errorf("%d holds are in force, want %d", len(holds), want)
		}
		f.is(storage.Ready, id)
	}),

	eitherWay("lost_enqueue", `Enqueue, PublishMessages, SkipHead and Tx have no name by which the Store knows them again: repeated, they may take effect twice. An Enqueue of a job whose unique key is held is a duplicate of the one that was inserted.`, func(f *fixture, commits bool) {
		f.loses(f.s, commits, 1)
		_, err := f.s.Enqueue(f.ctx, f.now, []storage.NewJob{newJob(unique("key")), newJob()})
		f.unknown("Enqueue", err)
		if commits {
			f.counts(count(storage.Ready, 2))
		} else {
			f.counts()
		}
		out := f.enqueue(newJob(unique("key")))
		if out[0].Duplicate != commits {
			f.Errorf("the job repeated is a duplicate: %t, want %t", out[0].Duplicate, commits)
		}
		f.is(storage.Ready, out[0].ID)
		f.counts(count(storage.Ready, ifSo[int64](commits, 2, 1)))
	}),

	eitherWay("lost_reclaim", `The next Reclaim of this instance returns the leases that the lost one took and that are still held, within its limit.
Until then [Peers].Alone reports false.`, func(f *fixture, commits bool) {
		a := f.db.Open()
		f.add(times(3, newJob())...)
		leased := f.lease(a, 3)
		f.started(a, leased[0].Lease)
		f.db.Kill(a)
		f.loses(f.s, commits, 1)
		_, err := f.s.Reclaim(f.ctx, f.now, 0, hold, 1000)
		f.unknown("Reclaim", err)
		if p, ok := f.s.(storage.Peers); ok && p.Alone() {
			f.Errorf("Alone reports true, and leases are to be returned")
		}
		fates, got := map[storage.ID]storage.Fate{}, []storage.Leased(nil)
		for _, limit := range []int{1, 1, 1000, 1000} {
			for _, r := range f.reclaimFor(f.s, 0, hold, limit) {
				fates[r.ID], got = r.Fate, append(got, r.Leased)
			}
		}
		f.finishAll(f.s, got...)
		for i, l := range leased {
			if want := f.known(ifSo(i == 0, storage.Crashed, storage.Unstarted)); fates[l.ID] != want {
				f.Errorf("the fate of job %d is %s, want %s", i, fateName(fates[l.ID]), fateName(want))
			}
		}
		f.counts()
	}),

	eitherWay("lost_reclaim_of_the_dead", `If the instance is gone, Reclaim of another one takes them.`, func(f *fixture, commits bool) {
		a, b := f.db.Open(), f.db.Open()
		l := f.run(a)
		f.started(a, l.Lease)
		f.db.Kill(a)
		f.loses(b, commits, 1)
		_, err := b.Reclaim(f.ctx, f.now, 0, hold, 1000)
		f.unknown("Reclaim", err)
		f.db.Kill(b)
		r := f.reclaim(f.s, 0)
		if len(r) != 1 || r[0].ID != l.ID || r[0].Fate != f.known(storage.Crashed) {
			f.Fatalf("reclaimed %+v, want the job, crashed", r)
		}
		f.finishAll(f.s, r[0].Leased)
	}),

	eitherWay("lost_handoff", `What was to be handed over by an [Offer] in a call whose answer was lost is ready, or is returned by the next Reclaim of this instance.`, func(f *fixture, commits bool) {
		w := f.offer(f.s, usual, 1)
		f.loses(f.s, commits, 1)
		_, err := f.s.Enqueue(f.ctx, f.now, []storage.NewJob{newJob()})
		f.unknown("Enqueue", err)
		got := f.reclaim(f.s, 0)
		n := len(w.taken()) + len(got) + len(f.lease(f.s, 9))
		if want := ifSo(commits, 1, 0); n != want {
			f.Errorf("%d jobs were handed over, reclaimed or leased, want %d", n, want)
		}
	}),

	eitherWay("lost_tx", `If Tx ends with this error, the committed of a FinishTx in it is not called. Whether the lease has ended LookTx says, or an Exchange about it: [Ended] if it has.`, func(f *fixture, commits bool) {
		s := f.transacts(f.s)
		for _, look := range []bool{true, false} {
			l, told := f.begun(f.s), false
			f.loses(f.s, commits, 1)
			f.unknown("Tx", s.Tx(f.ctx, func(tx any) error {
				f.finishTxFor(f.s, tx, l, kept(keep), func() { told = true }, storage.Applied)
				return nil
			}))
			if told {
				f.Errorf("a commit was told that is not known")
			}
			f.is(ifSo(commits, storage.Done, storage.Running), l.ID)
			if look {
				r, err := s.LookTx(f.ctx, nil, l.Lease)
				f.must(err)
				if want := ifSo(commits, storage.Ended, storage.Applied); r != want {
					f.Errorf("LookTx returned %d, want %d", r, want)
				}
			}
			if r, want := f.finish(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}), ifSo(commits, storage.Ended, storage.Applied); r != want {
				f.Errorf("finishing returned %d, want %d", r, want)
			}
		}
	}),

	revisedCases(),
	repeatedCases(),

	[]testCase{
		{"exchange_repeats", `It is [ErrNotFound] if Repeats is no such Call, or was answered.`, func(f *fixture) {
			id := f.add(newJob())[0]
			x := storage.Exchange{LeaseDuration: hold, Wants: wants(1), Repeats: 1 << 40}
			if _, err := f.s.Exchange(f.ctx, f.now, x); !errors.Is(err, storage.ErrNotFound) {
				f.Errorf("repeating a call that there was not returned %v, want ErrNotFound", err)
			}
			f.is(storage.Ready, id)
			for _, commits := range []bool{true, false} {
				x.Repeats = 0
				x = f.lostExchange(f.s, x, commits, 1)
				f.exchange(f.s, x)
				f.add(newJob())
				if _, err := f.s.Exchange(f.ctx, f.now, x); !errors.Is(err, storage.ErrNotFound) {
					f.Errorf("repeating a call that was answered returned %v, want ErrNotFound", err)
				}
			}
			f.counts(count(storage.Ready, 1), count(storage.Running, 2))
		}},

		{"lost_closed", `ErrClosed leaves that open.`, func(f *fixture) {
			f.add(newJob())
			x := f.lostExchange(f.s, storage.Exchange{Wants: wants(1)}, true, 1)
			f.must(f.s.Close())
			if _, err := f.s.Exchange(f.ctx, f.now, x); !errors.Is(err, storage.ErrClosed) {
				f.Errorf("after Close the repeated Exchange returned %v, want ErrClosed", err)
			}
			other := f.db.Open()
			if got := f.reclaim(other, 0); len(got) == 1 {
				f.finishAll(other, got[0].Leased)
			} else {
				f.Errorf("after Close %d leases of the lost answer were reclaimed, want 1", len(got))
			}
		}},
	},
)

// addTo enqueues a job by s, and returns its ID.
func (f *fixture) addTo(s storage.Store, n storage.NewJob) storage.ID {
	f.Helper()
	out, err := s.Enqueue(f.ctx, f.now, []storage.NewJob{n})
	f.must(err)
	f.ids[out[0].ID.Key()] = out[0].ID
	return out[0].ID
}

// started notes that the handler of a lease was called, if s keeps notes.
func (f *fixture) started(s storage.Store, l storage.Lease) {
	f.Helper()
	if m, ok := s.(storage.Marker); ok {
		f.must(m.Started(l, f.now))
	}
}

// repetition is a call whose answer is lost, and that is repeated then. Its answer is as text.
type repetition struct {
	name string
	call func() (string, error)
	// The answer to the second call, if the first one took effect, and if it did not.
	done, undone string
}

// repeated checks calls whose answer is lost, but for what the store lacks.
func (f *fixture) repeated(commits bool, all ...repetition) {
	f.Helper()
	for _, r := range all {
		f.loses(f.s, commits, 1)
		_, err := r.call()
		if f.lacked(err) != "" {
			continue
		}
		f.unknown(r.name, err)
		got, err := r.call()
		if want := ifSo(commits, r.done, r.undone); got != want || err != nil {
			f.Errorf("%s repeated returned %s, %v; want %s", r.name, got, err, want)
		}
	}
}

func revisedCases() []testCase {
	return eitherWay("lost_revision", `Fire, PutSchedule, DropSchedule and PutEntries may be repeated. One that took effect has changed the revision, or what it is about is gone: then it changes nothing.`, func(f *fixture, commits bool) {
		s := f.scheduler(f.s)
		revision := f.put(newSchedule("fired"))
		f.put(newSchedule("dropped"))
		f.repeated(commits,
			repetition{"PutSchedule", func() (string, error) {
				r, err := s.PutSchedule(f.ctx, f.now, newSchedule("added").Schedule)
				return fmt.Sprint(r > 0), err
			}, "false", "true"},
			repetition{"Fire", func() (string, error) {
				fired, err := s.Fire(f.ctx, f.now, []storage.Firing{{Name: "fired", Revision: revision, Ticks: []storage.NewTick{tick(f.now)}}})
				return fmt.Sprint(err == nil && fired[0].Applied), err
			}, "false", "true"},
			repetition{"DropSchedule", func() (string, error) {
				err := s.DropSchedule(f.ctx, f.now, "dropped")
				if errors.Is(err, storage.ErrNotFound) {
					return "gone", nil
				}
				return "dropped", err
			}, "gone", "dropped"},
		)
		if all, err := s.Schedules(f.ctx); err != nil || len(all) != 2 {
			f.Errorf("there are %d schedules, want 2 (%v)", len(all), err)
		}
		f.counts(count(storage.Ready, 1))
		topics, ok := f.s.(storage.Topics)
		if !ok {
			return
		}
		f.repeated(commits, repetition{"PutEntries", func() (string, error) {
			_, err := topics.PutEntries(f.ctx, f.now, []storage.Entry{{Class: "topic", Name: "orders", Family: "orders", Doc: []byte("{}")}})
			if errors.Is(err, storage.ErrStale) {
				return "stale", nil
			}
			return "written", err
		}, "stale", "written"})
	})
}

func repeatedCases() []testCase {
	return append(eitherWay("lost_others", `All other calls may be repeated. What has been done is not done again, and the answer is about what was left to do.
RunNow with a Limit may be repeated, and takes up to as many jobs more.`, func(f *fixture, commits bool) {
		step := func(s storage.Step, err error) (string, error) { return fmt.Sprint(s.N), err }
		whole := storage.Lane{Queue: queue}
		var dead []storage.ID
		for range 4 {
			dead = append(dead, f.bury(storage.ReasonPermanent, "no", lane("dead", kind)))
		}
		f.bury(storage.ReasonPermanent, "no", lane("other", kind), unique("key"), forever)
		l := f.run(f.s)
		later := f.add(times(3, newJob(delay(time.Hour), lane("later", kind)))...)
		ready := f.add(newJob())[0]
		f.repeated(commits,
			repetition{"Cancel", func() (string, error) {
				state, err := f.s.Cancel(f.ctx, f.now, ready, kept(time.Second))
				return string(state), err
			}, "cancelled", "cancelled"},
			repetition{"ReleaseUnique", func() (string, error) {
				id, err := f.s.ReleaseUnique(f.ctx, "key")
				if errors.Is(err, storage.ErrNotFound) {
					return "free", nil
				}
				return fmt.Sprint(id.IsZero()), err
			}, "free", "true"},
			repetition{"Hold", func() (string, error) {
				return "", f.s.Hold(f.ctx, f.now, storage.Hold{Lane: whole, Reason: "x"})
			}, "", ""},
			repetition{"Configure", func() (string, error) {
				return "", f.s.Configure(f.ctx, whole, storage.Settings{storage.SettingGroupLimit: 7}) // so that Regroup writes
			}, "", ""},
			repetition{"Checkpoint", func() (string, error) {
				r, err := f.s.Checkpoint(f.ctx, storage.Checkpoint{Lease: l.Lease, Data: []byte("here")})
				return fmt.Sprint(r), err
			}, fmt.Sprint(storage.Applied), fmt.Sprint(storage.Applied)},
			repetition{"Redrive", func() (string, error) {
				return step(f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: dead[:2]}, ""))
			}, "0", "2"},
			repetition{"Change", func() (string, error) {
				return step(f.s.Change(f.ctx, f.now, storage.Selection{IDs: later[:1]}, storage.Edit{Priority: new(7)}))
			}, "1", "1"},
			repetition{"RunNow", func() (string, error) {
				return step(f.s.RunNow(f.ctx, f.now, storage.Selection{Filter: storage.Filter{Queue: "later"}, Limit: 1}, storage.Waiting{First: true}))
			}, "1", "1"},
			repetition{"Delete", func() (string, error) { return step(f.s.Delete(f.ctx, storage.Selection{IDs: dead[2:]})) }, "0", "2"},
			repetition{"Regroup", func() (string, error) { return f.s.Regroup(f.ctx, queue, "") }, "", ""},
			repetition{"Release", func() (string, error) {
				was, err := f.s.Release(f.ctx, f.now, whole, "x")
				return fmt.Sprint(was), err
			}, "false", "true"},
		)
		f.later(time.Minute)
		f.repeated(commits, repetition{"PurgeFinished", func() (string, error) {
			n, _, err := f.s.PurgeFinished(f.ctx, f.now)
			return fmt.Sprint(n), err
		}, "0", "1"})
		of := func(q string, state storage.State, n int64) storage.Count {
			return storage.Count{Queue: q, Kind: kind, State: state, N: n}
		}
		taken := ifSo[int64](commits, 2, 1) // by RunNow
		f.counts(of("dead", storage.Ready, 2), of("later", storage.Ready, taken), of("later", storage.Scheduled, 3-taken),
			count(storage.Running, 1), of("other", storage.Dead, 1))
		if r := f.record(l.ID); string(r.Checkpoint) != "here" && !slices.Contains(f.partial, "Checkpoint") {
			f.Errorf("the checkpoint is %q", r.Checkpoint)
		}
		if all, err := f.s.Settings(f.ctx); err != nil || len(all) != 1 {
			f.Errorf("the settings are %+v, %v", all, err)
		}
	}), eitherWay("lost_step_clock", `All other calls may be repeated. What has been done is not done again, and the answer is about what was left to do.`, func(f *fixture, commits bool) {
		f.timekeeper(f.s)
		id := f.add(newJob(delay(time.Hour)))[0]
		at := f.now.Add(-1000 * time.Hour)
		f.repeated(commits, repetition{"StepClock", func() (string, error) {
			next, err := f.timekeeper(f.s).StepClock(f.ctx, at, 0)
			return fmt.Sprint(next), err
		}, "0", "0"})
		if r := f.record(id); !r.DueAt.Equal(at.Add(time.Hour)) {
			f.Errorf("the job is due at %v, want %v", r.DueAt, at.Add(time.Hour))
		}
	})...)
}
