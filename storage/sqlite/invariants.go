package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// invariant is a statement about the tables that holds between any two transactions.
type invariant struct {
	name  string // what there is if it does not hold
	means string // the statement
	sql   string // returns a row for each place where it does not hold
	quick bool   // the doctor checks it without full too, and has its own words for it
	since int    // the version of the schema that it is about; lower ones have no such table
}

// invariants is the one list of what must hold in the tables, whatever has happened
// before: the doctor checks it, and so do the tests of all packages.
var invariants = []invariant{
	{name: "jobs in more than one table", means: "a job is in exactly one of live, finished and dead",
		sql: `SELECT id FROM (SELECT id FROM main.errand_job UNION ALL SELECT id FROM main.errand_finished UNION ALL SELECT id FROM main.errand_dead)
GROUP BY id HAVING COUNT(*) > 1`},
	{name: "wrong counts", means: "the kept counts are those of the jobs in the tables", quick: true, sql: sqlWrongCounts},
	{name: "wrong bytes", means: "the kept bytes of a lane are those of the args and headers of its jobs that wait",
		sql: `WITH real AS (SELECT j.lane, SUM(COALESCE(length(j.args), 0) + COALESCE(length(j.headers), 0)
+ COALESCE(length(p.args), 0) + COALESCE(length(p.headers), 0)) n FROM main.errand_job j LEFT JOIN main.errand_payload p ON p.job = j.id
WHERE j.state <> 3 AND j.id < (SELECT n FROM main.errand_number WHERE id = 1) GROUP BY j.lane)
SELECT r.lane FROM real r LEFT JOIN main.errand_number c ON c.id = r.lane * 32 + 16 WHERE COALESCE(c.n, 0) <> r.n
UNION ALL SELECT c.id / 32 FROM main.errand_number c LEFT JOIN real r ON r.lane = c.id / 32 WHERE c.id >= 32 AND c.id % 32 = 16 AND r.n IS NULL AND c.n <> 0`},

	{name: "keys from the future", means: "the key of a job is below the next one",
		sql: `SELECT id FROM (SELECT id FROM main.errand_job UNION ALL SELECT id FROM main.errand_finished UNION ALL SELECT id FROM main.errand_dead),
main.errand_meta WHERE id >= next_job`},
	{name: "uncounted jobs", means: "those that the numbers do not count have not been leased, have not ended, and none is missing",
		sql: `SELECT id FROM (SELECT id, state FROM main.errand_job UNION ALL SELECT id, 0 FROM main.errand_finished UNION ALL SELECT id, 0 FROM main.errand_dead)
WHERE id >= (SELECT n FROM main.errand_number WHERE id = 1) AND state NOT IN (1, 2, 7)
UNION ALL SELECT next_job FROM main.errand_number, main.errand_meta WHERE id = 1 AND next_job - n <> (SELECT COUNT(*)` + fromUncounted + `)`},
	{name: "tokens from the future", means: "the token of a lease is below the next one",
		sql: `SELECT token FROM (SELECT token FROM main.errand_job UNION ALL SELECT token FROM main.errand_finished UNION ALL SELECT token FROM main.errand_dead),
main.errand_meta WHERE token >= next_token`},
	{name: "tokens of two leases", means: "no two leases have the same token",
		sql: `SELECT token FROM main.errand_job WHERE state = 3 GROUP BY token HAVING COUNT(*) > 1`},
	{name: "leases of nobody", means: "a job has a holder if, and only if, it is leased",
		sql: `SELECT id FROM main.errand_job WHERE (state = 3) <> (instance <> 0)`},
	{name: "leases of unknown instances", means: "the holder of a lease is registered", quick: true, sql: sqlHeldByNobody},
	{name: "fates or wishes without a lease", means: "only a leased job has a fate, or is asked to stop",
		sql: `SELECT id FROM main.errand_job WHERE state <> 3 AND (fate <> 0 OR cancelling <> 0)`},
	{name: "negative counters", means: "attempts, retries, crashes and snoozes are not below zero",
		sql: `SELECT id FROM main.errand_job WHERE attempt < 0 OR retry < 0 OR crashes < 0 OR snoozes < 0`},
	{name: "negative delays", means: "delays are not below zero, but for the mark of a blocked job that was due",
		sql: `SELECT id FROM main.errand_job WHERE delay < 0 AND NOT (state = 7 AND delay = -1)`},

	{name: "jobs without args", means: "each job has its args, in its row or beside it",
		sql: `SELECT id FROM (SELECT id, args FROM main.errand_job UNION ALL SELECT id, args FROM main.errand_finished UNION ALL SELECT id, args FROM main.errand_dead)
WHERE args IS NULL AND id NOT IN (SELECT job FROM main.errand_payload)`},
	{name: "args without a job", means: "large args are deleted with their job",
		sql: `SELECT job FROM main.errand_payload WHERE job NOT IN
(SELECT id FROM main.errand_job UNION ALL SELECT id FROM main.errand_finished UNION ALL SELECT id FROM main.errand_dead)`},
	{name: "histories without a job", means: "a history is deleted with its job",
		sql: `SELECT job FROM main.errand_history WHERE job NOT IN
(SELECT id FROM main.errand_job UNION ALL SELECT id FROM main.errand_finished UNION ALL SELECT id FROM main.errand_dead)`},
	{name: "histories that are too long", means: "a history has at most 20 entries",
		sql: `SELECT job FROM main.errand_history GROUP BY job HAVING COUNT(*) > 20`},
	{name: "edits without a mark", means: "a job with an edit in its history says so in its row",
		sql: `SELECT job FROM main.errand_history WHERE args IS NOT NULL AND job NOT IN (SELECT id FROM (SELECT id, options FROM main.errand_job
UNION ALL SELECT id, options FROM main.errand_finished UNION ALL SELECT id, options FROM main.errand_dead) WHERE options & 8 <> 0)`},
	{name: "errors without a job", means: "the last error of a job is deleted with it",
		sql: `SELECT job FROM main.errand_error WHERE job NOT IN
(SELECT id FROM main.errand_job UNION ALL SELECT id FROM main.errand_finished UNION ALL SELECT id FROM main.errand_dead)`},
	{name: "tags without a job", means: "the tags of a job are deleted with it",
		sql: `SELECT job FROM main.errand_tag WHERE job NOT IN
(SELECT id FROM main.errand_job UNION ALL SELECT id FROM main.errand_finished UNION ALL SELECT id FROM main.errand_dead)`},
	{name: "wrong marks of tags", means: "a job is marked as having tags if, and only if, it has some",
		sql: `SELECT id FROM (SELECT id, options FROM main.errand_job UNION ALL SELECT id, options FROM main.errand_finished
UNION ALL SELECT id, options FROM main.errand_dead) j WHERE (options & 2 <> 0) <> EXISTS (SELECT 1 FROM main.errand_tag WHERE job = j.id)`},
	{name: "wrong marks of origins", means: "a job is marked as passed on if, and only if, its tags say where it came from",
		sql: `SELECT id FROM (SELECT id, options FROM main.errand_job UNION ALL SELECT id, options FROM main.errand_finished
UNION ALL SELECT id, options FROM main.errand_dead) j WHERE (options & 64 <> 0) <>
EXISTS (SELECT 1 FROM main.errand_tag WHERE job = j.id AND tag >= 'errand.from:' AND tag < 'errand.from;' AND instr(tag, ','))`},
	{name: "options without a job", means: "what few jobs have is deleted with its job",
		sql: `SELECT job FROM main.errand_option WHERE job NOT IN
(SELECT id FROM main.errand_job UNION ALL SELECT id FROM main.errand_finished UNION ALL SELECT id FROM main.errand_dead)`},
	{name: "wrong marks of options", means: "a job is marked as having options if, and only if, it has some",
		sql: `SELECT id FROM (SELECT id, options FROM main.errand_job UNION ALL SELECT id, options FROM main.errand_finished
UNION ALL SELECT id, options FROM main.errand_dead) j WHERE (options & 1 <> 0) <> EXISTS (SELECT 1 FROM main.errand_option WHERE job = j.id)`},
	{name: "checkpoints without a job", since: 3, means: "what attempts have kept is deleted with its job, which is marked as having it",
		sql: `SELECT job FROM main.errand_kept WHERE job NOT IN (SELECT id FROM (SELECT id, options FROM main.errand_job
UNION ALL SELECT id, options FROM main.errand_finished UNION ALL SELECT id, options FROM main.errand_dead) WHERE options & 16 <> 0)`},
	{name: "checkpoints of jobs that have ended", since: 3, means: "only a live or dead job has a checkpoint, and only one that is done a result",
		sql: `SELECT job FROM main.errand_kept WHERE (checkpoint IS NOT NULL AND job IN (SELECT id FROM main.errand_finished))
OR (result IS NOT NULL AND job NOT IN (SELECT id FROM main.errand_finished WHERE state = 4))`},
	{name: "wrong jobs of schedules", since: 4, means: "it is known which schedule has enqueued a live or dead job that is marked as having one, and that it is live",
		sql: `SELECT id FROM (SELECT id, options, 1 AS live FROM main.errand_job UNION ALL SELECT id, options, 0 FROM main.errand_dead) j
LEFT JOIN main.errand_origin o ON o.job = j.id WHERE o.live IS NOT CASE WHEN options & 32 <> 0 THEN j.live END
UNION ALL SELECT job FROM main.errand_origin WHERE job NOT IN (SELECT id FROM main.errand_job UNION ALL SELECT id FROM main.errand_dead)`},
	{name: "windows of jobs that have ended", means: "only a live job has a time before which it has to begin",
		sql: `SELECT job FROM main.errand_option WHERE (start_by <> 0 OR deadline <> 0) AND job NOT IN (SELECT id FROM main.errand_job)`},
	{name: "windows of jobs that run", means: "a job that runs is passed over by what looks for windows that are over, and no other job is",
		sql: `SELECT job FROM main.errand_option o JOIN main.errand_job j ON j.id = o.job
WHERE CASE state WHEN 3 THEN start_by > 0 OR deadline > 0 ELSE start_by < 0 OR deadline < 0 END`},
	{name: "windows that nobody knows of", means: "that there are windows is noted",
		sql: `SELECT job FROM main.errand_option WHERE (start_by <> 0 OR deadline <> 0) AND NOT EXISTS (SELECT 1 FROM main.errand_number WHERE id = 8)`},
	{name: "windows of no epoch", means: "a window that is counted from the base of an epoch has that epoch",
		sql: `SELECT job FROM main.errand_option WHERE epoch <> 0 AND epoch NOT IN (SELECT epoch FROM main.errand_epoch)`},
	{name: "wrong roles in groups", means: "a job is blocked, has a place in its group, or is dead and keeps others back, if its role says so",
		sql: `SELECT id FROM main.errand_job j LEFT JOIN main.errand_option o ON o.job = j.id
WHERE COALESCE(role, 0) <> CASE WHEN state = 7 AND NOT EXISTS (SELECT 1 FROM main.errand_unique u WHERE u.slot = 1 AND u.job = j.id) THEN 1
WHEN group_key IS NULL OR state = 1 AND role = 0 THEN 0 ELSE 2 END
UNION ALL SELECT job FROM main.errand_option WHERE role = 3 AND job NOT IN (SELECT id FROM main.errand_dead)
UNION ALL SELECT job FROM main.errand_option WHERE role IN (1, 2) AND job NOT IN (SELECT id FROM main.errand_job)`},
	{name: "groups of other queues", means: "the group of a job is one of its queue",
		sql: `SELECT job FROM main.errand_option JOIN (SELECT id, lane FROM main.errand_job UNION ALL SELECT id, lane FROM main.errand_dead) ON id = job
JOIN main.errand_lane USING (lane) WHERE group_key IS NOT NULL AND substr(group_key, 1, length(queue) + 1) <> queue || ' '`},
	{name: "groups that stand still", means: "a blocked job waits for another of its group",
		sql: `SELECT job FROM main.errand_option o WHERE role = 1
AND NOT EXISTS (SELECT 1 FROM main.errand_option h WHERE h.group_key = o.group_key AND h.role >= 2)`},
	{name: "free places in groups", means: "as many members of a group have a place as may while others wait, unless that was changed and is to take effect",
		sql: `SELECT group_key FROM main.errand_option o JOIN main.errand_job j ON j.id = job JOIN main.errand_lane USING (lane)
LEFT JOIN main.errand_setting s ON s.queue = main.errand_lane.queue AND s.kind = '' AND s.name = 'group_limit'
WHERE role IN (1, 2) AND NOT EXISTS (SELECT 1 FROM main.errand_setting r WHERE r.queue = main.errand_lane.queue AND r.kind = '' AND r.name = 'regroup')
GROUP BY group_key HAVING SUM(role = 1) > 0 AND SUM(role = 2) < MAX(COALESCE(MIN(s.value), 1), 1)
AND (MAX(COALESCE(MIN(s.value), 1), 1) > 1 OR NOT EXISTS (SELECT 1 FROM main.errand_option d WHERE d.group_key = o.group_key AND d.role = 3))`},
	{name: "groups beyond their limit", means: "if more members of a group have a place than may, all of them run, unless that was changed and is to take effect",
		sql: `SELECT group_key FROM main.errand_option JOIN main.errand_job j ON j.id = job JOIN main.errand_lane USING (lane)
LEFT JOIN main.errand_setting s ON s.queue = main.errand_lane.queue AND s.kind = '' AND s.name = 'group_limit'
WHERE role = 2 AND NOT EXISTS (SELECT 1 FROM main.errand_setting r WHERE r.queue = main.errand_lane.queue AND r.kind = '' AND r.name = 'regroup')
GROUP BY group_key HAVING COUNT(*) > MAX(COALESCE(MIN(s.value), 1), 1) AND SUM(state <> 3) > 0`},
	{name: "successes from the future", means: "the token of a lane's last success is below the next one",
		sql: `SELECT id FROM main.errand_number, main.errand_meta WHERE id % 32 = 17 AND n >= next_token`},
	{name: "urgent jobs that are not ready", means: "a job is urgent only until it is leased or ends",
		sql: `SELECT job FROM main.errand_urgent WHERE job NOT IN (SELECT id FROM main.errand_job WHERE state = 2)`},
	{name: "unique keys without a job", means: "a unique key whose scope is the live job has one",
		sql: `SELECT job FROM main.errand_unique WHERE until <= 0 AND job NOT IN (SELECT id FROM main.errand_job)`},
	{name: "jobs behind no holder", means: "a job that waits behind the holder of its unique key is blocked, and that one is live and knows of it",
		sql: `SELECT f.key FROM main.errand_unique f WHERE slot = 1 AND (f.job NOT IN (SELECT id FROM main.errand_job WHERE state = 7)
OR NOT EXISTS (SELECT 1 FROM main.errand_unique h JOIN main.errand_job j ON j.id = h.job WHERE h.key = f.key AND h.slot = 0 AND h.until NOT IN (0, 9223372036854775807)))`},
	{name: "jobs without their unique key", means: "a live job with a unique key holds it",
		sql: `SELECT id FROM main.errand_job j WHERE unique_key IS NOT NULL AND NOT EXISTS
(SELECT 1 FROM main.errand_unique u WHERE u.key = j.unique_key AND u.job = j.id)`},
	{name: "wrong references to policies", means: "a policy knows how many jobs have it",
		sql: `WITH used AS (SELECT policy, COUNT(*) n FROM (SELECT policy FROM main.errand_job UNION ALL SELECT policy FROM main.errand_finished
UNION ALL SELECT policy FROM main.errand_dead UNION ALL SELECT in_effect FROM main.errand_dead) WHERE policy <> 0 GROUP BY policy)
SELECT u.policy FROM used u LEFT JOIN main.errand_policy p USING (policy) WHERE p.refs IS NOT u.n
UNION ALL SELECT p.policy FROM main.errand_policy p LEFT JOIN used u USING (policy) WHERE u.n IS NULL AND p.refs <> 0`},
	{name: "wrong causes", means: "a cause knows how many dead letters it has, and without any it is gone",
		sql: `WITH dead AS (SELECT cause, lane, reason, COUNT(*) n FROM main.errand_dead WHERE cause <> 0 GROUP BY cause, lane, reason)
SELECT d.cause FROM dead d LEFT JOIN main.errand_cause c USING (cause, lane, reason) WHERE c.n IS NOT d.n
UNION ALL SELECT c.cause FROM main.errand_cause c LEFT JOIN dead d USING (cause, lane, reason) WHERE d.n IS NULL`},
	{name: "late causes", since: 8, means: "no dead letter of a cause died before its first",
		sql: `SELECT c.cause FROM main.errand_cause c WHERE c.first > (SELECT MIN(ended_at) FROM main.errand_dead d WHERE d.cause = c.cause)`},

	{name: "malformed holds", means: "a hold has a reason, names a queue, a kind or both, and both if it lets jobs through, and has a delay only before its end",
		sql: `SELECT reason FROM main.errand_hold WHERE queue = '' AND kind = '' OR reason = '' OR delay <> 0 AND until IS NULL
OR probe = 1 AND (queue = '' OR kind = '')`},

	{name: "malformed settings", means: "a setting has a name and a value other than zero",
		sql: `SELECT name FROM main.errand_setting WHERE name = '' OR value = 0`},
	{name: "buckets of no throttle", means: "a bucket of tokens is of a queue or a kind with a shared throttle",
		sql: `SELECT queue || kind FROM main.errand_bucket b WHERE NOT EXISTS (SELECT 1 FROM main.errand_setting s
WHERE s.queue = b.queue AND s.kind = b.kind AND s.name = 'starts') OR (queue = '') = (kind = '')`},

	{name: "schedules without a job", means: "a schedule has the job that it enqueues",
		sql: `SELECT schedule FROM main.errand_schedule WHERE schedule NOT IN (SELECT schedule FROM main.errand_schedule_job)`},
	{name: "jobs of no schedule", means: "what a schedule enqueues is deleted with it",
		sql: `SELECT schedule FROM main.errand_schedule_job WHERE schedule NOT IN (SELECT schedule FROM main.errand_schedule)`},
	{name: "revisions from the future", means: "the revision of a schedule is below the next token",
		sql: `SELECT schedule FROM main.errand_schedule, main.errand_meta WHERE revision NOT BETWEEN 1 AND next_token - 1`},
	{name: "revisions that are tokens", means: "no lease has the revision of a schedule as its token",
		sql: `SELECT schedule FROM main.errand_schedule JOIN main.errand_job ON token = revision`},
	{name: "last ticks without a job", means: "a schedule has a last job if, and only if, it has a last tick",
		sql: `SELECT schedule FROM main.errand_schedule WHERE (last_tick IS NULL) <> (last_job IS NULL)`},
	{name: "ticks of no schedule", means: "the ticks of a schedule are deleted with it",
		sql: `SELECT schedule FROM main.errand_tick WHERE schedule NOT IN (SELECT schedule FROM main.errand_schedule)`},
	{name: "starts of no schedule", since: 2, means: "it is forgotten with a schedule which instances have started it",
		sql: `SELECT schedule FROM main.errand_start WHERE schedule NOT IN (SELECT schedule FROM main.errand_schedule)`},
	{name: "too many ticks", means: "at most 50 ticks of a schedule are kept",
		sql: `SELECT schedule FROM main.errand_tick GROUP BY schedule HAVING COUNT(*) > 50`},

	{name: "jobs without their message", means: "a job that delivers a message has it, in whatever table the job is",
		sql: `SELECT job FROM main.errand_tag WHERE tag >= 'message:' AND tag < 'message;' AND substr(tag, 9) NOT IN (SELECT id FROM main.errand_message)`},
	{name: "messages that stay too long, or not long enough", means: "a message is kept by its jobs, and without any until its time is over",
		sql: `SELECT id FROM main.errand_message m WHERE purge_at IS NOT
CASE WHEN EXISTS (SELECT 1 FROM main.errand_tag WHERE tag = 'message:' || m.id) THEN NULL ELSE keep_until END OR purge_at = 0 OR dedup_until > keep_until`},
	{name: "messages without a body", means: "what a message says is there as long as the message",
		sql: `SELECT message FROM main.errand_message WHERE message NOT IN (SELECT message FROM main.errand_body)
UNION ALL SELECT message FROM main.errand_body WHERE message NOT IN (SELECT message FROM main.errand_message)`},
	{name: "messages that are duplicates", means: "a topic has no two messages with the same dedup",
		sql: `SELECT dedup FROM main.errand_message WHERE dedup IS NOT NULL GROUP BY topic, dedup HAVING COUNT(*) > 1`},
	{name: "entries of no family", means: "the revision of a family is not below that of its entries, and below the next token",
		sql: `SELECT name FROM main.errand_entry e LEFT JOIN main.errand_family f USING (family) WHERE family <> '' AND COALESCE(f.revision, 0) < e.revision
UNION ALL SELECT name FROM main.errand_entry, main.errand_meta WHERE revision NOT BETWEEN 1 AND next_token - 1
UNION ALL SELECT family FROM main.errand_family, main.errand_meta WHERE revision NOT BETWEEN 1 AND next_token - 1
UNION ALL SELECT id FROM main.errand_message, main.errand_meta WHERE message NOT BETWEEN 1 AND next_token - 1`},
}

const (
	sqlWrongCounts = `WITH real AS (SELECT lane, state, COUNT(*) n FROM
(SELECT lane, state FROM main.errand_job UNION ALL SELECT lane, state FROM main.errand_finished UNION ALL SELECT lane, 6 FROM main.errand_dead)
GROUP BY lane, state)
SELECT lane FROM real r LEFT JOIN main.errand_count c USING (lane, state) WHERE c.n IS NOT r.n
UNION ALL SELECT lane FROM main.errand_count c LEFT JOIN real r USING (lane, state) WHERE r.n IS NULL AND c.n <> 0`
	sqlHeldByNobody = `SELECT id FROM main.errand_job WHERE state = 3 AND instance NOT IN (SELECT instance FROM main.errand_instance)`

	// Of the jobs that have not ended in a copy, those that the database does not know.
	sqlAttachSaved = `ATTACH ?1 AS saved`
	sqlDetachSaved = `DETACH saved`
	sqlMissing     = `SELECT COUNT(*) FROM saved.errand_job s
WHERE NOT EXISTS (SELECT 1 FROM main.errand_job j WHERE j.id = s.id AND j.created_at = s.created_at AND j.salt = s.salt)
AND NOT EXISTS (SELECT 1 FROM main.errand_finished j WHERE j.id = s.id AND j.created_at = s.created_at AND j.salt = s.salt)
AND NOT EXISTS (SELECT 1 FROM main.errand_dead j WHERE j.id = s.id AND j.created_at = s.created_at AND j.salt = s.salt)`

	remedyInvariant = "restore a backup, and report it: this must not happen"
)

// Querier runs a query: a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// CheckInvariants returns a [Finding] for each invariant of errand's tables that does not
// hold, and none if all hold: each job is in one table, the kept counts are right,
// no two leases have the same token, and so on. It reads all jobs. [Examine] calls
// it if full is set, and tests of programs that write to the tables may.
func CheckInvariants(ctx context.Context, db Querier) ([]Finding, error) {
	return checkInvariants(ctx, db, schemaVersion, true)
}

// checkInvariants is CheckInvariants for a version of the schema, without the quick invariants unless quick is set.
func checkInvariants(ctx context.Context, db Querier, version int, quick bool) ([]Finding, error) {
	var found []Finding
	for _, r := range invariants {
		if r.quick && !quick || r.since > version {
			continue
		}
		n, err := countRows(ctx, db, r.sql)
		if err != nil {
			return found, fmt.Errorf("errand: invariant about %s: %w", r.name, err)
		}
		if n > 0 {
			found = append(found, Finding{"invariants", SeverityError, fmt.Sprintf("%s: %d; %s", r.name, n, r.means), remedyInvariant})
		}
	}
	return found, nil
}

// countRows counts the rows that a query returns.
func countRows(ctx context.Context, db Querier, text string) (n int, err error) {
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}
