//go:build unix

package apitest

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// Four processes on one file fire a schedule of every second: each tick is one
// job. ERRAND_SCHEDULE_SECONDS says for how long, if not for ten.
//
//errand:shows [ticks] | | four processes fire one schedule
func TestProcesses_Schedule(t *testing.T) {
	seconds := 10
	if s := os.Getenv("ERRAND_SCHEDULE_SECONDS"); s != "" {
		seconds = must(strconv.Atoi(s))
	}
	q, path := openShared(t)
	var others []*other
	for range 4 {
		others = append(others, startOther(t, path, "tick", 0, 0, ""))
	}
	from := time.Now().Truncate(time.Second).Add(time.Second) // not before all work
	to := from.Add(time.Duration(seconds) * time.Second)
	<-time.After(time.Until(to) + 500*time.Millisecond) // how long they do it
	if err := q.Schedules().Pause(t.Context(), "second"); err != nil {
		t.Fatal(err)
	}
	jobs := map[time.Time]int{}
	total, workers := 0, 0
	for _, o := range others {
		n := total
		if err := o.in.Close(); err != nil {
			t.Fatal(err)
		}
		for o.out.Scan() {
			tick, ok := strings.CutPrefix(o.out.Text(), "tick ")
			if !ok {
				t.Fatalf("a process said %q", o.out.Text())
			}
			jobs[must(time.Parse(time.RFC3339, tick)).UTC()]++
			total++
		}
		if err := o.cmd.Wait(); err != nil {
			t.Error(err)
		}
		if total > n {
			workers++
		}
	}
	ticks := 0
	for at := from; at.Before(to); at = at.Add(time.Second) {
		switch n := jobs[at.UTC()]; n {
		case 0:
			t.Errorf("no job for the tick %v", at)
		case 1:
			ticks++
		default:
			t.Errorf("%d jobs for the tick %v", n, at)
		}
	}
	t.Logf("%d ticks in %d seconds, by %d of 4 processes", ticks, seconds, workers)
	counts, err := q.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[0].State != errand.Done || counts[0].N != int64(len(jobs)) || total != len(jobs) {
		t.Errorf("%d runs of %d ticks, and the jobs are %v, %v: want one done for each tick", total, len(jobs), counts, err)
	}
}
