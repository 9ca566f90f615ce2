//go:build unix

package torture_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["batched"] = batched }

// call writes what happens to a call in one line of the receiver's diary: its program
// and its jobs, each with its crashes in a row.
func (r receiver) call(what string, program int, jobs []*errand.Job[member]) error {
	var line strings.Builder
	fmt.Fprintf(&line, "%s %d", what, program)
	for _, j := range jobs {
		fmt.Fprintf(&line, " %d:%d", j.Args.N, j.Crashes)
	}
	return r.write(line.String())
}

// calls are what a diary of calls tells.
type calls struct {
	n, most  int          // calls, and the jobs of the largest
	finished map[int]bool // jobs whose call has ended
	suspects int          // calls of suspects
	under    map[int]int  // jobs that are under way, by program
	faults   []string
}

// calls checks that no job was in two calls at a time, and that no suspect was in a call
// with others.
func (r receiver) calls() (c calls, err error) {
	b, err := os.ReadFile(r.path("diary"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return c, err
	}
	c.finished, c.under = map[int]bool{}, map[int]int{}
	killed, holder := map[int]bool{}, map[int]int{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		var program int
		if _, err := fmt.Sscan(fields[1], &program); err != nil {
			return c, fmt.Errorf("%q: %w", line, err)
		}
		what, jobs := fields[0], fields[2:]
		if killed[program] && what != "end" { // its last words
			continue
		}
		if what == "kill" {
			killed[program] = true
			for n, by := range holder {
				if by == program {
					delete(holder, n)
				}
			}
			continue
		}
		if what == "begin" {
			c.n++
			c.most = max(c.most, len(jobs))
		}
		for _, job := range jobs {
			var n, crashes int
			if _, err := fmt.Sscanf(job, "%d:%d", &n, &crashes); err != nil {
				return c, fmt.Errorf("%q: %w", line, err)
			}
			if what == "end" {
				c.finished[n] = true // also of one that is killed next: its outcome may have been written
				if holder[n] == program {
					delete(holder, n)
				}
				continue
			}
			if by, held := holder[n]; held {
				c.faults = append(c.faults, fmt.Sprintf("program %d begins with job %d, which %d has", program, n, by))
			}
			holder[n] = program
			if crashes >= suspectAfter {
				c.suspects++
				if len(jobs) > 1 {
					c.faults = append(c.faults, fmt.Sprintf("job %d has crashed %d times, and is in a call of %d", n, crashes, len(jobs)))
				}
			}
		}
	}
	for _, program := range holder {
		c.under[program]++
	}
	return c, nil
}

// batched is a program that does many jobs in a call.
func batched(p part, v *voice) error {
	// No lease lapses while its holder lives, however slow the machine is.
	o := errand.WorkerOptions{Concurrency: 2, LeaseDuration: time.Minute}
	return worksFor(p, v, o, func(w *errand.Worker, r receiver) {
		errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[member]) error {
			if err := r.call("begin", p.First, jobs); err != nil {
				return err
			}
			wait := rand.N(5 * time.Millisecond)
			if len(jobs) > 1 {
				wait = 20*time.Millisecond + rand.N(60*time.Millisecond) // so that some are killed
			}
			<-time.After(wait)
			if err := r.call("end", p.First, jobs); err != nil {
				return err
			}
			failed := errand.BatchError{}
			for _, job := range jobs {
				if rand.N(20) == 0 {
					failed[job.ID] = errors.New("bad luck")
				}
			}
			return failed
		}, errand.BatchOptions{Max: 25})
	})
}

// Three processes run batches, and are killed. The jobs of the calls that were under way
// run again one by one as soon as they are suspects, none is lost, and none is in two
// calls at a time.
//
//errand:shows [batches] | full relaxed | of three processes that do batches one is killed in the midst of a call, sixty times; their receiver knows which jobs are in which call
func TestKill_Batches(t *testing.T) { inBoth(t, killBatches) }

func killBatches(t *testing.T, relaxed bool) {
	t.Parallel()
	const few, all, step = 6, 60, 100 // kills, and jobs that are enqueued before each
	random := dice(t)
	crew := newCrew(t, 3, "batched", relaxed, func(*errand.Queue) {})
	calls := func() calls {
		t.Helper()
		c, err := crew.r.calls()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	n := 0
	rounds(t, few, all, func(int) {
		var jobs []errand.NewJob
		for range step {
			jobs = append(jobs, errand.NewJob{Args: member{N: n}})
			n++
		}
		if _, err := crew.q.EnqueueMany(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		i := 0
		await(t, time.Minute, "a batch is under way", func() bool {
			c := calls()
			i = slices.IndexFunc(crew.names, func(name int) bool { return c.under[name] > 1 })
			return i >= 0
		})
		<-time.After(between(random, 0, 10*time.Millisecond))
		crew.kill(i)
	})
	crew.finish(func() {})
	c := calls()
	for _, fault := range c.faults {
		t.Error(fault)
	}
	if len(c.finished) != n || c.most < 2 || c.suspects == 0 {
		t.Errorf("the calls of %d of %d jobs have ended, at most %d in a call; %d times a suspect", len(c.finished), n, c.most, c.suspects)
	}
	t.Logf("%d kills, %d calls of up to %d jobs, %d times a suspect", crew.kills(), c.n, c.most, c.suspects)
}

// suspectAfter is after how many crashes in a row a job of a batch runs alone.
const suspectAfter = 1
