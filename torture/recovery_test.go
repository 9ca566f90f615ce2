//go:build unix

package torture_test

import (
	"context"
	"fmt"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["holder"] = holder }

// holder is a program whose handlers run until it is told to stop, and say so
// if their contexts end before.
func holder(p part, v *voice) error {
	ctx := context.Background()
	told, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	q, err := p.open(v, nil)
	if err != nil {
		return err
	}
	v.say("ready %d", time.Now().UnixNano()) // before the worker begins: its first look counts
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: p.Queues, Concurrency: p.Workers, LeaseDuration: p.Lease})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[order]) error {
		v.lines([]string{
			fmt.Sprintf("run %d %d", job.ID.Key(), job.Attempt),
			fmt.Sprintf("began %d %d %d", job.ID.Key(), job.Attempt, job.Crashes),
		})
		select {
		case <-told.Done():
			return nil
		case <-ctx.Done():
			v.say("cut %d: %v", job.ID.Key(), context.Cause(ctx))
			return context.Cause(ctx)
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-told.Done()
	if err := w.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	return q.Close()
}

// began waits for the beginning of n handlers, and returns their jobs.
func (c *child) began(n, attempt, crashes int) map[int64]bool {
	c.t.Helper()
	out := map[int64]bool{}
	for len(out) < n {
		var key int64
		var a, k int
		text := c.hears("began ")
		if _, err := fmt.Sscan(text, &key, &a, &k); err != nil {
			c.t.Fatalf("%q: %v", text, err)
		}
		if a != attempt || k != crashes || out[key] {
			c.t.Errorf("job %d begins with attempt %d and %d crashes: want %d and %d, once", key, a, k, attempt, crashes)
		}
		out[key] = true
	}
	return out
}

// What a process was running when it was killed runs again before its lease ends:
// in another process that lives and can run it, else in the next one that opens the
// queue. On a machine that is not busy that takes less than a second. What another
// process runs meanwhile goes on under the lease that it has. That nobody is blamed
// for a power cut is for TestPowerCut_Full.
//
// A job that crashes earlier than a second after its start would have to wait
// for that second: here they have run for as long.
//
//errand:shows [recovery] | | a process is killed in its handlers: they run again before their leases end, also in the process that is started after it
func TestRecovery_BeforeLeasesEnd(t *testing.T) {
	const (
		jobs   = 4
		lease  = time.Minute // recovery must not need it to end
		theirs = "theirs"
		own    = "own"
	)
	for name, c := range map[string]struct{ neighbour, heir, restarted bool }{
		"by another process":       {neighbour: true, heir: true},
		"by itself, beside others": {neighbour: true, restarted: true},
		"by itself, alone":         {restarted: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := openLocal(t, filepath.Join(ramDir(t), "jobs.db"), part{})
			enqueue := func(queue string) int64 {
				t.Helper()
				f.n++
				f.voice.say("try %d %s", f.n, queue)
				e, err := f.q.Enqueue(t.Context(), order{N: f.n}, &errand.JobOptions{Queue: queue})
				if err != nil {
					t.Fatal(err)
				}
				f.voice.say("enqueued %d %s", f.n, e.ID)
				return e.ID.Key()
			}
			begin := func(queue string) *child {
				t.Helper()
				return start(t, f.ledger, part{Role: "holder", DB: f.path, Workers: jobs, Lease: lease, Queues: []string{queue}})
			}
			var neighbour, heir *child
			var kept int64
			if c.neighbour {
				neighbour, kept = begin(own), enqueue(own)
				neighbour.began(1, 1, 0)
			}
			victim, want := begin(theirs), map[int64]bool{}
			for range jobs {
				want[enqueue(theirs)] = true
			}
			victim.began(jobs, 1, 0)
			if c.heir {
				heir = begin(theirs) // has nothing to do
				heir.hears("ready")
			}
			f.close(t)
			<-time.After(time.Second) // how long the jobs have run, see above

			killed := time.Now()
			since, what := killed, "the kill"
			victim.kill()
			if c.restarted {
				heir = begin(theirs)
				nanos, err := strconv.ParseInt(heir.hears("ready"), 10, 64) // by its own clock: this process may hear of it late
				if err != nil {
					t.Fatal(err)
				}
				since, what = time.Unix(0, nanos), "the opening of the queue"
			}
			got := heir.began(jobs, 2, 1)
			took := time.Since(since)
			t.Logf("%d jobs run again %v after %s, %v after the kill", jobs, took, what, time.Since(killed))
			if took >= lease/2 {
				t.Errorf("the jobs run again %v after %s: want it long before their leases of %v end", took, what, lease)
			}
			for key := range want {
				if !got[key] {
					t.Errorf("job %d does not run again", key)
				}
			}

			heir.finishSoon(time.Minute)
			if c.neighbour {
				neighbour.finishSoon(time.Minute)
				for line := range neighbour.said {
					t.Errorf("the process that lives says %q: want its job left alone", line)
				}
				e := f.ledger.jobs[kept]
				if last := e.last(); len(e.leases) != 1 || len(e.runs) != 1 || last == nil || last.holder != neighbour || last.lost {
					t.Errorf("the job of the process that lives had %d leases and %d runs, and ended with %+v: want one lease, its own",
						len(e.leases), len(e.runs), last)
				}
			}
			found := f.ledger.audit(t, f.path)
			found.mustBeClean(t, "a kill")
			if found.duplicates != jobs {
				t.Errorf("%d duplicates, want %d: %v", found.duplicates, jobs, found)
			}
			if n := len(f.ledger.crashed()); n != jobs {
				t.Errorf("%d crashes were counted, want %d", n, jobs)
			}
			reopen(t, f.path)
		})
	}
}
