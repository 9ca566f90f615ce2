//go:build unix

package torture_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["limited"] = limited }

const groupLimit = 3

// note writes one line at the end of the receiver's diary, of what begins and ends in
// which program and group. All programs see the lines in one order.
func (r receiver) note(what string, program int, group string) error {
	f, err := os.OpenFile(r.path("diary"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %d %q\n", what, program, group)
	return errors.Join(err, f.Close())
}

// most returns how many jobs of a group were under way at most by the diary. Those of a
// program end as it is killed: that is noted before, as nobody knows when the kernel
// is done with its files.
func (r receiver) most() (most, begun int, err error) {
	b, err := os.ReadFile(r.path("diary"))
	if err != nil {
		return 0, 0, err
	}
	killed, under := map[int]bool{}, map[string]map[int]int{}
	for line := range strings.Lines(string(b)) {
		var what, group string
		var program int
		if _, err := fmt.Sscanf(line, "%s %d %q\n", &what, &program, &group); err != nil {
			return 0, 0, fmt.Errorf("%q: %w", line, err)
		}
		switch {
		case what == "kill":
			killed[program] = true
			for _, of := range under {
				delete(of, program)
			}
		case killed[program]: // its last words
		case what == "end":
			under[group][program]--
		default:
			if under[group] == nil {
				under[group] = map[int]int{}
			}
			under[group][program]++
			begun++
			n := 0
			for _, of := range under[group] {
				n += of
			}
			most = max(most, n)
		}
	}
	return most, begun, nil
}

// limited is a program that works for groups with a limit.
func limited(p part, v *voice) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	q, err := errand.Open(context.Background(), p.DB, groupOptions(p.Relaxed))
	if err != nil {
		return err
	}
	r := receiver{filepath.Dir(p.DB)}
	// No lease lapses while its holder lives, however slow the machine is.
	w := errand.NewWorker(q, &errand.WorkerOptions{LeaseDuration: time.Minute, MaxCrashes: 1_000_000})
	errand.Handle(w, func(_ context.Context, job *errand.Job[member]) error {
		if err := r.note("begin", p.First, job.Group); err != nil {
			return err
		}
		<-time.After(rand.N(5 * time.Millisecond))
		if err := r.note("end", p.First, job.Group); err != nil {
			return err
		}
		switch rand.N(10) {
		case 0:
			return errors.New("bad luck")
		case 1:
			return errand.Snooze(time.Millisecond, nil)
		}
		return nil
	})
	v.say("ready")
	if err := w.Run(ctx); err != nil {
		return err
	}
	return q.Close()
}

// Four processes work for few groups with a limit of three, and are killed. By the count of
// the receiver three of a group are under way at times, and never more.
func TestKill_GroupLimit(t *testing.T) { inBoth(t, killLimited) }

func killLimited(t *testing.T, relaxed bool) {
	t.Parallel()
	n := 500
	if full() {
		n = 10_000
	}
	random, path := dice(t), filepath.Join(ramDir(t), "jobs.db")
	q, err := errand.Open(t.Context(), path, groupOptions(relaxed))
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{GroupLimit: new(groupLimit)}); err != nil {
		t.Fatal(err)
	}
	var jobs []errand.NewJob
	for i := range n {
		jobs = append(jobs, errand.NewJob{Args: member{N: i}, Options: &errand.JobOptions{Group: fmt.Sprint(i % 4)}})
	}
	if _, err := q.EnqueueMany(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	l, r := newLedger(), receiver{filepath.Dir(path)} // of the ledger nothing is asked
	programs := 0
	begin := func() (*child, int) {
		programs++
		return start(t, l, part{Role: "limited", DB: path, First: programs, Relaxed: relaxed}), programs
	}
	var all [4]*child
	var names [4]int
	for i := range all {
		all[i], names[i] = begin()
	}
	rounds(t, 4, 50, func(int) {
		<-time.After(between(random, 50*time.Millisecond, 300*time.Millisecond))
		i := random.IntN(len(all))
		if err := r.note("kill", names[i], ""); err != nil {
			t.Fatal(err)
		}
		all[i].kill()
		all[i], names[i] = begin()
	})
	await(t, 2*time.Minute, "all jobs are done", func() bool {
		counts, err := q.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(counts) == 1 && counts[0].State == errand.Done
	})
	for _, c := range all {
		c.hears("ready")
		c.finishSoon(20 * time.Second)
	}
	most, begun, err := r.most()
	if most != groupLimit || begun < n || err != nil {
		t.Errorf("at most %d of a group were under way, want %d; %d attempts, %v", most, groupLimit, begun, err)
	}
	t.Logf("%d kills, %d attempts", programs-len(all), begun)
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	wantRules(t, path)
}
