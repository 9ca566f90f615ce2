//go:build unix

package torture_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["limited"] = limited }

const groupLimit = 3

// note writes to the receiver's diary what begins and ends in which program and group.
func (r receiver) note(what string, program int, group string) error {
	return r.write(fmt.Sprintf("%s %d %s", what, program, group))
}

// most returns how many jobs of a group were under way at most by the diary. Those of a
// program end as it is killed.
func (r receiver) most() (most, begun int, err error) {
	b, err := os.ReadFile(r.path("diary"))
	if err != nil {
		return 0, 0, err
	}
	killed, under := map[int]bool{}, map[string]map[int]int{}
	for line := range strings.Lines(string(b)) {
		var what, group string
		var program int
		if n, err := fmt.Sscan(line, &what, &program, &group); err != nil && (what != "kill" || n < 2) {
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
	// No lease lapses while its holder lives, however slow the machine is.
	return worksFor(p, v, errand.WorkerOptions{LeaseDuration: time.Minute}, func(w *errand.Worker, r receiver) {
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
	})
}

// Four processes work for few groups with a limit of three, and are killed. By the count of
// the receiver three of a group are under way at times, and never more.
//
//errand:shows [limit] | full relaxed | of four processes that work for groups with a limit of 3 one is killed, fifty times; their receiver counts how many run
func TestKill_GroupLimit(t *testing.T) { inBoth(t, killLimited) }

func killLimited(t *testing.T, relaxed bool) {
	t.Parallel()
	n := 500
	if full() {
		n = 10_000
	}
	random := dice(t)
	crew := newCrew(t, 4, "limited", relaxed, func(q *errand.Queue) {
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
	})
	rounds(t, 4, 50, func(int) {
		<-time.After(between(random, 50*time.Millisecond, 300*time.Millisecond))
		crew.kill(random.IntN(len(crew.all)))
	})
	crew.finish(func() {})
	most, begun, err := crew.r.most()
	if most != groupLimit || begun < n || err != nil {
		t.Errorf("at most %d of a group were under way, want %d; %d attempts, %v", most, groupLimit, begun, err)
	}
	t.Logf("%d kills, %d attempts", crew.kills(), begun)
}
