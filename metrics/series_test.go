package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// total returns the totals of a lane that is the n-th, with n jobs enqueued.
func total(n int64, queue string) errand.LaneTotals {
	return errand.LaneTotals{Queue: queue, Kind: "task", Number: n, Enqueued: n}
}

func enqueued(all []Family) (text string) {
	for _, s := range all[famEnqueued].Samples {
		text += fmt.Sprintf("%s=%v ", s.Labels[0], s.Value)
	}
	return text
}

// A lane keeps its series also if one that the file met before has no numbers for a while, as
// when its only job has come from another queue, and has gone back.
func TestSeries_keeps(t *testing.T) {
	s := series{most: 2}
	first, second, third := total(1, "first"), total(2, "second"), total(3, "third")
	for i, lanes := range [][]errand.LaneTotals{{first, second, third}, {first, third}, {third, second, first}} {
		want := "first=1 other=3 second=2 "
		if i == 1 {
			want = "first=1 other=3 "
		}
		if got := enqueued(s.families(&state{lanes: lanes})); got != want {
			t.Errorf("look %d: %s, want %s", i, got, want)
		}
	}
}

// The text is valid for any name of a lane, and no series occurs twice.
func TestSeries_names(t *testing.T) {
	s := series{most: 10}
	queues := []string{"a\"b", "a\\b", "a\nb", "bad\xff", "bad\xfe", "other"}
	now := &state{clock: time.Unix(1, 0)}
	for i, q := range queues {
		now.lanes = append(now.lanes, total(int64(i+1), q))
	}
	text := string(appendText(nil, s.families(now), nil))
	for _, want := range []string{
		`{queue="a\"b",kind="task"} 1`, `{queue="a\\b",kind="task"} 2`, `{queue="a\nb",kind="task"} 3`,
		"{queue=\"bad\uFFFD\",kind=\"task\"} 9", `{queue="other",kind="task"} 6`,
	} {
		if n := strings.Count(text, "errand_jobs_enqueued_total"+want+"\n"); n != 1 {
			t.Errorf("%s is there %d times in %s", want, n, text)
		}
	}
}

// Jobs that run of a worker that is gone have none, as those that are due.
func TestSeries_unserved(t *testing.T) {
	lane, s := total(1, "first"), series{most: 2}
	for _, running := range []int64{0, 3} {
		lane.Stats.Running = running
		all := s.families(&state{shown: true, lanes: []errand.LaneTotals{lane}})
		if got := all[famUnserved].Samples[0].Value; (got == 1) != (running > 0) {
			t.Errorf("%v are unserved of %d jobs that run", got, running)
		}
	}
}

// Holds have at most 20 reasons, of which those of errand itself are always some.
func TestSeries_reasons(t *testing.T) {
	lane := total(1, "first")
	holds := &lane.Stats.Holds
	for i := range 30 {
		*holds = append(*holds, errand.HoldState{Reason: fmt.Sprintf("a-%02d", i)})
	}
	*holds = append(*holds, errand.HoldState{Reason: "brake"})
	s := series{most: 2}
	all := s.families(&state{lanes: []errand.LaneTotals{lane}})
	got := map[string]float64{}
	for _, sample := range all[famHolds].Samples {
		got[sample.Labels[2]] = sample.Value
	}
	if got["brake"] != 1 || got["a-15"] != 1 || got["other"] != 14 || len(got) != 18 {
		t.Errorf("%v", got)
	}
}
