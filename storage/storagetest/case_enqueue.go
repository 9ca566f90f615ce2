package storagetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/errandq/errand/storage"
)

var enqueueCases = []testCase{
	{"enqueue_order", `Enqueue inserts jobs in order and answers for each in the same order.`, func(f *fixture) {
		var jobs []storage.NewJob
		for i := range 50 {
			jobs = append(jobs, newJob(func(n *storage.NewJob) { n.Args = []byte{byte(i)} }))
		}
		ids := f.add(jobs...)
		for i, id := range ids {
			if got := f.record(id).Args; !bytes.Equal(got, jobs[i].Args) {
				f.Errorf("answer %d names the job with args %v", i, got)
			}
			if i > 0 && id.Key() <= ids[i-1].Key() {
				f.Errorf("job %d has key %d, after %d", i, id.Key(), ids[i-1].Key())
			}
		}
		more := f.add(newJob())
		if more[0].Key() <= ids[49].Key() {
			f.Errorf("a later job has key %d, after %d", more[0].Key(), ids[49].Key())
		}
		f.enqueue()
		f.counts(count(storage.Ready, 51))
	}},

	{"enqueue_due", `A job due at or before now becomes ready, one due later scheduled, unless its group blocks it.
DueAt time.Time zero: at once`, func(f *fixture) {
		ids := f.add(
			newJob(dueAt(f.now.Add(-time.Hour))), newJob(dueAt(f.now)), newJob(),
			newJob(dueAt(f.now.Add(time.Microsecond))), newJob(dueAt(f.now.Add(time.Hour))),
		)
		f.is(storage.Ready, ids[:3]...)
		f.is(storage.Scheduled, ids[3:]...)
		f.counts(count(storage.Ready, 3), count(storage.Scheduled, 2))
		for i, want := range []time.Duration{-time.Hour, 0, 0, time.Microsecond, time.Hour} {
			if got := f.record(ids[i]).DueAt; !got.Equal(f.now.Add(want)) {
				f.Errorf("job %d is due at %v, want %v", i, got, f.now.Add(want))
			}
		}
	}},

	{"enqueue_microseconds", `Times are kept in whole microseconds; due times are rounded up, so that no job starts early.
DueAt time.Time zero: at once
It counts from the enqueue, or from the first due time if that is later.
With every other outcome it is due now.`, func(f *fixture) {
		ids := f.add(newJob(dueAt(f.now.Add(1))), newJob(dueAt(f.now.Add(1001))), newJob(dueAt(f.now.Add(-1))))
		for i, want := range []time.Duration{time.Microsecond, 2 * time.Microsecond, 0} {
			if got := f.record(ids[i]).DueAt; !got.Equal(f.now.Add(want)) {
				f.Errorf("job %d is due at %v, want %v", i, got, f.now.Add(want))
			}
		}
		f.is(storage.Scheduled, ids[:2]...)
		f.is(storage.Ready, ids[2])
		f.later(time.Microsecond)
		f.order("leased", leasedIDs(f.lease(f.s, 9)), pick(ids, 2, 0))
		f.later(time.Microsecond)
		l := f.leaseOne(f.s)
		f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(1)})
		if got, want := f.record(l.ID).DueAt, f.now.Add(time.Microsecond); !got.Equal(want) {
			f.Errorf("the retry is due at %v, want %v", got, want)
		}

		exact := f.now
		f.now = exact.Add(999)
		r := f.record(f.add(newJob(uniqueFor(time.Second)))[0])
		f.apply(f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeRetry})
		created, back := r.CreatedAt, f.record(r.ID).DueAt
		f.now = exact
		if d := created.Sub(exact); created.Nanosecond()%1000 != 0 || d < 0 || d > time.Microsecond {
			f.Errorf("created at %v, want whole microseconds near %v", created, exact.Add(999))
		}
		if !r.DueAt.Equal(created) || !back.Equal(created) {
			f.Errorf("a job created at %v is due at %v, and after a failure at %v: want at once", created, r.DueAt, back)
		}
		f.cancel(r.ID)
		f.now = created.Add(time.Second)
		f.add(newJob(unique("a")))
	}},

	{"enqueue_delay", `A job with a Delay is due that long after now.
Delay, if positive, is how long after now the job is due; DueAt is zero then.
due times are rounded up, so that no job starts early.`, func(f *fixture) {
		delays := []time.Duration{-time.Hour, 0, 1, 1001, time.Hour}
		var jobs []storage.NewJob
		for _, d := range delays {
			jobs = append(jobs, newJob(delay(d)))
		}
		ids := f.add(jobs...)
		f.is(storage.Ready, ids[:2]...)
		f.is(storage.Scheduled, ids[2:]...)
		for i, want := range []time.Duration{0, 0, time.Microsecond, 2 * time.Microsecond, time.Hour} {
			if got := f.record(ids[i]).DueAt; !got.Equal(f.now.Add(want)) {
				f.Errorf("the job with a delay of %v is due at %v, want %v", delays[i], got, f.now.Add(want))
			}
		}
		exact := f.now
		f.now = exact.Add(999)
		odd := f.add(newJob(delay(time.Millisecond + 1)))[0]
		if early := f.now.Add(time.Millisecond + 1).Sub(f.record(odd).DueAt); early > 0 || early < -2*time.Microsecond {
			f.Errorf("a job with a delay of 1 ms is early by %v", early)
		}
		f.cancel(odd)
		f.now = exact.Add(time.Hour - time.Microsecond)
		f.order("leased a microsecond early", leasedIDs(f.lease(f.s, 9)), ids[:4])
		f.later(time.Microsecond)
		f.order("leased when due", leasedIDs(f.lease(f.s, 9)), ids[4:])
	}},

	{"enqueue_record", `Args, Headers and Policy are opaque bytes.
Job returns one job, whichever of its three tables it is in, with args, headers and history.
Slices passed in belong to the caller again when the call returns; slices returned belong to the caller.`, func(f *fixture) {
		noise := make([]byte, 256<<10)
		random := rand.NewChaCha8([32]byte{1})
		_, _ = random.Read(noise)
		n := storage.NewJob{
			Queue: "a.b/c:d-e_f", Kind: "K", Priority: -100, DueAt: f.now.Add(time.Hour), Timeout: 1500 * time.Millisecond,
			Args: bytes.Clone(noise), Headers: bytes.Clone(noise[:16<<10]), Policy: []byte{0, 0xff, 0xfe, '{'},
			Unique: "Key%_ '\"\\ é",
		}
		want := storage.Record{
			Queue: n.Queue, Kind: n.Kind, State: storage.Scheduled, Priority: n.Priority, CreatedAt: f.now, DueAt: n.DueAt,
			Timeout: n.Timeout, Unique: n.Unique,
			Policy: bytes.Clone(n.Policy), Args: noise, Headers: noise[:16<<10],
		}
		id := f.add(n)[0]
		clear(n.Args)
		clear(n.Headers)
		clear(n.Policy)
		want.ID, want.Key = id, id.Key()
		f.same("the job", f.record(id), want)
		clear(f.record(id).Args)
		f.same("the job after its copy was changed", f.record(id), want)

		f.later(time.Hour)
		got := f.exchange(f.s, storage.Exchange{Wants: wants(1, storage.Want{Queues: []string{n.Queue}, Kinds: []string{n.Kind}})}).Leased
		if len(got) != 1 || !bytes.Equal(got[0].Args, want.Args) || !bytes.Equal(got[0].Headers, want.Headers) || !bytes.Equal(got[0].Policy, want.Policy) {
			f.Fatalf("the lease came without the job's args, headers and policy")
		}
		f.apply(f.s, died(got[0].Lease, storage.ReasonPermanent, "no"))
		if r := f.record(id); !bytes.Equal(r.Args, want.Args) || !bytes.Equal(r.Headers, want.Headers) {
			f.Errorf("the dead job came without its args and headers")
		}
	}},

	{"enqueue_sizes", `Args     []byte    // not nil
Headers  []byte    // nil: none
Policy   []byte    // nil: decided when an attempt fails`, func(f *fixture) {
		for _, args := range []int{0, 1, 2047, 2048, 2049, 4096, 65536} {
			for _, headers := range []int{0, 1, 3000} {
				n := newJob()
				n.Args = bytes.Repeat([]byte{'a'}, args)
				if headers > 0 {
					n.Headers = bytes.Repeat([]byte{'h'}, headers)
				}
				l := f.run(f.s, func(j *storage.NewJob) { *j = n })
				r := f.record(l.ID)
				if !bytes.Equal(l.Args, n.Args) || !bytes.Equal(r.Args, n.Args) || !bytes.Equal(l.Headers, n.Headers) || !bytes.Equal(r.Headers, n.Headers) {
					f.Errorf("args of %d and headers of %d bytes came back as %d and %d, and %d and %d", args, headers, len(l.Args), len(l.Headers), len(r.Args), len(r.Headers))
				}
				if r.Headers != nil && headers == 0 || r.Policy != nil {
					f.Errorf("headers %v and policy %v, want nil", r.Headers, r.Policy)
				}
			}
		}
	}},

	{"enqueue_withdrawn", `A context that ends before a write has begun withdraws it and returns the context's error`, func(f *fixture) {
		id := f.add(newJob())[0]
		dead := f.bury(storage.ReasonPermanent, "no", lane("other", "kind"))
		f.cancel(f.add(newJob())[0])
		other := f.db.Open()
		lost := f.exchange(other, storage.Exchange{Wants: wants(1)}).Leased[0]
		f.db.Kill(other)
		f.add(newJob())
		held := storage.HoldState{Lane: storage.Lane{Queue: "held"}, Reason: storage.HoldPaused, Since: f.now}
		f.pause("held", true)
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		expired, cancel2 := context.WithDeadline(f.ctx, time.Unix(0, 0))
		defer cancel2()
		before := f.record(id)
		calls := map[string]func(ctx context.Context) error{
			"Enqueue": func(ctx context.Context) error {
				_, err := f.s.Enqueue(ctx, f.now, times(3, newJob()))
				return err
			},
			"Exchange": func(ctx context.Context) error {
				_, err := f.s.Exchange(ctx, f.now, storage.Exchange{LeaseDuration: hold, Wants: wants(5)})
				return err
			},
			"Cancel": func(ctx context.Context) error { _, err := f.s.Cancel(ctx, f.now, id, kept(keep)); return err },
			"Hold":   func(ctx context.Context) error { return f.s.Hold(ctx, f.now, aPause) },
			"Release": func(ctx context.Context) error {
				_, err := f.s.Release(ctx, f.now, storage.Lane{Queue: "held"}, storage.HoldPaused)
				return err
			},
			"Redrive": func(ctx context.Context) error {
				_, err := f.s.Redrive(ctx, f.now, storage.Selection{IDs: []storage.ID{dead}}, "")
				return err
			},
			"Reclaim": func(ctx context.Context) error {
				_, err := f.s.Reclaim(ctx, f.now, 0, hold, 9)
				return err
			},
			"PurgeFinished": func(ctx context.Context) error {
				_, _, err := f.s.PurgeFinished(ctx, f.now.Add(2*keep))
				return err
			},
			"Delete": func(ctx context.Context) error {
				_, err := f.s.Delete(ctx, storage.Selection{IDs: []storage.ID{dead}})
				return err
			},
		}
		for name, call := range calls {
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				f.Errorf("%s with a cancelled context returned %v", name, err)
			}
			if err := call(expired); !errors.Is(err, context.DeadlineExceeded) {
				f.Errorf("%s with an expired context returned %v", name, err)
			}
		}
		f.same("the job", f.record(id), before)
		f.is(storage.Dead, dead)
		f.counts(
			count(storage.Cancelled, 1), count(storage.Ready, 1), count(storage.Running, 1),
			storage.Count{Queue: "other", Kind: "kind", State: storage.Dead, N: 1},
		)
		f.takes(f.s, 0, lost.Lease, storage.Unstarted)
		f.holdsAre("afterwards", held)
	}},
}

var uniqueCases = []testCase{
	{"unique_duplicate", `A job whose unique key is held is not inserted; its answer is a duplicate that names the holder. This is so within one call too.
Keys are compared as they are, over the whole database.`, func(f *fixture) {
		first := f.add(newJob(unique("a")))[0]
		got := f.enqueue(
			newJob(unique("b")), newJob(unique("a")), newJob(unique("b")), newJob(), newJob(),
			newJob(unique("A")), newJob(unique("a ")), newJob(unique("a"), lane("other", "other")),
		)
		want := []storage.Enqueued{
			got[0], {ID: first, Duplicate: true}, {ID: got[0].ID, Duplicate: true}, got[3], got[4],
			got[5], got[6], {ID: first, Duplicate: true},
		}
		for i := range got {
			if i != 1 && i != 2 && i != 7 {
				want[i].Duplicate = false
			}
			if got[i] != want[i] {
				f.Errorf("answer %d is %v, want %v", i, got[i], want[i])
			}
		}
		f.counts(count(storage.Ready, 6))
		if r := f.record(got[5].ID); r.Unique != "A" {
			f.Errorf("the job's unique key is %q, want %q", r.Unique, "A")
		}
	}},

	{"unique_live", `UniqueLive holds the key until the job is finished or dead.`, func(f *fixture) {
		held := func(what string, id storage.ID) {
			f.Helper()
			if e := f.enqueue(newJob(unique("a")))[0]; e != (storage.Enqueued{ID: id, Duplicate: true}) {
				f.Errorf("%s: got %v, want a duplicate of %v", what, e, id)
			}
		}
		l := f.run(f.s, unique("a"))
		held("running", l.ID)
		for _, o := range []storage.Outcome{storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeCrashed, storage.OutcomeInterrupted, storage.OutcomeReturned} {
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: o, DueAt: f.now.Add(time.Second)})
			held("put back", l.ID)
			f.later(time.Second)
			l = f.leaseOne(f.s)
		}
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})

		ends := map[string]func(l storage.Leased) storage.Finish{
			"done":      func(l storage.Leased) storage.Finish { return storage.Finish{Outcome: storage.OutcomeDone} },
			"cancelled": func(l storage.Leased) storage.Finish { return storage.Finish{Outcome: storage.OutcomeCancelled} },
			"dead":      func(l storage.Leased) storage.Finish { return died(l.Lease, storage.ReasonExhausted, "no") },
			"stopped, put back": func(l storage.Leased) storage.Finish {
				f.cancel(l.ID)
				return storage.Finish{Outcome: storage.OutcomeRetry}
			},
		}
		for what, end := range ends {
			for _, d := range []time.Duration{0, keep} {
				l := f.run(f.s, unique("a"))
				fin := end(l)
				fin.Lease = l.Lease
				f.keep(d, f.s, fin)
				e := f.enqueue(newJob(unique("a")))[0]
				if e.Duplicate {
					f.Fatalf("%s, kept for %v: the key is still held by %v", what, d, e.ID)
				}
				f.cancel(e.ID)
			}
		}
		later := f.add(newJob(unique("a"), dueAt(f.now.Add(time.Hour))))[0]
		held("scheduled", later)
		f.cancel(later)
		f.add(newJob(unique("a")))
	}},

	{"unique_forever", `UniqueForever holds the key until Store.ReleaseUnique frees it.`, func(f *fixture) {
		for key, end := range map[string]func(l storage.Leased){
			"done": func(l storage.Leased) {
				f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			},
			"deleted": func(l storage.Leased) { f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}) },
			"cancelled": func(l storage.Leased) {
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeCancelled})
			},
			"dead": func(l storage.Leased) { f.apply(f.s, died(l.Lease, storage.ReasonExhausted, "no")) },
			"purged": func(l storage.Leased) {
				f.apply(f.s, died(l.Lease, storage.ReasonExhausted, "no"))
				if _, err := f.s.Delete(f.ctx, storage.Selection{IDs: []storage.ID{l.ID}}); err != nil {
					f.Errorf("Delete: %v", err)
				}
			},
			"purged as finished": func(l storage.Leased) {
				f.keep(time.Second, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
				if _, _, err := f.s.PurgeFinished(f.ctx, f.now.Add(time.Minute)); err != nil {
					f.Errorf("PurgeFinished: %v", err)
				}
			},
			"waiting, then cancelled": func(l storage.Leased) {
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: f.now.Add(time.Hour)})
				f.cancel(l.ID)
			},
		} {
			l := f.run(f.s, unique(key), forever)
			end(l)
			for _, change := range []func(*storage.NewJob){unique(key), forever} {
				e := f.enqueue(newJob(unique(key), change))[0]
				if _, err := f.s.Job(f.ctx, l.ID); e != (storage.Enqueued{ID: l.ID, Duplicate: true, Gone: err != nil}) {
					f.Errorf("%s: got %v, want a duplicate of %v (%v)", key, e, l.ID, err)
				}
			}
		}
	}},

	{"unique_gone", `Gone is true if the job that holds the key was deleted since: a key with [UniqueForever] outlives it.`, func(f *fixture) {
		l := f.run(f.s, unique("a"), forever)
		for _, gone := range []bool{false, true} {
			if e := f.enqueue(newJob(unique("a")))[0]; e.Gone != gone {
				f.Errorf("got %v, want gone %t", e, gone)
			}
			f.finish(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
	}},

	{"unique_release", `ReleaseUnique makes a unique key free when its holder ends, whatever its scope: at once if the holder is not live.
It returns the holder if that has the key until it ends, the zero ID if the key is free now, and [ErrNotFound] if no job held the key.`, func(f *fixture) {
		release := func(what string, want storage.ID, wantErr error) {
			f.Helper()
			if id, err := f.s.ReleaseUnique(f.ctx, "a"); id != want || !errors.Is(err, wantErr) {
				f.Errorf("%s: got %v, %v; want %v, %v", what, id, err, want, wantErr)
			}
		}
		duplicate := func(what string, want bool) {
			f.Helper()
			e := f.enqueue(newJob(unique("a")))[0]
			if e.Duplicate != want {
				f.Errorf("%s: got %v, want duplicate %t", what, e, want)
			}
			if !e.Duplicate {
				f.cancel(e.ID)
			}
		}
		release("nobody holds it", storage.ID{}, storage.ErrNotFound)
		if id, err := f.s.ReleaseUnique(f.ctx, ""); !id.IsZero() || !errors.Is(err, storage.ErrNotFound) {
			f.Errorf("the empty key: got %v, %v; want ErrNotFound", id, err)
		}
		for what, d := range map[string]time.Duration{"deleted": 0, "kept": keep, "dead": keep} {
			end := storage.Finish{Outcome: storage.OutcomeDone}
			if what == "dead" {
				end = died(storage.Lease{}, storage.ReasonExhausted, "no")
			}
			for _, change := range []func(*storage.NewJob){unique("a"), forever} {
				l := f.run(f.s, unique("a"), change)
				end.Lease = l.Lease
				release("while its holder lives", l.ID, nil)
				duplicate("while its holder lives", true)
				f.keep(d, f.s, end)
				duplicate("when its holder has ended", false)
			}
			l := f.run(f.s, unique("a"), forever)
			end.Lease = l.Lease
			f.keep(d, f.s, end)
			duplicate(what, true)
			release(what, storage.ID{}, nil)
			duplicate(what+", then released", false)
		}
		release("given back", storage.ID{}, storage.ErrNotFound)
		step, err := f.s.Redrive(f.ctx, f.now, storage.Selection{}, "")
		if err != nil || step.N != 1 || len(step.Duplicates) != 2 {
			f.Errorf("redriving returns %+v, %v: want the key with one of three", step, err)
		}
	}},
}
