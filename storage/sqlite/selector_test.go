package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand/storage/internal/selector"
)

// The texts that find the jobs of a filter are those of a file, which is written anew with
// ERRAND_UPDATE set. So a change of them is seen.
func TestSelector_Texts(t *testing.T) {
	const file = "testdata/selector.txt"
	if os.Getenv("ERRAND_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(selects().String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := selects().String(); got != string(want) {
		t.Errorf("the texts are not those of %s:\n%s", file, got)
	}
}

// Each of these texts finds its rows by indexes, in the order that it needs: behind a place
// among many jobs of one time without those before, and of a group by roles, whatever jobs there are of others.
func TestSelector_Plans(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const (
		byKey   = "SEARCH j USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
		merge   = "MERGE (UNION ALL)"
		rest    = "USING COVERING INDEX errand_option_rest (group_key=?"
		blocked = "USING COVERING INDEX errand_option_blocked (group_key=?"
		head    = "USING COVERING INDEX errand_option_head (group_key=? AND role=?"
		dead    = "USING COVERING INDEX errand_option_dead (group_key=?"
		keys    = " AND rowid>? AND rowid<?)"
		onward  = " AND rowid>?)"
	)
	plans := map[selector.Walk][]string{
		selector.ListRunning: {"SCAN j USING INDEX errand_job_running"},
		selector.ListReady:   {"SEARCH j USING INDEX errand_job_ready (lane=? AND priority<?)"},
		selector.ListReadyRest: {"SEARCH j USING INDEX errand_job_ready (lane=? AND priority=? AND due_at=? AND rowid>?)",
			"SEARCH j USING INDEX errand_job_ready (lane=? AND priority=? AND due_at>? AND due_at<?)", merge},
		selector.ListScheduled: {"SEARCH j USING INDEX errand_job_scheduled (due_at=? AND rowid>?)", "SEARCH j USING INDEX errand_job_scheduled (due_at>? AND due_at<?)", merge},
		selector.ListBlocked:   {"SEARCH o USING COVERING INDEX errand_option_blocked (group_key>? AND group_key<?)"},
		selector.ListBehind:    {"SEARCH o USING COVERING INDEX errand_unique_behind (job>?)"},
		selector.ListDead:      {"SEARCH j USING INDEX errand_dead_ended (ended_at=? AND id<?)", "SEARCH j USING INDEX errand_dead_ended (ended_at>? AND ended_at<?)", merge},
		selector.ListCause: {"SEARCH j USING INDEX errand_dead_cause (cause=? AND ended_at=? AND rowid<?)",
			"SEARCH j USING INDEX errand_dead_cause (cause=? AND ended_at>? AND ended_at<?)", merge},
		selector.ListFinished: {"SEARCH j USING INTEGER PRIMARY KEY (rowid<?)"},
		selector.ListKeys:     {byKey, merge},
		selector.ListFrom:     {"SEARCH j USING INTEGER PRIMARY KEY (rowid>?)", merge},
		selector.ListTag:      {"SEARCH t USING PRIMARY KEY (tag=? AND job>? AND job<?)"},
		selector.ListGroup:    {rest + keys, blocked + keys, head + keys, dead + keys},

		selector.StepDead: {"SEARCH j USING INDEX errand_dead_ended (ended_at=? AND id>?)", "SEARCH j USING INDEX errand_dead_ended (ended_at>? AND ended_at<?)", merge},
		selector.StepCause: {"SEARCH j USING INDEX errand_dead_cause (cause=? AND ended_at=? AND rowid>?)",
			"SEARCH j USING INDEX errand_dead_cause (cause=? AND ended_at>? AND ended_at<?)", merge},
		selector.StepDeadGroup:     {rest + onward, dead + onward},
		selector.StepFinished:      {byKey},
		selector.StepFinishedGroup: {rest + keys},
		selector.StepLive:          {byKey},
		selector.StepLiveGroup:     {rest + keys, blocked + keys, head + keys},
		selector.StepWaiting:       {byKey},
		selector.StepFew:           {"SEARCH j USING INDEX errand_job_scheduled (due_at>? AND due_at<?)"},
		selector.StepWaitingGroup:  {rest + keys, head + keys},
	}
	for _, walk := range selects().Walks() {
		base := selector.Walk(strings.TrimSuffix(string(walk), selector.WithError))
		if plans[base] == nil {
			t.Errorf("nothing is said of the plan of %s", walk)
		}
		plan := explain(t, s, selects().Text(walk))
		for _, want := range plans[base] {
			if !strings.Contains(plan, want+"\n") {
				t.Errorf("%s\nplan:\n%s\nwant: %s", selects().Text(walk), plan, want)
			}
		}
		if base != selector.ListRunning && (strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE")) { // few run
			t.Errorf("%s\nplan:\n%s", selects().Text(walk), plan)
		}
	}
}
