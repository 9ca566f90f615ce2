//go:build unix

package torture_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

func init() { roles["scenario"] = scenario }

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// script is a program that makes each transition there is, one after the other
// and always in the same order, and goes on after errors as far as it can.
type script struct {
	part
	voice *voice
	now   time.Time
	w     *witness
	next  int
}

// scenario plays the script, closes the database, and goes on for a bit.
func scenario(p part, v *voice) error {
	s := &script{part: p, voice: v, now: t0.Add(time.Duration(p.First) * time.Hour), next: p.First}
	steps := []func(){s.work, s.rest}
	if p.Short {
		steps = steps[1:]
	}
	for i, work := range steps {
		if !s.open() {
			if !s.open() { // what failed may work the second time
				continue
			}
		}
		work()
		if p.Abrupt && i == len(steps)-1 {
			break
		}
		s.did("close", s.w.Close())
	}
	v.say("complete")
	return nil
}

// did says how a step went. What goes wrong must have one of the sentinels.
func (s *script) did(step string, err error) bool {
	if err == nil {
		return true
	}
	name := "untyped"
	for text, sentinel := range map[string]error{
		"unknown outcome": storage.ErrUnknownOutcome, "closed": storage.ErrClosed, "full": storage.ErrFull, "io": storage.ErrIO,
	} {
		if errors.Is(err, sentinel) {
			name = text
		}
	}
	s.voice.say("failed %s: %s: %v", step, name, strings.ReplaceAll(err.Error(), "\n", "; "))
	if s.Fragile && errors.Is(err, storage.ErrUnknownOutcome) {
		os.Exit(1)
	}
	// Who is told that the store is closed opens it again.
	if errors.Is(err, storage.ErrUnknownOutcome) || errors.Is(err, storage.ErrClosed) {
		if s.w != nil && step != "close" {
			s.did("close", s.w.Close())
		}
		if !strings.HasPrefix(step, "open") && step != "close" {
			s.open()
		}
	}
	return false
}

func (s *script) open() bool {
	opts := &sqlite.Options{Logger: slog.New(slog.DiscardHandler), BusyTimeout: 500 * time.Millisecond}
	if s.Relaxed {
		opts.Durability = sqlite.Relaxed
	}
	store, err := sqlite.Open(s.DB, opts)
	if !s.did("open", err) {
		return false
	}
	s.w = &witness{Store: store, voice: s.voice}
	return true
}

// job makes a new job with these args more.
func (s *script) job(change func(*storage.NewJob)) storage.NewJob {
	s.next++
	args, err := json.Marshal(order{N: s.next})
	if err != nil {
		panic(err)
	}
	j := storage.NewJob{Queue: "default", Kind: "order", Args: args}
	if change != nil {
		change(&j)
	}
	return j
}

func (s *script) enqueue(jobs ...storage.NewJob) []storage.ID {
	first := s.next - len(jobs) + 1
	for i := range jobs {
		s.voice.say("try %d %s", first+i, jobs[i].Queue)
	}
	out, err := s.w.Enqueue(context.Background(), s.now, jobs)
	return s.enqueued("enqueue", first, out, err)
}

func (s *script) enqueued(step string, first int, out []storage.Enqueued, err error) (ids []storage.ID) {
	for i, e := range out {
		if err == nil {
			s.voice.say("enqueued %d %s", first+i, e.ID)
			ids = append(ids, e.ID)
		}
	}
	s.did(step, err)
	return ids
}

func (s *script) exchange(step string, x storage.Exchange) []storage.Leased {
	x.LeaseDuration = time.Second
	r, err := s.w.Exchange(context.Background(), s.now, x)
	s.did(step, err)
	return r.Leased
}

// orders wants n jobs of any queue.
func orders(n int) []storage.Want {
	return []storage.Want{{Queues: []string{"default", "other", "quick"}, Kinds: []string{"order"}, N: n}}
}

// hour is how long the script keeps most of its jobs.
var hour = storage.Retention{Default: time.Hour}

// work is the script.
func (s *script) work() {
	ctx := context.Background()
	s.enqueue(s.job(nil))
	large := fmt.Sprintf(`{"N":%d,"Pad":%q}`, s.next+1, strings.Repeat("large", 1500))
	ids := s.enqueue(
		s.job(func(j *storage.NewJob) { j.Args = []byte(large) }),
		s.job(func(j *storage.NewJob) { j.Unique = fmt.Sprint("order ", s.next) }),
		s.job(func(j *storage.NewJob) { j.DueAt = s.now.Add(time.Minute) }),
		s.job(func(j *storage.NewJob) { j.Policy = []byte(`{"healthyRetryPolicy":{"numRetries":3}}`) }),
		s.job(func(j *storage.NewJob) { j.Queue, j.Headers = "other", []byte(`{"a":"b"}`) }),
		s.job(nil), s.job(nil), s.job(nil), s.job(nil), s.job(nil),
	)
	s.tx()
	if len(ids) > 9 {
		_, err := s.w.Cancel(ctx, s.now, ids[9], storage.Retention{Default: time.Hour})
		s.did("cancel", err)
	}
	s.did("hold", s.w.Hold(ctx, s.now, storage.Hold{Lane: storage.Lane{Queue: "other"}, Reason: storage.HoldPaused}))
	_, err := s.w.Release(ctx, s.now, storage.Lane{Queue: "other"}, storage.HoldPaused)
	s.did("release", err)

	s.tick()
	if s.Handoff {
		s.handoff()
	}

	leased := s.exchange("lease", storage.Exchange{Wants: orders(9)})
	x := storage.Exchange{Retention: storage.Retention{Default: 5 * time.Minute}}
	var deleted storage.Exchange
	for i, l := range leased {
		s.did("started", s.w.Started(l.Lease, s.now))
		s.voice.say("run %d %d", l.Key, l.Attempt)
		f := storage.Finish{Lease: l.Lease}
		failure := &storage.NewFailure{Phase: "immediate", Error: "as planned", Stack: "none"}
		switch i {
		case 0, 1:
			f.Outcome = storage.OutcomeDone
		case 2:
			f.Outcome, f.DueAt, f.Failure = storage.OutcomeRetry, s.now.Add(time.Second), failure
		case 3:
			f.Outcome, f.DueAt = storage.OutcomeSnooze, s.now.Add(2*time.Second)
		case 4, 5:
			f.Outcome, f.Reason, f.Error, f.Failure, f.Policy = storage.OutcomeDead, storage.ReasonPermanent, "as planned", failure, []byte(`{}`)
		case 6:
			f.Outcome = storage.OutcomeInterrupted
		case 7:
			_, err := s.w.Cancel(ctx, s.now, l.ID, storage.Retention{Default: time.Hour}) // learnt by the next extension
			s.did("cancel running", err)
			s.exchange("extend", storage.Exchange{Extend: []storage.Lease{l.Lease}})
			f.Outcome = storage.OutcomeCancelled
		case 8:
			x.Extend = append(x.Extend, l.Lease)
			continue
		}
		s.did("ended", s.w.Ended(l.Lease))
		if i == 1 {
			deleted.Finish = append(deleted.Finish, f)
		} else {
			x.Finish = append(x.Finish, f)
		}
	}
	s.exchange("finish", x)
	s.exchange("finish and delete", deleted)
	if len(leased) > 8 {
		s.did("redrive", second(s.w.Redrive(ctx, s.now, storage.Selection{IDs: []storage.ID{leased[4].ID}}, "other")))
		s.did("purge dead", second(s.w.Delete(ctx, storage.Selection{IDs: []storage.ID{leased[5].ID}})))
		s.exchange("interrupt", storage.Exchange{Retention: hour, Finish: []storage.Finish{
			{Lease: leased[8].Lease, Outcome: storage.OutcomeInterrupted},
		}})
	}
	s.reclaim()
	s.checkpoint()
	s.rest()
}

// rest works on a WAL that was begun anew.
func (s *script) rest() {
	s.enqueue(s.job(nil))
	s.now = s.now.Add(10 * time.Minute)
	_, _, err := s.w.PurgeFinished(context.Background(), s.now)
	s.did("purge finished", err)
	x := storage.Exchange{Retention: hour}
	for _, l := range s.exchange("lease the rest", storage.Exchange{Wants: orders(3)}) {
		s.voice.say("run %d %d", l.Key, l.Attempt)
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}
	s.exchange("finish the rest", x)
}

func second[T any](_ T, err error) error { return err }

// tx enqueues in a transaction of the application.
func (s *script) tx() {
	ctx := context.Background()
	job := s.job(nil)
	n := s.next
	s.voice.say("try %d %s", n, job.Queue)
	s.voice.say("tx %d", n)
	var out []storage.Enqueued
	err := s.w.Tx(ctx, func(in any) (err error) {
		tx := in.(*sql.Tx)
		if err := addMine(ctx, tx, n); err != nil {
			return err
		}
		out, err = s.w.EnqueueTx(ctx, tx, s.now, []storage.NewJob{job})
		return err
	})
	s.enqueued("tx", n, out, err)
}

// tick declares a schedule, fires it once and sets the clock back a bit.
func (s *script) tick() {
	ctx := context.Background()
	args, err := json.Marshal(order{N: tickNumber})
	if err != nil {
		panic(err)
	}
	job := storage.NewJob{Queue: "default", Kind: "order", Args: args, Priority: -1}
	plan := storage.Plan{Next: s.now}
	plan.Revision, err = s.w.PutSchedule(ctx, s.now, storage.Schedule{Name: "tick", Spec: "@every 1h", Zone: "UTC", Missed: "one", Job: job, Plan: plan})
	if !s.did("schedule", err) {
		return
	}
	plan.Next, plan.Through = s.now.Add(time.Hour), s.now
	_, err = s.w.Fire(ctx, s.now, []storage.Firing{{
		Name: "tick", Revision: plan.Revision, Next: plan.Next, Through: plan.Through, Ticks: []storage.NewTick{{At: s.now, Taken: storage.TickFired, Job: &job}},
	}})
	s.did("fire", err)
	_, err = s.w.StepClock(ctx, s.now.Add(-time.Millisecond), 0)
	s.did("step clock", err)
}

// handoff enqueues a job that a worker gets in the same transaction, as no
// other one of its source is ready.
func (s *script) handoff() {
	var got []storage.Leased
	offer := s.w.Offer(storage.Want{Queues: []string{"quick"}, Kinds: []string{"order"}, N: 1}, time.Second, func(jobs []storage.Leased, _ time.Time) {
		got = append(got, jobs...)
	})
	s.enqueue(s.job(func(j *storage.NewJob) { j.Queue = "quick" }))
	offer.Close()
	x := storage.Exchange{Retention: hour}
	for _, l := range got {
		s.did("started", s.w.Started(l.Lease, s.now))
		s.voice.say("run %d %d", l.Key, l.Attempt)
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}
	s.exchange("finish what was handed", x)
}

// reclaim has a second instance of this process take a lease that lapses.
func (s *script) reclaim() {
	ctx := context.Background()
	other, err := sqlite.Open(s.DB, &sqlite.Options{Logger: slog.New(slog.DiscardHandler), BusyTimeout: 500 * time.Millisecond})
	if !s.did("open another", err) {
		return
	}
	o := &witness{Store: other, voice: s.voice}
	s.exchange("lease to lapse", storage.Exchange{Wants: orders(1)})
	for _, mono := range []time.Duration{0, time.Minute} {
		all, err := o.Reclaim(ctx, s.now, mono, time.Second, 10)
		if !s.did("reclaim", err) {
			break
		}
		x := storage.Exchange{Retention: hour}
		for _, r := range all {
			x.Finish = append(x.Finish, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeInterrupted})
		}
		x.LeaseDuration = time.Second
		_, err = o.Exchange(ctx, s.now, x)
		s.did("finish reclaimed", err)
	}
	s.did("close another", o.Close())
}

// checkpoint has the WAL written back, so that the next write begins it anew.
func (s *script) checkpoint() {
	db, err := raw(s.DB)
	if err != nil {
		return
	}
	defer db.Close()
	_, _ = db.Exec("PRAGMA wal_checkpoint(RESTART)") // not the product's: any error will do
}

// drain does all that is left to do in the database, as the next program would.
func drain(l *ledger, path string) error {
	store, err := sqlite.Open(path, &sqlite.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	w := &witness{Store: store, voice: &voice{out: notes{l, &child{}}}}
	err = drainStore(w)
	return errors.Join(err, w.Close())
}

func drainStore(w *witness) error {
	ctx, now := context.Background(), t0.Add(24*time.Hour)
	x := storage.Exchange{LeaseDuration: time.Minute, Retention: hour}
	if _, err := w.Release(ctx, now, storage.Lane{Queue: "other"}, storage.HoldPaused); err != nil { // it may have ended while that was paused
		return err
	}
	taken, err := w.Reclaim(ctx, now, 0, time.Minute, 1000)
	if err != nil {
		return err
	}
	for _, r := range taken {
		x.Finish = append(x.Finish, storage.Finish{Lease: r.Lease, Outcome: storage.OutcomeInterrupted})
	}
	for x.Wants = orders(100); ; {
		r, err := w.Exchange(ctx, now, x)
		if err != nil || len(r.Leased) == 0 {
			return err
		}
		x.Finish = nil
		for _, l := range r.Leased {
			w.voice.say("run %d %d", l.Key, l.Attempt)
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
	}
}
