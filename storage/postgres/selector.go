package postgres

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/selector"
)

// What is known of a job j beyond its row.
const (
	liveError  = `coalesce((SELECT h.error FROM errand_history h WHERE h.job = j.id AND h.phase <> '` + storage.PhaseEdited + `' ORDER BY h.n DESC LIMIT 1), '')`
	endedError = `coalesce(nullif(j.error, ''), ` + liveError + `)`
	// hasFailed is whether the last attempt of a job failed, and asked for no delay.
	hasFailed = `(j.crashes = 0 AND coalesce((SELECT h.attempt = j.attempt AND NOT h.retry_after FROM errand_history h
  WHERE h.job = j.id AND h.phase <> '` + storage.PhaseEdited + `' ORDER BY h.n DESC LIMIT 1), false))`
)

// selects has the texts that find the jobs of a filter.
var selects = sync.OnceValue(func() *selector.Selector { return selector.New(dialect()) })

// types are those of parameters that are no bigint.
var types = map[string]string{
	"states": "integer", "first": "boolean", "failed": "boolean", "error": "bytea",
	"queue": "text", "kind": "text", "tag": "text", "reason": "text", "group": "text", "groups_from": "text", "groups_before": "text",
}

func dialect() selector.Dialect {
	live := selector.Rows{
		From: "errand_job j", ID: "j.id", Salt: "j.salt", State: "j.state", Lane: "j.lane", Priority: "j.priority",
		DueAt: "j.due_at", CreatedAt: "j.created_at", Error: liveError, Waits: true,
	}
	finished := live
	finished.From, finished.EndedAt, finished.Error, finished.Waits = "errand_finished j", "j.ended_at", endedError, false
	dead := finished
	dead.From, dead.State, dead.Reason, dead.Cause = "errand_dead j", "6", "j.reason", "j.cause"
	running := live
	running.Waits = false
	running.ID = "(j.id + 0)" // in no index: the way through all jobs by key would be the longer one
	blocked := live.In("j.role = 1")
	blocked.Mark = "j.group_key"
	behind := live.In("o.slot = 1")
	// OFFSET has jobs be found by keys that wait, and not the other way round.
	behind.From, behind.ID = "errand_unique o CROSS JOIN LATERAL (SELECT * FROM errand_job WHERE id = o.job OFFSET 0) j", "o.job"
	scheduled := member(live, "j.role = 0", storage.Scheduled)
	waits := member(live, "j.role = 1", storage.Blocked)
	placed := member(live, "j.role = 2", storage.Scheduled, storage.Ready, storage.Running)
	ended := member(finished, "", storage.Done, storage.Cancelled, storage.Expired)
	died := member(dead, "", storage.Dead)
	return selector.Dialect{
		Param: func(n int, name string) string { return fmt.Sprintf("$%d::%s", n, cmp.Or(types[name], "bigint")) },
		Part:  func(text string) any { return lower(text) },
		Pairs: true, Apart: true, Lanes: "errand_lane",
		// The bytes of a text that is no ASCII, and zero, are digits to encode.
		Contains: `position(@error IN decode(lower(encode(%s, 'escape') COLLATE "C"), 'escape')) > 0`,
		HasTag:   "false", Failed: hasFailed,
		Live: live, Finished: finished, Dead: dead,
		Running: running, Few: live.In("j.state = 1"), Passed: live, FinishedPassed: finished, Blocked: blocked, Behind: behind,
		Group: selector.Members{
			Live: []selector.Rows{scheduled, waits, placed}, Waiting: []selector.Rows{scheduled, placed},
			Finished: []selector.Rows{ended}, Dead: []selector.Rows{died},
			All: []selector.Rows{scheduled, waits, placed, ended, died},
		},
	}
}

// member returns those of r that are in the group, and are in one of these states.
func member(r selector.Rows, role string, states ...storage.State) selector.Rows {
	if r.States = states; role != "" {
		r = r.In(role)
	}
	return r.In("j.group_key = @group")
}

// lower returns the bytes of a text in the lower case of ASCII.
func lower(text string) []byte {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return b
}
