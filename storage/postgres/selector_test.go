package postgres_test

import (
	"os"
	"strings"
	"testing"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage/internal/selector"
	"github.com/errandq/errand/storage/postgres"
)

// The texts that find the jobs of a filter are those of a file, which is written anew with
// ERRAND_UPDATE set. So a change of them is seen.
func TestSelector_Texts(t *testing.T) {
	const file = "testdata/selector.txt"
	if os.Getenv("ERRAND_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(postgres.Selects().String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := postgres.Selects().String(); got != string(want) {
		t.Errorf("the texts are not those of %s:\n%s", file, got)
	}
}

// Each of these texts finds its rows by an index that has their order, behind a place without
// those before it.
func TestSelector_Plans(t *testing.T) {
	pgtest.Server(t)
	plans := map[selector.Walk][]string{
		selector.ListRunning:   {"errand_job_running"},
		selector.ListReady:     {"Index Scan using errand_job_ready", "(lane = $", "(priority < $"},
		selector.ListReadyRest: {"Index Scan using errand_job_ready", "(priority = $", "(ROW(due_at, id) > ROW("},
		selector.ListScheduled: {"Index Scan using errand_job_scheduled", "(ROW(due_at, id) > ROW("},
		selector.ListBlocked:   {"Index Scan using errand_job_waits", "(ROW(group_key, id) > ROW("},
		selector.ListBehind:    {"using errand_unique_behind", "Index Cond: (job > "},
		selector.ListDead:      {"Index Scan Backward using errand_dead_ended", "(ROW(ended_at, id) < ROW("},
		selector.ListCause:     {"Backward using errand_dead_cause", "(cause = $", "(ROW(ended_at, id) < ROW("},
		selector.ListFinished:  {"Index Scan Backward using errand_finished_pkey"},
		selector.ListKeys:      {"Index Scan Backward using errand_job_pkey", "Index Scan Backward using errand_finished_pkey", "Index Scan Backward using errand_dead_pkey"},
		selector.ListFrom:      {"Index Scan using errand_job_pkey", "Index Scan using errand_finished_pkey", "Index Scan using errand_dead_pkey"},
		selector.ListGroup: {"Backward using errand_job_rest", "Backward using errand_job_waits", "Backward using errand_job_placed",
			"Backward using errand_finished_group", "Backward using errand_dead_group"},

		selector.StepDead:          {"Index Scan using errand_dead_ended", "(ROW(ended_at, id) > ROW("},
		selector.StepCause:         {"Index Scan using errand_dead_cause", "(cause = $", "(ROW(ended_at, id) > ROW("},
		selector.StepDeadGroup:     {"Index Scan using errand_dead_group"},
		selector.StepFinished:      {"Index Scan using errand_finished_pkey"},
		selector.StepFinishedGroup: {"Index Scan using errand_finished_group"},
		selector.StepLive:          {"Index Scan using errand_job_pkey"},
		selector.StepLiveGroup:     {"Index Scan using errand_job_rest", "Index Scan using errand_job_waits", "Index Scan using errand_job_placed"},
		selector.StepWaiting:       {"Index Scan using errand_job_pkey"},
		selector.StepFew:           {"errand_job_scheduled"},
		selector.StepWaitingGroup:  {"Index Scan using errand_job_rest", "Index Scan using errand_job_placed"},
	}
	plan := planned(t).planner("")
	for _, walk := range postgres.Selects().Walks() {
		base := selector.Walk(strings.TrimSuffix(string(walk), selector.WithError))
		if plans[base] == nil {
			t.Errorf("nothing is said of the plan of %s", walk)
		}
		text := postgres.Selects().Text(walk)
		got := plan(text)
		for _, want := range plans[base] {
			if !strings.Contains(got, want) {
				t.Errorf("%s\n%s\nplan:\n%s\nwant: %s", walk, text, got, want)
			}
		}
		sorts := 0
		if base == selector.ListRunning || strings.Contains(text, "UNION ALL") { // few run; of each query there are no more rows than are asked for
			sorts = 1
		}
		if strings.Count(got, "Sort Key") > sorts || strings.Contains(got, "Seq Scan on errand_job") || strings.Contains(got, "Seq Scan on errand_dead") {
			t.Errorf("%s\n%s\nplan:\n%s", walk, text, got)
		}
	}
}
