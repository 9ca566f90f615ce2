package sim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// acts are what is done from outside, each about as often as it says.
var acts = []struct {
	share int
	do    func(w *world)
}{
	{30, (*world).enqueueOne},
	{8, (*world).enqueueMany},
	{10, (*world).enqueueTx},
	{8, (*world).cancelOne},
	{5, (*world).pauseOrResume},
	{6, (*world).redriveSome},
	{3, (*world).runNowSome},
	{2, (*world).purgeSome},
	{9, (*world).changeSchedule},
	{4, (*world).stopOrStart},
	{3, (*world).restartAll},
	{6, (*world).crashNow},
	{6, (*world).setClock},
	{9, (*world).makeTrouble},
	{2, (*world).lateHolder},
}

func (w *world) act() {
	all := 0
	for _, a := range acts {
		all += a.share
	}
	p := w.dice.IntN(all)
	for _, a := range acts {
		if p -= a.share; p < 0 {
			a.do(w)
			return
		}
	}
}

// call makes a call of the API, which may take its time.
func (w *world) call(text string, f func(ctx context.Context, q *errand.Queue) error) {
	w.say("%s", text)
	l := w.life
	patience := time.Duration(0)
	if w.dice.IntN(8) == 0 {
		patience = time.Duration(w.dice.IntN(3000)) * time.Millisecond
	}
	l.doings.Go(func() {
		ctx := context.Background()
		if patience > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, patience)
			defer cancel()
		}
		err := f(ctx, l.queue)
		if err == nil || l.over() {
			return
		}
		w.say("  %s: %v", text, err)
		for _, known := range []error{
			errand.ErrBusy, errand.ErrFull, errand.ErrIO, errand.ErrClosed, errand.ErrUnknownOutcome, errand.ErrNotFound,
			context.DeadlineExceeded, errRollback,
		} {
			if errors.Is(err, known) {
				return
			}
		}
		w.blame("%s: %v", text, err)
	})
	synctest.Wait()
}

// acknowledged has it checked that what the caller was told is so.
func (w *world) acknowledged(l *life, job *storage.Enqueued) {
	w.tell(l, func(int64) { w.acks = append(w.acks, job.ID) })
}

func (w *world) newJob() (errand.Args, *errand.JobOptions, string) {
	r := w.dice
	w.n++
	n := w.n
	var args errand.Args = letter{n}
	if r.IntN(3) == 0 {
		args = parcel{n}
	}
	o := &errand.JobOptions{}
	text := fmt.Sprintf("%s %d", args.Kind(), n)
	if r.IntN(3) == 0 {
		o.Queue = "bulk"
		text += " in bulk"
	}
	if r.IntN(4) == 0 {
		o.Priority = r.IntN(5) - 2
	}
	switch r.IntN(6) {
	case 0, 1:
		o.Delay = time.Duration(r.IntN(60_000)) * time.Millisecond
		text += fmt.Sprintf(" after %v", o.Delay)
	case 2:
		if r.IntN(2) == 0 { // longer than a wrong clock is put up with
			o.Delay = time.Duration(10+r.IntN(50)) * time.Minute
			text += fmt.Sprintf(" after %v", o.Delay)
			break
		}
		in := time.Duration(r.IntN(3600)-600) * time.Second
		o.DueAt = time.Now().Round(0).Add(right + in)
		text += fmt.Sprintf(" at %v from now", in)
	}
	if r.IntN(3) == 0 {
		p := policies[r.IntN(len(policies))].Policy
		o.Policy = p
		text += fmt.Sprintf(" with %d retries", p.Retries)
	}
	if r.IntN(4) == 0 {
		o.Timeout = time.Duration(1+r.IntN(5000)) * time.Millisecond
		text += fmt.Sprintf(" timeout %v", o.Timeout)
	}
	if r.IntN(3) == 0 {
		o.Unique = &errand.Unique{Key: string(rune('a' + r.IntN(4))), Forever: r.IntN(8) == 0}
		text += fmt.Sprintf(" unique %+v", *o.Unique)
	}
	if r.IntN(4) == 0 {
		o.Headers = map[string]string{"n": fmt.Sprint(n)}
	}
	return args, o, text
}

func (w *world) enqueueOne() {
	args, o, text := w.newJob()
	l := w.life
	w.call("enqueue "+text, func(ctx context.Context, q *errand.Queue) error {
		e, err := q.Enqueue(ctx, args, o)
		if err == nil {
			w.acknowledged(l, &e)
		}
		return err
	})
}

func (w *world) enqueueMany() {
	var jobs []errand.NewJob
	text := "enqueue"
	for range 2 + w.dice.IntN(4) + w.dice.IntN(2)*w.dice.IntN(10) {
		args, o, t := w.newJob()
		jobs = append(jobs, errand.NewJob{Args: args, Options: o})
		text += " " + t + ";"
	}
	l := w.life
	w.call(text, func(ctx context.Context, q *errand.Queue) error {
		all, err := q.EnqueueMany(ctx, jobs)
		for i := range all {
			w.acknowledged(l, &all[i])
		}
		return err
	})
}

var errRollback = errors.New("rolled back on purpose")

func (w *world) enqueueTx() {
	var jobs []errand.NewJob
	text := "enqueue in a transaction"
	for range 1 + w.dice.IntN(3) {
		args, o, t := w.newJob()
		jobs = append(jobs, errand.NewJob{Args: args, Options: o})
		text += " " + t + ";"
	}
	rollback, takes := w.dice.IntN(3) == 0, time.Duration(0)
	if rollback {
		text += " rolled back"
	}
	if w.dice.IntN(4) == 0 {
		takes = time.Duration(w.dice.IntN(7000)) * time.Millisecond
		text += fmt.Sprintf(" that takes %v", takes)
		w.life.troubled.Store(true)
	}
	l := w.life
	w.call(text, func(ctx context.Context, q *errand.Queue) error {
		var all []errand.Enqueued
		err := q.Tx(ctx, func(tx *sql.Tx) error {
			all = nil
			for _, j := range jobs {
				e, err := q.EnqueueTx(ctx, tx, j.Args, j.Options)
				if err != nil {
					return err
				}
				all = append(all, e)
			}
			w.pause(l, takes)
			if rollback {
				return errRollback
			}
			return nil
		})
		if err == nil {
			for i := range all {
				w.acknowledged(l, &all[i])
			}
		}
		return err
	})
}

// pick returns one of the jobs that pass.
func (w *world) pick(ok func(place) bool) *job {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*job
	for _, j := range w.byBirth {
		if ok(w.place(j)) {
			all = append(all, j)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.dice.IntN(len(all))]
}

func (w *world) cancelOne() {
	live := w.dice.IntN(8) > 0
	j := w.pick(func(p place) bool { return p.live() || !live })
	if j == nil {
		return
	}
	w.call(fmt.Sprintf("cancel job %d", j.id.Key()), func(ctx context.Context, q *errand.Queue) error {
		_, err := q.Cancel(ctx, j.id)
		return err
	})
}

func (w *world) pauseOrResume() {
	queue := []string{"default", "bulk"}[w.dice.IntN(2)]
	if w.dice.IntN(5) < 3 {
		w.call("resume "+queue, func(ctx context.Context, q *errand.Queue) error { return q.Resume(ctx, queue) })
	} else {
		w.call("pause "+queue, func(ctx context.Context, q *errand.Queue) error { return q.Pause(ctx, queue) })
	}
}

// deadIDs returns some of the dead jobs, with one that is not dead at times.
func (w *world) deadIDs() (ids []storage.ID, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.byBirth {
		if p := w.place(j); p.is(storage.Dead) && w.dice.IntN(3) > 0 || w.dice.IntN(30) == 0 {
			ids = append(ids, j.id)
			text += fmt.Sprintf(" %d", j.id.Key())
		}
	}
	return ids, text
}

func (w *world) redriveSome() {
	filter, text := errand.JobFilter{}, "redrive all"
	if ids, which := w.deadIDs(); w.dice.IntN(8) > 0 {
		if len(ids) == 0 {
			return
		}
		filter.IDs, text = ids, "redrive jobs"+which
	}
	w.call(text, func(ctx context.Context, q *errand.Queue) error {
		_, err := q.DeadLetters().Redrive(ctx, filter, nil)
		return err
	})
}

// runNowSome hurries what waits for a retry, or jobs by ID.
func (w *world) runNowSome() {
	filter, o, text := errand.JobFilter{All: true}, &errand.RunNowOptions{FirstRuns: w.dice.IntN(3) == 0, FailedOnly: w.dice.IntN(3) == 0}, "run all now"
	if w.dice.IntN(2) == 0 {
		j := w.pick(place.live)
		if j == nil {
			return
		}
		filter, text = errand.JobFilter{IDs: []storage.ID{j.id}}, fmt.Sprintf("run job %d now", j.id.Key())
	}
	w.call(text, func(ctx context.Context, q *errand.Queue) error {
		_, err := q.RunNow(ctx, filter, o)
		return err
	})
}

func (w *world) purgeSome() {
	filter, text := errand.JobFilter{Kind: "parcel"}, "purge parcels"
	if ids, which := w.deadIDs(); w.dice.IntN(4) > 0 {
		if len(ids) == 0 {
			return
		}
		filter, text = errand.JobFilter{IDs: ids}, "purge jobs"+which
	}
	w.call(text, func(ctx context.Context, q *errand.Queue) error {
		_, err := q.DeadLetters().Purge(ctx, filter)
		return err
	})
}

func (w *world) changeSchedule() {
	r := w.dice
	name := []string{"tide", "moon"}[r.IntN(2)]
	switch r.IntN(8) {
	case 0, 1, 2, 3:
		specs := []string{"@every 7s", "@every 45s", "* * * * *", "*/20 * * * * *"}
		s := errand.Schedule{
			Name: name, Spec: specs[r.IntN(len(specs))], Args: pulse{-1},
			Missed:  []errand.Missed{errand.MissedOne, errand.MissedSkip, errand.MissedAll(3)}[r.IntN(3)],
			Overlap: []errand.Overlap{errand.OverlapAllow, errand.OverlapSkip}[r.IntN(2)], Jitter: time.Duration(r.IntN(2)*r.IntN(5000)) * time.Millisecond,
			Options: &errand.JobOptions{Policy: policy.Policy{}},
		}
		w.call(fmt.Sprintf("schedule %s: %s %v %v %v", name, s.Spec, s.Missed, s.Overlap, s.Jitter),
			func(ctx context.Context, q *errand.Queue) error { return q.Schedule(ctx, s) })
	case 4:
		w.call("remove schedule "+name, func(ctx context.Context, q *errand.Queue) error { return q.Schedules().Remove(ctx, name) })
	case 5:
		w.call("pause schedule "+name, func(ctx context.Context, q *errand.Queue) error { return q.Schedules().Pause(ctx, name) })
	case 6:
		w.call("resume schedule "+name, func(ctx context.Context, q *errand.Queue) error { return q.Schedules().Resume(ctx, name) })
	case 7:
		w.call("run schedule "+name, func(ctx context.Context, q *errand.Queue) error {
			_, err := q.Schedules().Run(ctx, name)
			return err
		})
	}
}

func (w *world) stopOrStart() {
	switch n := len(w.life.workers); {
	case n == 0 || n == 1 && w.dice.IntN(2) == 0:
		w.say("another worker")
		w.work(w.dice.IntN(4) > 0)
	default:
		w.burst()
		w.say("stop the workers")
		if !w.stop() {
			w.crash("the process ends", false)
			w.work(true)
		}
	}
}

// burst makes much work for a moment, at times.
func (w *world) burst() {
	if w.dice.IntN(2) == 0 {
		w.enqueueMany()
		time.Sleep(time.Duration(w.dice.IntN(60)) * time.Millisecond)
	}
}

func (w *world) restartAll() {
	w.burst()
	w.restart(time.Duration(w.dice.IntN(100)) * time.Second)
	w.work(w.dice.IntN(4) > 0)
}

func (w *world) crashNow() {
	power := w.dice.IntN(3) == 0
	down := time.Duration(w.dice.IntN(2)*w.dice.IntN(200)) * time.Second
	if power && w.dice.IntN(2) == 0 {
		// The clock of a board starts anew.
		w.set(-30 * 365 * 24 * time.Hour)
	}
	why := map[bool]string{false: "kill -9", true: "power cut"}[power]
	w.crash(why, power)
	time.Sleep(down)
	if w.dice.IntN(3) == 0 { // and again, while the worker recovers what was left
		w.mu.Lock()
		w.life.trouble = trouble{number: -1, op: "exchange", often: 100, slow: 2 * time.Second, until: time.Now().Add(time.Minute)}
		w.life.troubled.Store(true)
		w.mu.Unlock()
		w.work(true)
		time.Sleep(time.Duration(w.dice.IntN(3000)) * time.Millisecond)
		w.crash(why+" again", power)
	}
	w.work(w.dice.IntN(4) > 0)
}

func (w *world) setClock() {
	r := w.dice
	off := time.Duration(w.wall.off.Load())
	var by time.Duration
	switch r.IntN(6) {
	case 0:
		by = -off
	case 1:
		by = time.Duration(r.IntN(12_000)-6_000) * time.Millisecond
	case 2, 3:
		by = time.Duration(r.IntN(7200)-3600) * time.Second
	case 4:
		by = time.Duration(r.IntN(40)-20) * 24 * time.Hour
	case 5:
		by = -off - 30*365*24*time.Hour
	}
	w.say("set the clock by %v", by)
	w.set(off + by)
	if r.IntN(3) == 0 { // it is believed
		w.say("wait for it to be believed")
		time.Sleep(11 * time.Minute)
		synctest.Wait()
	}
}

func (w *world) makeTrouble() {
	r := w.dice
	w.off++
	x := trouble{
		number: w.off, until: time.Now().Add(time.Duration(1+r.IntN(60)) * time.Second),
		often: uint64(10 + r.IntN(91)),
	}
	if r.IntN(2) == 0 {
		ops := []string{"exchange", "exchange", "enqueue", "started", "ended", "fire", "step", "reclaim", "redrive", "schedules", "put", "clock", "tx", "purge finished"}
		x.op = ops[r.IntN(len(ops))]
	}
	switch r.IntN(6) {
	case 0, 1, 2:
		x.err = []error{storage.ErrBusy, storage.ErrFull, storage.ErrIO}[r.IntN(3)]
	case 3:
		x.after, x.often = true, 2+x.often/5
	}
	if r.IntN(2) == 0 || x.err == nil && !x.after {
		x.slow = time.Duration(r.IntN(9000)) * time.Millisecond
	}
	w.say("trouble: %q %d %% %v, unknown outcome: %t, slow: %v, for %v", x.op, x.often, x.err, x.after, x.slow, time.Until(x.until))
	w.mu.Lock()
	w.life.trouble = x
	w.life.troubled.Store(true)
	w.mu.Unlock()
}

// lateHolder has the holder of a lease that was ended write once more: whatever
// it wants must be refused.
func (w *world) lateHolder() {
	l := w.life
	w.mu.Lock()
	var late []storage.Lease
	for _, j := range w.byBirth {
		for i, ls := range j.leases {
			if ls.finish != nil || i < len(j.leases)-1 {
				late = append(late, ls.Lease)
			}
		}
	}
	w.mu.Unlock()
	if len(late) == 0 {
		return
	}
	late = slices.Clone(late[max(0, len(late)-5):])
	w.say("late holders: %v", late)
	x := storage.Exchange{LeaseDuration: time.Minute, Extend: late, Retention: storage.Retention{Default: time.Hour}}
	for _, ls := range late {
		x.Finish = append(x.Finish, storage.Finish{
			Lease: ls, Outcome: storage.OutcomeDone + storage.Outcome(w.dice.IntN(int(storage.OutcomeUnavailable))),
			Reason: storage.ReasonExhausted, Error: "late",
		})
	}
	l.doings.Go(func() {
		out, err := l.store.Store.Exchange(context.Background(), l.queue.Clock().Now, x)
		if err != nil {
			return
		}
		for _, r := range append(out.Extended, out.Finished...) {
			if r != storage.Lost {
				w.blame("a late holder of one of %v was let in: %v %v", late, out.Extended, out.Finished)
			}
		}
	})
	synctest.Wait()
}
