package sqlite_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// broken has for each invariant a statement after which it does not hold.
var broken = map[string]string{
	"jobs in more than one table": `UPDATE errand_dead SET id = (SELECT MIN(id) FROM errand_job) WHERE id = (SELECT MIN(id) FROM errand_dead)`,
	"wrong counts":                `UPDATE errand_number SET n = n + 1 WHERE id = (SELECT MAX(id) FROM errand_number WHERE id % 32 < 16)`,

	"wrong bytes": `UPDATE errand_number SET n = n + 1 WHERE id % 32 = 16`,

	"keys from the future":            `UPDATE errand_dead SET id = 1000000 WHERE id = (SELECT MAX(id) FROM errand_dead)`,
	"uncounted jobs":                  `UPDATE errand_number SET n = 1 WHERE id = 1`,
	"tokens from the future":          `UPDATE errand_job SET token = 1000 + id WHERE state = 3`,
	"tokens of two leases":            `UPDATE errand_job SET token = 1 WHERE state = 3`,
	"leases of nobody":                `UPDATE errand_job SET instance = 0 WHERE state = 3`,
	"leases of unknown instances":     `UPDATE errand_job SET instance = 1000 WHERE state = 3`,
	"fates or wishes without a lease": `UPDATE errand_job SET fate = 1 WHERE state <> 3`,
	"negative counters":               `UPDATE errand_job SET retry = -1`,
	"negative delays":                 `UPDATE errand_job SET delay = -1`,

	"jobs without args":           `UPDATE errand_finished SET args = NULL`,
	"args without a job":          `UPDATE errand_payload SET job = 1000`,
	"histories without a job":     `UPDATE errand_history SET job = job + 1000`,
	"histories that are too long": manyOf("errand_history", "job, n + i, attempt, at, phase, error, stack, duration, instance, args, retry_after"),
	"edits without a mark":        `UPDATE errand_history SET args = x'6f6c64'`,
	"errors without a job":        `UPDATE errand_error SET job = 1000`,
	"tags without a job":          `UPDATE errand_tag SET job = 1000`,
	"wrong marks of tags":         `UPDATE errand_job SET options = 2`,
	"wrong marks of origins":      `UPDATE errand_job SET options = options | 64`,
	"options without a job":       `UPDATE errand_option SET job = job + 1000, start_by = 0, deadline = 0`,
	"wrong marks of options":      `UPDATE errand_job SET options = options | 1`,

	"checkpoints without a job":           `INSERT INTO errand_kept (job) VALUES (1000)`,
	"checkpoints of jobs that have ended": `INSERT INTO errand_kept (job, result) SELECT id, x'31' FROM errand_job`,

	"windows of jobs that have ended": `UPDATE errand_option SET start_by = 1 WHERE job IN (SELECT id FROM errand_finished)`,
	"windows of jobs that run":        `UPDATE errand_option SET start_by = -1 WHERE start_by > 0`,
	"windows that nobody knows of":    `DELETE FROM errand_number WHERE id = 8`,
	"windows of no epoch":             `DELETE FROM errand_epoch`,

	"wrong roles in groups":     `UPDATE errand_option SET role = 0 WHERE role = 1`,
	"groups of other queues":    `UPDATE errand_option SET group_key = 'x' || group_key`,
	"groups beyond their limit": `UPDATE errand_option SET role = 2 WHERE role = 1`,
	"free places in groups": `INSERT OR REPLACE INTO errand_setting (queue, kind, name, value)
SELECT DISTINCT substr(group_key, 1, instr(group_key, ' ') - 1), '', 'group_limit', 5 FROM errand_option WHERE role = 1`,
	"groups that stand still": `UPDATE errand_option SET role = 0 WHERE role = 3`,

	"successes from the future":      `UPDATE errand_number SET n = 1000000 WHERE id % 32 = 17`,
	"urgent jobs that are not ready": `INSERT INTO errand_urgent VALUES (1000)`,
	"unique keys without a job":      `UPDATE errand_unique SET job = 1000`,
	"jobs behind no holder":          `INSERT INTO errand_unique SELECT key, 1, job, salt, created_at, 1, 0 FROM errand_unique`,
	"jobs without their unique key":  `UPDATE errand_job SET unique_key = 'another' WHERE unique_key IS NOT NULL`,
	"wrong references to policies":   `UPDATE errand_policy SET refs = refs + 1`,

	"wrong causes": `UPDATE errand_cause SET n = n + 1`,
	"late causes":  `UPDATE errand_cause SET first = 1 << 60`,

	"malformed holds": `UPDATE errand_hold SET until = NULL, delay = -1`,

	"malformed settings":     `UPDATE errand_setting SET value = 0`,
	"buckets of no throttle": `DELETE FROM errand_setting WHERE name = 'starts'`,

	"schedules without a job":                         `DELETE FROM errand_schedule_job`,
	"jobs of no schedule":                             `UPDATE errand_schedule_job SET schedule = 1000`,
	"revisions from the future":                       `UPDATE errand_schedule SET revision = 1000`,
	"revisions that are tokens":                       `UPDATE errand_schedule SET revision = (SELECT MAX(token) FROM errand_job)`,
	"last ticks without a job":                        `UPDATE errand_schedule SET last_job = NULL`,
	"wrong jobs of schedules":                         `UPDATE errand_origin SET live = 0`,
	"starts of no schedule":                           `INSERT INTO errand_start VALUES (1000, 1)`,
	"ticks of no schedule":                            `UPDATE errand_tick SET schedule = 1000`,
	"jobs without their message":                      `UPDATE errand_message SET id = id || 'x'`,
	"messages that stay too long, or not long enough": `UPDATE errand_message SET purge_at = keep_until`,
	"messages without a body":                         `UPDATE errand_body SET message = message + 1000`,
	"messages that are duplicates":                    `UPDATE errand_message SET dedup = 'a', topic = 'a'`,
	"entries of no family":                            `DELETE FROM errand_family`,
	"too many ticks":                                  manyOf("errand_tick", "schedule, n + i, at + i, until, ticks, taken, noted, job"),
}

// manyOf adds 60 rows like the first one of a table.
func manyOf(table, columns string) string {
	return `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 60)
INSERT INTO ` + table + ` SELECT ` + columns + ` FROM c, (SELECT * FROM ` + table + ` LIMIT 1)`
}

// Each invariant holds in a database that has something of everything, and one that is
// broken is found, by the doctor too.
func TestRules(t *testing.T) {
	ctx := context.Background()
	sample := newDB(t, nil)
	everything(t, sample.open())
	sample.Invariants(t)
	for _, name := range sqlite.Invariants() {
		t.Run(name, func(t *testing.T) {
			if broken[name] == "" {
				t.Fatal("nothing breaks it")
			}
			d := newDB(t, nil)
			sample.exec("VACUUM INTO ?", d.path)
			if err := os.Chmod(d.path, 0o600); err != nil {
				t.Fatal(err)
			}
			d.exec(broken[name])
			raw := d.raw()
			defer raw.Close()
			found, err := sqlite.CheckInvariants(ctx, raw)
			if err != nil || !says(found, name) {
				t.Errorf("found %v (%v)", found, err)
			}
			found, err = sqlite.Examine(ctx, d.path, true, t0)
			if err != nil || !says(found, name) && name != "wrong counts" && name != "leases of unknown instances" {
				t.Errorf("the doctor found %v (%v)", found, err)
			}
			if found, err := sqlite.Examine(ctx, d.path, false, t0); err != nil || says(found, name) {
				t.Errorf("without full the doctor found %v (%v)", found, err)
			}
		})
	}
	if len(broken) != len(sqlite.Invariants()) {
		t.Errorf("%d invariants, of which %d can be broken", len(sqlite.Invariants()), len(broken))
	}
}

func says(found []sqlite.Finding, what string) bool {
	for _, f := range found {
		if f.Check == "invariants" && strings.HasPrefix(f.Text, what+": ") {
			return true
		}
	}
	return false
}

// everything fills all tables.
func everything(t *testing.T, s *sqlite.Store) {
	t.Helper()
	unique := newJob("default", "waits")
	unique.Unique, unique.Policy, unique.Args = "waits 1", []byte(`{"numRetries":1}`), make([]byte, 10_000)
	unique.Tags = append(storage.FromTags(storage.Origin{Device: "pi", ID: "17"}), "a", "b")
	if _, err := s.Enqueue(context.Background(), t0, []storage.NewJob{unique}); err != nil {
		t.Fatal(err)
	}
	if err := s.Configure(context.Background(), storage.Lane{Queue: "default"}, storage.Settings{storage.SettingStarts: 1000}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "a", 6)
	entry := storage.Entry{Class: "endpoint", Name: "a", Family: "f", Doc: []byte("doc")}
	if _, err := s.PutEntries(context.Background(), t0, []storage.Entry{entry}); err != nil {
		t.Fatal(err)
	}
	published := storage.Publication{Message: storage.Message{ID: "m", Topic: "t", Body: []byte("body")}, Dedup: "d", DedupFor: time.Hour}
	without := published
	without.Message.ID, without.Dedup = "n", "e"
	published.Jobs = []storage.NewJob{newJob("published", "message")}
	if _, err := s.PublishMessages(context.Background(), t0, []storage.Publication{published, without}); err != nil {
		t.Fatal(err)
	}
	late := newJob("default", "late")
	late.StartWithin, late.Doubtful = time.Hour, true
	ended := late
	ended.Doubtful = false
	added, err := s.Enqueue(context.Background(), t0, []storage.NewJob{late, ended})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(context.Background(), t0, added[1].ID, storage.Retention{Default: time.Hour}); err != nil {
		t.Fatal(err)
	}
	held := lease(t, s, 6, "a")
	failure := &storage.NewFailure{Error: "no"}
	x := storage.Exchange{LeaseDuration: time.Minute, Retention: storage.Retention{Default: time.Hour}, Finish: []storage.Finish{
		{Lease: held[0].Lease, Outcome: storage.OutcomeDone},
		{Lease: held[1].Lease, Outcome: storage.OutcomeRetry, DueAt: t0.Add(time.Hour), Failure: failure},
		{Lease: held[2].Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Error: "no", Failure: failure},
		{Lease: held[5].Lease, Outcome: storage.OutcomeUnavailable, Error: "no route"},
	}}
	if _, err := s.Exchange(context.Background(), t0, x); err != nil {
		t.Fatal(err)
	}
	if err := s.Hold(context.Background(), t0, storage.Hold{Lane: storage.Lane{Queue: "b"}, Reason: "paused"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Configure(context.Background(), storage.Lane{Queue: "b"}, storage.Settings{storage.SettingMaxJobs: 1000}); err != nil {
		t.Fatal(err)
	}
	member := newJob("default", "member")
	for _, group := range []string{"dead", "alive"} {
		member.Group = group
		if _, err := s.Enqueue(context.Background(), t0, []storage.NewJob{member, member}); err != nil {
			t.Fatal(err)
		}
		if group == "dead" {
			l := lease(t, s, 1, "member")[0]
			x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}}}
			if _, err := s.Exchange(context.Background(), t0, x); err != nil {
				t.Fatal(err)
			}
		}
	}
	sched := newSchedule("often")
	fire(t, s, firing("often", put(t, s, sched), &sched.Job))
}
