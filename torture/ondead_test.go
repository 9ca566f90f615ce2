//go:build unix

package torture_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

func init() { roles["mortals"], roles["strangers"] = mortals, strangers }

// mortal is a job that dies as its plan says. Its notices are those of its kind.
type mortal struct{ Plan string }

func (mortal) Kind() string { return "mortal" }

// stale is a mortal that is too old to wait for the other side. Its notices are those of
// its queue.
type stale struct{ Plan string }

func (stale) Kind() string { return "stale" }

type mortalDead struct{ errand.DeadNotice }

func (mortalDead) Kind() string { return "mortal-dead" }

const staleQueue, noticeQueue = "stale", "notices"

// mortalPlans are the ways to die, and two to live.
var mortalPlans = []string{"permanent", "exhausted", "snoozed", "decode", "crash", "unreached", "cancel", "done", "done", "done"}

// followPlan ends an attempt as planned.
func followPlan(ctx context.Context, plan string) error {
	planned := errors.New("as planned: " + plan)
	switch plan {
	case "permanent":
		return errand.Permanent(planned)
	case "exhausted":
		return planned
	case "snoozed":
		return errand.Snooze(0, planned)
	case "unreached":
		return errand.Unavailable(planned)
	case "cancel":
		return errand.Cancel(planned)
	case "crash": // if the process is killed meanwhile
		select {
		case <-time.After(rand.N(200 * time.Millisecond)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// mortalOptions are those of all processes. The OnDead of the notices would have each of
// them that dies followed by another one.
func mortalOptions(relaxed bool) *errand.Options {
	durability := errand.Full
	if relaxed {
		durability = errand.Relaxed
	}
	follow := errand.QueueOptions{OnDead: &errand.OnDead{Queue: noticeQueue}, MaxDeaths: -1}
	return &errand.Options{
		Queues: map[string]errand.QueueOptions{"default": follow, staleQueue: follow, noticeQueue: follow},
		Policy: policy.Policy{Retries: 1, NoDelayRetries: 1},
		Logger: slog.New(slog.DiscardHandler), // which would be told of each death
		SQLite: errand.SQLiteOptions{Durability: durability},
	}
}

// mortals is a program whose jobs die, and whose notices of that are done or die
// themselves.
func mortals(p part, v *voice) error {
	return works(p, v, func(w *errand.Worker) {
		errand.Handle(w, func(ctx context.Context, job *errand.Job[mortal]) error {
			return followPlan(ctx, job.Args.Plan)
		}, errand.HandlerOptions{OnDead: &errand.OnDead{Kind: "mortal-dead", Queue: noticeQueue}})
		errand.Handle(w, func(ctx context.Context, job *errand.Job[stale]) error {
			return followPlan(ctx, job.Args.Plan)
		}, errand.HandlerOptions{MaxUnavailable: time.Nanosecond})
		heed := func(id errand.ID) error {
			if id.Key()%3 == 0 {
				return errand.Permanent(errors.New("nobody wants to know"))
			}
			return nil
		}
		errand.Handle(w, func(_ context.Context, job *errand.Job[mortalDead]) error { return heed(job.ID) })
		errand.Handle(w, func(_ context.Context, job *errand.Job[errand.DeadNotice]) error { return heed(job.ID) })
	})
}

// strangers is a program that recovers jobs of kinds that it does not know.
func strangers(p part, v *voice) error {
	return works(p, v, func(w *errand.Worker) {
		errand.Handle(w, func(context.Context, *errand.Job[order]) error { return nil })
	})
}

func works(p part, v *voice, handle func(*errand.Worker)) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	q, err := errand.Open(ctx, p.DB, mortalOptions(p.Relaxed))
	if err != nil {
		return err
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{
		Queues: []string{"default", staleQueue, noticeQueue}, LeaseDuration: time.Second, MaxCrashes: 2, MaxSnoozes: 1,
	})
	handle(w)
	v.say("ready")
	if err := w.Run(ctx); err != nil {
		return err
	}
	return q.Close()
}

// deaths is the test as it goes on: it enqueues jobs and redrives the dead. It is never
// killed, so that it knows how often each of them has died.
type deaths struct {
	t        *testing.T
	q        *errand.Queue
	redriven map[errand.ID]int
}

// add enqueues n jobs of each kind by each plan.
func (d *deaths) add(n int, plans ...string) {
	d.t.Helper()
	var jobs []errand.NewJob
	for range n {
		for _, plan := range plans {
			var o *errand.JobOptions
			switch plan {
			case "crash", "unreached": // dead at the first
				o = &errand.JobOptions{Policy: policy.Policy{}}
			case "decode":
				jobs = append(jobs, errand.NewJob{Args: errand.RawArgs{OfKind: "mortal", JSON: json.RawMessage(`"no mortal"`)}})
				continue
			}
			jobs = append(jobs, errand.NewJob{Args: mortal{plan}, Options: o},
				errand.NewJob{Args: stale{plan}, Options: &errand.JobOptions{Queue: staleQueue}})
		}
	}
	if _, err := d.q.EnqueueMany(d.t.Context(), jobs); err != nil {
		d.t.Fatal(err)
	}
}

// redrive has some of the dead die once more.
func (d *deaths) redrive() {
	d.t.Helper()
	page, err := d.q.DeadLetters().List(d.t.Context(), errand.JobFilter{Kind: "mortal"}, &errand.ListOptions{Limit: 10})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, j := range page.Jobs {
		r, err := d.q.DeadLetters().Redrive(d.t.Context(), errand.JobFilter{IDs: []errand.ID{j.ID}}, nil)
		if err != nil {
			d.t.Fatal(err)
		}
		d.redriven[j.ID] += r.Redriven
	}
}

// release ends the holds of lanes whose other side could not be reached.
func (d *deaths) release() {
	d.t.Helper()
	for _, lane := range []errand.Lane{{Queue: "default", Kind: "mortal"}, {Queue: staleQueue, Kind: "stale"}} {
		if _, err := d.q.Release(d.t.Context(), lane, storage.HoldUnavailable); err != nil {
			d.t.Fatal(err)
		}
	}
}

// each calls f for all jobs in these states.
func (d *deaths) each(kind string, f func(*errand.JobInfo), states ...errand.State) {
	d.t.Helper()
	o := errand.ListOptions{Limit: 1000}
	for {
		page, err := d.q.Jobs(d.t.Context(), errand.JobFilter{Kind: kind, States: states}, &o)
		if err != nil {
			d.t.Fatal(err)
		}
		for i := range page.Jobs {
			f(&page.Jobs[i])
		}
		if o.After = page.Next; o.After == "" {
			return
		}
	}
}

// count returns how many jobs are as they are wanted.
func (d *deaths) count(wanted func(errand.Count) bool) (n int64) {
	d.t.Helper()
	counts, err := d.q.Counts(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range counts {
		if wanted(c) {
			n += c.N
		}
	}
	return n
}

// compare compares the deaths with the notices, and returns how often what happened.
func (d *deaths) compare() map[string]int {
	d.t.Helper()
	notices, tally, heard := map[errand.ID][]errand.DeadNotice{}, map[string]int{}, 0
	for _, kind := range []string{"mortal-dead", "errand.dead"} {
		d.each(kind, func(j *errand.JobInfo) {
			info, err := d.q.Job(d.t.Context(), j.ID)
			if err != nil {
				d.t.Fatal(err)
			}
			var n errand.DeadNotice
			if err := json.Unmarshal(info.Args, &n); err != nil {
				d.t.Fatal(err)
			}
			if want := map[string]string{"mortal": "mortal-dead", "stale": "errand.dead"}[n.OfKind]; want != kind || j.Queue != noticeQueue {
				d.t.Errorf("the death of a job of kind %s is followed by %s in queue %s", n.OfKind, kind, j.Queue)
			}
			notices[n.ID] = append(notices[n.ID], n)
			heard++
			tally[fmt.Sprint("notice ", j.State)]++
		})
	}
	for _, kind := range []string{"mortal", "stale"} {
		d.each(kind, func(j *errand.JobInfo) {
			all, want := notices[j.ID], d.redriven[j.ID]
			delete(notices, j.ID)
			if j.State == errand.Dead {
				want++
				if tally[fmt.Sprint(kind, " ", j.Reason)]++; strings.HasSuffix(j.Error, "unreached") {
					tally[kind+" unreached"]++
				}
				told := 0
				for _, n := range all {
					if n.DiedAt.Equal(j.EndedAt) && n.CreatedAt.Equal(j.CreatedAt) && n.Queue == j.Queue &&
						n.Reason == j.Reason && n.Error == j.Error && n.Attempt == j.Attempt {
						told++
					}
				}
				if told != 1 {
					d.t.Errorf("%d notices are of the last death of %+v: %+v", told, j, all)
				}
			}
			if len(all) != want {
				d.t.Errorf("%d notices of %d deaths of the job %s of kind %s, redriven %d times, now %s", len(all), want, j.ID, kind, d.redriven[j.ID], j.State)
			}
		})
	}
	for id, all := range notices {
		d.t.Errorf("%d notices of a job %s that there is not", len(all), id)
	}
	d.mustTotal(heard)
	return tally
}

// Processes are killed while jobs die in all ways. In the end there is one notice of each
// death: none was lost with its process, and none came twice.
//
//errand:shows [deaths] | full relaxed | of three processes on a file one is killed, sixty times, while jobs die in all ways
func TestKill_OnDead(t *testing.T) { inBoth(t, killMortals) }

func killMortals(t *testing.T, relaxed bool) {
	t.Parallel()
	random, path := dice(t), filepath.Join(ramDir(t), "jobs.db")
	q, err := errand.Open(t.Context(), path, mortalOptions(relaxed))
	if err != nil {
		t.Fatal(err)
	}
	d := &deaths{t: t, q: q, redriven: map[errand.ID]int{}}
	l := newLedger() // of which nothing is asked
	begin := func(i int) *child {
		return start(t, l, part{Role: []string{"mortals", "mortals", "strangers"}[i], DB: path, Relaxed: relaxed})
	}
	var all []*child
	for i := range 3 {
		all = append(all, begin(i))
	}
	kills := 0
	rounds(t, 3, 60, func(int) {
		d.add(8, mortalPlans...)
		d.release()
		i := random.IntN(len(all))
		all[i].hears("ready") // else it would be killed before it has begun
		<-time.After(between(random, 20*time.Millisecond, 250*time.Millisecond))
		all[i].kill()
		kills++
		d.redrive()
		all[i] = begin(i)
	})
	for i, c := range all[:2] { // one that knows the kinds goes on
		c.kill()
		all[i] = begin(i)
	}
	if n := d.count(func(c errand.Count) bool { return c.Queue == noticeQueue }); full() && n < int64(10*kills) {
		t.Errorf("%d jobs have died beside %d kills: want at least 10 times as many", n, kills)
	}
	looks := 0
	await(t, time.Minute, "all jobs have ended", func() bool {
		if looks++; looks%20 == 0 { // the other side of what is unreached can be reached
			d.add(1, "done")
			d.release()
		}
		return d.count(func(c errand.Count) bool {
			return c.State == errand.Scheduled || c.State == errand.Ready || c.State == errand.Running
		}) == 0
	})
	for _, c := range all {
		c.finishSoon(time.Minute)
	}
	tally := d.compare()
	t.Logf("%d kills, %d jobs redriven: %v", kills, len(d.redriven), tally)
	for _, what := range []string{
		"mortal permanent", "mortal exhausted", "mortal snoozed", "mortal decode", "mortal unreached", "stale permanent", "stale unavailable",
		"notice done", "notice dead",
	} {
		if tally[what] == 0 {
			t.Errorf("none is %s: %v", what, tally)
		}
	}
	if full() && tally["mortal crashed"]+tally["stale crashed"] == 0 {
		t.Errorf("none has crashed: %v", tally)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	wantRules(t, path)
}
