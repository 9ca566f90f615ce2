package sqlite

import (
	"fmt"
	"sync"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/selector"
)

// What is known of a job j beyond its row.
const (
	// isUnspent is whether the last attempt of a job could not reach the other side, and cost
	// it nothing. While the next one runs that is another one.
	isUnspent   = `EXISTS (SELECT 1 FROM main.errand_error e WHERE e.job = j.id AND e.token = j.token)`
	isUnreached = `(state <> 3 AND ` + isUnspent + `)`
	// hasFailed is whether the last attempt of a job failed, and asked for no delay. What
	// has args in the history is an edit.
	hasFailed = `(crashes = 0 AND
(` + isUnspent + `
OR COALESCE((SELECT h.attempt = j.attempt AND NOT retry_after FROM main.errand_history h WHERE h.job = j.id AND h.args IS NULL ORDER BY n DESC LIMIT 1), 0)))`
	lastError = `COALESCE((SELECT NULLIF(error, '') FROM main.errand_error e WHERE e.job = j.id AND e.token = j.token),
(SELECT error FROM main.errand_history h WHERE h.job = j.id AND h.args IS NULL ORDER BY n DESC LIMIT 1))`
	liveError  = `COALESCE(` + lastError + `, '')`
	endedError = `COALESCE(NULLIF(j.error, ''), ` + lastError + `, '')`
)

// selects has the texts that find the jobs of a filter.
//
// Live and finished jobs are passed by key: an index by lane would cost every job that is enqueued,
// leased or finished, see the schema.
var selects = sync.OnceValue(func() *selector.Selector { return selector.New(dialect()) })

func dialect() selector.Dialect {
	live := selector.Rows{
		From: "main.errand_job j", ID: "j.id", Salt: "j.salt", State: "j.state", Lane: "j.lane", Priority: "j.priority",
		DueAt: "j.due_at", CreatedAt: "j.created_at", Error: lastError, Waits: true,
	}
	finished := live
	finished.From, finished.EndedAt, finished.Error, finished.Waits = "main.errand_finished j", "j.ended_at", endedError, false
	dead := finished
	dead.From, dead.State, dead.Reason, dead.Cause = "main.errand_dead j", "6", "j.reason", "j.cause"
	// The jobs of a table of keys t, whatever they are.
	const joinAny = ` LEFT JOIN main.errand_job j ON j.id = t.job LEFT JOIN main.errand_finished f ON f.id = t.job LEFT JOIN main.errand_dead d ON d.id = t.job`
	whole := selector.Rows{
		From: "main.errand_option t" + joinAny, ID: "t.job", State: "COALESCE(j.state, f.state, 6)", Lane: "COALESCE(j.lane, f.lane, d.lane, 0)",
		Priority: "COALESCE(j.priority, f.priority, d.priority, 0)", DueAt: "COALESCE(j.due_at, f.due_at, d.due_at, 0)",
		CreatedAt: "COALESCE(j.created_at, f.created_at, d.created_at, 0)", EndedAt: "COALESCE(f.ended_at, d.ended_at, 0)",
		Reason: "d.reason", Cause: "d.cause", Waits: true,
		Error: `COALESCE(NULLIF(f.error, ''), NULLIF(d.error, ''),
(SELECT NULLIF(error, '') FROM main.errand_error e WHERE e.job = t.job AND e.token = COALESCE(j.token, f.token, d.token)),
(SELECT error FROM main.errand_history h WHERE h.job = t.job AND h.args IS NULL ORDER BY n DESC LIMIT 1), '')`,
	}
	tagged := whole
	tagged.From, tagged.Where = "main.errand_tag t"+joinAny, "t.tag = @tag"
	blocked := through(live, "main.errand_option o", "o.job").In("o.role = 1")
	blocked.Mark = "o.group_key"
	const (
		scheduled, ready, runs, waits  = storage.Scheduled, storage.Ready, storage.Running, storage.Blocked
		done, cancelled, expired, died = storage.Done, storage.Cancelled, storage.Expired, storage.Dead
	)
	running := hinted(live, " INDEXED BY errand_job_running")
	running.Waits = false
	return selector.Dialect{
		Param:    param,
		Part:     func(text string) any { return text },
		Lanes:    "main.errand_lane",
		Contains: "instr(lower(%s), lower(@error)) > 0",
		HasTag:   "EXISTS (SELECT 1 FROM main.errand_tag g WHERE g.tag = @tag AND g.job = %s)",
		Failed:   hasFailed,
		Live:     live, Finished: finished, Dead: dead,
		Running: running, Few: hinted(live, " INDEXED BY errand_job_scheduled"),
		Passed: hinted(live, " NOT INDEXED"), FinishedPassed: hinted(finished, " NOT INDEXED"),
		Blocked: blocked, Behind: through(live, "main.errand_unique o", "o.job").In("o.slot = 1"), Tagged: tagged,
		Group: selector.Members{
			Live:     []selector.Rows{member(live, 0, scheduled), member(live, 1, waits), member(live, 2, scheduled, ready, runs)},
			Waiting:  []selector.Rows{member(live, 0, scheduled), member(live, 2, scheduled)},
			Finished: []selector.Rows{member(finished, 0, done, cancelled, expired)},
			Dead:     []selector.Rows{member(dead, 0, died), member(dead, 3, died)},
			All: []selector.Rows{
				inRole(whole, "t", 0, scheduled, done, cancelled, expired, died), inRole(whole, "t", 1, waits),
				inRole(whole, "t", 2, scheduled, ready, runs), inRole(whole, "t", 3, died),
			},
		},
	}
}

// param returns a parameter. SQLite prepares a statement again for the value of one that is a limit,
// but not if that is a sum.
func param(n int, name string) string {
	if name == "limit" {
		return fmt.Sprintf("?%d + 0", n)
	}
	return fmt.Sprintf("?%d", n)
}

// hinted returns the rows of a table with a hint.
func hinted(r selector.Rows, hint string) selector.Rows {
	r.From += hint
	return r
}

// through returns the rows of r whose keys are in another table, in its order.
func through(r selector.Rows, table, key string) selector.Rows {
	r.From, r.ID = table+" CROSS JOIN "+r.From+" ON j.id = "+key, key
	return r
}

// member returns those of r that have a role in the group, and are in one of these states.
func member(r selector.Rows, role int, states ...storage.State) selector.Rows {
	return inRole(through(r, "main.errand_option o", "o.job"), "o", role, states...)
}

// inRole returns those of r whose errand_option is named so. Each role has an index, in the order of keys.
func inRole(r selector.Rows, option string, role int, states ...storage.State) selector.Rows {
	where := fmt.Sprintf("%s.group_key = @group AND %s.role = %d", option, option, role)
	if role == 2 { // as its index has it
		where += " AND " + option + ".role >= 2"
	}
	r.States = states
	return r.In(where)
}
